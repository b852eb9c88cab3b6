package partitions

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/regions"
)

func TestARegionThatIsNoCandidateChangesNothingForThoseThatAre(t *testing.T) { // R109
	inHealth(t, func(t *testing.T, r *Registry, p Partition) {
		trip(r, p, true)
		before := [2]Admission{r.Admit(p, false, all...), r.Admit(p, true, all...)}
		require.Empty(t, before[0].Avoid)
		require.Equal(t, []regions.Name{east}, before[1].Avoid)
		for _, unknown := range []regions.Name{"", "Mars"} {
			for range 50 {
				for i, write := range []bool{false, true} {
					r.Report(p, unknown, write, r.Admit(p, write, all...), regions.Failed)
					require.Equal(t, before[i], r.Admit(p, write, all...), "%q", unknown)
				}
			}
		}
	})
	inHealth(t, func(t *testing.T, r *Registry, p Partition) {
		for range 50 {
			require.Equal(t, Unchanged, r.Report(p, "", false, r.Admit(p, false, all...), regions.Failed))
		}
		require.Zero(t, r.Tracked(), "no region, no breaker")
	})
}
