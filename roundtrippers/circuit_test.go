package roundtrippers_test

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"sync"
	"sync/atomic"
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

func wantState(t *testing.T, c *apiClient, state gobreaker.State) {
	t.Helper()
	got, until := c.builder.Circuit.State()
	require.Equal(t, state.String(), got.String())
	require.Equal(t, state == gobreaker.StateOpen, !until.IsZero())
}

// untilOpen sends background calls until the breaker refuses one.
func untilOpen(t *testing.T, c *apiClient) {
	t.Helper()
	for range 1000 {
		if _, err := c.do(t.Context()); err != nil {
			require.ErrorIs(t, err, middleware.ErrCircuitOpen)
			return
		}
	}
	t.Fatal("the breaker never opened")
}

func TestTheBreakersStates(t *testing.T) {
	second := time.Second
	playAll(t, []scenario{
		{"V019 a success resets the run", nil, apiSteps(503, 503, 503, 503, 200, 503, 503, 503, 503), func(t *testing.T, c *apiClient) {
			for range 9 {
				_, err := c.do(t.Context())
				require.NoError(t, err)
			}
			wantState(t, c, gobreaker.StateClosed)
		}},
		{"V022 neither 408 nor 429 ever opens it", nil, apiSteps(429), func(t *testing.T, c *apiClient) {
			for range 100 {
				want(t, c, t.Context(), 429)
			}
			wantState(t, c, gobreaker.StateClosed)
		}},
		{"V022 B55 408 neither counts nor closes", nil, apiSteps(503, 503, 503, 503, 408, 408, 408, 408, 503), func(t *testing.T, c *apiClient) {
			for range 8 {
				_, _ = c.do(t.Context())
			}
			wantState(t, c, gobreaker.StateClosed)
			want(t, c, t.Context(), 503)
			wantState(t, c, gobreaker.StateOpen)
		}},
		{"B55 four failures, a throttle, a failure: open", nil, apiSteps(503, 503, 503, 503, 429, 503), func(t *testing.T, c *apiClient) {
			for range 6 {
				_, _ = c.do(t.Context())
			}
			wantState(t, c, gobreaker.StateOpen)
		}},
		{"V026 B52 cancelled calls count as nothing", nil, []layertest.Step{{Hang: true}}, func(t *testing.T, c *apiClient) {
			for i := range 50 {
				ctx, cancel := context.WithCancelCause(t.Context())
				time.AfterFunc(second, func() {
					if i%2 == 0 {
						cancel(nil)
					} else {
						cancel(errTrouble)
					}
				})
				_, err := c.do(ctx)
				require.ErrorIs(t, err, context.Canceled)
			}
			wantState(t, c, gobreaker.StateClosed)
		}},
		{"V028 a body cut short is the reader's affair", threshold(1), []layertest.Step{{Answer: func(req *http.Request) (*http.Response, error) {
			resp, err := answer(req, 1, 200)
			resp.Body = &cutBody{}
			return resp, err
		}}}, func(t *testing.T, c *apiClient) {
			_, err := c.do(t.Context())
			require.ErrorIs(t, err, errTrouble)
			wantState(t, c, gobreaker.StateClosed)
		}},
		{"V029 the sixth call is refused at once", nil, apiSteps(503), func(t *testing.T, c *apiClient) {
			for range 5 {
				want(t, c, t.Context(), 503)
			}
			wantOpen(t, c)
			require.Equal(t, 0, c.report(t.Context()).Sends) // attempts 0
			require.Equal(t, 5, c.sends())
		}},
		{"V030", nil, apiSteps(503, 503, 503, 503, 200, 503, 503, 503, 503, 503), func(t *testing.T, c *apiClient) {
			for range 9 {
				_, _ = c.do(t.Context())
			}
			wantState(t, c, gobreaker.StateClosed)
			want(t, c, t.Context(), 503)
			wantState(t, c, gobreaker.StateOpen)
		}},
		{"V031 a 404 keeps the run", nil, apiSteps(503, 404, 503, 404, 503, 503, 503), func(t *testing.T, c *apiClient) {
			for range 6 {
				_, err := c.do(t.Context())
				require.NoError(t, err)
			}
			wantState(t, c, gobreaker.StateClosed)
			want(t, c, t.Context(), 503)
			wantState(t, c, gobreaker.StateOpen)
		}},
		{"V033 V049 the cooldown's edge", threshold(1), apiSteps(503, 200), func(t *testing.T, c *apiClient) {
			want(t, c, t.Context(), 503)
			time.Sleep(4999 * time.Millisecond)
			wantOpen(t, c)
			time.Sleep(time.Millisecond)
			wantState(t, c, gobreaker.StateHalfOpen)
			want(t, c, t.Context(), 200)
			wantState(t, c, gobreaker.StateClosed)
		}},
		{"R09 after an hour asleep the cooldown is simply over", threshold(1), apiSteps(503, 200), func(t *testing.T, c *apiClient) {
			want(t, c, t.Context(), 503)
			time.Sleep(time.Hour)
			want(t, c, t.Context(), 200)
		}},
		{"V034 V107 failed probes double the cooldown up to 60 s", threshold(1), apiSteps(503), func(t *testing.T, c *apiClient) {
			want(t, c, t.Context(), 503)
			for _, cooldown := range []time.Duration{5, 10, 20, 40, 60, 60} {
				time.Sleep(cooldown*second - 1)
				wantOpen(t, c)
				time.Sleep(1)
				want(t, c, t.Context(), 503)
			}
			var told []time.Duration
			for _, e := range c.tags.kinds(middleware.BreakerOpened) {
				told = append(told, e.Wait/second)
			}
			require.Equal(t, []time.Duration{5, 10, 20, 40, 60, 60, 60}, told)
			require.Empty(t, c.tags.kinds(middleware.BreakerClosed))
		}},
		{"V035 a success resets the cooldown", threshold(1), apiSteps(503, 503, 200, 503), func(t *testing.T, c *apiClient) {
			want(t, c, t.Context(), 503)
			time.Sleep(5 * second)
			want(t, c, t.Context(), 503)
			time.Sleep(10 * second)
			want(t, c, t.Context(), 200)
			want(t, c, t.Context(), 503)
			opened := c.tags.kinds(middleware.BreakerOpened)
			require.Equal(t, 5*second, opened[len(opened)-1].Wait)
		}},
		{"V036 V037 a 404 closes it and keeps the run", nil, apiSteps(503, 503, 503, 503, 503, 404, 503), func(t *testing.T, c *apiClient) {
			untilOpen(t, c)
			time.Sleep(5 * second)
			want(t, c, t.Context(), 404)
			wantState(t, c, gobreaker.StateClosed)
			want(t, c, t.Context(), 503)
			wantState(t, c, gobreaker.StateOpen)
		}},
		{"V037 A7 unless ResetRunOnClose is set", func(b *roundtrippers.APIBuilder) { b.Circuit.ResetRunOnClose = true }, apiSteps(503, 503, 503, 503, 503, 404, 503), func(t *testing.T, c *apiClient) {
			untilOpen(t, c)
			time.Sleep(5 * second)
			want(t, c, t.Context(), 404)
			for range 4 {
				want(t, c, t.Context(), 503)
				wantState(t, c, gobreaker.StateClosed)
			}
			want(t, c, t.Context(), 503)
			wantState(t, c, gobreaker.StateOpen)
		}},
		{"V039 a throttled probe frees the slot at once", threshold(1), apiSteps(503, 429, 503), func(t *testing.T, c *apiClient) {
			want(t, c, t.Context(), 503)
			time.Sleep(5 * second)
			want(t, c, t.Context(), 429)
			wantState(t, c, gobreaker.StateHalfOpen)
			want(t, c, t.Context(), 503)
			opened := c.tags.kinds(middleware.BreakerOpened)
			require.Equal(t, 10*second, opened[len(opened)-1].Wait)
		}},
		{"V050 two APIs are independent, two clients of one share", threshold(1), apiSteps(503), func(t *testing.T, c *apiClient) {
			want(t, c, t.Context(), 503)
			second, err := c.builder.Build()
			require.NoError(t, err)
			_, err = second.RoundTrip(get(t.Context(), "https://api.test/"))
			require.ErrorIs(t, err, middleware.ErrCircuitOpen)
			want(t, apiOver(t, nil), t.Context(), 200)
		}},
		{"V051 a MaxCooldown below the base is the base", func(b *roundtrippers.APIBuilder) {
			b.Circuit.Threshold, b.Circuit.MaxCooldown = 1, time.Second
		}, apiSteps(503), func(t *testing.T, c *apiClient) {
			want(t, c, t.Context(), 503)
			time.Sleep(5 * second)
			want(t, c, t.Context(), 503)
			time.Sleep(5 * second)
			want(t, c, t.Context(), 503)
		}},
		{"V052 a bounded call opens it on itself", threshold(2), apiSteps(503), func(t *testing.T, c *apiClient) {
			_, err := c.do(patiently(t.Context(), rest.Bounded(4)))
			require.ErrorIs(t, err, middleware.ErrCircuitOpen)
			var typed *middleware.Error
			require.ErrorAs(t, err, &typed)
			require.Equal(t, 2, typed.Report.Sends)
			require.Equal(t, 503, typed.LastStatus)
		}},
		{"R10 a cooldown near the end of time does not overflow", func(b *roundtrippers.APIBuilder) {
			b.Circuit.Threshold, b.Circuit.Cooldown, b.Circuit.MaxCooldown = 1, math.MaxInt64/2+1, math.MaxInt64
		}, apiSteps(503, 503), func(t *testing.T, c *apiClient) {
			want(t, c, t.Context(), 503)
			wantOpen(t, c)
			wantState(t, c, gobreaker.StateOpen)
		}},
	})
}

type cutBody struct{}

func (cutBody) Read([]byte) (int, error) { return 0, errTrouble }
func (cutBody) Close() error             { return nil }

func TestEssentialCallsWaitForTheBreaker(t *testing.T) {
	second := time.Second
	playAll(t, []scenario{
		{"V041 until the probe is due", threshold(1), apiSteps(503, 200), func(t *testing.T, c *apiClient) {
			want(t, c, t.Context(), 503)
			time.Sleep(2 * second)
			want(t, c, essentially(t.Context()), 200)
			require.Equal(t, []time.Duration{5 * second}, c.gaps())
		}},
		{"V042 ten wait, one probes, nine follow", threshold(1), []layertest.Step{{Status: 503}, {Status: 200, Delay: second}, {Status: 200}}, func(t *testing.T, c *apiClient) {
			want(t, c, t.Context(), 503)
			var all sync.WaitGroup
			for range 10 {
				all.Go(func() { want(t, c, essentially(t.Context()), 200) })
			}
			synctest.Wait()
			require.Equal(t, 10, c.builder.Circuit.Waiting())
			time.Sleep(5*second + 1)
			require.Equal(t, 2, c.sends()) // one probe is out
			all.Wait()
			require.Equal(t, 11, c.sends())
			require.Equal(t, 6*second, c.script.Times()[10]) // with the probe's answer
		}},
		{"V042 when the probe fails, one sends again after the next cooldown", threshold(1), apiSteps(503, 503, 200), func(t *testing.T, c *apiClient) {
			want(t, c, t.Context(), 503)
			var all sync.WaitGroup
			for range 10 {
				all.Go(func() { want(t, c, essentially(t.Context()), 200) })
			}
			all.Wait()
			times := c.script.Times()
			require.Equal(t, []time.Duration{0, 5 * second, 15 * second}, times[:3])
			require.Len(t, times, 12)
		}},
		{"V044 R01 V146 a cancelled probe frees the slot for the next in line", threshold(1), []layertest.Step{{Status: 503}, {Hang: true}, {Status: 200}}, func(t *testing.T, c *apiClient) {
			want(t, c, t.Context(), 503)
			ctx, cancel := context.WithCancel(essentially(t.Context()))
			var all sync.WaitGroup
			all.Go(func() { _, err := c.do(ctx); require.ErrorIs(t, err, context.Canceled) })
			synctest.Wait()
			all.Go(func() { want(t, c, essentially(t.Context()), 200) })
			time.Sleep(6 * second)
			cancel()
			all.Wait()
			require.Equal(t, 6*second, c.script.Times()[2])
		}},
		{"V045 also where it is cancelled in the queue for a permit", func(b *roundtrippers.APIBuilder) {
			b.Circuit.Threshold, b.Concurrency.Limit = 1, 1
		}, []layertest.Step{{Status: 503}, {Delay: 9 * second}, {Status: 200}}, func(t *testing.T, c *apiClient) {
			want(t, c, t.Context(), 503)
			var all sync.WaitGroup
			// A client of the same permits, under another breaker, holds the only one.
			other := c.builder
			other.Circuit = &roundtrippers.Circuit{}
			busy, err := other.Build()
			require.NoError(t, err)
			all.Go(func() { resp, _ := busy.RoundTrip(get(t.Context(), "https://api.test/")); _ = resp.Body.Close() })
			synctest.Wait()
			ctx, cancel := context.WithCancel(essentially(t.Context()))
			all.Go(func() { _, err := c.do(ctx); require.ErrorIs(t, err, context.Canceled) })
			synctest.Wait()
			all.Go(func() { want(t, c, essentially(t.Context()), 200) })
			time.Sleep(7 * second)
			cancel()
			synctest.Wait()
			wantState(t, c, gobreaker.StateHalfOpen) // the next one has the slot, and waits for the permit
			all.Wait()
			wantState(t, c, gobreaker.StateClosed)
		}},
		{"V053 who has opened it comes back as the probe", threshold(1), apiSteps(503, 200), func(t *testing.T, c *apiClient) {
			want(t, c, essentially(t.Context()), 200)
			require.Equal(t, []time.Duration{5 * second}, c.gaps())
		}},
		{"V054 who waits comes before who arrives", threshold(1), []layertest.Step{{Status: 503}, {Status: 200, Delay: second}}, func(t *testing.T, c *apiClient) {
			want(t, c, t.Context(), 503)
			var all sync.WaitGroup
			all.Go(func() { want(t, c, essentially(t.Context()), 200) })
			time.Sleep(5 * second)
			// At the edge itself, before or after the timer: not this one.
			_, err := c.do(t.Context())
			require.ErrorIs(t, err, middleware.ErrCircuitOpen)
			var open *roundtrippers.CircuitOpenError
			require.ErrorAs(t, err, &open)
			require.True(t, open.Probing) // B57: told apart from open
			all.Wait()
		}},
		{"X19 a probe that is due after the deadline is not waited for", threshold(1), apiSteps(503), func(t *testing.T, c *apiClient) {
			want(t, c, t.Context(), 503)
			ctx, cancel := context.WithTimeout(essentially(t.Context()), 4*second)
			defer cancel()
			began := time.Now()
			_, err := c.do(ctx)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Zero(t, time.Since(began))
		}},
		{"V084 a queue for the probe holds no permit", func(b *roundtrippers.APIBuilder) {
			b.Circuit.Threshold, b.Concurrency.Limit = 1, 1
		}, apiSteps(503, 200), func(t *testing.T, c *apiClient) {
			want(t, c, t.Context(), 503)
			var all sync.WaitGroup
			all.Go(func() { want(t, c, essentially(t.Context()), 200) })
			synctest.Wait()
			require.Zero(t, c.builder.Concurrency.InFlight())
			wantOpen(t, c)
			all.Wait()
		}},
		{"R03 a probe that is stuck keeps the others waiting no longer than ProbeLimit", func(b *roundtrippers.APIBuilder) {
			b.Circuit.Threshold, b.Circuit.ProbeLimit = 1, 30*second
		}, []layertest.Step{{Status: 503}, {Delay: time.Hour, Status: 503}, {Status: 200}}, func(t *testing.T, c *apiClient) {
			want(t, c, t.Context(), 503)
			var all sync.WaitGroup
			all.Go(func() { want(t, c, essentially(t.Context()), 200) }) // its late 503 counts as one among others
			synctest.Wait()
			all.Go(func() { want(t, c, essentially(t.Context()), 200) })
			all.Wait()
			require.Equal(t, 35*second, c.script.Times()[2])
		}},
		{"R07 it opens while calls sleep in their back-off", threshold(2), apiSteps(503), func(t *testing.T, c *apiClient) {
			var all sync.WaitGroup
			all.Go(func() {
				_, err := c.do(patiently(t.Context(), middleware.Patience{Retries: 3, Base: 2 * second}))
				require.ErrorIs(t, err, middleware.ErrCircuitOpen)
			})
			ctx, cancel := context.WithTimeout(essentially(t.Context()), 7*second)
			defer cancel()
			all.Go(func() { _, _ = c.do(ctx) })
			all.Wait()
			require.Equal(t, []time.Duration{0, 0, 5 * second}, c.script.Times())
		}},
	})
}

func TestLateResultsOfTheBreaker(t *testing.T) {
	// Requests that were let in before the opening and answered after it.
	second := time.Second
	for name, row := range map[string]struct {
		late   layertest.Step // sent at 0, answered at 7 s
		probe  layertest.Step // sent at 6 s, answered at 8 s
		at7    gobreaker.State
		at8    gobreaker.State
		events string
	}{
		"V047 a late failure neither doubles nor extends": {
			layertest.Step{Status: 503, Delay: 7 * second}, layertest.Step{Status: 200, Delay: 2 * second},
			gobreaker.StateHalfOpen, gobreaker.StateClosed, "opened closed"},
		"R05 a late answer closes it, the probe's failure is then the first of a new run": {
			layertest.Step{Status: 200, Delay: 7 * second}, layertest.Step{Status: 503, Delay: 2 * second},
			gobreaker.StateClosed, gobreaker.StateClosed, "opened closed"},
		"R05 the other way round": {
			layertest.Step{Status: 200, Delay: 9 * second}, layertest.Step{Status: 503, Delay: 2 * second},
			gobreaker.StateHalfOpen, gobreaker.StateOpen, "opened opened"},
		"V046 a late cancellation frees nobody's slot": {
			layertest.Step{Status: 429, Delay: 7 * second}, layertest.Step{Status: 503, Delay: 2 * second},
			gobreaker.StateHalfOpen, gobreaker.StateOpen, "opened opened"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := apiOver(t, threshold(2), row.late, layertest.Step{Status: 503}, layertest.Step{Status: 503}, row.probe)
				var all sync.WaitGroup
				all.Go(func() { _, _ = c.do(t.Context()) })
				synctest.Wait()
				want(t, c, t.Context(), 503)
				want(t, c, t.Context(), 503)
				wantState(t, c, gobreaker.StateOpen)
				time.Sleep(6 * second)
				all.Go(func() { _, _ = c.do(t.Context()) })
				time.Sleep(second + 1)
				wantState(t, c, row.at7)
				if row.at7 == gobreaker.StateHalfOpen {
					wantOpen(t, c) // the probe is still exclusive
				}
				time.Sleep(second)
				wantState(t, c, row.at8)
				events := ""
				for _, e := range append(c.tags.kinds(middleware.BreakerOpened), c.tags.kinds(middleware.BreakerClosed)...) {
					events += map[middleware.EventKind]string{middleware.BreakerOpened: "opened ", middleware.BreakerClosed: "closed "}[e.Kind]
				}
				require.Equal(t, row.events+" ", events)
				all.Wait()
			})
		})
	}
}

func TestAThousandWaitersMakeOneProbeAndWakeUpOnceEachV043(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const callers = 1000
		c := apiOver(t, func(b *roundtrippers.APIBuilder) {
			b.Circuit.Threshold, b.Concurrency.Limit, b.Observe = 1, callers, nil
		}, layertest.Step{Status: 503}, layertest.Step{Status: 503}, layertest.Step{Status: 200, Delay: time.Second}, layertest.Step{})
		want(t, c, t.Context(), 503)
		var all sync.WaitGroup
		for i := range callers {
			all.Go(func() {
				resp, err := c.rt.RoundTrip(get(essentially(t.Context()), fmt.Sprint("https://api.test/", i)))
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
			})
			synctest.Wait() // they arrive in order
		}
		require.Equal(t, callers, c.builder.Circuit.Waiting())
		time.Sleep(5 * time.Second)
		synctest.Wait()
		require.Equal(t, 2, c.sends(), "one probe")
		time.Sleep(10*time.Second + 1)
		require.Equal(t, 3, c.sends(), "one more, by the next in line")
		all.Wait()
		require.Equal(t, callers+2, c.sends())
		require.Equal(t, "/0", c.script.Sends()[1].URL.Path, "first come, first probe")
		require.Equal(t, "/1", c.script.Sends()[2].URL.Path, "and the next one next")
		// Each of 1,000 was woken once, and the one whose probe failed once more.
		require.LessOrEqual(t, roundtrippers.CircuitWakes(c.builder.Circuit), callers+1)
	})
}

func TestAProbeThatPanicsFreesTheSlotR02X16(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		panics := true
		c := apiOver(t, threshold(1), layertest.Step{Status: 503}, layertest.Step{Answer: func(req *http.Request) (*http.Response, error) {
			if panics {
				panics = false
				panic("base")
			}
			return answer(req, 1, 200)
		}})
		want(t, c, t.Context(), 503)
		time.Sleep(5 * time.Second)
		require.PanicsWithValue(t, "base", func() { _, _ = c.do(t.Context()) })
		require.Zero(t, c.builder.Concurrency.InFlight())
		wantState(t, c, gobreaker.StateOpen) // counted as a failure, once
		time.Sleep(10 * time.Second)
		want(t, c, t.Context(), 200)
		require.Equal(t, "started, failed:status, opened, started, failed:transport, opened, started, ok:200, closed", c.tags.String())
	})
}

func TestTwoCallersAtTheCooldownsEdgeMakeOneProbeR04(t *testing.T) {
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			c := apiOver(t, threshold(1), layertest.Step{Status: 503}, layertest.Step{Delay: 400 * time.Millisecond, Status: 503})
			want(t, c, t.Context(), 503)
			var all sync.WaitGroup
			var refused atomic.Int32
			for i := range 20 {
				ctx := t.Context()
				if i%2 == 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(essentially(ctx), 5500*time.Millisecond)
					defer cancel()
				}
				all.Go(func() {
					if i%2 == 1 {
						time.Sleep(5 * time.Second)
					}
					if _, err := c.do(ctx); err != nil {
						refused.Add(1)
					}
				})
			}
			all.Wait()
			require.Equal(t, 2, c.sends())
		})
	}
}

func TestTheStateIsNeverTornR08(t *testing.T) {
	// Real goroutines and time: states are read while they change.
	script := layertest.NewServer(t, func(req *http.Request) layertest.Step {
		return layertest.Step{Status: map[bool]int{true: 503, false: 200}[req.URL.Query().Get("n") == "1"]}
	})
	c := apiBase(t, script, func(b *roundtrippers.APIBuilder) {
		b.Circuit.Threshold, b.Circuit.Cooldown, b.Observe = 1, time.Microsecond, nil
	})
	var all sync.WaitGroup
	for g := range 4 {
		all.Go(func() {
			for i := range 300 {
				resp, err := c.rt.RoundTrip(get(context.Background(), fmt.Sprint("https://api.test/?n=", (i+g)%2)))
				if err == nil {
					_ = resp.Body.Close()
				}
				state, until := c.builder.Circuit.State()
				if (state == gobreaker.StateOpen) == until.IsZero() {
					t.Errorf("%v until %v", state, until)
				}
			}
		})
	}
	all.Wait()
}

func TestCircuitNamesBadFields(t *testing.T) {
	for field, layer := range map[string]*roundtrippers.Circuit{
		"Dialect": {}, "Threshold is -1": {Dialect: rest.Dialect{}, Threshold: -1}, "Cooldown is -1ns": {Dialect: rest.Dialect{}, Cooldown: -1},
		"MaxCooldown is -1ns": {Dialect: rest.Dialect{}, MaxCooldown: -1}, "ProbeLimit is -1ns": {Dialect: rest.Dialect{}, ProbeLimit: -1},
	} {
		_, err := layer.Wrap(http.DefaultTransport)
		require.ErrorContains(t, err, field)
	}
}

func TestACancellationInTheMomentOfTheHandOverPassesTheSlotOnR01R04(t *testing.T) {
	late := 0
	for range 60 {
		synctest.Test(t, func(t *testing.T) {
			c := apiOver(t, threshold(1), layertest.Step{Status: 503}, layertest.Step{Status: 200, Delay: time.Second})
			want(t, c, t.Context(), 503)
			ctx, cancel := context.WithCancel(essentially(t.Context()))
			defer cancel()
			time.AfterFunc(5*time.Second, cancel) // the very moment at which the probe is due
			var all sync.WaitGroup
			all.Go(func() { _, _ = c.do(ctx) })
			synctest.Wait()
			all.Go(func() { want(t, c, essentially(t.Context()), 200) })
			all.Wait()
			// Whoever came first, the slot was not lost.
			require.LessOrEqual(t, c.script.Times()[1], 5*time.Second)
			if c.script.Times()[len(c.script.Times())-1] > 10*time.Second {
				late++
			}
		})
	}
	require.Zero(t, late)
}
