package main

import (
	"net/http"
	"time"

	"github.com/reroute-go/reroute/benchmarks/internal/workload"
	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/cosmos"
	"github.com/reroute-go/reroute/middleware/rest"
	"github.com/reroute-go/reroute/roundtrippers"
)

// Names of reroute's stacks that the claims are about.
const (
	ownRetry   = "**reroute**: retry"
	ownBreaker = "**reroute**: retry, breaker"
	ownFour    = "**reroute**: retry, breaker, rate limit, attempt timeout"
	ownAPI     = "**reroute**: APIBuilder"
	ownOwners  = "**reroute**: OwnershipBuilder"
	ownCosmos  = "**reroute**: Builder, Cosmos DB, 10,000 ranges"
)

// own are reroute's stacks beside which the others stand.
func own() []peer {
	again := workload.Again{Retries: retries, Wait: 1}
	stack := func(name string, layers func() []middleware.Layer) peer {
		return transport(name, true, func(base http.RoundTripper) (http.RoundTripper, error) {
			return middleware.Stack(base, layers()...)
		})
	}
	circuit := func() middleware.Layer { return &roundtrippers.Circuit{Dialect: rest.Dialect{}} }
	return []peer{
		stack(ownRetry, func() []middleware.Layer { return []middleware.Layer{again} }),
		stack(ownBreaker, func() []middleware.Layer { return []middleware.Layer{again, circuit()} }),
		stack(ownFour, func() []middleware.Layer {
			return []middleware.Layer{again, circuit(), &roundtrippers.RateLimit{PerSecond: 1e9}, roundtrippers.AttemptTimeout{After: time.Minute}}
		}),
		transport(ownAPI, false, workload.API),
		transport(ownOwners, false, workload.Ownership),
		transport(ownCosmos, true, func(base http.RoundTripper) (http.RoundTripper, error) {
			a, _, err := workload.Open(10_000, cosmos.Options{})
			if err != nil {
				return nil, err
			}
			return workload.Cosmos(a, base)
		}),
	}
}
