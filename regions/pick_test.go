package regions_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/reroute-go/reroute/regions"
)

func TestWithoutATopologyThereIsNothingToPick(t *testing.T) {
	r, err := regions.New(regions.Config{Source: &account{}})
	require.NoError(t, err)
	_, err = r.Pick(regions.Want{})
	require.ErrorIs(t, err, regions.ErrNoTopology)
	require.Zero(t, r.Candidates(regions.ReadRegions, nil))
	require.Empty(t, r.Endpoints(regions.ReadRegions))
	require.Nil(t, r.Topology())
	require.Empty(t, r.Marks())
	r.Report(regions.Choice{}, regions.Failed, regions.Unreachable) // of no choice: nothing
	require.Empty(t, r.Marks())
}

func TestAMarkedRegionIsDemoted(t *testing.T) { // R064
	r, _ := open(t, multiWrite(east, west), east)
	fail(t, r, east, regions.Unreachable)
	for _, w := range []regions.Want{{}, {From: regions.WriteRegions, Write: true}} {
		require.Equal(t, west, pick(t, r, w).Region)
	}
	marks := r.Marks()
	require.Len(t, marks, 1)
	require.Equal(t, east, marks[0].Endpoint.Region)
	require.Equal(t, "unreachable", marks[0].Reason.String())
}

func TestWithAllMarkedTheFirstAllowedIsTried(t *testing.T) { // R066, B63: demoted, not removed
	r, _ := open(t, multiWrite(east, west))
	fail(t, r, west, regions.Unreachable)
	fail(t, r, east, regions.Unreachable)
	require.Equal(t, east, pick(t, r, regions.Want{}).Region)
	require.Equal(t, west, pick(t, r, regions.Want{Excluded: []regions.Name{"eastus"}}).Region)
}

func TestAnExcludedRegionStaysOutWhenTheOthersAreMarked(t *testing.T) { // R067, R069
	for _, topology := range []*regions.Topology{multiWrite(east, west), singleWrite(east, west)} {
		r, _ := open(t, topology)
		fail(t, r, west, regions.Unreachable)
		avoided := []regions.Avoided{{Region: west, Times: 100}}
		c := pick(t, r, regions.Want{Excluded: []regions.Name{east}, Avoided: avoided, Prefer: east})
		require.Equal(t, west, c.Region)
		require.False(t, c.Excluded)
	}
}

func TestWithAllExcludedTheHubIsTheLastResort(t *testing.T) { // R068
	all := []regions.Name{west, east}
	for name, tc := range map[string]struct {
		topology *regions.Topology
		expect   regions.Name
	}{
		"single write: the hub":                               {singleWrite(east, west), east},
		"multiple write: the first preferred of WriteRegions": {multiWrite(east, west), west},
		"reads only: the first preferred":                     {&regions.Topology{Reads: endpointsOf(east, west)}, west},
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := open(t, tc.topology, west)
			for _, from := range []regions.List{regions.ReadRegions, regions.WriteRegions, regions.Hub} {
				c := pick(t, r, regions.Want{From: from, Excluded: all})
				require.Equal(t, tc.expect, c.Region)
				require.True(t, c.Excluded)

				_, err := r.Pick(regions.Want{From: from, Excluded: all, Strict: true})
				require.ErrorIs(t, err, regions.ErrNoRegion)
				var none *regions.NoRegionError
				require.ErrorAs(t, err, &none)
				require.Equal(t, all, none.Excluded)
				require.ElementsMatch(t, all, none.Known)
				require.ErrorContains(t, err, `["West US" "East US"]`)
			}
		})
	}
}

func TestAnExcludedHubYieldsToAnyOtherRegionOfTheAccount(t *testing.T) {
	// The exclusion comes before the list: the service's own 403/3 is then the answer to a write.
	r, _ := open(t, singleWrite(east, west))
	for _, from := range []regions.List{regions.WriteRegions, regions.Hub} {
		for _, strict := range []bool{false, true} {
			c := pick(t, r, regions.Want{From: from, Write: true, Excluded: []regions.Name{east}, Strict: strict})
			require.Equal(t, west, c.Region)
			require.Equal(t, regions.ReadRegions, c.From)
			require.False(t, c.Excluded)
		}
	}
}

func TestASessionRetryOfASingleWriteAccountGoesToTheHub(t *testing.T) { // R071
	r, _ := open(t, singleWrite(east, west), west)
	require.Equal(t, west, pick(t, r, regions.Want{}).Region)
	for _, from := range []regions.List{regions.WriteRegions, regions.Hub} {
		c := pick(t, r, regions.Want{From: from, Avoided: []regions.Avoided{{Region: west, Times: 1}}})
		require.Equal(t, east, c.Region)
	}
}

func TestFailuresOfOneOperationRotateThroughTheRegions(t *testing.T) { // R072, R073
	r, _ := open(t, multiWrite(east, west, north))
	var avoided []regions.Avoided
	var walk []regions.Name
	for range 7 {
		c := pick(t, r, regions.Want{From: regions.WriteRegions, Write: true, Avoided: avoided})
		walk = append(walk, c.Region)
		if i := slices.IndexFunc(avoided, func(a regions.Avoided) bool { return a.Region == c.Region }); i >= 0 {
			avoided[i].Times++
		} else {
			avoided = append(avoided, regions.Avoided{Region: c.Region, Times: 1})
		}
	}
	require.Equal(t, []regions.Name{east, west, north, east, west, north, east}, walk)
}

func TestRanking(t *testing.T) {
	avoid := func(n regions.Name, times int) regions.Avoided { return regions.Avoided{Region: n, Times: times} }
	for _, tc := range []struct {
		name   string
		marked []regions.Name
		want   regions.Want
		expect regions.Name
	}{
		{"a mark costs as much as one bad experience, and the unmarked wins", []regions.Name{east}, regions.Want{Avoided: []regions.Avoided{avoid(west, 1), avoid(north, 2)}}, west},
		{"two bad experiences cost more than a mark", []regions.Name{east}, regions.Want{Avoided: []regions.Avoided{avoid(west, 2), avoid(north, 2)}}, east},
		{"times add up over entries", nil, regions.Want{Avoided: []regions.Avoided{avoid(east, 1), avoid("EASTUS", 1), avoid(west, 1), avoid(north, 2)}}, west},
		{"a preferred region beats its equals", nil, regions.Want{Prefer: "north europe"}, north},
		{"but not when it is marked", []regions.Name{north}, regions.Want{Prefer: north}, east},
		{"nor when it is avoided", nil, regions.Want{Prefer: north, Avoided: []regions.Avoided{avoid(north, 1)}}, east},
		{"nor when it is excluded", nil, regions.Want{Prefer: north, Excluded: []regions.Name{north}}, east},
		{"preferring a region that is unknown changes nothing", nil, regions.Want{Prefer: "Mars"}, east},
		{"a negative count is none", nil, regions.Want{Avoided: []regions.Avoided{avoid(north, -5)}}, east},
		{"a huge count does not overflow", nil, regions.Want{Avoided: []regions.Avoided{avoid(east, 1<<62), avoid(west, 1<<62)}}, north},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, _ := open(t, multiWrite(east, west, north))
			for _, n := range tc.marked {
				fail(t, r, n, regions.Unreachable)
			}
			require.Equal(t, tc.expect, pick(t, r, tc.want).Region)
		})
	}
}

func TestCandidatesCountsWhatExclusionsLeave(t *testing.T) {
	r, _ := open(t, multiWrite(east, west, north))
	fail(t, r, west, regions.Unreachable)
	require.Equal(t, 3, r.Candidates(regions.WriteRegions, nil))
	require.Equal(t, 2, r.Candidates(regions.ReadRegions, []regions.Name{"westus", "Mars"}))
	require.Equal(t, 0, r.Candidates(regions.Hub, []regions.Name{east}))
}

func TestExclusionsHoldForEveryTopologyMarksAndWishes(t *testing.T) {
	names := []regions.Name{"A", "B", "C", "D", "E"}
	some := rapid.SliceOfDistinct(rapid.SampledFrom(names), rapid.ID[regions.Name])
	rapid.Check(t, func(rt *rapid.T) {
		topology := &regions.Topology{
			Reads: endpointsOf(some.Draw(rt, "reads")...), Writes: endpointsOf(some.Draw(rt, "writes")...), MultiWrite: rapid.Bool().Draw(rt, "multi"),
		}
		if len(topology.Reads)+len(topology.Writes) == 0 {
			topology.Writes = endpointsOf("A")
		}
		r, _ := open(t, topology, some.Draw(rt, "preferred")...)
		all := append(r.Endpoints(regions.ReadRegions), r.Endpoints(regions.WriteRegions)...)
		for range rapid.IntRange(0, 6).Draw(rt, "reports") {
			c := anywhere(rt, r, all)
			r.Report(c, rapid.SampledFrom([]regions.Verdict{regions.Failed, regions.Failed, regions.Healthy, regions.Neutral}).Draw(rt, "verdict"),
				rapid.SampledFrom([]regions.Reason{regions.Unreachable, regions.WriteForbidden, regions.RegionGone}).Draw(rt, "reason"))
		}
		w := regions.Want{
			From: rapid.SampledFrom([]regions.List{regions.ReadRegions, regions.WriteRegions, regions.Hub}).Draw(rt, "from"), Write: rapid.Bool().Draw(rt, "write"),
			Excluded: some.Draw(rt, "excluded"), Strict: rapid.Bool().Draw(rt, "strict"),
			Prefer: rapid.SampledFrom(append(names, "")).Draw(rt, "prefer"),
		}
		for _, n := range some.Draw(rt, "avoided") {
			w.Avoided = append(w.Avoided, regions.Avoided{Region: n, Times: rapid.IntRange(0, 3).Draw(rt, "times")})
		}
		allowed := slices.ContainsFunc(all, func(e regions.Endpoint) bool { return !slices.Contains(w.Excluded, e.Region) })
		c, err := r.Pick(w)
		switch {
		case allowed:
			require.NoError(rt, err)
			require.NotContains(rt, w.Excluded, c.Region)
			require.False(rt, c.Excluded)
			if r.Candidates(w.From, w.Excluded) > 0 {
				require.Equal(rt, w.From, c.From)
				require.Contains(rt, r.Endpoints(w.From), c.Endpoint)
			}
		case w.Strict:
			require.ErrorIs(rt, err, regions.ErrNoRegion)
		default:
			require.NoError(rt, err)
			require.True(rt, c.Excluded)
			if hub := r.Endpoints(regions.WriteRegions); len(hub) > 0 {
				require.Equal(rt, hub[0], c.Endpoint)
			}
		}
		if err == nil {
			require.Same(rt, r.Topology(), c.Topology)
		}
	})
}

// anywhere picks any region of the account.
func anywhere(rt *rapid.T, r *regions.Registry, all []regions.Endpoint) regions.Choice {
	n := rapid.SampledFrom(all).Draw(rt, "at").Region
	w := regions.Want{Write: rapid.Bool().Draw(rt, "write")}
	for _, e := range all {
		if e.Region != n {
			w.Excluded = append(w.Excluded, e.Region)
		}
	}
	c, err := r.Pick(w)
	require.NoError(rt, err)
	require.Equal(rt, n, c.Region)
	return c
}

func TestTheHealthyPathAllocatesNothing(t *testing.T) {
	r, _ := open(t, multiWrite(east, west, north), west)
	healthy := func() {
		c, _ := r.Pick(regions.Want{From: regions.WriteRegions, Write: true})
		r.Report(c, regions.Healthy, 0)
	}
	require.Zero(t, testing.AllocsPerRun(1000, healthy))
	require.Zero(t, testing.AllocsPerRun(1000, func() { r.Knows("acct-eastus.documents.example:443") }))

	// Wishes and marks cost time, but no memory either.
	fail(t, r, west, regions.Unreachable)
	w := regions.Want{Excluded: []regions.Name{"eastus"}, Avoided: []regions.Avoided{{Region: west, Times: 1}}, Prefer: west}
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		c, _ := r.Pick(w)
		r.Report(c, regions.Healthy, 0)
	}))
	c := at(t, r, west, false)
	require.Zero(t, testing.AllocsPerRun(1000, func() { r.Report(c, regions.Failed, regions.Unreachable) }), "a mark that is there already")
}

func BenchmarkPick(b *testing.B) {
	healthy, _ := open(b, multiWrite(east, west, north))
	hurt, _ := open(b, multiWrite(east, west, north))
	fail(b, hurt, east, regions.Unreachable)
	excluded := []regions.Name{"eastus"}
	avoided := []regions.Avoided{{Region: east, Times: 1}}
	for _, tc := range []struct {
		name string
		r    *regions.Registry
		want regions.Want
	}{
		{"healthy", healthy, regions.Want{}},
		{"excluded", healthy, regions.Want{Excluded: excluded}},
		{"avoided", healthy, regions.Want{Avoided: avoided}},
		{"marked", hurt, regions.Want{}},
	} {
		b.Run(tc.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				c, err := tc.r.Pick(tc.want)
				if err != nil {
					b.Fatal(err)
				}
				tc.r.Report(c, regions.Healthy, 0)
			}
		})
	}
	b.Run("healthy in parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				c, _ := healthy.Pick(regions.Want{})
				healthy.Report(c, regions.Healthy, 0)
			}
		})
	})
}

func ExampleRegistry_Pick() {
	source := regions.SourceFunc(func(context.Context, *regions.Topology) (*regions.Topology, error) {
		return multiWrite(east, west), nil // a real one asks the account
	})
	r, err := regions.New(regions.Config{Source: source, Preferred: []regions.Name{"westus"}})
	if err != nil {
		panic(err)
	}
	if _, err := r.Refresh(context.Background(), nil); err != nil {
		panic(err)
	}
	for range 2 {
		c, err := r.Pick(regions.Want{})
		if err != nil {
			panic(err)
		}
		fmt.Println(c.Region, c.URL)
		r.Report(c, regions.Failed, regions.Unreachable)
	}
	// Output:
	// West US https://acct-westus.documents.example:443
	// East US https://acct-eastus.documents.example:443
}
