package middleware

import (
	"context"
	"errors"
	"net/http"
	"reflect"
)

// judgement remembers the last outcome, so that five layers classify once. It does
// not change once it is there, so that reading it takes no lock.
type judgement struct {
	view    *view // whose words it is in; nil = of a dialect that the operation does not know
	resp    *http.Response
	err     error
	outcome Outcome
}

// Judge returns what a result means in d's words. The answer is remembered: the
// same result is judged once, however many layers ask.
func (op *Operation) Judge(d Dialect, resp *http.Response, err error) Outcome {
	v := op.viewOf(d)
	if v != nil && v != op.view.Load() {
		op.view.Store(v)
	}
	if j := op.judged.Load(); j.of(v, resp, err) {
		return j.outcome
	}
	op.mu.Lock()
	defer op.mu.Unlock()
	out := op.judge(d, resp, err)
	op.conclude(v, resp, err, &out)
	if last := op.newest(); last != nil && !last.underWay() && (resp != nil || op.fromBase(err)) {
		last.note(&out, err) // a layer between has made a better error
	}
	return out
}

// of reports whether j judges this result in v's words.
func (j *judgement) of(v *view, resp *http.Response, err error) bool {
	return j != nil && v != nil && j.view == v && j.resp == resp && (err == nil && j.err == nil || same(j.err, err))
}

// conclude publishes a judgement. Called with mu held.
func (op *Operation) conclude(v *view, resp *http.Response, err error, out *Outcome) {
	j := &op.firstJudgement
	if op.judged.Load() != nil {
		j = op.spareJudgement()
	}
	j.view, j.resp, j.err, j.outcome = v, resp, err, *out
	op.judged.Store(j)
}

// settled reports whether resp is an answer that the only dialect there is does not
// call transient: every loop on its way up lets it pass after this one look, which
// took the lock and a copy of the outcome off each of seven layers
// (BenchmarkCosmos).
func (op *Operation) settled(resp *http.Response) bool {
	j := op.judged.Load()
	return j != nil && j.resp == resp && j.view != nil && !op.is(severalViews) && j.outcome.final()
}

// final reports whether no layer may want another send.
func (o *Outcome) final() bool { return !o.Cause.Transient() || o.NoRetry }

// judge is called with mu held.
func (op *Operation) judge(d Dialect, resp *http.Response, err error) Outcome {
	if resp != nil {
		return op.ask(d, resp, nil)
	}
	// The caller's end comes first: a dial that fails because the caller left
	// says nothing about the endpoint (X18).
	if end := op.governing().Err(); end != nil {
		return op.ended(d, end)
	}
	if !op.fromBase(err) {
		var wait *WaitError
		switch {
		case errors.Is(err, ErrNoCredential): // whatever its source met: a breaker of its own, a wait
			return Outcome{Cause: Refused, Unapplied: true, Code: "no credential"}
		case errors.As(err, &wait):
			out := op.ended(d, context.DeadlineExceeded)
			out.Unapplied = true
			return out
		case errors.Is(err, ErrCircuitOpen):
			return Outcome{Cause: CircuitOpen, Unapplied: true, Code: "circuit open"}
		case errors.Is(err, ErrNoOwner):
			return Outcome{Cause: Unavailable, Unapplied: true, Stale: StaleRanges, Code: "no owner"}
		case errors.Is(err, ErrAttemptTimeout):
			op.inDoubt = op.inDoubt || op.logged() > 0
			return Outcome{Cause: Timeout, Code: "timeout"}
		}
		return Outcome{Cause: Refused, Unapplied: true, Code: "refused"}
	}
	if op.replay != nil && op.replay.broken() {
		return Outcome{Cause: Unmendable, Code: "request body"} // the caller's reader failed, not the server (B04)
	}
	if op.neverWritten(err) {
		// Only the trace tells a failed TLS handshake from a connection that was
		// closed unanswered: both are a plain EOF (DESIGN rule 5).
		if out := JudgeError(err); out.Cause == Unmendable {
			return out
		}
		return Outcome{Cause: Unreachable, Unapplied: true, Code: "unreachable"}
	}
	var inner *Error // a whole operation of its own below the base
	if errors.As(err, &inner) && inner.Outcome.Cause != Unjudged {
		return inner.Outcome
	}
	out := op.ask(d, nil, err)
	if out.Unapplied && notSent(err) && op.hasWritten() {
		// net/http has sent it before, by itself, on a connection that had died: the
		// dial that failed after that says nothing of what became of it.
		out.Unapplied = false
	}
	return out
}

// ask has d judge while mu, which is held, is free: a dialect may ask the operation.
func (op *Operation) ask(d Dialect, resp *http.Response, err error) Outcome {
	in := op.intent()
	op.mu.Unlock()
	defer op.mu.Lock()
	if d == nil {
		return JudgeError(err)
	}
	return d.Judge(in, resp, err)
}

// fromBase reports whether err came from the transport itself rather than from
// a layer that declined to send.
func (op *Operation) fromBase(err error) bool {
	last := op.newest()
	return last != nil && last.err != nil && errors.Is(err, last.err)
}

// ended judges the end of the operation's context. Called with mu held.
func (op *Operation) ended(d Dialect, end error) Outcome {
	if !errors.Is(end, context.DeadlineExceeded) {
		return Outcome{Cause: Canceled, Code: "canceled"}
	}
	if d == nil {
		return Outcome{Cause: DeadlineExceeded, Code: "deadline"}
	}
	out := op.ask(d, nil, end)
	out.Cause = DeadlineExceeded
	return out
}

// sameDialect is same for dialects. Most are pointers, whose comparison cannot panic
// and then takes 2 ns instead of 8; each layer asks.
func sameDialect(a, b Dialect) bool {
	t := reflect.TypeOf(a)
	return t == reflect.TypeOf(b) && (t == nil || t.Kind() == reflect.Pointer && a == b || t.Kind() != reflect.Pointer && same(a, b))
}

// same compares without the panic that == gives for uncomparable types.
func same[T any](a, b T) (equal bool) {
	defer func() { _ = recover() }()
	return any(a) == any(b)
}

// Result returns what was judged last: what a Policy is asked about. Exactly one
// of the two is set; the answer's body must be left alone.
func (op *Operation) Result() (*http.Response, error) {
	if j := op.judged.Load(); j != nil {
		return j.resp, j.err
	}
	return nil, nil
}
