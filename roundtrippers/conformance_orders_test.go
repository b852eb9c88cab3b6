package roundtrippers_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/rest"
	"github.com/reroute-go/reroute/roundtrippers"
)

// orders are how many stacks at random are tried.
const orders = 24

// Layers in any order and any number: what each promises alone must survive the
// others.
func TestLayersInAnyOrderKeepEveryPromise(t *testing.T) {
	d := rest.Dialect{}
	pick := []func() middleware.Layer{
		always(roundtrippers.Guard{Dialect: d}),
		always(roundtrippers.Failover{Dialect: d}),
		always(roundtrippers.Throttle{Dialect: d}),
		always(roundtrippers.RetryWith{Dialect: d}),
		always(roundtrippers.Shard{Dialect: d}),
		always(roundtrippers.Retry{Dialect: d}),
		always(roundtrippers.Reroute{Dialect: d}),
		always(roundtrippers.Deadline{After: 40 * time.Second}),
		// No operation opens its own circuit: what comes then is no answer, as promised.
		func() middleware.Layer { return &roundtrippers.Circuit{Dialect: d, Threshold: 100} },
		func() middleware.Layer { return &roundtrippers.Concurrency{} },
		func() middleware.Layer { return &roundtrippers.Pause{Dialect: d} },
		always(roundtrippers.PriorityHeader{}),
		func() middleware.Layer { return &roundtrippers.RateLimit{PerSecond: 100} },
		func() middleware.Layer { return &roundtrippers.RetryBudget{} },
		func() middleware.Layer { return tokenAuth() },
		always(roundtrippers.IdempotencyKey{}),
		always(middleware.ReplayBody{MaxBytes: 20}),
		always(foreignLayer{}),
	}
	for seed := range orders {
		random := rand.New(rand.NewPCG(uint64(seed), 6))
		var chosen []func() middleware.Layer
		var names []string
		for range 2 + random.IntN(5) {
			made := pick[random.IntN(len(pick))]
			chosen = append(chosen, made)
			names = append(names, strings.TrimPrefix(strings.TrimLeft(fmt.Sprintf("%T", made()), "*"), "roundtrippers."))
		}
		if random.IntN(3) == 0 { // its place is below the retrying layers
			chosen, names = append(chosen, always(roundtrippers.AttemptTimeout{After: 5 * time.Second})), append(names, "AttemptTimeout")
		}
		kit := one(func() middleware.Layer {
			var layers []middleware.Layer
			for _, made := range chosen {
				layers = append(layers, made())
			}
			return asLayer(layers...)
		}, patientRequest([]string{http.MethodPut, http.MethodPost, http.MethodGet}[random.IntN(3)]))
		t.Run(fmt.Sprintf("%d %s", seed, strings.Join(names, ", ")), kit.Run)
	}
}
