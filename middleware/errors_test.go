package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/idempotency"
	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/layertest"
)

func TestTheErrorSaysWhyAndWhatWasLast(t *testing.T) { // X02, X17, B19
	script := layertest.NewScript(t, layertest.Step{Status: 503, Header: map[string]string{"Activity": "7"}}, layertest.Step{Err: errBoom})
	err := failed(t, stack(t, script, again{Budget: &middleware.Budget{Name: "b", Retries: 1}}), get(t.Context()))
	require.EqualError(t, err, "reroute: test: budget spent after 2 sends (broken), last answer 503: boom")
	require.ErrorIs(t, err, errBoom)
	require.ErrorIs(t, err, middleware.ErrBudgetSpent)
	for _, other := range []error{middleware.ErrNotRepeatable, middleware.ErrBodyNotReplayable, middleware.ErrCircuitOpen, context.Canceled, context.DeadlineExceeded} {
		require.NotErrorIs(t, err, other)
	}
	require.Equal(t, "7", err.LastHeader.Get("Activity"))
	require.EqualError(t, &middleware.Error{LastStatus: 429, LastSubstatus: 3200, Stop: middleware.BudgetSpent, Err: errBoom},
		"reroute: budget spent after 0 sends, last answer 429/3200: boom")
	require.False(t, err.Timeout())
	require.Same(t, errBoom, errors.Unwrap(err))
}

func TestEachStopHasItsSentinel(t *testing.T) {
	boom := layertest.Step{Err: errBoom}
	guarded := middleware.WithIdempotency(t.Context(), idempotency.NonIdempotent)
	err := failed(t, stack(t, layertest.NewScript(t, boom), again{}), get(guarded))
	require.ErrorIs(t, err, middleware.ErrNotRepeatable)

	err = failed(t, stack(t, layertest.NewScript(t, boom), middleware.ReplayBody{MaxBytes: -1}, again{}), streamed(t.Context(), layertest.NewBody("text")))
	require.ErrorIs(t, err, middleware.ErrBodyNotReplayable)

	err = failed(t, stack(t, layertest.NewScript(t, layertest.Step{Err: context.DeadlineExceeded}), again{}), get(t.Context()))
	require.True(t, err.Timeout(), "an attempt's own limit is a timeout too")
	require.Equal(t, middleware.BudgetSpent, err.Stop)

	err = failed(t, stack(t, layertest.NewScript(t, boom), again{On: middleware.Throttled}), get(t.Context()))
	require.Equal(t, middleware.NotRetried, err.Stop)

	err = failed(t, stack(t, layertest.NewScript(t, boom)), get(t.Context())) // no dialect at all
	require.Equal(t, middleware.Broken, err.Outcome.Cause)
	require.EqualError(t, err, "reroute: not retried after 1 send (broken): boom")
}

func TestTheErrorShowsNoQuery(t *testing.T) {
	// A client as the base quotes the URL whole.
	base := middleware.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
		return nil, fmt.Errorf("wrapped: %w", &url.Error{Op: "Get", URL: req.URL.String(), Err: errBoom})
	})
	var lines logLines
	err := failed(t, stack(t, base, middleware.LogTo(lines.logger()), again{}), get(t.Context()))
	require.EqualError(t, err, `reroute: test: budget spent after 3 sends (broken): wrapped: Get "http://service.test/path": boom`)
	require.NotContains(t, lines.String(), "secret")
	require.Contains(t, lines.String(), "boom")
}

func TestAWholeOperationBelowTheBaseIsBelieved(t *testing.T) {
	// A base that starts over, as one does that loses the context.
	inner := stack(t, layertest.NewScript(t, layertest.Step{Err: unmendable()[0]}), again{})
	base := middleware.RoundTripperFunc(func(*http.Request) (*http.Response, error) { return inner.RoundTrip(get(context.Background())) })
	err := failed(t, stack(t, base, again{}), get(t.Context()))
	require.Equal(t, middleware.Unmendable, err.Outcome.Cause)
	require.Equal(t, 1, err.Report.Sends)
}
