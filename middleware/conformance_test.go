package middleware_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/layertest"
)

// The layers that users are shown how to write keep what the library's own do,
// which are all tried in package roundtrippers.
func TestLayersMadeOfThisPackageKeepEveryPromise(t *testing.T) {
	token := func(context.Context, bool) (string, error) { return "t", nil }
	all := middleware.Policy(func(_ context.Context, _ *middleware.Operation, out middleware.Outcome) middleware.Verdict {
		if out.Cause == middleware.Success {
			return middleware.Verdict{}
		}
		return middleware.Verdict{Budget: anyTwice, Wait: time.Second}
	})
	for name, kit := range map[string]layertest.Kit{
		"Reauth, the example": {Layer: Reauth{Token: token}, Again: []layertest.Step{{Status: 401}}},
		"Retry, after a wait": {Layer: again{Wait: time.Second}, Again: []layertest.Step{{Status: 503}}},
		"Retry, at once":      {Layer: again{}, Again: []layertest.Step{{Status: 503}}},
		"Retry, prepared": {Layer: again{Prepare: func(ctx context.Context) error {
			select {
			case <-time.After(time.Millisecond):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}}, Again: []layertest.Step{{Status: 503}}},
		"RetryAny": {Layer: wrapping(func(next http.RoundTripper) (http.RoundTripper, error) {
			return middleware.RetryAny(next, dialect{}, all, anyTwice)
		}), Again: []layertest.Step{{Status: 404}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Run("alone", kit.Run)
			inner := kit.Layer
			kit.Layer = wrapping(func(next http.RoundTripper) (http.RoundTripper, error) {
				return middleware.Stack(next, inner, inner)
			})
			t.Run("twice, in a stack", kit.Run)
		})
	}
}

var anyTwice = &middleware.Budget{Name: "any", Retries: 2}

// wrapping is a layer that is a function.
type wrapping func(http.RoundTripper) (http.RoundTripper, error)

func (f wrapping) Wrap(next http.RoundTripper) (http.RoundTripper, error) { return f(next) }

func TestTheExampleRefusesWithoutATokenAndLeavesNothingBehind(t *testing.T) {
	kit := layertest.Kit{Refuses: true, Layer: Reauth{Token: func(context.Context, bool) (string, error) { return "", errBoom }}}
	kit.Run(t)
}
