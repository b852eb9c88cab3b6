package regions_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/regions"
	"github.com/reroute-go/reroute/regions/snapshot"
)

func TestBadConfigIsNamedFieldByField(t *testing.T) {
	_, err := regions.New(regions.Config{
		Preferred: []regions.Name{"West US", "  "}, RefreshInterval: -1, BackgroundInterval: -2, FetchTimeout: -3, RefreshWait: -4, MarkFor: -5,
	})
	for _, part := range []string{
		"Source is nil", `Preferred[1] is "  "`, "RefreshInterval is -1ns", "BackgroundInterval is -2ns",
		"FetchTimeout is -3ns", "RefreshWait is -4ns", "MarkFor is -5ns",
	} {
		require.ErrorContains(t, err, part)
	}
}

func TestTwoRefreshesWithinFiveSecondsAreOneRead(t *testing.T) { // R076
	synctest.Test(t, func(t *testing.T) {
		r, a := open(t, multiWrite(east, west))
		seen := r.Topology()
		a.set(multiWrite(west, east), nil)
		time.Sleep(5*time.Second - 1)
		same, err := r.Refresh(t.Context(), seen)
		require.NoError(t, err)
		require.Same(t, seen, same)
		require.Equal(t, 1, a.fetches())
		time.Sleep(1)
		fresh, err := r.Refresh(t.Context(), seen)
		require.NoError(t, err)
		require.NotSame(t, seen, fresh)
		require.Equal(t, 2, a.fetches())
	})
}

func TestAThousandOperationsWithTheSameStaleTopologyShareOneRead(t *testing.T) { // B71, B74, R092
	synctest.Test(t, func(t *testing.T) {
		r, a := open(t, multiWrite(east, west), east)
		a.set(multiWrite(west), nil)
		a.takes = 50 * time.Millisecond
		time.Sleep(5 * time.Second)
		cancelled, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Millisecond, cancel)
		var wg sync.WaitGroup
		c := pick(t, r, regions.Want{})
		wg.Go(func() { // the first to ask leaves early
			_, err := r.Refresh(cancelled, c.Topology)
			require.ErrorIs(t, err, context.Canceled)
		})
		synctest.Wait()
		for range 1000 {
			wg.Go(func() {
				_, err := r.Refresh(t.Context(), c.Topology)
				require.NoError(t, err)
				next, err := r.Pick(regions.Want{})
				require.NoError(t, err)
				require.Equal(t, west, next.Region)
			})
		}
		wg.Wait()
		require.Equal(t, 2, a.fetches())

		// An operation that was routed by the old topology and learns of it only now just reroutes.
		time.Sleep(time.Minute)
		_, err := r.Refresh(t.Context(), c.Topology)
		require.NoError(t, err)
		require.Equal(t, 2, a.fetches())
	})
}

func TestAFailedRefreshKeepsTheTopologyAndDoesNotThrottleTheNext(t *testing.T) { // R077, R078, B72, N066
	synctest.Test(t, func(t *testing.T) {
		r, a := open(t, multiWrite(east, west))
		seen := r.Topology()
		time.Sleep(5 * time.Second)
		broken := errors.New("503")
		a.set(nil, broken)
		for range 3 {
			kept, err := r.Refresh(t.Context(), seen)
			require.ErrorIs(t, err, broken)
			require.Same(t, seen, kept)
		}
		require.Equal(t, 4, a.fetches())
		require.Equal(t, east, pick(t, r, regions.Want{}).Region)
		a.set(multiWrite(west), nil)
		fresh, err := r.Refresh(t.Context(), seen)
		require.NoError(t, err)
		require.Equal(t, uint64(2), fresh.Generation)
	})
}

func TestASourceThatFailsAtOnceIsNotCalledInALoop(t *testing.T) { // B71
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("refused")
		a := &account{err: broken}
		r, err := regions.New(regions.Config{Source: a})
		require.NoError(t, err)
		for range 10_000 { // ten operations each ms for a second
			_, err := r.Refresh(t.Context(), nil)
			require.ErrorIs(t, err, broken)
			time.Sleep(100 * time.Microsecond)
		}
		require.LessOrEqual(t, a.fetches(), 8)
		time.Sleep(time.Minute)
		a.set(multiWrite(east), nil)
		_, err = r.Refresh(t.Context(), nil)
		require.NoError(t, err)
	})
}

func TestAWriteRegionThatMovesIsFoundWithSpacedReads(t *testing.T) { // B61
	synctest.Test(t, func(t *testing.T) {
		r, a := open(t, singleWrite(east, west))
		time.AfterFunc(2*time.Second, func() { a.set(singleWrite(west, east), nil) })
		start := time.Now()
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				for {
					c, err := r.Pick(regions.Want{From: regions.WriteRegions, Write: true})
					require.NoError(t, err)
					if c.Region == west {
						r.Report(c, regions.Healthy, 0)
						return
					}
					r.Report(c, regions.Failed, regions.WriteForbidden)
					fresh, err := r.Refresh(t.Context(), c.Topology)
					require.NoError(t, err)
					if fresh == c.Topology {
						time.Sleep(time.Second)
					}
				}
			})
		}
		wg.Wait()
		require.Equal(t, 5*time.Second, time.Since(start))
		require.Equal(t, 2, a.fetches())
	})
}

func TestNobodyWaitsLongerThanRefreshWait(t *testing.T) { // B76, B77
	synctest.Test(t, func(t *testing.T) {
		r, a := open(t, multiWrite(east, west))
		a.takes = 20 * time.Second
		time.Sleep(5 * time.Second)
		a.set(multiWrite(west), nil)
		start := time.Now()
		seen := r.Topology()
		var wg sync.WaitGroup
		wg.Go(func() {
			kept, err := r.Refresh(t.Context(), seen)
			require.ErrorIs(t, err, snapshot.ErrMaxWait)
			require.Same(t, seen, kept)
			require.Equal(t, 15*time.Second, time.Since(start))
		})
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := r.Refresh(ctx, seen)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Equal(t, time.Second, time.Since(start))
		})
		synctest.Wait()
		for range 1000 {
			require.Equal(t, east, pick(t, r, regions.Want{}).Region, "readers do not wait at all")
		}
		require.Zero(t, time.Since(start))
		wg.Wait()
		time.Sleep(5 * time.Second)
		synctest.Wait()
		require.Equal(t, west, pick(t, r, regions.Want{}).Region)
	})
}

func TestAHungSourceIsGivenUpAtFetchTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &account{takes: time.Hour}
		r, err := regions.New(regions.Config{Source: a, FetchTimeout: 3 * time.Second})
		require.NoError(t, err)
		start := time.Now()
		_, err = r.Refresh(t.Context(), nil)
		require.ErrorIs(t, err, snapshot.ErrTimeout)
		require.Equal(t, 3*time.Second, time.Since(start))
	})
}

func TestAnEqualTopologyIsNoChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &account{now: multiWrite(east, west)}
		type change struct{ old, new *regions.Topology }
		var changes []change
		r, err := regions.New(regions.Config{Source: a, OnChange: func(old, new *regions.Topology) {
			changes = append(changes, change{old, new})
		}})
		require.NoError(t, err)
		refresh := func(told *regions.Topology) *regions.Topology {
			time.Sleep(5 * time.Second)
			a.set(told, nil)
			next, err := r.Refresh(t.Context(), r.Topology())
			require.NoError(t, err)
			return next
		}
		first := refresh(multiWrite(east, west))
		require.Equal(t, uint64(1), first.Generation)
		require.Same(t, first, refresh(multiWrite(east, west)))
		require.Equal(t, []change{{nil, first}}, changes)

		flagged := multiWrite(east, west)
		flagged.PartitionFailover = true
		second := refresh(flagged)
		require.Equal(t, uint64(2), second.Generation)
		require.True(t, second.PartitionFailover)
		third := refresh(multiWrite(west, east))
		require.Equal(t, uint64(3), third.Generation)
		require.Equal(t, []change{{nil, first}, {first, second}, {second, third}}, changes)
	})
}

func TestOnChangeMayUseTheRegistry(t *testing.T) { // Z067
	synctest.Test(t, func(t *testing.T) {
		a := &account{now: multiWrite(east, west)}
		var r *regions.Registry
		r, err := regions.New(regions.Config{Source: a, OnChange: func(_, new *regions.Topology) {
			again, err := r.Refresh(context.Background(), new)
			require.NoError(t, err)
			require.Same(t, new, again)
			c, err := r.Pick(regions.Want{})
			require.NoError(t, err)
			r.Report(c, regions.Failed, regions.RegionGone)
		}})
		require.NoError(t, err)
		_, err = r.Refresh(t.Context(), nil)
		require.NoError(t, err)
		require.Equal(t, west, pick(t, r, regions.Want{}).Region)
		require.Equal(t, 1, a.fetches())
	})
}

func TestRunRefreshesEveryFiveMinutesAndReadsNothingPerOperation(t *testing.T) { // R079, R102
	synctest.Test(t, func(t *testing.T) {
		r, a := open(t, multiWrite(east))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- r.Run(ctx) }()
		for range 1000 {
			pick(t, r, regions.Want{})
		}
		time.Sleep(time.Minute)
		require.Equal(t, 1, a.fetches())
		a.set(multiWrite(east, west), nil)
		require.Equal(t, 1, r.Candidates(regions.ReadRegions, nil))
		time.Sleep(4 * time.Minute)
		synctest.Wait()
		require.Equal(t, 2, r.Candidates(regions.ReadRegions, nil), "a region added at run time is adopted")

		a.set(nil, errors.New("503"))
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		require.Equal(t, 3, a.fetches())
		require.Equal(t, 2, r.Candidates(regions.ReadRegions, nil), "a failure keeps what is known")
		a.set(multiWrite(west), nil)
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		require.Equal(t, west, pick(t, r, regions.Want{}).Region, "and the loop goes on")
		cancel()
		require.ErrorIs(t, <-done, context.Canceled)
	})
}

func TestRunFetchesTheFirstTopologyAndTriesSoonerWhileThereIsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &account{err: errors.New("503")}
		r, err := regions.New(regions.Config{Source: a})
		require.NoError(t, err)
		done := make(chan error)
		go func() { done <- r.Run(t.Context()) }()
		time.Sleep(12 * time.Second)
		require.Equal(t, 3, a.fetches())
		a.set(multiWrite(east), nil)
		time.Sleep(3 * time.Second)
		synctest.Wait()
		require.NotNil(t, r.Topology())
		r.Close()
		require.ErrorIs(t, <-done, snapshot.ErrClosed)
	})
}

func TestCloseKeepsWhatIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, a := open(t, multiWrite(east, west))
		a.takes = time.Hour
		time.Sleep(5 * time.Second)
		time.AfterFunc(time.Second, r.Close)
		start := time.Now()
		kept, err := r.Refresh(t.Context(), r.Topology())
		require.ErrorIs(t, err, snapshot.ErrClosed)
		require.Same(t, r.Topology(), kept)
		require.Equal(t, time.Second, time.Since(start))
		c := pick(t, r, regions.Want{})
		r.Report(c, regions.Failed, regions.Unreachable)
		require.Equal(t, west, pick(t, r, regions.Want{}).Region)
		r.Close()
	})
}

func TestKnowsEveryHostOfTheAccountInEverySpelling(t *testing.T) { // R068, R099: the global host is not among them unless told
	synctest.Test(t, func(t *testing.T) {
		r, a := open(t, singleWrite(east))
		time.Sleep(5 * time.Second)
		a.set(singleWrite(west), nil)
		_, err := r.Refresh(t.Context(), r.Topology())
		require.NoError(t, err)
		for _, host := range []string{
			"acct-eastus.documents.example", "acct-eastus.documents.example:443", "ACCT-WestUS.documents.example", "acct-westus.documents.example:443",
		} {
			require.True(t, r.Knows(host), host)
		}
		for _, host := range []string{"", "acct.documents.example", "acct-eastus.documents.example:8081", "acct-eastus.documents.example.evil.example"} {
			require.False(t, r.Knows(host), host)
		}
	})
}
