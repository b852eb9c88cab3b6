package middleware

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reroute-go/reroute/idempotency"
)

// Operation is one caller-visible request, however often it is sent. It carries
// what the request is, what the caller wishes, what the layers wish for the next
// attempt, what was spent, and a log of the attempts. All methods are safe for
// concurrent use.
//
// An operation begins at the outermost layer that calls Begin and is found by
// all others in the request's context.
type Operation struct {
	inputs  *inputs
	started time.Time
	replay  *replay // nil without a body

	// What is asked at every step, and so without the lock.
	observer atomic.Pointer[Observer]
	led      atomic.Bool // some RoundTripper will end the operation
	done     atomic.Bool
	stacked  atomic.Bool                   // attempts are recorded above the base of a Stack only
	sendOnce atomic.Bool                   // hide GetBody from net/http
	asked    atomic.Bool                   // written by net/http where the attempt is traced,
	got      atomic.Bool                   // as is this: a connection,
	wrote    atomic.Int32                  // and this: how often
	view     atomic.Pointer[view]          // of the dialect at work
	settled  atomic.Pointer[http.Response] // the answer that no loop need look at

	mu       sync.Mutex
	ctx      context.Context // governs the operation: the caller's, or a Deadline layer's
	guarded  bool
	views    []*view // of all dialects, where there are several
	wishes   wishes
	target   Target
	placed   Placement
	charges  []charge
	attempts []Attempt
	inDoubt  bool
	took     time.Duration // in all, once done
	judged   judgement
	last     lastAnswer
	notes    *notes
	stop     Stop
	wait     time.Duration // before the next attempt, for its record

	firstView    view
	firstAttempt [1]Attempt // backs attempts until there is a second one
}

// view is what one dialect makes of the operation. It does not change once it is
// there. There are several only where stacks with different dialects are nested.
type view struct {
	dialect Dialect
	intent  Intent
}

// lastAnswer is the newest real answer, kept after its body is gone.
type lastAnswer struct {
	status, substatus int
	header            http.Header
}

type operationKey struct{}

// opContext is the context of an operation's requests. Operation, context and
// the first copy of the request share one allocation.
type opContext struct {
	context.Context
	op  Operation
	req http.Request
}

func (c *opContext) Value(key any) any {
	if _, ok := key.(operationKey); ok {
		return &c.op
	}
	return c.Context.Value(key)
}

// String keeps who prints a context from printing the request, whose headers
// hold credentials.
func (c *opContext) String() string { return "reroute.Operation" }

// GoString is String.
func (c *opContext) GoString() string { return c.String() }

// Begin joins the operation in req's context, or starts one. The returned
// request carries it: it is req itself when joined, a shallow copy when started.
// Use it for everything that is sent below: the outermost RoundTripper of this
// library that it passes ends the operation.
func Begin(req *http.Request) (*Operation, *http.Request) {
	if op := FromContext(req.Context()); op != nil && !op.done.Load() {
		return op, req
	}
	ctx := &opContext{Context: req.Context()}
	op := &ctx.op
	op.ctx = req.Context()
	op.started = time.Now()
	op.inputs = inputsOf(req.Context())
	op.guarded = op.inputs.level == idempotency.NonIdempotent
	op.attempts = op.firstAttempt[:0]
	ctx.req = *req.WithContext(ctx)
	op.keepBody(&ctx.req, defaultReplayBytes)
	return op, &ctx.req
}

// FromContext returns the operation of ctx, nil if there is none.
func FromContext(ctx context.Context) *Operation {
	op, _ := ctx.Value(operationKey{}).(*Operation)
	return op
}

// FromResponse returns the operation that ended with resp, nil if it did not
// pass through a layer of this library.
func FromResponse(resp *http.Response) *Operation {
	if resp == nil || resp.Request == nil {
		return nil
	}
	return FromContext(resp.Request.Context())
}

// operate runs f, the work of a layer with dialect d, as part of req's operation
// and ends the operation if it is the outermost to do so.
func operate(req *http.Request, d Dialect, f func(*Operation, *http.Request) (*http.Response, error)) (*http.Response, error) {
	op, req := Begin(req)
	leads := op.lead(req.Context())
	if leads {
		defer op.abandon() // a panic ends the operation too
	}
	if d != nil && op.speak(d, req) {
		req = op.stamped(d, req)
	}
	resp, err := f(op, req)
	if leads {
		return op.finish(req, resp, err)
	}
	return resp, err
}

// lead reports whether the asker is the one to end the operation, whose context
// then governs it: an http.Client puts its Timeout on top of what Begin has seen.
func (op *Operation) lead(ctx context.Context) bool {
	if op.led.Load() || !op.led.CompareAndSwap(false, true) {
		return false
	}
	op.Within(ctx)
	return true
}

// speak makes d the dialect at work and reports whether it was another one.
func (op *Operation) speak(d Dialect, req *http.Request) bool {
	if v := op.view.Load(); v != nil && same(v.dialect, d) {
		return false
	}
	if v := op.viewOf(d); v != nil {
		op.view.Store(v)
		return true
	}
	in := d.Intent(req)
	if in.PartitionKey == "" {
		in.PartitionKey = op.inputs.partitionKey
	}
	if op.inputs.level != idempotency.Unknown {
		in.Level = op.inputs.level
	}
	op.mu.Lock()
	defer op.mu.Unlock()
	v := &op.firstView
	if op.view.Load() != nil {
		if len(op.views) == 0 {
			op.views = append(op.views, &op.firstView)
		}
		v = new(view)
		op.views = append(op.views, v)
	}
	v.dialect, v.intent = d, in
	op.view.Store(v)
	return true
}

// viewOf returns d's view, nil if there is none.
func (op *Operation) viewOf(d Dialect) *view {
	if v := op.view.Load(); v == nil || same(v.dialect, d) {
		return v
	}
	op.mu.Lock()
	defer op.mu.Unlock()
	for _, v := range op.views {
		if same(v.dialect, d) {
			return v
		}
	}
	return nil
}

// dialect is the one at work, nil if there is none.
func (op *Operation) dialect() Dialect {
	if v := op.view.Load(); v != nil {
		return v.dialect
	}
	return nil
}

// intent is in the words of the dialect at work, empty if there is none.
func (op *Operation) intent() *Intent {
	if v := op.view.Load(); v != nil {
		return &v.intent
	}
	return &Intent{}
}

// stamped gives a request the dialect's own headers, on a copy if it lacks some.
func (op *Operation) stamped(d Dialect, req *http.Request) *http.Request {
	s, ok := d.(Stamper)
	if !ok {
		return req
	}
	header := s.Stamp(op.intent(), req.Header)
	if len(header) == len(req.Header) {
		return req // a stamp only adds
	}
	copied := *req
	copied.Header = header
	return &copied
}

// Intent says what the operation asks for. It is empty until a layer with a
// dialect has seen the request.
func (op *Operation) Intent() Intent { return *op.intent() }

// Guard has the loop refuse to repeat the operation, if its level is
// NonIdempotent, after any outcome that leaves open whether it was carried out.
// Without it only WithIdempotency forbids a repeat.
func (op *Operation) Guard() {
	op.mu.Lock()
	defer op.mu.Unlock()
	op.guarded = true
}

// Within makes ctx the context that governs the operation. A layer that derives
// a deadline for the whole operation calls it, so that an expiry is told apart
// from the end of a single attempt.
func (op *Operation) Within(ctx context.Context) {
	op.mu.Lock()
	defer op.mu.Unlock()
	op.ctx = ctx
}

// Spent returns what the operation has charged to b so far.
func (op *Operation) Spent(b *Budget) Charge {
	op.mu.Lock()
	defer op.mu.Unlock()
	c := op.charge(b)
	return Charge{Budget: b.Name, Retries: c.retries, Waited: c.waited}
}

func (op *Operation) charge(b *Budget) charge {
	for _, c := range op.charges {
		if c.budget == b {
			return c
		}
	}
	return charge{budget: b}
}

// spend charges one re-send.
func (op *Operation) spend(v Verdict) {
	op.mu.Lock()
	defer op.mu.Unlock()
	op.wait, op.stop = v.Wait, NotStopped
	if v.Replay {
		op.note().replays++
	}
	for i := range op.charges {
		if op.charges[i].budget == v.Budget {
			op.charges[i].retries++
			op.charges[i].waited += v.Wait
			return
		}
	}
	op.charges = append(op.charges, charge{budget: v.Budget, retries: 1, waited: v.Wait})
}

// mayRepeat is the first of the loop's four checks.
func (op *Operation) mayRepeat(out Outcome) bool {
	op.mu.Lock()
	defer op.mu.Unlock()
	return out.Unapplied || !op.guarded || op.intent().Level.Repeatable()
}
