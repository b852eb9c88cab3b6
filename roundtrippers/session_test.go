package roundtrippers_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/layertest"
	"github.com/reroute-go/reroute/roundtrippers"
)

func TestALaggingReplicaIsLeftForTheHub(t *testing.T) { // R018, R019, R071
	virtually(t, func(t *testing.T) {
		script := layertest.NewScript(t, says(middleware.Unavailable), says(middleware.SessionLag))
		got := routed(t, script, false, roundtrippers.Failover{}).tell(t.Context(), "GET", "Session", "token")
		require.Equal(t, "why: session lag", got.body)
		require.Equal(t, []string{"a.test", "b.test", "a.test", "a.test"}, script.Hosts())
		require.Equal(t, middleware.BudgetSpent, got.Stop)
		for _, send := range script.Sends() {
			require.Equal(t, "token", send.Header.Get("Session"))
		}
	})
}

func TestTheWishForTheHubSurvivesAFailover(t *testing.T) { // R023, R024
	virtually(t, func(t *testing.T) {
		script := layertest.NewScript(t, says(middleware.Unavailable), says(middleware.SessionLag), says(middleware.Unavailable), fine, says(middleware.Unavailable), fine)
		r := routed(t, script, false, roundtrippers.Failover{})
		got := r.tell(t.Context(), "GET")
		require.Equal(t, "fine", got.body)
		require.Equal(t, []string{"a.test", "b.test", "a.test", "a.test"}, script.Hosts())
		r.tell(t.Context(), "GET")
		require.Equal(t, []string{"a.test", "b.test"}, script.Hosts()[4:], "the next operation is not latched")
	})
}

func TestEachOfSeveralWriteRegionsIsAskedOnce(t *testing.T) { // R021, DESIGN rule 1
	for _, method := range []string{"GET", "POST"} {
		virtually(t, func(t *testing.T) {
			script := layertest.NewScript(t, says(middleware.SessionLag))
			got := routed(t, script, true, roundtrippers.Failover{}).tell(t.Context(), method)
			require.Equal(t, []string{"a.test", "b.test", "c.test"}, script.Hosts())
			require.Equal(t, middleware.BudgetSpent, got.Stop)

			script = layertest.NewScript(t, says(middleware.SessionLag))
			got = routed(t, script, true, roundtrippers.Failover{}).tell(middleware.WithExcludedRegions(t.Context(), "b"), method)
			require.Equal(t, []string{"a.test", "c.test"}, script.Hosts())
			require.Equal(t, "why: session lag", got.body)
		})
	}
}

func TestSessionFieldsAreHeeded(t *testing.T) {
	virtually(t, func(t *testing.T) {
		for multiWrite, layer := range map[bool]roundtrippers.Session{false: {Retries: 5}, true: {MaxRegions: 1, Retries: 1}} {
			r := registry(t, multiWrite)
			layer.Dialect, layer.Regions = words{}, r
			script := layertest.NewScript(t, says(middleware.SessionLag))
			got := tell(t, layered(t, script, layer, roundtrippers.Route{Dialect: words{}, Regions: r}), ask(t.Context(), "GET"))
			if multiWrite {
				require.Equal(t, 2, got.Sends)
			} else {
				require.Equal(t, 6, got.Sends)
			}
		}
	})
}
