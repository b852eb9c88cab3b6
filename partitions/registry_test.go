package partitions

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/regions"
	"github.com/reroute-go/reroute/regions/snapshot"
)

func TestAKeyIsResolvedToItsPartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService("0:-20", "1:20-FF")
		r := newRegistry(t, s)
		m := newMap(t, ranges("0:-20", "1:20-FF"))
		for i := range 50 {
			header := fmt.Sprintf(`["key-%d"]`, i)
			want, ok := rangeID(s.definition, m, header)
			require.True(t, ok)
			found, err := r.Resolve(t.Context(), coll, header)
			require.NoError(t, err)
			require.Equal(t, Partition{Container: "rid1", Range: want}, found.Partition)
		}
		require.Len(t, s.pages(), 2)
		require.Equal(t, []string{coll}, s.containers)

		found, err := r.Resolve(t.Context(), coll, `["x"`)
		var bad *KeyError
		require.ErrorAs(t, err, &bad)
		require.Zero(t, found.Partition)
		require.NoError(t, r.Refresh(t.Context(), found))
		require.Len(t, s.pages(), 3, "it knows the ranges nevertheless")
	})
}

func TestAPrefixThatPartitionsShareHasNone(t *testing.T) { // R156
	synctest.Test(t, func(t *testing.T) {
		s := newService()
		s.definition = Definition{Kind: KindMultiHash, Paths: 2}
		span, err := s.definition.Span(`["tenant"]`)
		require.NoError(t, err)
		middle := Key{hi: span.Min.hi, lo: span.Min.lo, rest: "\x20"}
		s.feeds["rid1"] = []Range{{ID: "0", Max: middle}, {ID: "1", Min: middle, Max: MaxKey()}}
		r := newRegistry(t, s)
		found, err := r.Resolve(t.Context(), coll, `["tenant"]`)
		require.NoError(t, err)
		require.Equal(t, Partition{Container: "rid1"}, found.Partition)
		require.Zero(t, r.Admit(found.Partition, false, east, west), "and no health")
		found, err = r.Resolve(t.Context(), coll, `["tenant","a"]`)
		require.NoError(t, err)
		require.NotEmpty(t, found.Partition.Range)
	})
}

func TestAThousandColdCallersShareOneRead(t *testing.T) { // R153, N137
	synctest.Test(t, func(t *testing.T) {
		s := newService("0:-FF")
		s.takes = 50 * time.Millisecond
		s.rid["other"] = "rid2"
		s.feeds["rid2"] = ranges("0:-FF")
		r := newRegistry(t, s)
		start := time.Now()
		var wg sync.WaitGroup
		for i := range 1000 {
			wg.Go(func() {
				_, err := r.Resolve(t.Context(), []string{coll, "other"}[i%2], `["a"]`)
				require.NoError(t, err)
			})
		}
		wg.Wait()
		require.Len(t, s.containers, 2)
		require.Len(t, s.pages(), 4)
		require.Equal(t, 150*time.Millisecond, time.Since(start), "containers do not wait for each other")
	})
}

func TestAllColdCallersShareOneFailureAndTheNextAsksAgain(t *testing.T) { // N138, B72
	synctest.Test(t, func(t *testing.T) {
		s := newService("0:-FF")
		s.takes = 10 * time.Second
		s.setFault(always(kind(Transient)))
		r := newRegistry(t, s)
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				_, err := r.Resolve(t.Context(), coll, `["a"]`)
				require.Equal(t, s.fault(""), err)
			})
		}
		wg.Wait()
		require.Len(t, s.containers, 1)
		s.setFault(nil)
		s.slow(0)
		resolve(t, r)
	})
}

func TestAThousandOperationsWithAStaleMapShareOneRead(t *testing.T) { // B71
	synctest.Test(t, func(t *testing.T) {
		s := newService("0:-FF")
		r := newRegistry(t, s)
		stale := resolve(t, r)
		s.slow(20 * time.Millisecond)
		s.deliver("1:-30<0", "2:30-FF<0")
		s.forget()
		var wg sync.WaitGroup
		for i := range 1000 {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond) // during the read and long after it
				require.NoError(t, r.Refresh(t.Context(), stale))
				require.Contains(t, []string{"1", "2"}, resolve(t, r).Partition.Range)
			})
		}
		wg.Wait()
		require.Equal(t, []string{"e1", "e3"}, s.continuations())
	})
}

func TestReadersAreNotHeldUpByARefreshThatHangs(t *testing.T) { // B77
	synctest.Test(t, func(t *testing.T) {
		s := newService("0:-FF")
		r := newRegistry(t, s)
		found := resolve(t, r)
		s.slow(time.Hour)
		go func() { _ = r.Refresh(context.Background(), found) }()
		time.Sleep(time.Second)
		start := time.Now()
		require.Equal(t, found, resolve(t, r))
		require.Equal(t, start, time.Now())
	})
}

func TestACallerThatLeavesEndsNobodysRead(t *testing.T) { // B74
	synctest.Test(t, func(t *testing.T) {
		s := newService("0:-FF")
		s.takes = 50 * time.Millisecond
		r := newRegistry(t, s)
		hasty, cancel := context.WithTimeout(t.Context(), 2*time.Millisecond)
		defer cancel()
		gone, leave := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			start := time.Now()
			_, err := r.Resolve(hasty, coll, `["a"]`)
			require.ErrorIs(t, err, snapshot.ErrMaxWait)
			require.Equal(t, time.Millisecond, time.Since(start), "half of its time is left for the operation")
		})
		wg.Go(func() {
			_, err := r.Resolve(gone, coll, `["a"]`)
			require.ErrorIs(t, err, context.Canceled)
		})
		synctest.Wait()
		leave()
		synctest.Wait()
		for range 4 {
			wg.Go(func() { resolve(t, r) })
		}
		wg.Wait()
		require.Len(t, s.pages(), 2)
	})
}

func TestARefreshWaitsForAsLongAsConfigured(t *testing.T) { // B76
	synctest.Test(t, func(t *testing.T) {
		s := newService("0:-FF")
		r := newRegistry(t, s, func(c *Config) { c.RefreshWait = 2 * time.Second })
		found := resolve(t, r)
		s.slow(time.Minute)
		for _, refresh := range []func(context.Context, Resolved) error{r.Refresh, r.RefreshContainer} {
			start := time.Now()
			require.ErrorIs(t, refresh(t.Context(), found), snapshot.ErrMaxWait)
			require.Equal(t, 2*time.Second, time.Since(start))
		}
	})
}

func TestAnAnswerFromAnotherRangeAsksForOneRead(t *testing.T) { // N130, N133
	synctest.Test(t, func(t *testing.T) {
		s := newService("0:-FF")
		r := newRegistry(t, s)
		found := resolve(t, r)
		s.forget()
		r.Served(found, "0")
		r.Served(found, "")
		r.Served(Resolved{}, "7")
		time.Sleep(10 * time.Second)
		require.Empty(t, s.pages(), "the same range, or none, is no news")

		s.deliver("1:-FF<0")
		start := time.Now()
		for range 1000 {
			r.Served(found, "1")
		}
		require.Equal(t, start, time.Now(), "nobody waits")
		synctest.Wait()
		require.Equal(t, []string{"e1", "e2"}, s.continuations())
		require.Equal(t, []string{"1"}, held(r))
		r.Served(found, "1")
		synctest.Wait()
		require.Len(t, s.pages(), 2, "that map is not held any more")
		time.Sleep(5 * time.Second)
		r.Served(found, "7")
		r.Served(resolve(t, r), "7")
		synctest.Wait()
		require.Len(t, s.pages(), 3, "and asking about it uses nothing up")
		time.Sleep(5 * time.Second)

		s.forget()
		s.setFault(always(kind(Transient)))
		found = resolve(t, r)
		for range 20 {
			r.Served(found, "never heard of")
			time.Sleep(time.Second)
		}
		require.Equal(t, found, resolve(t, r), "a failure is no operation's")
		require.LessOrEqual(t, len(s.pages()), 2*4)
		require.GreaterOrEqual(t, len(s.pages()), 4)
	})
}

func TestARangeThatTheRequestNamesIsResolved(t *testing.T) { // G21
	synctest.Test(t, func(t *testing.T) {
		s := newService("0:-30", "1:30-FF")
		r := newRegistry(t, s)
		found, err := r.ResolveRange(t.Context(), coll, "1")
		require.NoError(t, err)
		require.Equal(t, Partition{"rid1", "1"}, found.Partition)

		s.deliver("2:30-60<1", "3:60-FF<1")
		found, err = r.ResolveRange(t.Context(), coll, "3")
		require.NoError(t, err, "a range that is not known is looked for")
		require.Equal(t, Partition{"rid1", "3"}, found.Partition)

		s.forget()
		_, err = r.ResolveRange(t.Context(), coll, "1")
		require.ErrorIs(t, err, ErrRangeGone)
		require.ErrorIs(t, err, ErrUnknownRange)
		for range 1000 {
			found, err = r.ResolveRange(t.Context(), coll, "junk")
			require.ErrorIs(t, err, ErrUnknownRange)
			require.NotErrorIs(t, err, ErrRangeGone)
		}
		require.Zero(t, found.Partition)
		require.Empty(t, s.pages())
		time.Sleep(5 * time.Second)
		_, err = r.ResolveRange(t.Context(), coll, "junk")
		require.ErrorIs(t, err, ErrUnknownRange)
		require.Len(t, s.pages(), 1)
	})
}

func TestAContainerThatWasMadeAnewGetsNewRanges(t *testing.T) { // 410/1000, G12
	synctest.Test(t, func(t *testing.T) {
		s := newService("0:-FF")
		r := newRegistry(t, s)
		stale := resolve(t, r)
		trip(r, stale.Partition, false)
		r.SetPartitionFailover(new(true))
		require.True(t, r.Confirm(stale.Partition, west, east))

		s.rid[coll], s.feeds["rid2"] = "rid2", ranges("0:-FF")
		s.slow(10 * time.Millisecond)
		s.forget()
		var wg sync.WaitGroup
		for range 1000 {
			wg.Go(func() { require.NoError(t, r.RefreshContainer(t.Context(), stale)) })
		}
		wg.Wait()
		require.Len(t, s.containers, 1)
		require.Equal(t, []string{"", "e1"}, s.continuations(), "nothing of the old feed is used")
		fresh := resolve(t, r)
		require.Equal(t, Partition{"rid2", "0"}, fresh.Partition)
		require.Zero(t, r.Tracked())
		_, ok := r.Override(stale.Partition)
		require.False(t, ok)

		require.NoError(t, r.RefreshContainer(t.Context(), stale))
		require.Len(t, s.containers, 1, "that is known already")
		require.NoError(t, r.RefreshContainer(t.Context(), fresh))
		require.Len(t, s.containers, 2)
		require.Len(t, s.pages(), 2, "the same container keeps its ranges")
		require.Equal(t, fresh, resolve(t, r))
	})
}

func TestANewDefinitionIsUsedWithTheSameRanges(t *testing.T) { // 400/1001
	synctest.Test(t, func(t *testing.T) {
		s := newService("0:-20", "1:20-FF")
		r := newRegistry(t, s)
		stale := resolve(t, r)
		s.definition = Definition{Kind: KindMultiHash, Paths: 2}
		require.NoError(t, r.RefreshContainer(t.Context(), stale))
		_, err := r.Resolve(t.Context(), coll, `["a","b"]`)
		require.NoError(t, err)

		s.definition = Definition{Kind: "Melted"}
		var bad *DefinitionError
		require.ErrorAs(t, r.RefreshContainer(t.Context(), resolve(t, r)), &bad)
		_, err = r.Resolve(t.Context(), coll, `["a","b"]`)
		require.NoError(t, err, "what is known stays")
		s.definition, s.rid[coll] = Definition{}, ""
		require.ErrorContains(t, r.RefreshContainer(t.Context(), resolve(t, r)), "without RID")
	})
}

func TestContainersThatAreNotUsedMakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService("0:-FF")
		r := newRegistry(t, s, func(c *Config) { c.MaxContainers = 10 })
		found := resolve(t, r)
		trip(r, found.Partition, false)
		s.forget()
		for i := range 1000 {
			_, err := r.Resolve(t.Context(), fmt.Sprintf("missing-%d", i), `["a"]`)
			require.Equal(t, Absent, kindOf(err))
			if i < 500 {
				require.Equal(t, found, resolve(t, r))
				require.Empty(t, s.pages(), "what is used stays")
			} else {
				_, err = r.Resolve(t.Context(), fmt.Sprintf("missing-%d", i), `["a"]`)
				require.Error(t, err)
			}
			require.LessOrEqual(t, len(*r.cache.containers.Load()), 10)
		}
		require.Nil(t, held(r), "what is not used goes")
		require.Zero(t, r.Tracked(), "with its breakers")
		require.NoError(t, r.Refresh(t.Context(), found))
		require.Equal(t, found.Partition, resolve(t, r).Partition, "and comes back when it is asked for")
	})
}

func TestAContainerThatMakesRoomEndsItsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService("0:-FF")
		s.takes = time.Hour
		r := newRegistry(t, s, func(c *Config) { c.MaxContainers = 1 })
		waiting := make(chan error)
		go func() {
			_, err := r.Resolve(context.Background(), coll, `["a"]`)
			waiting <- err
		}()
		synctest.Wait()
		start := time.Now()
		go func() { _, _ = r.Resolve(context.Background(), "another", `["a"]`) }()
		require.ErrorIs(t, <-waiting, snapshot.ErrClosed)
		require.Equal(t, start, time.Now())
	})
}

func TestAClosedRegistryReadsNothing(t *testing.T) { // N097
	synctest.Test(t, func(t *testing.T) {
		s := newService("0:-FF")
		r := newRegistry(t, s)
		found := resolve(t, r)
		s.slow(time.Minute)
		waiting := make(chan error)
		go func() { waiting <- r.Refresh(context.Background(), found) }()
		time.Sleep(time.Second)
		r.Close()
		r.Close()
		require.ErrorIs(t, <-waiting, snapshot.ErrClosed)
		require.Equal(t, found, resolve(t, r))
		require.ErrorIs(t, r.Refresh(t.Context(), found), snapshot.ErrClosed)
		_, err := r.Resolve(t.Context(), "another", `["a"]`)
		require.ErrorIs(t, err, snapshot.ErrClosed)
		r.Served(found, "7")
	})
}

func TestASourceThatPanicsIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService("0:-FF")
		s.answer(func() (Page, error) { panic("no page") })
		r := newRegistry(t, s)
		_, err := r.Resolve(t.Context(), coll, `["a"]`)
		require.ErrorContains(t, err, "no page")
		resolve(t, r)
	})
}

func TestAConfigIsRefusedByFieldAndValue(t *testing.T) {
	_, err := New(Config{
		FetchTimeout: -1, RefreshWait: -time.Second, RefreshInterval: -2, NegativeTTL: 4 * time.Second,
		IncompleteBackoff: time.Hour, MaxContainers: -3, IncompleteRetries: 21, Failover: FailoverOptions{ReadFailures: -1},
		LookupEnv: noEnv,
	})
	for _, text := range []string{
		"Config.Source is nil", "Config.FetchTimeout is -1ns", "Config.RefreshWait is -1s", "Config.RefreshInterval is -2ns",
		"Config.NegativeTTL is 4s: must be 5s to 30s", "Config.IncompleteBackoff is 1h0m0s", "Config.MaxContainers is -3",
		"Config.IncompleteRetries is 21", "FailoverOptions.ReadFailures is -1",
	} {
		require.ErrorContains(t, err, text)
	}
	_, err = New(Config{Source: newService(), NegativeTTL: 31 * time.Second, LookupEnv: noEnv})
	require.ErrorContains(t, err, "NegativeTTL is 31s")
	_, err = New(Config{Source: (*service)(nil), LookupEnv: noEnv})
	require.EqualError(t, err, "partitions: Config.Source is a nil *partitions.service")

	require.NoError(t, os.Setenv("AZURE_COSMOS_PPCB_ENABLED", "maybe"))
	defer func() { require.NoError(t, os.Unsetenv("AZURE_COSMOS_PPCB_ENABLED")) }()
	_, err = New(Config{Source: newService()})
	require.ErrorContains(t, err, `AZURE_COSMOS_PPCB_ENABLED is "maybe"`, "nil looks into the real environment")
}

func TestASourceErrorSaysItsKind(t *testing.T) {
	cause := errors.New("cause")
	for k, text := range map[FailureKind]string{Transient: "transient", Absent: "absent", Forbidden: "forbidden", SessionUnavailable: "session unavailable", 9: "unknown kind"} {
		err := error(&SourceError{Kind: k, Err: cause})
		require.ErrorIs(t, err, cause)
		require.EqualError(t, err, "partitions: "+text+": cause")
		require.EqualError(t, &SourceError{Kind: k}, "partitions: "+text)
		require.Equal(t, k, kindOf(fmt.Errorf("wrapped: %w", err)))
	}
	require.Equal(t, Transient, kindOf(cause))
}

func TestHotPathsDoNotAllocate(t *testing.T) {
	r := newRegistry(t, newService("0:-20", "1:20-FF"))
	ctx := t.Context()
	found, err := r.Resolve(ctx, coll, `["tenant-4711"]`)
	require.NoError(t, err)
	candidates := []regions.Name{east, west, mid}
	work := func(p Partition) func() {
		return func() {
			if _, err := r.Resolve(ctx, coll, `["tenant-4711"]`); err != nil {
				t.Error(err)
			}
			if _, err := r.ResolveRange(ctx, coll, "1"); err != nil {
				t.Error(err)
			}
			r.Served(found, found.Partition.Range)
			a := r.Admit(p, false, candidates...)
			r.Report(p, east, false, a, regions.Healthy)
			r.Override(p)
			r.Confirm(p, east, east)
		}
	}
	require.Zero(t, testing.AllocsPerRun(100, work(found.Partition)), "nobody in trouble")
	other := Partition{Container: "rid1", Range: "in trouble"}
	trip(r, other, false)
	r.SetPartitionFailover(new(true))
	r.Confirm(other, west, east)
	require.Zero(t, testing.AllocsPerRun(100, work(found.Partition)), "others in trouble")
	require.LessOrEqual(t, testing.AllocsPerRun(100, func() { r.Admit(other, false, candidates...) }), 1.0)
}

func TestAContainerMadeAnewWhileItsRangesAreReadIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService("0:-FF")
		r := newRegistry(t, s)
		stale := resolve(t, r)
		s.slow(time.Second)
		s.deliver("1:-FF<0")
		go func() { _ = r.Refresh(context.Background(), stale) }() // reads until 2 s
		time.Sleep(500 * time.Millisecond)
		s.mu.Lock()
		s.rid[coll], s.feeds["rid2"] = "rid2", ranges("7:-FF")
		s.mu.Unlock()
		require.NoError(t, r.RefreshContainer(t.Context(), stale))
		require.Equal(t, Partition{"rid2", "7"}, resolve(t, r).Partition, "not the ranges of the one that is gone")
	})
}

func TestCloseEndsTheWaitForACompleteMap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService("0:-30")
		r := newRegistry(t, s, func(c *Config) { c.IncompleteBackoff = time.Minute })
		waiting := make(chan error)
		go func() {
			_, err := r.Resolve(context.Background(), coll, `["a"]`)
			waiting <- err
		}()
		time.Sleep(time.Second)
		start := time.Now()
		r.Close()
		require.Error(t, <-waiting)
		require.Equal(t, start, time.Now())
		require.Len(t, s.pages(), 2)
	})
}

func TestARefreshOfNothingIsDone(t *testing.T) {
	r := newRegistry(t, newService("0:-FF"))
	require.NoError(t, r.Refresh(t.Context(), Resolved{}))
	require.NoError(t, r.RefreshContainer(t.Context(), Resolved{}))
	r.SetPartitionFailover(nil)
}
