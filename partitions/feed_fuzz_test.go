package partitions

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// drawnPages reads pages off a fuzzer's bytes: first how many ranges a page has,
// then for each its id, bounds and a parent. 0xff is a page that says nothing has
// changed, 0xfe one that fails.
func drawnPages(data []byte) (pages []Page, failed []bool) {
	bound := func(b byte) Key {
		if b%9 == 8 {
			return MaxKey()
		}
		k, err := ParseKey([]string{"", "20", "40", "60", "80", "A0", "C0", "E0"}[b%9])
		if err != nil {
			panic(err)
		}
		return k
	}
	for len(data) > 0 && len(pages) < 12 {
		head := data[0]
		data = data[1:]
		page := Page{Unchanged: head == 0xff}
		if !page.Unchanged && head != 0xfe {
			for range int(head % 5) {
				if len(data) < 4 {
					break
				}
				r := Range{ID: fmt.Sprint(data[0] % 6), Min: bound(data[1]), Max: bound(data[2])}
				if data[3]%3 == 1 {
					r.Parents = []string{fmt.Sprint(data[3] % 6)}
				}
				if r.Min.Compare(r.Max) < 0 { // DecodeRanges lets nothing else through
					page.Ranges = append(page.Ranges, r)
				}
				data = data[4:]
			}
		}
		pages, failed = append(pages, page), append(failed, head == 0xfe)
	}
	return pages, failed
}

// Whatever pages the feed of ranges brings, in whatever order: it is not read for
// ever, and what a key is resolved to comes from a map without gap and overlap,
// which is there still after the next refresh has failed (pkrange-gaps.md 2 to 4, B77).
func FuzzRangePages(f *testing.F) {
	whole := "\x02\x00\x00\x04\x00\x01\x04\x08\x00"
	for _, s := range []string{
		"", "\xff", "\xfe", whole + "\xff", whole, // never unchanged
		"\x01\x00\x00\x04\x00" + "\x01\x01\x04\x08\x00" + "\xff",                   // one range a page
		whole + "\xff" + "\x02\x02\x00\x02\x04\x03\x02\x04\x04\xff",                // a split
		whole + "\xff" + "\x01\x02\x00\x02\x04\xff",                                // one child of two
		"\x02\x00\x00\x05\x00\x01\x04\x08\x00\xff" + whole + "\xff",                // an overlap, then good
		"\x01\x00\x00\x04\x00\xff\xff\xff\xff\xff" + whole,                         // a gap
		"\x02\x00\x00\x08\x00\x00\x00\x08\x00\xff",                                 // twice the same
		"\x02\x00\x00\x04\x01\x01\x04\x08\x00\xff", whole + "\xfe\xfe\xfe" + whole, // its own parent; failures
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		synctest.Test(t, func(t *testing.T) {
			pages, failed := drawnPages(data)
			reads := 0
			r, err := New(Config{LookupEnv: noEnv, Source: feedFunc(func(_ int, continuation string) (Page, error) {
				reads++
				if len(pages) == 0 {
					return Page{Unchanged: true}, nil
				}
				at := (reads - 1) % len(pages)
				if failed[at] {
					return Page{}, errors.New("trouble")
				}
				page := pages[at]
				page.Continuation = fmt.Sprintf("e%d", reads)
				return page, nil
			})})
			require.NoError(t, err)
			defer r.Close()
			whole := func(found Resolved) {
				require.NoError(t, checkComplete(found.routing.ranges.ranges))
				require.NotEmpty(t, found.Partition.Range)
			}
			known := false
			for _, key := range []string{`["a"]`, `["b"]`, `["c"]`} {
				found, err := r.Resolve(t.Context(), coll, key)
				if err != nil {
					require.False(t, known, "a map that was known is lost: %v", err)
					continue
				}
				known = true
				whole(found)
				_ = r.Refresh(t.Context(), found)
				again, err := r.Resolve(t.Context(), coll, key)
				require.NoError(t, err, "a refresh, failed or not, leaves a map")
				whole(again)
			}
			require.Less(t, reads, 4000)
		})
	})
}
