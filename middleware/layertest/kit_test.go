package layertest_test

import (
	"net/http"
	"testing"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/layertest"
)

// passThrough is the simplest layer there is.
var passThrough = middleware.LayerFunc(func(next http.RoundTripper) http.RoundTripper { return next })

func TestALayerThatDoesNothingKeepsEveryPromise(t *testing.T) {
	layertest.Run(t, passThrough)
}
