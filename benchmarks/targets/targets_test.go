package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/benchmarks/internal/measure"
)

func TestARowIsJudgedByItsRounds(t *testing.T) {
	f := &figures{found: map[string][]measure.Metrics{
		bare:   {{"ns/op": 100}, {"ns/op": 200}, {"ns/op": 100}},
		floor:  {{"ns/op": 200}, {"ns/op": 400}, {"ns/op": 200}},
		cosmos: {{"ns/op": 400}, {"ns/op": 800}, {"ns/op": 900}},
	}}
	require.Equal(t, 3.0, f.addedRatio(cosmos, floor, bare), "the middle of 3, 3 and 8")
	require.Equal(t, 4.0, f.ratio(cosmos, bare))
	require.Empty(t, f.missing)
	require.Zero(t, f.median(cosmos, "allocs/op"))
	require.Equal(t, cosmos, f.missing)
}

func TestThePatternNamesEachBenchmarkOnce(t *testing.T) {
	require.Contains(t, pattern(), "^BenchmarkStaleMap$/^ranges$|^BenchmarkStaleMap$/^owners$")
	require.Regexp(t, `^\^BenchmarkCosmos\$/\^GET\$\|\^BenchmarkFloor`, pattern())
}

func TestARowWithoutItsBenchmarkIsAnError(t *testing.T) {
	_, err := tableOf(nil)
	require.ErrorContains(t, err, "no benchmark ")
}
