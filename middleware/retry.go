package middleware

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/reroute-go/reroute/internal/check"
)

// Policy looks at one transient outcome and says whether its layer wants the
// operation sent again. It runs on the request path and must not block or send;
// op.Spent tells what was charged so far.
type Policy func(ctx context.Context, op *Operation, out Outcome) Verdict

// Verdict is a policy's answer. Its zero value means: not my concern.
type Verdict struct {
	// Budget pays for the re-send; nil = do not send again. One that Retry was not
	// given counts as spent.
	Budget *Budget
	// Wait comes before the re-send; a negative one counts as 0.
	Wait time.Duration
	// Postpone is for operations that would rather wait than fail while the shared
	// limit of re-sends (Operation.LimitRetries) is used up: they ask again this
	// much later. 0 = such an operation ends with the answer in hand.
	Postpone time.Duration
	// Replay is set where the re-send is no retry but the second half of one
	// attempt, such as the same request with a fresh token: it is not told as a
	// RetryScheduled.
	Replay bool
	// Quiet is set where the re-send only goes on with a wait that was broken off
	// before anything was sent: it is not told as a RetryScheduled either, and no
	// shared limit of re-sends is asked for it.
	Quiet bool
	// Err, with a nil Budget, is put before the transport's error. It never
	// replaces an answer.
	Err error
	// Prepare, if set, runs once the checks have passed, before the wait: it
	// brings up to date what the next attempt needs, and is bounded by ctx. An
	// error ends the operation with the answer in hand.
	Prepare func(ctx context.Context) error
	// Stopped, if set, runs instead of the re-send where a check or Prepare says
	// no: what the next operation will need can be asked for. It must not block.
	Stopped func()
}

// Retry returns the one loop that sends again. It sends through next, has d
// judge the result and, where the outcome is transient, asks p. Before any
// re-send it checks, in this order: the operation may be repeated, or nothing
// was carried out; the verdict's budget has a count and time left; the wait ends
// before the deadline; the body can be replayed; a shared limiter, if there is
// one, has a re-send left. What fails a check is returned as it is, at once: an answer is never turned into an error.
//
// The budgets are all those that p may name, for Describe. Each is counted per
// operation, so sends <= 1 + the sum of all budgets of a stack, whatever the
// order of its layers.
//
// Retry returns an error when d or p is nil or a budget is nil or negative: all of
// them at once.
func Retry(next http.RoundTripper, d Dialect, p Policy, budgets ...*Budget) (http.RoundTripper, error) {
	var errs []error
	switch {
	case d == nil:
		errs = append(errs, errors.New("Dialect is nil: which service is this?"))
	case check.IsNil(d):
		errs = append(errs, fmt.Errorf("Dialect is a nil %T: has it been opened?", d))
	}
	if p == nil {
		errs = append(errs, errors.New("Policy is nil"))
	}
	for i, b := range budgets {
		switch {
		case b == nil:
			errs = append(errs, fmt.Errorf("budget %d is nil", i))
		case b.Retries < 0 || b.Time < 0:
			errs = append(errs, fmt.Errorf("budget %q allows %d retries in %v, want >= 0", b.Name, b.Retries, b.Time))
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return &retrier{next: recorded(next), dialect: d, policy: p, budgets: budgets}, nil
}

// RetryAny is Retry with a policy that is asked about every result, answers that
// no other layer would repeat included. Only what no repeat is about stays from
// it: the caller's end and what a layer refused to send.
func RetryAny(next http.RoundTripper, d Dialect, p Policy, budgets ...*Budget) (http.RoundTripper, error) {
	rt, err := Retry(next, d, p, budgets...)
	if err != nil {
		return nil, err
	}
	rt.(*retrier).any = true
	return rt, nil
}

type retrier struct {
	next    recording
	dialect Dialect
	policy  Policy
	budgets []*Budget
	any     bool // the policy is asked about final outcomes too
}

func (r *retrier) CloseIdleConnections() { closeIdle(r.next) }

func (r *retrier) recordsAtBase() bool { return r.next.recordsAtBase() }

func (r *retrier) RoundTrip(req *http.Request) (*http.Response, error) { return operate(req, r) }

// work is the loop.
func (r *retrier) work(op *Operation, req *http.Request) (*http.Response, error) {
	req = op.speak(r.dialect, req)
	ctx := req.Context()
	if ctx.Err() != nil {
		return Refuse(req, context.Cause(ctx))
	}
	attempt, to := req, address{req.URL, req.Host}
	for {
		resp, err := r.next.RoundTrip(attempt)
		if !r.any && resp != nil && op.settled(resp) {
			return resp, err
		}
		out := op.Judge(r.dialect, resp, err)
		if !r.asks(out) || op.Intent().Scope == Foreign {
			return resp, err
		}
		v := r.policy(ctx, op, out)
		if v.Budget == nil {
			if v.Err != nil && resp == nil {
				err = fmt.Errorf("%w: %w", v.Err, err)
			}
			return resp, err
		}
		v.Wait = max(v.Wait, 0)
		again, stop, why := r.prepare(ctx, op, req, to, out, v)
		if stop != NotStopped {
			op.stopped(ctx, stop, out, v, why)
			if v.Stopped != nil {
				v.Stopped()
			}
			return resp, err
		}
		op.spend(v)
		if !v.Replay && !v.Quiet {
			op.scheduled(ctx, out, v.Budget.Name, v.Wait)
		}
		if resp != nil {
			discard(resp)
		}
		if stop, err := r.wait(ctx, op, out, v); stop != NotStopped {
			op.stopped(ctx, stop, out, v, nil)
			return Refuse(again, err)
		}
		attempt = again
	}
}

// asks reports whether an outcome is the policy's business.
func (r *retrier) asks(out Outcome) bool {
	if !r.any {
		return !out.final()
	}
	switch out.Cause {
	case Canceled, DeadlineExceeded, Refused:
		return false
	}
	return true
}

// wait sleeps, and again for as long as the limiter of re-sends refuses, where
// the verdict allows for that.
func (r *retrier) wait(ctx context.Context, op *Operation, out Outcome, v Verdict) (Stop, error) {
	if !sleep(ctx, v.Wait) {
		return op.stopOf(), context.Cause(ctx)
	}
	if v.Postpone <= 0 || v.Quiet {
		return NotStopped, nil // the limiter was asked before the wait, or before the one that was broken off
	}
	for limiter := op.retryLimiter(); limiter != nil && !limiter.AllowRetry(); {
		if !op.prolong(v.Budget, v.Postpone) {
			return BudgetSpent, ErrBudgetSpent
		}
		if err := CheckWait(ctx, v.Postpone, "the shared retry budget"); err != nil {
			return Deadline, err
		}
		op.scheduled(ctx, out, v.Budget.Name, v.Postpone)
		if !sleep(ctx, v.Postpone) {
			return op.stopOf(), context.Cause(ctx)
		}
	}
	return NotStopped, nil
}

func (op *Operation) scheduled(ctx context.Context, out Outcome, budget string, wait time.Duration) {
	op.emit(ctx, func() Event {
		return Event{Kind: RetryScheduled, Attempt: op.Sends(), Target: op.Target(), Cause: out.Cause, Code: out.Code,
			Budget: budget, Wait: wait}
	})
}

// prepare makes the four checks, in their order, and what the next attempt needs.
// It returns that attempt's request, or why there is none.
func (r *retrier) prepare(ctx context.Context, op *Operation, req *http.Request, to address, out Outcome, v Verdict) (*http.Request, Stop, error) {
	switch {
	case !op.mayRepeat(out):
		return nil, NotRepeatable, nil
	case !slices.Contains(r.budgets, v.Budget) || !op.affords(v):
		return nil, BudgetSpent, nil
	case ctx.Err() != nil:
		return nil, op.stopOf(), nil
	case !fits(ctx, v.Wait):
		return nil, Deadline, nil
	case !op.canReplay(req):
		return nil, NotReplayable, nil
	}
	if v.Prepare != nil {
		err := v.Prepare(ctx)
		switch { // it has taken time of its own
		case ctx.Err() != nil:
			return nil, op.stopOf(), err
		case err != nil:
			return nil, NotPrepared, err
		case !fits(ctx, v.Wait):
			return nil, Deadline, nil
		}
	}
	if limiter := op.retryLimiter(); limiter != nil && v.Postpone <= 0 && !v.Quiet && !limiter.AllowRetry() {
		return nil, BudgetSpent, nil
	}
	again, err := op.again(req, to)
	if err != nil {
		return nil, NotReplayable, err
	}
	return again, NotStopped, nil
}

// stopOf tells the end of the operation from that of the loop's own context,
// which is an attempt's where the loop is stacked below an AttemptTimeout.
func (op *Operation) stopOf() Stop {
	op.mu.Lock()
	defer op.mu.Unlock()
	if stop := stopOf(op.governing()); stop != NotStopped {
		return stop
	}
	return NotRetried
}

// fits reports whether a wait ends before the deadline. A wait that does not is
// not begun: the caller gets the answer in hand now instead of nothing later.
func fits(ctx context.Context, wait time.Duration) bool {
	deadline, ok := ctx.Deadline()
	return !ok || time.Until(deadline) > wait
}

// sleep waits and reports whether the operation may go on.
func sleep(ctx context.Context, wait time.Duration) bool {
	if wait <= 0 {
		return ctx.Err() == nil
	}
	if ctx.Done() == nil {
		time.Sleep(wait) // nobody can end it, and a timer would cost three allocations
		return true
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
