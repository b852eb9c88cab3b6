package roundtrippers

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/partitions"
)

// Partition finds the partition of each attempt before it is routed, for the
// layers below: Breaker, which watches partitions, and Route, which knows where
// their writes went. An operation whose partition cannot be found goes on
// without.
//
// When an answer proves the container's ranges stale (Cosmos DB 410/1002), or the
// container itself (410/1000), it has them read again and sends again, once and
// at once, after resolving anew (DESIGN rule 11). While a split or a move is under
// way (410/1007 and 1008, or ranges that make no complete map) that does not help
// yet, so it goes on asking, with waits, as the other SDKs do for 30 s. An answer
// from another range than the one found has the ranges read again in the
// background.
type Partition struct {
	Dialect    middleware.Dialect   // required
	Partitions *partitions.Registry // required
	// Retries per operation after ranges or a container that proved stale; 0 = 1.
	// What fails then is left to Failover.
	Retries int
	// SplitRetries per operation while a split or a move is under way; 0 = 9.
	SplitRetries int
	// MaxWait limits the sum of the waits before those; 0 = 30 s.
	MaxWait time.Duration
	// Backoff is the wait from the second of those on; zero = 100 ms doubling, at
	// most 5 s, +-25 %.
	Backoff middleware.Backoff
}

// Wrap reports missing and negative fields.
func (l Partition) Wrap(next http.RoundTripper) (http.RoundTripper, error) {
	var m mistakes
	m.dialect(l.Dialect)
	m.partitions(l.Partitions)
	negative(&m, "Retries", l.Retries)
	negative(&m, "SplitRetries", l.SplitRetries)
	negative(&m, "MaxWait", l.MaxWait)
	m.backoff(l.Backoff)
	if len(m) > 0 {
		return nil, m.join()
	}
	stale := &middleware.Budget{Name: "ranges", Retries: orDefault(l.Retries, 1)}
	moving := &middleware.Budget{Name: "split", Retries: orDefault(l.SplitRetries, 9), Time: orDefault(l.MaxWait, 30*time.Second)}
	backoff := orDefault(l.Backoff, middleware.Backoff{Base: 100 * time.Millisecond, Cap: 5 * time.Second, Jitter: 0.25})
	placed := middleware.Relay(next, l.Dialect, (&l).place)
	return middleware.Retry(placed, l.Dialect, func(_ context.Context, op *middleware.Operation, out middleware.Outcome) middleware.Verdict {
		v := middleware.Verdict{Budget: stale}
		switch {
		case !resolves(op.Intent()):
			return middleware.Verdict{}
		case out.Cause == middleware.Migrating, out.Cause == middleware.Split && op.Value(halfPublished{}) != nil:
			v.Budget = moving
			if n := op.Spent(moving).Retries; n > 0 {
				v.Wait = backoff.After(n - 1)
			}
		case out.Cause != middleware.Split && out.Cause != middleware.Gone:
			return middleware.Verdict{}
		}
		if v.Prepare = l.refresh(op, out.Stale); v.Prepare == nil {
			return middleware.Verdict{}
		}
		return v
	}, stale, moving)
}

// halfPublished is noted on an operation whose refresh found no complete map: the
// split is under way, whatever the answers say.
type halfPublished struct{}

// resolves reports whether another look at the ranges can find another
// partition: one that the request names itself is gone for good, and a request
// to all partitions has none.
func resolves(in middleware.Intent) bool { return in.RangeID == "" && in.PartitionKey != "" }

func (l *Partition) place(op *middleware.Operation, req *http.Request, next http.RoundTripper) (*http.Response, error) {
	in := op.Intent()
	if !in.Partitioned || in.Container == "" {
		return next.RoundTrip(req)
	}
	found, failed := l.resolve(req.Context(), in)
	op.Place(middleware.Placement{Resolved: found})
	if failed != nil {
		op.Emit(req.Context(), middleware.Event{Kind: middleware.RangesRefreshed, Err: fmt.Errorf("partition unknown: %w", failed)})
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
func (l *Partition) resolve(ctx context.Context, in middleware.Intent) (partitions.Resolved, error) {
	switch {
	case in.RangeID != "":
		return l.Partitions.ResolveRange(ctx, in.Container, in.RangeID)
	case in.PartitionKey != "":
		return l.Partitions.Resolve(ctx, in.Container, in.PartitionKey)
	}
	return partitions.Resolved{}, nil // a request to all partitions
}

// refresh has the stale map read again. A failure is no reason to stop.
func (l *Partition) refresh(op *middleware.Operation, stale middleware.Stale) func(context.Context) error {
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
		limited, cancel := withHalf(ctx)
		defer cancel()
		err := read(limited, seen)
		var incomplete *partitions.MapError
		if errors.As(err, &incomplete) {
			op.SetValue(halfPublished{}, incomplete)
		}
		op.Emit(ctx, middleware.Event{Kind: middleware.RangesRefreshed, Attempt: op.Sends(), Target: op.Target(), Err: err})
		return nil
	}
}

// withHalf leaves half of what time there is for what comes after.
func withHalf(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, time.Until(deadline)/2)
}
