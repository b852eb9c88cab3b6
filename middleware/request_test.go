package middleware_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/layertest"
)

type layerOf func(next http.RoundTripper) (http.RoundTripper, error)

func (f layerOf) Wrap(next http.RoundTripper) (http.RoundTripper, error) { return f(next) }

type work = func(op *middleware.Operation, req *http.Request, next http.RoundTripper) (*http.Response, error)

func relaying(f work) middleware.Layer {
	return layerOf(func(next http.RoundTripper) (http.RoundTripper, error) { return middleware.Relay(next, nil, f), nil })
}

func operating(f work) middleware.Layer {
	return layerOf(func(next http.RoundTripper) (http.RoundTripper, error) { return middleware.Operate(next, nil, f), nil })
}

func pass(_ *middleware.Operation, req *http.Request, next http.RoundTripper) (*http.Response, error) {
	return next.RoundTrip(req)
}

func readdress(op *middleware.Operation, req *http.Request, next http.RoundTripper) (*http.Response, error) {
	return next.RoundTrip(op.Readdress(req, "https", "elsewhere"))
}

// Route may change the operation's own request, but never one that somebody holds
// who may look at it again, keep it, or send it twice at once, as a hedging layer
// does.
func TestARequestThatOthersHaveSeenIsNotReaddressedInPlace(t *testing.T) {
	untouched := func(t *testing.T, req *http.Request, next http.RoundTripper) (*http.Response, error) {
		url, host := req.URL, req.Host
		resp, err := next.RoundTrip(req)
		require.Same(t, url, req.URL)
		require.Equal(t, "host", req.URL.Host)
		require.Equal(t, host, req.Host)
		return resp, err
	}
	foreign := func(t *testing.T) middleware.Layer {
		return middleware.LayerFunc(func(next http.RoundTripper) http.RoundTripper {
			return middleware.RoundTripperFunc(func(req *http.Request) (*http.Response, error) { return untouched(t, req, next) })
		})
	}
	for name, layers := range map[string]func(t *testing.T) []middleware.Layer{
		"a foreign layer within": func(t *testing.T) []middleware.Layer {
			return []middleware.Layer{relaying(pass), foreign(t), relaying(readdress)}
		},
		"a foreign layer outermost": func(t *testing.T) []middleware.Layer {
			return []middleware.Layer{foreign(t), relaying(readdress)}
		},
		"a layer that may keep it": func(t *testing.T) []middleware.Layer {
			return []middleware.Layer{operating(func(_ *middleware.Operation, req *http.Request, next http.RoundTripper) (*http.Response, error) {
				return untouched(t, req, next)
			}), relaying(readdress)}
		},
		"the transport of an earlier send": func(t *testing.T) []middleware.Layer {
			return []middleware.Layer{relaying(func(op *middleware.Operation, req *http.Request, next http.RoundTripper) (*http.Response, error) {
				first := op.Readdress(req, "https", "first")
				sent := *first
				resp, err := next.RoundTrip(first)
				require.Equal(t, "first", first.URL.Host)
				require.Same(t, sent.URL, first.URL)
				return resp, err
			}), relaying(readdress)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			script := layertest.NewScript(t, status(200)...)
			req := get(t.Context())
			req.URL.Host, req.Host = "host", "host"
			answered(t, stack(t, script, layers(t)...), req, 200)
			require.Equal(t, []string{"elsewhere"}, script.Hosts())
			require.Equal(t, "host", req.URL.Host, "the caller's own")
		})
	}
}

func TestARequestThatItsBeginnerHoldsIsNotReaddressedInPlace(t *testing.T) {
	script := layertest.NewScript(t, status(200)...)
	_, req := middleware.Begin(get(t.Context()))
	url := req.URL
	answered(t, middleware.Relay(script, nil, readdress), req, 200)
	require.Equal(t, []string{"elsewhere"}, script.Hosts())
	require.Same(t, url, req.URL)
}

// Where only layers of this kind have it, the copy is spared.
func TestARequestThatOnlyRelaysHaveSeenIsReaddressedInPlace(t *testing.T) {
	var before, after *http.Request
	answered(t, stack(t, layertest.NewScript(t, status(200)...), relaying(pass), relaying(func(op *middleware.Operation, req *http.Request, next http.RoundTripper) (*http.Response, error) {
		before, after = req, op.Readdress(req, "https", "elsewhere")
		return next.RoundTrip(after)
	})), get(t.Context()), 200)
	require.Same(t, before, after)
}
