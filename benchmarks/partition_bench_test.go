package benchmarks

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/partitions"
	"github.com/reroute-go/reroute/regions"
	"github.com/reroute-go/reroute/roundtrippers"
)

const container = "dbs/db/colls/c"

// BenchmarkResolve goes from a request's header to its partition: JSON, hash, lookup.
func BenchmarkResolve(b *testing.B) {
	for _, ranges := range []int{100, 10_000, 100_000} {
		b.Run(fmt.Sprint(ranges), func(b *testing.B) {
			account, _ := openAccount(b, ranges)
			ctx := context.Background()
			headers := make([]string, 1024)
			for i := range headers {
				headers[i] = fmt.Sprintf(`["tenant-%d"]`, i)
			}
			_, err := account.Partitions.Resolve(ctx, container, headers[0])
			require.NoError(b, err)
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				found, err := account.Partitions.Resolve(ctx, container, headers[i%len(headers)])
				if err != nil || found.Partition.Range == "" {
					b.Fatal(found, err)
				}
				i++
			}
		})
	}
}

// BenchmarkHealth is what the health of its partition costs one healthy attempt.
func BenchmarkHealth(b *testing.B) {
	candidates := []regions.Name{"West US", "East US"}
	for _, tripped := range []int{0, 1, 10_000} {
		b.Run(fmt.Sprintf("%d others away", tripped), func(b *testing.B) {
			account, _ := openAccount(b, 1)
			for i := range tripped {
				p := partitions.Partition{Container: "sick", Range: fmt.Sprint(i)}
				for range 10 {
					account.Partitions.Report(p, "West US", false, account.Partitions.Admit(p, false, candidates...), regions.Failed)
				}
			}
			p := partitions.Partition{Container: "well", Range: "1"}
			b.ReportAllocs()
			for b.Loop() {
				a := account.Partitions.Admit(p, false, candidates...)
				account.Partitions.Report(p, "West US", false, a, regions.Healthy)
			}
		})
	}
}

// BenchmarkPartitionLayers adds one layer after the other to a stack that only routes.
func BenchmarkPartitionLayers(b *testing.B) {
	account, base := openAccount(b, 10_000)
	route := roundtrippers.Route{Dialect: account, Regions: account.Regions}
	partition := roundtrippers.Partition{Dialect: account, Partitions: account.Partitions}
	breaker := roundtrippers.Breaker{Dialect: account, Regions: account.Regions, Partitions: account.Partitions}
	for _, s := range []struct {
		name   string
		layers []middleware.Layer
	}{
		{"Route", []middleware.Layer{route}},
		{"Partition, Route", []middleware.Layer{partition, route}},
		{"Partition, Breaker, Route", []middleware.Layer{partition, breaker, route}},
	} {
		b.Run(s.name, func(b *testing.B) {
			rt, err := middleware.Stack(base, s.layers...)
			require.NoError(b, err)
			resp, err := rt.RoundTrip(itemRead(b)) // reads the container
			require.NoError(b, err)
			require.NoError(b, resp.Body.Close())
			drive(b, rt, itemRead(b))
		})
	}
}
