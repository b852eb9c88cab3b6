package roundtrippers

import (
	"crypto/rand"
	"fmt"
	"net/http"

	"github.com/reroute-go/reroute/idempotency"
	"github.com/reroute-go/reroute/middleware"
)

// IdempotencyKey gives each write that must not be carried out twice an
// Idempotency-Key: one for the logical write, the same on every send. It is for
// services that replay the stored answer of a repeated key; they alone make the
// repeat of such a write safe, and Retry then repeats it. Methods that are
// idempotent by themselves, and requests with a precondition, get none. A key
// that the caller has set is left as it is: to send a write again after a restart,
// store the key with it.
//
// The header has a side effect: net/http itself sends such a request again when
// its kept-alive connection turns out dead. The service then sees the key twice;
// Report.TransportReplays counts it.
//
// Stack it outside the other layers, so that they see the key.
type IdempotencyKey struct {
	// New makes a key, 1 to 255 visible ASCII characters; nil = 128 random bits.
	New func() string
	// ForbidTransportReplay keeps net/http from sending requests with a body and a
	// key again by itself: see Guard.
	ForbidTransportReplay bool
}

// Wrap never fails.
func (l IdempotencyKey) Wrap(next http.RoundTripper) (http.RoundTripper, error) {
	if l.New == nil {
		l.New = rand.Text
	}
	return middleware.Operate(next, nil, l.roundTrip), nil
}

type idempotencyKey struct{}

func (l IdempotencyKey) roundTrip(op *middleware.Operation, req *http.Request, next http.RoundTripper) (*http.Response, error) {
	if req.Header.Get(idempotency.Key) == "" {
		if op.StatedLevel() == idempotency.Safe || idempotency.OfMethod(req) != idempotency.NonIdempotent {
			return next.RoundTrip(req)
		}
		key, ok := op.Value(idempotencyKey{}).(string)
		if !ok {
			key = l.New()
			if err := checkKey(key); err != nil {
				return middleware.Refuse(req, err)
			}
			op.SetValue(idempotencyKey{}, key) // should the layer be stacked below a retrying one
		}
		req = withHeader(req, idempotency.Key, key)
	}
	if l.ForbidTransportReplay {
		op.ForbidTransportReplay()
	}
	return next.RoundTrip(op.Trace(req))
}

func checkKey(key string) error {
	if len(key) == 0 || len(key) > 255 {
		return fmt.Errorf("IdempotencyKey.New returned %d characters, want 1..255", len(key))
	}
	for i := range len(key) {
		if key[i] <= ' ' || key[i] > '~' {
			return fmt.Errorf("IdempotencyKey.New returned the byte %#x, want visible ASCII", key[i])
		}
	}
	return nil
}

// withHeader returns a copy of req with one header set.
func withHeader(req *http.Request, name, value string) *http.Request {
	copied := *req
	copied.Header = req.Header.Clone()
	if copied.Header == nil {
		copied.Header = http.Header{}
	}
	copied.Header.Set(name, value)
	return &copied
}
