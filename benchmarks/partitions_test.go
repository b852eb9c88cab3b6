package benchmarks

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/benchmarks/internal/workload"
	"github.com/reroute-go/reroute/middleware/cosmos"
	"github.com/reroute-go/reroute/partitions"
	"github.com/reroute-go/reroute/regions"
)

var sizes = []int{100, 10_000, 100_000}

// someKeys are different keys of one length, and as the headers that carry them,
// so that no benchmark trains the branch predictor on one.
func someKeys(tb testing.TB) (keys []partitions.Key, headers []string) {
	keys, headers = make([]partitions.Key, 1<<14), make([]string, 1<<14)
	for i := range keys {
		headers[i] = fmt.Sprintf(`["tenant-%08d"]`, i*7919)
		span, err := partitions.Definition{Version: 2}.Span(headers[i])
		require.NoError(tb, err)
		keys[i] = span.Min
	}
	return keys, headers
}

// BenchmarkFind goes from an effective partition key to its range.
func BenchmarkFind(b *testing.B) {
	keys, _ := someKeys(b)
	for _, n := range sizes {
		m, err := workload.NewService(n).Map()
		require.NoError(b, err)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if _, ok := m.Find(keys[i%len(keys)]); !ok {
					b.Fatal("no range")
				}
			}
		})
	}
}

// BenchmarkHeaderToRange adds reading the header and hashing it.
func BenchmarkHeaderToRange(b *testing.B) {
	_, headers := someKeys(b)
	d := partitions.Definition{Version: 2}
	for _, n := range sizes {
		m, err := workload.NewService(n).Map()
		require.NoError(b, err)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				span, err := d.Span(headers[i%len(headers)])
				k, point := span.Point()
				at, ok := m.Find(k)
				if err != nil || !point || !ok || m.ID(at) == "" {
					b.Fatal("no range")
				}
			}
		})
	}
}

// BenchmarkResolve adds finding the container, and what an operation needs to
// know of its partition.
func BenchmarkResolve(b *testing.B) {
	_, headers := someKeys(b)
	for _, n := range sizes {
		a, _ := openAccount(b, n, cosmos.Options{})
		b.Run(fmt.Sprint(n), func(b *testing.B) { resolve(b, a, headers) })
	}
}

func resolve(b *testing.B, a *cosmos.Account, headers []string) {
	i := 0
	calls(b, func() error {
		i++
		_, err := a.Partitions.Resolve(b.Context(), workload.Container, headers[i%len(headers)])
		return err
	})
}

// BenchmarkHealth is what the health of its partition costs one healthy attempt.
func BenchmarkHealth(b *testing.B) {
	for _, tripped := range []int{0, 1, 10_000} {
		b.Run(fmt.Sprintf("%d others away", tripped), func(b *testing.B) {
			a, _ := openAccount(b, 1, cosmos.Options{})
			tripMany(a.Partitions, tripped)
			p := partitions.Partition{Container: "well", Range: "1"}
			b.ReportAllocs()
			for b.Loop() {
				a.Partitions.Report(p, west, false, a.Partitions.Admit(p, false, west, east), regions.Healthy)
			}
		})
	}
}

// BenchmarkFailure records a failure of one partition, with so many others away:
// the same whatever their number.
func BenchmarkFailure(b *testing.B) {
	for _, tripped := range []int{1, 1_000, 80_000} {
		b.Run(fmt.Sprintf("%d others away", tripped), func(b *testing.B) {
			a, _ := openAccount(b, 1, cosmos.Options{})
			tripMany(a.Partitions, tripped)
			p := partitions.Partition{Container: "ill", Range: "1"}
			b.ReportAllocs()
			for b.Loop() {
				for _, v := range []regions.Verdict{regions.Failed, regions.Healthy} { // so that it never trips
					a.Partitions.Report(p, west, false, a.Partitions.Admit(p, false, west, east), v)
				}
			}
		})
	}
}

// BenchmarkTrippedMemory is what each tripped partition takes, all told.
func BenchmarkTrippedMemory(b *testing.B) {
	for _, n := range []int{1_000, 80_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var bytes float64
			for b.Loop() {
				a, _ := openAccount(b, 1, cosmos.Options{})
				names := make([]partitions.Partition, n) // are the map's, not the breakers'
				for i := range names {
					names[i] = sick(i)
				}
				before := inUse()
				for _, p := range names {
					trip(a.Partitions, p)
				}
				bytes = float64(inUse()-before) / float64(n)
				require.Equal(b, n, a.Partitions.Tracked())
				runtime.KeepAlive(names)
			}
			b.ReportMetric(bytes, "B/partition")
			b.ReportMetric(0, "ns/op")
		})
	}
}

func inUse() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func sick(i int) partitions.Partition {
	return partitions.Partition{Container: "sick", Range: fmt.Sprint(i)}
}

func tripMany(r *partitions.Registry, n int) {
	for i := range n {
		trip(r, sick(i))
	}
}
