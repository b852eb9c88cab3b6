package roundtrippers

import (
	"context"
	"net/http"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/regions"
)

// Session looks for a replica that has seen the session's own writes, when the
// one asked has not (Cosmos DB 404/1002). On an account with one write region
// that is the write region; with several, each region is asked at most once, in
// order of preference. The session token goes with every attempt; it is never
// dropped to be content with a stale answer.
type Session struct {
	Dialect middleware.Dialect // required
	Regions *regions.Registry  // required
	// Retries per operation on an account with one write region; 0 = 2.
	Retries int
	// MaxRegions bounds the retries where there are several write regions, for
	// Describe's sake; the number of regions decides first. 0 = 16.
	MaxRegions int
}

// Wrap reports missing and negative fields.
func (l Session) Wrap(next http.RoundTripper) (http.RoundTripper, error) {
	var m mistakes
	m.dialect(l.Dialect)
	m.regions(l.Regions)
	negative(&m, "Retries", l.Retries)
	negative(&m, "MaxRegions", l.MaxRegions)
	if len(m) > 0 {
		return nil, m.join()
	}
	retries, maxRegions := orDefault(l.Retries, 2), orDefault(l.MaxRegions, 16)
	budget := &middleware.Budget{Name: "session", Retries: max(retries, maxRegions)}
	spent := &middleware.Budget{Name: "session"}
	return middleware.Retry(next, l.Dialect, func(_ context.Context, op *middleware.Operation, out middleware.Outcome) middleware.Verdict {
		if out.Cause != middleware.SessionLag {
			return middleware.Verdict{}
		}
		limit := retries
		if topology := l.Regions.Topology(); topology != nil && topology.MultiWrite {
			list := listOf(op.Intent())
			limit = l.Regions.Candidates(list, op.ExcludedRegions()) - 1
			op.Shun(op.Target().Region)
		} else {
			op.PreferHub(true)
		}
		if op.Spent(budget).Retries >= limit {
			return middleware.Verdict{Budget: spent}
		}
		return middleware.Verdict{Budget: budget}
	}, budget)
}
