package middleware

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reroute-go/reroute/idempotency"
	"github.com/reroute-go/reroute/regions"
)

// Operation is one caller-visible request, however often it is sent. It carries
// what the request is, what the caller wishes, what the layers wish for the next
// attempt, what was spent, and a log of the attempts. All methods are safe for
// concurrent use.
//
// An operation begins at the outermost layer that calls Begin and is found by
// all others in the request's context.
type Operation struct {
	inputs   inputs
	started  time.Time
	observer Observer
	replay   *replay // the kept body, where the request brought no GetBody

	// tracing is set once, before the first attempt; wrote is written by net/http.
	tracing bool
	wrote   atomic.Bool

	mu       sync.Mutex
	ctx      context.Context // governs the operation: the caller's, or a Deadline layer's
	done     bool
	guarded  bool
	sendOnce bool // hide GetBody from net/http
	dialect  Dialect
	intent   Intent
	wishes   wishes
	target   Target
	charges  []charge
	attempts []Attempt
	open     int // attempts that have started and not ended
	serial   int // of the newest attempt record
	inDoubt  bool
	judged   judgement
	last     lastAnswer
	stop     Stop
	wait     time.Duration // before the next attempt, for its record

	first [1]Attempt // backs attempts until there is a second one
}

// wishes are what this operation's layers ask of Route.
type wishes struct {
	avoided []regions.Avoided
	hub     bool
	pool    int
}

// judgement remembers the last outcome, so that five layers classify once.
type judgement struct {
	resp    *http.Response
	err     error
	outcome Outcome
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

// Begin joins the operation in req's context, or starts one. The returned
// request carries it: it is req itself when joined, a shallow copy when started.
// Use it for everything that is sent below. A layer that may be the outermost is
// better made with Operate, which also ends what it started.
func Begin(req *http.Request) (*Operation, *http.Request) {
	op, req, _ := begin(req, nil)
	return op, req
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

// begin is Begin, with the dialect of the layer that asks, and reports whether
// the operation was started here and must be finished here.
func begin(req *http.Request, d Dialect) (op *Operation, _ *http.Request, started bool) {
	op = FromContext(req.Context())
	if op == nil || op.isDone() {
		ctx := &opContext{Context: req.Context()}
		ctx.op.ctx = req.Context()
		ctx.op.started = time.Now()
		ctx.op.inputs = inputsOf(req.Context())
		ctx.op.guarded = ctx.op.inputs.level == idempotency.NonIdempotent
		ctx.op.attempts = ctx.op.first[:0]
		ctx.req = *req.WithContext(ctx)
		op, req, started = &ctx.op, &ctx.req, true
		op.keepBody(req, defaultReplayBytes)
	}
	if d != nil && op.adopt(d, req) {
		req = stamped(d, &op.intent, req)
	}
	return op, req, started
}

// adopt makes d the operation's dialect and reports whether it was another one.
func (op *Operation) adopt(d Dialect, req *http.Request) bool {
	op.mu.Lock()
	defer op.mu.Unlock()
	if op.dialect == d {
		return false
	}
	op.dialect = d
	op.intent = d.Intent(req)
	if op.intent.PartitionKey == "" {
		op.intent.PartitionKey = op.inputs.partitionKey
	}
	if op.inputs.level != idempotency.Unknown {
		op.intent.Level = op.inputs.level
	}
	op.judged = judgement{}
	return true
}

func stamped(d Dialect, in *Intent, req *http.Request) *http.Request {
	s, ok := d.(Stamper)
	if !ok {
		return req
	}
	header := s.Stamp(in, req.Header)
	copied := *req
	copied.Header = header
	return &copied
}

// Intent says what the operation asks for. It is empty until a layer with a
// dialect has seen the request.
func (op *Operation) Intent() Intent {
	op.mu.Lock()
	defer op.mu.Unlock()
	return op.intent
}

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

// Avoid asks Route to prefer other regions than this one for the rest of the
// operation. It weighs as much as a shared mark, and more with each call.
func (op *Operation) Avoid(region regions.Name) { op.avoid(region, 1) }

// Shun asks Route to come back to region only when all others were tried,
// marked ones too.
func (op *Operation) Shun(region regions.Name) { op.avoid(region, 2) }

func (op *Operation) avoid(region regions.Name, weight int) {
	op.mu.Lock()
	defer op.mu.Unlock()
	// A fresh slice each time: Route may be reading the old one.
	next := make([]regions.Avoided, len(op.wishes.avoided), len(op.wishes.avoided)+1)
	copy(next, op.wishes.avoided)
	for i := range next {
		if next[i].Region == region {
			next[i].Times += weight
			op.wishes.avoided = next
			return
		}
	}
	op.wishes.avoided = append(next, regions.Avoided{Region: region, Times: weight})
}

// Avoided returns the regions to avoid. The slice must not be changed.
func (op *Operation) Avoided() []regions.Avoided {
	op.mu.Lock()
	defer op.mu.Unlock()
	return op.wishes.avoided
}

// PreferHub asks Route for the write region, or lifts that wish.
func (op *Operation) PreferHub(yes bool) {
	op.mu.Lock()
	defer op.mu.Unlock()
	op.wishes.hub = yes
}

// WantsHub reports whether a layer prefers the write region.
func (op *Operation) WantsHub() bool {
	op.mu.Lock()
	defer op.mu.Unlock()
	return op.wishes.hub
}

// AnotherPool asks the base transport for a connection pool that this operation
// has not used; see Pool.
func (op *Operation) AnotherPool() {
	op.mu.Lock()
	defer op.mu.Unlock()
	op.wishes.pool++
}

// Pool returns how often another connection pool was asked for.
func (op *Operation) Pool() int {
	op.mu.Lock()
	defer op.mu.Unlock()
	return op.wishes.pool
}

// ExcludedRegions returns the caller's exclusions: see WithExcludedRegions. The
// slice must not be changed.
func (op *Operation) ExcludedRegions() []regions.Name { return op.inputs.excluded }

// Target is where an attempt goes.
type Target struct {
	Region   regions.Name
	Endpoint string // host[:port]
	// Topology is what the choice was made from.
	Topology *regions.Topology
	Range    string // partition range id, "" when unknown
	// Probe is set when this attempt tests a region that was given up on.
	Probe bool
	// Override is set when the partition's own health or history chose the region.
	Override bool
}

// SetTarget records where the next attempt goes. The layer that routes calls it.
func (op *Operation) SetTarget(t Target) {
	op.mu.Lock()
	defer op.mu.Unlock()
	op.target = t
}

// Target returns where the current, or last, attempt went.
func (op *Operation) Target() Target {
	op.mu.Lock()
	defer op.mu.Unlock()
	return op.target
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

// spend charges one re-send after wait to b.
func (op *Operation) spend(b *Budget, wait time.Duration) {
	op.mu.Lock()
	defer op.mu.Unlock()
	op.wait = wait
	for i := range op.charges {
		if op.charges[i].budget == b {
			op.charges[i].retries++
			op.charges[i].waited += wait
			return
		}
	}
	op.charges = append(op.charges, charge{budget: b, retries: 1, waited: wait})
}

// mayRepeat is the first of the loop's four checks.
func (op *Operation) mayRepeat(out Outcome) bool {
	op.mu.Lock()
	defer op.mu.Unlock()
	return out.Unapplied || !op.guarded || op.intent.Level.Repeatable()
}

// Judge returns what a result means in d's words. The answer is remembered: the
// same result is judged once, however many layers ask.
func (op *Operation) Judge(d Dialect, resp *http.Response, err error) Outcome {
	op.mu.Lock()
	defer op.mu.Unlock()
	if op.judged.resp == resp && sameError(op.judged.err, err) && op.dialect == d {
		return op.judged.outcome
	}
	out := op.judge(d, resp, err)
	op.judged = judgement{resp: resp, err: err, outcome: out}
	if n := len(op.attempts); n > 0 && op.open == 0 && (resp != nil || op.fromBase(err)) {
		op.attempts[n-1].note(out, err) // a layer between has made a better error
	}
	return out
}

func (op *Operation) judge(d Dialect, resp *http.Response, err error) Outcome {
	if resp != nil {
		return d.Judge(&op.intent, resp, nil)
	}
	// The caller's end comes first: a dial that fails because the caller left
	// says nothing about the endpoint (X18).
	if end := op.ctx.Err(); end != nil {
		return contextOutcome(d, &op.intent, end)
	}
	var typed *Error
	if errors.As(err, &typed) && typed.Outcome.Cause != Unjudged {
		return typed.Outcome
	}
	if !op.fromBase(err) {
		return Outcome{Cause: Refused, Unapplied: true, Code: "refused"}
	}
	if op.tracing && !op.wrote.Load() {
		// Only the trace tells a failed TLS handshake from a connection that was
		// closed unanswered: both are a plain EOF (DESIGN rule 5).
		if out := JudgeError(err); out.Cause == Unmendable {
			return out
		}
		return Outcome{Cause: Unreachable, Unapplied: true, Code: "unreachable"}
	}
	return d.Judge(&op.intent, nil, err)
}

// fromBase reports whether err came from the transport itself rather than from
// a layer that declined to send.
func (op *Operation) fromBase(err error) bool {
	n := len(op.attempts)
	return n > 0 && op.attempts[n-1].Err != nil && errors.Is(err, op.attempts[n-1].Err)
}

func contextOutcome(d Dialect, in *Intent, end error) Outcome {
	if !errors.Is(end, context.DeadlineExceeded) {
		return Outcome{Cause: Canceled, Code: "canceled"}
	}
	if d == nil {
		return Outcome{Cause: DeadlineExceeded, Code: "deadline"}
	}
	out := d.Judge(in, nil, end)
	out.Cause = DeadlineExceeded
	return out
}

// sameError compares without the panic that == gives for uncomparable types.
func sameError(a, b error) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	defer func() { _ = recover() }()
	return a == b
}

func (op *Operation) isDone() bool {
	op.mu.Lock()
	defer op.mu.Unlock()
	return op.done
}
