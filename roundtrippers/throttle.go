package roundtrippers

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/reroute-go/reroute/middleware"
)

// Throttle waits at the same endpoint when the service says that too much is
// sent, and sends again. The wait is the one that the service wishes, otherwise
// Backoff. A wait that does not fit what is left of MaxWait or of the deadline
// ends the operation with the answer in hand. Budgets are per operation (DESIGN
// rule 2; the seed's "9 attempts / 30s").
type Throttle struct {
	Dialect middleware.Dialect // required
	// Retries per operation; 0 = 9.
	Retries int
	// MaxWait limits the sum of the waits; 0 = 30 s.
	MaxWait time.Duration
	// Backoff serves where the service names no wait; zero = 5 ms doubling, at
	// most 5 s, +-25 %.
	Backoff middleware.Backoff
}

// Wrap reports a missing Dialect and negative fields.
func (l Throttle) Wrap(next http.RoundTripper) (http.RoundTripper, error) {
	budget, err := budgetOf("throttle", orDefault(l.Retries, 9), orDefault(l.MaxWait, 30*time.Second))
	if err != nil {
		return nil, err
	}
	backoff := orDefault(l.Backoff, middleware.Backoff{Base: 5 * time.Millisecond, Cap: 5 * time.Second, Jitter: 0.25})
	if err := backoff.Validate(); err != nil {
		return nil, err
	}
	return middleware.Retry(next, l.Dialect, waitOn(middleware.Throttled, budget, backoff), budget)
}

// waitOn is the policy of the layers that stay where they are and wait.
func waitOn(cause middleware.Cause, budget *middleware.Budget, backoff middleware.Backoff) middleware.Policy {
	return func(_ context.Context, op *middleware.Operation, out middleware.Outcome) middleware.Verdict {
		if out.Cause != cause {
			return middleware.Verdict{}
		}
		wait := out.Wait
		if wait <= 0 {
			wait = backoff.After(op.Spent(budget).Retries)
		}
		return middleware.Verdict{Budget: budget, Wait: wait}
	}
}

// budgetOf checks what a layer's literal says of its budget.
func budgetOf(name string, retries int, maxWait time.Duration) (*middleware.Budget, error) {
	switch {
	case retries < 0:
		return nil, fmt.Errorf("Retries is %d, want >= 0 (to retry not at all, leave the layer out)", retries)
	case maxWait < 0:
		return nil, fmt.Errorf("MaxWait is %v, want >= 0", maxWait)
	}
	return &middleware.Budget{Name: name, Retries: retries, Time: maxWait}, nil
}

func orDefault[T comparable](value, standard T) T {
	var zero T
	if value == zero {
		return standard
	}
	return value
}
