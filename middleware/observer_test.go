package middleware_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/layertest"
)

type logLines struct{ bytes.Buffer }

func (l *logLines) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(&l.Buffer, &slog.HandlerOptions{
		Level: slog.LevelDebug,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	}))
}

func TestTheStoryIsToldAndLogged(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var lines logLines
		script := layertest.NewScript(t,
			layertest.Step{Status: 429, Header: map[string]string{"Wait": "1500ms"}},
			layertest.Step{Err: errBoom, Delay: 20 * time.Millisecond},
			layertest.Step{Status: 503})
		rt := stack(t, script, middleware.LogTo(lines.logger()), again{})
		resp, err := rt.RoundTrip(get(t.Context()))
		require.NoError(t, err)
		read(t, resp)
		require.Equal(t, strings.TrimLeft(`
level=DEBUG msg="attempt started" op=test attempt=1
level=INFO msg="attempt ended" op=test attempt=1 cause=throttled code=429
level=INFO msg="retry scheduled" op=test attempt=1 cause=throttled code=429 budget=again wait=1.5s
level=DEBUG msg="attempt started" op=test attempt=2
level=INFO msg="attempt ended" op=test attempt=2 cause=broken elapsed=20ms err=boom
level=INFO msg="retry scheduled" op=test attempt=2 cause=broken budget=again
level=DEBUG msg="attempt started" op=test attempt=3
level=INFO msg="attempt ended" op=test attempt=3 cause=unavailable code=503
level=WARN msg="gave up" op=test attempt=3 cause=unavailable code=503 budget=again stop="budget spent"
`, "\n"), lines.String())

		require.Equal(t, strings.TrimSpace(`
test: 3 sends in 1.52s, budget spent, again x2
  #1: 429 throttled in 0s
  #2 after 1.5s: broken in 20ms
  #3: 503 unavailable in 0s`), middleware.FromResponse(resp).Report().String())
	})
}

func TestAnAttemptPrintsWhereItWent(t *testing.T) {
	a := middleware.Attempt{Number: 2, Wait: time.Second, Elapsed: 1234567 * time.Microsecond, NotSent: true, Cause: middleware.Unreachable, Code: "unreachable",
		Target: middleware.Target{Region: "West US", Endpoint: "west.test", Range: "7", Probe: true, Override: true}}
	require.Equal(t, "#2 after 1s West US (west.test) range 7 override probe: unreachable, nothing done in 1.235s", a.String())
	require.Equal(t, "#1: 200 in 0s", middleware.Attempt{Number: 1, Status: 200}.String())
	require.Equal(t, "request: 0 sends in 0s, running", middleware.Report{}.String())
}

func TestDisabledLevelsAreNotBuilt(t *testing.T) {
	var lines logLines
	logger := slog.New(slog.NewTextHandler(&lines, &slog.HandlerOptions{Level: slog.LevelError}))
	answered(t, stack(t, layertest.NewScript(t, status(503)...), middleware.LogTo(logger), again{}), get(t.Context()), 503)
	require.Empty(t, lines.String())
	require.NotNil(t, middleware.LogTo(nil))
}

func TestTheOutermostObserverIsTheOne(t *testing.T) {
	var outer, inner events
	rt := stack(t, layertest.NewScript(t, status(200)...), outer.observer(), inner.observer())
	answered(t, rt, get(t.Context()), 200)
	require.Len(t, outer.list, 2)
	require.Empty(t, inner.list)
	answered(t, stack(t, layertest.NewScript(t, status(200)...), middleware.Observer(nil)), get(t.Context()), 200)
}

func TestLayersMayTellEventsOfTheirOwn(t *testing.T) {
	var seen events
	rt, err := middleware.Stack(layertest.NewScript(t, status(200)...), seen.observer(), again{Prepare: nil}, emitting{})
	require.NoError(t, err)
	answered(t, rt, get(t.Context()), 200)
	require.Equal(t, "breaker opened, attempt started, attempt ended", seen.kinds())
	require.Equal(t, "test", seen.list[0].Operation)
}

func TestAnObserverMayAskTheOperation(t *testing.T) {
	var sends []int
	observer := middleware.Observer(func(ctx context.Context, _ middleware.Event) {
		sends = append(sends, middleware.FromContext(ctx).Report().Sends) // no lock is held
	})
	answered(t, stack(t, layertest.NewScript(t, status(503)...), observer, again{}), get(t.Context()), 503)
	require.Equal(t, []int{1, 1, 1, 2, 2, 2, 3, 3, 3}, sends)
}
