package roundtrippers_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/cosmos/cosmostest"
	"github.com/reroute-go/reroute/regions"
)

var yes, no = true, false

// failingOver is an account whose partitions can fail over alone.
func failingOver(ranges int) setup {
	return setup{sim: cosmostest.Config{Ranges: ranges, PartitionFailover: &yes}}
}

// moved has the service move the writes of range 1 to north, and the stack find them.
func (w *placed) moved(key string) {
	w.t.Helper()
	w.FailoverPartition("d", "c", "1", north)
	require.Equal(w.t, []string{west, east, north}, w.must(w.upsert(w.t.Context(), key)))
	require.Equal(w.t, []string{north}, w.must(w.upsert(w.t.Context(), key)))
	w.forget()
}

func TestAPartitionWhoseWritesMovedIsFoundAndRemembered(t *testing.T) { // R122, DESIGN rule 10
	inPartitions(t, failingOver(4), func(t *testing.T, w *placed) {
		moved, other := w.key("1"), w.key("2")
		w.warm(moved, other)
		w.FailoverPartition("d", "c", "1", north)

		first := w.upsert(t.Context(), moved)
		require.Equal(t, []string{west, east, north}, w.must(first), "it walks through the regions that serve reads")
		for _, a := range first.report.Attempts {
			require.Equal(t, "1", a.Range)
			require.False(t, a.Override, "a walk is no override")
		}
		recorded := w.events(middleware.OverrideRecorded)
		require.Len(t, recorded, 1)
		require.EqualValues(t, north, recorded[0].Region)
		require.Equal(t, "1", recorded[0].Range)

		for range 3 {
			next := w.upsert(t.Context(), moved)
			require.Equal(t, []string{north}, w.must(next), "the region that confirmed, in one send")
			require.True(t, next.report.Attempts[0].Override)
			require.Contains(t, next.report.String(), "range 1 override")
		}
		require.Len(t, w.events(middleware.OverrideRecorded), 1, "known already")
		home := w.upsert(t.Context(), other)
		require.Equal(t, []string{west}, w.must(home), "its neighbours stay at home, in one send")
		require.False(t, home.report.Attempts[0].Override)
		require.Equal(t, []string{west}, w.must(w.get(t.Context(), moved)), "so do its reads")
		require.Empty(t, w.marked(), "one partition's move says nothing of the endpoints")

		time.Sleep(24 * time.Hour)
		require.Equal(t, []string{north}, w.must(w.upsert(t.Context(), moved)), "no failback by time")
	})
}

func TestAReaderBehindAMovedPartitionAsksTheRegionThatTakesItsWrites(t *testing.T) { // R071 with DESIGN rule 10
	inPartitions(t, failingOver(4), func(t *testing.T, w *placed) {
		key := w.key("1")
		w.warm(key)
		w.moved(key)
		w.sick(cosmostest.Error(404, 1002), "1", west, east)
		require.Equal(t, []string{west, north}, w.must(w.get(t.Context(), key)), "not the account's hub, which lags as well")
	})
}

func TestAnyFailureOfTheHubMakesAWriteWalk(t *testing.T) { // R121, N101, N102; N103 with the seed's ruling: a 408 is retried
	for name, answer := range map[string]cosmostest.Answer{
		"503": cosmostest.Error(503, 0), "408": cosmostest.Error(408, 0), "500": cosmostest.Error(500, 0), "reset": {Reset: true},
	} {
		t.Run(name, func(t *testing.T) {
			inPartitions(t, failingOver(4), func(t *testing.T, w *placed) {
				key := w.key("1")
				w.warm(key)
				w.sick(answer, "1", west)
				w.FailoverPartition("d", "c", "1", east)
				require.Equal(t, []string{west, east}, w.must(w.upsert(t.Context(), key)))
				require.Equal(t, []string{east}, w.must(w.upsert(t.Context(), key)))
			})
		})
	}
}

func TestWhatAnswersAsOnlyTheWriteRegionCanConfirmsIt(t *testing.T) { // DESIGN rule 10: 404/0, 409, 412, 413
	for status, confirms := range map[int]bool{404: true, 409: true, 412: true, 413: true, 400: false, 429: false, 500: false} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			inPartitions(t, failingOver(4), func(t *testing.T, w *placed) {
				key := w.key("1")
				w.warm(key)
				w.FailoverPartition("d", "c", "1", east)
				w.AddFault(cosmostest.Fault{Match: cosmostest.Match{Region: east, Operations: cosmostest.DataWrites()}, Answer: cosmostest.Error(status, 0)})
				w.upsert(t.Context(), key)
				require.Len(t, w.events(middleware.OverrideRecorded), map[bool]int{true: 1}[confirms])
			})
		})
	}
}

func TestNothingIsRememberedWhereNobodyConfirms(t *testing.T) {
	inPartitions(t, failingOver(4), func(t *testing.T, w *placed) {
		key := w.key("1")
		w.warm(key)
		faults := w.sick(cosmostest.Error(503, 0), "1", west, east, north)
		require.Equal(t, "503", w.upsert(t.Context(), key).code)
		require.Equal(t, []string{west, east, north, west}, w.path())
		require.Empty(t, w.events(middleware.OverrideRecorded))
		faults.heal()
		require.Equal(t, []string{west}, w.must(w.upsert(t.Context(), key)))
	})
}

func TestAPartitionThatMovesOnOrBackIsFollowed(t *testing.T) { // R118: an override that fails is not asked for ever
	inPartitions(t, failingOver(4), func(t *testing.T, w *placed) {
		key := w.key("1")
		w.warm(key)
		w.moved(key)
		w.FailoverPartition("d", "c", "1", east)
		require.Equal(t, []string{north, west, east}, w.must(w.upsert(t.Context(), key)))
		require.Equal(t, []string{east}, w.must(w.upsert(t.Context(), key)))
		w.FailoverPartition("d", "c", "1", "")
		require.Equal(t, []string{east, west}, w.must(w.upsert(t.Context(), key)))
		back := w.upsert(t.Context(), key)
		require.Equal(t, []string{west}, w.must(back))
		require.False(t, back.report.Attempts[0].Override)
	})
}

func TestTheAccountsFlagIsFollowedAtRunTime(t *testing.T) { // DESIGN rule 10, N104
	inPartitions(t, setup{sim: cosmostest.Config{Ranges: 4}}, func(t *testing.T, w *placed) {
		key := w.key("1")
		w.warm(key)
		w.FailoverPartition("d", "c", "1", north)
		flip := func(flag *bool) {
			w.SetPartitionFailover(flag)
			time.Sleep(6 * time.Second)
			_, err := w.account.Regions.Refresh(t.Context(), w.account.Regions.Topology())
			require.NoError(t, err)
		}
		require.Equal(t, "403/3", w.upsert(t.Context(), key).code, "the harm: one write region, and it refuses")
		require.Equal(t, []string{west, west, west, west}, w.path())
		flip(&yes)
		time.Sleep(time.Minute) // the refused writes have marked the one write region
		require.Equal(t, []string{west, east, north}, w.must(w.upsert(t.Context(), key)))
		flip(nil)
		require.Equal(t, []string{north}, w.must(w.upsert(t.Context(), key)), "a document without the flag keeps it")
		flip(&no)
		require.Equal(t, "403/3", w.upsert(t.Context(), key).code)
		flip(&yes)
		time.Sleep(time.Minute)
		require.Equal(t, []string{west, east, north}, w.must(w.upsert(t.Context(), key)), "what was known before is forgotten")
	})
}

func TestTheFlagTurnsTheBreakersOnToo(t *testing.T) { // cosmos-rust-driver 4.1, other SDKs 3
	s := failingOver(4)
	s.open.Partitions.Failover.Enabled = &no
	inPartitions(t, s, func(t *testing.T, w *placed) {
		key := w.key("1")
		w.warm(key)
		w.sick(cosmostest.Error(503, 0), "1", west)
		w.trip(key)
	})
	s.open.Partitions.Failover.EnabledOverride = &no
	inPartitions(t, s, func(t *testing.T, w *placed) {
		key := w.key("1")
		w.warm(key)
		w.sick(cosmostest.Error(503, 0), "1", west)
		for range 12 {
			w.must(w.get(t.Context(), key))
		}
		require.Zero(t, w.account.Partitions.Tracked())
	})
}

func TestExcludedAndMarkedRegionsComeBeforeAnOverride(t *testing.T) { // R123 with the ruling of rules 6 and 10
	inPartitions(t, failingOver(4), func(t *testing.T, w *placed) {
		key := w.key("1")
		w.warm(key)
		w.moved(key)
		require.Equal(t, "403/3", w.upsert(excluding(t.Context(), north), key).code, "no other region takes it, and none else is asked")
		require.Zero(t, w.data(north))
		require.Equal(t, []string{north}, w.must(w.upsert(t.Context(), key)), "the record stays")

		time.Sleep(10 * time.Second)
		w.forget()
		w.SetOffline(north, cosmostest.Refused)
		require.NotEqual(t, 2, w.upsert(t.Context(), key).status/100)
		require.Equal(t, []string{north}, w.marked())
		w.FailoverPartition("d", "c", "1", west)
		require.Equal(t, []string{west}, w.must(w.upsert(t.Context(), key)), "the mark demotes it")
	})
	inPartitions(t, failingOver(4), func(t *testing.T, w *placed) {
		key := w.key("1")
		w.warm(key)
		w.FailoverPartition("d", "c", "1", north)
		require.Equal(t, []string{west, north}, w.must(w.upsert(excluding(t.Context(), east), key)), "nor does the walk go through it")
		require.Equal(t, []string{north}, w.must(w.upsert(excluding(t.Context(), west, east), key)))
	})
}

func TestChildrenOfASplitInheritWhereTheirParentsWritesGo(t *testing.T) { // rule 9 and 10 at splits, G19
	inPartitions(t, failingOver(4), func(t *testing.T, w *placed) {
		parent := w.key("1")
		w.warm(parent)
		w.moved(parent)
		left, right := w.Split("d", "c", "1")
		keys := []string{w.key(left), w.key(right)}
		for _, key := range keys {
			require.Equal(t, []string{north}, w.must(w.upsert(t.Context(), key)), "before the split is known the parent's record serves")
		}
		time.Sleep(time.Second)
		for i, key := range keys {
			r := w.upsert(t.Context(), key)
			require.Equal(t, []string{north}, w.must(r))
			require.Equal(t, []string{left, right}[i], r.report.Attempts[0].Range)
		}
		time.Sleep(5 * time.Second) // an unexpected range has the ranges read again once in 5 s
		merged := w.Merge("d", "c", left, right)
		require.Equal(t, []string{north}, w.must(w.upsert(t.Context(), keys[0])))
		time.Sleep(time.Second)
		r := w.upsert(t.Context(), keys[0])
		require.Equal(t, []string{north}, w.must(r), "where both parents were")
		require.Equal(t, merged, r.report.Attempts[0].Range)
	})
	inPartitions(t, failingOver(4), func(t *testing.T, w *placed) {
		key := w.key("1")
		w.warm(key)
		w.moved(key)
		merged := w.Merge("d", "c", "1", "2")
		w.FailoverPartition("d", "c", merged, "")
		w.must(w.get(t.Context(), key))
		time.Sleep(time.Second)
		require.Equal(t, []string{west}, w.must(w.upsert(t.Context(), key)), "the parents were apart: dropped")
	})
}

func TestFiftyWritesThatFindAMoveTogetherRecordItOnce(t *testing.T) { // N098
	inPartitions(t, failingOver(4), func(t *testing.T, w *placed) {
		key := w.key("1")
		w.warm(key)
		w.FailoverPartition("d", "c", "1", east)
		w.crowd(50, func(ctx context.Context) { w.must(w.upsert(ctx, key)) })
		require.Len(t, w.events(middleware.OverrideRecorded), 1)
		require.LessOrEqual(t, w.accountReads(), 1)
		require.Equal(t, []string{east}, w.must(w.upsert(t.Context(), key)))
	})
}

func TestALateRefusalOfAnotherRegionDoesNotMoveTheRecord(t *testing.T) { // N099, R041
	inPartitions(t, failingOver(4), func(t *testing.T, w *placed) {
		key := w.key("1")
		w.warm(key)
		w.FailoverPartition("d", "c", "1", east)
		late := w.AddFault(cosmostest.Fault{Match: cosmostest.Match{Region: west, Operations: cosmostest.DataWrites()}, Count: 1, Answer: cosmostest.Answer{Delay: time.Second}})
		done := make(chan result)
		go func() { done <- w.upsert(t.Context(), key) }()
		time.Sleep(100 * time.Millisecond)
		require.Equal(t, 1, late.Hits())
		require.Equal(t, []string{west, east}, w.must(w.upsert(t.Context(), key)))
		w.must(<-done)
		require.Equal(t, []string{east}, w.must(w.upsert(t.Context(), key)))
		require.Len(t, w.events(middleware.OverrideRecorded), 1)
	})
}

func TestWhenTheWholeAccountFailsOverNoRecordHoldsWritesBack(t *testing.T) {
	inPartitions(t, failingOver(8), func(t *testing.T, w *placed) {
		var keys []string
		for _, r := range w.Ranges("d", "c") {
			keys = append(keys, w.key(r.ID))
		}
		w.warm(keys...)
		for _, hub := range []regions.Name{east, west} {
			w.HoldTopology(20 * time.Second) // the service is ahead of its document
			w.SetWriteRegion(string(hub))
			for _, key := range keys {
				w.must(w.upsert(t.Context(), key))
				require.Equal(t, []string{string(hub)}, w.must(w.upsert(t.Context(), key)))
			}
			time.Sleep(30 * time.Second)
			_, err := w.account.Regions.Refresh(t.Context(), w.account.Regions.Topology())
			require.NoError(t, err)
			for _, key := range keys {
				require.Equal(t, []string{string(hub)}, w.must(w.upsert(t.Context(), key)))
			}
		}
	})
}
