package roundtrippers_test

import (
	"context"
	"math"
	"net/http"
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

func perSecond(rate float64) func(*roundtrippers.APIBuilder) {
	return func(b *roundtrippers.APIBuilder) {
		b.RateLimit = &roundtrippers.RateLimit{PerSecond: rate}
		b.Concurrency.Limit, b.Circuit.Threshold = 1000, 1000
	}
}

// roundedTimes are the sends' times in milliseconds: the bucket counts in floats.
func roundedTimes(c *apiClient) (ms []int64) {
	for _, at := range c.script.Times() {
		ms = append(ms, at.Round(time.Millisecond).Milliseconds())
	}
	return ms
}

// together sends n calls at once and waits for all.
func together(t *testing.T, c *apiClient, n int) {
	var all sync.WaitGroup
	for range n {
		all.Go(func() { want(t, c, t.Context(), 200) })
	}
	all.Wait()
}

func TestRateLimit(t *testing.T) {
	playAll(t, []scenario{
		{"V091 2.5/s: three at once, then one every 400 ms", perSecond(2.5), nil, func(t *testing.T, c *apiClient) {
			together(t, c, 6)
			require.Equal(t, []int64{0, 0, 0, 400, 800, 1200}, roundedTimes(c))
		}},
		{"V092 0.5/s", perSecond(0.5), nil, func(t *testing.T, c *apiClient) {
			together(t, c, 3)
			require.Equal(t, []int64{0, 2000, 4000}, roundedTimes(c))
		}},
		{"V092 10/s", perSecond(10), nil, func(t *testing.T, c *apiClient) {
			together(t, c, 12)
			require.Equal(t, []int64{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 100, 200}, roundedTimes(c))
		}},
		{"V093 every send takes one", perSecond(1), apiSteps(503, 503, 200), func(t *testing.T, c *apiClient) {
			want(t, c, essentially(t.Context()), 200)
			require.Equal(t, []int64{0, 1000, 2000}, roundedTimes(c))
		}},
		{"V094 a refusal by the breaker takes none", func(b *roundtrippers.APIBuilder) {
			perSecond(1)(b)
			b.Circuit.Threshold = 1
		}, apiSteps(503, 200), func(t *testing.T, c *apiClient) {
			want(t, c, t.Context(), 503)
			time.Sleep(5 * time.Second)
			want(t, c, t.Context(), 200) // closes
			time.Sleep(time.Second)      // one token
			for range 3 {
				want(t, c, t.Context(), 200)
			}
			require.Equal(t, []int64{0, 5000, 6000, 7000, 8000}, roundedTimes(c))
		}},
		{"V095 V147 a cancelled wait takes nothing, nobody behind it is delayed", perSecond(1), nil, func(t *testing.T, c *apiClient) {
			want(t, c, t.Context(), 200)
			ctx, cancel := context.WithCancel(t.Context())
			var all sync.WaitGroup
			all.Go(func() { _, err := c.do(ctx); require.ErrorIs(t, err, context.Canceled) })
			synctest.Wait()
			all.Go(func() { want(t, c, t.Context(), 200) })
			synctest.Wait()
			require.Equal(t, 2, c.builder.RateLimit.Waiting())
			time.Sleep(500 * time.Millisecond)
			cancel()
			all.Wait()
			require.Equal(t, []int64{0, 1000}, roundedTimes(c))
		}},
		{"V097 B44 a wait beyond the deadline is refused at once", perSecond(1), nil, func(t *testing.T, c *apiClient) {
			want(t, c, t.Context(), 200)
			var all sync.WaitGroup
			all.Go(func() { want(t, c, t.Context(), 200) }) // queued before it, at 1 s
			synctest.Wait()
			ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
			defer cancel()
			began := time.Now()
			_, err := c.do(ctx)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			var wait *middleware.WaitError
			require.ErrorAs(t, err, &wait)
			require.Equal(t, 2*time.Second, wait.Wait.Round(time.Millisecond))
			require.Zero(t, time.Since(began))
			all.Wait()
			want(t, c, t.Context(), 200)
			require.Equal(t, []int64{0, 1000, 2000}, roundedTimes(c))
			require.NotContains(t, c.tags.String(), "failed") // neutral for the breaker too
		}},
		{"V099 the breaker opens during the wait: nothing is sent and no token taken", func(b *roundtrippers.APIBuilder) {
			perSecond(1)(b)
			b.Circuit.Threshold, b.Circuit.Cooldown = 1, 10*time.Second
		}, []layertest.Step{{Status: 503, Delay: 500 * time.Millisecond}, {Status: 200}}, func(t *testing.T, c *apiClient) {
			var all sync.WaitGroup
			all.Go(func() { want(t, c, t.Context(), 503) })
			synctest.Wait()
			all.Go(func() {
				_, err := c.do(t.Context()) // waits for the token of 1 s
				require.ErrorIs(t, err, middleware.ErrCircuitOpen)
			})
			all.Go(func() { want(t, c, essentially(t.Context()), 200) }) // waits on for the breaker
			all.Wait()
			require.Equal(t, []int64{0, 10500}, roundedTimes(c))
		}},
		{"B45 a cancelled context takes no token", perSecond(1), nil, func(t *testing.T, c *apiClient) {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			_, err := c.do(ctx)
			require.ErrorIs(t, err, context.Canceled)
			want(t, c, t.Context(), 200)
			require.Equal(t, []int64{0}, roundedTimes(c))
		}},
		{"B50 essential calls come first", perSecond(1), nil, func(t *testing.T, c *apiClient) {
			want(t, c, t.Context(), 200)
			var all sync.WaitGroup
			for range 20 {
				all.Go(func() { want(t, c, t.Context(), 200) })
			}
			synctest.Wait()
			began := time.Now()
			want(t, c, essentially(t.Context()), 200)
			require.Equal(t, time.Second, time.Since(began).Round(time.Millisecond))
			all.Wait()
		}},
		{"V077 R39 a replay after 401 takes a token too", func(b *roundtrippers.APIBuilder) {
			perSecond(1)(b)
			b.Auth = &roundtrippers.Auth{Origins: []string{"https://api.test"}, Source: (&tokenSource{}).next}
		}, apiSteps(401, 200), func(t *testing.T, c *apiClient) {
			want(t, c, t.Context(), 200)
			require.Equal(t, []int64{0, 1000}, roundedTimes(c))
			require.NotContains(t, c.tags.String(), "retry")
		}},
	})
}

func TestWhoArrivesWithTheTokenDoesNotOvertakeWhoWaits(t *testing.T) {
	for range 60 {
		synctest.Test(t, func(t *testing.T) {
			c := apiOver(t, perSecond(1))
			want(t, c, t.Context(), 200)
			var all sync.WaitGroup
			call := func(path string) {
				resp, err := c.rt.RoundTrip(get(t.Context(), "https://api.test/"+path))
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
			}
			all.Go(func() { time.Sleep(time.Second); call("arrives") }) // at the very moment
			all.Go(func() { call("waits") })
			all.Wait()
			require.Equal(t, []string{"/rows", "/waits", "/arrives"}, pathsOf(c))
		})
	}
}

func TestTheRateIsExactWhateverIsCancelledR27(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// The base counts what has taken a token, cancelled the moment after or not.
		var mu sync.Mutex
		var times []time.Duration
		began := time.Now()
		base := middleware.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
			mu.Lock()
			defer mu.Unlock()
			times = append(times, time.Since(began))
			return answer(req, 1, 200)
		})
		rt, err := middleware.Stack(base, &roundtrippers.RateLimit{PerSecond: 10})
		require.NoError(t, err)
		var all sync.WaitGroup
		for i := range 1000 {
			ctx := t.Context()
			if i%2 == 0 { // many of them in the very moment of their turn
				var cancel context.CancelFunc
				ctx, cancel = context.WithCancel(ctx)
				timer := time.AfterFunc(time.Duration(2+i)*50*time.Millisecond, cancel)
				defer timer.Stop()
				defer cancel()
			}
			if i%3 == 0 {
				ctx = essentially(ctx)
			}
			all.Go(func() {
				if resp, err := rt.RoundTrip(get(ctx, "https://api.test/")); err == nil {
					_ = resp.Body.Close()
				}
			})
		}
		all.Wait()
		last := times[len(times)-1].Seconds()
		require.InDelta(t, 10+10*last, len(times), 1)
		require.GreaterOrEqual(t, len(times), 500)
	})
}

func TestRateLimitNamesBadFieldsV098(t *testing.T) {
	for _, rate := range []float64{0, -1, math.NaN(), math.Inf(1), math.Inf(-1)} {
		_, err := (&roundtrippers.RateLimit{PerSecond: rate}).Wrap(http.DefaultTransport)
		require.ErrorContains(t, err, "PerSecond is")
	}
	_, err := (&roundtrippers.RateLimit{PerSecond: 1, Burst: -1}).Wrap(http.DefaultTransport)
	require.ErrorContains(t, err, "Burst is -1")
	_, err = roundtrippers.APIBuilder{Dialect: rest.Dialect{}, RateLimit: &roundtrippers.RateLimit{}}.Build()
	require.ErrorContains(t, err, "PerSecond is 0")
}
