package middleware

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reroute-go/reroute/idempotency"
	"github.com/reroute-go/reroute/partitions"
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
	caller  context.Context // of the request as it came
	started time.Time
	replay  *replay // nil without a body

	// What is asked at every step, and so without the lock: an uncontended one
	// costs 10 to 15 ns, and there are twelve layers.
	observer atomic.Pointer[Observer]
	traced   atomic.Pointer[sendTrace]
	view     atomic.Pointer[view]      // of the dialect at work
	judged   atomic.Pointer[judgement] // the last, nil before the first
	own      atomic.Pointer[ownRequest]
	notes    atomic.Pointer[notes]   // nil as long as there are none; set with mu held
	trouble  atomic.Pointer[trouble] // nil as long as all is well; set with mu held

	flags atomic.Uint32

	stop           Stop // this and all that follows is guarded by mu
	inDoubt        bool
	mu             sync.Mutex
	took           time.Duration // in all, once done
	first          view
	placed         partitions.Resolved
	now            attempt // under way, or the newest; its target may be ahead of it
	firstJudgement judgement
}

// The flags of an operation.
const (
	led          uint32 = 1 << iota // some RoundTripper will end it
	done                            // it has ended
	stacked                         // attempts are recorded above the base of a Stack only
	sendOnce                        // hide GetBody from net/http
	guarded                         // what must not be repeated is not
	watched                         // the health of its partition decides
	severalViews                    // more than one dialect has spoken
)

func (op *Operation) is(flag uint32) bool { return op.flags.Load()&flag != 0 }

// set sets a flag and reports whether it was set before.
func (op *Operation) set(flag uint32) (was bool) { return op.flags.Or(flag)&flag != 0 }

type operationKey struct{}

// opContext is the context of an operation's requests. All that a healthy
// operation needs is in this one allocation: with the request and its URL apart it
// was three, and 700 bytes more (BenchmarkFullStackGETStamped). A kibibyte is
// the limit: see TestAnOperationFitsInAKibibyte.
type opContext struct {
	op  Operation
	own ownRequest
}

func (c *opContext) Deadline() (time.Time, bool) { return c.op.caller.Deadline() }

func (c *opContext) Done() <-chan struct{} { return c.op.caller.Done() }

func (c *opContext) Err() error { return c.op.caller.Err() }

func (c *opContext) Value(key any) any {
	if _, ok := key.(operationKey); ok {
		return &c.op
	}
	return c.op.caller.Value(key)
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
	op, req := begin(req)
	op.expose()
	return op, req
}

// begin is Begin for those who hand the request on and keep their hands off it
// then.
func begin(req *http.Request) (*Operation, *http.Request) {
	ctx := req.Context()
	if op := FromContext(ctx); op != nil && !op.is(done) {
		return op, req
	}
	c := new(opContext)
	op := &c.op
	op.caller = ctx
	op.started = time.Now()
	op.inputs = inputsOf(ctx)
	if op.inputs.level == idempotency.NonIdempotent {
		op.set(guarded)
	}
	c.own.req = *req.WithContext(c)
	op.own.Store(&c.own)
	op.keepBody(&c.own.req, defaultReplayBytes)
	return op, &c.own.req
}

// FromContext returns the operation of ctx, nil if there is none.
func FromContext(ctx context.Context) *Operation {
	if c, ok := ctx.(*opContext); ok {
		return &c.op // as it mostly is: a fifth of what the look-up below costs
	}
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

// worker is the part of a layer that knows its operation.
type worker interface {
	work(*Operation, *http.Request) (*http.Response, error)
}

// operate has w work as part of req's operation, and ends the operation if w is
// the outermost to do so.
func operate(req *http.Request, w worker) (*http.Response, error) {
	op, req := begin(req)
	if op.is(led) || op.set(led) {
		return w.work(op, req)
	}
	return op.lead(req, w)
}

// lead begins and ends an operation. The leader's context governs it: an
// http.Client puts its Timeout on top of what Begin has seen.
func (op *Operation) lead(req *http.Request, w worker) (*http.Response, error) {
	if _, same := req.Context().(*opContext); !same {
		op.Within(req.Context())
	}
	defer op.abandon() // a panic ends the operation too
	resp, err := w.work(op, req)
	return op.finish(req, resp, err)
}

// Intent says what the operation asks for. It is empty until a layer with a
// dialect has seen the request.
func (op *Operation) Intent() Intent { return *op.intent() }

// Guard has the loop refuse to repeat the operation, if its level is
// NonIdempotent, after any outcome that leaves open whether it was carried out.
// Without it only WithIdempotency forbids a repeat.
func (op *Operation) Guard() {
	if !op.is(guarded) {
		op.set(guarded)
	}
}

// mayRepeat is the first of the loop's four checks.
func (op *Operation) mayRepeat(out Outcome) bool {
	return out.Unapplied || !op.is(guarded) || op.intent().Level.Repeatable()
}

// Within makes ctx the context that governs the operation. A layer that derives
// a deadline for the whole operation calls it, so that an expiry is told apart
// from the end of a single attempt.
func (op *Operation) Within(ctx context.Context) {
	op.mu.Lock()
	defer op.mu.Unlock()
	op.note().within = ctx
}

// governing is the context that governs the operation: the caller's, or that of
// whoever said so. Called with mu held.
func (op *Operation) governing() context.Context {
	if n := op.notes.Load(); n != nil && n.within != nil {
		return n.within
	}
	return op.caller
}
