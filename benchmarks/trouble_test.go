package benchmarks

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/benchmarks/internal/workload"
	"github.com/reroute-go/reroute/middleware/cosmos"
	"github.com/reroute-go/reroute/partitions"
	"github.com/reroute-go/reroute/regions"
)

const (
	west = regions.Name("West US")
	east = regions.Name("East US")
)

// BenchmarkRetry is one layer that sends again, not at all and so many times. The
// terminal's own cost of each further send is in it.
func BenchmarkRetry(b *testing.B) {
	for _, c := range []struct {
		name     string
		statuses []int
		wait     time.Duration
	}{
		{"none", nil, 0},
		{"1", []int{503}, 0},
		{"3", []int{503, 503, 503}, 0},
		{"1 after a wait", []int{503}, 1},
		{"3 after waits", []int{503, 503, 503}, 1},
	} {
		for _, kind := range []workload.Kind{workload.Get, workload.Post} {
			b.Run(c.name+"/"+kind.String(), func(b *testing.B) {
				drive(b, stack(b, &workload.Flaky{Statuses: c.statuses}, workload.Again{Retries: 3, Wait: c.wait}), kind)
			})
		}
	}
}

// BenchmarkTrouble is the Cosmos DB stack when something is amiss.
func BenchmarkTrouble(b *testing.B) {
	for _, c := range []struct {
		name  string
		flaky *workload.Flaky
	}{
		{"none", &workload.Flaky{}},
		{"failover", &workload.Flaky{Statuses: []int{503}}},
		{"throttled", &workload.Flaky{Statuses: []int{429}}},
		{"session behind", &workload.Flaky{Statuses: []int{404}, Header: http.Header{"X-Ms-Substatus": {"1002"}}}},
	} {
		b.Run(c.name, func(b *testing.B) { drive(b, cosmosStack(b, 10_000, c.flaky), workload.Get) })
	}
	b.Run("tripped partition", func(b *testing.B) {
		a, _ := openAccount(b, 10_000, cosmos.Options{Partitions: partitions.Config{
			Failover: partitions.FailoverOptions{UnavailabilityDuration: time.Hour},
		}})
		var host string
		rt, err := workload.Cosmos(a, workload.Spy{Host: &host})
		require.NoError(b, err)
		found, err := a.Partitions.Resolve(b.Context(), workload.Container, `["p1"]`)
		require.NoError(b, err)
		trip(a.Partitions, found.Partition)
		call := workload.NewCaller(rt, workload.Get).Call
		require.NoError(b, call())
		require.Equal(b, "account-eastus.documents.example", host)
		calls(b, call)
	})
}

// trip makes reads of p avoid the first region.
func trip(r *partitions.Registry, p partitions.Partition) {
	for range 10 {
		r.Report(p, west, false, r.Admit(p, false, west, east), regions.Failed)
	}
}
