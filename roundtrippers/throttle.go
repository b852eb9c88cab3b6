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
	return inPlace{l.Retries, l.MaxWait, l.Backoff}.wrap(next, l.Dialect, middleware.Throttled, "throttle", inPlace{
		retries: 9, maxWait: 30 * time.Second, backoff: middleware.Backoff{Base: 5 * time.Millisecond, Cap: 5 * time.Second, Jitter: 0.25},
	})
}

// inPlace is what the layers that stay at the endpoint and wait have in common.
type inPlace struct {
	retries int
	maxWait time.Duration
	backoff middleware.Backoff
}

// wrap makes the loop of a layer that waits on cause; usual holds its defaults.
func (p inPlace) wrap(next http.RoundTripper, d middleware.Dialect, cause middleware.Cause, name string, usual inPlace) (http.RoundTripper, error) {
	var m mistakes
	m.dialect(d)
	negative(&m, "Retries", p.retries)
	negative(&m, "MaxWait", p.maxWait)
	m.backoff(p.backoff)
	if len(m) > 0 {
		return nil, m.join()
	}
	budget := &middleware.Budget{Name: name, Retries: orDefault(p.retries, usual.retries), Time: orDefault(p.maxWait, usual.maxWait)}
	return middleware.Retry(next, d, middleware.WaitOn(cause, budget, orDefault(p.backoff, usual.backoff)), budget)
}
