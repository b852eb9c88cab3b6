package partitions

import (
	"math/bits"
	"sort"
)

// index finds the owner of a key in about two memory accesses. Boundaries split a space of hashes, so they lie nearly
// evenly; the space between the first and the last is cut into equal buckets, half as many as there are ranges to twice
// as many, and each bucket knows where to begin. The buckets start at the first boundary and not at zero because
// V1 keys, being numbers as text, share their first two bytes.
type index struct {
	words  []uint64 // first word of each Min, packed for the scan
	starts []uint32 // by bucket: the last range that begins before the bucket does. One more at the end
	base   uint64   // where the buckets begin
	shift  uint     // a bucket is 1<<shift wide
}

// scanLimit is how many boundaries in one bucket are scanned one by one. Above it, which only uneven boundaries bring
// about, the bucket is searched by halves.
const scanLimit = 8

// newIndex wants ranges that are complete and sorted.
func newIndex(ranges []Range) index {
	x := index{words: make([]uint64, len(ranges))}
	for i := range ranges {
		x.words[i] = ranges[i].Min.hi
	}
	last := len(ranges) - 1
	if last == 0 {
		x.starts = make([]uint32, 2)
		return x
	}
	x.base = x.words[1]
	width := x.words[last] - x.base
	x.shift = uint(max(0, bits.Len64(width)-bits.Len(uint(last))))
	buckets := width>>x.shift + 1
	x.starts = make([]uint32, buckets+1)
	i := 0
	for b := range buckets {
		for i < last && x.words[i+1] < x.base+b<<x.shift {
			i++
		}
		x.starts[b] = uint32(i)
	}
	x.starts[buckets] = uint32(last)
	return x
}

// find is the last range that begins at or before k.
func (x *index) find(ranges []Range, k *Key) int {
	if k.hi < x.base {
		return 0
	}
	b := (k.hi - x.base) >> (x.shift & 63)
	if b >= uint64(len(x.starts)-1) {
		return len(x.words) - 1
	}
	low, high := int(x.starts[b]), int(x.starts[b+1])
	if high-low > scanLimit {
		return low + sort.Search(high-low, func(i int) bool { return x.above(ranges, low+i+1, k) })
	}
	for low < high && !x.above(ranges, low+1, k) {
		low++
	}
	return low
}

// above is whether range i begins after k. Beyond the first word it has to look at the range itself.
func (x *index) above(ranges []Range, i int, k *Key) bool {
	if w := x.words[i]; w != k.hi {
		return w > k.hi
	}
	return k.less(&ranges[i].Min)
}
