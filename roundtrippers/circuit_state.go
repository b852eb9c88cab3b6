package roundtrippers

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/reroute-go/reroute/middleware"
)

// health is what a result says of an API.
type health uint8

const (
	inconclusive health = iota // throttled, cancelled, refused: nothing
	healthy                    // it does what is asked
	reachable                  // it answers
	failing
)

// circuit is the breaker's state: gobreaker's machine with what it lacks. The
// machine has a fixed cooldown, so it is given none (openFor) and until decides;
// it forgets failures when it closes and drops late results, so carried and a
// fresh machine stand in.
//
//	closed --threshold failures in a row--> open --until--> half open
//	half open: one probe. Failing: open, twice as long. Any answer: closed.
type circuit struct {
	threshold   int
	base, limit time.Duration // of a cooldown
	probeLimit  time.Duration
	forget      bool // a close by any answer clears the failures

	// A healthy API costs two atomic loads and no lock.
	closed atomic.Bool
	clean  atomic.Bool // closed, and no failure stands

	mu       sync.Mutex
	machine  *gobreaker.TwoStepCircuitBreaker[struct{}]
	tripped  bool // the machine has just opened
	carried  int  // failures that outlived a close
	cooldown time.Duration
	until    time.Time
	probe    *grant // the one out, if any
	waiting  queue
	timer    *time.Timer // ends the cooldown for those who wait
}

// grant lets one attempt through.
type grant struct {
	op     *middleware.Operation
	done   func(error) // the machine's; nil = no probe
	expiry *time.Timer
}

var (
	errFailing  = errors.New("failing")
	errExcluded = errors.New("inconclusive")
)

// openFor is the machine's own cooldown, as short as can be.
const openFor = time.Nanosecond

func (c *circuit) start() {
	c.cooldown = c.base
	c.reset()
}

// reset begins anew, closed. Called with mu held, or before anyone knows c.
func (c *circuit) reset() {
	c.machine = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		MaxRequests: 1,
		Timeout:     openFor,
		// Called by the machine under its own lock, and c's.
		ReadyToTrip: func(n gobreaker.Counts) bool {
			return int(n.ConsecutiveFailures)+c.carried >= c.threshold
		},
		OnStateChange: func(_ string, _, to gobreaker.State) { c.tripped = to == gobreaker.StateOpen },
		IsExcluded:    func(err error) bool { return errors.Is(err, errExcluded) },
	})
	c.closed.Store(true)
	c.clean.Store(c.carried == 0)
}

// pass is the grant of those who pass a closed breaker.
var pass = &grant{}

// enter lets an attempt through, has it wait, or returns an error: a
// *CircuitOpenError, a *middleware.WaitError, the context's or that of another gate.
func (c *circuit) enter(ctx context.Context, op *middleware.Operation) (*grant, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if c.closed.Load() {
		return pass, nil
	}
	await := op.Patience().AwaitCircuit
	c.mu.Lock()
	if g := c.tryEnter(op); g != nil || !await {
		err := c.refusal(false)
		c.mu.Unlock()
		if g != nil {
			return g, nil
		}
		return nil, err
	}
	if err := middleware.CheckWait(ctx, time.Until(c.until), "the breaker's next probe"); err != nil {
		c.mu.Unlock()
		return nil, err
	}
	w := c.waiting.push(middleware.Essential) // one class: who may wait, waits in line
	w.grant = &grant{op: op}
	c.schedule()
	c.mu.Unlock()

	err := w.wait(ctx)
	if err == nil {
		err = op.Recheck() // of the gates above, such as a Pause that this attempt has passed
	}
	if err == nil {
		return w.grant, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting.remove(w) {
		c.schedule()
	} else {
		c.settle(w.grant, inconclusive) // woken already: the next one's turn
	}
	return nil, err
}

// tryEnter returns a grant if there is one to be had now. Called with mu held.
func (c *circuit) tryEnter(op *middleware.Operation) *grant {
	switch {
	case c.closed.Load():
		return pass
	case c.probe != nil || time.Now().Before(c.until):
		return nil
	}
	if w := c.waiting.next(); w != nil { // who waits comes first (V054)
		c.handOver(w)
		return nil
	}
	g := &grant{op: op}
	c.arm(g)
	return g
}

// handOver makes w's attempt the probe. Called with mu held.
func (c *circuit) handOver(w *waiter) {
	c.arm(w.grant)
	c.waiting.wake(w)
}

// arm makes g the probe. Called with mu held, the cooldown over and no probe out.
func (c *circuit) arm(g *grant) {
	done, err := c.machine.Allow()
	if err != nil {
		// It cannot refuse: its cooldown is shorter than ours and its one permit is
		// back. Were it to, this attempt goes as one among others.
		return
	}
	g.done = done
	c.probe = g
	g.expiry = time.AfterFunc(c.probeLimit, func() { // it may be stuck, in a queue for instance (R03)
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.probe == g {
			c.settle(g, inconclusive)
		}
	})
}

// report tells what became of g's attempt and returns the transition to tell of,
// if there was one.
func (c *circuit) report(g *grant, h health) (kind middleware.EventKind, cooldown time.Duration, changed bool) {
	if c.clean.Load() && h != failing {
		return 0, 0, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case g == c.probe:
		return c.settle(g, h)
	case !c.closed.Load():
		if h == healthy || h == reachable { // late, and an answer all the same
			return c.close(h)
		}
		return 0, 0, false // it was sent before the opening
	}
	switch h {
	case healthy:
		c.carried = 0
		c.record(nil)
		c.clean.Store(true)
	case failing:
		c.clean.Store(false)
		if c.record(errFailing); c.tripped {
			return c.open(c.base)
		}
	}
	return 0, 0, false
}

// record has the closed machine count a result.
func (c *circuit) record(result error) {
	c.tripped = false
	if done, err := c.machine.Allow(); err == nil {
		done(result)
	}
}

// settle ends the probe g. Called with mu held.
func (c *circuit) settle(g *grant, h health) (middleware.EventKind, time.Duration, bool) {
	if g != c.probe || g.done == nil {
		return 0, 0, false
	}
	c.probe = nil
	g.expiry.Stop()
	switch h {
	case healthy, reachable:
		return c.close(h)
	case failing:
		g.done(errFailing)
		return c.open(c.cooldown + min(c.cooldown, c.limit-c.cooldown)) // doubled, without overflow
	}
	g.done(errExcluded)
	c.schedule()
	return 0, 0, false
}

func (c *circuit) open(cooldown time.Duration) (middleware.EventKind, time.Duration, bool) {
	c.closed.Store(false)
	c.clean.Store(false)
	c.cooldown, c.until = cooldown, time.Now().Add(cooldown)
	c.schedule()
	return middleware.BreakerOpened, cooldown, true
}

func (c *circuit) close(h health) (middleware.EventKind, time.Duration, bool) {
	if c.probe != nil { // an older attempt's answer came first; the probe's verdict is now like any other
		c.probe.expiry.Stop()
		c.probe = nil
	}
	c.carried = c.threshold // it opened with at least so many
	if h == healthy || c.forget {
		c.carried = 0
	}
	c.cooldown = c.base
	c.reset()
	for w := c.waiting.next(); w != nil; w = c.waiting.next() {
		w.grant = pass
		c.waiting.wake(w)
	}
	c.schedule()
	return middleware.BreakerClosed, 0, true
}

// schedule sees to it that the first who waits gets the probe once the cooldown
// is over. Called with mu held.
func (c *circuit) schedule() {
	if c.timer != nil {
		c.timer.Stop()
		c.timer = nil
	}
	w := c.waiting.next()
	if w == nil || c.probe != nil {
		return
	}
	wait := time.Until(c.until)
	if wait <= 0 {
		c.handOver(w)
		return
	}
	var timer *time.Timer
	timer = time.AfterFunc(wait, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.timer == timer { // not stopped too late
			c.timer = nil
			c.schedule()
		}
	})
	c.timer = timer
}

// Admits says whether op's attempt, let through before, may still be sent.
func (c *circuit) Admits(op *middleware.Operation) error {
	if c.closed.Load() {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed.Load() || c.probe != nil && c.probe.op == op {
		return nil
	}
	return c.refusal(true)
}

// refusal describes the state to those who do not wait. Called with mu held.
func (c *circuit) refusal(late bool) error {
	return &CircuitOpenError{Until: c.until, Probing: !time.Now().Before(c.until), from: c, late: late}
}

func (c *circuit) state() (gobreaker.State, time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed.Load():
		return gobreaker.StateClosed, time.Time{}
	case time.Now().Before(c.until):
		return gobreaker.StateOpen, c.until
	}
	return gobreaker.StateHalfOpen, time.Time{}
}
