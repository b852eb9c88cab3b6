package azadapter

import (
	"bytes"
	"fmt"
	"io"
	"net/http"

	"github.com/reroute-go/reroute/idempotency"
	"github.com/reroute-go/reroute/middleware"
)

// DefaultMaxBytes is four times the longest answer of the service, which is 4 MB.
const DefaultMaxBytes = 16 << 20

// Whole is a base transport that ends an attempt with the last byte of the answer, not with its headers. The SDK reads bodies above its
// transport and sends again when one breaks off; below the stack's loop that is a failed attempt like any other.
//
// What becomes of an answer that breaks off:
//   - the success of a read is an error of the attempt, which the stack retries;
//   - the success of a write comes back as it is, and its body ends with the error: it was carried out, so a repeat would do harm;
//   - a status of 400 or more comes back with as much of its body as there was: status and headers are the answer.
//
// At most MaxBytes of each answer are held in memory. A longer body is passed on: the part that was read, then the rest as it comes.
//
// It has to be the base, below every layer, as only the base's errors count as those of an attempt. It is safe for concurrent use.
type Whole struct {
	Next http.RoundTripper // required
	// MaxBytes of an answer's body to read ahead; 0 = DefaultMaxBytes. Negative: nothing, so that all bodies are passed on.
	MaxBytes int64
}

// RoundTrip sends req through Next and reads the answer.
func (w *Whole) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := w.Next.RoundTrip(req)
	if err != nil || resp.Body == nil || resp.Body == http.NoBody || resp.StatusCode == http.StatusSwitchingProtocols {
		return resp, err
	}
	limit := max(limitOf(w.MaxBytes), 0)
	var kept bytes.Buffer
	// No more than usual answers take on the server's word alone.
	kept.Grow(int(min(max(resp.ContentLength, 0), limit, 64<<10)) + bytes.MinRead)
	_, err = kept.ReadFrom(io.LimitReader(resp.Body, limit+1))
	switch {
	case err == nil && int64(kept.Len()) > limit:
		rest := resp.Body
		resp.Body = &joined{Reader: io.MultiReader(&kept, rest), Closer: rest}
		return resp, nil
	case err == nil || resp.StatusCode >= 400:
		_ = resp.Body.Close()
		resp.Body, resp.ContentLength = io.NopCloser(&kept), int64(kept.Len())
		return resp, nil
	}
	_ = resp.Body.Close()
	err = fmt.Errorf("azadapter: the answer (%d) broke off after %d bytes: %w", resp.StatusCode, kept.Len(), err)
	if isWrite(req) {
		resp.Body = io.NopCloser(io.MultiReader(&kept, failing{err}))
		return resp, nil
	}
	return nil, err
}

// CloseIdleConnections passes to Next.
func (w *Whole) CloseIdleConnections() {
	if c, ok := w.Next.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// isWrite asks the operation, whose dialect knows a query from a create; without one the method has to do.
func isWrite(req *http.Request) bool {
	if op := middleware.FromContext(req.Context()); op != nil && op.Intent().Name != "" {
		return op.Intent().Write
	}
	return idempotency.OfMethod(req) != idempotency.Safe
}

func limitOf(maxBytes int64) int64 {
	if maxBytes == 0 {
		return DefaultMaxBytes
	}
	return maxBytes
}

type joined struct {
	io.Reader
	io.Closer
}

// failing is the end of a body that broke off.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }
