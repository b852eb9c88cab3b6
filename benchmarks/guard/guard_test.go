//go:build !race

package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/benchmarks/internal/measure"
)

// The table holds what operations on the healthy paths, and one retry, allocate.
// The race detector allocates too, so this runs without it.
func TestNoPathAllocatesMoreThanTheTableSays(t *testing.T) { // issue 7, Done-when 3
	held, err := read("allocations.tsv")
	require.NoError(t, err)
	subjects, err := paths()
	require.NoError(t, err)
	require.Len(t, held, len(subjects), "every path has a line, and every line a path")
	for _, s := range subjects {
		t.Run(s.Name, func(t *testing.T) {
			l, ok := held[s.Name]
			require.True(t, ok, "no line")
			call, err := s.New()
			require.NoError(t, err)
			allocations := testing.AllocsPerRun(200, func() {
				if err := call(); err != nil {
					t.Error(err)
				}
			})
			require.LessOrEqual(t, int(allocations), l.allocations)
		})
	}
}

func TestAPathThatAllocatesMoreIsNamed(t *testing.T) {
	l := limit{allocations: 3, bytes: 100}
	require.False(t, l.exceeded(measure.Cost{Nanoseconds: 1e9, Allocations: 3.4, Bytes: 105}))
	require.True(t, l.exceeded(measure.Cost{Allocations: 4, Bytes: 100}))
	require.True(t, l.exceeded(measure.Cost{Allocations: 3, Bytes: 128}))

	subjects := []measure.Subject{{Name: bare}, {Name: "worse"}, {Name: "unknown"}}
	costs := [][]measure.Cost{
		{{Nanoseconds: 100, Allocations: 4, Bytes: 240}},
		{{Nanoseconds: 150, Allocations: 5, Bytes: 240}},
		{{Nanoseconds: 200}},
	}
	held := map[string]limit{bare: {4, 240}, "worse": {4, 240}}
	require.ErrorContains(t, compare(held, subjects, costs), "allows: worse, unknown")
	require.NoError(t, compare(held, subjects[:1], costs[:1]))
}
