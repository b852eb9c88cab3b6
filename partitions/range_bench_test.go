package partitions

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// evenMap is a map of n ranges as splits make them: boundaries near the even ones, not on them.
func evenMap(tb testing.TB, n int) *Map {
	tb.Helper()
	random := rand.New(rand.NewPCG(1, uint64(n)))
	step := uint64(1<<62) / uint64(n)
	boundaries := make([]Key, n-1)
	for i := range boundaries {
		boundaries[i] = Key{hi: uint64(i+1)*step + random.Uint64N(step/2) - step/4}
	}
	m, err := NewMap(cut(boundaries))
	require.NoError(tb, err)
	require.Equal(tb, n, m.Len())
	return m
}

func unevenMap(tb testing.TB, n int) *Map {
	tb.Helper()
	random := rand.New(rand.NewPCG(1, uint64(n)))
	boundaries := make([]Key, n-1)
	for i := range boundaries {
		boundaries[i] = Key{hi: random.Uint64N(1<<62) >> 40, lo: uint64(i)} // all but a few in the lowest bucket
	}
	boundaries[0] = Key{hi: 1 << 61}
	m, err := NewMap(cut(boundaries))
	require.NoError(tb, err)
	return m
}

func someKeys(n int) []Key {
	random := rand.New(rand.NewPCG(3, 4))
	out := make([]Key, n)
	for i := range out {
		out[i] = Key{hi: maskV2(random.Uint64()), lo: random.Uint64()}
	}
	return out
}

var sizes = []int{100, 10_000, 100_000}

func TestLookupsDoNotAllocate(t *testing.T) {
	m := evenMap(t, 10_000)
	clustered := unevenMap(t, 10_000)
	d := Definition{Version: 2}
	for name, f := range map[string]func(){
		"Find":               func() { m.Find(Key{hi: 1 << 61, lo: 5}) },
		"Find by halves":     func() { clustered.Find(Key{hi: 1 << 20, lo: 5}) },
		"FindID":             func() { m.FindID("4711") },
		"Overlapping":        func() { m.Overlapping(Span{Min: Key{hi: 1 << 60}, Max: Key{hi: 1 << 61}}) },
		"At":                 func() { _ = m.At(4711) },
		"Gone":               func() { m.Gone("4711") },
		"header to range id": func() { _, _ = rangeID(d, m, `["tenant-4711"]`) },
	} {
		require.Zero(t, testing.AllocsPerRun(100, f), name)
	}
}

// rangeID is what a router does for each request.
func rangeID(d Definition, m *Map, header string) (string, bool) {
	s, err := d.Span(header)
	if err != nil {
		return "", false
	}
	k, ok := s.Point()
	if !ok {
		return "", false
	}
	i, ok := m.Find(k)
	if !ok {
		return "", false
	}
	return m.ID(i), true
}

func BenchmarkFind(b *testing.B) {
	keys := someKeys(1 << 14)
	for _, n := range sizes {
		m := evenMap(b, n)
		b.Run(fmt.Sprintf("even/%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if _, ok := m.Find(keys[i&(1<<14-1)]); !ok {
					b.Fatal("no range")
				}
			}
		})
	}
	// V1 keys begin with the hash as a number, so their boundaries are even only between powers of two.
	random := rand.New(rand.NewPCG(5, 6))
	v1 := func() Key { return keyOf(appendV1(nil, appendNumber(nil, float64(random.Uint32())))) }
	for _, n := range sizes {
		boundaries, some := make([]Key, n-1), make([]Key, 1<<14)
		for i := range boundaries {
			boundaries[i] = v1()
		}
		for i := range some {
			some[i] = v1()
		}
		m, err := NewMap(cut(boundaries))
		require.NoError(b, err)
		b.Run(fmt.Sprintf("V1/%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if _, ok := m.Find(some[i&(1<<14-1)]); !ok {
					b.Fatal("no range")
				}
			}
		})
	}
	for _, n := range sizes {
		m := unevenMap(b, n)
		low := make([]Key, 1<<14)
		for i, k := range keys {
			low[i] = Key{hi: k.hi >> 40, lo: k.lo}
		}
		b.Run(fmt.Sprintf("uneven/%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if _, ok := m.Find(low[i&(1<<14-1)]); !ok {
					b.Fatal("no range")
				}
			}
		})
	}
}

func BenchmarkHeaderToRangeID(b *testing.B) {
	texts := headers(1 << 14)
	d := Definition{Version: 2}
	for _, n := range sizes {
		m := evenMap(b, n)
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if _, ok := rangeID(d, m, texts[i&(1<<14-1)]); !ok {
					b.Fatal("no range")
				}
			}
		})
	}
}

func BenchmarkNewMap(b *testing.B) {
	for _, n := range sizes {
		m := evenMap(b, n)
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := NewMap(m.ranges); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// One split, as a refresh after a 410 brings it.
func BenchmarkCombine(b *testing.B) {
	for _, n := range sizes {
		m := evenMap(b, n)
		parent := m.At(n / 2)
		middle := Key{hi: parent.Min.hi/2 + parent.Max.hi/2}
		delta := []Range{
			{ID: "left", Min: parent.Min, Max: middle, Parents: []string{parent.ID}},
			{ID: "right", Min: middle, Max: parent.Max, Parents: []string{parent.ID}},
		}
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := m.Combine(delta); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
