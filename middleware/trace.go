package middleware

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
)

// Trace has net/http tell the operation whether an attempt's headers were
// written, so that "not sent" is known and not guessed, and how often: net/http
// sends some requests again by itself, see Report.TransportReplays. The returned request
// must be the one that is sent. It costs six allocations, so it is meant for
// operations whose repeat would do harm (DESIGN rule 5). A base transport that
// does not trace leaves it at the guess.
func (op *Operation) Trace(req *http.Request) *http.Request {
	seen := new(sendTrace)
	op.traced.Store(seen)
	trace := &httptrace.ClientTrace{
		GetConn: func(string) { seen.asked.Store(true) },
		GotConn: func(httptrace.GotConnInfo) { seen.got.Store(true) },
		// Fires when the headers enter the write buffer, before they are flushed:
		// true means "may have been sent", false "certainly not".
		WroteHeaders: func() { seen.wrote.Add(1) },
	}
	return req.WithContext(httptrace.WithClientTrace(req.Context(), trace))
}

// neverWritten reports whether the trace saw the last attempt fail before its
// headers were written. One that was cut off on a connection may still be about
// to tell: over HTTP/2 they are on the wire by then, and net/http does not wait.
func (op *Operation) neverWritten(err error) bool {
	cut := errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrAttemptTimeout)
	seen := op.traced.Load()
	return seen != nil && seen.asked.Load() && seen.wrote.Load() == 0 && !(cut && seen.got.Load())
}

// hasWritten reports whether the trace saw the headers of the last attempt written.
func (op *Operation) hasWritten() bool {
	seen := op.traced.Load()
	return seen != nil && seen.wrote.Load() > 0
}

// sendTrace is what net/http tells of an attempt.
type sendTrace struct {
	asked, got atomic.Bool // for a connection; one
	wrote      atomic.Int32
}

func (t *sendTrace) reset() {
	t.asked.Store(false)
	t.got.Store(false)
	t.wrote.Store(0)
}
