package middleware

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"reflect"
	"time"
)

// recorder sits right above the base transport and writes each send into the
// operation's log. Where stacks are nested with a foreign RoundTripper in
// between, the inner one takes over the record that the outer one has opened, so
// that a send is counted, and told, once.
type recorder struct {
	next http.RoundTripper
	base bool // next is the base of a Stack
}

func (r *recorder) RoundTrip(req *http.Request) (resp *http.Response, err error) {
	ctx := req.Context()
	op := FromContext(ctx)
	if op == nil {
		return r.next.RoundTrip(req)
	}
	op.expose()
	if !r.base && op.is(stacked) {
		return r.next.RoundTrip(req)
	}
	place, fresh := op.startAttempt(r)
	if fresh {
		op.emit(ctx, func() Event { return Event{Kind: AttemptStarted, Attempt: place + 1, Target: op.Target()} })
	}
	err = errPanicked // unless RoundTrip returns: a panic must not leave the attempt open (X16)
	defer func() { r.ended(ctx, op, place, resp, err) }()
	resp, err = exactlyOne(r.next.RoundTrip(op.onTheWire(req)))
	if err != nil {
		if cause := context.Cause(ctx); errors.Is(cause, ErrAttemptTimeout) && !errors.Is(err, cause) {
			err = fmt.Errorf("%w: %w", cause, err) // the transport may say no more than "context canceled"
		}
	}
	return resp, err
}

// ended records the end of an attempt, and tells it if somebody listens.
func (r *recorder) ended(ctx context.Context, op *Operation, place int, resp *http.Response, err error) {
	returned := false
	defer func() {
		if !returned && resp != nil {
			_ = resp.Body.Close() // the dialect, or the observer, has panicked: nobody gets the answer
		}
	}()
	if op.observer.Load() == nil {
		op.endAttempt(r, place, resp, err, nil)
	} else {
		r.tell(ctx, op, place, resp, err)
	}
	returned = true
}

// tell is apart so that no operation without an observer pays for its event.
func (r *recorder) tell(ctx context.Context, op *Operation, place int, resp *http.Response, err error) {
	var e Event
	if op.endAttempt(r, place, resp, err, &e) {
		op.emit(ctx, func() Event { return e })
	}
}

func (r *recorder) CloseIdleConnections() { closeIdle(r.next) }

func (r *recorder) recordsAtBase() bool { return r.base }

var (
	errPanicked = errors.New("reroute: the transport panicked")
	errNeither  = errors.New("reroute: the transport returned neither a response nor an error")
)

// exactlyOne mends a base that breaks the RoundTripper contract, and gives its
// error an identity if it has none.
func exactlyOne(resp *http.Response, err error) (*http.Response, error) {
	switch {
	case err != nil:
		if resp != nil && resp.Body != nil {
			_ = resp.Body.Close()
		}
		if !reflect.ValueOf(err).Comparable() {
			err = &uncomparable{err}
		}
		return nil, err
	case resp == nil:
		return nil, errNeither
	case resp.Body == nil:
		resp.Body = http.NoBody
	}
	return resp, nil
}

// uncomparable wraps an error of a type like []error: errors.Is would not find
// it again in what the layers make of it.
type uncomparable struct{ error }

func (e *uncomparable) Unwrap() error { return e.error }

// onTheWire is the request as the base transport sees it.
func (op *Operation) onTheWire(req *http.Request) *http.Request {
	if !op.is(sendOnce) || req.GetBody == nil {
		return req
	}
	copied := *req
	copied.GetBody = nil
	return &copied
}

// passing says that another stack has been entered: an attempt that is open is a
// send only if that one's recorder takes it over.
func (op *Operation) passing() {
	op.mu.Lock()
	defer op.mu.Unlock()
	for place := op.logged() - 1; place >= 0; place-- {
		if a := op.at(place); a.underWay() && !a.passed {
			a.passed = true
			return
		}
	}
}

// startAttempt opens a record and returns its place in the log. If another
// recorder has one open, that was no send but the way to this one, and r takes
// it over.
func (op *Operation) startAttempt(r *recorder) (place int, fresh bool) {
	if seen := op.traced.Load(); seen != nil {
		seen.reset()
	}
	begun := time.Since(op.started)
	op.mu.Lock()
	defer op.mu.Unlock()
	op.stop = NotStopped
	var wait time.Duration
	if t := op.trouble.Load(); t != nil {
		wait, t.wait = t.wait, 0
	}
	for place = op.logged() - 1; place >= 0; place-- {
		if a := op.at(place); a.underWay() && a.by != r {
			*a = attempt{by: r, begun: begun, target: op.now.target, wait: a.wait}
			return place, false
		}
	}
	op.turn()
	a := &op.now
	a.by, a.begun, a.wait = r, begun, wait
	return op.logged() - 1, true
}

// endAttempt closes r's record and reports whether it was still r's; then it fills
// in e, if there is one. It takes the record out of the log where a stack below
// has declined to send.
func (op *Operation) endAttempt(r *recorder, place int, resp *http.Response, err error, e *Event) bool {
	now := time.Since(op.started)
	op.mu.Lock()
	defer op.mu.Unlock()
	a := op.at(place)
	if a == nil || a.by != r {
		if last := op.newest(); last != nil && err != nil && last.err != nil {
			last.err = err // what a foreign RoundTripper made of the inner error comes from below all the same
		}
		return false
	}
	if a.passed && place == op.logged()-1 {
		op.drop()
		if e != nil {
			*e = Event{Kind: AttemptEnded, Attempt: place + 1, Target: op.now.target, Cause: Refused, Code: "refused", Err: err}
		}
		return true
	}
	a.by, a.elapsed, a.err = ended, now-a.begun, err
	if a != &op.now {
		a.target = op.now.target
	}
	if seen := op.traced.Load(); seen != nil {
		a.written = uint8(min(seen.wrote.Load(), math.MaxUint8))
	}
	var out Outcome
	v := op.view.Load()
	switch {
	case v != nil:
		out = op.judge(v.dialect, resp, err)
		a = op.at(place) // the lock was free meanwhile
	case resp != nil:
		out.Status = resp.StatusCode
	}
	op.conclude(v, resp, err, &out)
	a.note(&out, err)
	if resp != nil {
		a.header, a.answered = resp.Header, narrow(resp.StatusCode)
	}
	if (out.Cause.Transient() || out.Cause == Unmendable) && !out.Unapplied || out.Cause == Canceled || out.Cause == DeadlineExceeded {
		op.inDoubt = true
	}
	if e != nil {
		*e = op.told(place).event(resp)
	}
	return true
}
