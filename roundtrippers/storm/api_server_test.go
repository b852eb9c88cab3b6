package storm

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/reroute-go/reroute/idempotency"
)

// apiServer is a REST and GraphQL API in memory, behind a real http.Server.
// Things are put and deleted, jobs are run; a job's Idempotency-Key makes its
// repeat give the first answer again.
type apiServer struct {
	*storm
	server *http.Server
	conns  chan net.Conn
	closed chan struct{}
	down   atomic.Bool // refuses connections

	mu     sync.Mutex
	token  string
	things map[string]string
	runs   map[string]int // of jobs
	keys   map[string]string
}

func newAPIServer(s *storm) *apiServer {
	a := &apiServer{
		storm: s, conns: make(chan net.Conn), closed: make(chan struct{}), token: "Bearer 1",
		things: map[string]string{"base": "base"}, runs: map[string]int{}, keys: map[string]string{},
	}
	a.server = &http.Server{Handler: a, ErrorLog: log.New(io.Discard, "", 0)}
	go func() { _ = a.server.Serve(a) }()
	return a
}

// Accept, Close and Addr make it its own listener.
func (a *apiServer) Accept() (net.Conn, error) {
	select {
	case c := <-a.conns:
		return c, nil
	case <-a.closed:
		return nil, net.ErrClosed
	}
}

func (a *apiServer) Close() error   { close(a.closed); return nil }
func (a *apiServer) Addr() net.Addr { return &net.UnixAddr{Name: "api"} }

func (a *apiServer) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	if a.down.Load() {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	}
	client, server := net.Pipe()
	select {
	case a.conns <- server:
		return client, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// apiFaults are what a request that is struck meets.
var apiFaults = []string{
	"429", "429 for 1s", "429 for 3s", "429 for 1s, slowly", "429 for 3s, slowly", "429 unread", "503", "503 for 1s", "503 unread", "500", "502", "408", "404",
	"hangs", "slow answers", "late answers", "resets", "lost answers", "lost 503", "cut answers", "no JSON",
}

const slowly = 300 * time.Millisecond

func (a *apiServer) ServeHTTP(rw http.ResponseWriter, req *http.Request) {
	fault := req.Header.Get(faultHeader)
	if strings.HasSuffix(fault, " unread") { // an answer before the body is read: net/http goes on sending for a while
		status, _ := strconv.Atoi(fault[:3])
		rw.Header().Set("Connection", "close")
		rw.WriteHeader(status)
		return
	}
	body, err := io.ReadAll(req.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if want := req.Header.Get("X-Body"); want != "" && !bytes.Equal(body, []byte(payload(want))) {
		a.break_("the body of %s came as %d other bytes: %.60q", want, len(body), body)
	}
	if strings.HasSuffix(fault, ", slowly") { // others are sent meanwhile, and queue up
		lasts(req.Context(), slowly)
		fault = strings.TrimSuffix(fault, ", slowly")
	}
	switch fault {
	case "hangs":
		<-req.Context().Done()
		panic(http.ErrAbortHandler)
	case "slow answers", "late answers":
		lasts(req.Context(), map[string]time.Duration{"slow answers": slowly, "late answers": 4 * time.Second}[fault])
	case "resets":
		panic(http.ErrAbortHandler)
	case "429", "429 for 1s", "429 for 3s", "503", "503 for 1s", "500", "502", "408", "404":
		code, wish, _ := strings.Cut(fault, " for ")
		if wish != "" {
			rw.Header().Set("Retry-After", strings.TrimSuffix(wish, "s"))
		}
		status, _ := strconv.Atoi(code)
		http.Error(rw, `{"error":"struck"}`, status)
		return
	}
	status, text := a.carryOut(req, string(body))
	switch fault {
	case "lost answers":
		panic(http.ErrAbortHandler)
	case "lost 503":
		status = http.StatusServiceUnavailable
	case "no JSON":
		text = "<html>"
	}
	rw.Header().Set("Content-Length", strconv.Itoa(len(text)))
	rw.WriteHeader(status)
	if fault == "cut answers" && len(text) > 0 {
		_, _ = io.WriteString(rw, text[:1])
		_ = http.NewResponseController(rw).Flush()
		panic(http.ErrAbortHandler)
	}
	_, _ = io.WriteString(rw, text)
}

// carryOut does what is asked, if the token is good.
func (a *apiServer) carryOut(req *http.Request, body string) (status int, text string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if req.Header.Get("Authorization") != a.token {
		return http.StatusUnauthorized, `{"error":"token"}`
	}
	kind, id, _ := strings.Cut(strings.TrimPrefix(req.URL.Path, "/"), "/")
	switch {
	case kind == "graphql" && strings.Contains(body, "mutation"):
		id = req.Header.Get("X-Job")
		text = `{"data":{"ran":true}}`
	case kind == "graphql":
		return http.StatusOK, `{"data":{"base":"base"}}`
	case kind == "jobs":
		text = fmt.Sprintf(`{"ran":%q}`, id)
	case req.Method == http.MethodPut:
		a.things[id] = id
		return http.StatusOK, `"stored"`
	case req.Method == http.MethodDelete:
		delete(a.things, id)
		return http.StatusNoContent, ""
	default:
		return http.StatusOK, fmt.Sprintf("%q", a.things[id])
	}
	if key := req.Header.Get(idempotency.Key); key != "" {
		if of, repeated := a.keys[key]; repeated {
			if of != id {
				a.break_("the key of job %s comes with job %s", of, id)
			}
			return http.StatusOK, text
		}
		a.keys[key] = id
	}
	a.runs[id]++
	return http.StatusOK, text
}

// payload is a body that belongs to a name, of about the size at the name's end.
// It counts, so that no part of it is like another.
func payload(name string) string {
	size, _ := strconv.Atoi(name[strings.LastIndexByte(name, '-')+1:])
	b := append(make([]byte, 0, size+64), '"')
	b = append(b, name...)
	for i := int64(0); len(b) < size; i++ {
		b = append(strconv.AppendInt(b, i, 10), ',')
	}
	return string(append(b, '"'))
}
