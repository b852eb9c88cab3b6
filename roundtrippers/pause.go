package roundtrippers

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/reroute-go/reroute/middleware"
)

// Pause remembers how long an API that throttles has asked to be left alone, and
// sends it nothing until then (go-github does so with rate limits): whoever meets
// the limit spares all others the same answer.
//
// It begins with an answer judged Throttled that names a wait (a Retry-After of
// whole seconds, in the rest dialect), lasts as long as the longest wait that is
// known, and costs one atomic load while there is none. Operations whose Patience
// says AwaitCircuit (the essential ones) wait for its end, without a send; the
// others get a *PausedError at once. A wait that would outlive the deadline is
// refused at once, with a *middleware.WaitError. A Retry above does not wait on top
// of it; where its next attempt could not be sent, the answer in hand is returned.
//
// Its end releases all that wait in the same instant. What keeps them from coming
// as a herd are RateLimit and Concurrency: stack them below, as APIBuilder does,
// and stack the same pointer once more below those. There it waits for nothing; it
// learns of an answer before that attempt's permit is handed on, and stops what was
// let through before the pause began.
//
// A re-send that a pause has refused counts against a bounded Patience or
// Retry.MaxRetries although nothing was sent; it takes several pauses in a row to
// use one up. An answer counts whoever gave it: behind an http.Client that follows
// redirects off the API, their targets can pause it too, Max at a time.
//
// One Pause stands for one API: share the pointer between the clients of one, do
// not copy it.
type Pause struct {
	Dialect middleware.Dialect // required
	// Max is the most that one answer can impose; 0 = 1 minute. A wrong header then
	// costs a minute, and a limit that does last longer one more round of attempts
	// in each: Concurrency.Limit of them. Where the API means what it says, as
	// GitHub does with up to an hour, set that.
	Max time.Duration

	inner pause
}

// Wrap reports a missing Dialect and a negative Max.
func (l *Pause) Wrap(next http.RoundTripper) (http.RoundTripper, error) {
	var m mistakes
	m.dialect(l.Dialect)
	negative(&m, "Max", l.Max)
	if len(m) > 0 {
		return nil, m.join()
	}
	return middleware.Operate(next, l.Dialect, l.roundTrip), nil
}

// Until returns when the pause ends; zero = there is none.
func (l *Pause) Until() time.Time {
	if span := l.inner.current(); span != nil {
		return span.until
	}
	return time.Time{}
}

// Waiting returns how many operations wait for its end.
func (l *Pause) Waiting() int { return int(l.inner.waiting.Load()) }

func (l *Pause) roundTrip(op *middleware.Operation, req *http.Request, next http.RoundTripper) (*http.Response, error) {
	if op.Intent().Scope == middleware.Foreign {
		return next.RoundTrip(req)
	}
	if op.Value(l) != nil { // below itself, or a stack within a stack
		if err := l.inner.Admits(op); err != nil {
			return middleware.Refuse(req, err)
		}
		resp, err := next.RoundTrip(req)
		l.heed(op, resp, err)
		return resp, err
	}
	if err := l.inner.enter(req.Context(), op); err != nil {
		l.tell(op, req, err)
		return middleware.Refuse(req, err)
	}
	op.SetValue(l, true)
	defer op.SetValue(l, nil)
	op.Passed(&l.inner)
	defer op.Left(&l.inner)
	resp, err := next.RoundTrip(req)
	l.heed(op, resp, err)
	l.tell(op, req, err)
	return resp, err
}

// heed begins a pause where the answer asks for one, once for each answer.
func (l *Pause) heed(op *middleware.Operation, resp *http.Response, err error) {
	out := op.Judge(l.Dialect, resp, err)
	if out.Cause != middleware.Throttled || out.Wait <= 0 || resp != nil && op.Value(l) == any(resp) {
		return
	}
	if resp != nil {
		op.SetValue(l, resp)
	}
	until := time.Now().Add(min(out.Wait, orDefault(l.Max, time.Minute)))
	until = l.inner.begin(until)
	if met, ok := op.Value(pauseMet{}).(*PausedError); !ok || until.After(met.Until) { // that of another Pause may be longer
		op.SetValue(pauseMet{}, &PausedError{Until: until, from: &l.inner})
	}
}

// tell shows a refusal to the observer as an attempt that took no time. Those who
// wait are not told of.
func (l *Pause) tell(op *middleware.Operation, req *http.Request, err error) {
	var paused *PausedError
	if errors.As(err, &paused) && paused.from == &l.inner && !op.Patience().AwaitCircuit {
		op.EmitRefused(req.Context(), op.Judge(l.Dialect, nil, err), err)
	}
}

// pauseMet is where an operation keeps, as a *PausedError, the pause that an answer
// to itself has begun: Retry plans with it.
type pauseMet struct{}

// pause is the state of a Pause.
type pause struct {
	known   atomic.Pointer[span] // nil = none
	waiting atomic.Int64
}

// span is one pause.
type span struct {
	until  time.Time
	longer chan struct{} // closed when a longer one takes its place
}

// current returns the pause that is on, nil if there is none.
func (p *pause) current() *span {
	s := p.known.Load()
	if s == nil || time.Now().Before(s.until) {
		return s
	}
	p.known.CompareAndSwap(s, nil)
	return nil
}

// begin has the pause last until then at least, and returns its end.
func (p *pause) begin(until time.Time) time.Time {
	s := &span{until: until, longer: make(chan struct{})}
	for {
		old := p.known.Load()
		switch {
		case old != nil && !until.After(old.until):
			return old.until
		case !p.known.CompareAndSwap(old, s):
			continue
		case old != nil:
			close(old.longer)
		}
		return until
	}
}

// enter lets an attempt through, has it wait, or returns an error: a *PausedError, a
// *middleware.WaitError, the context's or that of another gate.
func (p *pause) enter(ctx context.Context, op *middleware.Operation) error {
	s := p.current()
	if s == nil {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx) // a wait that is refused as well would look like the deadline's
	}
	if !op.Patience().AwaitCircuit {
		return &PausedError{Until: s.until, from: p}
	}
	p.waiting.Add(1)
	defer p.waiting.Add(-1)
	for ; s != nil; s = p.current() {
		if err := s.wait(ctx); err != nil {
			return err
		}
	}
	return op.Recheck()
}

// wait returns when s is over or a longer pause is known.
func (s *span) wait(ctx context.Context) error {
	left := time.Until(s.until)
	if err := middleware.CheckWait(ctx, left, "the end of the API's pause"); err != nil {
		return err
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.longer:
	case <-ctx.Done():
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// Admits says whether an attempt, let through before, may still be sent.
func (p *pause) Admits(*middleware.Operation) error {
	if s := p.current(); s != nil {
		return &PausedError{Until: s.until, from: p}
	}
	return nil
}

// PausedError says that a Pause let nothing through. It matches
// middleware.ErrCircuitOpen: the API itself has opened the circuit, and has said
// for how long. So it is nobody's failure, Retry has those go on waiting that
// would, and callers need no other case than the one for a breaker.
type PausedError struct {
	Until time.Time // when it ends, as far as is known

	from *pause
}

// Error says until when, as the time of day.
func (e *PausedError) Error() string {
	return "paused until " + e.Until.Format(time.TimeOnly) + ", as the API has asked"
}

// Is matches middleware.ErrCircuitOpen.
func (e *PausedError) Is(target error) bool { return target == middleware.ErrCircuitOpen }
