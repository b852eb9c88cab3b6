package roundtrippers_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/cosmos"
	"github.com/reroute-go/reroute/middleware/cosmos/cosmostest"
	"github.com/reroute-go/reroute/partitions"
)

// Each test shows one gap of pkrange-gaps.md: first what a client with the gap does, then what the stack does.

const pkranges = "/dbs/d/colls/c/pkranges"

var rangeFeed = []cosmostest.Operation{cosmostest.ReadRanges}

// naiveReader reads ranges as a client with the gaps does.
type naiveReader struct {
	w      *placed
	cached *partitions.Map
}

// page asks one region for all ranges.
func (n *naiveReader) page(region string) (status int, ranges []partitions.Range) {
	req, err := http.NewRequest(http.MethodGet, n.w.RegionEndpoint(region)+pkranges, nil)
	require.NoError(n.w.t, err)
	resp, err := n.w.Client().Do(req)
	require.NoError(n.w.t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(n.w.t, err)
	if resp.StatusCode == http.StatusOK {
		ranges, err = partitions.DecodeRanges(bytes.NewReader(body))
		require.NoError(n.w.t, err)
	}
	return resp.StatusCode, ranges
}

// lookup finds the range of a key. What cannot be read, or is not complete, is cached as an empty map.
func (n *naiveReader) lookup(key string) (id string) {
	if n.cached == nil {
		n.cached = new(partitions.Map)
		for _, region := range n.w.Regions() {
			status, ranges := n.page(region)
			if status == 429 {
				continue // gap 1
			}
			if m, err := partitions.NewMap(ranges); err == nil {
				n.cached = m
			}
			break
		}
	}
	span, err := partitions.Definition{Version: 2}.Span(quoted(key))
	require.NoError(n.w.t, err)
	if i, ok := n.cached.Find(span.Min); ok {
		return n.cached.ID(i)
	}
	return ""
}

// unresolved are the errors of lookups that failed.
func (w *placed) unresolved() (errs []error) {
	for _, e := range w.events(middleware.RangesRefreshed) {
		if e.Err != nil {
			errs = append(errs, e.Err)
		}
	}
	return errs
}

func TestGap1AThrottledReadOfRangesWaitsInItsRegion(t *testing.T) {
	inPartitions(t, sixteen, func(t *testing.T, w *placed) {
		w.forget()
		throttle := w.AddFault(cosmostest.Fault{Match: cosmostest.Match{Region: west, Operations: rangeFeed}, Count: 4, Answer: cosmostest.Throttled(400 * time.Millisecond)})
		require.NotEmpty(t, (&naiveReader{w: w}).lookup("k0"))
		require.Equal(t, 1, w.rangeReads(east), "the harm: the load moves on to the next region")
		w.forget()

		r := w.upsert(t.Context(), "k0")
		require.Equal(t, w.rangeOf("k0"), r.report.Attempts[0].Range, "it was worth the wait")
		require.InDelta(t, 1200, r.took.Milliseconds(), 50, "three more times 400 ms, as the service wishes")
		require.Equal(t, 4, throttle.Hits())
		require.Zero(t, w.rangeReads(east)+w.rangeReads(north))
		require.Equal(t, 3+2, w.rangeReads(west))
	})
}

func TestGap1OnlyASpentThrottleBudgetGoesToAnotherRegion(t *testing.T) {
	inPartitions(t, sixteen, func(t *testing.T, w *placed) {
		w.forget()
		w.AddFault(cosmostest.Fault{Match: cosmostest.Match{Region: west, Operations: rangeFeed}, Answer: cosmostest.Throttled(3 * time.Second)})
		r := w.upsert(t.Context(), "k0")
		require.Equal(t, []string{west}, w.must(r))
		require.Empty(t, r.report.Attempts[0].Range)
		require.InDelta(t, 2000, r.took.Milliseconds(), 50, "nobody waits for all of it")
		time.Sleep(20 * time.Second)
		require.Zero(t, w.rangeReads(east))
		time.Sleep(10 * time.Second)
		require.Equal(t, 10, w.rangeReads(west), "nine retries, 27 s")
		require.Equal(t, 2, w.rangeReads(east))
		require.Equal(t, w.rangeOf("k0"), w.get(t.Context(), "k0").report.Attempts[0].Range)
	})
}

func TestGap1AGlobalThrottleGoesToAnotherRegionAtOnce(t *testing.T) { // 429/3092
	inPartitions(t, sixteen, func(t *testing.T, w *placed) {
		w.forget()
		w.AddFault(cosmostest.Fault{Match: cosmostest.Match{Region: west, Operations: rangeFeed}, Answer: cosmostest.Error(429, 3092)})
		r := w.upsert(t.Context(), "k0")
		require.Equal(t, w.rangeOf("k0"), r.report.Attempts[0].Range)
		require.Zero(t, r.took)
		require.Equal(t, 1, w.rangeReads(west))
	})
}

func TestGap2AFeedInTheMiddleOfASplitIsReadAgainInTheSameCall(t *testing.T) { // N122, B77
	inPartitions(t, sixteen, func(t *testing.T, w *placed) {
		w.forget()
		key := w.key("0")
		change := w.BeginSplit("d", "c", "1")
		change.PublishHalf()
		naive := &naiveReader{w: w}
		require.Empty(t, naive.lookup(key))
		time.AfterFunc(250*time.Millisecond, func() { change.Complete() })
		w.forget()

		r := w.upsert(t.Context(), key)
		require.Equal(t, "0", r.report.Attempts[0].Range, "the call itself finds its partition")
		require.InDelta(t, 300, r.took.Milliseconds(), 10, "read again after 100 and 200 ms")
		require.Equal(t, 3, w.walks())
		require.Empty(t, w.unresolved())

		require.Empty(t, naive.lookup(key), "the harm: the empty map is cached, though all is well")
		require.Equal(t, "0", w.get(t.Context(), key).report.Attempts[0].Range)
	})
}

func TestGap2ARefreshInTheMiddleOfASplitKeepsTheOldMap(t *testing.T) {
	inPartitions(t, named(16), func(t *testing.T, w *placed) {
		other, key := w.key("0"), w.key("1")
		w.warm(other, key)
		change := w.BeginSplit("d", "c", "1")
		change.PublishHalf()
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		require.Equal(t, "410/1007", w.get(ctx, key).code)
		require.NotEmpty(t, w.unresolved(), "the refresh could not do it in the time there was")
		r := w.get(t.Context(), other)
		require.Equal(t, "0", r.report.Attempts[0].Range)
		require.Zero(t, r.took, "nobody else waits or loses his map")
		change.Complete()
		r = w.get(t.Context(), key)
		w.must(r)
		require.Equal(t, w.rangeOf(key), r.report.Attempts[r.report.Sends-1].Range)
	})
}

func TestGap2WhatIsWrongWithTheRangesIsToldAndNothingStored(t *testing.T) {
	page := func(ranges ...string) string {
		var b bytes.Buffer
		for i, r := range ranges {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(r)
		}
		return `{"_rid":"x","PartitionKeyRanges":[` + b.String() + `]}`
	}
	entry := func(id, low, high string) string {
		return fmt.Sprintf(`{"id":%q,"minInclusive":%q,"maxExclusive":%q}`, id, low, high)
	}
	for name, row := range map[string]struct {
		body string
		want error
	}{
		"gap":       {page(entry("0", "", "1F"), entry("1", "2F", "FF")), partitions.ErrGap},
		"overlap":   {page(entry("0", "", "2F"), entry("1", "1F", "FF")), partitions.ErrOverlap},
		"duplicate": {page(entry("0", "", "1F"), entry("0", "1F", "FF")), partitions.ErrDuplicateRange},
		"empty":     {page(), partitions.ErrNoRanges},
	} {
		t.Run(name, func(t *testing.T) {
			inPartitions(t, sixteen, func(t *testing.T, w *placed) {
				w.forget()
				fault := w.AddFault(cosmostest.Fault{Match: cosmostest.Match{Operations: rangeFeed}, Answer: cosmostest.Answer{Status: 200, Body: row.body, Header: map[string]string{"Etag": `"e"`}}})
				r := w.upsert(t.Context(), "k0")
				require.Equal(t, []string{west}, w.must(r))
				require.Empty(t, r.report.Attempts[0].Range)
				require.NotEmpty(t, w.unresolved())
				for _, err := range w.unresolved() {
					require.ErrorIs(t, err, row.want)
				}
				fault.Remove()
				time.Sleep(2 * time.Second)
				require.Equal(t, w.rangeOf("k0"), w.get(t.Context(), "k0").report.Attempts[0].Range, "read anew")
			})
		})
	}
}

func TestGap3AReadOfRangesThatLagsTheSessionSaysSo(t *testing.T) {
	inPartitions(t, sixteen, func(t *testing.T, w *placed) {
		w.forget()
		lag := w.AddFault(cosmostest.Fault{Match: cosmostest.Match{Operations: rangeFeed}, Answer: cosmostest.Error(404, 1002)})
		status, _ := (&naiveReader{w: w}).page(west)
		require.Equal(t, 404, status, "the harm: whoever looks at the status alone takes the container for missing")

		seen, err := w.account.Partitions.Resolve(t.Context(), "dbs/d/colls/c", quoted("k0"))
		var told *partitions.SourceError
		require.ErrorAs(t, err, &told)
		require.Equal(t, partitions.SessionUnavailable, told.Kind)
		var said *cosmos.FetchError
		require.ErrorAs(t, err, &said)
		require.Equal(t, [2]int{404, 1002}, [2]int{said.Status, said.Substatus})
		require.Empty(t, seen.Partition)

		w.forget()
		require.Equal(t, []string{west}, w.must(w.upsert(t.Context(), "k0")), "no reason not to serve")
		require.Len(t, w.unresolved(), 1)
		require.ErrorAs(t, w.unresolved()[0], &told)
		lag.Remove()
		require.Equal(t, w.rangeOf("k0"), w.get(t.Context(), "k0").report.Attempts[0].Range, "and it is not remembered")
	})
}

func TestGap4AMissingContainerIsAskedForOnceInTenSeconds(t *testing.T) { // G11
	inPartitions(t, sixteen, func(t *testing.T, w *placed) {
		w.forget()
		reads := func() int { return w.Sends("", cosmostest.ReadRanges, cosmostest.ReadContainer) }
		read := func() result {
			return w.send(t.Context(), http.MethodGet, "/dbs/d/colls/missing/docs/i", "", keyHeader, quoted("k0"))
		}
		for range 1000 {
			require.Equal(t, "404/1003", read().code)
			time.Sleep(10 * time.Millisecond)
		}
		require.LessOrEqual(t, reads(), 2, "the harm is a thousand: nobody else remembers (other-sdks 6.5)")

		read()
		w.forget()
		seen, err := w.account.Partitions.Resolve(t.Context(), "dbs/d/colls/missing", quoted("k0"))
		require.Error(t, err)
		require.Zero(t, reads(), "from memory")
		require.Error(t, w.account.Partitions.Refresh(t.Context(), seen))
		require.Equal(t, 1, reads(), "a forced refresh asks")

		w.CreateContainer("d", "missing", cosmostest.Container{})
		time.Sleep(10 * time.Second)
		require.Equal(t, w.RangeOf("d", "missing", quoted("k0")), read().report.Attempts[0].Range, "it is found once it is there")
	})
}

func TestGap4ARefusedCredentialIsRememberedToo(t *testing.T) {
	for _, status := range []int{401, 403} {
		inPartitions(t, sixteen, func(t *testing.T, w *placed) {
			w.forget()
			fault := w.AddFault(cosmostest.Fault{Match: cosmostest.Match{Operations: rangeFeed}, Answer: cosmostest.Error(status, 0)})
			for range 1000 {
				require.Equal(t, []string{west}, w.must(w.upsert(t.Context(), "k0")), "data is another matter")
				time.Sleep(10 * time.Millisecond)
			}
			require.LessOrEqual(t, w.rangeReads(""), 2)
			fault.Remove()
			time.Sleep(10 * time.Second)
			require.Equal(t, w.rangeOf("k0"), w.get(t.Context(), "k0").report.Attempts[0].Range)
		})
	}
}
