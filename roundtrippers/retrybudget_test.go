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
	"github.com/reroute-go/reroute/middleware/rest"
	"github.com/reroute-go/reroute/roundtrippers"
)

// An outage met by 1,000 essential callers at once: what is sent beyond one
// request each stays within the share and the floor (P03), in any window.
func TestAnOutageWithAThousandCallersStaysWithinTheRetryBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const callers, share, floor, seconds = 1000, 0.2, 10, 120
		c := apiOver(t, func(b *roundtrippers.APIBuilder) {
			b.RetryBudget = &roundtrippers.RetryBudget{}
			b.Circuit.Threshold, b.Concurrency.Limit, b.Observe = math.MaxInt32, callers, nil // the budget alone
			b.Retry.Rand = nil
		}, apiSteps(503)...)
		ctx, cancel := context.WithTimeout(essentially(t.Context()), seconds*time.Second)
		defer cancel()
		var all sync.WaitGroup
		for range callers {
			all.Go(func() { _, _ = c.do(ctx) })
		}
		all.Wait()
		extra := c.sends() - callers
		t.Logf("%d callers, %d s of outage: %d re-sends, bound %.0f", callers, seconds, extra, callers*share+floor*seconds+floor)
		require.LessOrEqual(t, float64(extra), callers*share+floor*seconds+floor)
		require.GreaterOrEqual(t, extra, int(callers*share), "the share is there to be used")
		require.Greater(t, extra, int(callers*share+floor*seconds/4), "and so is the floor")
		// Without the budget the same callers send an order of magnitude more.
		times := c.script.Times()
		for i := callers + int(callers*share) + floor; i < len(times); i++ {
			if j := i - 2*floor; j >= callers+int(callers*share)+floor {
				require.GreaterOrEqual(t, times[i]-times[j], 900*time.Millisecond, "20 in a second")
			}
		}
	})
}

func TestRetryBudget(t *testing.T) {
	one := func(b *roundtrippers.APIBuilder) {
		b.RetryBudget = &roundtrippers.RetryBudget{Share: 0.5, PerSecond: 0.001} // a floor of one, for a start
		b.Circuit.Threshold = math.MaxInt32
	}
	playAll(t, []scenario{
		{"who is refused gets the answer in hand, with the reason", one, apiSteps(503), func(t *testing.T, c *apiClient) {
			want(t, c, patiently(t.Context(), rest.Bounded(1)), 503) // the floor's
			r := c.report(patiently(t.Context(), rest.Bounded(4)))   // half of two operations
			require.Equal(t, middleware.BudgetSpent, r.Stop)
			require.Equal(t, 4, c.sends())
			r = c.report(patiently(t.Context(), rest.Bounded(4)))
			require.Equal(t, 1, r.Sends)
		}},
		{"what nobody used in ten seconds is gone", one, apiSteps(503), func(t *testing.T, c *apiClient) {
			for range 20 {
				want(t, c, t.Context(), 503)
			}
			time.Sleep(11 * time.Second)
			r := c.report(patiently(t.Context(), rest.Bounded(4)))
			require.Equal(t, 2, r.Sends) // the floor only
		}},
		{"an essential call asks again later and gets through", one, apiSteps(503, 503, 503, 200), func(t *testing.T, c *apiClient) {
			want(t, c, patiently(t.Context(), rest.Bounded(1)), 503)
			ctx, cancel := context.WithTimeout(essentially(t.Context()), time.Hour)
			defer cancel()
			time.AfterFunc(35*time.Second, func() { // others come, and with them their share
				for range 2 {
					_ = c.report(t.Context())
				}
			})
			r := c.report(ctx)
			require.Equal(t, middleware.Answered, r.Stop)
			// Each wait was told before it was slept.
			var told time.Duration
			for _, e := range c.tags.kinds(middleware.RetryScheduled)[1:] {
				told += e.Wait
			}
			require.Equal(t, told, r.Elapsed)
			require.Equal(t, r.Attempts[len(r.Attempts)-1].Wait+r.Attempts[0].Wait, told)
		}},
		{"X19 and gives up where its deadline comes first", one, apiSteps(503), func(t *testing.T, c *apiClient) {
			want(t, c, patiently(t.Context(), rest.Bounded(1)), 503)
			want(t, c, patiently(t.Context(), rest.Bounded(1)), 503)
			ctx, cancel := context.WithTimeout(essentially(t.Context()), 5*time.Second)
			defer cancel()
			_, err := c.do(ctx)
			require.ErrorIs(t, err, context.DeadlineExceeded)
		}},
		{"replays of other layers come out of it too", func(b *roundtrippers.APIBuilder) {
			one(b)
			withAuth(&tokenSource{})(b)
		}, apiSteps(401), func(t *testing.T, c *apiClient) {
			want(t, c, t.Context(), 401)
			require.Equal(t, 2, c.sends())
			want(t, c, t.Context(), 401)
			want(t, c, t.Context(), 401)
			want(t, c, t.Context(), 401)
			require.Equal(t, 4+3, c.sends()) // the floor's one and half of four
		}},
	})
}

func TestRetryBudgetNamesBadFields(t *testing.T) {
	for field, layer := range map[string]*roundtrippers.RetryBudget{
		"Share is -1": {Share: -1}, "Share is NaN": {Share: math.NaN()}, "PerSecond is -1": {PerSecond: -1}, "PerSecond is +Inf": {PerSecond: math.Inf(1)},
	} {
		_, err := layer.Wrap(http.DefaultTransport)
		require.ErrorContains(t, err, field)
	}
}
