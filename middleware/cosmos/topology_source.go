package cosmos

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/reroute-go/reroute/regions"
)

// topologySource reads the account document: from the account's own endpoint, else from each region known, else from
// each backup. What callers exclude does not matter here: an excluded region still knows the truth (DESIGN rule 6).
type topologySource struct {
	fetcher  *fetcher
	domain   *domain
	endpoint *url.URL
	backups  []*url.URL
}

// Fetch asks one endpoint after the other until one gives a good document. A region that is gone, fails, redirects or
// answers junk is passed over; a refused credential ends the walk. The error joins those of all endpoints asked.
func (s *topologySource) Fetch(ctx context.Context, old *regions.Topology) (*regions.Topology, error) {
	// The first time there may be nobody else to ask, so patience pays; later the next region is the better retry.
	rt := s.fetcher.hasty
	if old == nil {
		rt = s.fetcher.patient
	}
	var errs []error
	for _, u := range s.walk(old) {
		t, err := s.ask(ctx, rt, u, old)
		if err == nil {
			return t, nil
		}
		errs = append(errs, err)
		if ctx.Err() != nil || err.hopeless() {
			break
		}
	}
	return nil, errors.Join(errs...)
}

func (s *topologySource) ask(ctx context.Context, rt http.RoundTripper, u *url.URL, old *regions.Topology) (*regions.Topology, *FetchError) {
	got, failed := s.fetcher.get(ctx, rt, "account", u, nil)
	if failed != nil {
		return nil, failed
	}
	t, err := topologyOf(got.body, s.domain, old)
	if err != nil {
		return nil, &FetchError{What: "account", Endpoint: u.Host, Err: err}
	}
	return t, nil
}

// walk lists the endpoints in the order they are asked, each host once.
func (s *topologySource) walk(old *regions.Topology) []*url.URL {
	list := []*url.URL{s.endpoint}
	if old != nil {
		for _, e := range slices.Concat(old.Reads, old.Writes) {
			list = append(list, e.URL)
		}
	}
	var out []*url.URL
	for _, u := range append(list, s.backups...) {
		root := &url.URL{Scheme: u.Scheme, Host: u.Host, Path: "/"}
		if !slices.ContainsFunc(out, func(o *url.URL) bool { return sameHost(o, root) }) {
			out = append(out, root)
		}
	}
	return out
}

func sameHost(a, b *url.URL) bool {
	return strings.EqualFold(a.Hostname(), b.Hostname()) && portOf(a) == portOf(b)
}
