package roundtrippers_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/cosmos/cosmostest"
)

const keyHeader = "X-Ms-Documentdb-Partitionkey"

// placed is a world whose stack knows the partitions of its containers.
type placed struct {
	*world
	mu   sync.Mutex
	told []middleware.Event
}

// inPartitions runs a scenario in virtual time over the stack that a user of an Account has, partitions included.
func inPartitions(t *testing.T, s setup, scenario func(t *testing.T, w *placed)) {
	t.Helper()
	inWorld(t, s, func(t *testing.T, bare *world) {
		w := &placed{world: bare}
		w.rt = w.stack(s)
		scenario(t, w)
	})
}

// stack builds another stack over the same account and wire.
func (w *placed) stack(s setup) http.RoundTripper {
	b := s.stack
	b.Dialect, b.Regions, b.Partitions, b.Base = w.account, w.account.Regions, w.account.Partitions, w.wire
	b.Observe = func(_ context.Context, e middleware.Event) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.told = append(w.told, e)
	}
	rt, err := b.Build()
	require.NoError(w.t, err)
	return rt
}

// forget starts counting, and listening, anew.
func (w *placed) forget() {
	w.t.Helper()
	w.world.forget()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.told = nil
}

// events lists what was told of some kinds.
func (w *placed) events(kinds ...middleware.EventKind) (out []middleware.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.told {
		if slices.Contains(kinds, e.Kind) {
			out = append(out, e)
		}
	}
	return out
}

// key finds a partition key of the range.
func (w *placed) key(rangeID string) string {
	w.t.Helper()
	for i := range 100_000 {
		if key := fmt.Sprint("k", i); w.rangeOf(key) == rangeID {
			return key
		}
	}
	w.t.Fatalf("no key of range %q", rangeID)
	return ""
}

func (w *placed) rangeOf(key string) string { return w.RangeOf("d", "c", quoted(key)) }

func quoted(key string) string { return fmt.Sprintf("[%q]", key) }

// upsert writes item "i" of a key.
func (w *placed) upsert(ctx context.Context, key string) result {
	return w.send(ctx, http.MethodPost, items, fmt.Sprintf(`{"id":"i","pk":%q}`, key), keyHeader, quoted(key), "X-Ms-Documentdb-Is-Upsert", "True")
}

// get reads item "i" of a key.
func (w *placed) get(ctx context.Context, key string) result {
	return w.send(ctx, http.MethodGet, items+"/i", "", keyHeader, quoted(key))
}

// warm writes item "i" of each key, and reads it, so that the container's ranges are known.
func (w *placed) warm(keys ...string) {
	w.t.Helper()
	for _, key := range keys {
		require.Equal(w.t, 2, w.upsert(w.t.Context(), key).status/100)
		require.Equal(w.t, 200, w.get(w.t.Context(), key).status)
	}
	w.forget()
}

// must tells what an operation that succeeds went through: the regions, in order.
func (w *placed) must(r result) []string {
	w.t.Helper()
	require.NoError(w.t, r.err)
	require.Equal(w.t, 2, r.status/100, "%s", r.report)
	var path []string
	for _, a := range r.report.Attempts {
		path = append(path, string(a.Region))
	}
	return path
}

// sick has a range fail in some regions, and nowhere else.
func (w *placed) sick(answer cosmostest.Answer, rangeID string, names ...string) (faults handles) {
	for _, name := range names {
		faults = append(faults, w.AddFault(cosmostest.Fault{
			Match: cosmostest.Match{Region: name, Operations: cosmostest.Data(), Container: "c", Range: rangeID}, Answer: answer}))
	}
	return faults
}

type handles []*cosmostest.FaultHandle

func (h handles) heal() {
	for _, f := range h {
		f.Remove()
	}
}

// rangeReads counts the requests for the feed of ranges.
func (w *placed) rangeReads(region string) int { return w.Sends(region, cosmostest.ReadRanges) }

// walks counts how often the feed of ranges was read to its end.
func (w *placed) walks() (n int) {
	for _, r := range w.Requests(cosmostest.Match{Operations: []cosmostest.Operation{cosmostest.ReadRanges}}) {
		if r.Status == http.StatusNotModified {
			n++
		}
	}
	return n
}

// naming is a layer that puts the range which was resolved on the wire, as a direct client would, so that the service
// checks each lookup: it answers 410/1002 where the key is not in the range.
var naming = middleware.LayerFunc(func(next http.RoundTripper) http.RoundTripper {
	return middleware.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
		id := middleware.FromContext(req.Context()).Placement().Partition.Range
		if id == "" || req.Header.Get("X-Ms-Documentdb-Partitionkeyrangeid") != "" {
			return next.RoundTrip(req)
		}
		named := *req
		named.Header = req.Header.Clone()
		named.Header.Set("X-Ms-Documentdb-Partitionkeyrangeid", id)
		return next.RoundTrip(&named)
	})
})
