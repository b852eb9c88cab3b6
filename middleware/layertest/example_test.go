package layertest_test

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/layertest"
)

// Limit is a layer as it is often written: its cancel cuts off the answer that it
// returns, and it has no CloseIdleConnections.
type Limit struct{ After time.Duration }

// Wrap never fails.
func (l Limit) Wrap(next http.RoundTripper) (http.RoundTripper, error) {
	return middleware.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
		ctx, cancel := context.WithTimeout(req.Context(), l.After)
		defer cancel()
		return next.RoundTrip(req.WithContext(ctx))
	}), nil
}

// In a test it is layertest.Run(t, Limit{After: time.Minute}).
func ExampleCheck() {
	for _, f := range layertest.Check(Limit{After: time.Minute}) {
		if len(f.Broken) > 0 {
			fmt.Printf("%s: %s\n", f.Promise.Name, f.Broken[0])
			fmt.Println("-", f.Promise.Mend)
		}
	}
	// Output:
	// body readable: of 16384 bytes 0 could be read, then: context canceled
	// - Cancel the attempt's context when the returned body ends or is closed, not when RoundTrip returns, and pass on the errors of its Read.
	// idle connections closed: CloseIdleConnections of a middleware.RoundTripperFunc does not reach the transport below
	// - Return what middleware.LayerFunc, Operate or Retry gives, which has it, or a type with a CloseIdleConnections that calls next's (if next has one).
}
