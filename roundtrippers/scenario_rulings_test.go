package roundtrippers_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/cosmos"
	"github.com/reroute-go/reroute/middleware/cosmos/cosmostest"
	"github.com/reroute-go/reroute/partitions"
	"github.com/reroute-go/reroute/regions"
)

// Each test shows what the stack does where DESIGN rules otherwise than the
// reference driver.

const hubHeader = "X-Ms-Cosmos-Hub-Region-Processing-Only"

func TestAFailedWriteOfAPartitionThatMovesAloneMarksNothing(t *testing.T) { // R038: the driver holds both marks back; rules 7 and 10 make none
	inPartitions(t, failingOver(4), func(t *testing.T, w *placed) {
		key := w.key("1")
		w.warm(key)
		w.sick(cosmostest.Error(503, 0), "1", west)
		r := w.upsert(t.Context(), key) // east and north refuse it: the partition has not moved
		require.Equal(t, "503", r.code)
		require.Equal(t, []string{west, east, north, west}, w.path())
		require.Empty(t, w.events(middleware.EndpointMarked, middleware.OverrideRecorded, middleware.BreakerOpened))
		require.Empty(t, w.marked())
		require.Zero(t, w.account.Partitions.Tracked())
	})
}

func TestAFailedWriteOfAnAccountWithOneWriteRegionMarksAtOnce(t *testing.T) { // R039: so does the driver; of the partition rules 9 and 10 hold nothing
	inPartitions(t, sixteen, func(t *testing.T, w *placed) {
		key := w.key("1")
		w.warm(key)
		w.AddFault(cosmostest.Fault{Match: cosmostest.Match{Region: west, Operations: cosmostest.DataWrites()}, Count: 1, Answer: cosmostest.Error(503, 0)})
		r := w.upsert(t.Context(), key)
		require.Equal(t, []string{west, west}, w.must(r))
		var told []middleware.EventKind
		for _, e := range w.events(middleware.AttemptStarted, middleware.EndpointMarked) {
			told = append(told, e.Kind)
		}
		require.Equal(t, []middleware.EventKind{middleware.AttemptStarted, middleware.EndpointMarked, middleware.AttemptStarted}, told,
			"before anything shows that another region would take it")
		require.Zero(t, w.account.Partitions.Tracked())
	})
}

func TestFailuresOfARegionThatHasLeftTheAccountMoveNoPartition(t *testing.T) { // R109
	s := sixteen
	s.open = cosmos.Options{PreferredRegions: []regions.Name{north}}
	inPartitions(t, s, func(t *testing.T, w *placed) {
		key := w.key("1")
		w.warm(key)
		w.AddFault(cosmostest.Fault{Match: cosmostest.Match{Region: north, Operations: cosmostest.DataReads()},
			Answer: cosmostest.Answer{Status: 503, Delay: 5 * time.Second}})
		time.AfterFunc(time.Second, func() {
			w.RemoveRegion(north)
			_, err := w.account.Regions.Refresh(t.Context(), w.account.Regions.Topology())
			require.NoError(t, err)
		})
		w.crowd(20, func(ctx context.Context) { require.Equal(t, []string{north, west}, w.must(w.get(ctx, key))) })
		require.Len(t, w.account.Regions.Topology().Reads, 2)

		r := w.get(t.Context(), key)
		require.Equal(t, []string{west}, w.must(r), "those that are left are in their usual order")
		require.False(t, r.report.Attempts[0].Override)
		w.sick(cosmostest.Error(503, 0), "1", west)
		require.Equal(t, []string{west, east}, w.must(w.get(t.Context(), key)))
	})
}

func TestAReadThatReturns410OnceSucceeds(t *testing.T) { // R159
	for name, answer := range map[string]cosmostest.Answer{"410": cosmostest.Error(410, 0), "410/1022": cosmostest.Error(410, 1022), "410/1002": cosmostest.Error(410, 1002)} {
		t.Run(name, func(t *testing.T) {
			accounts(t, func(t *testing.T, multi bool) {
				s := sixteen
				s.sim.MultiWrite = multi
				inPartitions(t, s, func(t *testing.T, w *placed) {
					key := w.key("1")
					w.warm(key)
					w.once(answer)
					r := w.get(t.Context(), key)
					require.Len(t, w.must(r), 2)
					require.Equal(t, name, r.report.Attempts[0].Code)
				})
			})
		})
	}
}

func TestALaggingReadGoesToTheHubWithoutAHeaderAndNothingIsKept(t *testing.T) { // R022, R124: rule 12 leaves the hub header, and the cache of hubs that it feeds, out
	s := failingOver(4)
	s.open = preferEast
	inPartitions(t, s, func(t *testing.T, w *placed) {
		key := w.key("1")
		w.warm(key)
		lagging := cosmostest.Match{Region: east, Operations: append(cosmostest.DataReads(), cosmostest.ReadContainer)}
		for _, read := range []func() result{
			func() result { return w.get(t.Context(), key) },
			func() result { return w.send(t.Context(), http.MethodGet, "/dbs/d/colls/c", "") },
		} {
			w.AddFault(cosmostest.Fault{Match: lagging, Count: 1, Answer: cosmostest.Error(404, 1002)})
			require.Equal(t, []string{east, west}, w.must(read()), "one send more, not three")
			require.Equal(t, []string{east}, w.must(read()), "the next one begins at home")
		}
		for _, r := range w.Requests(cosmostest.Match{}) {
			require.NotContains(t, r.Header, hubHeader)
		}
		_, kept := w.account.Partitions.Override(partitionOf(t, w, key))
		require.False(t, kept)
	})
}

func partitionOf(t *testing.T, w *placed, key string) partitions.Partition {
	t.Helper()
	found, err := w.account.Partitions.Resolve(t.Context(), "dbs/d/colls/c", quoted(key))
	require.NoError(t, err)
	require.Equal(t, w.rangeOf(key), found.Partition.Range)
	return found.Partition
}
