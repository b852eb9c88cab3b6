package roundtrippers_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/idempotency"
	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/rest"
	"github.com/reroute-go/reroute/roundtrippers"
)

// dyingServer answers the first request of a connection and, if told to, closes it
// on the second without an answer: a kept-alive connection that turns out dead.
type dyingServer struct {
	url  string
	die  atomic.Bool
	mu   sync.Mutex
	keys []string // of all requests that arrived
}

func newDyingServer(t *testing.T) *dyingServer {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &dyingServer{url: "http://" + listener.Addr().String()}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go s.serve(conn)
		}
	}()
	return s
}

func (s *dyingServer) serve(conn net.Conn) {
	defer conn.Close()
	reader := bufio.NewReader(conn)
	for n := 1; ; n++ {
		req, err := http.ReadRequest(reader)
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, req.Body)
		s.mu.Lock()
		s.keys = append(s.keys, req.Header.Get(idempotency.Key))
		s.mu.Unlock()
		if n == 2 && s.die.Load() {
			return
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	}
}

func (s *dyingServer) hits() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.keys...)
}

func TestRealTransportReplaysAreSeenAndCanBeForbiddenX08B38R40R43(t *testing.T) {
	for name, row := range map[string]struct {
		layer   *roundtrippers.IdempotencyKey
		method  string
		hits    int // of the request whose connection dies
		replays int
		fails   bool
	}{
		"a POST with a key is sent again by net/http": {&roundtrippers.IdempotencyKey{}, http.MethodPost, 2, 1, false},
		"unless that is forbidden":                    {&roundtrippers.IdempotencyKey{ForbidTransportReplay: true}, http.MethodPost, 1, 0, true},
		"without a key a POST is not":                 {nil, http.MethodPost, 1, 0, true},
		"R43 a GET is, untraced":                      {nil, http.MethodGet, 2, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			server := newDyingServer(t)
			base := &http.Transport{}
			defer base.CloseIdleConnections()
			rt, err := roundtrippers.APIBuilder{Dialect: rest.Dialect{}, IdempotencyKey: row.layer, Base: base}.Build()
			require.NoError(t, err)
			send := func() (middleware.Report, error) {
				var body io.Reader
				if row.method != http.MethodGet {
					body = strings.NewReader("body")
				}
				req, err := http.NewRequestWithContext(t.Context(), row.method, server.url, body)
				require.NoError(t, err)
				resp, err := rt.RoundTrip(req)
				if err != nil {
					var typed *middleware.Error
					require.ErrorAs(t, err, &typed)
					return typed.Report, err
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				require.NoError(t, resp.Body.Close())
				return middleware.FromResponse(resp).Report(), nil
			}
			_, err = send()
			require.NoError(t, err)
			time.Sleep(20 * time.Millisecond) // the connection goes back to the pool
			server.die.Store(true)
			report, err := send()
			require.Equal(t, row.fails, err != nil)
			require.Equal(t, 1, report.Sends)
			require.Equal(t, row.replays, report.TransportReplays)
			hits := server.hits()[1:]
			require.Len(t, hits, row.hits)
			if row.layer != nil {
				require.NotEmpty(t, hits[0])
				require.Equal(t, hits[0], hits[len(hits)-1], "the same key both times")
			}
		})
	}
}

func TestRealDiscardedAnswersKeepTheConnectionX06(t *testing.T) {
	var conns, hits atomic.Int64
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if hits.Add(1) < 3 {
			w.WriteHeader(503)
			_, _ = io.WriteString(w, strings.Repeat("sorry ", 100))
		}
	}))
	server.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			conns.Add(1)
		}
	}
	server.Start()
	defer server.Close()
	base := &http.Transport{}
	defer base.CloseIdleConnections()
	rt, err := roundtrippers.APIBuilder{Dialect: rest.Dialect{}, Base: base}.Build()
	require.NoError(t, err)
	ctx := patiently(t.Context(), middleware.Patience{Retries: 5, Base: time.Millisecond})
	resp, err := rt.RoundTrip(get(ctx, server.URL))
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.EqualValues(t, 3, hits.Load())
	require.EqualValues(t, 1, conns.Load())
}

func TestRealCancellationReachesTheServerV149V151(t *testing.T) {
	arrived, left := make(chan struct{}, 2), make(chan struct{}, 2)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == "/body" {
			_, _ = io.WriteString(w, "begin")
			_ = http.NewResponseController(w).Flush()
		}
		arrived <- struct{}{}
		<-req.Context().Done()
		left <- struct{}{}
	}))
	defer server.Close()
	concurrency := &roundtrippers.Concurrency{Limit: 1}
	rt, err := roundtrippers.APIBuilder{Dialect: rest.Dialect{}, Concurrency: concurrency}.Build()
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-arrived; cancel() }()
	_, err = rt.RoundTrip(get(ctx, server.URL))
	require.ErrorIs(t, err, context.Canceled)
	<-left
	require.Zero(t, concurrency.InFlight())

	ctx, cancel = context.WithCancel(t.Context())
	resp, err := rt.RoundTrip(get(ctx, server.URL+"/body"))
	require.NoError(t, err)
	cancel()
	_, err = io.ReadAll(resp.Body)
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, resp.Body.Close())
	<-left
}

func TestRealRedirectsAreCallsOfTheirOwnAndCarryNoTokenElsewhereR39V081(t *testing.T) {
	seen := make(chan string, 4)
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) { seen <- "other " + req.Header.Get("Authorization") }))
	defer other.Close()
	home := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		seen <- "home " + req.Header.Get("Authorization")
		http.Redirect(w, req, other.URL, http.StatusTemporaryRedirect)
	}))
	defer home.Close()
	rt, err := roundtrippers.APIBuilder{Dialect: rest.Dialect{}, Auth: &roundtrippers.Auth{Origins: []string{home.URL}, Source: (&tokenSource{}).next}}.Build()
	require.NoError(t, err)
	resp, err := (&http.Client{Transport: rt}).Do(get(t.Context(), home.URL))
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, "home Bearer secret-1", <-seen)
	require.Equal(t, "other ", <-seen)
	require.Equal(t, 1, middleware.FromResponse(resp).Report().Sends)
}

func TestRealUpgradedConnectionsStayWritersX13(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		line, _ := rw.ReadString('\n')
		_, _ = io.WriteString(conn, line)
	}))
	defer server.Close()
	concurrency := &roundtrippers.Concurrency{HoldUntilBodyClose: true}
	rt, err := roundtrippers.APIBuilder{Dialect: rest.Dialect{}, Concurrency: concurrency, AttemptTimeout: time.Minute}.Build()
	require.NoError(t, err)
	req := get(t.Context(), server.URL)
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", "echo")
	resp, err := rt.RoundTrip(req)
	require.NoError(t, err)
	conn, ok := resp.Body.(io.ReadWriteCloser)
	require.True(t, ok)
	_, err = io.WriteString(conn, "hello\n")
	require.NoError(t, err)
	line, err := bufio.NewReader(conn).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "hello\n", line)
	require.NoError(t, conn.Close())
	require.Zero(t, concurrency.InFlight())
}

func TestRealReverseProxyKeepsWorkingOverAStack(t *testing.T) {
	var hits atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if hits.Add(1) == 1 {
			w.WriteHeader(503)
			return
		}
		_, _ = fmt.Fprint(w, "through ", req.Header.Get("Authorization"))
	}))
	defer server.Close()
	rt, err := roundtrippers.APIBuilder{Dialect: rest.Dialect{}, Retry: roundtrippers.Retry{Background: middleware.Patience{Retries: 2, Base: time.Millisecond}},
		Auth: &roundtrippers.Auth{Origins: []string{server.URL}, Source: (&tokenSource{}).next}}.Build()
	require.NoError(t, err)
	proxy := httptest.NewServer(&httputil.ReverseProxy{Transport: rt, Rewrite: func(r *httputil.ProxyRequest) {
		r.Out.URL.Scheme, r.Out.URL.Host = "http", strings.TrimPrefix(server.URL, "http://")
	}})
	defer proxy.Close()
	resp, err := http.Get(proxy.URL) //nolint:noctx // a test
	require.NoError(t, err)
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, "through Bearer secret-1", string(text))
}

func TestRealBodiesOfAnotherLengthThanAnnouncedEndTheCallR32(t *testing.T) {
	var hits atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		hits.Add(1)
		_, _ = io.Copy(io.Discard, req.Body)
	}))
	defer server.Close()
	circuit := &roundtrippers.Circuit{Threshold: 1}
	rt, err := roundtrippers.APIBuilder{Dialect: rest.Dialect{}, Circuit: circuit}.Build()
	require.NoError(t, err)
	for _, announced := range []int64{10, 2} {
		req, err := http.NewRequestWithContext(essentially(t.Context()), http.MethodPut, server.URL, strings.NewReader("short"))
		require.NoError(t, err)
		req.ContentLength = announced
		resp, err := rt.RoundTrip(req)
		if err == nil { // the server may have its answer ready before the body's end shows
			require.NoError(t, resp.Body.Close())
			continue
		}
		var length *middleware.BodyLengthError
		require.ErrorAs(t, err, &length)
		require.Equal(t, announced, length.Announced)
		var typed *middleware.Error
		require.ErrorAs(t, err, &typed)
		require.Equal(t, 1, typed.Report.Sends)
	}
	state, _ := circuit.State()
	require.Equal(t, "closed", state.String())
}
