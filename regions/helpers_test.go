package regions_test

import (
	"context"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/regions"
)

// The regions of most tests; their hosts are made by endpoint.
const (
	east  regions.Name = "East US"
	west  regions.Name = "West US"
	north regions.Name = "North Europe"
)

func endpoint(n regions.Name) regions.Endpoint {
	return regions.Endpoint{Region: n, URL: &url.URL{Scheme: "https", Host: "acct-" + n.Key() + ".documents.example:443"}}
}

func endpointsOf(names ...regions.Name) []regions.Endpoint {
	var out []regions.Endpoint
	for _, n := range names {
		out = append(out, endpoint(n))
	}
	return out
}

func multiWrite(names ...regions.Name) *regions.Topology {
	return &regions.Topology{Reads: endpointsOf(names...), Writes: endpointsOf(names...), MultiWrite: true}
}

// singleWrite has its hub at the first name.
func singleWrite(names ...regions.Name) *regions.Topology {
	return &regions.Topology{Reads: endpointsOf(names...), Writes: endpointsOf(names[0])}
}

// account is a Source whose answer and speed the test sets.
type account struct {
	mu    sync.Mutex
	now   *regions.Topology
	err   error
	takes time.Duration
	reads int
}

func (a *account) Fetch(ctx context.Context, _ *regions.Topology) (*regions.Topology, error) {
	a.mu.Lock()
	a.reads++
	now, err, takes := a.now, a.err, a.takes
	a.mu.Unlock()
	if takes > 0 {
		select {
		case <-time.After(takes):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if err != nil {
		return nil, err
	}
	return now, nil
}

func (a *account) set(now *regions.Topology, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.now, a.err = now, err
}

func (a *account) fetches() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.reads
}

// open returns a registry that knows a topology.
func open(t testing.TB, topology *regions.Topology, preferred ...regions.Name) (*regions.Registry, *account) {
	t.Helper()
	a := &account{now: topology}
	r, err := regions.New(regions.Config{Source: a, Preferred: preferred})
	require.NoError(t, err)
	_, err = r.Refresh(context.Background(), nil)
	require.NoError(t, err)
	return r, a
}

func pick(t testing.TB, r *regions.Registry, w regions.Want) regions.Choice {
	t.Helper()
	c, err := r.Pick(w)
	require.NoError(t, err)
	return c
}

// at returns a choice of the wanted region, reached by excluding all others.
func at(t testing.TB, r *regions.Registry, n regions.Name, write bool) regions.Choice {
	t.Helper()
	w := regions.Want{Write: write}
	if write {
		w.From = regions.WriteRegions
	}
	for _, e := range r.Endpoints(w.From) {
		if !e.Region.Equal(n) {
			w.Excluded = append(w.Excluded, e.Region)
		}
	}
	c := pick(t, r, w)
	require.Equal(t, n, c.Region)
	return c
}

// fail marks a region.
func fail(t testing.TB, r *regions.Registry, n regions.Name, why regions.Reason) {
	t.Helper()
	r.Report(at(t, r, n, why == regions.WriteForbidden), regions.Failed, why)
}

// order spells the regions of a list.
func order(list []regions.Endpoint) string {
	var names []string
	for _, e := range list {
		names = append(names, string(e.Region))
	}
	return strings.Join(names, ", ")
}
