package partitions

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/reroute-go/reroute/regions"
)

// inUse is the memory that build leaves behind.
func inUse(build func() any) (bytes uint64, keep any) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&before)
	keep = build()
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&after)
	return after.HeapAlloc - min(before.HeapAlloc, after.HeapAlloc), keep
}

func manyPartitions(n int) []Partition {
	out := make([]Partition, n)
	for i := range out {
		out[i] = Partition{Container: "gAABAIAAAAE=", Range: fmt.Sprint(i)}
	}
	return out
}

// tripAll makes all partitions avoid the first n regions.
func tripAll(r *Registry, partitions []Partition, n int) {
	for _, p := range partitions {
		for _, region := range all[:n] {
			for range 10 {
				a := r.Admit(p, false, all...)
				r.Report(p, region, false, a, regions.Failed)
			}
		}
	}
}

// go test -run xxx -bench TrippedPartitionMemory -benchtime 1x ./partitions
func BenchmarkTrippedPartitionMemory(b *testing.B) {
	const n = 80_000
	for _, tripped := range []int{1, 2} {
		b.Run(fmt.Sprintf("%d regions of %d partitions", tripped, n), func(b *testing.B) {
			partitions := manyPartitions(n)
			for b.Loop() {
				r := newRegistry(b, newService("0:-FF"))
				bytes, keep := inUse(func() any { tripAll(r, partitions, tripped); return r })
				b.ReportMetric(float64(bytes)/n, "B/partition")
				b.ReportMetric(0, "ns/op")
				runtime.KeepAlive(keep)
				runtime.KeepAlive(partitions)
			}
		})
	}
}

// go test -run xxx -bench 'Admit|Record|Resolve' ./partitions
func BenchmarkAdmitAndReport(b *testing.B) {
	p := Partition{Container: "gAABAIAAAAE=", Range: "4711"}
	for name, tripped := range map[string]int{"nobody in trouble": 0, "80000 others in trouble": 80_000} {
		r := newRegistry(b, newService("0:-FF"))
		for _, other := range manyPartitions(tripped) {
			if other != p {
				trip(r, other, false)
			}
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					a := r.Admit(p, false, all...)
					r.Report(p, east, false, a, regions.Healthy)
				}
			})
		})
	}
	r := newRegistry(b, newService("0:-FF"))
	trip(r, p, false)
	b.Run("tripped", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			a := r.Admit(p, false, all...)
			r.Report(p, west, false, a, regions.Healthy)
		}
	})
}

// One failure costs the same whether one or 80,000 partitions are in trouble.
func BenchmarkRecordFailure(b *testing.B) {
	for _, n := range []int{1, 1000, 80_000} {
		r := newRegistry(b, newService("0:-FF"), func(c *Config) { c.Failover.ReadFailures = 1 << 30 })
		partitions := manyPartitions(n)
		a := r.Admit(partitions[0], false, all...)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				r.Report(partitions[i%n], east, false, a, regions.Failed)
			}
		})
	}
}

func BenchmarkResolve(b *testing.B) {
	for _, n := range sizes {
		s := newService()
		m := evenMap(b, n)
		s.feeds["rid1"] = m.ranges
		r := newRegistry(b, s)
		texts := headers(1 << 14)
		if _, err := r.Resolve(b.Context(), coll, texts[0]); err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if _, err := r.Resolve(b.Context(), coll, texts[i&(1<<14-1)]); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
