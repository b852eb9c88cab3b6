package workload

import (
	"context"
	"net/http"
	"time"

	"github.com/reroute-go/reroute/middleware/cosmos"
	"github.com/reroute-go/reroute/roundtrippers"
)

const (
	// Endpoint is the account's.
	Endpoint = "https://account.documents.example"
	// Container is that of all requests.
	Container = "dbs/db/colls/c"

	key = "bm90IGEgc2VjcmV0LCBqdXN0IGEgdGVzdCBrZXk="
)

// Open opens an account whose container has so many ranges. Its own reads go to
// the Service, not through the stacks that are measured.
func Open(ranges int, opts cosmos.Options) (*cosmos.Account, *Service, error) {
	s := NewService(ranges)
	opts.Transport = s
	opts.Partitions.RefreshWait = time.Minute // 10,000 ranges may take their time on a busy machine
	a, err := cosmos.Open(context.Background(), Endpoint, cosmos.SharedKey(key), opts)
	return a, s, err
}

// Cosmos is the standard Cosmos DB stack over base, with the account's ranges
// read already. Its throttling does not wait.
func Cosmos(a *cosmos.Account, base http.RoundTripper) (http.RoundTripper, error) {
	if _, err := a.Partitions.Resolve(context.Background(), Container, `["p1"]`); err != nil {
		return nil, err
	}
	b := roundtrippers.Builder{Dialect: a, Regions: a.Regions, Partitions: a.Partitions, Base: base}
	b.Throttle.Backoff.Base = 1
	return b.Build()
}
