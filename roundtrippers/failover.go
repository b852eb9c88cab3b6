package roundtrippers

import (
	"context"
	"net/http"
	"time"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/regions"
)

// Failover sends again in another region when the one asked cannot serve: server
// errors, timeouts, moved partitions and transport errors, out of one budget.
// When the account's regions have changed their roles it has the topology read
// again first, out of a budget of its own, as the change takes a while to settle
// (seed: "Why a dedicated 120-attempt x 1s budget").
//
// Failover only wishes: it asks the operation to avoid a region, and Route
// decides. Without Route it is a plain retry at the same endpoint.
type Failover struct {
	Dialect middleware.Dialect // required
	Regions *regions.Registry  // nil = no topology to refresh
	// Retries per operation; 0 = 3.
	Retries int
	// Wait before each of them; 0 = none, as the next region is another one.
	Wait time.Duration
	// TopologyRetries per operation, after a region that takes no writes on an
	// account with several write regions, or that left the account; 0 = 120.
	TopologyRetries int
	// TopologyWait before each of those; 0 = 1 s.
	TopologyWait time.Duration
	// Converge replaces the two fields above, and the plain budget of a
	// single-write account, by the newer driver's: at once, then 1 s doubling
	// with +-25 % jitter, 5 s in all and at most 10 retries.
	Converge bool
}

// Wrap reports a missing Dialect and negative fields.
func (l Failover) Wrap(next http.RoundTripper) (http.RoundTripper, error) {
	var m mistakes
	m.dialect(l.Dialect)
	negative(&m, "Retries", l.Retries)
	negative(&m, "Wait", l.Wait)
	negative(&m, "TopologyRetries", l.TopologyRetries)
	negative(&m, "TopologyWait", l.TopologyWait)
	if len(m) > 0 {
		return nil, m.join()
	}
	f := &failover{
		regions:  l.Regions,
		wait:     l.Wait,
		settle:   orDefault(l.TopologyWait, time.Second),
		converge: l.Converge,
		plain:    &middleware.Budget{Name: "failover", Retries: orDefault(l.Retries, 3)},
		topology: &middleware.Budget{Name: "topology", Retries: orDefault(l.TopologyRetries, 120)},
	}
	if l.Converge {
		f.topology = &middleware.Budget{Name: "convergence", Retries: 10, Time: convergence}
		if f.regions != nil {
			next = middleware.Relay(next, l.Dialect, f.settled)
		}
	}
	return middleware.Retry(next, l.Dialect, f.policy, f.plain, f.topology)
}

const convergence = 5 * time.Second

type failover struct {
	regions         *regions.Registry
	wait, settle    time.Duration
	converge        bool
	plain, topology *middleware.Budget
}

func (f *failover) policy(_ context.Context, op *middleware.Operation, out middleware.Outcome) middleware.Verdict {
	switch out.Cause {
	case middleware.Unavailable, middleware.Timeout, middleware.Gone, middleware.Split, middleware.Migrating,
		middleware.Unreachable, middleware.Broken, middleware.CircuitOpen:
		op.Avoid(op.Target().Region)
		return middleware.Verdict{Budget: f.plain, Wait: f.wait}
	case middleware.NotPrimary:
		op.Avoid(op.Target().Region)
		if !f.converge && !f.multiWrite() {
			return middleware.Verdict{Budget: f.plain, Wait: f.wait, Prepare: f.refresh(op)}
		}
	case middleware.Removed:
		op.Avoid(op.Target().Region)
	default:
		return middleware.Verdict{}
	}
	wait := f.settle
	if f.converge {
		wait = f.convergenceWait(op)
	}
	return middleware.Verdict{Budget: f.topology, Wait: wait, Prepare: f.refresh(op)}
}

func (f *failover) multiWrite() bool {
	if f.regions == nil {
		return false
	}
	topology := f.regions.Topology()
	return topology != nil && topology.MultiWrite
}

// convergenceWait follows the newer driver: the first retry at once, and the
// last wait cut to what is left rather than refused.
func (f *failover) convergenceWait(op *middleware.Operation) time.Duration {
	spent := op.Spent(f.topology)
	left := convergence - spent.Waited
	switch {
	case spent.Retries == 0:
		return 0
	case left <= 0:
		return convergence // more than the budget has: refused
	}
	wait := middleware.Backoff{Base: time.Second, Cap: 15 * time.Second, Jitter: 0.25}.After(spent.Retries - 1)
	return min(wait, left)
}

// settled looks once more after a wait: the last wait is the longest, and what
// was read before it is as old as the registry's interval by now. Without it a
// topology that settles two seconds late would be missed (B61).
func (f *failover) settled(op *middleware.Operation, req *http.Request, next http.RoundTripper) (*http.Response, error) {
	if op.Spent(f.topology).Waited > 0 && op.Target().Topology == f.regions.Topology() {
		_ = f.refresh(op)(req.Context())
	}
	return next.RoundTrip(req)
}

// refresh has the topology read again, unless somebody did since the attempt was
// routed, and waits for it within the registry's limit. A failure is no reason
// to stop: the next region may serve under the topology we have.
func (f *failover) refresh(op *middleware.Operation) func(context.Context) error {
	if f.regions == nil {
		return nil
	}
	return func(ctx context.Context) error {
		_, err := f.regions.Refresh(ctx, op.Target().Topology)
		op.Emit(ctx, middleware.Event{Kind: middleware.TopologyRefreshed, Attempt: op.Sends(), Target: op.Target(), Err: err})
		return nil
	}
}
