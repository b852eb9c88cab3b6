package roundtrippers_test

import (
	"context"
	"math"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/layertest"
	"github.com/reroute-go/reroute/roundtrippers"
)

func TestAThrottledOperationWaitsAsItIsTold(t *testing.T) { // R044
	virtually(t, func(t *testing.T) {
		script := layertest.NewScript(t, waiting(says(middleware.Throttled), 100*time.Millisecond), waiting(says(middleware.Throttled), time.Second), fine)
		got := tell(t, layered(t, script, roundtrippers.Throttle{Dialect: words{}}), ask(t.Context(), "POST"))
		require.Equal(t, "fine", got.body)
		require.Equal(t, []time.Duration{0, 100 * time.Millisecond, 1100 * time.Millisecond}, script.Times())
	})
}

func TestPersistentThrottlingCostsTheRetriesAndNoMore(t *testing.T) { // R047, R049
	for _, retries := range []int{1, 2, 3, 5, 0} {
		virtually(t, func(t *testing.T) {
			script := layertest.NewScript(t, waiting(says(middleware.Throttled), time.Millisecond))
			got := tell(t, layered(t, script, roundtrippers.Throttle{Dialect: words{}, Retries: retries}), ask(t.Context(), "GET"))
			if retries == 0 {
				retries = 9
			}
			require.Len(t, script.Sends(), retries+1)
			require.Equal(t, "why: throttled", got.body)
			require.Equal(t, middleware.BudgetSpent, got.Stop)
		})
	}
}

func TestWithoutTheLayerAThrottledOperationIsSentOnce(t *testing.T) { // R048: off = not stacked
	script := layertest.NewScript(t, says(middleware.Throttled))
	tell(t, layered(t, script, roundtrippers.Failover{Dialect: words{}}), ask(t.Context(), "GET"))
	require.Len(t, script.Sends(), 1)
}

func TestWaitsThatDoNotFitEndItWithTheAnswerInHand(t *testing.T) { // R046, R053, B18, B22, B28; DESIGN rule 2
	for name, c := range map[string]struct {
		wait   time.Duration
		layer  roundtrippers.Throttle
		within time.Duration // the caller's deadline
		sends  int
		took   time.Duration
		stop   middleware.Stop
	}{
		"a minute is more than the 30 s":        {wait: time.Minute, sends: 1, stop: middleware.BudgetSpent},
		"five seconds six times, then no more":  {wait: 5 * time.Second, sends: 7, took: 30 * time.Second, stop: middleware.BudgetSpent},
		"a limit of the caller's own":           {wait: time.Second, layer: roundtrippers.Throttle{MaxWait: 2500 * time.Millisecond}, sends: 3, took: 2 * time.Second, stop: middleware.BudgetSpent},
		"a deadline that comes first":           {wait: 2 * time.Second, within: 5 * time.Second, sends: 3, took: 4 * time.Second, stop: middleware.Deadline},
		"a deadline before the first wait ends": {wait: 2 * time.Second, within: 2 * time.Second, sends: 1, stop: middleware.Deadline},
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, func(t *testing.T) {
				ctx, cancel := t.Context(), context.CancelFunc(func() {})
				if c.within > 0 {
					ctx, cancel = context.WithTimeout(ctx, c.within)
				}
				defer cancel()
				start := time.Now()
				c.layer.Dialect = words{}
				script := layertest.NewScript(t, waiting(says(middleware.Throttled), c.wait))
				got := tell(t, layered(t, script, c.layer), ask(ctx, "GET"))
				require.Equal(t, "why: throttled", got.body)
				require.Equal(t, c.sends, got.Sends)
				require.Equal(t, c.stop, got.Stop)
				require.Equal(t, c.took, time.Since(start))
			})
		})
	}
}

func TestUnnamedWaitsFollowTheSchedule(t *testing.T) { // B24: never at once
	virtually(t, func(t *testing.T) {
		script := layertest.NewScript(t, says(middleware.Throttled))
		tell(t, layered(t, script, roundtrippers.Throttle{Dialect: words{}}), ask(t.Context(), "GET"))
		times := script.Times()
		require.Len(t, times, 10)
		for i := range 9 {
			wait, exact := times[i+1]-times[i], float64(5*time.Millisecond<<i)
			require.InDelta(t, exact, float64(wait), 0.25*exact+1, "wait %d", i)
		}

		script = layertest.NewScript(t, says(middleware.Throttled), says(middleware.Throttled), fine)
		tell(t, layered(t, script, roundtrippers.Throttle{Dialect: words{}, Backoff: middleware.Backoff{Base: time.Second}}), ask(t.Context(), "GET"))
		require.Equal(t, []time.Duration{0, time.Second, 3 * time.Second}, script.Times())
	})
}

func TestAWishBeyondAllMeasureIsRefusedNotOverflowed(t *testing.T) { // B23
	for _, wish := range []time.Duration{math.MaxInt64, -5 * time.Second} {
		virtually(t, func(t *testing.T) {
			script := layertest.NewScript(t, says(middleware.Throttled), fine)
			got := tell(t, layered(t, script, roundtrippers.Throttle{Dialect: wishing{wish}}), ask(t.Context(), "GET"))
			if wish > 0 {
				require.Equal(t, middleware.BudgetSpent, got.Stop)
				return
			}
			require.Equal(t, "fine", got.body)
			require.Positive(t, script.Times()[1], "a negative wish is none: the layer's own schedule")
		})
	}
}

type wishing struct{ wait time.Duration }

func (w wishing) Intent(*http.Request) middleware.Intent { return middleware.Intent{} }

func (w wishing) Judge(in *middleware.Intent, resp *http.Response, err error) middleware.Outcome {
	out := words{}.Judge(in, resp, err)
	out.Wait = w.wait
	return out
}

func TestTheThrottleBudgetIsOfTheOperationNotOfTheRegion(t *testing.T) { // DESIGN rule 1, B70
	virtually(t, func(t *testing.T) {
		script := layertest.NewScript(t, says(middleware.Throttled), says(middleware.Unavailable), says(middleware.Throttled), says(middleware.Unavailable))
		got := tell(t, layered(t, script, roundtrippers.Failover{Dialect: words{}}, roundtrippers.Throttle{Dialect: words{}, Retries: 1}), ask(t.Context(), "GET"))
		require.Equal(t, "why: throttled", got.body)
		require.Equal(t, 3, got.Sends)
	})
}
