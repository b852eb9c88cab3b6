package middleware

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/reroute-go/reroute/idempotency"
)

// Stop says why an operation was not sent again.
type Stop uint8

const (
	// NotStopped is the zero value: the operation still runs.
	NotStopped Stop = iota
	// Answered means that there was an answer nobody had to retry.
	Answered
	// NotRetried means that no layer of the stack retries this outcome.
	NotRetried
	// NotRepeatable means that the request may have been carried out and must
	// not be carried out twice.
	NotRepeatable
	// BudgetSpent means that the layer's budget was used up.
	BudgetSpent
	// Deadline means that time had run out, or that the next wait would not have
	// ended in time.
	Deadline
	// CanceledByCaller means that the caller gave up.
	CanceledByCaller
	// NotReplayable means that the request body could not be sent again.
	NotReplayable
	// NotPrepared means that what the next attempt needed could not be had.
	NotPrepared
)

var stopNames = [...]string{
	"running", "answered", "not retried", "not repeatable", "budget spent", "deadline", "canceled",
	"body not replayable", "not prepared",
}

// String returns the reason in lower case words.
func (s Stop) String() string {
	if int(s) < len(stopNames) {
		return stopNames[s]
	}
	return "unknown stop"
}

func stopOf(ctx context.Context) Stop {
	switch ctx.Err() {
	case nil:
		return NotStopped
	case context.DeadlineExceeded:
		return Deadline
	default:
		return CanceledByCaller
	}
}

// Attempt is one send.
type Attempt struct {
	Number int // from 1
	Target
	Cause             Cause  // what its result means
	Code              string // dialect's short form: "429/3200"
	Status, Substatus int    // 0 without an answer
	// NotSent is set when the attempt failed and certainly nothing was sent or
	// carried out.
	NotSent bool
	// Started is when it was sent.
	Started time.Time
	// Elapsed is the time to the response headers, or to the failure.
	Elapsed time.Duration
	// Wait came before this attempt.
	Wait time.Duration
	// Err is the transport's error, its text without a URL's user and query.
	Err error
	// Written is how often net/http wrote the request's headers, where the attempt
	// was traced; more than once means that it sent again by itself.
	Written int
}

// Report is what there is to know about an operation.
type Report struct {
	Operation string            // dialect's name: "read item"
	Level     idempotency.Level // whether it may be repeated
	Attempts  []Attempt         // in order; those of stacks inside this one included
	Sends     int               // how many they are
	// Replays are those sends that were no retries but the second half of an
	// attempt: the same request with a fresh token.
	Replays int
	// TransportReplays counts what net/http sent again below, by itself, because a
	// kept-alive connection had died: it does so for reads and for whatever carries
	// an Idempotency-Key. Only traced attempts know: see Operation.Trace.
	TransportReplays int
	// Refreshes is how often the operation had a map of the service read again, or
	// waited while another did; RefreshErr is what the last of them met, nil = it
	// went well.
	Refreshes  int
	RefreshErr error
	// Charges lists what each budget paid.
	Charges []Charge
	// Stop says why nothing more was sent; NotStopped while the operation runs.
	Stop Stop
	// InDoubt is set when some attempt may have been carried out although it did
	// not answer so. What the dialect calls a final answer speaks for itself, a bare
	// 500 of an ownership.Dialect too.
	InDoubt bool
	// Echo says that the final answer is what this operation's own earlier
	// attempt would cause: a 409 after a re-sent create that had in fact worked
	// the first time. It is NoEcho when no earlier attempt can have worked.
	Echo    idempotency.Echo
	Elapsed time.Duration // from the operation's begin to its end, or until now
}

// Report returns a copy of what is known so far. Of no operation, which is what
// FromResponse finds where there was none, it is empty.
func (op *Operation) Report() Report {
	if op == nil {
		return Report{}
	}
	op.mu.Lock()
	defer op.mu.Unlock()
	in, elapsed := op.intent(), op.took
	if !op.is(done) {
		elapsed = time.Since(op.started)
	}
	r := Report{
		Operation: in.Name,
		Level:     in.Level,
		Sends:     op.logged(),
		Stop:      op.stop,
		InDoubt:   op.inDoubt,
		Echo:      op.echo(),
		Elapsed:   elapsed,
	}
	if t := op.trouble.Load(); t != nil {
		r.Replays, r.Refreshes, r.RefreshErr = t.replays, t.refreshes, t.refreshErr
	}
	for place := range r.Sends {
		a := op.told(place)
		r.Attempts = append(r.Attempts, a)
		r.TransportReplays += max(0, a.Written-1)
	}
	for _, c := range op.charges() {
		r.Charges = append(r.Charges, Charge{Budget: c.budget.Name, Retries: c.retries, Waited: c.waited})
	}
	return r
}

// LastAttempt returns the newest attempt, zero before the first.
func (op *Operation) LastAttempt() Attempt {
	op.mu.Lock()
	defer op.mu.Unlock()
	if n := op.logged(); n > 0 {
		return op.told(n - 1)
	}
	return Attempt{}
}

func (op *Operation) echo() idempotency.Echo {
	j, echo := op.judged.Load(), op.intent().Echo
	if op.inDoubt && j != nil && j.outcome.Cause == Final && j.outcome.Answer == echo {
		return echo
	}
	return idempotency.NoEcho
}

// Sends returns how often the operation was sent so far.
func (op *Operation) Sends() int {
	op.mu.Lock()
	defer op.mu.Unlock()
	return op.logged()
}

// String tells the operation's story, a line an attempt.
func (r Report) String() string {
	var b strings.Builder
	name := r.Operation
	if name == "" {
		name = "request"
	}
	fmt.Fprintf(&b, "%s: %s in %s, %s", name, sends(r.Sends), round(r.Elapsed), r.Stop)
	for _, c := range r.Charges {
		fmt.Fprintf(&b, ", %s x%d", c.Budget, c.Retries)
	}
	if r.Refreshes > 0 {
		fmt.Fprintf(&b, ", maps refreshed x%d", r.Refreshes)
	}
	if r.RefreshErr != nil {
		fmt.Fprintf(&b, " (the last: %v)", r.RefreshErr)
	}
	if r.TransportReplays > 0 {
		fmt.Fprintf(&b, ", %d more by net/http", r.TransportReplays)
	}
	if r.Echo != idempotency.NoEcho {
		fmt.Fprintf(&b, ", echo of its own write: %s", r.Echo)
	}
	for _, a := range r.Attempts {
		b.WriteString("\n  ")
		b.WriteString(a.String())
	}
	return b.String()
}

// String tells one attempt in one line.
func (a Attempt) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "#%d", a.Number)
	if a.Wait > 0 {
		fmt.Fprintf(&b, " after %s", round(a.Wait))
	}
	if a.Region != "" {
		fmt.Fprintf(&b, " %s", a.Region)
	}
	if a.Endpoint != "" {
		fmt.Fprintf(&b, " (%s)", a.Endpoint)
	}
	if a.Range != "" {
		fmt.Fprintf(&b, " range %s", a.Range)
	}
	if a.Override {
		b.WriteString(" override")
	}
	if a.Probe {
		b.WriteString(" probe")
	}
	switch {
	case a.Code != "":
		fmt.Fprintf(&b, ": %s", a.Code)
	case a.Status != 0:
		fmt.Fprintf(&b, ": %d", a.Status)
	}
	if a.Cause != Unjudged && a.Cause.String() != a.Code {
		fmt.Fprintf(&b, " %s", a.Cause)
	}
	if a.NotSent {
		b.WriteString(", nothing done")
	}
	fmt.Fprintf(&b, " in %s", round(a.Elapsed))
	return b.String()
}

func round(d time.Duration) time.Duration {
	if d > time.Second {
		return d.Round(time.Millisecond)
	}
	return d.Round(time.Microsecond)
}

// finish ends an operation where it began: it types the error, once, and says
// why nothing follows.
func (op *Operation) finish(req *http.Request, resp *http.Response, err error) (*http.Response, error) {
	resp, err = exactlyOne(resp, err)
	op.end(resp)
	if err != nil {
		return nil, op.typed(err)
	}
	switch {
	case resp.Request == nil: // so that FromResponse works over bases that leave it out
		resp.Request = req
	case FromResponse(resp) != op: // or that have made it an operation of their own
		resp.Request = resp.Request.WithContext(req.Context())
	}
	return resp, nil
}

func (op *Operation) end(resp *http.Response) {
	op.mu.Lock()
	if last := op.newest(); last != nil && resp != nil && !last.underWay() && op.trouble.Load() == nil {
		op.took = last.begun + last.elapsed // spares a look at the clock, where nothing but it took time
	} else {
		op.took = time.Since(op.started)
	}
	op.set(done)
	if op.stop == NotStopped {
		op.stop = op.whyStopped(resp)
	}
	op.mu.Unlock()
	if op.replay != nil {
		op.replay.finish(resp != nil)
	}
}

// abandon ends an operation that a panic has cut off, an observer's for instance:
// then there may be an answer that nobody will get.
func (op *Operation) abandon() {
	if op.is(done) {
		return
	}
	op.end(nil)
	if resp, _ := op.Result(); resp != nil && resp.Body != nil {
		_ = resp.Body.Close()
	}
}

func (op *Operation) whyStopped(resp *http.Response) Stop {
	var out Outcome
	if j := op.judged.Load(); j != nil {
		out = j.outcome
	}
	switch {
	case resp == nil && op.governing().Err() != nil:
		return stopOf(op.governing())
	case resp != nil && out.final():
		return Answered
	default:
		return NotRetried
	}
}

// stopped records why a layer's loop gave the outcome up. A layer further out
// may still retry; then the reason is forgotten.
func (op *Operation) stopped(ctx context.Context, why Stop, out Outcome, v Verdict, err error) {
	op.mu.Lock()
	op.stop = why
	op.mu.Unlock()
	op.emit(ctx, func() Event {
		return Event{Kind: GaveUp, Attempt: op.Sends(), Target: op.Target(), Cause: out.Cause, Code: out.Code,
			Budget: v.Budget.Name, Wait: v.Wait, Stop: why, Err: err}
	})
}
