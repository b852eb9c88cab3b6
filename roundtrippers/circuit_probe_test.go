package roundtrippers_test

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sony/gobreaker/v2"
	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/layertest"
	"github.com/reroute-go/reroute/middleware/rest"
	"github.com/reroute-go/reroute/roundtrippers"
)

// cooldowns are what the openings so far were told to last.
func cooldowns(c *apiClient) (list []time.Duration) {
	for _, e := range c.tags.kinds(middleware.BreakerOpened) {
		list = append(list, e.Wait)
	}
	return list
}

// The probe's slot, where its holder ends in other ways than with an answer.
func TestTheProbesSlotIsNeverLost(t *testing.T) {
	second := time.Second
	playAll(t, []scenario{
		{"V044 a cancelled probe leaves the breaker half open, its cooldown as it was", threshold(1), []layertest.Step{{Status: 503}, {Hang: true}, {Status: 503}}, func(t *testing.T, c *apiClient) {
			want(t, c, t.Context(), 503)
			time.Sleep(5 * second)
			ctx, cancel := context.WithTimeout(t.Context(), second)
			defer cancel()
			_, err := c.do(ctx)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			wantState(t, c, gobreaker.StateHalfOpen)
			want(t, c, t.Context(), 503)                                             // at once,
			require.Equal(t, []time.Duration{5 * second, 10 * second}, cooldowns(c)) // and doubled once
		}},
		{"V045 a probe that is cancelled while it waits for a token frees the slot", func(b *roundtrippers.APIBuilder) {
			b.Circuit.Threshold = 1
			b.RateLimit = &roundtrippers.RateLimit{PerSecond: 0.1}
		}, apiSteps(503, 200), func(t *testing.T, c *apiClient) {
			want(t, c, t.Context(), 503) // takes the only token; the next one comes at 10 s
			ctx, cancel := context.WithCancel(essentially(t.Context()))
			var all sync.WaitGroup
			all.Go(func() { _, err := c.do(ctx); require.ErrorIs(t, err, context.Canceled) })
			synctest.Wait()
			all.Go(func() { want(t, c, essentially(t.Context()), 200) })
			time.Sleep(6 * second)
			require.Equal(t, []int{1, 1}, []int{c.builder.Circuit.Waiting(), c.builder.RateLimit.Waiting()}) // one holds the slot
			cancel()
			synctest.Wait()
			require.Equal(t, []int{0, 1}, []int{c.builder.Circuit.Waiting(), c.builder.RateLimit.Waiting()}) // now the other one does
			wantState(t, c, gobreaker.StateHalfOpen)
			wantOpen(t, c)
			all.Wait()
			require.Equal(t, []int64{0, 10_000}, roundedTimes(c))
			require.Equal(t, []time.Duration{5 * second}, cooldowns(c))
		}},
		{"V146 who leaves the queue for the probe leaves the others' order as it was", threshold(1), apiSteps(503), func(t *testing.T, c *apiClient) {
			want(t, c, t.Context(), 503)
			ctx, end := context.WithTimeout(essentially(t.Context()), 80*second)
			defer end()
			leaving, leave := context.WithCancel(ctx)
			var all sync.WaitGroup
			for _, path := range []string{"a", "b", "leaves", "c", "d"} {
				ctx := map[bool]context.Context{true: leaving, false: ctx}[path == "leaves"]
				all.Go(func() {
					if resp, err := c.rt.RoundTrip(get(ctx, "https://api.test/"+path)); err == nil {
						_ = resp.Body.Close() // of who has no time left for another wait
					}
				})
				synctest.Wait()
			}
			require.Equal(t, 5, c.builder.Circuit.Waiting())
			leave()
			synctest.Wait()
			require.Equal(t, 4, c.builder.Circuit.Waiting())
			all.Wait()
			require.Equal(t, []string{"/rows", "/a", "/b", "/c", "/d"}, pathsOf(c)) // each probe fails, the next in line follows
			require.Equal(t, []time.Duration{0, 5 * second, 15 * second, 35 * second, 75 * second}, c.script.Times())
		}},
		{"V053 where the back-off is longer than the cooldown, the back-off counts", func(b *roundtrippers.APIBuilder) {
			b.Circuit.Threshold, b.Circuit.Cooldown = 1, 100*time.Millisecond
		}, apiSteps(503, 200), func(t *testing.T, c *apiClient) {
			want(t, c, essentially(t.Context()), 200)
			require.Equal(t, []time.Duration{250 * time.Millisecond}, c.gaps())
		}},
		{"V107 openings with growing cooldowns, and one close at the end", threshold(1), apiSteps(503, 503, 503, 200, 200), func(t *testing.T, c *apiClient) {
			want(t, c, essentially(t.Context()), 200)
			want(t, c, t.Context(), 200)
			require.Equal(t, []time.Duration{5 * second, 10 * second, 20 * second}, cooldowns(c))
			require.Equal(t, "started, failed:status, opened, retry:1, started, failed:status, opened, retry:2, started, failed:status, opened, retry:3, "+
				"started, ok:200, closed, started, ok:200", c.tags.String())
		}},
	})
}

// A probe that was given up on, and ends while its successor is out: whatever
// comes of it, the successor alone decides, unless it is an answer (V046).
func TestAProbeOfThePastDisturbsNoNewerOneV046(t *testing.T) {
	second := time.Second
	for name, row := range map[string]struct {
		stale layertest.Step // sent at 5 s, given up on at 35 s, ends at 36 s
		at36  gobreaker.State
		final []time.Duration // cooldowns of all openings
	}{
		"a failure neither doubles nor extends": {layertest.Step{Status: 503, Delay: 31 * second}, gobreaker.StateHalfOpen, []time.Duration{5 * second, 10 * second}},
		"a throttled one frees nobody's slot":   {layertest.Step{Status: 429, Delay: 31 * second}, gobreaker.StateHalfOpen, []time.Duration{5 * second, 10 * second}},
		"a cut connection does not either":      {layertest.Step{Err: errReset, Delay: 31 * second}, gobreaker.StateHalfOpen, []time.Duration{5 * second, 10 * second}},
		"an answer closes it":                   {layertest.Step{Status: 404, Delay: 31 * second}, gobreaker.StateClosed, []time.Duration{5 * second, 5 * second}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := apiOver(t, func(b *roundtrippers.APIBuilder) { b.Circuit.Threshold, b.Circuit.ProbeLimit = 1, 30*second },
					layertest.Step{Status: 503}, row.stale, layertest.Step{Status: 503, Delay: 2 * second})
				want(t, c, t.Context(), 503)
				time.Sleep(5 * second)
				var all sync.WaitGroup
				all.Go(func() { _, _ = c.do(t.Context()) })
				time.Sleep(30*second + 1)
				all.Go(func() { _, _ = c.do(t.Context()) }) // the newer probe, until 37 s
				time.Sleep(second + 1)
				wantState(t, c, row.at36)
				if row.at36 == gobreaker.StateHalfOpen {
					wantOpen(t, c) // the newer one is still alone
				}
				all.Wait()
				require.Equal(t, row.final, cooldowns(c))
			})
		})
	}
}

func TestAnObserverThatPanicsAtAProbeFreesTheSlotV113(t *testing.T) {
	for _, kind := range []middleware.EventKind{middleware.AttemptStarted, middleware.AttemptEnded, middleware.BreakerOpened, middleware.BreakerClosed} {
		synctest.Test(t, func(t *testing.T) {
			armed := false
			status := map[bool]int{true: 503, false: 200}[kind == middleware.AttemptEnded || kind == middleware.BreakerOpened]
			c := apiOver(t, func(b *roundtrippers.APIBuilder) {
				b.Circuit.Threshold, b.Concurrency.Limit = 1, 1
				b.Observe = func(_ context.Context, e middleware.Event) {
					if armed && e.Kind == kind {
						armed = false
						panic("observer")
					}
				}
			}, apiSteps(503, status, 200)...)
			want(t, c, t.Context(), 503)
			time.Sleep(5 * time.Second)
			armed = true
			require.PanicsWithValue(t, "observer", func() { _, _ = c.do(t.Context()) }, kind)
			require.Zero(t, c.builder.Concurrency.InFlight())
			time.Sleep(10 * time.Second)
			_, err := c.do(t.Context())
			require.NoError(t, err, kind)
			wantState(t, c, gobreaker.StateClosed)
		})
	}
}

// panickyJudge cannot bear a 418.
type panickyJudge struct{ rest.Dialect }

func (d panickyJudge) Judge(in *middleware.Intent, resp *http.Response, err error) middleware.Outcome {
	if resp != nil && resp.StatusCode == http.StatusTeapot {
		panic("classifier")
	}
	return d.Dialect.Judge(in, resp, err)
}

// Whatever code of the user's panics around an answer, nothing stays taken:
// NewScript's Cleanup sees to the bodies (R28).
func TestAClassifierThatPanicsHoldsNothingR28(t *testing.T) {
	for name, change := range map[string]func(*roundtrippers.Retry){
		"CheckRetry": func(r *roundtrippers.Retry) {
			r.CheckRetry = func(_ context.Context, resp *http.Response, _ error) (bool, error) {
				if resp.StatusCode == http.StatusTeapot {
					panic("classifier")
				}
				return false, nil
			}
		},
		"Backoff": func(r *roundtrippers.Retry) {
			r.CheckRetry = func(_ context.Context, resp *http.Response, _ error) (bool, error) {
				return resp.StatusCode == http.StatusTeapot, nil
			}
			r.Backoff = func(_, _ time.Duration, _ int, _ *http.Response) time.Duration { panic("classifier") }
		},
		"Dialect": nil,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := apiOver(t, func(b *roundtrippers.APIBuilder) {
					b.Circuit.Threshold, b.Concurrency.Limit = 1, 1
					b.RateLimit = &roundtrippers.RateLimit{PerSecond: 100}
					if change == nil {
						b.Dialect = panickyJudge{}
					} else {
						change(&b.Retry)
					}
				}, apiSteps(503, http.StatusTeapot, 200)...)
				want(t, c, t.Context(), 503)
				time.Sleep(5 * time.Second)
				// As the probe, which has the slot, a permit and a token.
				require.PanicsWithValue(t, "classifier", func() { _, _ = c.do(essentially(t.Context())) })
				require.Zero(t, c.builder.Concurrency.InFlight())
				time.Sleep(10 * time.Second) // a panic below the breaker counts as a failure
				want(t, c, t.Context(), 200)
				wantState(t, c, gobreaker.StateClosed)
			})
		})
	}
}
