package workload

import (
	"context"
	"fmt"
	"net/http"

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

// Prompt retries what is unavailable, so often and without a wait to speak of:
// what a retry costs, not what it waits for. It is the policy that anybody would
// write on the one retry loop.
type Prompt struct{ Retries int }

// Wrap never fails.
func (p Prompt) Wrap(next http.RoundTripper) (http.RoundTripper, error) {
	budget := &middleware.Budget{Name: "prompt", Retries: p.Retries}
	return middleware.Retry(next, rest.Dialect{}, middleware.WaitOn(middleware.Unavailable, budget, middleware.Backoff{Base: 1}), budget)
}
