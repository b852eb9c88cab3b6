package middleware

import (
	"errors"
	"net/http"
	"time"
)

// recorder sits right above the base transport and writes each send into the
// operation's log. When two stacks are nested with a foreign RoundTripper in
// between, the outer recorder notices the inner one and leaves the log to it, so
// that a send is counted once.
type recorder struct{ next http.RoundTripper }

func (r *recorder) RoundTrip(req *http.Request) (*http.Response, error) {
	op := FromContext(req.Context())
	if op == nil {
		return r.next.RoundTrip(req)
	}
	number, serial := op.startAttempt()
	op.emit(req.Context(), func() Event { return Event{Kind: AttemptStarted, Attempt: number, Target: op.Target()} })
	ended := false
	defer func() {
		if !ended { // a panic below must not leave the attempt open (X16)
			op.endAttempt(number, serial, nil, errPanicked)
		}
	}()
	resp, err := r.next.RoundTrip(op.onTheWire(req))
	ended = true
	resp, err = exactlyOne(resp, err)
	op.endAttempt(number, serial, resp, err)
	op.emit(req.Context(), func() Event { return op.attemptEvent(number) })
	return resp, err
}

func (r *recorder) CloseIdleConnections() { closeIdle(r.next) }

func (r *recorder) records() {}

var (
	errPanicked = errors.New("reroute: the transport panicked")
	errNeither  = errors.New("reroute: the transport returned neither a response nor an error")
)

// exactlyOne mends a base that breaks the RoundTripper contract.
func exactlyOne(resp *http.Response, err error) (*http.Response, error) {
	switch {
	case resp == nil && err == nil:
		return nil, errNeither
	case resp != nil && err != nil:
		if resp.Body != nil {
			_ = resp.Body.Close()
		}
		return nil, err
	case resp != nil && resp.Body == nil:
		resp.Body = http.NoBody
	}
	return resp, err
}

// onTheWire is the request as the base transport sees it.
func (op *Operation) onTheWire(req *http.Request) *http.Request {
	op.mu.Lock()
	hide := op.sendOnce && req.GetBody != nil
	op.mu.Unlock()
	if !hide {
		return req
	}
	copied := *req
	copied.GetBody = nil
	return &copied
}

// startAttempt opens a record and returns its place in the log and its serial.
func (op *Operation) startAttempt() (number, serial int) {
	now := time.Now()
	op.wrote.Store(false)
	op.mu.Lock()
	defer op.mu.Unlock()
	if n := len(op.attempts); op.open > 0 && n > 0 {
		// The attempt that is open is no send: this one, below it, is.
		op.attempts = op.attempts[:n-1]
	}
	op.open++
	op.serial++
	op.attempts = append(op.attempts, Attempt{
		Number:  len(op.attempts) + 1,
		Started: now,
		Wait:    op.wait,
		Target:  op.target,
		serial:  op.serial,
	})
	op.wait = 0
	op.stop = NotStopped
	return len(op.attempts), op.serial
}

func (op *Operation) endAttempt(number, serial int, resp *http.Response, err error) {
	op.mu.Lock()
	defer op.mu.Unlock()
	op.open--
	if number > len(op.attempts) || op.attempts[number-1].serial != serial {
		return // an inner recorder has the word
	}
	a := &op.attempts[number-1]
	a.Elapsed = time.Since(a.Started)
	a.Target = op.target
	a.Err = err
	out := Outcome{}
	if op.dialect != nil {
		out = op.judge(op.dialect, resp, err)
		op.judged = judgement{resp: resp, err: err, outcome: out}
	} else if resp != nil {
		out.Status = resp.StatusCode
	}
	a.note(out, err)
	if resp != nil {
		op.last = lastAnswer{status: resp.StatusCode, substatus: out.Substatus, header: resp.Header}
	}
	if out.Cause.Transient() && !out.Unapplied || out.Cause == Canceled || out.Cause == DeadlineExceeded {
		op.inDoubt = true
	}
}

func (a *Attempt) note(out Outcome, err error) {
	a.Cause, a.Code, a.Status, a.Substatus = out.Cause, out.Code, out.Status, out.Substatus
	a.NotSent = err != nil && out.Unapplied
}
