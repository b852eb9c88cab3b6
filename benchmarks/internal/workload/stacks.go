package workload

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/ownership"
	"github.com/reroute-go/reroute/middleware/rest"
	"github.com/reroute-go/reroute/roundtrippers"
)

// Owners is the ownership map of 5 nodes and 1,000 segments.
func Owners() (*ownership.Registry, error) {
	m := &ownership.Map{Epoch: 1, Segments: make([]ownership.Segment, 1000)}
	for i := range m.Segments {
		m.Segments[i].Owner = fmt.Sprintf("node-%d.kv.example:8080", i%5)
	}
	return ownership.New(ownership.Config{Source: ownership.MapSourceFunc(
		func(context.Context, *ownership.Map) (*ownership.Map, error) { return m, nil })})
}

// Ownership is the ready-made stack for keys that change owner, over base.
func Ownership(base http.RoundTripper) (http.RoundTripper, error) {
	owners, err := Owners()
	if err != nil {
		return nil, err
	}
	return roundtrippers.OwnershipBuilder{Dialect: &ownership.Dialect{}, Owners: owners, Base: base}.Build()
}

// API is the ready-made stack of an API client, over base.
func API(base http.RoundTripper) (http.RoundTripper, error) {
	return roundtrippers.APIBuilder{Dialect: rest.Dialect{}, Base: base}.Build()
}

// Again retries what is unavailable, so often: the policy that anybody would write
// on the one retry loop. It waits Wait before each retry, so that what a retry
// costs can be told from what it waits for.
type Again struct {
	Retries int
	Wait    time.Duration // 0 = not at all, without a timer
}

// Wrap reports negative fields.
func (a Again) Wrap(next http.RoundTripper) (http.RoundTripper, error) {
	budget := &middleware.Budget{Name: "again", Retries: a.Retries}
	wait := middleware.Backoff{Base: a.Wait, Cap: a.Wait}
	return middleware.Retry(next, rest.Dialect{}, middleware.WaitOn(middleware.Unavailable, budget, wait), budget)
}
