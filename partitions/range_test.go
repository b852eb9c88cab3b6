package partitions

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func key(text string) Key {
	k, err := ParseKey(text)
	if err != nil {
		panic(err)
	}
	return k
}

// ranges reads "id:min-max", with "<parent,parent" at the end where there are parents.
func ranges(specs ...string) []Range {
	out := make([]Range, len(specs))
	for i, spec := range specs {
		id, rest, _ := strings.Cut(spec, ":")
		bounds, parents, _ := strings.Cut(rest, "<")
		lower, upper, _ := strings.Cut(bounds, "-")
		out[i] = Range{ID: id, Min: key(lower), Max: key(upper)}
		if parents != "" {
			out[i].Parents = strings.Split(parents, ",")
		}
	}
	return out
}

func ids(m *Map) (out []string) {
	for i := range m.Len() {
		out = append(out, m.ID(i))
	}
	return out
}

func newMap(t require.TestingT, set []Range) *Map {
	m, err := NewMap(set)
	require.NoError(t, err)
	return m
}

// owner is Find in the plainest way.
func owner(m *Map, k Key) (int, bool) {
	for i := range m.Len() {
		if r := m.At(i); r.Min.Compare(k) <= 0 && k.Compare(r.Max) < 0 {
			return i, true
		}
	}
	return 0, false
}

// N123
func TestACompleteSetInAnyOrderIsAMap(t *testing.T) {
	m := newMap(t, ranges("b:30-FF", "a:-30"))
	require.Equal(t, []string{"a", "b"}, ids(m))
	for text, want := range map[string]string{"": "a", "2FFF": "a", "30": "b", "3000": "b", "FEFF": "b"} {
		i, ok := m.Find(key(text))
		require.True(t, ok)
		require.Equal(t, want, m.ID(i), text)
	}
	for _, text := range []string{"FF", "FF00", "FF01"} {
		_, ok := m.Find(key(text))
		require.False(t, ok, text)
	}
	i, ok := m.FindID("b")
	require.True(t, ok)
	require.Equal(t, 1, i)
	_, ok = m.FindID("c")
	require.False(t, ok)
}

// N122, R148, R152, bug case B77
func TestAnIncompleteSetIsRefusedWithTheRangesAtFault(t *testing.T) {
	for _, c := range []struct {
		set  []Range
		want error
		text string
	}{
		{nil, ErrNoRanges, "partitions: no ranges"},
		{ranges("a:-FF<b", "b:-FF<a"), ErrNoRanges, "partitions: no ranges"},
		{ranges("a:-30", "b:31-FF"), ErrGap, `partitions: gap between ranges "a" [, 30) and "b" [31, FF)`},
		{ranges("b:30-FF"), ErrGap, `partitions: gap before range "b" [30, FF)`},
		{ranges("a:-30"), ErrGap, `partitions: gap after range "a" [, 30)`},
		{ranges("a:-31", "b:30-FF"), ErrOverlap, `partitions: overlap between ranges "a" [, 31) and "b" [30, FF)`},
		{ranges("a:-FF", "b:-FF"), ErrOverlap, `partitions: overlap between ranges "a" [, FF) and "b" [, FF)`},
		{ranges("a:-FF", "b:30-31"), ErrOverlap, `partitions: overlap between ranges "a" [, FF) and "b" [30, 31)`},
		{ranges("a:-30", "a:30-FF"), ErrDuplicateRange, `partitions: duplicate id between ranges "a" [, 30) and "a" [30, FF)`},
		{ranges("a:-30", "b:31-30"), ErrMalformedRange, `partitions: malformed range: "b" [31, 30)`},
		{ranges("a:-30", "b:30-30"), ErrMalformedRange, `partitions: malformed range: "b" [30, 30)`},
		{ranges("a:-FF01"), ErrMalformedRange, `partitions: malformed range: "a" [, FF01)`},
		{ranges(":-FF"), ErrMalformedRange, `partitions: malformed range: "" [, FF)`},
		{ranges("a:-FF<a"), ErrMalformedRange, `partitions: malformed range: "a" [, FF) is its own parent`},
	} {
		m, err := NewMap(c.set)
		require.Nil(t, m)
		require.ErrorIs(t, err, c.want)
		require.EqualError(t, err, c.text)
		for _, other := range []error{ErrNoRanges, ErrGap, ErrOverlap, ErrDuplicateRange, ErrMalformedRange, ErrUnknownParent} {
			require.Equal(t, other == c.want, err.(*MapError).Err == other)
		}
	}
}

// R144, N129, B77: a feed may deliver a range again.
func TestTheLaterCopyOfARangeCounts(t *testing.T) {
	set := ranges("a:-30", "b:30-FF", "a:00-3000")
	set[2].Status = StatusSplitting
	m := newMap(t, set)
	require.Equal(t, []string{"a", "b"}, ids(m))
	require.Equal(t, StatusSplitting, m.At(0).Status)

	again := ranges("b:30-FF")
	again[0].Status = StatusOffline
	next, err := m.Combine(again)
	require.NoError(t, err)
	require.Equal(t, StatusOffline, next.At(1).Status, "an offline range stays")
	require.Equal(t, Status(""), m.At(1).Status, "a map never changes")
}

// N125
func TestParentsAreGoneWhetherTheyWereDeliveredOrNot(t *testing.T) {
	m := newMap(t, ranges("2:-50<1,0", "3:50-A0<5", "4:A0-C0", "100:C0-FF", "0:-30", "1:30-50"))
	require.Equal(t, []string{"2", "3", "4", "100"}, ids(m))
	for _, id := range []string{"0", "1", "5"} {
		require.True(t, m.Gone(id), id)
		_, ok := m.FindID(id)
		require.False(t, ok, id)
	}
	for _, id := range []string{"2", "3", "4", "100", "7", ""} {
		require.False(t, m.Gone(id), id)
	}
}

// R154
func TestACascadeOfSplitsInOnePageLeavesTheYoungest(t *testing.T) {
	m := newMap(t, ranges("0:-FF", "1:-80<0", "2:80-FF<0", "3:-40<1", "4:40-80<1"))
	require.Equal(t, []string{"3", "4", "2"}, ids(m))
}

// N126, N127, R163
func TestCombineReplacesParentsByTheirChildren(t *testing.T) {
	base := newMap(t, ranges("0:-30", "1:30-60", "2:60-A0", "3:A0-FF"))
	for name, c := range map[string]struct {
		delta []Range
		want  []string
	}{
		"split":                 {ranges("4:-10<0", "5:10-30<0"), []string{"4", "5", "1", "2", "3"}},
		"a generation skipped":  {ranges("6:-08<0,4", "7:08-10<0,4", "8:10-18<0,5", "9:18-30<0,5"), []string{"6", "7", "8", "9", "1", "2", "3"}},
		"merge":                 {ranges("4:30-A0<1,2"), []string{"0", "4", "3"}},
		"merge, then split":     {ranges("4:30-A0<1,2", "5:30-90<4", "6:90-A0<4"), []string{"0", "5", "6", "3"}},
		"children out of order": {ranges("5:10-30<0", "4:-10<0"), []string{"4", "5", "1", "2", "3"}},
		"a parent comes again":  {ranges("4:-10<0", "5:10-30<0", "0:-30"), []string{"4", "5", "1", "2", "3"}},
		"an odd child without parents that just fits": {ranges("4:-10<0", "5:10-30"), []string{"4", "5", "1", "2", "3"}},
	} {
		next, err := base.Combine(c.delta)
		require.NoError(t, err, name)
		require.Equal(t, c.want, ids(next), name)
		for _, r := range c.delta {
			for _, parent := range r.Parents {
				require.True(t, next.Gone(parent), "%s: %s", name, parent)
			}
		}
	}
	require.Equal(t, []string{"0", "1", "2", "3"}, ids(base), "a map never changes")
	require.False(t, base.Gone("0"))
	same, err := base.Combine(nil)
	require.NoError(t, err)
	require.Same(t, base, same)
}

// R148
func TestCombineTellsWhyADeltaDoesNotFit(t *testing.T) {
	base := newMap(t, ranges("0:-30<9", "1:30-60", "2:60-FF"))
	for text, c := range map[string]struct {
		delta []Range
		want  error
	}{
		`unknown parent "7" of range "5" [30, 40)`:                 {ranges("5:30-40<7"), ErrUnknownParent},
		`gap between ranges "4" [, 10) and "1" [30, 60)`:           {ranges("4:-10<0"), ErrGap},
		`overlap between ranges "4" [, 20) and "5" [10, 30)`:       {ranges("4:-20<0", "5:10-30<0"), ErrOverlap},
		`duplicate id between ranges "1" [30, 60) and "1" [30, 50`: {ranges("1:30-50"), ErrDuplicateRange},
		`overlap between ranges "0" [, 30) and "5" [10, 20)`:       {ranges("5:10-20<9"), ErrOverlap},
		`gap between ranges "5" [, 10) and "1" [30, 60)`:           {ranges("4:-20<0", "5:-10<4"), ErrGap},
	} {
		m, err := base.Combine(c.delta)
		require.Nil(t, m)
		require.ErrorIs(t, err, c.want)
		require.ErrorContains(t, err, text)
		var bad *MapError
		require.ErrorAs(t, err, &bad)
		require.NotEmpty(t, bad.Range.ID)
	}
}

// R156
func TestSpansFindTheRangesTheyTouch(t *testing.T) {
	m := newMap(t, ranges("0:-30", "1:30-60", "2:60-A0", "3:A0-FF"))
	for _, c := range []struct {
		min, max   string
		first, end int
	}{
		{"", "FF", 0, 4}, {"", "", 0, 1}, {"30", "30", 1, 2}, {"2F", "30", 0, 1}, {"2F", "3001", 0, 2}, {"30", "60", 1, 2},
		{"31", "A1", 1, 4}, {"A0", "FF", 3, 4}, {"B0", "FFFF", 3, 4}, {"60", "30", 0, 0}, {"FF", "FF", 0, 0}, {"FF", "FF01", 0, 0},
	} {
		first, end := m.Overlapping(Span{Min: key(c.min), Max: key(c.max)})
		require.Equal(t, [2]int{c.first, c.end}, [2]int{first, end}, "%s-%s", c.min, c.max)
	}

	d := Definition{Kind: KindMultiHash, Paths: 2}
	prefix, err := d.Span(`["tenant"]`)
	require.NoError(t, err)
	middle := Key{hi: prefix.Min.hi, lo: prefix.Min.lo, rest: "\x20"}
	m = newMap(t, []Range{{ID: "0", Max: middle}, {ID: "1", Min: middle, Max: MaxKey()}})
	first, end := m.Overlapping(prefix)
	require.Equal(t, [2]int{0, 2}, [2]int{first, end}, "a tenant that was split in two")
	owners := map[int]bool{}
	for user := range 64 {
		s, err := d.Span(fmt.Sprintf(`["tenant",%d]`, user))
		require.NoError(t, err)
		i, ok := m.Find(s.Min)
		require.True(t, ok)
		owners[i] = true
		require.Equal(t, s.Min.Compare(middle) >= 0, i == 1)
	}
	require.Len(t, owners, 2)
}

func TestANilMapOwnsNothing(t *testing.T) {
	var m *Map
	require.Zero(t, m.Len())
	_, ok := m.Find(Key{})
	require.False(t, ok)
	_, ok = m.FindID("0")
	require.False(t, ok)
	require.False(t, m.Gone("0"))
	first, end := m.Overlapping(Span{Max: MaxKey()})
	require.Equal(t, first, end)
	next, err := m.Combine(ranges("0:-FF"))
	require.NoError(t, err)
	require.Equal(t, 1, next.Len())
}

// anyKey leans to the places that are easy to get wrong: few distinct first words, equal words that differ later.
var anyKey = rapid.Custom(func(t *rapid.T) Key {
	head := rapid.SampledFrom([]string{"", "05C1", "05C1DF", "05C1E0", "20", "2000000000000001", "3FFFFFFFFFFFFFFF", "FEFFFFFFFFFFFFFF"}).Draw(t, "head")
	tail := rapid.SliceOfN(rapid.Byte(), 0, 24).Draw(t, "tail")
	k := key(head + fmt.Sprintf("%X", tail))
	if k.Compare(MaxKey()) >= 0 {
		return Key{}
	}
	return k
})

// cut makes ranges out of boundaries.
func cut(boundaries []Key) []Range {
	boundaries = slices.Clone(boundaries)
	boundaries = append(boundaries, Key{}, MaxKey())
	slices.SortFunc(boundaries, Key.Compare)
	boundaries = slices.Compact(boundaries)
	out := make([]Range, len(boundaries)-1)
	for i := range out {
		out[i] = Range{ID: strconv.Itoa(i), Min: boundaries[i], Max: boundaries[i+1]}
	}
	return out
}

func TestLookupsAgreeWithALinearScan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		boundaries := rapid.SliceOfN(anyKey, 0, 60).Draw(t, "boundaries")
		m := newMap(t, cut(boundaries))
		probes := append(boundaries, rapid.SliceOfN(anyKey, 1, 20).Draw(t, "probes")...)
		probes = append(probes, Key{}, MaxKey(), Key{hi: 1<<64 - 1, lo: 1<<64 - 1}, Key{hi: 0xFF<<56 - 1, lo: 1<<64 - 1})
		for _, k := range probes {
			want, wantOK := owner(m, k)
			got, ok := m.Find(k)
			require.Equal(t, wantOK, ok, "%v", k)
			require.Equal(t, want, got, "%v", k)
			end := rapid.SampledFrom(probes).Draw(t, "end")
			span := Span{Min: k, Max: end}
			var touched []int
			for i := range m.Len() {
				r := m.At(i)
				if k == end && i == want && wantOK || k.Compare(r.Max) < 0 && end.Compare(r.Min) > 0 && k.Compare(end) < 0 {
					touched = append(touched, i)
				}
			}
			first, past := m.Overlapping(span)
			require.Len(t, touched, past-first, "%v", span)
			if len(touched) > 0 {
				require.Equal(t, touched[0], first, "%v", span)
			}
		}
	})
}

// Even, clustered and V1-like boundaries, at sizes where the index has many buckets.
func TestLookupsInLargeMapsAgreeWithABinarySearch(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for name, next := range map[string]func() Key{
		"even":      func() Key { return Key{hi: maskV2(random.Uint64()), lo: random.Uint64()} },
		"clustered": func() Key { return Key{hi: random.Uint64N(1<<62) >> random.UintN(62)} },
		"two heaps": func() Key { return Key{hi: random.Uint64N(2)<<61 + random.Uint64N(1<<20)} },
		"one word":  func() Key { return Key{hi: 0x2000, lo: random.Uint64()} },
		"V1": func() Key {
			return keyOf(appendV1(nil, appendNumber(nil, float64(random.Uint32()))))
		},
	} {
		boundaries := make([]Key, 20_000)
		for i := range boundaries {
			boundaries[i] = next()
		}
		set := cut(boundaries)
		m := newMap(t, set)
		probes := append(boundaries[:5000:5000], MaxKey())
		for range 5000 {
			probes = append(probes, next())
		}
		for _, k := range probes {
			i, found := slices.BinarySearchFunc(set, k, func(r Range, k Key) int { return r.Min.Compare(k) })
			if !found {
				i--
			}
			got, ok := m.Find(k)
			require.Equal(t, k != MaxKey(), ok)
			if ok && got != i {
				t.Fatalf("%s: %v is in %d, found %d", name, k, i, got)
			}
		}
	}
}

// history is a container that splits and merges, and the feed that tells of it.
type history struct {
	live []Range
	feed []Range
	next int
}

func (h *history) born(r Range, parents ...Range) Range {
	r.ID = strconv.Itoa(h.next)
	h.next++
	for _, p := range parents {
		r.Parents = append(append(r.Parents, p.Parents...), p.ID)
	}
	h.feed = append(h.feed, r)
	return r
}

func (h *history) split(t *rapid.T) {
	i := rapid.IntRange(0, len(h.live)-1).Draw(t, "split")
	parent := h.live[i]
	var cuts []Key
	for _, k := range rapid.SliceOfN(anyKey, 1, 3).Draw(t, "at") {
		if parent.Min.Compare(k) < 0 && k.Compare(parent.Max) < 0 {
			cuts = append(cuts, k)
		}
	}
	cuts = append(cuts, parent.Min, parent.Max)
	slices.SortFunc(cuts, Key.Compare)
	cuts = slices.Compact(cuts)
	var children []Range
	for j := range len(cuts) - 1 {
		children = append(children, h.born(Range{Min: cuts[j], Max: cuts[j+1]}, parent))
	}
	h.live = slices.Replace(h.live, i, i+1, children...)
}

func (h *history) merge(t *rapid.T) {
	if len(h.live) < 2 {
		return
	}
	i := rapid.IntRange(0, len(h.live)-2).Draw(t, "merge")
	a, b := h.live[i], h.live[i+1]
	h.live = slices.Replace(h.live, i, i+2, h.born(Range{Min: a.Min, Max: b.Max}, a, b))
}

func TestAnySplitsAndMergesCombinedEqualAColdBuild(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := &history{}
		h.live = []Range{h.born(Range{Max: MaxKey()})}
		m := newMap(t, h.feed)
		seen := len(h.feed)
		for range rapid.IntRange(1, 8).Draw(t, "refreshes") {
			for range rapid.IntRange(0, 4).Draw(t, "changes") {
				if rapid.Bool().Draw(t, "split or merge") {
					h.split(t)
				} else {
					h.merge(t)
				}
			}
			// The service delivers what is new: with or without what is gone again, and in any order.
			delta := slices.Clone(h.feed[seen:])
			seen = len(h.feed)
			if rapid.Bool().Draw(t, "only live") {
				delta = slices.DeleteFunc(delta, func(r Range) bool {
					return !slices.ContainsFunc(h.live, func(l Range) bool { return l.ID == r.ID })
				})
			}
			if len(delta) > 0 {
				delta = rapid.Permutation(delta).Draw(t, "order")
			}
			next, err := m.Combine(delta)
			require.NoError(t, err)
			m = next

			for name, cold := range map[string]*Map{"live": newMap(t, h.live), "feed": newMap(t, h.feed)} {
				require.Equal(t, cold.ranges, m.ranges, name)
				require.Equal(t, cold.index, m.index, name)
				require.Equal(t, cold.byID, m.byID, name)
				require.Equal(t, len(cold.gone), len(m.gone), name)
				for _, r := range h.feed {
					require.Equal(t, cold.Gone(r.ID), m.Gone(r.ID), name)
					_, live := m.FindID(r.ID)
					require.NotEqual(t, live, m.Gone(r.ID), "a range is live or gone")
				}
			}
		}
	})
}

// A delta that lost a range never becomes a map.
func TestADeltaWithARangeMissingIsRefused(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := &history{}
		h.live = []Range{h.born(Range{Max: MaxKey()})}
		h.split(t)
		m := newMap(t, h.feed)
		seen := len(h.feed)
		for range rapid.IntRange(1, 5).Draw(t, "changes") {
			h.split(t)
		}
		delta := slices.Clone(h.feed[seen:])
		lost := rapid.IntRange(0, len(delta)-1).Draw(t, "lost")
		isLive := slices.ContainsFunc(h.live, func(r Range) bool { return r.ID == delta[lost].ID })
		delta = slices.Delete(delta, lost, lost+1)
		next, err := m.Combine(delta)
		if !isLive || len(delta) == 0 {
			require.NoError(t, err, "its children tell the same")
			return
		}
		if err == nil {
			// The only child took over all of its parent: the parent still stands, and nothing is missing.
			require.NoError(t, checkComplete(next.ranges))
			return
		}
		var bad *MapError
		require.ErrorAs(t, err, &bad)
	})
}

// The overlap of a range with one that begins at the same key but ends earlier is found from either side.
func TestOverlapsAreFoundInAnyOrder(t *testing.T) {
	for _, set := range [][]Range{ranges("a:-FF", "b:-10"), ranges("b:-10", "a:-FF"), ranges("c:10-FF", "a:-FF", "b:-10")} {
		_, err := NewMap(set)
		require.ErrorIs(t, err, ErrOverlap)
	}
}

func TestANilOrZeroMapOwnsNothing(t *testing.T) {
	for _, m := range []*Map{nil, new(Map)} {
		_, ok := m.Find(Key{})
		require.False(t, ok)
		first, end := m.Overlapping(Span{Max: MaxKey()})
		require.Equal(t, first, end)
		_, ok = m.FindID("0")
		require.False(t, ok || m.Gone("0"))
		require.Zero(t, m.Len())
	}
}
