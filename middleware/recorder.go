package middleware

import (
	"context"
	"errors"
	"fmt"
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
	op := FromContext(req.Context())
	if op == nil || !r.base && op.stacked.Load() {
		return r.next.RoundTrip(req)
	}
	ctx := req.Context()
	place, fresh := op.startAttempt(r)
	if fresh {
		op.emit(ctx, func() Event { return Event{Kind: AttemptStarted, Attempt: place + 1, Target: op.Target()} })
	}
	err = errPanicked // unless RoundTrip returns: a panic must not leave the attempt open (X16)
	defer func() {
		if ended, mine := op.endAttempt(r, place, resp, err); mine {
			op.emit(ctx, func() Event { return ended.event(resp) })
		}
	}()
	resp, err = exactlyOne(r.next.RoundTrip(op.onTheWire(req)))
	if cause := context.Cause(ctx); err != nil && errors.Is(cause, ErrAttemptTimeout) && !errors.Is(err, cause) {
		err = fmt.Errorf("%w: %w", cause, err) // the transport may say no more than "context canceled"
	}
	return resp, err
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
	if !op.sendOnce.Load() || req.GetBody == nil {
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
	for place := len(op.attempts) - 1; place >= 0; place-- {
		if a := &op.attempts[place]; a.by != nil && !a.passed {
			a.passed = true
			return
		}
	}
}

// startAttempt opens a record and returns its place in the log. If another
// recorder has one open, that was no send but the way to this one, and r takes
// it over.
func (op *Operation) startAttempt(r *recorder) (place int, fresh bool) {
	op.asked.Store(false)
	op.got.Store(false)
	op.wrote.Store(0)
	op.mu.Lock()
	defer op.mu.Unlock()
	op.stop = NotStopped
	a := Attempt{by: r, begun: time.Since(op.started), Target: op.target, Wait: op.wait}
	op.wait = 0
	for place = len(op.attempts) - 1; place >= 0; place-- {
		if outer := &op.attempts[place]; outer.by != nil && outer.by != r {
			a.Number, a.Wait = outer.Number, outer.Wait
			*outer = a
			return place, false
		}
	}
	a.Number = len(op.attempts) + 1
	op.attempts = append(op.attempts, a)
	return a.Number - 1, true
}

// endAttempt closes r's record and reports whether it was still r's. It takes it
// out of the log where a stack below has declined to send.
func (op *Operation) endAttempt(r *recorder, place int, resp *http.Response, err error) (ended Attempt, mine bool) {
	op.mu.Lock()
	defer op.mu.Unlock()
	if place >= len(op.attempts) || op.attempts[place].by != r {
		if n := len(op.attempts); n > 0 && err != nil && op.attempts[n-1].Err != nil {
			op.attempts[n-1].Err = err // what a foreign RoundTripper made of the inner error comes from below all the same
		}
		return Attempt{}, false
	}
	a := &op.attempts[place]
	if a.passed && place == len(op.attempts)-1 {
		op.attempts = op.attempts[:place]
		return Attempt{Number: a.Number, Target: op.target, Cause: Refused, Code: "refused", NotSent: true, Err: err}, true
	}
	a.by = nil
	a.Elapsed = time.Since(op.started) - a.begun
	a.Target = op.target
	a.Err = err
	a.Written = int(op.wrote.Load())
	op.judged = judgement{resp: resp, err: err} // not yet, but abandon has to find the answer
	d, out := op.dialect(), Outcome{}
	switch {
	case d != nil:
		out = op.judge(d, resp, err)
		op.remember(judgement{dialect: d, resp: resp, err: err, outcome: out})
		a = &op.attempts[place] // the lock was free meanwhile
	case resp != nil:
		out.Status = resp.StatusCode
	}
	a.note(out, err)
	if resp != nil {
		op.last = lastAnswer{status: resp.StatusCode, substatus: out.Substatus, header: resp.Header}
	}
	if (out.Cause.Transient() || out.Cause == Unmendable) && !out.Unapplied || out.Cause == Canceled || out.Cause == DeadlineExceeded {
		op.inDoubt = true
	}
	return op.told(*a), true
}

func (a *Attempt) note(out Outcome, err error) {
	a.Cause, a.Code, a.Status, a.Substatus = out.Cause, out.Code, out.Status, out.Substatus
	a.NotSent = err != nil && out.Unapplied
}
