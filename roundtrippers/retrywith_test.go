package roundtrippers_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/layertest"
	"github.com/reroute-go/reroute/roundtrippers"
)

func TestContentionIsWaitedOutInPlace(t *testing.T) { // R034, R036; DESIGN rule 3
	virtually(t, func(t *testing.T) {
		script := layertest.NewScript(t, says(middleware.Contended), says(middleware.Contended), says(middleware.Contended), fine)
		r := registry(t, true)
		rt := layered(t, script, roundtrippers.Failover{Dialect: words{}, Regions: r}, roundtrippers.Route{Dialect: words{}, Regions: r}, roundtrippers.RetryWith{Dialect: words{}})
		got := tell(t, rt, ask(t.Context(), "POST"))
		require.Equal(t, "fine", got.body)
		require.Equal(t, []string{"a.test", "a.test", "a.test", "a.test"}, script.Hosts())
		require.Equal(t, []middleware.Charge{{Budget: "retry with", Retries: 3, Waited: script.Times()[3]}}, got.Charges, "no other budget is touched")
		require.Empty(t, r.Marks())
		times := script.Times()
		for i, base := range []time.Duration{10, 20, 40} {
			wait := times[i+1] - times[i]
			require.GreaterOrEqual(t, wait, base*time.Millisecond)
			require.Less(t, wait, (base+5)*time.Millisecond)
		}
	})
}

func TestContentionEndsAfterThirtySeconds(t *testing.T) {
	virtually(t, func(t *testing.T) {
		start := time.Now()
		script := layertest.NewScript(t, says(middleware.Contended))
		got := tell(t, layered(t, script, roundtrippers.RetryWith{Dialect: words{}}), ask(t.Context(), "POST"))
		require.Equal(t, "why: contended", got.body)
		require.Equal(t, middleware.BudgetSpent, got.Stop)
		require.InDelta(t, 29.5, time.Since(start).Seconds(), 0.6)
		require.LessOrEqual(t, time.Since(start), 30*time.Second)
		times := script.Times()
		require.LessOrEqual(t, times[len(times)-1]-times[len(times)-2], time.Second)
	})
}
