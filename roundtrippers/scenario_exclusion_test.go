package roundtrippers_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/cosmos"
	"github.com/reroute-go/reroute/middleware/cosmos/cosmostest"
	"github.com/reroute-go/reroute/regions"
	"github.com/reroute-go/reroute/roundtrippers"
)

// trouble is a way for regions to be of no use. It must not touch the others.
type trouble struct {
	name  string
	begin func(w *world, healthy, troubled []string)
}

// troubles are the statuses of the seed and everything else that can befall a
// region.
func troubles() []trouble {
	each := func(do func(w *world, region string)) func(*world, []string, []string) {
		return func(w *world, _, troubled []string) {
			for _, region := range troubled {
				do(w, region)
			}
		}
	}
	answering := func(answer cosmostest.Answer) func(*world, []string, []string) {
		return each(func(w *world, region string) { w.fail(answer, region) })
	}
	var list []trouble
	for _, code := range []string{
		"403/3", "403/1008", "404/1002", "408", "410", "410/1000", "410/1002", "410/1007", "410/1008", "410/1022",
		"429/3200", "429/3092", "449", "500", "502", "503", "504", "400", "401", "403", "404", "409", "412",
	} {
		var status, substatus int
		_, _ = fmt.Sscanf(code+"/0", "%d/%d", &status, &substatus)
		list = append(list, trouble{code, answering(cosmostest.Error(status, substatus))})
	}
	outage := func(how cosmostest.Outage) func(*world, []string, []string) {
		return each(func(w *world, region string) { w.SetOffline(region, how) })
	}
	return append(list,
		trouble{"connections refused", outage(cosmostest.Refused)},
		trouble{"black hole", outage(cosmostest.BlackHole)},
		trouble{"reset in mid-answer", outage(cosmostest.ResetMidAnswer)},
		trouble{"reset", answering(cosmostest.Answer{Reset: true})},
		trouble{"closed unanswered", answering(cosmostest.Answer{Refuse: true})},
		trouble{"answers cut in the header", answering(cosmostest.Answer{CutHeader: true})},
		trouble{"applied but not acknowledged", each(func(w *world, region string) {
			w.AddFault(cosmostest.Fault{Match: cosmostest.Match{Region: region, Operations: cosmostest.Data()}, AfterApply: true, Answer: cosmostest.Error(503, 0)})
		})},
		trouble{"draining", each(func(w *world, region string) { w.Drain(region) })},
		trouble{"demotion", func(w *world, healthy, _ []string) { w.SetWriteRegion(healthy[0]) }},
		trouble{"demotion that the document does not tell", func(w *world, healthy, _ []string) {
			w.HoldTopology(0)
			w.SetWriteRegion(healthy[0])
		}},
	)
}

// An excluded region gets no request while there is another, be it as sick as it
// may: Done-when 8, R067, R069, R087, R089, R098, DESIGN rule 6. Session retries, the
// wish for the hub, failover and marks due for a probe are all in it: the
// excluded regions were marked a minute ago.
func TestExcludedRegionsGetNothingWhateverHappensToTheOthers(t *testing.T) {
	for _, row := range []struct {
		excluded    []string
		partitioned bool
	}{
		{[]string{west}, false}, {[]string{east}, false}, {[]string{west, east}, false}, {[]string{west, north}, false},
		{[]string{west, east}, true},
	} {
		name := "without " + strings.Join(row.excluded, " and ")
		if row.partitioned {
			name += ", partitions known"
		}
		t.Run(name, func(t *testing.T) {
			accounts(t, func(t *testing.T, multi bool) {
				for _, trouble := range troubles() {
					t.Run(trouble.name, func(t *testing.T) {
						stack := roundtrippers.Builder{
							AttemptTimeout: time.Second,
							Failover:       roundtrippers.Failover{TopologyRetries: 12}, // 120 add nothing but time
						}
						inWorld(t, setup{sim: cosmostest.Config{MultiWrite: multi}, stack: stack, partitioned: row.partitioned}, func(t *testing.T, w *world) {
							untouched(t, w, trouble, row.excluded, row.partitioned)
						})
					})
				}
			})
		})
	}
}

func untouched(t *testing.T, w *world, trouble trouble, excluded []string, partitioned bool) {
	others := slices.DeleteFunc(w.Regions(), func(r string) bool { return slices.Contains(excluded, r) })
	w.item()

	// Everything is marked, and the marks of the excluded ones are due for a probe.
	for _, region := range w.Regions() {
		w.SetOffline(region, cosmostest.Refused)
	}
	require.Error(t, w.read(t.Context(), "some").err)
	for _, region := range w.Regions() {
		w.SetOnline(region)
	}
	require.Len(t, w.marked(), 3)
	time.Sleep(61 * time.Second)
	w.forget()

	trouble.begin(w, excluded, others)
	load := deeds
	if partitioned { // often enough for a partition's breaker
		load = slices.Concat(deeds, deeds, deeds)
	}
	for _, d := range load {
		r := d.do(w, excluding(t.Context(), excluded...))
		tried := regionsOf(r.report)
		require.NotEmpty(t, tried, d.name)
		for _, region := range tried {
			require.Contains(t, others, string(region), d.name)
		}
		for _, region := range excluded {
			require.Zero(t, w.data(region), "%s, %s: %v", d.name, region, w.path())
		}
	}
	for _, m := range w.account.Regions.Marks() {
		require.False(t, m.Probing, "a probe that nobody makes is held")
	}
}

func TestAnExclusionIsOfOneOperationOnly(t *testing.T) {
	inWorld(t, setup{}, func(t *testing.T, w *world) {
		ctx := excluding(t.Context(), "WESTUS", " east us ")
		require.Equal(t, "404", w.read(ctx, "none").code, "names compare without case and spaces")
		require.Equal(t, "404", w.read(t.Context(), "none").code)
		require.Equal(t, "404", w.read(excluding(ctx, "Mars"), "none").code, "an unknown region excludes nothing")
		require.Equal(t, []string{north, west, west}, w.path())
	})
}

func TestWithEveryRegionExcludedTheHubAloneServes(t *testing.T) { // R068
	accounts(t, func(t *testing.T, multi bool) {
		open := cosmos.Options{PreferredRegions: []regions.Name{north, east}}
		inWorld(t, setup{sim: cosmostest.Config{MultiWrite: multi}, open: open}, func(t *testing.T, w *world) {
			hub := west
			if multi {
				hub = north // seed: the first of the preferred write endpoints
			}
			all := excluding(t.Context(), west, east, north)
			for _, d := range deeds {
				require.Less(t, d.do(w, all).status, 405, d.name)
			}
			require.Equal(t, 200, w.send(all, http.MethodGet, "/dbs/d/colls/c", "").status)
			require.Equal(t, len(deeds), w.data(hub))
			require.Equal(t, len(deeds), w.data(""))
			require.Equal(t, 1, w.Sends(hub, cosmostest.ReadContainer))

			w.fail(cosmostest.Error(503, 0), hub)
			for _, d := range deeds {
				require.Equal(t, "503", d.do(w, all).code, d.name)
			}
			w.ClearFaults()
			w.fail(cosmostest.Error(404, 1002), hub)
			for _, d := range deeds {
				require.Equal(t, "404/1002", d.do(w, all).code, d.name)
			}
			require.Equal(t, w.data(""), w.data(hub), "nothing else helps out")
		})
	})
}

func TestStrictExclusionOfEveryRegionSendsNothing(t *testing.T) { // DESIGN rule 6
	accounts(t, func(t *testing.T, multi bool) {
		stack := roundtrippers.Builder{Route: roundtrippers.Route{StrictExclusion: true}}
		inWorld(t, setup{sim: cosmostest.Config{MultiWrite: multi}, stack: stack}, func(t *testing.T, w *world) {
			w.forget()
			for _, d := range deeds {
				r := d.do(w, excluding(t.Context(), west, east, north))
				require.ErrorIs(t, r.err, regions.ErrNoRegion, d.name)
				var typed *middleware.Error
				require.ErrorAs(t, r.err, &typed)
				require.Zero(t, typed.Report.Sends)
				require.Equal(t, middleware.NotRetried, typed.Stop)
				var why *regions.NoRegionError
				require.ErrorAs(t, r.err, &why)
				require.Len(t, why.Known, 3)
			}
			require.Zero(t, w.Sends(""))
			require.Equal(t, "404", w.read(excluding(t.Context(), west, east), "none").code, "one is left")
			require.Equal(t, []string{north}, w.path())
		})
	})
}

// The only region that is not excluded leaves the account in the middle of an
// operation. What is left is a list that excludes every region.
func TestWhenTheLastAllowedRegionLeavesTheAccount(t *testing.T) { // DESIGN rule 6
	for _, strict := range []bool{true, false} {
		stack := converging
		stack.Route.StrictExclusion = strict
		inWorld(t, setup{stack: stack}, func(t *testing.T, w *world) {
			w.RemoveRegion(east)
			r := w.read(excluding(t.Context(), west, north), "none")
			require.Equal(t, east, w.path()[0])
			require.Zero(t, w.data(north))
			if !strict {
				require.Equal(t, "404", r.code, "the hub is the last resort")
				require.Equal(t, []string{east, west}, w.path())
				return
			}
			require.ErrorIs(t, r.err, regions.ErrNoRegion)
			var typed *middleware.Error
			require.ErrorAs(t, r.err, &typed)
			require.Equal(t, []int{403, 1008}, []int{typed.LastStatus, typed.LastSubstatus})
			require.Zero(t, w.data(west))
		})
	}
}
