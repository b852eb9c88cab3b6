package roundtrippers_test

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sony/gobreaker/v2"
	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/cosmos/cosmostest"
	"github.com/reroute-go/reroute/middleware/layertest"
	"github.com/reroute-go/reroute/roundtrippers"
)

// K14, rate limit.

func perSecondAndBurstOf1(b *roundtrippers.APIBuilder) {
	b.RateLimit = &roundtrippers.RateLimit{PerSecond: 1, Burst: 1}
	b.Circuit.Threshold = 1
}

func TestB44LimiterRefusalIsEarlyTypedAndNeutral(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := apiOver(t, perSecondAndBurstOf1)
		ctx, cancel := contextFor(t, 200*time.Millisecond)
		defer cancel()
		want(t, c, ctx, 200)
		began := time.Now()
		for _, ctx := range []context.Context{ctx, essentially(ctx)} {
			_, err := c.do(ctx)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			var early *middleware.WaitError
			require.ErrorAs(t, err, &early)
			var e *middleware.Error
			require.ErrorAs(t, err, &e)
			require.Zero(t, e.Report.Sends)
			require.Empty(t, e.Report.Charges)
		}
		require.Zero(t, time.Since(began))
		wantState(t, c, gobreaker.StateClosed)
		require.Zero(t, c.builder.RateLimit.Waiting())
		time.Sleep(time.Second)
		want(t, c, t.Context(), 200)
		require.Equal(t, []time.Duration{time.Second}, c.gaps(), "the refused ones held no token")
	})
}

func TestB45CancelledWaitsTakeNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := apiOver(t, perSecondAndBurstOf1)
		over, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := c.do(over)
		require.ErrorIs(t, err, context.Canceled)
		require.Zero(t, c.sends())
		began := time.Now()
		want(t, c, t.Context(), 200)
		require.Zero(t, time.Since(began), "the live call goes at once")

		waiting, leave := context.WithCancel(t.Context())
		time.AfterFunc(500*time.Millisecond, leave)
		_, err = c.do(waiting)
		require.ErrorIs(t, err, context.Canceled)
		want(t, c, t.Context(), 200)
		require.Equal(t, []time.Duration{time.Second}, c.gaps(), "nor does who leaves while waiting")
	})
}

// K15, the concurrency cap.

func TestB47ASlotIsFreedExactlyOnceOnEveryPath(t *testing.T) {
	body := func(code int, b func() *http.Response) layertest.Step {
		return layertest.Step{Answer: func(req *http.Request) (*http.Response, error) {
			resp := b()
			resp.StatusCode, resp.Request, resp.Header = code, req, http.Header{}
			return resp, nil
		}}
	}
	for name, step := range map[string]layertest.Step{
		"404 with a body that is never closed": body(404, func() *http.Response { return &http.Response{Body: &endlessBody{}} }),
		"no body at all":                       body(200, func() *http.Response { return &http.Response{} }),
		"http.NoBody":                          body(200, func() *http.Response { return &http.Response{Body: http.NoBody} }),
		"204":                                  body(204, func() *http.Response { return &http.Response{Body: http.NoBody} }),
		"an error":                             {Err: resetConn},
		"a panic":                              {Answer: func(*http.Request) (*http.Response, error) { panic(errBoom) }},
	} {
		for _, method := range []string{http.MethodGet, http.MethodHead} {
			t.Run(name+" "+method, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := apiOver(t, limit(1), step, fine)
					func() {
						defer func() { _ = recover() }()
						req := get(t.Context(), "https://api.test/rows")
						req.Method = method
						_, _ = c.rt.RoundTrip(req) // its body is not closed: that is the case
					}()
					require.Zero(t, c.builder.Concurrency.InFlight())
					ctx, cancel := contextFor(t, time.Second)
					defer cancel()
					want(t, c, ctx, 200)
					require.Zero(t, c.builder.Concurrency.InFlight())
				})
			})
		}
	}
}

func TestB48NoSlotIsHeldDuringABackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sick := map[string]int{}
		var mu sync.Mutex
		script := layertest.NewServer(t, func(req *http.Request) layertest.Step {
			mu.Lock()
			defer mu.Unlock()
			if sick[req.URL.Path]++; req.URL.Path != "/healthy" && sick[req.URL.Path] == 1 {
				return layertest.Step{Status: 503, Header: map[string]string{"Retry-After": "10"}}
			}
			return fine
		})
		c := apiBase(t, script, limit(2))
		ctx := patiently(t.Context(), middleware.Patience{Retries: 1, Max: time.Minute})
		var all sync.WaitGroup
		for _, path := range []string{"/a", "/b"} {
			all.Go(func() {
				status, _, err := exactlyOne(t, c.rt, get(ctx, "https://api.test"+path))
				require.NoError(t, err)
				require.Equal(t, 200, status)
			})
		}
		time.Sleep(time.Second)
		began := time.Now()
		status, _, err := exactlyOne(t, c.rt, get(t.Context(), "https://api.test/healthy"))
		require.NoError(t, err)
		require.Equal(t, 200, status)
		require.Zero(t, time.Since(began))
		all.Wait()
	})
}

// K16, priority. The queue has no limit: whoever wants one bounds its contexts, and nobody is turned away for another.
func TestB50ForegroundWaitsForASlotNotForTheBacklog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := apiOver(t, limit(1), layertest.Step{Delay: time.Second})
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() { want(t, c, t.Context(), 200) })
		}
		time.Sleep(100 * time.Millisecond)
		require.Equal(t, 99, c.builder.Concurrency.Waiting())
		began := time.Now()
		want(t, c, essentially(t.Context()), 200)
		require.Equal(t, 1900*time.Millisecond, time.Since(began), "what is left of the one in flight, and its own")
		all.Wait()
		require.Equal(t, 101, c.sends())
	})
}

// K17, what a breaker counts.

func TestB52CallerCancellationIsNeutral(t *testing.T) {
	errSibling := errors.New("a sibling failed")
	for name, base := range map[string]layertest.Step{
		"the context's error": {Hang: true},
		"a text of its own": {Answer: func(req *http.Request) (*http.Response, error) {
			<-req.Context().Done()
			return nil, errors.New("canceled")
		}},
	} {
		for _, cause := range []error{nil, errSibling} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := apiOver(t, nil, append(repeatStep(4, layertest.Step{Status: 503}), append(repeatStep(50, base), layertest.Step{Status: 503})...)...)
					for range 4 {
						want(t, c, t.Context(), 503)
					}
					for range 50 {
						ctx, cancel := context.WithCancelCause(t.Context())
						time.AfterFunc(time.Millisecond, func() { cancel(cause) })
						_, err := c.do(ctx)
						require.ErrorIs(t, err, context.Canceled)
					}
					wantState(t, c, gobreaker.StateClosed)
					want(t, c, t.Context(), 503)
					wantState(t, c, gobreaker.StateOpen) // they were no successes either: the fifth failure opens it
				})
			})
		}
	}
	s := sixteen
	inPartitions(t, s, func(t *testing.T, w *placed) {
		key := w.key("1")
		w.warm(key)
		w.sick(cosmostest.Answer{Hang: true}, "1", west)
		for range 50 {
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(2*time.Second, func() { cancel(errSibling) })
			require.ErrorIs(t, w.get(ctx, key).err, context.Canceled)
		}
		require.Zero(t, w.account.Partitions.Tracked())
		require.Empty(t, w.marked())
	})
}

// The API's breaker takes a caller's deadline for the caller's affair; a partition's counts it, after an attempt of at
// least MinAttempt, so that a dead partition moves (DESIGN rule 9).
func TestB54DeadlineExpiryAndExplicitCancelAreToldApart(t *testing.T) {
	s := sixteen
	s.sim.MultiWrite = true
	for _, deadline := range []bool{true, false} {
		inPartitions(t, s, func(t *testing.T, w *placed) {
			key := w.key("1")
			w.warm(key)
			w.sick(cosmostest.Answer{Hang: true}, "1", west)
			moved := 0
			for n := 1; n <= 20; n++ {
				ctx, cancel := context.WithCancel(t.Context())
				if deadline {
					ctx, cancel = context.WithTimeout(t.Context(), 5*time.Second)
				} else {
					time.AfterFunc(5*time.Second, cancel)
				}
				if r := w.upsert(ctx, key); r.err == nil && moved == 0 {
					moved = n
				}
				cancel()
			}
			if deadline {
				require.Equal(t, 6, moved, "after five failed writes")
			} else {
				require.Zero(t, moved)
			}
		})
	}
}

func TestB55ThrottlesAreNeutralAndAnswersAreHealth(t *testing.T) {
	for _, c := range []struct {
		name  string
		codes []int
		open  bool
	}{
		{"20 x 429", []int{429, 429, 429, 429, 429, 429, 429, 429, 429, 429, 429, 429, 429, 429, 429, 429, 429, 429, 429, 429}, false},
		{"20 x 404", []int{404, 404, 404, 404, 404, 404, 404, 404, 404, 404, 404, 404, 404, 404, 404, 404, 404, 404, 404, 404}, false},
		{"4 x 503, 200, 4 x 503", []int{503, 503, 503, 503, 200, 503, 503, 503, 503}, false},
		{"4 x 503, 429, 503", []int{503, 503, 503, 503, 429, 503}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := apiOver(t, threshold(5), apiSteps(c.codes...)...)
				for _, code := range c.codes {
					want(t, client, t.Context(), code)
				}
				wantState(t, client, map[bool]gobreaker.State{false: gobreaker.StateClosed, true: gobreaker.StateOpen}[c.open])
			})
		})
	}
	// 4 x 503, 404, 4 x 503: here the seed decides otherwise (its V031). A 404 is no failure, but only a success ends a run.
	synctest.Test(t, func(t *testing.T) {
		c := apiOver(t, threshold(5), apiSteps(503, 503, 503, 503, 404, 503)...)
		for _, code := range []int{503, 503, 503, 503, 404} {
			want(t, c, t.Context(), code)
		}
		wantState(t, c, gobreaker.StateClosed)
		want(t, c, t.Context(), 503)
		wantState(t, c, gobreaker.StateOpen)
	})
}

// K18, the breaker half open.

// A failure from an earlier era never counts, for the API's breaker as for a partition's. A success from an earlier era
// leaves a partition's breaker alone; the API's it closes, as "the first answer of any kind closes it" (seed
// api-requests), and the observer is told.
func TestB56ResultsCountOnlyInTheEraTheyWereLetIn(t *testing.T) {
	for _, slow := range []int{200, 503} {
		synctest.Test(t, func(t *testing.T) {
			script := layertest.NewServer(t, func(req *http.Request) layertest.Step {
				switch req.URL.Path {
				case "/slow":
					return layertest.Step{Status: slow, Delay: 7 * time.Second}
				case "/probe":
					return layertest.Step{Status: 503, Delay: 1500 * time.Millisecond}
				}
				return layertest.Step{Status: 503}
			})
			c := apiBase(t, script, nil)
			send := func(path string) error {
				_, _, err := exactlyOne(t, c.rt, get(t.Context(), "https://api.test"+path))
				return err
			}
			var all sync.WaitGroup
			all.Go(func() { _ = send("/slow") }) // let in at 0 s, answered at 7 s
			time.Sleep(time.Second)
			for range 5 {
				_ = send("/fails")
			}
			wantState(t, c, gobreaker.StateOpen) // from 1 s until 6 s
			time.Sleep(5500 * time.Millisecond)
			wantState(t, c, gobreaker.StateHalfOpen)
			all.Go(func() { _ = send("/probe") }) // out from 6.5 s to 8 s
			time.Sleep(time.Second)               // 7.5 s: the slow one has its answer
			if slow == 503 {
				wantState(t, c, gobreaker.StateHalfOpen)
				require.ErrorIs(t, send("/other"), middleware.ErrCircuitOpen, "one probe is out, and stays the only one")
				all.Wait()
				wantState(t, c, gobreaker.StateOpen) // by the probe alone, and for twice as long
				_, until := c.builder.Circuit.State()
				require.Equal(t, 10*time.Second, time.Until(until))
				require.Empty(t, c.tags.kinds(middleware.BreakerClosed))
			} else {
				wantState(t, c, gobreaker.StateClosed)
				require.Len(t, c.tags.kinds(middleware.BreakerClosed), 1)
				all.Wait()
				for range 3 {
					require.NoError(t, send("/fails"), "the probe of the era before is at most one failure of this one")
				}
				wantState(t, c, gobreaker.StateClosed)
			}
		})
	}
	for _, slow := range []int{0, 503} {
		inPartitions(t, sixteen, func(t *testing.T, w *placed) {
			key := w.key("1")
			w.warm(key)
			var all sync.WaitGroup
			late := w.sick(cosmostest.Answer{Delay: 12 * time.Second, Status: slow}, "1", west)
			all.Go(func() { w.get(t.Context(), key) }) // let in before the breaker opens, answered at 12 s
			time.Sleep(time.Second)
			late.heal()
			fault := w.sick(cosmostest.Error(503, 0), "1", west)
			w.trip(key)
			fault.heal()
			time.Sleep(9 * time.Second)
			probe := w.sick(cosmostest.Answer{Delay: 5 * time.Second, Status: 503}, "1", west)
			all.Go(func() { w.get(t.Context(), key) }) // out from 10 s to 15 s
			time.Sleep(3 * time.Second)                // 13 s: the slow one has its answer
			require.Empty(t, w.events(middleware.BreakerClosed))
			require.Equal(t, []string{east}, w.must(w.get(t.Context(), key)), "one probe is out, and stays the only one")
			all.Wait()
			probe.heal()
			require.Empty(t, w.events(middleware.BreakerClosed))
			require.Equal(t, []string{east}, w.must(w.get(t.Context(), key)), "the probe alone has decided")
			time.Sleep(8 * time.Second)
			require.Equal(t, []string{west}, w.must(w.get(t.Context(), key)))
			require.Len(t, w.events(middleware.BreakerClosed), 1)
		})
	}
}

func TestB57ProbesInFlightAreCapped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		steps := append(repeatStep(5, layertest.Step{Status: 503}), layertest.Step{Delay: 30 * time.Second})
		c := apiOver(t, func(b *roundtrippers.APIBuilder) { b.Concurrency.Limit = 1000 }, steps...)
		untilOpen(t, c)
		time.Sleep(6 * time.Second)
		before := c.sends()
		var all sync.WaitGroup
		var mu sync.Mutex
		probing, served := 0, 0
		for n := range 100 {
			all.Go(func() {
				ctx := t.Context()
				if n%2 == 1 {
					ctx = essentially(ctx)
				}
				status, err := c.do(ctx)
				mu.Lock()
				defer mu.Unlock()
				var open *roundtrippers.CircuitOpenError
				if errors.As(err, &open) {
					require.True(t, open.Probing, "told apart from open")
					probing++
				} else {
					require.Equal(t, 200, status)
					served++
				}
			})
		}
		time.Sleep(time.Second)
		require.Equal(t, 1, c.sends()-before, "one reaches the hanging server")
		all.Wait()
		require.Contains(t, []int{49, 50}, probing, "who is in the background fails fast; the essential ones wait for the verdict")
		require.Equal(t, 100, probing+served)
	})
}
