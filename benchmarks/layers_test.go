package benchmarks

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/benchmarks/internal/workload"
	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/cosmos"
	"github.com/reroute-go/reroute/middleware/ownership"
	"github.com/reroute-go/reroute/middleware/rest"
	"github.com/reroute-go/reroute/roundtrippers"
)

// BenchmarkLayers is what each layer costs a healthy read when it stands alone.
// Each figure includes the operation that the first layer of any stack begins:
// "none" is that and nothing else.
func BenchmarkLayers(b *testing.B) {
	a, _ := openAccount(b, 10_000, cosmos.Options{})
	owners, err := workload.Owners()
	require.NoError(b, err)
	b.Cleanup(owners.Close)
	api := rest.Dialect{}
	shards := &ownership.Dialect{}

	for _, l := range []struct {
		name  string
		layer middleware.Layer
	}{
		{"none", middleware.LayerFunc(passes)},
		{"Observer", middleware.Observer(func(context.Context, middleware.Event) {})},
		{"Deadline", roundtrippers.Deadline{After: time.Minute}},
		{"ReplayBody", middleware.ReplayBody{}},
		{"Guard", roundtrippers.Guard{Dialect: a}},
		{"Failover", roundtrippers.Failover{Dialect: a, Regions: a.Regions}},
		{"Session", roundtrippers.Session{Dialect: a, Regions: a.Regions}},
		{"Partition", roundtrippers.Partition{Dialect: a, Partitions: a.Partitions}},
		{"Breaker", roundtrippers.Breaker{Dialect: a, Regions: a.Regions, Partitions: a.Partitions}},
		{"Route by region", roundtrippers.Route{Dialect: a, Regions: a.Regions}},
		{"Route by owner", roundtrippers.Route{Dialect: shards, Owners: owners}},
		{"Throttle", roundtrippers.Throttle{Dialect: a}},
		{"RetryWith", roundtrippers.RetryWith{Dialect: a}},
		{"Shard", roundtrippers.Shard{Dialect: a}},
		{"AttemptTimeout", roundtrippers.AttemptTimeout{After: time.Minute}},
		{"Reroute", roundtrippers.Reroute{Dialect: shards, Owners: owners}},
		{"Retry", roundtrippers.Retry{Dialect: api}},
		{"Circuit", &roundtrippers.Circuit{Dialect: api}},
		{"Pause", &roundtrippers.Pause{Dialect: api}},
		{"PriorityHeader", roundtrippers.PriorityHeader{}},
		{"Concurrency", &roundtrippers.Concurrency{}},
		{"RateLimit", &roundtrippers.RateLimit{PerSecond: 1e9}},
		{"RetryBudget", &roundtrippers.RetryBudget{}},
		{"IdempotencyKey", roundtrippers.IdempotencyKey{}},
		{"Auth", &roundtrippers.Auth{Dialect: api, Origins: []string{workload.Endpoint}, Header: "X-Token",
			Source: func(context.Context) (roundtrippers.Token, error) { return roundtrippers.Token{Value: "t"}, nil }}},
	} {
		b.Run(l.name, func(b *testing.B) { everyWay(b, stack(b, workload.Terminal{}, l.layer)) })
	}
	b.Run("Pools", func(b *testing.B) { // a base, not a layer
		everyWay(b, &roundtrippers.Pools{New: newTerminal})
	})
}
