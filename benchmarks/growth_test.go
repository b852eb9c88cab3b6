package benchmarks

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/reroute-go/reroute/benchmarks/internal/workload"
	"github.com/reroute-go/reroute/middleware"
)

// BenchmarkGrowthByLayers stacks the same retrying layer so many times.
func BenchmarkGrowthByLayers(b *testing.B) {
	for _, n := range []int{1, 2, 4, 8, 16} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			layers := make([]middleware.Layer, n)
			for i := range layers {
				layers[i] = workload.Again{Retries: 1}
			}
			drive(b, stack(b, workload.Terminal{}, layers...), workload.Get)
		})
	}
}

// BenchmarkGrowthByRanges is the Cosmos DB stack with 1,024 keys in containers of
// so many ranges.
func BenchmarkGrowthByRanges(b *testing.B) {
	for _, n := range []int{1, 100, 10_000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) { calls(b, keys(cosmosStack(b, n, workload.Terminal{}))) })
	}
}

// BenchmarkGrowthByGoroutines is the Cosmos DB stack shared by so many
// goroutines, all reading from the same partition.
func BenchmarkGrowthByGoroutines(b *testing.B) {
	rt := cosmosStack(b, 10_000, workload.Terminal{})
	for _, n := range []int{1, 4, 16, 64, 256} {
		b.Run(fmt.Sprint(n*runtime.GOMAXPROCS(0)), func(b *testing.B) {
			b.SetParallelism(n)
			driveParallel(b, rt, workload.Get)
		})
	}
}
