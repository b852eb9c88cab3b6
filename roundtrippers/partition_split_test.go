package roundtrippers_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/cosmos/cosmostest"
	"github.com/reroute-go/reroute/roundtrippers"
)

// named is a stack that names the range it found on the wire, so that the service checks each lookup.
func named(ranges int) setup {
	return setup{sim: cosmostest.Config{Ranges: ranges, LogSize: 1 << 18}, stack: roundtrippers.Builder{PerAttempt: []middleware.Layer{naming}}}
}

// workThrough runs 64 workers over many keys until stop ends, while change happens, and counts what failed.
func workThrough(w *placed, keys []string, change func()) (operations, failed int64) {
	stop, end := context.WithCancel(w.t.Context())
	var workers sync.WaitGroup
	var ok, bad atomic.Int64
	for i := range 64 {
		workers.Go(func() {
			draw := rand.New(rand.NewPCG(1, uint64(i)))
			for stop.Err() == nil {
				do := w.get
				if draw.IntN(2) == 0 {
					do = w.upsert
				}
				r := do(w.t.Context(), keys[draw.IntN(len(keys))])
				if r.err != nil || r.status/100 != 2 {
					if bad.Add(1) < 5 {
						w.t.Log(r.code, r.report)
					}
				}
				ok.Add(1)
				time.Sleep(time.Duration(20+draw.IntN(20)) * time.Millisecond)
			}
		})
	}
	change()
	end()
	workers.Wait()
	return ok.Load(), bad.Load()
}

func (w *placed) manyKeys(n int) (keys []string) {
	for i := range n {
		keys = append(keys, fmt.Sprint("key", i))
	}
	w.warm(keys...)
	return keys
}

// lookedUpRight asserts that each key goes to the range that owns it, at once.
func (w *placed) lookedUpRight(keys []string) {
	w.t.Helper()
	w.forget()
	for _, key := range keys {
		r := w.get(w.t.Context(), key)
		require.Equal(w.t, []string{west}, w.must(r))
		require.Equal(w.t, w.rangeOf(key), r.report.Attempts[0].Range)
	}
	for _, r := range w.Requests(cosmostest.Match{Operations: cosmostest.Data()}) {
		require.NotEmpty(w.t, r.Header.Get("X-Ms-Documentdb-Partitionkeyrangeid"), "the service had a range to check")
	}
	require.Zero(w.t, w.walks(), "nothing left to learn")
}

func TestASplitStormLosesNothing(t *testing.T) { // issue 3, Done-when 3
	inPartitions(t, named(16), func(t *testing.T, w *placed) {
		keys := w.manyKeys(400)
		splits := 0
		operations, failed := workThrough(w, keys, func() {
			for range 2 {
				for _, r := range w.Ranges("d", "c") { // 16, then 32
					time.Sleep(60 * time.Millisecond)
					w.Split("d", "c", r.ID)
					splits++
				}
			}
			time.Sleep(time.Second)
		})
		t.Logf("%d operations, %d failed, %d splits, %d walks of the feed", operations, failed, splits, w.walks())
		require.Zero(t, failed)
		require.Len(t, w.Ranges("d", "c"), 64)
		require.LessOrEqual(t, w.walks(), splits+2)
		w.lookedUpRight(keys)
	})
}

func TestASplitStormInStepsLosesNothing(t *testing.T) { // issue 3, Done-when 3: locked, half published, complete
	inPartitions(t, named(16), func(t *testing.T, w *placed) {
		keys := w.manyKeys(400)
		splits := 0
		operations, failed := workThrough(w, keys, func() {
			var steps sync.WaitGroup
			for range 2 {
				for _, r := range w.Ranges("d", "c") {
					time.Sleep(50 * time.Millisecond)
					steps.Go(func() {
						change := w.BeginSplit("d", "c", r.ID)
						time.Sleep(150 * time.Millisecond)
						change.PublishHalf()
						time.Sleep(100 * time.Millisecond)
						change.Complete()
					})
					splits++
				}
				steps.Wait()
			}
			time.Sleep(time.Second)
		})
		t.Logf("%d operations, %d failed, %d splits, %d walks of the feed", operations, failed, splits, w.walks())
		require.Zero(t, failed)
		require.Len(t, w.Ranges("d", "c"), 64)
		require.LessOrEqual(t, w.walks(), splits+2, "the half published feeds, which are read again at once, included")
		w.lookedUpRight(keys)
	})
}

func TestASplitUnderWayIsWaitedOut(t *testing.T) { // R161, 410/1007
	for takes, want := range map[time.Duration]struct{ sends, rideless int }{
		50 * time.Millisecond: {2, 200},
		time.Second:           {7, 410},
		8 * time.Second:       {13, 410},
	} {
		s := named(2)
		inPartitions(t, s, func(t *testing.T, w *placed) {
			key := w.key("1")
			w.warm(key)
			change := w.BeginSplit("d", "c", "1")
			time.AfterFunc(takes, func() { change.Complete() })

			hasty, usual := s, w.rt
			hasty.stack.Partition.SplitRetries = 1
			w.rt = w.stack(hasty)
			require.Equal(t, want.rideless, w.get(t.Context(), key).status, "one retry and three failovers are over before the split is")
			w.rt = usual

			r := w.get(t.Context(), key)
			w.must(r)
			t.Log(takes, r.took)
			require.Equal(t, w.rangeOf(key), r.report.Attempts[r.report.Sends-1].Range)
			require.LessOrEqual(t, r.report.Sends, want.sends)
			require.LessOrEqual(t, w.walks(), r.report.Sends+1)
			require.Empty(t, w.marked())
			require.Zero(t, w.account.Partitions.Tracked(), "a split is nobody's fault")
		})
	}
}

func TestASplitThatDoesNotEndSaysSoInTime(t *testing.T) {
	inPartitions(t, named(2), func(t *testing.T, w *placed) {
		key := w.key("1")
		w.warm(key)
		w.BeginSplit("d", "c", "1")
		r := w.get(t.Context(), key)
		require.Equal(t, "410/1007", r.code, "%s", r.report)
		require.Equal(t, 13, r.report.Sends, "nine in their time, then the failover's three")
		require.Less(t, r.took, 30*time.Second)

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		r = w.get(ctx, key)
		require.Equal(t, "410/1007", r.code, "a wait that does not fit is not begun: the answer, not an error")
		require.Less(t, r.took, time.Second)
	})
}

func TestAHerdThatWaitsForASplitSharesItsReads(t *testing.T) {
	inPartitions(t, named(16), func(t *testing.T, w *placed) {
		key := w.key("1")
		w.warm(key)
		change := w.BeginSplit("d", "c", "1")
		time.AfterFunc(1500*time.Millisecond, change.PublishHalf)
		time.AfterFunc(3*time.Second, func() { change.Complete() })
		w.crowd(64, func(ctx context.Context) { w.must(w.get(ctx, key)) })
		require.LessOrEqual(t, w.walks(), 30, "one in 100 ms, for some 400 retries")
	})
}

// A refresh that fails for another reason than a half-published split is no
// reason to wait for one.
func TestARefreshThatFailsIsNoSplitUnderWay(t *testing.T) {
	inPartitions(t, named(2), func(t *testing.T, w *placed) {
		key := w.key("1")
		w.warm(key)
		w.AddFault(cosmostest.Fault{Match: cosmostest.Match{Operations: []cosmostest.Operation{cosmostest.ReadRanges}}, Answer: cosmostest.Error(503, 0)})
		w.sick(cosmostest.Error(410, 1002), "1", west, east, north)
		r := w.get(t.Context(), key)
		require.Equal(t, "410/1002", r.code)
		require.Equal(t, 5, r.report.Sends, "once after the refresh, then the failover's three: %s", r.report)
		require.Less(t, r.took, time.Second)
	})
}
