package roundtrippers

import (
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
	var m mistakes
	m.dialect(l.Dialect)
	negative(&m, "Retries", l.Retries)
	negative(&m, "MaxWait", l.MaxWait)
	m.backoff(l.Backoff)
	if len(m) > 0 {
		return nil, m.join()
	}
	budget := &middleware.Budget{Name: "throttle", Retries: orDefault(l.Retries, 9), Time: orDefault(l.MaxWait, 30*time.Second)}
	backoff := orDefault(l.Backoff, middleware.Backoff{Base: 5 * time.Millisecond, Cap: 5 * time.Second, Jitter: 0.25})
	return middleware.Retry(next, l.Dialect, middleware.WaitOn(middleware.Throttled, budget, backoff), budget)
}
