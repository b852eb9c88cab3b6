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

	// asked and wrote are written by net/http where the attempt is traced.
	asked, wrote atomic.Bool

	mu       sync.Mutex
	ctx      context.Context // governs the operation: the caller's, or a Deadline layer's
	led      bool            // some RoundTripper will end the operation
	ended    time.Time
	stacked  bool // attempts are recorded above the base of a Stack only
	guarded  bool
	sendOnce bool // hide GetBody from net/http
	views    []view
	current  int // the view of the layer at work
	wishes   wishes
	target   Target
	charges  []charge
	attempts []Attempt
	inDoubt  bool
	judged   judgement
	last     lastAnswer
	stop     Stop
	wait     time.Duration // before the next attempt, for its record

	firstView    [1]view    // backs views until there is a second one
	firstAttempt [1]Attempt // backs attempts likewise
}

// view is what one dialect makes of the operation. There are several only where
// stacks with different dialects are nested.
type view struct {
	dialect Dialect
	intent  Intent
}

// wishes are what this operation's layers ask of Route.
type wishes struct {
	avoided []regions.Avoided
	hub     bool
	pool    int
}

// judgement remembers the last outcome, so that five layers classify once.
type judgement struct {
	dialect Dialect
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
// Use it for everything that is sent below: the outermost RoundTripper of this
// library that it passes ends the operation.
func Begin(req *http.Request) (*Operation, *http.Request) {
	if op := FromContext(req.Context()); op != nil && !op.isDone() {
		return op, req
	}
	ctx := &opContext{Context: req.Context()}
	op := &ctx.op
	op.ctx = req.Context()
	op.started = time.Now()
	op.inputs = inputsOf(req.Context())
	op.guarded = op.inputs.level == idempotency.NonIdempotent
	op.views = op.firstView[:0]
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
		req = stamped(d, op.Intent(), req)
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
	op.mu.Lock()
	defer op.mu.Unlock()
	if op.led {
		return false
	}
	op.led, op.ctx = true, ctx
	return true
}

// speak makes d the dialect at work and reports whether it was another one.
func (op *Operation) speak(d Dialect, req *http.Request) bool {
	op.mu.Lock()
	defer op.mu.Unlock()
	i := op.viewOf(d)
	switch {
	case i < 0:
		in := d.Intent(req)
		if in.PartitionKey == "" {
			in.PartitionKey = op.inputs.partitionKey
		}
		if op.inputs.level != idempotency.Unknown {
			in.Level = op.inputs.level
		}
		op.current = len(op.views)
		op.views = append(op.views, view{dialect: d, intent: in})
	case i == op.current:
		return false
	default:
		op.current = i
	}
	return true
}

// viewOf returns the place of d's view, -1 if there is none.
func (op *Operation) viewOf(d Dialect) int {
	for i := range op.views {
		if same(op.views[i].dialect, d) {
			return i
		}
	}
	return -1
}

// dialect is the one at work, nil if there is none.
func (op *Operation) dialect() Dialect {
	if len(op.views) == 0 {
		return nil
	}
	return op.views[op.current].dialect
}

// intent is in the words of the dialect at work, empty if there is none.
func (op *Operation) intent() *Intent {
	if len(op.views) == 0 {
		return &Intent{}
	}
	return &op.views[op.current].intent
}

func stamped(d Dialect, in Intent, req *http.Request) *http.Request {
	s, ok := d.(Stamper)
	if !ok {
		return req
	}
	copied := *req
	copied.Header = s.Stamp(&in, req.Header)
	return &copied
}

// Intent says what the operation asks for. It is empty until a layer with a
// dialect has seen the request.
func (op *Operation) Intent() Intent {
	op.mu.Lock()
	defer op.mu.Unlock()
	return *op.intent()
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
	op.wait, op.stop = wait, NotStopped
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
	return out.Unapplied || !op.guarded || op.intent().Level.Repeatable()
}

// Judge returns what a result means in d's words. The answer is remembered: the
// same result is judged once, however many layers ask.
func (op *Operation) Judge(d Dialect, resp *http.Response, err error) Outcome {
	op.mu.Lock()
	defer op.mu.Unlock()
	if i := op.viewOf(d); i >= 0 {
		op.current = i
	}
	if op.judged.resp == resp && same(op.judged.err, err) && same(op.judged.dialect, d) {
		return op.judged.outcome
	}
	out := op.judge(d, resp, err)
	op.judged = judgement{dialect: d, resp: resp, err: err, outcome: out}
	if n := len(op.attempts); n > 0 && op.attempts[n-1].by == nil && (resp != nil || op.fromBase(err)) {
		op.attempts[n-1].note(out, err) // a layer between has made a better error
	}
	return out
}

func (op *Operation) judge(d Dialect, resp *http.Response, err error) Outcome {
	if resp != nil {
		return d.Judge(op.intent(), resp, nil)
	}
	// The caller's end comes first: a dial that fails because the caller left
	// says nothing about the endpoint (X18).
	if end := op.ctx.Err(); end != nil {
		return contextOutcome(d, op.intent(), end)
	}
	if !op.fromBase(err) {
		if errors.Is(err, ErrCircuitOpen) {
			return Outcome{Cause: CircuitOpen, Unapplied: true, Code: "circuit open"}
		}
		return Outcome{Cause: Refused, Unapplied: true, Code: "refused"}
	}
	if op.replay != nil && op.replay.broken() {
		return Outcome{Cause: Unmendable, Code: "request body"} // the caller's reader failed, not the server (B04)
	}
	if op.neverWritten() {
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
	if d == nil {
		return JudgeError(err)
	}
	return d.Judge(op.intent(), nil, err)
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

// same compares without the panic that == gives for uncomparable types.
func same[T any](a, b T) (equal bool) {
	defer func() { _ = recover() }()
	return any(a) == any(b)
}

func (op *Operation) isDone() bool {
	op.mu.Lock()
	defer op.mu.Unlock()
	return !op.ended.IsZero()
}
