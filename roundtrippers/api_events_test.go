package roundtrippers_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/layertest"
	"github.com/reroute-go/reroute/middleware/rest"
	"github.com/reroute-go/reroute/roundtrippers"
)

func TestWhatAnObserverSees(t *testing.T) {
	playAll(t, []scenario{
		{"V100", nil, apiSteps(200), func(t *testing.T, c *apiClient) {
			want(t, c, t.Context(), 200)
			require.Equal(t, "started, ok:200", c.tags.String())
			require.EqualValues(t, len("body of 200"), c.tags.kinds(middleware.AttemptEnded)[0].Bytes)
		}},
		{"V101", threshold(2), apiSteps(503, 503, 200), func(t *testing.T, c *apiClient) {
			want(t, c, essentially(t.Context()), 200)
			require.Equal(t, "started, failed:status, retry:1, started, failed:status, opened, retry:2, started, ok:200, closed", c.tags.String())
		}},
		{"V105", threshold(1), apiSteps(503, 404), func(t *testing.T, c *apiClient) {
			want(t, c, t.Context(), 503)
			wantOpen(t, c)
			time.Sleep(5 * time.Second)
			want(t, c, t.Context(), 404)
			require.Equal(t, "started, failed:status, opened, started, failed:breaker_open, started, failed:status, closed", c.tags.String())
			require.Zero(t, c.tags.kinds(middleware.AttemptEnded)[1].Elapsed)
		}},
		{"V106 V149 cancelled in flight", nil, []layertest.Step{{Hang: true}}, func(t *testing.T, c *apiClient) {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Second, cancel)
			_, err := c.do(ctx)
			require.ErrorIs(t, err, context.Canceled)
			require.Equal(t, "started, cancelled", c.tags.String())
			require.Zero(t, c.builder.Concurrency.InFlight())
		}},
		{"V106 V145 X17 cancelled in the back-off", nil, apiSteps(503), func(t *testing.T, c *apiClient) {
			ctx, cancel := context.WithCancel(essentially(t.Context()))
			time.AfterFunc(600*time.Millisecond, cancel)
			began := time.Now()
			_, err := c.do(ctx)
			require.Equal(t, 600*time.Millisecond, time.Since(began))
			require.ErrorIs(t, err, context.Canceled)
			var typed *middleware.Error
			require.ErrorAs(t, err, &typed)
			require.Equal(t, []int{503, 2}, []int{typed.LastStatus, typed.Report.Sends})
			require.Equal(t, "started, failed:status, retry:1, started, failed:status, retry:2", c.tags.String())
		}},
		{"V109 the last Failed is what is returned", nil, []layertest.Step{{Err: errReset}}, func(t *testing.T, c *apiClient) {
			r := c.report(patiently(t.Context(), rest.Bounded(2)))
			ended := c.tags.kinds(middleware.AttemptEnded)
			last := ended[len(ended)-1]
			require.Equal(t, []any{3, r.Attempts[2].Cause, errReset}, []any{last.Attempt, last.Cause, last.Err})
		}},
		{"V110 what is scheduled is slept", nil, []layertest.Step{{Status: 429, Header: map[string]string{"Retry-After": "3"}}, {Status: 503}, {}}, func(t *testing.T, c *apiClient) {
			want(t, c, essentially(t.Context()), 200)
			scheduled := c.tags.kinds(middleware.RetryScheduled)
			require.Equal(t, c.gaps(), []time.Duration{scheduled[0].Wait, scheduled[1].Wait})
		}},
		{"R49 V100 sizes as announced", nil, []layertest.Step{{Status: 204}, {Answer: func(req *http.Request) (*http.Response, error) {
			resp, err := answer(req, 1, 200)
			resp.ContentLength = -1
			return resp, err
		}}}, func(t *testing.T, c *apiClient) {
			want(t, c, t.Context(), 204)
			want(t, c, t.Context(), 200)
			ended := c.tags.kinds(middleware.AttemptEnded)
			require.Equal(t, []int64{0, -1}, []int64{ended[0].Bytes, ended[1].Bytes})
		}},
		{"V114 rows and writes are not the transport's to tell", nil, apiSteps(200), func(t *testing.T, c *apiClient) {
			_, _, err := c.write(t.Context(), http.MethodPost, "x")
			require.NoError(t, err)
			require.Empty(t, c.tags.kinds(middleware.WritePushed))
			require.Empty(t, c.tags.kinds(middleware.RowsPulled))
		}},
	})
}

func TestElapsedIsOneRoundTripV111(t *testing.T) {
	// Waits for the breaker, the rate, a permit, the token, its refresh and the
	// back-off: none of them is in an attempt's time.
	synctest.Test(t, func(t *testing.T) {
		s := &tokenSource{takes: 300 * time.Millisecond}
		steps := []layertest.Step{{Status: 503, Delay: 20 * time.Millisecond}, {Status: 401, Delay: 20 * time.Millisecond}, {Status: 200, Delay: 20 * time.Millisecond}}
		c := apiOver(t, func(b *roundtrippers.APIBuilder) {
			withAuth(s)(b)
			b.Circuit.Threshold, b.Circuit.Cooldown = 1, 200*time.Millisecond
			b.RateLimit = &roundtrippers.RateLimit{PerSecond: 1, Burst: 1}
			b.Concurrency.Limit = 1
		}, steps...)
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() { _, _ = c.do(essentially(t.Context())) })
		}
		all.Wait()
		ended := c.tags.kinds(middleware.AttemptEnded)
		require.GreaterOrEqual(t, len(ended), 5)
		for _, e := range ended {
			require.Equal(t, 20*time.Millisecond, e.Elapsed)
		}
	})
}

// lockless is an observer that asks every layer for its state: under a lock of
// theirs it would hang.
type lockless struct {
	builder roundtrippers.APIBuilder
	mu      sync.Mutex
	byCall  map[int][]string
}

type callKey struct{}

func (l *lockless) observe(ctx context.Context, e middleware.Event) {
	_, _ = l.builder.Circuit.State()
	_ = l.builder.Circuit.Waiting()
	_ = l.builder.Concurrency.InFlight()
	_ = l.builder.RateLimit.Waiting()
	_ = fmt.Sprintf("%v", l.builder.Auth)
	_ = middleware.FromContext(ctx).Report()
	l.mu.Lock()
	defer l.mu.Unlock()
	n, _ := ctx.Value(callKey{}).(int)
	if tag := apiTag(e); tag != "" {
		l.byCall[n] = append(l.byCall[n], tag)
	}
}

// Over random schedules of answers, cancellations and priorities: each Started has
// exactly one end, before its call's next Started; a transition of the breaker
// comes right after the end that caused it; retries come after both; and no
// callback is made under a lock (V108, done-when 3).
func TestEventGuaranteesOver10000Schedules(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(108, 108))
	kinds := map[string]int{}
	for n := range 10_000 {
		seed := r.Uint64()
		synctest.Test(t, func(t *testing.T) {
			for _, tags := range randomSchedule(t, seed) {
				story := fmt.Sprintf("schedule %d, seed %d: %v", n, seed, tags)
				started, last := false, ""
				for _, tag := range tags {
					kind, _, _ := strings.Cut(tag, ":")
					kinds[kind]++
					switch kind {
					case "started":
						require.False(t, started, story)
						started = true
					case "ok", "failed", "cancelled":
						require.True(t, started, story)
						started = false
					case "opened", "closed":
						require.False(t, started, story)
						require.Contains(t, []string{"ok", "failed"}, last, story)
					case "retry":
						require.False(t, started, story)
						require.Contains(t, []string{"failed", "opened", "closed", "retry"}, last, story)
					}
					last = kind
				}
				require.False(t, started, story)
			}
		})
	}
	t.Log(kinds)
	for _, kind := range []string{"started", "ok", "failed", "cancelled", "opened", "closed", "retry"} {
		require.Greater(t, kinds[kind], 500, kind)
	}
}

// randomSchedule lets a few calls loose on a random API and returns each one's
// events.
func randomSchedule(t *testing.T, seed uint64) map[int][]string {
	r := rand.New(rand.NewPCG(seed, 1))
	var mu sync.Mutex
	draw := func(n int) int { mu.Lock(); defer mu.Unlock(); return r.IntN(n) }
	script := layertest.NewServer(t, func(*http.Request) layertest.Step {
		step := layertest.Step{Delay: time.Duration(draw(3)) * 100 * time.Millisecond}
		switch draw(8) {
		case 0, 1, 2:
			step.Status = 503
		case 3:
			step.Status = 429
		case 4:
			step.Status = 401
		case 5:
			step.Status = 404
		case 6:
			step.Err = errReset
		}
		return step
	})
	tokens := &tokenSource{takes: 10 * time.Millisecond}
	l := &lockless{byCall: map[int][]string{}}
	c := apiBase(t, script, func(b *roundtrippers.APIBuilder) {
		withAuth(tokens)(b)
		b.Observe = l.observe
		b.RateLimit = &roundtrippers.RateLimit{PerSecond: 5}
		b.Circuit.Threshold, b.Circuit.Cooldown = 1+draw(3), time.Second
		b.Concurrency.Limit = 1 + draw(3)
		b.RetryBudget = &roundtrippers.RetryBudget{}
		l.builder = *b
	})
	var all sync.WaitGroup
	for i := range 2 + draw(4) {
		ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), callKey{}, i), time.Duration(1+draw(80))*100*time.Millisecond)
		switch draw(3) {
		case 0:
			ctx = essentially(ctx)
		case 1:
			ctx = patiently(ctx, rest.Bounded(2))
		}
		pause := time.Duration(draw(10)) * 100 * time.Millisecond
		if draw(4) == 0 {
			timer := time.AfterFunc(time.Duration(1+draw(30))*100*time.Millisecond, cancel)
			defer timer.Stop()
		}
		if draw(16) == 0 {
			tokens.fails.Store(true)
		}
		all.Go(func() {
			defer cancel()
			time.Sleep(pause)
			resp, err := c.rt.RoundTrip(get(ctx, "https://api.test/"))
			if err == nil {
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
		})
	}
	all.Wait()
	time.Sleep(time.Second) // a token may still be on its way
	require.Zero(t, c.builder.Concurrency.InFlight())
	require.Zero(t, c.builder.Circuit.Waiting())
	return l.byCall
}

func TestAnObserverThatPanicsHoldsNothingV113(t *testing.T) {
	for _, kind := range []middleware.EventKind{middleware.AttemptStarted, middleware.AttemptEnded, middleware.BreakerOpened, middleware.RetryScheduled} {
		synctest.Test(t, func(t *testing.T) {
			armed := true
			c := apiOver(t, func(b *roundtrippers.APIBuilder) {
				b.Circuit.Threshold = 1
				b.Observe = func(_ context.Context, e middleware.Event) {
					if armed && e.Kind == kind {
						armed = false
						panic("observer")
					}
				}
			}, apiSteps(503, 200)...)
			require.PanicsWithValue(t, "observer", func() { _, _ = c.do(essentially(t.Context())) }, kind)
			require.Zero(t, c.builder.Concurrency.InFlight())
			time.Sleep(time.Minute)
			_, err := c.do(t.Context())
			require.NoError(t, err, kind)
		})
	}
}

func TestASlowObserverDelaysItsOwnCallOnlyR47(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := apiOver(t, func(b *roundtrippers.APIBuilder) {
			b.Observe = func(ctx context.Context, _ middleware.Event) {
				if ctx.Value(callKey{}) != nil {
					time.Sleep(time.Second)
				}
			}
		})
		var all sync.WaitGroup
		all.Go(func() { _, _ = c.do(context.WithValue(t.Context(), callKey{}, 1)) })
		synctest.Wait()
		began := time.Now()
		want(t, c, t.Context(), 200)
		require.Zero(t, time.Since(began))
		all.Wait()
	})
}

func TestWithoutAnObserverEventsCostNothingV115(t *testing.T) {
	build := func(observe middleware.Observer) http.RoundTripper {
		rt, err := roundtrippers.APIBuilder{Dialect: rest.Dialect{}, Observe: observe, Base: middleware.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 200, Body: http.NoBody, Request: req}, nil
		})}.Build()
		require.NoError(t, err)
		return rt
	}
	req := get(context.Background(), "https://api.test/")
	allocs := func(rt http.RoundTripper) float64 {
		return testing.AllocsPerRun(200, func() { _, _ = rt.RoundTrip(req) })
	}
	silent, told := allocs(build(nil)), allocs(build(func(context.Context, middleware.Event) {}))
	t.Logf("an API stack's operation: %v allocations silent, %v observed, 1 of them the answer", silent, told)
	require.LessOrEqual(t, silent, told)
	require.LessOrEqual(t, silent, 4.0) // operation, notes, answer
}
