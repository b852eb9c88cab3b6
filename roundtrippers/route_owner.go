package roundtrippers

import (
	"context"
	"net/http"

	"github.com/reroute-go/reroute/middleware"
)

// Owners knows which node owns what, in a service whose keys change owner.
// middleware/ownership has one. Implementations are safe for concurrent use.
type Owners interface {
	// Owner returns where requests with key go now. It waits, within ctx, only as
	// long as no map at all is known. An error that wraps middleware.ErrNoOwner
	// means that nobody owns the key now; the Target then still says by which map.
	Owner(ctx context.Context, key string) (middleware.Target, error)
	// Refresh returns when something newer is known about key than used, the
	// Target that proved wrong: at once if it is already, else after one fetch of
	// the map that all callers share. An insisting caller was turned away before
	// and may shorten the pause between two fetches. The fetch goes on when ctx ends.
	Refresh(ctx context.Context, key string, used middleware.Target, insist bool) error
	// Trigger asks for the same fetch and does not wait for it.
	Trigger(key string, used middleware.Target)
	// Learn is told whom an answer of used names as the owner of key and how new
	// that knowledge is, 0 = unsaid. It reports whether requests with key now go
	// there; a host that may not be trusted is refused. It never blocks.
	Learn(key string, used middleware.Target, owner string, epoch uint64) bool
}

// toOwner is Route where keys have owners: the owner is picked anew for each
// attempt. A request without a key passes as it is (Z093).
func (l *Route) toOwner(op *middleware.Operation, req *http.Request, next http.RoundTripper) (*http.Response, error) {
	in := op.Intent()
	if in.Scope == middleware.Foreign || in.PartitionKey == "" {
		return next.RoundTrip(req)
	}
	if req.URL == nil {
		return middleware.Refuse(req, errNoURL)
	}
	target, err := l.Owners.Owner(req.Context(), in.PartitionKey)
	op.SetTarget(target)
	if err != nil {
		return middleware.Refuse(req, err)
	}
	host := orDefault(req.Host, req.URL.Host)
	there := op.Readdress(req, req.URL.Scheme, target.Endpoint)
	if l.KeepHost {
		there.Host = host
	}
	return next.RoundTrip(there)
}
