package roundtrippers_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/layertest"
	"github.com/reroute-go/reroute/middleware/rest"
	"github.com/reroute-go/reroute/regions"
	"github.com/reroute-go/reroute/roundtrippers"
)

// K03, the contract of http.RoundTripper.

func TestB09EveryEarlyReturnClosesTheRequestBody(t *testing.T) {
	cancelled := func(ctx context.Context) context.Context {
		ctx, cancel := context.WithCancel(ctx)
		cancel()
		return ctx
	}
	within := func(d time.Duration) func(context.Context) context.Context {
		return func(ctx context.Context) context.Context {
			ctx, cancel := context.WithTimeout(ctx, d)
			_ = cancel // the bubble's end is later
			return ctx
		}
	}
	hang := layertest.Step{Hang: true}
	for _, c := range []struct {
		name   string
		change func(*roundtrippers.APIBuilder)
		first  func(c *apiClient) // brings the stack into its state
		ctx    func(context.Context) context.Context
		is     error
	}{
		{"the breaker is open", threshold(1), func(c *apiClient) { _, _ = c.do(c.t.Context()) }, nil, middleware.ErrCircuitOpen},
		{"the limiter refuses", func(b *roundtrippers.APIBuilder) { b.RateLimit = &roundtrippers.RateLimit{PerSecond: 0.1} },
			func(c *apiClient) { _, _ = c.do(c.t.Context()) }, within(time.Second), context.DeadlineExceeded},
		{"the token source fails", withAuth(func() *tokenSource { s := &tokenSource{}; s.fails.Store(true); return s }()), nil, nil, middleware.ErrNoCredential},
		{"the context is over", nil, nil, cancelled, context.Canceled},
		{"the key is none", func(b *roundtrippers.APIBuilder) {
			b.IdempotencyKey = &roundtrippers.IdempotencyKey{New: func() string { return "a\r\nb" }}
		}, nil, nil, nil},
		{"the wait for a slot is cancelled", limit(1), func(c *apiClient) {
			go func() { _, _ = c.do(c.t.Context()) }()
			time.Sleep(time.Second)
		}, func(ctx context.Context) context.Context {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(time.Second, cancel)
			return ctx
		}, context.Canceled},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				steps := apiSteps(503)
				if c.name == "the wait for a slot is cancelled" {
					steps = []layertest.Step{hang}
				}
				ctx, done := context.WithCancel(t.Context())
				defer done()
				client := apiOver(t, c.change, steps...)
				if c.first != nil {
					c.first(client)
				}
				before := client.sends()
				if c.ctx != nil {
					ctx = c.ctx(ctx)
				}
				req, body := oneShot(get(ctx, "https://api.test/rows"), "text")
				req.Method = http.MethodPost
				_, _, err := exactlyOne(t, client.rt, req)
				require.Error(t, err)
				if c.is != nil {
					require.ErrorIs(t, err, c.is)
				}
				require.Equal(t, 1, body.Closes())
				require.Equal(t, before, client.sends(), "nothing was sent")
			})
		})
	}
	t.Run("no region is left", func(t *testing.T) {
		script := layertest.NewScript(t, fine)
		rt := layered(t, script, roundtrippers.Failover{Dialect: words{}}, roundtrippers.Route{Dialect: words{}, Regions: registry(t, false), StrictExclusion: true})
		req, body := oneShot(ask(excluding(t.Context(), "a", "b", "c"), http.MethodPost), "text")
		_, _, err := exactlyOne(t, rt, req)
		require.ErrorIs(t, err, regions.ErrNoRegion)
		require.Equal(t, 1, body.Closes())
		require.Empty(t, script.Sends())
	})
	t.Run("nobody owns the key", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			script := layertest.NewScript(t, fine)
			r := makeReady(t, "OwnershipBuilder", script, "", tuned{})
			orphan, err := roundtrippers.OwnershipBuilder{Dialect: kvDialect, Owners: ownersOf(t, ""), Base: script}.Build()
			require.NoError(t, err)
			req, body := oneShot(r.request(t.Context(), http.MethodPut, nil), "text")
			_, _, err = exactlyOne(t, orphan, req)
			require.ErrorIs(t, err, middleware.ErrNoOwner)
			require.Equal(t, 1, body.Closes())
			require.Empty(t, script.Sends())
		})
	})
	for _, kind := range kinds {
		t.Run("the context is over, "+kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				script := layertest.NewScript(t, fine)
				r := makeReady(t, kind, script, "", tuned{})
				req, body := oneShot(r.request(cancelled(t.Context()), http.MethodPut, nil), "text")
				_, _, err := exactlyOne(t, r.rt, req)
				require.ErrorIs(t, err, context.Canceled)
				require.Equal(t, 1, body.Closes())
				require.Empty(t, script.Sends())
			})
		})
	}
}

func TestB11ResponseXorErrorOnEveryPath(t *testing.T) {
	busy := layertest.Step{Status: 503, Body: "busy", Header: map[string]string{"X-Why": "load"}}
	overScript(t, tuned{}, []layertest.Step{busy}, func(t *testing.T, r ready, script *layertest.Script) {
		status, body, err := exactlyOne(t, r.rt, r.request(t.Context(), http.MethodGet, nil))
		require.NoError(t, err)
		require.Equal(t, 503, status)
		require.Equal(t, "busy", body)
		require.Len(t, script.Sends(), 3)
	})
	overScript(t, tuned{}, []layertest.Step{busy, {Err: resetConn}}, func(t *testing.T, r ready, script *layertest.Script) {
		_, _, err := exactlyOne(t, r.rt, r.request(t.Context(), http.MethodGet, nil))
		require.ErrorIs(t, err, resetConn)
		var e *middleware.Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, 503, e.LastStatus)
		require.Equal(t, "load", e.LastHeader.Get("X-Why"))
		require.Greater(t, len(script.Sends()), 2)
	})
	t.Run("a hook that gives up with an error of its own", func(t *testing.T) {
		for _, step := range []layertest.Step{busy, {Err: resetConn}} {
			synctest.Test(t, func(t *testing.T) {
				c := apiOver(t, func(b *roundtrippers.APIBuilder) {
					b.Retry.CheckRetry = func(context.Context, *http.Response, error) (bool, error) { return false, errBoom }
				}, step)
				status, body, err := exactlyOne(t, c.rt, get(essentially(t.Context()), "https://api.test/rows"))
				if step.Err == nil {
					require.NoError(t, err, "an answer is never replaced")
					require.Equal(t, 503, status)
					require.Equal(t, "busy", body)
				} else {
					require.ErrorIs(t, err, errBoom)
					require.ErrorIs(t, err, resetConn)
				}
				require.Equal(t, 1, c.sends())
			})
		}
	})
	overCosmos(t, false, roundtrippers.Builder{}, inOrder(answerOf(503, "")), func(t *testing.T, rt http.RoundTripper, sends func() []layertest.Send) {
		status, body, err := exactlyOne(t, rt, operation("read").to(t.Context()))
		require.NoError(t, err)
		require.Equal(t, 503, status)
		require.Equal(t, `{"code":"x"}`, body)
		require.Len(t, sends(), 4)
	})
}

// K04, scope of retry state.

func TestB12PerRequestStateIsNotOnTheSharedLayer(t *testing.T) {
	var mu sync.Mutex
	lagged := map[string]bool{}
	answer := func(req *http.Request) layertest.Step {
		n := req.Header.Get("N")
		mu.Lock()
		defer mu.Unlock()
		if i, _ := strconv.Atoi(n); i%2 == 0 && !lagged[n] {
			lagged[n] = true
			return answerOf(404, "1002")
		}
		return layertest.Step{Body: "{}"}
	}
	overCosmos(t, true, roundtrippers.Builder{}, answer, func(t *testing.T, rt http.RoundTripper, sends func() []layertest.Send) {
		var all sync.WaitGroup
		for n := range 200 {
			all.Go(func() {
				req := operation("read").to(t.Context())
				req.Header.Set("N", strconv.Itoa(n))
				got := tell(t, rt, req)
				want := []string{"a", "b"}[:2-n%2]
				var path []string
				for _, a := range got.Attempts {
					path = append(path, string(a.Region))
				}
				require.Equal(t, want, path, "%d", n)
			})
		}
		all.Wait()
		require.Len(t, sends(), 300)
	})
}

func TestB14AttemptFactsDoNotOutliveTheAttempt(t *testing.T) {
	for _, patient := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			// Never sent at first; then dials are refused, for ever.
			script := layertest.NewScript(t, layertest.Step{Err: http.ErrServerClosed}, layertest.Step{Err: refusedDial})
			rt, err := roundtrippers.Builder{Dialect: rest.Dialect{}, Base: script}.Build()
			if patient {
				rt, err = roundtrippers.APIBuilder{Dialect: rest.Dialect{}, Base: script}.Build()
			}
			require.NoError(t, err)
			ctx, cancel := context.WithTimeout(patiently(t.Context(), middleware.Patience{Retries: 3, Base: time.Millisecond}), 5*time.Second)
			defer cancel()
			began := time.Now()
			_, _, err = exactlyOne(t, rt, get(ctx, "http://a.test/"))
			require.ErrorIs(t, err, refusedDial)
			require.NotErrorIs(t, err, context.DeadlineExceeded)
			require.Less(t, time.Since(began), time.Second)
			require.LessOrEqual(t, len(script.Sends()), 5, "3 retries, and one on another connection")
		})
	}
}

// K05, the context's lifetime and the body after the headers.

func TestB15RealTheReturnedBodysContextLivesUntilClose(t *testing.T) {
	const size = 512 << 10
	ended := make(chan struct{}, 10)
	var calls atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if calls.Add(1) == 1 { // the loser: it never answers
			<-req.Context().Done()
			ended <- struct{}{}
			return
		}
		w.Header().Set("Content-Length", strconv.Itoa(size))
		for range size / 4096 {
			_, _ = io.WriteString(w, repeated("x", 4096))
			w.(http.Flusher).Flush()
		}
	}))
	defer server.Close()
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			calls.Store(0)
			base := &http.Transport{}
			defer base.CloseIdleConnections()
			r := makeReady(t, kind, base, server.Listener.Addr().String(), tuned{attemptTimeout: 200 * time.Millisecond})
			resp, err := r.rt.RoundTrip(r.request(t.Context(), http.MethodGet, nil))
			require.NoError(t, err)
			<-ended // the loser is cancelled, and that does not end the winner
			text, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.Len(t, text, size)
			require.NoError(t, resp.Body.Close())
		})
	}
}

func TestB17RealNoSilentRetryOrSpliceAfterHeaders(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			var calls atomic.Int64
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				n := calls.Add(1)
				w.Header().Set("Content-Length", "1000")
				if n > 1 {
					_, _ = io.WriteString(w, repeated("new ", 1000))
					return
				}
				_, _ = io.WriteString(w, repeated("old ", 400))
				w.(http.Flusher).Flush()
				panic(http.ErrAbortHandler)
			}))
			defer server.Close()
			base := &http.Transport{}
			defer base.CloseIdleConnections()
			r := makeReady(t, kind, base, server.Listener.Addr().String(), tuned{attemptTimeout: time.Minute})
			resp, err := r.rt.RoundTrip(r.request(essentially(t.Context()), http.MethodGet, nil))
			require.NoError(t, err)
			require.Equal(t, 200, resp.StatusCode)
			text, err := io.ReadAll(resp.Body)
			require.ErrorIs(t, err, io.ErrUnexpectedEOF)
			require.Equal(t, repeated("old ", 400), string(text))
			require.NoError(t, resp.Body.Close())
			require.EqualValues(t, 1, calls.Load())
		})
	}
}
