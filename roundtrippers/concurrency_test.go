package roundtrippers_test

import (
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/layertest"
	"github.com/reroute-go/reroute/roundtrippers"
)

func limit(n int) func(*roundtrippers.APIBuilder) {
	return func(b *roundtrippers.APIBuilder) { b.Concurrency.Limit, b.Circuit.Threshold = n, 1000 }
}

func TestConcurrency(t *testing.T) {
	ms := time.Millisecond
	var now atomic.Int32
	peak := make(chan int32, 10)
	playAll(t, []scenario{
		{"V082 never more than the limit in flight", limit(3), []layertest.Step{{Answer: func(req *http.Request) (*http.Response, error) {
			peak <- now.Add(1)
			time.Sleep(100 * ms)
			now.Add(-1)
			return answer(req, 1, 200)
		}}}, func(t *testing.T, c *apiClient) {
			began := time.Now()
			var all sync.WaitGroup
			for range 10 {
				all.Go(func() { want(t, c, t.Context(), 200) })
			}
			all.Wait()
			close(peak)
			highest := int32(0)
			for n := range peak {
				highest = max(highest, n)
			}
			require.EqualValues(t, 3, highest)
			require.Equal(t, 400*ms, time.Since(began))
		}},
		{"V083 B48 no permit is held in a back-off", limit(1), apiSteps(503, 200), func(t *testing.T, c *apiClient) {
			var all sync.WaitGroup
			all.Go(func() { want(t, c, essentially(t.Context()), 200) })
			time.Sleep(100 * ms) // it sleeps until 250 ms
			began := time.Now()
			want(t, c, t.Context(), 200)
			require.Zero(t, time.Since(began))
			all.Wait()
		}},
		{"V085 B47 a permit covers the request, not its body", limit(1), apiSteps(404), func(t *testing.T, c *apiClient) {
			resp, err := c.rt.RoundTrip(get(t.Context(), "https://api.test/"))
			require.NoError(t, err)
			want(t, c, t.Context(), 404) // although the first body is unread
			_ = resp.Body.Close()
		}},
		{"V085 HoldUntilBodyClose", func(b *roundtrippers.APIBuilder) { b.Concurrency.Limit, b.Concurrency.HoldUntilBodyClose = 1, true }, apiSteps(404), func(t *testing.T, c *apiClient) {
			resp, err := c.rt.RoundTrip(get(t.Context(), "https://api.test/"))
			require.NoError(t, err)
			time.AfterFunc(time.Second, func() { _ = resp.Body.Close(); _ = resp.Body.Close() }) // R33: twice
			began := time.Now()
			want(t, c, t.Context(), 404)
			require.Equal(t, time.Second, time.Since(began))
			require.Zero(t, c.builder.Concurrency.InFlight())
		}},
		{"R33 B47 HoldUntilBodyClose and a body that is never closed: the context's end frees it", func(b *roundtrippers.APIBuilder) {
			b.Concurrency.Limit, b.Concurrency.HoldUntilBodyClose = 1, true
		}, apiSteps(404), func(t *testing.T, c *apiClient) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			resp, err := c.rt.RoundTrip(get(ctx, "https://api.test/"))
			require.NoError(t, err)
			want(t, c, t.Context(), 404)
			_ = resp.Body.Close()
			require.Zero(t, c.builder.Concurrency.InFlight())
		}},
		{"V086 V148 a cancelled waiter leaves no trace and keeps the order", limit(1), []layertest.Step{{Delay: 100 * ms}}, func(t *testing.T, c *apiClient) {
			var all sync.WaitGroup
			enqueue := func(name string, ctx context.Context) {
				all.Go(func() {
					resp, err := c.rt.RoundTrip(get(ctx, "https://api.test/"+name))
					if name == "c" {
						require.ErrorIs(t, err, context.Canceled)
						return
					}
					require.NoError(t, err)
					_ = resp.Body.Close()
				})
				synctest.Wait()
			}
			ctx, cancel := context.WithCancel(t.Context())
			enqueue("a", t.Context())
			enqueue("b", t.Context())
			enqueue("c", ctx)
			enqueue("d", t.Context())
			require.Equal(t, 3, c.builder.Concurrency.Waiting())
			cancel()
			synctest.Wait()
			require.Equal(t, 2, c.builder.Concurrency.Waiting())
			all.Wait()
			require.Equal(t, []string{"/a", "/b", "/d"}, pathsOf(c))
			require.Equal(t, "started, ok:200, started, ok:200, started, ok:200", c.tags.String())
		}},
		{"V090 equals are served in order", limit(1), []layertest.Step{{Delay: 100 * ms}}, func(t *testing.T, c *apiClient) {
			var all sync.WaitGroup
			for _, path := range []string{"0", "1", "2", "3", "4", "5"} {
				all.Go(func() {
					resp, err := c.rt.RoundTrip(get(t.Context(), "https://api.test/"+path))
					require.NoError(t, err)
					_ = resp.Body.Close()
				})
				synctest.Wait()
			}
			all.Wait()
			require.Equal(t, []string{"/0", "/1", "/2", "/3", "/4", "/5"}, pathsOf(c))
		}},
		{"V090 P07 permits are reserved for essential calls", func(b *roundtrippers.APIBuilder) {
			b.Concurrency.Limit, b.Concurrency.ReserveEssential = 4, 1
		}, []layertest.Step{{Delay: time.Second}}, func(t *testing.T, c *apiClient) {
			var all sync.WaitGroup
			for range 50 {
				all.Go(func() { want(t, c, t.Context(), 200) })
			}
			synctest.Wait()
			require.Equal(t, 3, c.builder.Concurrency.InFlight())
			for range 5 { // whenever it comes, one service time
				time.Sleep(300 * ms)
				began := time.Now()
				want(t, c, essentially(t.Context()), 200)
				require.Equal(t, time.Second, time.Since(began))
			}
			all.Wait()
		}},
		{"B50 an essential call waits for a permit, not for the backlog", limit(1), []layertest.Step{{Delay: time.Second}}, func(t *testing.T, c *apiClient) {
			var all sync.WaitGroup
			for range 100 {
				all.Go(func() { want(t, c, t.Context(), 200) })
			}
			synctest.Wait()
			time.Sleep(500 * ms)
			began := time.Now()
			want(t, c, essentially(t.Context()), 200)
			require.Equal(t, 1500*ms, time.Since(began))
			all.Wait()
		}},
		{"V089 an endless error body holds no permit", limit(1), []layertest.Step{{Answer: func(req *http.Request) (*http.Response, error) {
			resp, err := answer(req, 1, 503)
			resp.Body, resp.ContentLength = &endlessBody{}, -1
			return resp, err
		}}}, func(t *testing.T, c *apiClient) {
			resp, err := c.rt.RoundTrip(get(t.Context(), "https://api.test/"))
			require.NoError(t, err)
			require.Zero(t, c.builder.Concurrency.InFlight())
			require.NoError(t, resp.Body.Close())
		}},
		{"R07 V099 the breaker is asked again after the wait for a permit", func(b *roundtrippers.APIBuilder) {
			b.Concurrency.Limit, b.Circuit.Threshold = 1, 1
		}, []layertest.Step{{Status: 503, Delay: time.Second}, {Delay: 3 * time.Second}, {Status: 200}}, func(t *testing.T, c *apiClient) {
			other := c.builder // a client of the same permits, under another breaker
			other.Circuit = &roundtrippers.Circuit{}
			busy, err := other.Build()
			require.NoError(t, err)
			var all sync.WaitGroup
			all.Go(func() { want(t, c, t.Context(), 503) }) // opens it at 1 s
			synctest.Wait()
			all.Go(func() { // the next in line, until 4 s
				resp, _ := busy.RoundTrip(get(essentially(t.Context()), "https://api.test/"))
				_ = resp.Body.Close()
			})
			synctest.Wait()
			all.Go(func() { // waits for the permit, and by then the breaker is open
				_, err := c.do(t.Context())
				require.ErrorIs(t, err, middleware.ErrCircuitOpen)
				require.Equal(t, 2, c.sends())
			})
			synctest.Wait()
			all.Go(func() { want(t, c, essentially(t.Context()), 200) }) // is served before it, and waits on for the probe
			all.Wait()
			require.Equal(t, []time.Duration{0, time.Second, 6 * time.Second}, c.script.Times())
			require.Contains(t, c.tags.String(), "started, failed:breaker_open")
		}},
	})
}

func pathsOf(c *apiClient) (paths []string) {
	for _, send := range c.script.Sends() {
		paths = append(paths, send.URL.Path)
	}
	return paths
}

type endlessBody struct{}

func (endlessBody) Read(p []byte) (int, error) { return len(p), nil }
func (endlessBody) Close() error               { return nil }

// Permits are exact whatever ends a request: success, failure, cancellation at any
// moment, panic (V087, R26, R28).
func TestPermitsAreExactAfterAStormV087R26R28(t *testing.T) {
	for hold, rounds := range map[bool]int{false: 300, true: 100} {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(7, 7))
			var mu sync.Mutex
			draw := func(n int) int { mu.Lock(); defer mu.Unlock(); return r.IntN(n) }
			script := layertest.NewServer(t, func(*http.Request) layertest.Step {
				step := layertest.Step{Delay: time.Duration(draw(4)) * time.Millisecond, Body: "body"}
				switch draw(6) {
				case 0:
					step.Err = errReset
				case 1:
					step.Status = 404
				case 2:
					step.Answer = func(*http.Request) (*http.Response, error) { panic("storm") }
				}
				return step
			})
			c := apiBase(t, script, func(b *roundtrippers.APIBuilder) {
				b.Concurrency.Limit, b.Concurrency.ReserveEssential, b.Concurrency.HoldUntilBodyClose = 5, 2, hold
				b.Circuit.Threshold = 1 << 30
				b.Observe = func(context.Context, middleware.Event) {
					if draw(400) == 0 {
						panic("observer") // V113
					}
				}
			})
			var all sync.WaitGroup
			for range 20 {
				all.Go(func() {
					for range rounds {
						ctx, cancel := context.WithCancel(t.Context())
						if draw(2) == 0 {
							ctx = patiently(essentially(ctx), middleware.Patience{Retries: 1, Base: time.Millisecond})
						}
						// Also at the moment of the hand-over. Never 0: in a bubble, Go 1.26's race
						// detector now and then crashes on a timer that is due when it is made.
						timer := time.AfterFunc(max(time.Duration(draw(8))*time.Millisecond, 1), cancel)
						func() {
							defer func() { _ = recover() }()
							resp, err := c.rt.RoundTrip(get(ctx, "https://api.test/"))
							if err == nil {
								if draw(2) == 0 {
									_, _ = io.Copy(io.Discard, resp.Body)
								}
								_ = resp.Body.Close()
							}
						}()
						timer.Stop()
						cancel()
					}
				})
			}
			all.Wait()
			synctest.Wait()
			require.Zero(t, c.builder.Concurrency.InFlight())
			require.Zero(t, c.builder.Concurrency.Waiting())
		})
	}
}

func TestConcurrencyNamesBadFields(t *testing.T) {
	for field, layer := range map[string]*roundtrippers.Concurrency{
		"Limit is -1":                      {Limit: -1},
		"ReserveEssential is 4, want 0..3": {ReserveEssential: 4},
		"ReserveEssential is -1":           {ReserveEssential: -1},
	} {
		_, err := layer.Wrap(http.DefaultTransport)
		require.ErrorContains(t, err, field)
	}
}
