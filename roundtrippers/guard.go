package roundtrippers

import (
	"net/http"

	"github.com/reroute-go/reroute/idempotency"
	"github.com/reroute-go/reroute/middleware"
)

// Guard keeps operations that must not run twice from being sent again after an
// outcome that leaves open whether they ran. In Cosmos DB those are stored
// procedure executions, writes with triggers and deletes by partition key
// (DESIGN rule 4); they are still re-sent where nothing can have run. Whether an
// attempt was sent is then traced, not guessed.
//
// Stack it outside the retrying layers. Without it everything is repeatable, as
// in the reference driver, save what the caller marks WithIdempotency.
type Guard struct {
	Dialect middleware.Dialect // required
	// ForbidTransportReplay also keeps net/http from replaying guarded requests
	// with a body on a connection that died: it does so on its own for any
	// request that carries an Idempotency-Key. The price is that requests which
	// an HTTP/2 server refused unprocessed fail instead of being replayed.
	ForbidTransportReplay bool
}

// Wrap reports a missing Dialect.
func (l Guard) Wrap(next http.RoundTripper) (http.RoundTripper, error) {
	var m mistakes
	if m.dialect(l.Dialect); len(m) > 0 {
		return nil, m.join()
	}
	return middleware.Relay(next, l.Dialect, func(op *middleware.Operation, req *http.Request, next http.RoundTripper) (*http.Response, error) {
		op.Guard()
		if op.Intent().Level == idempotency.NonIdempotent {
			req = op.Trace(req)
			if l.ForbidTransportReplay {
				op.ForbidTransportReplay()
			}
		}
		return next.RoundTrip(req)
	}), nil
}
