package middleware_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/idempotency"
	"github.com/reroute-go/reroute/middleware"
)

// realServer counts connections, so that reuse shows. Their states are told to watch.
func realServer(t *testing.T, handler http.HandlerFunc, watch ...func(http.ConnState)) (*httptest.Server, *atomic.Int64) {
	t.Helper()
	var conns atomic.Int64
	server := httptest.NewUnstartedServer(handler)
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			conns.Add(1)
		}
		for _, tell := range watch {
			tell(state)
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	return server, &conns
}

func realTransport(t *testing.T) *http.Transport {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return transport
}

func to(ctx context.Context, address, method string, body io.Reader) *http.Request {
	req, err := http.NewRequestWithContext(ctx, method, address, body)
	if err != nil {
		panic(err)
	}
	return req
}

func TestRealConnectionsAreReusedAfterDiscardedAnswers(t *testing.T) { // X06, B07
	const n = 9
	for _, c := range []struct {
		name    string
		size    int
		flushed bool // sent chunked
		conns   int64
	}{{"2 KiB", 2 << 10, false, 1}, {"2 KiB chunked", 2 << 10, true, 1}, {"empty", 0, false, 1}, {"60 KiB chunked", 60 << 10, true, 1}, {"1 MiB", 1 << 20, false, n + 1}} {
		t.Run(c.name, func(t *testing.T) {
			var hits atomic.Int64
			written := make(chan struct{}, 2*n)
			server, conns := realServer(t, func(w http.ResponseWriter, _ *http.Request) {
				if hits.Add(1) > n {
					_, _ = w.Write([]byte("body of 200"))
					return
				}
				w.WriteHeader(503)
				if c.flushed {
					w.(http.Flusher).Flush()
				}
				_, _ = w.Write(bytes.Repeat([]byte("x"), c.size))
			}, func(s http.ConnState) {
				if s == http.StateIdle {
					written <- struct{}{}
				}
			})
			transport := realTransport(t)
			transport.MaxConnsPerHost = 1 // an answer left open would block for ever
			// An answer is drained for 50 ms of the wall's clock at most: in them nothing
			// shall depend on when a busy machine lets the server write.
			base := middleware.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
				resp, err := transport.RoundTrip(req)
				if err == nil && c.conns == 1 {
					<-written
				}
				return resp, err
			})
			rt := stack(t, base, again{Budget: &middleware.Budget{Name: "b", Retries: n}})
			answered(t, rt, to(t.Context(), server.URL, "GET", nil), 200)
			require.EqualValues(t, n+1, hits.Load())
			require.Equal(t, c.conns, conns.Load())
		})
	}
}

func TestRealEarlyAnswerToABigUpload(t *testing.T) {
	payload := bytes.Repeat([]byte("0123456789abcdef"), 1<<16) // 1 MiB: within the limit, beyond the socket buffers
	for name, request := range map[string]func(url string) *http.Request{
		"kept": func(url string) *http.Request {
			return to(t.Context(), url, "PUT", struct{ io.Reader }{bytes.NewReader(payload)})
		},
		"with GetBody": func(url string) *http.Request {
			return to(t.Context(), url, "PUT", bytes.NewReader(payload))
		},
		"with a shared seeker": func(url string) *http.Request {
			seeker := bytes.NewReader(payload)
			req := to(t.Context(), url, "PUT", struct{ io.Reader }{seeker})
			req.ContentLength = int64(len(payload))
			req.GetBody = func() (io.ReadCloser, error) {
				_, err := seeker.Seek(0, io.SeekStart)
				return io.NopCloser(seeker), err
			}
			return req
		},
	} {
		t.Run(name, func(t *testing.T) {
			for range 10 {
				var hits atomic.Int64
				server, _ := realServer(t, func(w http.ResponseWriter, req *http.Request) {
					if hits.Add(1) < 3 {
						w.WriteHeader(429) // without reading the body
						return
					}
					got, err := io.ReadAll(req.Body)
					if err != nil || !bytes.Equal(got, payload) {
						w.WriteHeader(400)
					}
					_, _ = w.Write([]byte("body of 200"))
				})
				transport := realTransport(t)
				resp, err := stack(t, transport, again{}).RoundTrip(request(server.URL))
				if err != nil {
					// net/http may see the reset before the answer: then there is none.
					var typed *middleware.Error
					require.ErrorAs(t, err, &typed)
					require.NotEqual(t, "request body", typed.Outcome.Code, "%v", err)
					continue
				}
				require.Equal(t, 200, resp.StatusCode, "the body arrived byte for byte")
				require.Equal(t, "body of 200", read(t, resp))
			}
		})
	}
}

func TestRealExpectContinueRefusedLeavesTheBodyUnread(t *testing.T) {
	var hits atomic.Int64
	server, _ := realServer(t, func(w http.ResponseWriter, req *http.Request) {
		if hits.Add(1) == 1 {
			w.Header().Set("Connection", "close")
			w.WriteHeader(429)
			return
		}
		got, _ := io.ReadAll(req.Body)
		_, _ = w.Write(got)
	})
	transport := realTransport(t)
	transport.ExpectContinueTimeout = 10 * time.Second
	source := &chunked{text: bytes.Repeat([]byte("x"), 100), size: 7}
	req := to(t.Context(), server.URL, "PUT", nil)
	req.Body, req.ContentLength = source, 100
	req.Header.Set("Expect", "100-continue")
	// Nothing may be kept, yet what was not read can be sent.
	resp, err := stack(t, transport, middleware.ReplayBody{MaxBytes: -1}, again{}).RoundTrip(req)
	require.NoError(t, err)
	require.Equal(t, strings.Repeat("x", 100), read(t, resp))
	require.Equal(t, 2, middleware.FromResponse(resp).Sends())
	require.EqualValues(t, 1, source.closes.Load())
}

func TestRealHiddenTransportReplayCanBeForbidden(t *testing.T) { // X08
	for _, forbid := range []bool{false, true} {
		server := newDyingServer(t)
		forbidding := middleware.LayerFunc(func(next http.RoundTripper) http.RoundTripper {
			return middleware.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
				if forbid {
					middleware.FromContext(req.Context()).ForbidTransportReplay()
				}
				return next.RoundTrip(req)
			})
		})
		rt := stack(t, realTransport(t), forbidding)
		answered(t, rt, to(t.Context(), server.url, "GET", nil), 200) // opens the kept-alive connection

		req := to(t.Context(), server.url, "POST", strings.NewReader("text"))
		req.Header.Set("Idempotency-Key", "7")
		resp, err := rt.RoundTrip(req)
		if forbid {
			require.Error(t, err)
			require.Equal(t, int64(1), server.posts.Load())
			var typed *middleware.Error
			require.ErrorAs(t, err, &typed)
			require.Equal(t, 1, typed.Report.Sends)
			continue
		}
		require.NoError(t, err)
		read(t, resp)
		require.Equal(t, int64(2), server.posts.Load(), "net/http has sent it twice")
		require.Equal(t, 1, middleware.FromResponse(resp).Sends(), "and did not tell")
	}
}

// dyingServer reads a POST on a kept-alive connection and closes it unanswered,
// once.
type dyingServer struct {
	url   string
	posts atomic.Int64
}

func newDyingServer(t *testing.T) *dyingServer {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &dyingServer{url: "http://" + listener.Addr().String()}
	var conns sync.WaitGroup
	t.Cleanup(func() { _ = listener.Close(); conns.Wait() })
	conns.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			conns.Go(func() {
				defer conn.Close()
				in := bufio.NewReader(conn)
				for {
					req, err := http.ReadRequest(in)
					if err != nil {
						return
					}
					_, _ = io.Copy(io.Discard, req.Body)
					if req.Method == "POST" && s.posts.Add(1) == 1 {
						return
					}
					_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\nbody of 200")
				}
			})
		}
	})
	return s
}

func TestRealUpgradesStayWritable(t *testing.T) { // X13
	server, _ := realServer(t, func(w http.ResponseWriter, _ *http.Request) {
		conn, buffer, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = buffer.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		_ = buffer.Flush()
		line, _ := buffer.ReadString('\n')
		_, _ = buffer.WriteString("echo " + line)
		_ = buffer.Flush()
	})
	req := to(t.Context(), server.URL, "GET", nil)
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", "echo")
	resp, err := stack(t, realTransport(t), middleware.Observer(func(context.Context, middleware.Event) {}), middleware.ReplayBody{}, again{}).RoundTrip(req)
	require.NoError(t, err)
	require.Equal(t, http.StatusSwitchingProtocols, resp.StatusCode)
	conn, ok := resp.Body.(io.ReadWriteCloser)
	require.True(t, ok)
	defer conn.Close()
	_, err = conn.Write([]byte("hello\n"))
	require.NoError(t, err)
	line, err := bufio.NewReader(conn).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "echo hello\n", line)
}

func TestRealTruncationIsTheReadersError(t *testing.T) { // B17
	var hits atomic.Int64
	server, _ := realServer(t, func(w http.ResponseWriter, _ *http.Request) {
		hits.Add(1)
		w.Header().Set("Content-Length", "1000")
		_, _ = w.Write(bytes.Repeat([]byte("x"), 400))
	})
	resp, err := stack(t, realTransport(t), again{}).RoundTrip(to(t.Context(), server.URL, "GET", nil))
	require.NoError(t, err)
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.Len(t, got, 400)
	require.EqualValues(t, 1, hits.Load())
}

func TestRealTrailersSurvive(t *testing.T) { // go-peers 6.8
	var hits atomic.Int64
	server, _ := realServer(t, func(w http.ResponseWriter, _ *http.Request) {
		if hits.Add(1) == 1 {
			w.WriteHeader(503)
			return
		}
		w.Header().Set("Trailer", "Sum")
		_, _ = w.Write([]byte("body of 200"))
		w.Header().Set("Sum", "7")
	})
	resp, err := stack(t, realTransport(t), again{}).RoundTrip(to(t.Context(), server.URL, "GET", nil))
	require.NoError(t, err)
	require.Equal(t, "body of 200", read(t, resp))
	require.Equal(t, "7", resp.Trailer.Get("Sum"))
}

// What the trace knows and the error does not (go-peers 6.11): both failures are
// a plain EOF.
func TestRealTraceTellsSentFromNotSent(t *testing.T) {
	traced := middleware.LayerFunc(func(next http.RoundTripper) http.RoundTripper {
		return middleware.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
			return next.RoundTrip(middleware.FromContext(req.Context()).Trace(req))
		})
	})
	guarded := middleware.WithIdempotency(t.Context(), idempotency.NonIdempotent)
	closing := closingListener(t)

	err := failed(t, stack(t, realTransport(t), again{}, traced), to(guarded, "http://"+closing, "POST", nil))
	require.Equal(t, middleware.Broken, err.Outcome.Cause)
	require.Equal(t, 1, err.Report.Sends)
	require.ErrorIs(t, err, middleware.ErrNotRepeatable)

	transport := realTransport(t)
	transport.TLSClientConfig = &tls.Config{InsecureSkipVerify: true} //nolint:gosec // there is no server to verify
	err = failed(t, stack(t, transport, again{}, traced), to(guarded, "https://"+closing, "POST", nil))
	require.Equal(t, middleware.Unreachable, err.Outcome.Cause)
	require.Equal(t, 3, err.Report.Sends, "certainly not sent, so it may be repeated")
	require.True(t, err.Report.Attempts[0].NotSent)
	require.False(t, err.Report.InDoubt)

	// A base that does not trace is not believed to be silent.
	base := middleware.RoundTripperFunc(func(*http.Request) (*http.Response, error) { return nil, io.EOF })
	err = failed(t, stack(t, base, again{}, traced), to(guarded, "http://"+closing, "POST", nil))
	require.Equal(t, middleware.Broken, err.Outcome.Cause)
	require.Equal(t, 1, err.Report.Sends)
}

// closingListener reads what comes and closes.
func closingListener(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var done sync.WaitGroup
	t.Cleanup(func() { _ = listener.Close(); done.Wait() })
	done.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Read(make([]byte, 4096))
			_ = conn.Close()
		}
	})
	return listener.Addr().String()
}

func TestRealRefusedAndUnresolvedAreNotSent(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := listener.Addr().String()
	require.NoError(t, listener.Close())
	got := failed(t, stack(t, realTransport(t), again{}), to(t.Context(), "http://"+address, "GET", nil))
	require.Equal(t, middleware.Unreachable, got.Outcome.Cause)
	require.Equal(t, 3, got.Report.Sends)

	got = failed(t, stack(t, realTransport(t), again{}), to(t.Context(), "gopher://"+address, "GET", nil))
	require.Equal(t, middleware.Unmendable, got.Outcome.Cause)
	require.Equal(t, 1, got.Report.Sends)

	proxied := realTransport(t)
	proxied.Proxy = func(*http.Request) (*url.URL, error) { return parse("http://" + address), nil }
	got = failed(t, stack(t, proxied, again{}), to(t.Context(), "http://service.test", "GET", nil))
	require.Equal(t, middleware.Unreachable, got.Outcome.Cause)
}

func TestRealCertificatesThatAreNotTrustedAreFinal(t *testing.T) { // B35
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	server.Config.ErrorLog = quiet
	server.StartTLS()
	defer server.Close()
	err := failed(t, stack(t, realTransport(t), again{}), to(t.Context(), server.URL, "GET", nil))
	require.Equal(t, middleware.Unmendable, err.Outcome.Cause)
	require.Equal(t, 1, err.Report.Sends)
	var cert *tls.CertificateVerificationError
	require.True(t, errors.As(err, &cert))
}

func TestRealHTTP2GracefulShutdownReplaysThroughUs(t *testing.T) { // B06
	var hits atomic.Int64
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		got, _ := io.ReadAll(req.Body)
		if hits.Add(1) == 1 {
			w.Header().Set("Connection", "close") // sends GOAWAY
			w.WriteHeader(503)
		}
		_, _ = w.Write(got)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	rt := stack(t, server.Client().Transport, again{})
	for range 5 {
		resp, err := rt.RoundTrip(to(t.Context(), server.URL, "POST", struct{ io.Reader }{strings.NewReader("text")}))
		require.NoError(t, err)
		require.Equal(t, 2, resp.ProtoMajor)
		require.Equal(t, "text", read(t, resp))
	}
}
