package roundtrippers

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/partitions"
)

// Partition finds the partition of each attempt before it is routed, for the
// layers below: Breaker, which watches partitions, and Route, which knows where
// their writes went. An operation whose partition cannot be found goes on
// without.
//
// When an answer proves the container's ranges stale (Cosmos DB 410/1002, 1007
// and 1008), or the container itself (410/1000), it has them read again and
// sends again at once, after resolving anew (DESIGN rule 11). An answer from
// another range than the one found has them read again in the background.
type Partition struct {
	Dialect    middleware.Dialect   // required
	Partitions *partitions.Registry // required
	// Retries per operation after a refresh; 0 = 1. What fails then is left to
	// Failover.
	Retries int
}

// Wrap reports missing fields and negative Retries.
func (l Partition) Wrap(next http.RoundTripper) (http.RoundTripper, error) {
	budget, err := budgetOf("ranges", orDefault(l.Retries, 1), 0)
	switch {
	case err != nil:
		return nil, err
	case l.Dialect == nil:
		return nil, errNoDialect
	case l.Partitions == nil:
		return nil, errNoPartitions
	}
	placed := middleware.Operate(next, l.Dialect, l.place)
	return middleware.Retry(placed, l.Dialect, func(_ context.Context, op *middleware.Operation, out middleware.Outcome) middleware.Verdict {
		if out.Cause != middleware.Split && out.Cause != middleware.Gone {
			return middleware.Verdict{}
		}
		refresh := l.refresh(op, out.Stale)
		if refresh == nil || op.Intent().RangeID != "" {
			return middleware.Verdict{} // a request that names a range that is gone will not be served again
		}
		return middleware.Verdict{Budget: budget, Prepare: refresh}
	}, budget)
}

var errNoPartitions = errors.New("Partitions is nil: which registry knows the partitions?")

func (l Partition) place(op *middleware.Operation, req *http.Request, next http.RoundTripper) (*http.Response, error) {
	in := op.Intent()
	if !in.Partitioned || in.Container == "" {
		return next.RoundTrip(req)
	}
	found, err := l.resolve(req.Context(), in)
	op.Place(middleware.Placement{Resolved: found})
	if err != nil && found.Partition.Range == "" {
		op.Emit(req.Context(), middleware.Event{Kind: middleware.RangesRefreshed, Err: fmt.Errorf("partition unknown: %w", err)})
	}
	resp, err := next.RoundTrip(req)
	switch out := op.Judge(l.Dialect, resp, err); {
	case out.Stale == middleware.StaleContainer && !out.Cause.Transient():
		l.Partitions.DoubtContainer(found)
	case out.Stale == middleware.StaleRanges && in.RangeID != "":
		l.Partitions.Doubt(found)
	default:
		l.Partitions.Served(found, out.Range)
	}
	return resp, err
}

// resolve finds the partition that the request names, or that its key belongs to.
func (l Partition) resolve(ctx context.Context, in middleware.Intent) (partitions.Resolved, error) {
	switch {
	case in.RangeID != "":
		return l.Partitions.ResolveRange(ctx, in.Container, in.RangeID)
	case in.PartitionKey != "":
		return l.Partitions.Resolve(ctx, in.Container, in.PartitionKey)
	}
	return partitions.Resolved{}, nil // a request to all partitions
}

// refresh has the stale map read again. A failure is no reason to stop.
func (l Partition) refresh(op *middleware.Operation, stale middleware.Stale) func(context.Context) error {
	read := l.Partitions.Refresh
	switch stale {
	case middleware.StaleRanges:
	case middleware.StaleContainer:
		read = l.Partitions.RefreshContainer
	default:
		return nil
	}
	return func(ctx context.Context) error {
		seen := op.Placement().Resolved
		err := read(ctx, seen)
		op.Emit(ctx, middleware.Event{Kind: middleware.RangesRefreshed, Attempt: op.Sends(), Target: op.Target(), Err: err})
		return nil
	}
}
