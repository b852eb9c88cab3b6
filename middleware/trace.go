package middleware

import (
	"net/http"
	"net/http/httptrace"
)

// Trace has net/http tell the operation whether an attempt's headers were
// written, so that "not sent" is known and not guessed. The returned request
// must be the one that is sent. It costs six allocations, so it is meant for
// operations whose repeat would do harm (DESIGN rule 5).
func (op *Operation) Trace(req *http.Request) *http.Request {
	op.mu.Lock()
	op.tracing = true
	op.mu.Unlock()
	// WroteHeaders fires when the headers enter the write buffer, before they are
	// flushed: true means "may have been sent", false "certainly not".
	trace := &httptrace.ClientTrace{WroteHeaders: func() { op.wrote.Store(true) }}
	return req.WithContext(httptrace.WithClientTrace(req.Context(), trace))
}
