package roundtrippers

import (
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/reroute-go/reroute/middleware"
)

// Circuit stops calling an API that fails: the breaker of seed api-requests. So
// many consecutive failures open it; while it is open nothing is sent. Then one
// attempt at a time probes: any answer closes it, a failure opens it for twice
// as long.
//
// Server errors, timeouts and transport errors are failures. What the API says
// about the caller (throttling, 408) and what the caller does (cancelling, running
// out of time) neither counts nor closes. An answer other than a success closes,
// yet does not end a run of failures.
//
// While it is open, operations whose Patience says so (the essential ones) wait
// in line for their turn to probe; the others get a *CircuitOpenError at once.
// When it closes, all go on.
//
// One Circuit stands for one API: share the pointer between the clients of one,
// do not copy it. Partitions have a breaker of their own: see Breaker.
type Circuit struct {
	Dialect middleware.Dialect // required
	// Threshold of consecutive failures; 0 = 5.
	Threshold int
	// Cooldown of the first opening; 0 = 5 s.
	Cooldown time.Duration
	// MaxCooldown limits the doubling; 0 = 60 s. Below Cooldown it is Cooldown.
	MaxCooldown time.Duration
	// ProbeLimit is how long one probe keeps the others waiting; then the next one
	// is let through. 0 = 60 s.
	ProbeLimit time.Duration
	// ResetRunOnClose has any answer that closes the breaker also clear the run of
	// failures. Without it only a success does, so that after a 404 has closed it
	// one more failure opens it again, as in the seed.
	ResetRunOnClose bool

	once  sync.Once
	inner circuit
}

// Wrap reports a missing Dialect and negative fields.
func (l *Circuit) Wrap(next http.RoundTripper) (http.RoundTripper, error) {
	var m mistakes
	m.dialect(l.Dialect)
	negative(&m, "Threshold", l.Threshold)
	negative(&m, "Cooldown", l.Cooldown)
	negative(&m, "MaxCooldown", l.MaxCooldown)
	negative(&m, "ProbeLimit", l.ProbeLimit)
	if len(m) > 0 {
		return nil, m.join()
	}
	l.start()
	return middleware.Operate(next, l.Dialect, l.roundTrip), nil
}

func (l *Circuit) start() {
	l.once.Do(func() {
		l.inner.threshold = orDefault(l.Threshold, 5)
		l.inner.base = max(orDefault(l.Cooldown, 5*time.Second), time.Millisecond)
		l.inner.limit = max(orDefault(l.MaxCooldown, time.Minute), l.inner.base)
		l.inner.probeLimit = orDefault(l.ProbeLimit, time.Minute)
		l.inner.forget = l.ResetRunOnClose
		l.inner.start()
	})
}

// State returns whether the breaker is closed, open until a time, or half open:
// its cooldown is over, and one attempt at a time may probe.
func (l *Circuit) State() (state gobreaker.State, until time.Time) {
	l.start()
	return l.inner.state()
}

// Waiting returns how many operations wait for the breaker.
func (l *Circuit) Waiting() int {
	l.inner.mu.Lock()
	defer l.inner.mu.Unlock()
	return l.inner.waiting.len()
}

func (l *Circuit) roundTrip(op *middleware.Operation, req *http.Request, next http.RoundTripper) (*http.Response, error) {
	if op.Value(l) != nil || op.Intent().Scope == middleware.Foreign {
		return next.RoundTrip(req) // a stack within a stack: one send, one grant
	}
	g, err := l.inner.enter(req.Context(), op)
	if err != nil {
		l.tell(op, req, err)
		return middleware.Refuse(req, err)
	}
	op.SetValue(l, true)
	op.Passed(&l.inner)
	verdict := failing // unless next returns: a panic is a failure (R02)
	defer func() {
		op.Left(&l.inner)
		op.SetValue(l, nil)
		kind, cooldown, changed := l.inner.report(g, verdict)
		if changed {
			op.Emit(req.Context(), middleware.Event{Kind: kind, Attempt: op.Sends(), Target: op.Target(), Wait: cooldown})
		}
	}()
	resp, err := next.RoundTrip(req)
	out := op.Judge(l.Dialect, resp, err)
	verdict = healthOf(out, err)
	var open *CircuitOpenError
	if errors.As(err, &open) && open.late && open.from == &l.inner {
		l.tell(op, req, err) // it opened while the attempt waited further down
	}
	return resp, err
}

// tell shows a refusal to the observer as an attempt that took no time. Those who
// wait are not told of.
func (l *Circuit) tell(op *middleware.Operation, req *http.Request, err error) {
	if errors.Is(err, middleware.ErrCircuitOpen) && !op.Patience().AwaitCircuit {
		op.EmitRefused(req.Context(), op.Judge(l.Dialect, nil, err), err)
	}
}

// healthOf judges the API by one result (reference table 4.2).
func healthOf(out middleware.Outcome, err error) health {
	switch out.Cause {
	case middleware.Success:
		return healthy
	case middleware.Unreachable, middleware.Broken:
		return failing
	case middleware.Unavailable:
		if out.Status == 0 {
			return inconclusive // a layer found nobody to ask
		}
		return failing
	case middleware.Timeout:
		if out.Status != 0 {
			return inconclusive // 408: the caller was slow
		}
		return failing
	case middleware.Unmendable:
		if middleware.Untrusted(err) {
			return failing // whoever answers, the API is not there
		}
		return inconclusive // a header, scheme or body that cannot be sent is its caller's fault
	case middleware.Unjudged, middleware.Throttled, middleware.Refused, middleware.CircuitOpen,
		middleware.Canceled, middleware.DeadlineExceeded:
		return inconclusive
	}
	return reachable
}

// CircuitOpenError says that a Circuit let nothing through. It matches
// middleware.ErrCircuitOpen.
type CircuitOpenError struct {
	Until   time.Time // when the next probe is due, or was
	Probing bool      // the cooldown is over: a probe is out

	from *circuit
	late bool // it opened after the attempt had passed
}

// Error says until when, as the time of day.
func (e *CircuitOpenError) Error() string {
	if e.Probing {
		return "circuit open: a probe is out"
	}
	return "circuit open until " + e.Until.Format(time.TimeOnly)
}

// Is matches middleware.ErrCircuitOpen.
func (e *CircuitOpenError) Is(target error) bool { return target == middleware.ErrCircuitOpen }
