package roundtrippers_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/idempotency"
	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/layertest"
	"github.com/reroute-go/reroute/roundtrippers"
)

// B31, B33, B36, DESIGN rule 4: after what leaves open whether it ran, an
// operation that must not run twice is not sent again, wherever the guard stands
// and whoever would.
func TestAGuardedOperationIsSentAgainOnlyWhereNothingCanHaveRun(t *testing.T) {
	reset := layertest.Step{Err: io.ErrUnexpectedEOF}
	refused := layertest.Step{Err: &net.OpError{Op: "dial", Err: io.EOF}}
	for _, c := range []struct {
		name string
		step layertest.Step
		ran  bool // may have
	}{
		{"server error", says(middleware.Unavailable), true},
		{"timeout", says(middleware.Timeout), true},
		{"reset after the send", reset, true},
		{"a moved partition, unjudged", says(middleware.Gone), true},
		{"throttled, guaranteed unapplied", words{}.unapplied(says(middleware.Throttled)), false},
		{"contended, guaranteed unapplied", words{}.unapplied(says(middleware.Contended)), false},
		{"unavailable, guaranteed unapplied", words{}.unapplied(says(middleware.Unavailable)), false},
		{"not the primary, guaranteed unapplied", words{}.unapplied(says(middleware.NotPrimary)), false},
		{"a refused dial", refused, false},
	} {
		for _, once := range []bool{false, true} {
			for name, layers := range map[string][]middleware.Layer{
				"guard outside": {roundtrippers.Guard{Dialect: words{}}, anything{2}},
				"guard inside":  {anything{2}, roundtrippers.Guard{Dialect: words{}}},
				"in the middle": {anything{1}, roundtrippers.Guard{Dialect: words{}}, anything{1}},
			} {
				t.Run(fmt.Sprintf("%s, once %v, %s", c.name, once, name), func(t *testing.T) {
					script := layertest.NewScript(t, c.step)
					req := ask(t.Context(), "POST")
					if once {
						req.Header.Set("Once", "yes")
					}
					got := tell(t, layered(t, script, layers...), req)
					if once && c.ran {
						require.Len(t, script.Sends(), 1)
						require.Equal(t, middleware.NotRepeatable, got.Stop)
						require.True(t, got.InDoubt)
						return
					}
					require.Len(t, script.Sends(), 3)
				})
			}
		}
	}
}

func TestWithoutTheGuardEverythingIsRepeated(t *testing.T) { // as the reference driver
	script := layertest.NewScript(t, says(middleware.Unavailable))
	tell(t, layered(t, script, anything{2}), ask(t.Context(), "POST", "Once", "yes"))
	require.Len(t, script.Sends(), 3)

	// What the caller says binds with or without it.
	ctx := middleware.WithIdempotency(t.Context(), idempotency.NonIdempotent)
	script = layertest.NewScript(t, says(middleware.Unavailable))
	tell(t, layered(t, script, anything{2}), ask(ctx, "POST"))
	require.Len(t, script.Sends(), 1)

	ctx = middleware.WithIdempotency(t.Context(), idempotency.Idempotent)
	script = layertest.NewScript(t, says(middleware.Unavailable))
	tell(t, layered(t, script, roundtrippers.Guard{Dialect: words{}}, anything{2}), ask(ctx, "POST", "Once", "yes"))
	require.Len(t, script.Sends(), 3)
}

func TestRealGuardKnowsAFailedHandshakeFromALostAnswer(t *testing.T) { // DESIGN rule 5, go-peers 6.11
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	var conns atomic.Int64
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			conns.Add(1)
			_, _ = conn.Read(make([]byte, 4096))
			_ = conn.Close()
		}
	}()
	for scheme, sends := range map[string]int{"http": 1, "https": 3} { // both fail with a plain EOF
		transport := &http.Transport{}
		rt := layered(t, transport, roundtrippers.Guard{Dialect: words{}}, anything{2})
		req := ask(t.Context(), "POST", "Once", "yes")
		req.URL.Scheme, req.URL.Host = scheme, listener.Addr().String()
		got := tell(t, rt, req)
		require.Equal(t, sends, got.Sends, scheme)
		require.ErrorIs(t, got.err, io.EOF)
		transport.CloseIdleConnections()
	}
}

func TestRealGuardCanForbidTheTransportsOwnReplay(t *testing.T) { // X08
	for _, forbid := range []bool{false, true} {
		var hits atomic.Int64
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			_, _ = io.Copy(io.Discard, req.Body)
			if req.Method == "POST" && hits.Add(1) == 1 {
				conn, _, err := w.(http.Hijacker).Hijack()
				if err == nil {
					_ = conn.Close()
				}
				return
			}
			_, _ = io.WriteString(w, "fine")
		}))
		transport := &http.Transport{}
		rt := layered(t, transport, roundtrippers.Guard{Dialect: words{}, ForbidTransportReplay: forbid}, anything{2})
		at := func(method string) *http.Request {
			req := ask(t.Context(), method, "Once", "yes", "Idempotency-Key", "7")
			req.URL.Host = strings.TrimPrefix(server.URL, "http://")
			return req
		}
		tell(t, rt, at("GET")) // the connection is kept alive
		req := at("POST")
		req.Body, req.ContentLength = io.NopCloser(strings.NewReader("text")), 4
		got := tell(t, rt, req)
		if forbid {
			require.Equal(t, middleware.NotRepeatable, got.Stop)
			require.EqualValues(t, 1, hits.Load())
		} else {
			require.Equal(t, "fine", got.body)
			require.EqualValues(t, 2, hits.Load())
		}
		require.Equal(t, 1, got.Sends)
		transport.CloseIdleConnections()
		server.Close()
	}
}
