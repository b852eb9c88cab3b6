package roundtrippers_test

import (
	"context"
	"net/http"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/cosmos/cosmostest"
)

const rangeHeader = "X-Ms-Documentdb-Partitionkeyrangeid"

// query sends a query; headers come last.
func (w *placed) query(ctx context.Context, headers ...string) result {
	return w.send(ctx, http.MethodPost, items, `{"query":"SELECT * FROM c"}`, append([]string{keyHeader, "",
		"Content-Type", "application/query+json", "X-Ms-Documentdb-Isquery", "True", "X-Ms-Documentdb-Query-Enablecrosspartition", "True"}, headers...)...)
}

func TestOperationsGoOnWithoutTheirPartition(t *testing.T) { // R157
	inPartitions(t, sixteen, func(t *testing.T, w *placed) {
		w.forget()
		w.AddFault(cosmostest.Fault{Match: cosmostest.Match{Operations: rangeFeed}, Answer: cosmostest.Error(503, 0)})
		for range 200 {
			r := w.upsert(t.Context(), "k0")
			require.Equal(t, []string{west}, w.must(r))
			require.Empty(t, r.report.Attempts[0].Range)
			require.Zero(t, r.took)
			time.Sleep(50 * time.Millisecond)
		}
		require.LessOrEqual(t, w.rangeReads(""), 3*(4+10), "three regions each time: four times, then once in a second")
		require.Empty(t, w.marked(), "reads of ranges judge no endpoint that answers")
	})
}

func TestRangesThatCouldNotBeReadAreReadLater(t *testing.T) { // R158
	inPartitions(t, sixteen, func(t *testing.T, w *placed) {
		w.forget()
		for _, region := range w.Regions() {
			w.AddFault(cosmostest.Fault{Match: cosmostest.Match{Region: region, Operations: rangeFeed}, Count: 3, Answer: cosmostest.Error(503, 0)})
		}
		for i := range 4 {
			r := w.upsert(t.Context(), "k0")
			require.Equal(t, []string{west}, w.must(r))
			require.Equal(t, i == 3, r.report.Attempts[0].Range == w.rangeOf("k0"))
		}
	})
}

func TestRangesAreReadInTheNextRegion(t *testing.T) {
	inPartitions(t, sixteen, func(t *testing.T, w *placed) {
		w.forget()
		w.AddFault(cosmostest.Fault{Match: cosmostest.Match{Region: west, Operations: rangeFeed}, Answer: cosmostest.Error(503, 0)})
		require.Equal(t, w.rangeOf("k0"), w.upsert(t.Context(), "k0").report.Attempts[0].Range)
		require.Equal(t, 2, w.rangeReads(east), "its pages all come from there")
	})
}

func TestAReadOfRangesThatHangsIsWaitedForOnceAndShortly(t *testing.T) { // R157, Options.Partitions.RefreshWait
	inPartitions(t, sixteen, func(t *testing.T, w *placed) {
		w.forget()
		w.AddFault(cosmostest.Fault{Match: cosmostest.Match{Operations: rangeFeed}, Answer: cosmostest.Answer{Hang: true}})
		w.crowd(50, func(ctx context.Context) {
			r := w.upsert(ctx, "k0")
			require.Equal(t, []string{west}, w.must(r))
			require.Equal(t, 2*time.Second, r.took)
		})
		r := w.upsert(t.Context(), "k0")
		require.Equal(t, []string{west}, w.must(r))
		require.Zero(t, r.took)
		require.Equal(t, 1, w.rangeReads(""))
	})
}

func TestAReadOfRangesThatHangsDoesNotEatADeadline(t *testing.T) {
	inPartitions(t, sixteen, func(t *testing.T, w *placed) {
		w.forget()
		w.AddFault(cosmostest.Fault{Match: cosmostest.Match{Operations: rangeFeed}, Answer: cosmostest.Answer{Hang: true}})
		for range 20 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			require.Equal(t, []string{west}, w.must(w.upsert(ctx, "k0")), "half of its time is left for the operation")
			cancel()
			time.Sleep(300 * time.Millisecond)
		}
	})
}

func TestARefreshThatHangsDoesNotEatADeadline(t *testing.T) {
	inPartitions(t, named(4), func(t *testing.T, w *placed) {
		key := w.key("1")
		w.warm(key)
		w.AddFault(cosmostest.Fault{Match: cosmostest.Match{Operations: rangeFeed}, Answer: cosmostest.Answer{Hang: true}})
		w.AddFault(cosmostest.Fault{Match: cosmostest.Match{Operations: cosmostest.Data()}, Count: 1, Answer: cosmostest.Error(410, 1002)})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		r := w.get(ctx, key)
		require.Equal(t, []string{west, west}, w.must(r))
		require.Equal(t, 500*time.Millisecond, r.took)
	})
}

func TestAThousandOperationsWithAStaleMapCostOneRead(t *testing.T) { // DESIGN section 5
	inPartitions(t, named(4), func(t *testing.T, w *placed) {
		key := w.key("1")
		w.warm(key)
		left, right := w.Split("d", "c", "1")
		w.crowd(1000, func(ctx context.Context) {
			r := w.get(ctx, key)
			require.Equal(t, []string{west, west}, w.must(r))
			require.Contains(t, []string{left, right}, r.report.Attempts[1].Range)
		})
		require.Equal(t, 1, w.walks())
		refreshed := w.events(middleware.RangesRefreshed)
		require.Len(t, refreshed, 1000)
		require.NoError(t, refreshed[0].Err)
		require.Equal(t, "1", refreshed[0].Range)
		require.Equal(t, 1, refreshed[0].Attempt)
	})
}

func TestAnAnswerFromAnotherRangeHasTheRangesReadInTheBackground(t *testing.T) { // N130, N133
	inPartitions(t, sixteen, func(t *testing.T, w *placed) { // names no range: the service finds it by the key
		key := w.key("1")
		w.warm(key)
		w.Split("d", "c", "1")
		r := w.get(t.Context(), key)
		require.Equal(t, []string{west}, w.must(r))
		require.Equal(t, "1", r.report.Attempts[0].Range)
		require.Zero(t, r.took)
		time.Sleep(200 * time.Millisecond)
		require.Equal(t, 1, w.walks())
		require.Equal(t, w.rangeOf(key), w.get(t.Context(), key).report.Attempts[0].Range)
	})
}

func TestARequestThatNamesItsRangeIsWatchedByThatRange(t *testing.T) { // G21: queries and change feeds of an SDK
	for name, id := range map[string]string{"an id": "1", "an id after the container's rid": "rid==,1"} {
		t.Run(name, func(t *testing.T) {
			inPartitions(t, sixteen, func(t *testing.T, w *placed) {
				w.warm(w.key("1"))
				w.AddFault(cosmostest.Fault{Match: cosmostest.Match{Region: west, Operations: cosmostest.Data(), Header: map[string]string{rangeHeader: id}}, Answer: cosmostest.Error(503, 0)})
				w.AddFault(cosmostest.Fault{Match: cosmostest.Match{Region: east, Operations: cosmostest.Data(), Header: map[string]string{rangeHeader: id}}, Answer: cosmostest.Error(200, 0)})
				for range 10 {
					require.Equal(t, []string{west, east}, w.must(w.query(t.Context(), rangeHeader, id)))
				}
				r := w.query(t.Context(), rangeHeader, id)
				require.Equal(t, []string{east}, w.must(r))
				require.Equal(t, "1", r.report.Attempts[0].Range)
				require.Equal(t, []string{west}, w.must(w.query(t.Context(), rangeHeader, "2")))
			})
		})
	}
}

func TestARangeThatIsGoneIsTheCallersToReplace(t *testing.T) { // 410/1002 to a request that names it
	inPartitions(t, sixteen, func(t *testing.T, w *placed) {
		key := w.key("1")
		w.warm(key)
		left, _ := w.Split("d", "c", "1")
		r := w.query(t.Context(), rangeHeader, "1")
		require.Equal(t, "410/1002", r.code)
		time.Sleep(200 * time.Millisecond)
		require.Equal(t, 1, w.walks(), "but the ranges are read")
		require.Contains(t, w.unresolvedNow(func() { r = w.query(t.Context(), rangeHeader, "1") }).Error(), "split or merged")
		require.Equal(t, "410/1002", r.code)
		ok := w.query(t.Context(), rangeHeader, left)
		require.Equal(t, []string{west}, w.must(ok))
		require.Equal(t, left, ok.report.Attempts[0].Range)

		time.Sleep(10 * time.Second)
		w.forget()
		require.Equal(t, "410/1002", w.query(t.Context(), rangeHeader, "4711").code)
		require.Equal(t, 1, w.walks(), "an id nobody knows may be new")
		for range 20 {
			require.Equal(t, "410/1002", w.query(t.Context(), rangeHeader, "4712").code)
		}
		require.Equal(t, 1, w.walks(), "but not twenty times")
	})
}

// unresolvedNow is the error of the lookup in do.
func (w *placed) unresolvedNow(do func()) error {
	w.t.Helper()
	w.forget()
	do()
	errs := w.unresolved()
	require.NotEmpty(w.t, errs)
	return errs[0]
}

func TestARequestToAllPartitionsNeedsNoRanges(t *testing.T) {
	inPartitions(t, sixteen, func(t *testing.T, w *placed) {
		w.forget()
		r := w.query(t.Context())
		require.Equal(t, []string{west}, w.must(r))
		require.Empty(t, r.report.Attempts[0].Range)
		require.Zero(t, w.rangeReads("")+w.Sends("", cosmostest.ReadContainer))
		w.once(cosmostest.Error(410, 1002))
		w.must(w.query(t.Context()))
		require.Empty(t, w.events(middleware.RangesRefreshed), "there was none to be stale")
		require.Zero(t, w.rangeReads(""))
	})
}

func TestEachKindOfRequestFindsItsPartition(t *testing.T) {
	inPartitions(t, sixteen, func(t *testing.T, w *placed) {
		key := w.key("3")
		w.warm(key)
		batch := `[{"operationType":"Upsert","resourceBody":{"id":"b","pk":"` + key + `"}}]`
		for name, do := range map[string]func() result{
			"read":      func() result { return w.get(t.Context(), key) },
			"upsert":    func() result { return w.upsert(t.Context(), key) },
			"query":     func() result { return w.query(t.Context(), keyHeader, quoted(key)) },
			"read many": func() result { return w.query(t.Context(), rangeHeader, "3") },
			"list":      func() result { return w.send(t.Context(), http.MethodGet, items, "", keyHeader, quoted(key)) },
			"feed": func() result {
				return w.send(t.Context(), http.MethodGet, items, "", keyHeader, quoted(key), "A-Im", "Incremental feed")
			},
			"range feed": func() result {
				return w.send(t.Context(), http.MethodGet, items, "", keyHeader, "", rangeHeader, "3", "A-Im", "Incremental feed")
			},
			"sproc": func() result { return w.send(t.Context(), http.MethodPost, sproc, "[]", keyHeader, quoted(key)) },
			"batch": func() result {
				return w.send(t.Context(), http.MethodPost, items, batch, keyHeader, quoted(key), "X-Ms-Cosmos-Is-Batch-Request", "True", "X-Ms-Cosmos-Batch-Atomic", "True")
			},
		} {
			r := do()
			require.Equal(t, []string{west}, w.must(r), name)
			require.Equal(t, "3", r.report.Attempts[0].Range, name)
		}
	})
}

func TestAKeyThatIsNoneIsTheServicesToRefuse(t *testing.T) {
	inPartitions(t, sixteen, func(t *testing.T, w *placed) {
		w.warm(w.key("1"))
		for _, key := range []string{`junk`, `["a"`, `["a","b"]`, `[1e400]`, `[NaN]`} {
			r := w.send(t.Context(), http.MethodGet, items+"/i", "", keyHeader, key)
			require.Equal(t, 400, r.status, key)
			require.Equal(t, 1, r.report.Sends)
		}
		require.Zero(t, w.rangeReads(""))
	})
}

func TestAPrefixOfAHierarchicalKeyMayBelongToSeveral(t *testing.T) { // R156
	inPartitions(t, setup{}, func(t *testing.T, w *placed) {
		w.CreateContainer("d", "deep", cosmostest.Container{Paths: []string{"/tenant", "/user"}, Ranges: 1})
		list := func(key string) result {
			return w.send(t.Context(), http.MethodPost, "/dbs/d/colls/deep/docs", `{"query":"SELECT * FROM c"}`, keyHeader, key,
				"Content-Type", "application/query+json", "X-Ms-Documentdb-Isquery", "True")
		}
		require.Equal(t, "0", list(`["t"]`).report.Attempts[0].Range)
		require.Equal(t, "0", list(`["t","u"]`).report.Attempts[0].Range)
	})
}

// rids is a layer that notes the container that each attempt was placed in.
type rids struct {
	mu   sync.Mutex
	seen []string
}

func (r *rids) layer() middleware.Layer {
	return middleware.LayerFunc(func(next http.RoundTripper) http.RoundTripper {
		return middleware.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
			r.mu.Lock()
			r.seen = append(r.seen, middleware.FromContext(req.Context()).Placement().Partition.Container)
			r.mu.Unlock()
			return next.RoundTrip(req)
		})
	})
}

func TestAContainerThatWasMadeAnewIsLearnt(t *testing.T) { // 410/1000, 400/1001, 400/1024, 404/1003
	for name, row := range map[string]struct {
		answer    cosmostest.Answer
		transient bool
	}{
		"410/1000": {cosmostest.Error(410, 1000), true}, "400/1001": {cosmostest.Error(400, 1001), false},
		"400/1024": {cosmostest.Error(400, 1024), false}, "404/1003": {cosmostest.Error(404, 1003), false},
	} {
		t.Run(name, func(t *testing.T) {
			s := sixteen
			var seen rids
			s.stack.PerAttempt = []middleware.Layer{seen.layer()}
			inPartitions(t, s, func(t *testing.T, w *placed) {
				w.warm("k0")
				require.Equal(t, 204, w.send(t.Context(), http.MethodDelete, "/dbs/d/colls/c", "").status)
				w.CreateContainer("d", "c", cosmostest.Container{Ranges: 3})
				w.once(row.answer)
				r := w.upsert(t.Context(), "k0")
				if row.transient {
					require.Equal(t, []string{west, west}, w.must(r), "read anew and sent again")
				} else {
					require.Equal(t, name, r.code, "final all the same")
					time.Sleep(200 * time.Millisecond)
					w.must(w.upsert(t.Context(), "k0"))
				}
				last := len(seen.seen) - 1
				require.NotEqual(t, seen.seen[0], seen.seen[last])
				r = w.get(t.Context(), "k0")
				require.Equal(t, w.rangeOf("k0"), r.report.Attempts[0].Range)
			})
		})
	}
}

func TestBreakersOfRangesThatSplitAwayAreDropped(t *testing.T) { // rule 9, G19
	inPartitions(t, named(4), func(t *testing.T, w *placed) {
		key := w.key("1")
		w.warm(key)
		w.sick(cosmostest.Error(503, 0), "1", west)
		w.trip(key)
		require.NotZero(t, w.account.Partitions.Tracked())
		w.Split("d", "c", "1")
		r := w.get(t.Context(), key)
		require.Equal(t, []string{east, west}, w.must(r), "the child begins anew")
		require.Zero(t, w.account.Partitions.Tracked())
	})
}

func TestAnAccountsRegistryServesSeveralStacks(t *testing.T) {
	inPartitions(t, sixteen, func(t *testing.T, w *placed) {
		key := w.key("1")
		w.warm(key)
		w.sick(cosmostest.Error(503, 0), "1", west)
		w.trip(key)
		w.rt = w.stack(setup{})
		require.Equal(t, []string{east}, w.must(w.get(t.Context(), key)))
	})
}

func TestContainersOfAnyNameAreResolved(t *testing.T) {
	inPartitions(t, setup{}, func(t *testing.T, w *placed) {
		for _, name := range []string{"with space", "100%", "größe", "a+b", "docs"} {
			w.CreateContainer("d b", name, cosmostest.Container{Ranges: 4})
			r := w.send(t.Context(), http.MethodPost, "/dbs/d%20b/colls/"+url.PathEscape(name)+"/docs", document("i"), "X-Ms-Documentdb-Is-Upsert", "True")
			require.Equal(t, []string{west}, w.must(r), name)
			require.Equal(t, w.RangeOf("d b", name, quoted("p")), r.report.Attempts[0].Range, name)
		}
	})
}

func TestAContainerThatStaysStaleIsNotWaitedFor(t *testing.T) { // 410/1000: once anew, then the failover's three
	inPartitions(t, sixteen, func(t *testing.T, w *placed) {
		w.warm("k0")
		w.fail(cosmostest.Error(410, 1000))
		r := w.get(t.Context(), "k0")
		require.Equal(t, "410/1000", r.code)
		require.Equal(t, 5, r.report.Sends)
		require.Less(t, r.took, time.Second)
	})
}
