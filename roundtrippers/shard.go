package roundtrippers

import (
	"context"
	"net/http"

	"github.com/reroute-go/reroute/idempotency"
	"github.com/reroute-go/reroute/middleware"
)

// Shard sends again at once, to the same endpoint over another connection pool,
// when the connection failed rather than the service (seed cosmos-retries: "1
// local retry on a different TCP shard"). A request that was certainly not sent
// is repeated whatever it is. One that may have been sent is repeated only if it
// reads, or is idempotent in the strict sense: a create is not, as its repeat
// would answer "exists", nor what the dialect calls Lenient (R056). Whether it
// may be repeated elsewhere is for the other layers to say.
//
// It asks for the pool with Operation.AnotherPool, which Pools heeds. Over
// another base it is one plain retry.
type Shard struct {
	Dialect middleware.Dialect // required
	// Retries per operation; 0 = 1.
	Retries int
	// Timeouts also repeats, by the same rules, an attempt that ended without an
	// answer in time, which is how a silently dropped connection shows unless
	// HTTP/2 pings find it out (B83). Without it that attempt is left to
	// Failover, as it has cost its time already; a later one at the same
	// endpoint takes another pool all the same.
	Timeouts bool
}

// Wrap reports a missing Dialect and negative Retries.
func (l Shard) Wrap(next http.RoundTripper) (http.RoundTripper, error) {
	var m mistakes
	m.dialect(l.Dialect)
	if negative(&m, "Retries", l.Retries); len(m) > 0 {
		return nil, m.join()
	}
	budget := &middleware.Budget{Name: "shard", Retries: orDefault(l.Retries, 1)}
	return middleware.Retry(next, l.Dialect, func(ctx context.Context, op *middleware.Operation, out middleware.Outcome) middleware.Verdict {
		if !connectionFailed(out) || ctx.Err() != nil {
			return middleware.Verdict{}
		}
		// Asked for even if this layer does not re-send: another one may.
		op.AnotherPool()
		if out.Cause == middleware.Timeout && !l.Timeouts || !out.Unapplied && !strictlyIdempotent(op.Intent()) {
			return middleware.Verdict{}
		}
		return middleware.Verdict{Budget: budget}
	}, budget)
}

// connectionFailed reports whether an outcome says something of the connection.
// Any answer, a bad one too, proves that it works.
func connectionFailed(out middleware.Outcome) bool {
	switch out.Cause {
	case middleware.Unreachable, middleware.Broken, middleware.Timeout:
		return out.Status == 0
	}
	return false
}

// strictlyIdempotent tells requests that leave the same state and do not answer
// the repeat of a success with a failure to create. An unjudged write is not.
func strictlyIdempotent(in middleware.Intent) bool {
	switch {
	case !in.Write:
		return true
	case in.Echo == idempotency.Exists, in.Lenient:
		return false
	}
	return in.Level == idempotency.Idempotent || in.Level == idempotency.Safe
}
