package roundtrippers_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/layertest"
	"github.com/reroute-go/reroute/regions"
	"github.com/reroute-go/reroute/roundtrippers"
)

// routed stacks Failover, Session and Route over regions a, b and c.
func routed(t *testing.T, script *layertest.Script, multiWrite bool, f roundtrippers.Failover) *routing {
	t.Helper()
	r := registry(t, multiWrite)
	f.Dialect, f.Regions = words{}, r
	return &routing{Registry: r, stack: []middleware.Layer{f, roundtrippers.Session{Dialect: words{}, Regions: r}, roundtrippers.Route{Dialect: words{}, Regions: r}}, script: script, t: t}
}

type routing struct {
	*regions.Registry
	stack  []middleware.Layer
	script *layertest.Script
	t      *testing.T
}

func (r *routing) tell(ctx context.Context, method string, header ...string) told {
	r.t.Helper()
	return tell(r.t, layered(r.t, r.script, r.stack...), ask(ctx, method, header...))
}

func TestAFailingRegionIsLeftForTheNext(t *testing.T) { // R002, R004, R009, R029, R031, R032
	for _, step := range []layertest.Step{
		says(middleware.Unavailable), says(middleware.Timeout), says(middleware.Gone), says(middleware.Split), says(middleware.CircuitOpen), {Err: io.EOF},
	} {
		virtually(t, func(t *testing.T) {
			script := layertest.NewScript(t, step, step, fine)
			got := routed(t, script, false, roundtrippers.Failover{}).tell(t.Context(), "GET")
			require.Equal(t, "fine", got.body)
			require.Equal(t, []string{"a.test", "b.test", "c.test"}, script.Hosts())
			require.Equal(t, []time.Duration{0, 0, 0}, script.Times())
			require.Equal(t, regions.Name("c"), got.Attempts[2].Region)
		})
	}
}

func TestTheFailoverBudgetEndsWithTheLastAnswer(t *testing.T) { // R006
	virtually(t, func(t *testing.T) {
		script := layertest.NewScript(t, says(middleware.Unavailable))
		got := routed(t, script, false, roundtrippers.Failover{}).tell(t.Context(), "GET")
		require.Equal(t, "why: unavailable", got.body)
		require.Equal(t, []string{"a.test", "b.test", "c.test", "a.test"}, script.Hosts())
		require.Equal(t, middleware.BudgetSpent, got.Stop)
	})
}

func TestFinalAnswersAreNoneOfFailoversBusiness(t *testing.T) { // R001, R007
	for _, cause := range []middleware.Cause{middleware.Success, middleware.Final, middleware.Throttled, middleware.Contended, middleware.Unauthorized} {
		virtually(t, func(t *testing.T) {
			script := layertest.NewScript(t, says(cause))
			r := routed(t, script, true, roundtrippers.Failover{})
			got := r.tell(t.Context(), "GET")
			require.Equal(t, 1, got.Sends)
			require.Empty(t, r.Marks())
		})
	}
}

func TestAChangeOfRolesHasABudgetOfItsOwn(t *testing.T) { // R011, R012, R013, R016, R017, R026, R027; DESIGN rule 1
	for name, c := range map[string]struct {
		cause      middleware.Cause
		multiWrite bool
		sends      int
		took       time.Duration
	}{
		"not the primary, several write regions": {middleware.NotPrimary, true, 121, 2 * time.Minute},
		"not the primary, one write region":      {middleware.NotPrimary, false, 4, 0},
		"removed, several write regions":         {middleware.Removed, true, 121, 2 * time.Minute},
		"removed, one write region":              {middleware.Removed, false, 121, 2 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, func(t *testing.T) {
				start := time.Now()
				script := layertest.NewScript(t, says(c.cause))
				got := routed(t, script, c.multiWrite, roundtrippers.Failover{}).tell(t.Context(), "POST")
				require.Equal(t, c.sends, got.Sends)
				require.Equal(t, c.took, time.Since(start))
				require.Equal(t, "why: "+c.cause.String(), got.body)
			})
		})
	}
	virtually(t, func(t *testing.T) { // spending one leaves the other whole
		u, p := says(middleware.Unavailable), says(middleware.Removed)
		script := layertest.NewScript(t, u, p, u, p, u, p, u)
		got := routed(t, script, true, roundtrippers.Failover{}).tell(t.Context(), "GET")
		require.Equal(t, 7, got.Sends)
		require.Equal(t, []middleware.Charge{{Budget: "failover", Retries: 3}, {Budget: "topology", Retries: 3, Waited: 3 * time.Second}}, got.Charges)
	})
}

func TestConvergenceFollowsTheNewerDriver(t *testing.T) { // R014: 5 s in all, the first at once
	virtually(t, func(t *testing.T) {
		for _, multiWrite := range []bool{false, true} {
			start := time.Now()
			script := layertest.NewScript(t, says(middleware.NotPrimary))
			got := routed(t, script, multiWrite, roundtrippers.Failover{Converge: true}).tell(t.Context(), "POST")
			require.Equal(t, 5*time.Second, time.Since(start), "the last wait is cut to what is left")
			require.Equal(t, middleware.BudgetSpent, got.Stop)
			times := script.Times()
			require.Zero(t, times[1])
			for i, base := range []float64{1, 2} {
				wait := (times[i+2] - times[i+1]).Seconds()
				require.InDelta(t, base, wait, 0.25*base)
			}
			require.InDelta(t, 5, float64(got.Sends), 1)
		}
	})
}

func TestARefreshThatFailsIsNoReasonToStop(t *testing.T) { // R077, R078
	virtually(t, func(t *testing.T) {
		var told []middleware.Event
		observer := middleware.Observer(func(_ context.Context, e middleware.Event) {
			if e.Kind == middleware.TopologyRefreshed {
				told = append(told, e)
			}
		})
		dead := errors.New("no account")
		works := true
		source := registry(t, true).Topology()
		r, err := regions.New(regions.Config{Source: regions.SourceFunc(func(context.Context, *regions.Topology) (*regions.Topology, error) {
			if !works {
				return nil, dead
			}
			return &regions.Topology{Reads: source.Reads, Writes: source.Writes, MultiWrite: true}, nil
		})})
		require.NoError(t, err)
		defer r.Close()
		_, err = r.Refresh(t.Context(), nil)
		require.NoError(t, err)
		works = false
		time.Sleep(10 * time.Second)
		script := layertest.NewScript(t, says(middleware.Removed), fine)
		got := tell(t, layered(t, script, observer, roundtrippers.Failover{Dialect: words{}, Regions: r}, roundtrippers.Route{Dialect: words{}, Regions: r}), ask(t.Context(), "GET"))
		require.Equal(t, "fine", got.body)
		require.Equal(t, []string{"a.test", "b.test"}, script.Hosts())
		require.Len(t, told, 1)
		require.ErrorIs(t, told[0].Err, dead)
	})
}

func TestFailoverAloneIsAPlainRetry(t *testing.T) {
	virtually(t, func(t *testing.T) {
		script := layertest.NewScript(t, says(middleware.Unavailable), says(middleware.NotPrimary), says(middleware.Removed), fine)
		got := tell(t, layered(t, script, roundtrippers.Failover{Dialect: words{}, Wait: time.Second, TopologyWait: 3 * time.Second}), ask(t.Context(), "GET"))
		require.Equal(t, "fine", got.body)
		require.Equal(t, []time.Duration{0, time.Second, 2 * time.Second, 5 * time.Second}, script.Times())
	})
}
