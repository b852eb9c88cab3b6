package roundtrippers

import (
	"context"
	"math"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/regions/snapshot"
)

// Reroute sends again when the node that was asked does not own the key, or
// cannot serve it now, in a service whose keys change owner. Where the answer
// proves the ownership map outdated, it has the map read first, in one fetch
// that all operations share, so that Route, to be stacked below with the same
// Owners, finds the new owner. A node that cannot be reached casts the same
// doubt on the map. Real answers, not found and conflict among them, are never
// retried (seed ownership-churn: "retry the churn, surface the truth").
//
//	answer                             send again   read the map   wait
//	moved, replica write rejected      yes          yes            Base x attempt
//	ownership changing                 yes          yes            Base x attempt
//	unavailable                        yes          no             Base x attempt
//	migrating                          yes          no             Base x attempt x MigratingFactor
//	transport failure, no known owner  yes          yes            Base x attempt
//	anything else                      no           no
//
// Two bounds hold, whichever trips first: Attempts, and the operation's
// deadline. The last failure leaves a refresh behind for those who come next.
// Writes whose repeat does harm are re-sent after an outcome in doubt unless a
// Guard is stacked outside, as in the ready-made stack.
type Reroute struct {
	Dialect middleware.Dialect // required
	// Owners knows the map; nil = there is none to refresh, plain retries.
	Owners Owners
	// Attempts is the number of sends per operation, the first included; 0 = 3,
	// and 1 sends nothing again.
	Attempts int
	// Base is the wait after the first attempt; it grows by as much with each
	// further one. 0 = 100 ms.
	Base time.Duration
	// MigratingFactor makes the waits for a migration longer; 0 = 8.
	MigratingFactor int
	// Cap limits a single wait, also one that the server wishes; 0 = 2 s.
	Cap time.Duration
	// Jitter spreads each wait evenly over +- that share of it, within Cap and never
	// below what the server wishes; 0 = not.
	Jitter float64
	// RefreshWait is how long an attempt is held up for the map; then it goes on
	// with the old one while the fetch goes on too. 0 = 15 s; -1 = not at all.
	RefreshWait time.Duration
	// SuspectAfter has the map read after so many answers in a row by which the
	// same owner was unavailable: a wedged owner can hide a move. 0 = never.
	SuspectAfter int
}

// Wrap reports a missing Dialect and bad fields.
func (l Reroute) Wrap(next http.RoundTripper) (http.RoundTripper, error) {
	var m mistakes
	m.dialect(l.Dialect)
	m.owners(l.Owners)
	negative(&m, "Attempts", l.Attempts)
	negative(&m, "Base", l.Base)
	negative(&m, "MigratingFactor", l.MigratingFactor)
	negative(&m, "Cap", l.Cap)
	m.jitter(l.Jitter)
	negativeOrNone(&m, "RefreshWait", l.RefreshWait)
	negative(&m, "SuspectAfter", l.SuspectAfter)
	if len(m) > 0 {
		return nil, m.join()
	}
	l.Base = orDefault(l.Base, 100*time.Millisecond)
	l.MigratingFactor = orDefault(l.MigratingFactor, 8)
	l.Cap = orDefault(l.Cap, 2*time.Second)
	l.RefreshWait = orDefault(l.RefreshWait, 15*time.Second)
	budget := &middleware.Budget{Name: "reroute", Retries: orDefault(l.Attempts, 3) - 1}
	r := &reroute{Reroute: l, budget: budget}
	return middleware.Retry(next, l.Dialect, r.policy, budget)
}

type reroute struct {
	Reroute // complete
	budget  *middleware.Budget
}

func (r *reroute) policy(_ context.Context, op *middleware.Operation, out middleware.Outcome) middleware.Verdict {
	key, used := op.Intent().PartitionKey, op.Target()
	if key == "" || !churn(out.Cause) {
		return middleware.Verdict{}
	}
	retries := op.Spent(r.budget).Retries
	v := middleware.Verdict{Budget: r.budget, Wait: r.wait(retries+1, out)}
	if r.Owners == nil || !staleOwner(out) && !r.suspect(op, out) {
		return v
	}
	if out.Owner != "" && r.Owners.Learn(key, used, out.Owner, out.Epoch) {
		// Straight to the owner, once for each new thing learned: two nodes that
		// name each other must not make it spin (Z070, Z073).
		if out.Epoch > used.Epoch || out.Epoch == 0 && retries == 0 {
			v.Wait = 0
		}
		return v
	}
	v.Stopped = func() { r.Owners.Trigger(key, used) }
	if r.RefreshWait < 0 {
		v.Prepare = func(context.Context) error { v.Stopped(); return nil }
		return v
	}
	insist := retries > 0 || out.Epoch > used.Epoch
	v.Prepare = func(ctx context.Context) error {
		err := r.refresh(ctx, key, used, insist, v.Wait)
		op.Emit(ctx, middleware.Event{Kind: middleware.RangesRefreshed, Attempt: op.Sends(), Target: used, Cause: out.Cause, Code: out.Code, Err: err})
		return nil // the old map may serve
	}
	return v
}

// churn tells what passes when ownership settles from what is a real answer or
// another layer's concern.
func churn(c middleware.Cause) bool {
	switch c {
	case middleware.Gone, middleware.Split, middleware.NotPrimary, middleware.Migrating, middleware.Unavailable:
		return true
	}
	return failedTransport(c)
}

// failedTransport names the causes that come without an answer.
func failedTransport(c middleware.Cause) bool {
	switch c {
	case middleware.Unreachable, middleware.Broken, middleware.Timeout, middleware.CircuitOpen:
		return true
	}
	return false
}

// staleOwner reports whether the outcome shows, or lets suspect, that somebody
// else owns the key by now.
func staleOwner(out middleware.Outcome) bool {
	return out.Stale == middleware.StaleRanges || failedTransport(out.Cause)
}

// suspect reports whether the same owner was unavailable too often in a row.
func (r *reroute) suspect(op *middleware.Operation, out middleware.Outcome) bool {
	if r.SuspectAfter == 0 || out.Cause != middleware.Unavailable {
		return false
	}
	attempts, owner, run := op.Report().Attempts, op.Target().Endpoint, 0
	for i := len(attempts) - 1; i >= 0 && attempts[i].Endpoint == owner && attempts[i].Cause == middleware.Unavailable; i-- {
		run++
	}
	return run >= r.SuspectAfter
}

// refresh waits for the map no longer than leaves time for one more attempt: a
// wait that eats up the deadline would end with an answer whose body is gone.
func (r *reroute) refresh(ctx context.Context, key string, used middleware.Target, insist bool, then time.Duration) error {
	limit := r.RefreshWait
	if deadline, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(deadline)-then)
	}
	waiting, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := r.Owners.Refresh(waiting, key, used, insist)
	if err != nil && waiting.Err() != nil && ctx.Err() == nil {
		return snapshot.ErrMaxWait // no end of the operation's own time
	}
	return err
}

// wait is linear in the attempt. The server can lengthen it, not shorten it, and
// nothing goes beyond the cap (Z041 to Z047).
func (r *reroute) wait(attempt int, out middleware.Outcome) time.Duration {
	factor := 1
	if out.Cause == middleware.Migrating {
		factor = r.MigratingFactor
	}
	wait := max(linear(r.Base, attempt, factor, r.Cap), out.Wait)
	if r.Jitter > 0 {
		wait = max(out.Wait, time.Duration(float64(min(wait, r.Cap))*(1-r.Jitter+2*r.Jitter*rand.Float64())))
	}
	return min(wait, r.Cap)
}

// linear is base x attempt x factor, at most limit, however large its operands.
func linear(base time.Duration, attempt, factor int, limit time.Duration) time.Duration {
	if attempt <= 0 || factor <= 0 || base <= 0 {
		return 0
	}
	if attempt > math.MaxInt/factor || time.Duration(attempt*factor) > limit/base {
		return limit
	}
	return base * time.Duration(attempt*factor)
}
