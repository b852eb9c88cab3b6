package cosmos

import (
	"context"
	"net/http"
	"time"

	"github.com/reroute-go/reroute/middleware"
)

// throttle waits out 429 on the same endpoint (seed "429": 9 times, 30 s in all). A wished wait that does not fit is
// not begun (DESIGN rule 2).
type throttle struct {
	retries int
	maxWait time.Duration
}

func (l throttle) Wrap(next http.RoundTripper) (http.RoundTripper, error) {
	budget := &middleware.Budget{Name: "metadata throttle", Retries: l.retries, Time: l.maxWait}
	backoff := middleware.Backoff{Base: 5 * time.Millisecond, Cap: 5 * time.Second, Jitter: 0.25}
	return middleware.Retry(next, dialect{}, middleware.WaitOn(middleware.Throttled, budget, backoff), budget)
}

// reconnect tries an endpoint twice more that could not be reached, after 100 ms and 200 ms.
type reconnect struct{}

func (reconnect) Wrap(next http.RoundTripper) (http.RoundTripper, error) {
	budget := &middleware.Budget{Name: "metadata connect", Retries: 2}
	return middleware.Retry(next, dialect{}, func(_ context.Context, op *middleware.Operation, out middleware.Outcome) middleware.Verdict {
		if out.Cause != middleware.Unreachable {
			return middleware.Verdict{}
		}
		return middleware.Verdict{Budget: budget, Wait: time.Duration(op.Spent(budget).Retries+1) * 100 * time.Millisecond}
	}, budget)
}
