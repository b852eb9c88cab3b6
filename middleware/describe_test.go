package middleware_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/layertest"
)

type emitting struct{}

func (emitting) Wrap(next http.RoundTripper) (http.RoundTripper, error) {
	return middleware.Operate(next, nil, func(op *middleware.Operation, req *http.Request, next http.RoundTripper) (*http.Response, error) {
		op.Emit(req.Context(), middleware.Event{Kind: middleware.BreakerOpened})
		return next.RoundTrip(req)
	}), nil
}

// secretive has fields of every kind, most of them not to be shown.
type secretive struct {
	Token   string
	Key     []byte
	Client  *http.Client
	Sign    func(*http.Request) error
	Values  map[string]string
	Any     any
	On      bool
	N       int
	Wait    time.Duration
	Share   float64
	Backoff middleware.Backoff
	hidden  int
}

func (secretive) Wrap(next http.RoundTripper) (http.RoundTripper, error) {
	a := &middleware.Budget{Name: "retries", Retries: 3}
	b := &middleware.Budget{Name: "waits", Retries: 120, Time: 30 * time.Second}
	return middleware.Retry(next, dialect{}, func(context.Context, *middleware.Operation, middleware.Outcome) middleware.Verdict {
		return middleware.Verdict{}
	}, a, b)
}

type switchedOff struct{}

func (switchedOff) Wrap(next http.RoundTripper) (http.RoundTripper, error) { return next, nil }

func TestDescribePrintsTheStackAndNoSecret(t *testing.T) {
	base := layertest.NewScript(t)
	inner := stack(t, base, again{Budget: &middleware.Budget{Name: "inner", Retries: 1}})
	rt := stack(t, inner,
		middleware.Observer(func(context.Context, middleware.Event) {}),
		&secretive{Token: "hunter2", Key: []byte("hunter2"), Client: &http.Client{}, Sign: func(*http.Request) error { return nil },
			Values: map[string]string{"k": "hunter2"}, Any: "hunter2", On: true, N: 7, Wait: time.Second, Share: 0.5, hidden: 42,
			Backoff: middleware.Backoff{Base: 5 * time.Millisecond, Cap: 5 * time.Second, Jitter: 0.25, Salt: time.Millisecond}},
		foreignLayer,
		switchedOff{},
		middleware.Observer(nil),
		again{Wait: time.Second},
	)
	require.Equal(t, strings.TrimSpace(`
middleware.Observer
middleware_test.secretive{On: true, N: 7, Wait: 1s, Share: 0.5, Backoff: 5ms doubling, cap 5s, +-25%, +0..1ms} [retries 3, waits 120/30s]
middleware.LayerFunc
middleware_test.again{Wait: 1s} [again 2]
middleware_test.again [inner 1]
*layertest.Script
at most 127 sends`), middleware.Describe(rt))

	alone, err := again{}.Wrap(base)
	require.NoError(t, err)
	require.Equal(t, "middleware.Retry [again 2]\n*layertest.Script\nat most 3 sends", middleware.Describe(alone))
	require.Equal(t, "*layertest.Script\nat most 1 send", middleware.Describe(base))
	require.Equal(t, "*layertest.Script\nat most 1 send", middleware.Describe(stack(t, base)))
}

type intLayer int

func (intLayer) Wrap(next http.RoundTripper) (http.RoundTripper, error) { return foreign(next), nil }

func TestDescribeTakesLayersOfAnyType(t *testing.T) {
	require.Equal(t, "middleware_test.intLayer\n*layertest.Script\nat most 1 send",
		middleware.Describe(stack(t, layertest.NewScript(t), intLayer(3))))
}
