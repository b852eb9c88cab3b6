package measure

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRoundsCountAllocationsAndBytes(t *testing.T) {
	costs, err := Rounds([]Subject{
		{Name: "nothing", New: func() (func() error, error) { return func() error { return nil }, nil }},
		{Name: "1 KiB", Parallel: true, New: func() (func() error, error) {
			kept := new([]byte)
			return func() error {
				*kept = make([]byte, 1024)
				return nil
			}, nil
		}},
	}, 3, time.Millisecond)
	require.NoError(t, err)
	require.Len(t, costs, 2)
	require.Len(t, costs[1], 3)
	added := Added(costs[1], costs[0])
	require.InDelta(t, 1, added.Allocations, 0.2)
	require.InDelta(t, 1024, added.Bytes, 200)
}

func TestRoundsReportsWhatFailed(t *testing.T) {
	_, err := Rounds([]Subject{{Name: "broken", New: func() (func() error, error) {
		return func() error { return errors.New("no answer") }, nil
	}}}, 1, time.Millisecond)
	require.EqualError(t, err, "broken: no answer")
}

func TestMedianIsTheMiddleOne(t *testing.T) {
	require.Equal(t, 2.0, Median([]float64{9, 1, 2}))
	require.Equal(t, 1.5, Median([]float64{2, 1}))
	require.Equal(t, 0.0, Median(nil))
}

func TestALineOfABenchmarkIsRead(t *testing.T) {
	name, m, ok := parse("BenchmarkStale-Map/1,024_keys-2   10   12.5 ns/op   1.000 fetches/op   0 B/op\n")
	require.True(t, ok)
	require.Equal(t, "Stale-Map/1,024_keys", name)
	require.Equal(t, Metrics{"ns/op": 12.5, "fetches/op": 1, "B/op": 0}, m)
	for _, line := range []string{"PASS", "goos: linux", "BenchmarkFind/100-2 \t 1", "BenchmarkX-2 1 fast ns/op"} {
		_, _, ok := parse(line)
		require.False(t, ok, line)
	}
}

func TestOnlyTheSectionIsRewritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "README.md")
	require.NoError(t, os.WriteFile(path, []byte("a\n<!-- table -->\nold\n<!-- /table -->\nb\n"), 0o600))
	require.NoError(t, Rewrite(path, "table", Table([][]string{{"x", "y"}, {"1", "2"}})))
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "a\n<!-- table -->\n| x | y |\n|---|---|\n| 1 | 2 |\n<!-- /table -->\nb\n", string(text))
	section, err := Section(path, "table")
	require.NoError(t, err)
	require.Equal(t, "| x | y |\n|---|---|\n| 1 | 2 |\n", section)
	require.ErrorContains(t, Rewrite(path, "other", ""), `no section "other"`)
}
