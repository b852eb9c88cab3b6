package partitions

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/regions"
)

// feedFunc is a Source whose feed of ranges is f.
type feedFunc func(page int, continuation string) (Page, error)

func (f feedFunc) Container(context.Context, string) (Container, error) {
	return Container{RID: "rid", Definition: Definition{Version: 2}}, nil
}

// RangePage reads the number of the page from the continuation.
func (f feedFunc) RangePage(_ context.Context, _, continuation string, _ regions.Name) (Page, error) {
	n := 0
	_, _ = fmt.Sscanf(continuation, "e%d", &n)
	page, err := f(n, continuation)
	if err == nil && page.Continuation == "" {
		page.Continuation = fmt.Sprintf("e%d", n+1)
	}
	return page, err
}

func parents(from, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprint("p", from+i)
	}
	return out
}

// The pages never end, and each brings few ranges with very many parents: the number of ranges alone bounds nothing.
func TestAFeedOfEndlessParentsIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pages := 0
		many := parents(0, 100_000)
		r, err := New(Config{LookupEnv: noEnv, Source: feedFunc(func(n int, _ string) (Page, error) {
			pages++
			one := ranges("0:-FF")[0]
			one.ID, one.Parents = fmt.Sprint(n), many
			return Page{Ranges: []Range{one}}, nil
		})})
		require.NoError(t, err)
		defer r.Close()
		_, err = r.Resolve(t.Context(), coll, `["a"]`)
		require.ErrorContains(t, err, "parents")
		require.Equal(t, 11, pages)
	})
}

// Each delta renews the same range and names other parents.
func TestWhatIsGoneIsForgottenBeforeItFillsTheMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		whole := 0
		r, err := New(Config{LookupEnv: noEnv, Source: feedFunc(func(n int, continuation string) (Page, error) {
			one := ranges("0:-FF")[0]
			switch {
			case continuation == "":
				whole++
			case n%2 == 1:
				return Page{Unchanged: true, Continuation: fmt.Sprintf("e%d", n+1)}, nil
			default:
				one.Parents = parents(n*200_000, 400_000)
			}
			return Page{Ranges: []Range{one}}, nil
		})})
		require.NoError(t, err)
		defer r.Close()
		for range 6 {
			found, err := r.Resolve(t.Context(), coll, `["a"]`)
			require.NoError(t, err)
			require.LessOrEqual(t, len(found.routing.ranges.gone), maxParents)
			require.NoError(t, r.Refresh(t.Context(), found))
			time.Sleep(time.Second)
		}
		require.Greater(t, whole, 1)
	})
}

func TestRangesThatAreEachOthersParentsAreNoMap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pages := 0
		r, err := New(Config{LookupEnv: noEnv, Source: feedFunc(func(n int, continuation string) (Page, error) {
			pages++
			two := ranges("0:-30", "1:30-FF")
			two[0].Parents, two[1].Parents = []string{"1"}, []string{"0"}
			return Page{Ranges: two}, nil
		})})
		require.NoError(t, err)
		defer r.Close()
		_, err = r.Resolve(t.Context(), coll, `["a"]`)
		require.ErrorIs(t, err, ErrNoRanges)
		require.LessOrEqual(t, pages, 8)
	})
}
