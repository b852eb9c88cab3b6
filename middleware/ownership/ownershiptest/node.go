package ownershiptest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
)

// node is one address that answers while it is up.
type node struct {
	name    string // host:port
	handler http.Handler

	mu      sync.Mutex
	life    context.Context // of the requests under way; nil while down
	die     context.CancelFunc
	server  *http.Server // nil in memory and while down
	serving sync.WaitGroup
}

func (n *node) address() string {
	if n == nil {
		return ""
	}
	return n.name
}

func (n *node) up() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.life == nil {
		n.life, n.die = context.WithCancel(context.Background())
	}
}

func (n *node) isUp() bool { return n.lifetime() != nil }

func (n *node) lifetime() context.Context {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.life
}

// down refuses connections and cuts those that are open.
func (n *node) down() {
	n.mu.Lock()
	die, server := n.die, n.server
	n.life, n.die, n.server = nil, nil, nil
	n.mu.Unlock()
	if die != nil {
		die()
	}
	if server != nil {
		_ = server.Close()
		n.serving.Wait()
	}
}

// listen serves on a loopback socket: a new one the first time, then the same. An
// address just left can be busy for a moment, so it tries again.
func (n *node) listen() error {
	n.mu.Lock()
	running := n.server != nil
	n.mu.Unlock()
	if running {
		return nil
	}
	address := n.name
	if strings.Contains(address, ".cluster.test") {
		address = "127.0.0.1:0"
	}
	var socket net.Listener
	var err error
	for range 50 {
		if socket, err = net.Listen("tcp", address); err == nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err != nil {
		return err
	}
	server := &http.Server{Handler: n.handler, ReadHeaderTimeout: time.Minute, ErrorLog: log.New(io.Discard, "", 0)}
	n.mu.Lock()
	if address != n.name { // the first time; later it is in use by others
		n.name = socket.Addr().String()
	}
	n.server = server
	n.mu.Unlock()
	n.serving.Go(func() { _ = server.Serve(socket) })
	return nil
}

// memory reaches the nodes of a cluster without sockets.
type memory struct{ c *Cluster }

// RoundTrip has the node's handler answer, on the caller's goroutine.
func (m memory) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body == nil {
		req = req.Clone(req.Context())
		req.Body = http.NoBody
	}
	defer req.Body.Close()
	n := m.c.service
	if req.URL.Host != n.name {
		if n = m.c.named(req.URL.Host); n == nil {
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: req.URL.Host, IsNotFound: true}}
		}
	}
	life := n.lifetime()
	switch {
	case req.Context().Err() != nil:
		return nil, req.Context().Err()
	case life == nil:
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	}
	ctx, cancel := context.WithCancel(req.Context())
	defer cancel()
	defer context.AfterFunc(life, cancel)()
	served := req.Clone(ctx)
	rec := &recorder{header: http.Header{}}
	if !rec.serve(n.handler, served) {
		if err := req.Context().Err(); err != nil {
			return nil, err
		}
		return nil, &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", syscall.ECONNRESET)}
	}
	return rec.response(req), nil
}

func (c *Cluster) named(host string) *node {
	for _, n := range c.nodes {
		if n.name == host {
			return n
		}
	}
	return nil
}

// recorder is a ResponseWriter that becomes a Response.
type recorder struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

func (r *recorder) Header() http.Header { return r.header }

func (r *recorder) WriteHeader(code int) {
	if r.code == 0 {
		r.code = code
	}
}

func (r *recorder) Write(p []byte) (int, error) {
	r.WriteHeader(http.StatusOK)
	return r.body.Write(p)
}

// serve reports whether the handler answered: http.ErrAbortHandler cuts the
// connection.
func (r *recorder) serve(h http.Handler, req *http.Request) (answered bool) {
	defer func() {
		if p := recover(); p != nil {
			if err, ok := p.(error); !ok || !errors.Is(err, http.ErrAbortHandler) {
				panic(p)
			}
			answered = false
		}
	}()
	h.ServeHTTP(r, req)
	return true
}

func (r *recorder) response(req *http.Request) *http.Response {
	r.WriteHeader(http.StatusOK)
	return &http.Response{
		StatusCode: r.code, Status: http.StatusText(r.code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: r.header,
		ContentLength: int64(r.body.Len()), Body: io.NopCloser(&r.body), Request: req,
	}
}
