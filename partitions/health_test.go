package partitions

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/regions"
)

var all = []regions.Name{east, west, mid}

// attempt is one attempt that goes where it should and fares as the world says.
func attempt(r *Registry, p Partition, write bool, world func(regions.Name) regions.Verdict) (regions.Name, Transition) {
	a := r.Admit(p, write, all...)
	to := pick(a)
	return to, r.Report(p, to, write, a, world(to))
}

// pick is the first candidate that is not avoided.
func pick(a Admission) regions.Name {
	for _, c := range all {
		if !avoids(a, c) {
			return c
		}
	}
	return all[0]
}

func avoids(a Admission, region regions.Name) bool {
	for _, n := range a.Avoid {
		if n.Equal(region) {
			return true
		}
	}
	return false
}

// dead is a world where these regions fail.
func dead(names ...regions.Name) func(regions.Name) regions.Verdict {
	return func(to regions.Name) regions.Verdict {
		for _, n := range names {
			if n.Equal(to) {
				return regions.Failed
			}
		}
		return regions.Healthy
	}
}

// trip makes p avoid east.
func trip(r *Registry, p Partition, write bool) {
	for range 10 {
		a := r.Admit(p, write, all...)
		if r.Report(p, east, write, a, regions.Failed) == Tripped {
			return
		}
	}
}

// health in a bubble, with one partition.
func inHealth(t *testing.T, f func(t *testing.T, r *Registry, p Partition), change ...func(*Config)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f(t, newRegistry(t, newService("0:-FF"), change...), Partition{"rid1", "0"})
	})
}

func TestReadsAndWritesTripApartAtTheirOwnCount(t *testing.T) { // R105, R106, R117, N094, B65
	for write, threshold := range map[bool]int{false: 10, true: 5} {
		inHealth(t, func(t *testing.T, r *Registry, p Partition) {
			for i := 1; i <= threshold; i++ {
				to, tr := attempt(r, p, write, dead(east))
				require.Equal(t, east, to)
				require.Equal(t, i == threshold, tr == Tripped)
			}
			to, tr := attempt(r, p, write, dead(east))
			require.Equal(t, west, to)
			require.Equal(t, Unchanged, tr)
			require.Empty(t, r.Admit(p, !write, all...).Avoid, "the other direction is apart")
			require.Empty(t, r.Admit(Partition{"rid1", "1"}, write, all...).Avoid, "other partitions are")
			require.Empty(t, r.Admit(Partition{"rid2", "0"}, write, all...).Avoid, "range 0 of another container is another partition (D20, G1)")
			require.Equal(t, 1, r.Tracked())
		})
	}
}

func TestASuccessStartsTheCountAgain(t *testing.T) { // G3
	inHealth(t, func(t *testing.T, r *Registry, p Partition) {
		for range 5 {
			for range 9 {
				attempt(r, p, false, dead(east))
			}
			require.Equal(t, 1, r.Tracked())
			attempt(r, p, false, dead())
			require.Zero(t, r.Tracked(), "and nothing is left of it")
		}
	})
}

func TestFailuresOfDifferentRegionsDoNotAddUp(t *testing.T) { // G3, 4.4
	inHealth(t, func(t *testing.T, r *Registry, p Partition) {
		for i := range 18 {
			a := r.Admit(p, false, all...)
			require.Equal(t, Unchanged, r.Report(p, all[i%2], false, a, regions.Failed))
		}
		require.Nil(t, r.Admit(p, false, all...).Avoid)
	})
}

func TestAQuietWindowStartsTheCountAgain(t *testing.T) { // R107
	inHealth(t, func(t *testing.T, r *Registry, p Partition) {
		for range 9 {
			attempt(r, p, false, dead(east))
			time.Sleep(5 * time.Minute)
		}
		a := r.Admit(p, false, all...)
		require.Equal(t, Tripped, r.Report(p, east, false, a, regions.Failed), "the window is not over yet")
		p.Range = "1"
		for range 9 {
			attempt(r, p, false, dead(east))
			time.Sleep(5*time.Minute + 1)
		}
		for i := 1; i <= 10; i++ {
			_, tr := attempt(r, p, false, dead(east))
			require.Equal(t, i == 10, tr == Tripped)
		}
	})
}

func TestWithEveryRegionTrippedTheUsualOrderCounts(t *testing.T) { // R108, B63
	inHealth(t, func(t *testing.T, r *Registry, p Partition) {
		for _, region := range all {
			for range 10 {
				a := r.Admit(p, false, all...)
				r.Report(p, region, false, a, regions.Failed)
			}
		}
		require.Equal(t, 3, r.Tracked())
		a := r.Admit(p, false, all...)
		require.Nil(t, a.Avoid)
		require.Empty(t, a.Probe)
		require.Equal(t, []regions.Name{west}, r.Admit(p, false, west, "North US").Avoid, "a region of this operation is left")

		time.Sleep(8 * time.Second)
		for _, want := range all {
			to, tr := attempt(r, p, false, dead(all...))
			require.Equal(t, want, to, "each is probed in turn")
			require.Equal(t, Rearmed, tr)
		}
		time.Sleep(8 * time.Second)
		to, tr := attempt(r, p, false, dead(west, mid))
		require.Equal(t, east, to)
		require.Equal(t, Recovered, tr)
		to, _ = attempt(r, p, false, dead(west, mid))
		require.Equal(t, east, to)
	})
}

func TestAnOperationWithoutARegionIsNotWatched(t *testing.T) { // R119
	inHealth(t, func(t *testing.T, r *Registry, p Partition) {
		for range 20 {
			r.Report(p, east, false, r.Admit(p, false), regions.Failed)
			r.Report(p, east, false, Admission{}, regions.Failed)
		}
		nowhere := Partition{Container: "rid1"}
		r.Report(nowhere, east, false, r.Admit(nowhere, false, all...), regions.Failed)
		require.Zero(t, r.Tracked())
	})
}

func TestAnOperationWithOneRegionIsCountedAndMayProbe(t *testing.T) {
	inHealth(t, func(t *testing.T, r *Registry, p Partition) {
		for range 10 {
			r.Report(p, east, false, r.Admit(p, false, east), regions.Failed)
		}
		require.Equal(t, []regions.Name{east}, r.Admit(p, false, all...).Avoid)
		require.Nil(t, r.Admit(p, false, east).Avoid, "where else?")
		time.Sleep(8 * time.Second)
		probe := r.Admit(p, false, east)
		require.Equal(t, east, probe.Probe)
		require.Equal(t, []regions.Name{east}, r.Admit(p, false, all...).Avoid, "one at a time")
		require.Equal(t, Recovered, r.Report(p, east, false, probe, regions.Healthy))
	})
}

func TestPartitionsThatTripTogetherProbeApart(t *testing.T) { // R111, G29
	inHealth(t, func(t *testing.T, r *Registry, _ Partition) {
		start := time.Now()
		waits := map[time.Duration]int{}
		open := map[Partition]bool{}
		for i := range 200 {
			p := Partition{"rid1", fmt.Sprint(i)}
			trip(r, p, false)
			open[p] = true
		}
		for len(open) > 0 {
			time.Sleep(time.Millisecond)
			for p := range open {
				if r.Admit(p, false, all...).Probe != "" {
					waits[time.Since(start)]++
					delete(open, p)
				}
			}
			require.Less(t, time.Since(start), 8*time.Second)
		}
		require.Greater(t, len(waits), 100)
		for wait := range waits {
			require.Greater(t, wait, 5*time.Second)
			require.LessOrEqual(t, wait, 7500*time.Millisecond+time.Millisecond)
		}
	})
}

func TestTheWaitCountsFromTheTrip(t *testing.T) { // G4, G29
	inHealth(t, func(t *testing.T, r *Registry, p Partition) {
		for range 9 {
			attempt(r, p, false, dead(east))
			time.Sleep(time.Minute)
		}
		trip(r, p, false)
		time.Sleep(5 * time.Second)
		require.Equal(t, []regions.Name{east}, r.Admit(p, false, all...).Avoid)
	})
}

func TestOneOfManyProbesWhileAllOthersStayAway(t *testing.T) { // R116, G2, B57
	inHealth(t, func(t *testing.T, r *Registry, p Partition) {
		trip(r, p, false)
		time.Sleep(8 * time.Second)
		var wg sync.WaitGroup
		var atEast, atWest atomic.Int64
		for range 1000 {
			wg.Go(func() {
				attempt(r, p, false, func(to regions.Name) regions.Verdict {
					if to == east {
						atEast.Add(1)
						time.Sleep(30 * time.Second)
						return regions.Failed
					}
					atWest.Add(1)
					return regions.Healthy
				})
			})
		}
		wg.Wait()
		require.EqualValues(t, 1, atEast.Load())
		require.EqualValues(t, 999, atWest.Load())
		require.Equal(t, []regions.Name{east}, r.Admit(p, false, all...).Avoid, "its failure counts from now")
	})
}

func TestAFailedProbeWaitsAgain(t *testing.T) { // R112
	inHealth(t, func(t *testing.T, r *Registry, p Partition) {
		trip(r, p, false)
		for range 5 {
			time.Sleep(7500*time.Millisecond + 1)
			to, tr := attempt(r, p, false, dead(east))
			require.Equal(t, east, to)
			require.Equal(t, Rearmed, tr)
			time.Sleep(5 * time.Second)
			to, _ = attempt(r, p, false, dead(east))
			require.Equal(t, west, to)
		}
	})
}

func TestASuccessfulProbeBringsEverybodyBack(t *testing.T) { // R113, R114
	inHealth(t, func(t *testing.T, r *Registry, p Partition) {
		trip(r, p, false)
		r.SetPartitionFailover(new(true))
		require.True(t, r.Confirm(p, west, east))
		time.Sleep(8 * time.Second)
		to, tr := attempt(r, p, false, dead())
		require.Equal(t, east, to)
		require.Equal(t, Recovered, tr)
		for range 10 {
			to, tr = attempt(r, p, false, dead())
			require.Equal(t, east, to)
			require.Equal(t, Unchanged, tr)
		}
		region, ok := r.Override(p)
		require.True(t, ok, "the write override is apart")
		require.Equal(t, west, region)
		time.Sleep(75 * time.Second)
		attempt(r, p, false, dead())
		require.Zero(t, r.Tracked(), "nothing is left")
	})
}

func TestOnlyTheProbesOwnVerdictCounts(t *testing.T) { // G29, R113, B56, N099
	inHealth(t, func(t *testing.T, r *Registry, p Partition) {
		old := r.Admit(p, false, all...)
		trip(r, p, false)
		away := r.Admit(p, false, all...)
		time.Sleep(8 * time.Second)
		probe := r.Admit(p, false, all...)
		require.Equal(t, east, probe.Probe)
		for _, v := range []regions.Verdict{regions.Healthy, regions.Failed} {
			for _, a := range []Admission{old, away} {
				for _, region := range all {
					if v == regions.Failed && region != east {
						continue
					}
					require.Equal(t, Unchanged, r.Report(p, region, false, a, v))
					require.Equal(t, []regions.Name{east}, r.Admit(p, false, all...).Avoid)
				}
			}
		}
		require.Equal(t, Unchanged, r.Report(p, west, false, probe, regions.Healthy), "not where it probes")
		require.Equal(t, Unchanged, r.Report(p, east, false, probe, regions.Healthy), "given back by that")
		probe = r.Admit(p, false, all...)
		require.Equal(t, east, probe.Probe, "to the next one, at once")
		require.Equal(t, Rearmed, r.Report(p, "east us", false, probe, regions.Failed))
		require.Equal(t, Unchanged, r.Report(p, east, false, probe, regions.Healthy), "it had its say")
		require.Equal(t, []regions.Name{east}, r.Admit(p, false, all...).Avoid)
	})
}

func TestFailuresFromBeforeARecoveryDoNotTripAgain(t *testing.T) { // B56
	inHealth(t, func(t *testing.T, r *Registry, p Partition) {
		var slow []Admission
		for range 50 {
			slow = append(slow, r.Admit(p, false, all...))
		}
		trip(r, p, false)
		time.Sleep(8 * time.Second)
		_, tr := attempt(r, p, false, dead())
		require.Equal(t, Recovered, tr)
		attempt(r, p, false, dead())
		attempt(r, p, false, dead(east))
		attempt(r, p, false, dead())
		time.Sleep(50 * time.Second)
		for _, a := range slow {
			require.Equal(t, Unchanged, r.Report(p, east, false, a, regions.Failed))
		}
		require.Nil(t, r.Admit(p, false, all...).Avoid)
		for range 3 {
			for i := 1; i <= 9; i++ {
				_, tr := attempt(r, p, false, dead(east))
				require.Equal(t, Unchanged, tr)
			}
			attempt(r, p, false, dead())
		}
		for i := 1; i <= 10; i++ {
			_, tr := attempt(r, p, false, dead(east))
			require.Equal(t, i == 10, tr == Tripped, "new failures count in full")
		}
	})
}

func TestACancelledProbeLetsTheNextOneProbe(t *testing.T) { // rule 9
	inHealth(t, func(t *testing.T, r *Registry, p Partition) {
		trip(r, p, false)
		time.Sleep(8 * time.Second)
		for range 5 {
			a := r.Admit(p, false, all...)
			require.Equal(t, east, a.Probe)
			require.Empty(t, r.Admit(p, false, all...).Probe)
			require.Equal(t, Unchanged, r.Report(p, "", false, a, regions.Neutral))
		}
		_, tr := attempt(r, p, false, dead())
		require.Equal(t, Recovered, tr)
	})
}

func TestAProbeThatNeverReportsLosesItsLease(t *testing.T) { // gobreaker: a lost done blocks for ever
	inHealth(t, func(t *testing.T, r *Registry, p Partition) {
		trip(r, p, false)
		time.Sleep(8 * time.Second)
		lost := r.Admit(p, false, all...)
		require.Equal(t, east, lost.Probe)
		time.Sleep(75*time.Second - 1)
		require.Empty(t, r.Admit(p, false, all...).Probe)
		time.Sleep(1)
		next := r.Admit(p, false, all...)
		require.Equal(t, east, next.Probe)
		for _, v := range []regions.Verdict{regions.Healthy, regions.Failed, regions.Neutral} {
			require.Equal(t, Unchanged, r.Report(p, east, false, lost, v), "it is too late")
		}
		require.Empty(t, r.Admit(p, false, all...).Probe)
		require.Equal(t, Recovered, r.Report(p, east, false, next, regions.Healthy))
	})
}

func TestACancellationCountsAsNothing(t *testing.T) {
	inHealth(t, func(t *testing.T, r *Registry, p Partition) {
		for range 9 {
			attempt(r, p, false, dead(east))
			attempt(r, p, false, func(regions.Name) regions.Verdict { return regions.Neutral })
		}
		_, tr := attempt(r, p, false, dead(east))
		require.Equal(t, Tripped, tr)
	})
}

func TestARegionBehindTheOneThatServesIsNotProbed(t *testing.T) {
	inHealth(t, func(t *testing.T, r *Registry, p Partition) {
		for range 10 {
			a := r.Admit(p, false, all...)
			r.Report(p, west, false, a, regions.Failed)
		}
		time.Sleep(time.Minute)
		a := r.Admit(p, false, all...)
		require.Empty(t, a.Probe, "it would not go there")
		require.Equal(t, []regions.Name{west}, a.Avoid)
		trip(r, p, false)
		require.Equal(t, west, r.Admit(p, false, all...).Probe, "now it does")
	})
}

func TestSwitchedOffNothingIsWatched(t *testing.T) { // kill switch, flag flips: 3.6, 4.1
	off := func(c *Config) { c.Failover.Enabled = new(false) }
	inHealth(t, func(t *testing.T, r *Registry, p Partition) {
		trip(r, p, false)
		require.Zero(t, r.Tracked())
		r.SetPartitionFailover(new(true))
		before := r.Admit(p, false, all...)
		trip(r, p, false)
		require.Equal(t, 1, r.Tracked(), "the account's flag switches them on")
		r.SetPartitionFailover(nil)
		require.Equal(t, 1, r.Tracked(), "a missing flag is no signal")
		time.Sleep(8 * time.Second)
		probe := r.Admit(p, false, all...)
		require.Equal(t, east, probe.Probe)
		r.SetPartitionFailover(new(false))
		require.Zero(t, r.Tracked(), "a flip forgets")
		require.Equal(t, Unchanged, r.Report(p, east, false, probe, regions.Healthy))
		require.Equal(t, Unchanged, r.Report(p, east, false, before, regions.Failed))
		require.Zero(t, r.Admit(p, false, all...))
		require.Zero(t, r.Tracked())
	}, off)
	inHealth(t, func(t *testing.T, r *Registry, p Partition) {
		r.SetPartitionFailover(new(true))
		trip(r, p, false)
		require.Zero(t, r.Tracked(), "the override wins")
	}, func(c *Config) { c.Failover.EnabledOverride = new(false) })
}

func TestBreakersOfRangesThatSplitAwayAreDropped(t *testing.T) { // rule 9, G19, R161
	synctest.Test(t, func(t *testing.T) {
		s := newService("0:-30", "1:30-FF")
		r := newRegistry(t, s)
		found := resolve(t, r)
		gone, stays := Partition{"rid1", "1"}, Partition{"rid1", "0"}
		trip(r, gone, false)
		trip(r, gone, true)
		trip(r, stays, false)
		time.Sleep(8 * time.Second)
		probe := r.Admit(gone, false, all...)
		require.Equal(t, east, probe.Probe)
		s.deliver("2:30-60<1", "3:60-FF<1")
		require.NoError(t, r.Refresh(t.Context(), found))
		require.Equal(t, 1, r.Tracked())
		require.Equal(t, Unchanged, r.Report(gone, east, false, probe, regions.Healthy))
		require.Equal(t, Unchanged, r.Report(gone, east, false, probe, regions.Neutral))
		require.Equal(t, 1, r.Tracked())
	})
}

func TestTheNumberOfBreakersIsBounded(t *testing.T) {
	few := func(c *Config) { c.Failover.MaxTracked = 100 }
	partition := func(i int) Partition { return Partition{"rid1", fmt.Sprint(i)} }
	inHealth(t, func(t *testing.T, r *Registry, _ Partition) {
		for i := range 1000 {
			trip(r, partition(i), false)
		}
		require.Equal(t, 100, r.Tracked())
		require.NotEmpty(t, r.Admit(partition(99), false, all...).Avoid)
		require.Empty(t, r.Admit(partition(100), false, all...).Avoid, "more keep their usual region")

		time.Sleep(6 * time.Minute)
		require.Equal(t, east, r.Admit(partition(99), false, all...).Probe, "a tripped one waits for its probe for ever")
		for i := range 1000 {
			attempt(r, partition(2000+i), false, dead(east))
		}
		require.LessOrEqual(t, r.Tracked(), 100)
		require.Greater(t, r.Tracked(), 50)
		_, tripped := attempt(r, partition(5000), false, dead(east))
		require.Equal(t, Unchanged, tripped)
	}, few)
	inHealth(t, func(t *testing.T, r *Registry, _ Partition) {
		for round := range 100 {
			for i := range 10 {
				attempt(r, partition(10*round+i), false, dead(east)) // once, and then never used again
			}
			time.Sleep(time.Minute)
		}
		require.Less(t, r.Tracked(), 200, "stray failures are swept")
	})
}

func TestReportsFromEverywhereAtOnceKeepTheBooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, newService("0:-FF"))
		var wg sync.WaitGroup
		for g := range 8 {
			wg.Go(func() {
				for i := range 2000 {
					p := Partition{"rid1", fmt.Sprint((g + i) % 40)}
					write := i%3 == 0
					attempt(r, p, write, func(to regions.Name) regions.Verdict {
						return regions.Verdict((i*7 + g + len(to)) % 3)
					})
					if i%100 == 0 {
						r.health.forget(p)
						time.Sleep(time.Second)
					}
					if i%700 == 0 {
						r.SetPartitionFailover(new(i%1400 == 0))
					}
				}
			})
		}
		wg.Wait()
		n := 0
		r.health.breakers.each(func(b *breaker) {
			n++
			require.False(t, b.removed)
		})
		require.Equal(t, n, r.Tracked())
		require.Equal(t, n, r.health.breakers.live)
		r.health.forgetIf(func(Partition) bool { return true })
		require.Zero(t, r.Tracked())
	})
}

func TestATransitionSaysItsName(t *testing.T) {
	require.Equal(t, "unchanged tripped rearmed recovered unknown transition",
		fmt.Sprint(Unchanged)+" "+fmt.Sprint(Tripped)+" "+fmt.Sprint(Rearmed)+" "+fmt.Sprint(Recovered)+" "+fmt.Sprint(Transition(9)))
}
