package roundtrippers_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/cosmos/cosmostest"
	"github.com/reroute-go/reroute/roundtrippers"
)

var yes, no = true, false

// failingOver is an account whose partitions can fail over alone.
func failingOver(ranges int) setup {
	return setup{sim: cosmostest.Config{Ranges: ranges, PartitionFailover: &yes}}
}

func TestAPartitionWhoseWritesMovedIsFoundAndRemembered(t *testing.T) { // R121, R122, N101, N102, DESIGN rule 10
	inPartitions(t, failingOver(4), func(t *testing.T, w *placed) {
		moved, other := w.key("1"), w.key("2")
		w.warm(moved, other)
		w.FailoverPartition("d", "c", "1", north)

		first := w.upsert(t.Context(), moved)
		require.Equal(t, []string{west, east, north}, w.must(first), "it walks through the regions that serve reads")
		require.Equal(t, "1", first.report.Attempts[2].Range)
		recorded := w.events(middleware.OverrideRecorded)
		require.Len(t, recorded, 1)
		require.EqualValues(t, north, recorded[0].Region)
		require.Equal(t, "1", recorded[0].Range)

		for range 3 {
			next := w.upsert(t.Context(), moved)
			require.Equal(t, []string{north}, w.must(next), "the region that confirmed, in one send")
			require.True(t, next.report.Attempts[0].Override)
		}
		require.Len(t, w.events(middleware.OverrideRecorded), 1, "known already")
		require.Equal(t, []string{west}, w.must(w.upsert(t.Context(), other)), "its neighbours stay at home, in one send")
		require.Equal(t, []string{west}, w.must(w.get(t.Context(), moved)), "so do its reads")
		require.Empty(t, w.marked(), "one partition's move says nothing of the endpoints")

		time.Sleep(24 * time.Hour)
		require.Equal(t, []string{north}, w.must(w.upsert(t.Context(), moved)), "no failback by time")
	})
}

var _ = http.MethodGet
var _ = roundtrippers.Builder{}
