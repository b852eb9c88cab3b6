package roundtrippers_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/rest"
	"github.com/reroute-go/reroute/roundtrippers"
)

// firewall passes connections on to a server and can silently drop what goes
// over the ones that are open: neither side hears of it.
type firewall struct {
	listener net.Listener
	server   string
	mu       sync.Mutex
	closed   bool
	conns    []net.Conn
	holes    []*atomic.Bool
}

func newFirewall(t *testing.T, server string) *firewall {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	f := &firewall{listener: listener, server: server}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			backend, err := net.Dial("tcp", server)
			if err != nil {
				_ = client.Close()
				return
			}
			hole := f.add(client, backend)
			wg.Go(func() { pass(backend, client, hole) })
			wg.Go(func() { pass(client, backend, hole) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		f.closeAll()
		wg.Wait()
	})
	return f
}

func (f *firewall) add(conns ...net.Conn) *atomic.Bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	hole := new(atomic.Bool)
	f.holes = append(f.holes, hole)
	f.conns = append(f.conns, conns...)
	if f.closed {
		for _, c := range conns {
			_ = c.Close()
		}
	}
	return hole
}

func (f *firewall) closeAll() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	for _, c := range f.conns {
		_ = c.Close()
	}
}

func pass(to, from net.Conn, hole *atomic.Bool) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			if !hole.Load() {
				_ = to.Close()
			}
			return
		}
		if !hole.Load() {
			_, _ = to.Write(buf[:n])
		}
	}
}

// dropAll drops what goes over the connections that are open now.
func (f *firewall) dropAll() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, hole := range f.holes {
		hole.Store(true)
	}
}

func (f *firewall) connections() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.holes)
}

// http2Behind returns an HTTP/2 server's URL, and a maker of transports to it
// that go through the firewall.
func http2Behind(t *testing.T, handler http.Handler, tune func(*http.Transport)) (string, *firewall, func() http.RoundTripper) {
	t.Helper()
	srv := httptest.NewUnstartedServer(handler)
	srv.EnableHTTP2 = true
	srv.StartTLS()
	t.Cleanup(srv.Close)
	wall := newFirewall(t, srv.Listener.Addr().String())
	return srv.URL, wall, func() http.RoundTripper {
		tr := srv.Client().Transport.(*http.Transport).Clone()
		tr.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, wall.listener.Addr().String())
		}
		tune(tr)
		return tr
	}
}

var protocol = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Proto) })

func fetch(t *testing.T, rt http.RoundTripper, url string) (*http.Response, string) {
	t.Helper()
	resp, err := rt.RoundTrip(get(t.Context(), url))
	require.NoError(t, err)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return resp, string(body)
}

func TestRealASilentlyDroppedHTTP2ConnectionIsLeftByTheShardRetry(t *testing.T) { // B83, go-peers 6.12
	pings := func(tr *http.Transport) {
		tr.HTTP2 = &http.HTTP2Config{SendPingTimeout: 500 * time.Millisecond, PingTimeout: 500 * time.Millisecond}
	}
	limit := func(tr *http.Transport) { tr.ResponseHeaderTimeout = time.Second }
	for name, c := range map[string]struct {
		tune  func(*http.Transport)
		shard roundtrippers.Shard
		cause middleware.Cause
	}{
		"found out by pings":       {pings, roundtrippers.Shard{Dialect: rest.Dialect{}}, middleware.Broken},
		"found out by the timeout": {limit, roundtrippers.Shard{Dialect: rest.Dialect{}, Timeouts: true}, middleware.Timeout},
	} {
		t.Run(name, func(t *testing.T) {
			url, wall, transport := http2Behind(t, protocol, c.tune)
			pools := &roundtrippers.Pools{New: transport}
			defer pools.CloseIdleConnections()
			rt, err := middleware.Stack(pools, c.shard)
			require.NoError(t, err)

			_, proto := fetch(t, rt, url)
			require.Equal(t, "HTTP/2.0", proto)
			require.Equal(t, 1, wall.connections())

			wall.dropAll()
			resp, proto := fetch(t, rt, url)
			require.Equal(t, "HTTP/2.0", proto)
			require.Equal(t, 2, wall.connections())
			attempts := middleware.FromResponse(resp).Report().Attempts
			require.Len(t, attempts, 2)
			require.Equal(t, c.cause, attempts[0].Cause)

			for range 20 { // everybody else has left it too
				_, proto = fetch(t, rt, url)
				require.Equal(t, "HTTP/2.0", proto)
			}
			require.Equal(t, 2, wall.connections())
			require.EqualValues(t, 1, pools.Stats()[0].Failures)
		})
	}
}

func TestRealASinglePoolKeepsTheDroppedConnection(t *testing.T) { // the control: why there are pools
	url, wall, transport := http2Behind(t, protocol, func(tr *http.Transport) { tr.ResponseHeaderTimeout = 100 * time.Millisecond })
	base := transport().(*http.Transport)
	defer base.CloseIdleConnections()
	rt, err := middleware.Stack(base, roundtrippers.Shard{Dialect: rest.Dialect{}, Timeouts: true, Retries: 3})
	require.NoError(t, err)
	fetch(t, rt, url)
	wall.dropAll()
	_, err = rt.RoundTrip(get(t.Context(), url))
	var e *middleware.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, 4, e.Report.Sends)
	require.Equal(t, 1, wall.connections())
}

// counted starts an HTTP/1.1 server that counts its connections.
func counted(t *testing.T, handler http.Handler) (srv *httptest.Server, opened, closed *atomic.Int64) {
	t.Helper()
	opened, closed = new(atomic.Int64), new(atomic.Int64)
	srv = httptest.NewUnstartedServer(handler)
	srv.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			opened.Add(1)
		case http.StateClosed:
			closed.Add(1)
		}
	}
	srv.Start()
	t.Cleanup(srv.Close)
	return srv, opened, closed
}

func TestRealHTTP1ConnectionsAreReusedOnTheHealthyPath(t *testing.T) {
	srv, opened, _ := counted(t, protocol)
	pools := new(roundtrippers.Pools) // the default transport
	defer pools.CloseIdleConnections()
	rt, err := middleware.Stack(pools, roundtrippers.Shard{Dialect: rest.Dialect{}})
	require.NoError(t, err)
	for range 50 {
		_, proto := fetch(t, rt, srv.URL)
		require.Equal(t, "HTTP/1.1", proto)
	}
	require.EqualValues(t, 1, opened.Load())
}

func TestRealAnUnexpectedlyClosedHTTP1ConnectionCostsOneRetryAndThePoolIsKept(t *testing.T) {
	var n atomic.Int64
	srv, _, _ := counted(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n.Add(1) == 2 {
			panic(http.ErrAbortHandler) // closes the connection unanswered
		}
		protocol(w, r)
	}))
	pools := new(roundtrippers.Pools)
	defer pools.CloseIdleConnections()
	rt, err := middleware.Stack(pools, roundtrippers.Shard{Dialect: rest.Dialect{}})
	require.NoError(t, err)
	put := func() *http.Response {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, srv.URL, strings.NewReader("x"))
		require.NoError(t, err)
		resp, err := rt.RoundTrip(req)
		require.NoError(t, err)
		_, _ = io.Copy(io.Discard, resp.Body)
		require.NoError(t, resp.Body.Close())
		return resp
	}
	put()
	require.Equal(t, 2, middleware.FromResponse(put()).Sends()) // net/http does not replay a PUT (go-peers 6.9)
	require.Equal(t, 1, middleware.FromResponse(put()).Sends())
	require.Zero(t, pools.Stats()[0].Pools[0].Failures, "the first pool serves again")
}

func TestRealTheBodyOfAnUpgradedConnectionCanBeWritten(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, rw, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		_ = rw.Flush()
		line, _ := rw.ReadString('\n')
		_, _ = io.WriteString(conn, line)
	}))
	defer srv.Close()
	pools := new(roundtrippers.Pools)
	rt, err := middleware.Stack(pools, roundtrippers.Shard{Dialect: rest.Dialect{}})
	require.NoError(t, err)
	req := get(t.Context(), srv.URL)
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", "echo")
	resp, err := rt.RoundTrip(req)
	require.NoError(t, err)
	require.Equal(t, http.StatusSwitchingProtocols, resp.StatusCode)
	body, ok := resp.Body.(io.ReadWriteCloser)
	require.True(t, ok)
	_, err = io.WriteString(body, "hello\n")
	require.NoError(t, err)
	line, err := bufio.NewReader(body).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "hello\n", line)
	require.NoError(t, body.Close())
}

func TestRealAnAnswerOfAPoolThatWasLeftCanBeReadToItsEnd(t *testing.T) {
	more := make(chan struct{})
	slow := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/abort" {
			panic(http.ErrAbortHandler)
		}
		_, _ = io.WriteString(w, strings.Repeat("a", 1000))
		_ = http.NewResponseController(w).Flush()
		<-more
		_, _ = io.WriteString(w, strings.Repeat("b", 1000))
	})
	srv, opened, closed := counted(t, slow)
	pools := &roundtrippers.Pools{MaxFailures: 1, Grace: 1}
	defer pools.CloseIdleConnections()
	resp, err := pools.RoundTrip(get(t.Context(), srv.URL))
	require.NoError(t, err)
	_, err = pools.RoundTrip(get(t.Context(), srv.URL+"/abort"))
	require.Error(t, err)
	require.EqualValues(t, 1, pools.Stats()[0].Replaced)
	close(more)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Len(t, body, 2000)
	require.NoError(t, resp.Body.Close())
	// net/http closes the connection by itself now that the pool was left.
	require.Eventually(t, func() bool { return closed.Load() == opened.Load() }, 10*time.Second, time.Millisecond)
}
