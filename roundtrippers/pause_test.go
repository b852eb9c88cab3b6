package roundtrippers_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"strings"
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

func pausing(b *roundtrippers.APIBuilder) {
	b.Pause, b.Circuit.Threshold = &roundtrippers.Pause{}, 1000
}

// throttled is a 429 that asks for a wait.
func throttled(retryAfter string) layertest.Step {
	return layertest.Step{Status: 429, Header: map[string]string{"Retry-After": retryAfter}}
}

func throttledAfter(delay time.Duration, retryAfter string) layertest.Step {
	step := throttled(retryAfter)
	step.Delay = delay
	return step
}

// wantPaused sends a background call: it is refused at once, unsent.
func wantPaused(t *testing.T, c *apiClient, left time.Duration) {
	t.Helper()
	sends, began := c.sends(), time.Now()
	_, err := c.do(t.Context())
	var paused *roundtrippers.PausedError
	require.ErrorAs(t, err, &paused)
	require.ErrorIs(t, err, middleware.ErrCircuitOpen)
	require.ErrorContains(t, err, "paused until "+paused.Until.Format(time.TimeOnly))
	require.Equal(t, left, time.Until(paused.Until))
	require.Equal(t, paused.Until, c.builder.Pause.Until())
	require.Zero(t, time.Since(began))
	require.Equal(t, sends, c.sends())
}

// allGo sends n calls at once and waits until all that can has happened at this instant.
func allGo(all *sync.WaitGroup, n int, f func()) {
	for range n {
		all.Go(f)
	}
	synctest.Wait()
}

func TestAPauseIsRememberedP10(t *testing.T) {
	second := time.Second
	playAll(t, []scenario{
		{"a background call fails at once until the pause is over, and not a moment longer", pausing, []layertest.Step{throttled("5"), {}}, func(t *testing.T, c *apiClient) {
			require.Zero(t, c.builder.Pause.Until())
			want(t, c, t.Context(), 429)
			wantPaused(t, c, 5*second)
			require.Equal(t, 0, c.report(t.Context()).Sends)
			time.Sleep(5*second - 1)
			wantPaused(t, c, 1)
			time.Sleep(1)
			require.Zero(t, c.builder.Pause.Until())
			want(t, c, t.Context(), 200)
		}},
		{"essential calls wait until it is over, exactly", pausing, []layertest.Step{throttled("5"), {}}, func(t *testing.T, c *apiClient) {
			want(t, c, t.Context(), 429)
			time.Sleep(2 * second)
			var all sync.WaitGroup
			allGo(&all, 4, func() { want(t, c, essentially(t.Context()), 200) })
			require.Equal(t, 4, c.builder.Pause.Waiting())
			wantPaused(t, c, 3*second)
			all.Wait()
			require.Zero(t, c.builder.Pause.Waiting())
			require.Equal(t, []time.Duration{0, 5 * second, 5 * second, 5 * second, 5 * second}, c.script.Times())
		}},
		{"V065 X19 a wait beyond the deadline is refused at once", pausing, []layertest.Step{throttled("5"), {}}, func(t *testing.T, c *apiClient) {
			want(t, c, t.Context(), 429)
			ctx, end := context.WithTimeout(essentially(t.Context()), 5*second)
			defer end()
			began := time.Now()
			_, err := c.do(ctx)
			var wait *middleware.WaitError
			require.ErrorAs(t, err, &wait)
			require.Equal(t, 5*second, wait.Wait)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Zero(t, time.Since(began))
			require.Equal(t, 1, c.sends())
		}},
		{"who has met it itself does not wait twice, and is told how long", pausing, []layertest.Step{throttled("30"), {}}, func(t *testing.T, c *apiClient) {
			want(t, c, essentially(t.Context()), 200) // patience heeds 10 s
			require.Equal(t, []time.Duration{30 * second}, c.gaps())
			scheduled := c.tags.kinds(middleware.RetryScheduled)
			require.Len(t, scheduled, 1)
			require.Equal(t, 30*second, scheduled[0].Wait) // V110
		}},
		{"and returns with its answer at once where there is no time for that", pausing, []layertest.Step{throttled("30")}, func(t *testing.T, c *apiClient) {
			ctx, end := context.WithTimeout(essentially(t.Context()), 20*second)
			defer end()
			began := time.Now()
			resp, err := c.rt.RoundTrip(get(ctx, "https://api.test/"))
			require.NoError(t, err)
			_ = resp.Body.Close()
			require.Equal(t, 429, resp.StatusCode)
			require.Equal(t, middleware.Deadline, middleware.FromResponse(resp).Report().Stop)
			require.Zero(t, time.Since(began))
		}},
		{"a bounded call's own wait is over with it", pausing, []layertest.Step{throttled("5"), {}}, func(t *testing.T, c *apiClient) {
			want(t, c, patiently(t.Context(), rest.Bounded(4)), 200)
			require.Equal(t, []time.Duration{5 * second}, c.gaps())
		}},
		{"a bounded call that would be back too early keeps its answer", pausing, []layertest.Step{throttled("30")}, func(t *testing.T, c *apiClient) {
			began := time.Now()
			want(t, c, patiently(t.Context(), rest.Bounded(4)), 429) // V052 would make an error of it after 10 s
			require.Zero(t, time.Since(began))
			gaveUp := c.tags.kinds(middleware.GaveUp)
			require.Len(t, gaveUp, 1)
			require.Equal(t, middleware.NotPrepared, gaveUp[0].Stop)
			require.ErrorContains(t, gaveUp[0].Err, "paused until")
		}},
		{"Max limits what an answer imposes: a minute", pausing, []layertest.Step{throttled("999999999999999999999999999999"), {}}, func(t *testing.T, c *apiClient) {
			want(t, c, t.Context(), 429)
			wantPaused(t, c, time.Minute)
			time.Sleep(time.Minute)
			want(t, c, t.Context(), 200)
		}},
		{"Max as it is set", func(b *roundtrippers.APIBuilder) { b.Pause = &roundtrippers.Pause{Max: time.Hour} }, []layertest.Step{throttled("3600"), {}}, func(t *testing.T, c *apiClient) {
			want(t, c, t.Context(), 429)
			wantPaused(t, c, time.Hour)
		}},
		{"R10 a wait to the end of time does not overflow", func(b *roundtrippers.APIBuilder) {
			b.Dialect, b.Pause = forEver{}, &roundtrippers.Pause{Max: math.MaxInt64}
		}, []layertest.Step{{Status: 429}}, func(t *testing.T, c *apiClient) {
			want(t, c, t.Context(), 429)
			time.Sleep(100 * 365 * 24 * time.Hour)
			_, err := c.do(t.Context())
			require.ErrorIs(t, err, middleware.ErrCircuitOpen)
		}},
		{"only throttling that names a wait begins one", pausing, []layertest.Step{
			throttled("0"), throttled("tomorrow"), {Status: 429}, {Status: 503, Header: map[string]string{"Retry-After": "5"}},
			{Status: 200, Header: map[string]string{"Retry-After": "5"}}, {Err: errReset},
		}, func(t *testing.T, c *apiClient) {
			for range 6 {
				_, _ = c.do(t.Context())
				require.Zero(t, c.builder.Pause.Until())
			}
			require.Equal(t, 6, c.sends())
		}},
		{"R09 after an hour asleep it is simply over", pausing, []layertest.Step{throttled("5"), {}}, func(t *testing.T, c *apiClient) {
			want(t, c, t.Context(), 429)
			time.Sleep(time.Hour)
			want(t, c, t.Context(), 200)
		}},
		{"V022 neither it nor its refusals are the breaker's", func(b *roundtrippers.APIBuilder) { pausing(b); b.Circuit.Threshold = 1 }, []layertest.Step{throttled("5"), {}}, func(t *testing.T, c *apiClient) {
			want(t, c, t.Context(), 429)
			wantPaused(t, c, 5*second)
			wantState(t, c, gobreaker.StateClosed)
		}},
		{"V105 a refusal is told as an attempt that took no time", pausing, []layertest.Step{throttled("5"), {}}, func(t *testing.T, c *apiClient) {
			want(t, c, t.Context(), 429)
			wantPaused(t, c, 5*second)
			want(t, c, essentially(t.Context()), 200) // who waits is not told of
			require.Equal(t, "started, failed:status, started, failed:breaker_open, started, ok:200", c.tags.String())
		}},
		{"V050 clients with one Pause share it", pausing, []layertest.Step{throttled("5")}, func(t *testing.T, c *apiClient) {
			want(t, c, t.Context(), 429)
			second, err := c.builder.Build()
			require.NoError(t, err)
			_, err = second.RoundTrip(get(t.Context(), "https://api.test/"))
			require.ErrorIs(t, err, middleware.ErrCircuitOpen)
			want(t, apiOver(t, pausing), t.Context(), 200)
		}},
		{"V123 a call says breaker_open, which passes", pausing, []layertest.Step{throttled("5")}, func(t *testing.T, c *apiClient) {
			api := rest.API{Transport: c.rt, BaseURL: "https://api.test"}
			require.Error(t, api.Get(t.Context(), "/", nil))
			var failed *rest.Error
			require.ErrorAs(t, api.Get(t.Context(), "/", nil), &failed)
			require.Equal(t, []any{rest.BreakerOpen, 0, false}, []any{failed.Kind, failed.Attempts, failed.IsFinal()})
		}},
	})
}

// forEver is a dialect whose throttled answers name the longest wait there is.
type forEver struct{ rest.Dialect }

func (d forEver) Judge(in *middleware.Intent, resp *http.Response, err error) middleware.Outcome {
	out := d.Dialect.Judge(in, resp, err)
	if out.Cause == middleware.Throttled {
		out.Wait = math.MaxInt64
	}
	return out
}

func TestTheLongestPauseWinsP10(t *testing.T) {
	second := time.Second
	playAll(t, []scenario{
		{"a shorter one changes nothing", pausing, []layertest.Step{throttledAfter(second, "10"), throttledAfter(2*second, "3"), {}}, func(t *testing.T, c *apiClient) {
			var all sync.WaitGroup
			allGo(&all, 2, func() { want(t, c, t.Context(), 429) })
			all.Wait()
			wantPaused(t, c, 9*second)
		}},
		{"nor does a success of an older send", pausing, []layertest.Step{throttledAfter(second, "10"), {Delay: 2 * second}}, func(t *testing.T, c *apiClient) {
			var all sync.WaitGroup
			allGo(&all, 2, func() { _, err := c.do(t.Context()); require.NoError(t, err) })
			all.Wait()
			wantPaused(t, c, 9*second)
		}},
		{"who waits already goes on waiting", pausing, []layertest.Step{throttledAfter(second, "5"), throttledAfter(2*second, "20"), {}}, func(t *testing.T, c *apiClient) {
			var all sync.WaitGroup
			allGo(&all, 2, func() { want(t, c, t.Context(), 429) })
			time.Sleep(second + 1)
			want(t, c, essentially(t.Context()), 200)
			require.Equal(t, 22*second, c.script.Times()[2])
			all.Wait()
		}},
		{"and is refused the moment that this would outlive its deadline", pausing, []layertest.Step{throttledAfter(second, "5"), throttledAfter(2*second, "20")}, func(t *testing.T, c *apiClient) {
			var all sync.WaitGroup
			allGo(&all, 2, func() { want(t, c, t.Context(), 429) })
			time.Sleep(second + 1)
			ctx, end := context.WithTimeout(essentially(t.Context()), 10*second)
			defer end()
			began := time.Now()
			_, err := c.do(ctx)
			var wait *middleware.WaitError
			require.ErrorAs(t, err, &wait)
			require.Equal(t, second-1, time.Since(began))
			all.Wait()
			require.Zero(t, c.builder.Pause.Waiting())
		}},
	})
}

func TestWhoLeavesAPauseLeavesNothingP10(t *testing.T) {
	playAll(t, []scenario{
		{"V012 cancelled while it waits", pausing, []layertest.Step{throttled("5"), {}}, func(t *testing.T, c *apiClient) {
			want(t, c, t.Context(), 429)
			ctx, cancel := context.WithCancelCause(essentially(t.Context()))
			var all sync.WaitGroup
			allGo(&all, 3, func() {
				_, err := c.do(ctx)
				require.ErrorIs(t, err, errTrouble)
				require.ErrorIs(t, err, context.Canceled)
			})
			require.Equal(t, 3, c.builder.Pause.Waiting())
			cancel(errTrouble)
			all.Wait()
			require.Zero(t, c.builder.Pause.Waiting())
			time.Sleep(time.Minute)
			require.Equal(t, 1, c.sends())
		}},
		{"R25 cancelled in the moment it is over", pausing, []layertest.Step{throttled("5"), {}}, func(t *testing.T, c *apiClient) {
			want(t, c, t.Context(), 429)
			ctx, end := context.WithCancel(essentially(t.Context()))
			time.AfterFunc(5*time.Second, end)
			if _, err := c.do(ctx); err != nil {
				require.ErrorIs(t, err, context.Canceled)
			}
			require.Zero(t, c.builder.Pause.Waiting())
			require.Zero(t, c.builder.Concurrency.InFlight())
		}},
	})
}

// What waits further down when the pause begins is not sent either.
func TestNoWaitFurtherDownEndsWithinAPauseP10(t *testing.T) {
	second := time.Second
	playAll(t, []scenario{
		{"V099 for a token: none is taken", func(b *roundtrippers.APIBuilder) { pausing(b); b.RateLimit = &roundtrippers.RateLimit{PerSecond: 0.1} }, []layertest.Step{throttledAfter(second/2, "10"), {}}, func(t *testing.T, c *apiClient) {
			var all sync.WaitGroup
			allGo(&all, 1, func() { want(t, c, t.Context(), 429) })
			allGo(&all, 1, func() {
				_, err := c.do(t.Context())
				require.ErrorIs(t, err, middleware.ErrCircuitOpen)
			})
			allGo(&all, 1, func() { want(t, c, essentially(t.Context()), 200) })
			require.Equal(t, 2, c.builder.RateLimit.Waiting())
			all.Wait()
			require.Equal(t, []time.Duration{0, 10500 * time.Millisecond}, c.script.Times())
			require.Equal(t, "started, failed:status, started, failed:breaker_open, started, ok:200", c.tags.String())
		}},
		{"for a permit", func(b *roundtrippers.APIBuilder) { pausing(b); b.Concurrency.Limit = 1 }, []layertest.Step{throttledAfter(second, "10"), {}}, func(t *testing.T, c *apiClient) {
			var all sync.WaitGroup
			allGo(&all, 1, func() { want(t, c, t.Context(), 429) })
			allGo(&all, 20, func() {
				_, err := c.do(t.Context())
				require.ErrorIs(t, err, middleware.ErrCircuitOpen)
			})
			allGo(&all, 5, func() { want(t, c, essentially(t.Context()), 200) })
			require.Equal(t, 25, c.builder.Concurrency.Waiting())
			all.Wait()
			require.Equal(t, []time.Duration{0, 11 * second, 11 * second, 11 * second, 11 * second, 11 * second}, c.script.Times())
		}},
		{"V042 for the breaker", func(b *roundtrippers.APIBuilder) {
			pausing(b)
			b.Circuit.Threshold = 1
			b.RateLimit = &roundtrippers.RateLimit{PerSecond: 0.001, Burst: 5} // who is not sent takes no token
		}, []layertest.Step{{Status: 503}, throttled("20"), {}}, func(t *testing.T, c *apiClient) {
			want(t, c, t.Context(), 503)
			var all sync.WaitGroup
			allGo(&all, 3, func() { want(t, c, essentially(t.Context()), 200) })
			require.Equal(t, 3, c.builder.Circuit.Waiting())
			time.Sleep(6 * second) // the probe was throttled: neither it nor those behind it wait in the breaker, with its slot
			require.Equal(t, []int{0, 2}, []int{c.builder.Circuit.Waiting(), c.builder.Pause.Waiting()})
			all.Wait()
			require.Equal(t, []time.Duration{0, 5 * second, 25 * second, 25 * second, 25 * second}, c.script.Times())
			require.NotContains(t, c.tags.String(), "breaker_open")
		}},
		{"whatever is stacked above", nil, []layertest.Step{{Status: 503, Delay: 3 * second}, throttled("5"), {}}, func(t *testing.T, c *apiClient) {
			d, pause := rest.Dialect{}, &roundtrippers.Pause{Dialect: rest.Dialect{}}
			rt, err := middleware.Stack(c.script, roundtrippers.Retry{Dialect: d, Rand: c.builder.Retry.Rand}, &roundtrippers.Circuit{Dialect: d, Threshold: 1}, pause)
			require.NoError(t, err)
			c.rt = rt
			var all sync.WaitGroup
			allGo(&all, 1, func() { want(t, c, t.Context(), 503) })
			want(t, c, t.Context(), 429)
			allGo(&all, 1, func() { want(t, c, essentially(t.Context()), 200) })
			require.Equal(t, 1, pause.Waiting())
			all.Wait()
			require.Equal(t, []time.Duration{0, 0, 8 * second}, c.script.Times()) // the breaker has opened at 3 s
		}},
		{"V077 a replay with a fresh token waits too", func(b *roundtrippers.APIBuilder) {
			pausing(b)
			b.Auth = &roundtrippers.Auth{Origins: []string{"https://api.test"}, Source: (&tokenSource{}).next}
		}, []layertest.Step{{Status: 401, Delay: 2 * second}, throttledAfter(second, "9"), {}}, func(t *testing.T, c *apiClient) {
			var all sync.WaitGroup
			allGo(&all, 1, func() { want(t, c, essentially(t.Context()), 200) })
			want(t, c, t.Context(), 429)
			all.Wait()
			require.Equal(t, []time.Duration{0, 0, 10 * second}, c.script.Times())
		}},
	})
}

// The permit of a throttled attempt goes to the next one while the answer is still
// on its way up: stacked a second time, below it, the layer has learned of it by
// then.
func TestAPauseBeginsBeforeThePermitIsHandedOnP10(t *testing.T) {
	slowly := middleware.LayerFunc(func(next http.RoundTripper) http.RoundTripper {
		return middleware.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
			defer time.Sleep(time.Millisecond)
			return next.RoundTrip(req)
		})
	})
	synctest.Test(t, func(t *testing.T) {
		pause, permits := &roundtrippers.Pause{Dialect: rest.Dialect{}}, &roundtrippers.Concurrency{Limit: 1}
		script := layertest.NewScript(t, throttledAfter(time.Second, "5"), layertest.Step{})
		rt, err := middleware.Stack(script, pause, slowly, permits, pause)
		require.NoError(t, err)
		var all sync.WaitGroup
		refused := 0
		allGo(&all, 1, func() { closeIt(rt.RoundTrip(get(t.Context(), "https://api.test/"))) })
		allGo(&all, 1, func() {
			_, err := rt.RoundTrip(get(t.Context(), "https://api.test/"))
			require.ErrorIs(t, err, middleware.ErrCircuitOpen)
			refused++
		})
		all.Wait()
		require.Equal(t, []int{1, 1}, []int{refused, len(script.Sends())})
		require.Equal(t, 5*time.Second-time.Millisecond, time.Until(pause.Until())) // from the answer, not from when it came up
	})
}

func closeIt(resp *http.Response, err error) {
	if err == nil {
		_ = resp.Body.Close()
	}
}

// A thousand that wait are no herd: what stands below lets them through as ever,
// and those that are not sent when the next pause begins wait again.
func TestTheEndOfAPauseReleasesNoHerdP10(t *testing.T) {
	second := time.Second
	for name, row := range map[string]struct {
		change func(*roundtrippers.APIBuilder)
		most   int // sends between two pauses
	}{
		"4 in flight": {pausing, 4},
		"of 1000, 20 a second": {func(b *roundtrippers.APIBuilder) {
			pausing(b)
			b.Concurrency.Limit, b.RateLimit = 1000, &roundtrippers.RateLimit{PerSecond: 20}
		}, 20},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				script := layertest.NewServer(t, func(*http.Request) layertest.Step {
					if time.Since(began) < 60*second {
						return throttledAfter(10*time.Millisecond, "10")
					}
					return layertest.Step{Delay: 10 * time.Millisecond}
				})
				c := apiBase(t, script, row.change)
				var all sync.WaitGroup
				want(t, c, t.Context(), 429)
				allGo(&all, 1000, func() { want(t, c, essentially(t.Context()), 200) })
				require.Equal(t, 1000, c.builder.Pause.Waiting())
				all.Wait()
				pauses := map[time.Duration]int{}
				for _, at := range script.Times()[1:] {
					if at < 60*second {
						pauses[at.Truncate(10*second)]++
					}
				}
				require.Len(t, pauses, 5) // at 10, 20, 30, 40 and 50 s
				for at, n := range pauses {
					require.LessOrEqual(t, n, row.most, at)
				}
				require.Zero(t, c.builder.Pause.Waiting())
				require.Zero(t, c.builder.Concurrency.InFlight())
			})
		})
	}
}

// Whatever comes together: between a throttled answer and the end of its wait
// nothing is sent, and in the end nobody is left. Sends of the same instant as the
// answer are under way already. Run it with -race.
func TestNothingIsEverSentInAPauseP10(t *testing.T) {
	for seed := range 20 {
		synctest.Test(t, func(t *testing.T) {
			type span struct{ from, to time.Duration }
			var mu sync.Mutex
			var pauses []span
			began, random := time.Now(), rand.New(rand.NewPCG(uint64(seed), 10))
			script := layertest.NewServer(t, func(*http.Request) layertest.Step {
				mu.Lock()
				defer mu.Unlock()
				delay := time.Duration(1 + random.IntN(300_000_000))
				switch random.IntN(6) {
				case 0:
					seconds := 1 + random.IntN(3)
					at := time.Since(began) + delay
					pauses = append(pauses, span{at, at + time.Duration(seconds)*time.Second})
					return throttledAfter(delay, fmt.Sprint(seconds))
				case 1:
					return layertest.Step{Status: 503, Delay: delay}
				case 2:
					return layertest.Step{Status: 401, Delay: delay}
				}
				return layertest.Step{Delay: delay}
			})
			c := apiBase(t, script, func(b *roundtrippers.APIBuilder) {
				pausing(b)
				b.Circuit.Threshold, b.Circuit.Cooldown = 3, time.Second
				b.Concurrency.Limit, b.RateLimit = 3, &roundtrippers.RateLimit{PerSecond: 30}
				b.Auth = &roundtrippers.Auth{Origins: []string{"https://api.test"}, Source: (&tokenSource{}).next}
			})
			var all sync.WaitGroup
			for i := range 60 {
				all.Go(func() {
					time.Sleep(time.Duration(i%7) * 431 * time.Millisecond)
					for n := range 4 {
						ctx := t.Context()
						switch (i + n) % 4 {
						case 1:
							ctx = essentially(ctx)
						case 2:
							ctx = patiently(ctx, rest.Bounded(3))
						}
						// Answers come as they are; no script is left hanging.
						ctx, end := context.WithTimeout(ctx, 300*time.Second)
						_, _ = c.do(ctx)
						end()
					}
				})
			}
			all.Wait()
			require.Greater(t, len(pauses), 3)
			for _, at := range script.Times() {
				for _, p := range pauses {
					require.False(t, at > p.from && at < p.to, "seed %d: sent at %v, paused from %v to %v", seed, at, p.from, p.to)
				}
			}
			require.Equal(t, []int{0, 0, 0, 0, 0}, []int{c.builder.Pause.Waiting(), c.builder.Circuit.Waiting(), c.builder.RateLimit.Waiting(),
				c.builder.Concurrency.Waiting(), c.builder.Concurrency.InFlight()})
		})
	}
}

func TestABadPauseIsNamed(t *testing.T) {
	_, err := (&roundtrippers.Pause{Max: -time.Second}).Wrap(nil)
	require.ErrorContains(t, err, "Dialect is nil")
	require.ErrorContains(t, err, "Max is -1s, want >= 0")
}

func TestTwoPausesAreNotConfused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		outer, inner := &roundtrippers.Pause{Dialect: rest.Dialect{}, Max: time.Second}, &roundtrippers.Pause{Dialect: rest.Dialect{}}
		script, tags := layertest.NewScript(t, throttled("5"), layertest.Step{}), &apiTags{}
		rt, err := middleware.Stack(script, middleware.Observer(tags.observe), outer, inner)
		require.NoError(t, err)
		closeIt(rt.RoundTrip(get(t.Context(), "https://api.test/")))
		require.Equal(t, []time.Duration{time.Second, 5 * time.Second}, []time.Duration{time.Until(outer.Until()), time.Until(inner.Until())})
		time.Sleep(2 * time.Second)
		_, err = rt.RoundTrip(get(t.Context(), "https://api.test/"))
		require.ErrorIs(t, err, middleware.ErrCircuitOpen)
		require.Equal(t, "started, failed:status, started, failed:breaker_open", tags.String()) // told once
		time.Sleep(3 * time.Second)
		closeIt(rt.RoundTrip(get(t.Context(), "https://api.test/")))
		require.Len(t, script.Sends(), 2)
	})
}

// The gates of an attempt that is back have no say: one below is yet to be passed,
// and one on another way never will be.
func TestOfGatesOnlyThoseAboveAreAskedAgain(t *testing.T) {
	second := time.Second
	playAll(t, []scenario{
		{"a pause's end leaves the breaker below it to itself", func(b *roundtrippers.APIBuilder) {
			pausing(b)
			b.Circuit.Threshold, b.Circuit.Cooldown = 1, 10*second
			b.Retry.Essential = middleware.Patience{Retries: 1, Base: second, AwaitCircuit: true}
		}, []layertest.Step{throttledAfter(second/2, "2"), {Status: 503}, {}}, func(t *testing.T, c *apiClient) {
			var all sync.WaitGroup
			allGo(&all, 1, func() { want(t, c, t.Context(), 429) })
			want(t, c, essentially(t.Context()), 200)
			require.Equal(t, []time.Duration{0, 0, 10 * second}, c.script.Times())
			all.Wait()
		}},
		{"the breaker of one endpoint stops no attempt at another", nil, []layertest.Step{{Delay: second}, {Status: 503}, {}}, func(t *testing.T, c *apiClient) {
			stacked := func(layers ...middleware.Layer) http.RoundTripper {
				rt, err := middleware.Stack(c.script, layers...)
				require.NoError(t, err)
				return rt
			}
			d := rest.Dialect{}
			failing := stacked(&roundtrippers.Circuit{Dialect: d, Threshold: 1, Cooldown: time.Minute})
			busy := stacked(&roundtrippers.Circuit{Dialect: d}, &roundtrippers.Concurrency{Limit: 1})
			var all sync.WaitGroup
			allGo(&all, 1, func() { closeIt(busy.RoundTrip(get(t.Context(), "https://b.test/"))) })
			next := failing
			either := middleware.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
				defer func() { next = busy }()
				return next.RoundTrip(req)
			})
			var err error
			c.rt, err = middleware.Stack(either, roundtrippers.Retry{Dialect: d, Background: middleware.Patience{Retries: 1}})
			require.NoError(t, err)
			want(t, c, t.Context(), 200)
			all.Wait()
		}},
	})
}

func TestWhoHasLeftIsNotToldThatAPauseOutlivesTheDeadline(t *testing.T) {
	playAll(t, []scenario{{"X18", nil, []layertest.Step{throttled("30")}, func(t *testing.T, c *apiClient) {
		var err error
		c.rt, err = middleware.Stack(c.script, &roundtrippers.Pause{Dialect: rest.Dialect{}})
		require.NoError(t, err)
		want(t, c, t.Context(), 429)
		ctx, end := context.WithTimeout(essentially(t.Context()), time.Second)
		end()
		_, err = c.do(ctx)
		require.ErrorIs(t, err, context.Canceled)
		require.NotErrorIs(t, err, context.DeadlineExceeded)
	}}})
}

func TestOfTwoPausesTheLongerOneIsPlannedWith(t *testing.T) {
	playAll(t, []scenario{{"P10", nil, []layertest.Step{throttled("30")}, func(t *testing.T, c *apiClient) {
		d, err := rest.Dialect{}, error(nil)
		c.rt, err = middleware.Stack(c.script, roundtrippers.Retry{Dialect: d}, &roundtrippers.Pause{Dialect: d, Max: time.Second}, &roundtrippers.Pause{Dialect: d})
		require.NoError(t, err)
		want(t, c, patiently(t.Context(), middleware.Patience{Retries: 4}), 429) // not an error: its answer is worth more
	}}})
}

func TestTheBuilderStacksAPauseAboveAllWaitsAndBelowThem(t *testing.T) {
	b := roundtrippers.APIBuilder{Dialect: rest.Dialect{}, Pause: &roundtrippers.Pause{}, RateLimit: &roundtrippers.RateLimit{PerSecond: 1}, AttemptTimeout: time.Second}
	var names []string
	for _, l := range b.Layers() {
		names = append(names, strings.TrimPrefix(strings.TrimLeft(fmt.Sprintf("%T", l), "*"), "roundtrippers."))
	}
	require.Equal(t, []string{"Guard", "Retry", "Pause", "Circuit", "RateLimit", "Concurrency", "Pause", "AttemptTimeout"}, names)
}
