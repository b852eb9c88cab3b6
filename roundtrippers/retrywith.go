package roundtrippers

import (
	"net/http"
	"time"

	"github.com/reroute-go/reroute/middleware"
)

// RetryWith sends again, at the same endpoint, when the service asks for that
// because two writers met (Cosmos DB 449). The dialect's Stamp keeps the gateway
// from doing the same by itself (DESIGN rule 3).
type RetryWith struct {
	Dialect middleware.Dialect // required
	// Retries per operation; 0 = 35, which is what 30 s of the schedule hold.
	Retries int
	// MaxWait limits the sum of the waits; 0 = 30 s.
	MaxWait time.Duration
	// Backoff is the schedule; zero = 10 ms doubling, plus 0..5 ms, at most 1 s.
	Backoff middleware.Backoff
}

// Wrap reports a missing Dialect and negative fields.
func (l RetryWith) Wrap(next http.RoundTripper) (http.RoundTripper, error) {
	return inPlace{l.Retries, l.MaxWait, l.Backoff}.wrap(next, l.Dialect, middleware.Contended, "retry with", inPlace{
		retries: 35, maxWait: 30 * time.Second, backoff: middleware.Backoff{Base: 10 * time.Millisecond, Cap: time.Second, Salt: 5 * time.Millisecond},
	})
}
