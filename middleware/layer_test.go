package middleware_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/layertest"
)

// The recipe of ExampleLayerFunc.
var timing = middleware.LayerFunc(func(next http.RoundTripper) http.RoundTripper {
	return middleware.RoundTripperFunc(func(req *http.Request) (*http.Response, error) { return next.RoundTrip(req) })
})

func TestALayerOutOfTwoFuncsKeepsEveryPromise(t *testing.T) { layertest.Run(t, timing) }

func TestALayerFuncForwardsCloseIdleConnectionsWhereItsResultHasNone(t *testing.T) { // X14
	base := layertest.NewScript(t)
	rt, err := timing.Wrap(base)
	require.NoError(t, err)
	rt, err = timing.Wrap(rt)
	require.NoError(t, err)
	(&http.Client{Transport: rt}).CloseIdleConnections()
	require.Equal(t, 1, base.IdleClosed())
}

// idler closes what it has itself.
type idler struct {
	http.RoundTripper
	closed int
}

func (i *idler) CloseIdleConnections() { i.closed++ }

func TestALayerFuncReturnsAsItIsWhatNeedsNoCloseIdleConnections(t *testing.T) {
	base, own := layertest.NewScript(t), &idler{}
	plain := middleware.RoundTripperFunc(base.RoundTrip) // it has nothing to forward to
	for name, c := range map[string]struct{ next, returned http.RoundTripper }{
		"a result that has its own": {base, own},
		"next itself":               {base, base},
		"no result":                 {base, nil},
		"a nil pointer":             {base, (*struct{ http.RoundTripper })(nil)}, // Stack is to see it
		"over what has none":        {plain, &struct{ http.RoundTripper }{plain}},
		"next itself, without one":  {&struct{ http.RoundTripper }{plain}, nil},
	} {
		if name == "next itself, without one" {
			c.returned = c.next
		}
		rt, err := middleware.LayerFunc(func(http.RoundTripper) http.RoundTripper { return c.returned }).Wrap(c.next)
		require.NoError(t, err, name)
		require.True(t, rt == c.returned, name)
	}
}

// budgeted is a foreign loop that says what it spends.
type budgeted struct{ http.RoundTripper }

func (budgeted) Budgets() []*middleware.Budget {
	return []*middleware.Budget{{Name: "foreign", Retries: 4}}
}

func TestDescribeSeesThroughALayerFunc(t *testing.T) {
	spending := middleware.LayerFunc(func(next http.RoundTripper) http.RoundTripper { return budgeted{next} })
	rt := stack(t, layertest.NewScript(t), spending)
	require.Equal(t, "middleware.LayerFunc [foreign 4]\n*layertest.Script\nat most 5 sends", middleware.Describe(rt))

	alone, err := timing.Wrap(layertest.NewScript(t))
	require.NoError(t, err)
	require.Equal(t, "middleware.RoundTripperFunc\nat most 1 send", middleware.Describe(alone))
}
