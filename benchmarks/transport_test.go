// Package benchmarks measures what reroute costs, as ratios within one run.
package benchmarks

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/benchmarks/internal/workload"
	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/cosmos"
)

// BenchmarkBare is the terminal alone: what all others are compared with.
func BenchmarkBare(b *testing.B) { everyWay(b, workload.Terminal{}) }

// BenchmarkFloor adds what any RoundTripper must do that changes the host.
func BenchmarkFloor(b *testing.B) { everyWay(b, workload.Floor{Next: workload.Terminal{}}) }

// everyWay drives rt with each kind of request, serially and in parallel.
func everyWay(b *testing.B, rt http.RoundTripper) {
	for _, kind := range []workload.Kind{workload.Get, workload.Post} {
		b.Run(kind.String(), func(b *testing.B) { drive(b, rt, kind) })
		b.Run(kind.String()+" parallel", func(b *testing.B) { driveParallel(b, rt, kind) })
	}
}

// drive makes one operation an iteration.
func drive(b *testing.B, rt http.RoundTripper, kind workload.Kind) {
	calls(b, workload.NewCaller(rt, kind).Call)
}

// calls makes one call an iteration, after one that is not measured.
func calls(b *testing.B, call func() error) {
	require.NoError(b, call())
	b.ReportAllocs()
	for b.Loop() {
		if err := call(); err != nil {
			b.Fatal(err)
		}
	}
}

func driveParallel(b *testing.B, rt http.RoundTripper, kind workload.Kind) {
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		call := workload.NewCaller(rt, kind).Call
		for pb.Next() {
			if err := call(); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

func openAccount(tb testing.TB, ranges int, opts cosmos.Options) (*cosmos.Account, *workload.Service) {
	a, s, err := workload.Open(ranges, opts)
	require.NoError(tb, err)
	tb.Cleanup(a.Close)
	return a, s
}

func stack(tb testing.TB, base http.RoundTripper, layers ...middleware.Layer) http.RoundTripper {
	rt, err := middleware.Stack(base, layers...)
	require.NoError(tb, err)
	return rt
}
