package regions_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/regions"
)

func TestOneOperationProbesAfterAMinuteAndItsSuccessRestoresTheRegion(t *testing.T) { // R074, N050
	synctest.Test(t, func(t *testing.T) {
		r, _ := open(t, multiWrite(east, west))
		fail(t, r, east, regions.Unreachable)

		time.Sleep(time.Minute - 1)
		require.Equal(t, west, pick(t, r, regions.Want{}).Region)
		time.Sleep(1)
		probe := pick(t, r, regions.Want{})
		require.Equal(t, east, probe.Region)
		require.True(t, probe.Probe)
		require.True(t, r.Marks()[0].Probing)
		for range 100 {
			c := pick(t, r, regions.Want{})
			require.Equal(t, west, c.Region, "all others stay away")
			require.False(t, c.Probe)
			r.Report(c, regions.Healthy, 0)
		}
		r.Report(probe, regions.Healthy, 0)
		require.Empty(t, r.Marks())
		back := pick(t, r, regions.Want{})
		require.Equal(t, east, back.Region)
		require.False(t, back.Probe)
	})
}

func TestAFailedProbeRenewsTheMark(t *testing.T) { // R074
	synctest.Test(t, func(t *testing.T) {
		r, _ := open(t, multiWrite(east, west))
		fail(t, r, east, regions.Unreachable)
		time.Sleep(90 * time.Second)
		probe := pick(t, r, regions.Want{})
		require.True(t, probe.Probe)
		time.Sleep(time.Second)
		r.Report(probe, regions.Failed, regions.Timeout)

		mark := r.Marks()[0]
		require.Equal(t, time.Now(), mark.Since)
		require.Equal(t, time.Now().Add(time.Minute), mark.Due)
		require.Equal(t, regions.Timeout, mark.Reason)
		require.False(t, mark.Probing)
		require.Equal(t, west, pick(t, r, regions.Want{}).Region)
		time.Sleep(time.Minute)
		next := pick(t, r, regions.Want{})
		require.True(t, next.Probe, "the next probe comes a minute later")
		r.Report(next, regions.Healthy, 0)
		require.Empty(t, r.Marks())
	})
}

func TestANeutralProbeLetsTheNextOperationProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := open(t, multiWrite(east, west))
		fail(t, r, east, regions.Unreachable)
		time.Sleep(time.Minute)
		first := pick(t, r, regions.Want{})
		require.True(t, first.Probe)
		r.Report(first, regions.Neutral, 0)
		second := pick(t, r, regions.Want{})
		require.True(t, second.Probe)
		r.Report(first, regions.Neutral, 0) // reported twice: it holds the probe no more
		require.Equal(t, west, pick(t, r, regions.Want{}).Region)
	})
}

func TestAProbeThatNeverReportsFreesItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := open(t, multiWrite(east, west))
		fail(t, r, east, regions.Unreachable)
		time.Sleep(time.Minute)
		lost := pick(t, r, regions.Want{})
		require.True(t, lost.Probe)
		time.Sleep(time.Minute - 1)
		require.Equal(t, west, pick(t, r, regions.Want{}).Region)
		time.Sleep(1)
		second := pick(t, r, regions.Want{})
		require.True(t, second.Probe)

		// The lost one comes back: its failure is old news and renews nothing, and the second still holds the probe.
		since := r.Marks()[0].Since
		r.Report(lost, regions.Failed, regions.Unreachable)
		require.Equal(t, since, r.Marks()[0].Since)
		require.True(t, r.Marks()[0].Probing)
	})
}

func TestExactlyOneOfAThousandRacingOperationsProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := open(t, multiWrite(east, west))
		fail(t, r, east, regions.Unreachable)
		time.Sleep(time.Minute)
		var probes, home atomic.Int64
		var wg sync.WaitGroup
		for range 1000 {
			wg.Go(func() {
				c, err := r.Pick(regions.Want{})
				if err != nil {
					t.Error(err)
				}
				if c.Probe {
					probes.Add(1)
				}
				if c.Region == east {
					home.Add(1)
				}
			})
		}
		wg.Wait()
		require.EqualValues(t, 1, probes.Load())
		require.EqualValues(t, 1, home.Load())
	})
}

func TestAProbeIsOfferedAtTheRegionsOwnPlaceInTheList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := open(t, multiWrite(east, west, north))
		fail(t, r, west, regions.Unreachable)
		time.Sleep(time.Minute)
		require.Equal(t, east, pick(t, r, regions.Want{}).Region, "a healthy region before it is not passed over")
		c := pick(t, r, regions.Want{Excluded: []regions.Name{west}, Avoided: []regions.Avoided{{Region: east, Times: 1}}})
		require.Equal(t, north, c.Region, "an excluded region is not probed")
		c = pick(t, r, regions.Want{Avoided: []regions.Avoided{{Region: east, Times: 1}}})
		require.Equal(t, west, c.Region)
		require.True(t, c.Probe)
	})
}

func TestALateSuccessOfARequestSentBeforeTheMarkDoesNotClearIt(t *testing.T) {
	r, _ := open(t, multiWrite(east, west))
	before := pick(t, r, regions.Want{})
	fail(t, r, east, regions.Unreachable)
	r.Report(before, regions.Healthy, 0)
	require.Len(t, r.Marks(), 1)

	// A success of a request chosen after the mark, though no probe, does: here the last region allowed.
	r.Report(at(t, r, east, false), regions.Healthy, 0)
	require.Empty(t, r.Marks())

	// And it clears nothing that was marked again since.
	fail(t, r, east, regions.Unreachable)
	after := at(t, r, east, false)
	r.Report(at(t, r, east, false), regions.Healthy, 0)
	fail(t, r, east, regions.ServerError)
	r.Report(after, regions.Healthy, 0)
	require.Len(t, r.Marks(), 1)
}

func TestFailuresOfOthersDoNotPutTheProbeOff(t *testing.T) { // B59, R041: what is marked already is not marked again
	synctest.Test(t, func(t *testing.T) {
		r, _ := open(t, multiWrite(east, west))
		start := time.Now()
		fail(t, r, east, regions.Unreachable)
		for !pick(t, r, regions.Want{}).Probe {
			fail(t, r, east, regions.Unreachable)
			time.Sleep(time.Second)
		}
		require.Equal(t, time.Minute, time.Since(start))
	})
}

func TestARefusedRegionIsUsedAgainOnceItAnswers(t *testing.T) { // B59
	synctest.Test(t, func(t *testing.T) {
		r, _ := open(t, multiWrite(east, west))
		start := time.Now()
		var served []time.Duration // by East
		for time.Since(start) < 3*time.Minute {
			c := pick(t, r, regions.Want{})
			switch {
			case c.Region == east && time.Since(start) < 10*time.Second:
				r.Report(c, regions.Failed, regions.Unreachable)
			default:
				if c.Region == east {
					served = append(served, time.Since(start))
				}
				r.Report(c, regions.Healthy, 0)
			}
			time.Sleep(time.Second)
		}
		require.Equal(t, time.Minute, served[0])
		require.Len(t, served, 120, "every second from then on")
	})
}

func TestAWriteForbiddenMarkCountsForWritesOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := open(t, multiWrite(east, west))
		write := regions.Want{From: regions.WriteRegions, Write: true}
		fail(t, r, east, regions.WriteForbidden)
		require.Equal(t, west, pick(t, r, write).Region)
		read := pick(t, r, regions.Want{})
		require.Equal(t, east, read.Region)

		r.Report(read, regions.Healthy, 0)
		require.Len(t, r.Marks(), 1, "a read's success says nothing about writes")
		time.Sleep(time.Minute)
		require.False(t, pick(t, r, regions.Want{}).Probe, "a read cannot probe it")
		probe := pick(t, r, write)
		require.True(t, probe.Probe)
		require.Equal(t, west, pick(t, r, write).Region)
		r.Report(probe, regions.Healthy, 0)
		require.Empty(t, r.Marks())
	})
}

func TestAnEndpointMarkedTwiceIsProbedForBoth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := open(t, multiWrite(east, west))
		write := regions.Want{From: regions.WriteRegions, Write: true}
		fail(t, r, east, regions.WriteForbidden)
		time.Sleep(30 * time.Second)
		fail(t, r, east, regions.Unreachable)
		require.Len(t, r.Marks(), 2)
		time.Sleep(30 * time.Second)
		require.Equal(t, west, pick(t, r, write).Region, "one of them is not due")
		time.Sleep(30 * time.Second)
		read := pick(t, r, regions.Want{})
		require.True(t, read.Probe)
		require.Equal(t, west, pick(t, r, write).Region, "one of them is being probed")
		r.Report(read, regions.Neutral, 0)
		probe := pick(t, r, write)
		require.True(t, probe.Probe)
		require.Equal(t, west, pick(t, r, regions.Want{}).Region)
		r.Report(probe, regions.Failed, regions.WriteForbidden)
		require.Equal(t, west, pick(t, r, write).Region)
		read = pick(t, r, regions.Want{})
		require.True(t, read.Probe, "the write gave back what it did not decide")
		r.Report(read, regions.Healthy, 0)
		marks := r.Marks()
		require.Len(t, marks, 1)
		require.Equal(t, regions.WriteForbidden, marks[0].Reason)
		time.Sleep(time.Minute)
		r.Report(pick(t, r, write), regions.Healthy, 0)
		require.Empty(t, r.Marks())
	})
}

func TestMarksSurviveRefreshesAndARegionsAbsence(t *testing.T) { // R103
	synctest.Test(t, func(t *testing.T) {
		r, a := open(t, multiWrite(east, west), east)
		fail(t, r, east, regions.Unreachable)
		for _, step := range []struct {
			told   *regions.Topology
			expect regions.Name
		}{{multiWrite(west), west}, {multiWrite(east, west), west}, {multiWrite(west, east), west}} {
			time.Sleep(5 * time.Second)
			a.set(step.told, nil)
			_, err := r.Refresh(t.Context(), r.Topology())
			require.NoError(t, err)
			require.Equal(t, step.expect, pick(t, r, regions.Want{}).Region)
			require.Len(t, r.Marks(), 1)
		}
		time.Sleep(45 * time.Second)
		probe := pick(t, r, regions.Want{})
		require.True(t, probe.Probe)
		r.Report(probe, regions.Healthy, 0)
		require.Equal(t, east, pick(t, r, regions.Want{}).Region, "traffic returns in preference order")
	})
}

func TestMarksOfHostsThatCameAndWentAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, a := open(t, multiWrite(east, west))
		for i := range 1500 {
			n := regions.Name(fmt.Sprint("Region ", i))
			a.set(multiWrite(n, west), nil)
			time.Sleep(5 * time.Second)
			_, err := r.Refresh(t.Context(), r.Topology())
			require.NoError(t, err)
			fail(t, r, n, regions.Unreachable)
			require.LessOrEqual(t, len(r.Marks()), 1100)
			require.True(t, r.Knows("acct-westus.documents.example"))
		}
		require.Equal(t, west, pick(t, r, regions.Want{}).Region)
		require.False(t, r.Knows("acct-eastus.documents.example"), "forgotten in the end")
	})
}

func TestReadersAndReportersRaceWithRefreshes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, a := open(t, multiWrite(east, west, north))
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		var wg sync.WaitGroup
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				a.set([]*regions.Topology{multiWrite(east, west, north), singleWrite(west, east), multiWrite(north, east)}[i%3], nil)
				_, _ = r.Refresh(ctx, r.Topology())
				time.Sleep(7 * time.Second)
			}
		})
		for i := range 8 {
			wg.Go(func() {
				for n := i; ctx.Err() == nil; n++ {
					c, err := r.Pick(regions.Want{Write: n%2 == 0, Excluded: []regions.Name{west}})
					if err != nil || c.Region == west {
						t.Error(c.Region, err)
					}
					time.Sleep(time.Duration(n%50) * time.Millisecond)
					r.Report(c, regions.Verdict(n%3), regions.Reason(n%5))
					r.Marks()
				}
			})
		}
		wg.Wait()
	})
}
