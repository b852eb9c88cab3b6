package roundtrippers

import (
	"math"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/layertest"
)

func TestTheWaitIsLinearAndCapped(t *testing.T) {
	const ms = time.Millisecond
	for _, tc := range []struct {
		id        string
		base      time.Duration
		attempt   int
		migrating bool
		wish      time.Duration
		want      time.Duration
	}{
		{"Z041", 100 * ms, 1, false, 0, 100 * ms},
		{"Z041", 100 * ms, 2, false, 0, 200 * ms},
		{"Z041", 100 * ms, 3, false, 0, 300 * ms},
		{"Z042", 100 * ms, 1, true, 0, 800 * ms},
		{"Z042", 100 * ms, 2, true, 0, 1600 * ms},
		{"Z042", 100 * ms, 3, true, 0, 2 * time.Second},
		{"Z043", 300 * ms, 7, false, 0, 2 * time.Second},
		{"Z043", 5 * time.Second, 1, false, 0, 2 * time.Second},
		{"Z045", math.MaxInt64, math.MaxInt, true, 0, 2 * time.Second},
		{"Z045", 1, math.MaxInt, true, 0, 2 * time.Second},
		{"Z045", 1, math.MaxInt, false, 0, 2 * time.Second},
		{"Z044", 100 * ms, 0, false, 0, 0},
		{"Z044", 100 * ms, -1, true, 0, 0},
		{"Z047", 100 * ms, 1, true, time.Second, time.Second},
		{"Z047", 100 * ms, 1, true, time.Minute, 2 * time.Second},
		{"Z047", 100 * ms, 1, true, ms, 800 * ms},
	} {
		r := reroute{Reroute: Reroute{Base: tc.base, Cap: 2 * time.Second, MigratingFactor: 8}}
		out := middleware.Outcome{Cause: middleware.Gone, Wait: tc.wish}
		if tc.migrating {
			out.Cause = middleware.Migrating
		}
		require.Equal(t, tc.want, r.wait(tc.attempt, out), "%s %+v", tc.id, tc)
	}
}

// The seed's formula, min(base x attempt x factor, cap), in numbers that cannot overflow.
func TestTheWaitAgainstTheSeedsFormula(t *testing.T) { // Z041 to Z045
	rapid.Check(t, func(t *rapid.T) {
		base := rapid.Int64Range(1, math.MaxInt64).Draw(t, "base")
		attempt := rapid.IntRange(1, math.MaxInt).Draw(t, "attempt")
		factor := rapid.IntRange(1, 100).Draw(t, "factor")
		limit := rapid.Int64Range(1, math.MaxInt64).Draw(t, "cap")
		want := min(float64(base)*float64(attempt)*float64(factor), float64(limit))
		got := linear(time.Duration(base), attempt, factor, time.Duration(limit))
		require.InEpsilon(t, want, float64(got), 1e-9)
		require.LessOrEqual(t, got, time.Duration(limit))
	})
}

func TestJitterSpreadsWithinTheCap(t *testing.T) { // R22
	r := reroute{Reroute: Reroute{Base: 100 * time.Millisecond, Cap: 110 * time.Millisecond, MigratingFactor: 8, Jitter: 0.2}}
	low, high := time.Hour, time.Duration(0)
	for range 1000 {
		wait := r.wait(1, middleware.Outcome{Cause: middleware.Gone})
		low, high = min(low, wait), max(high, wait)
	}
	require.GreaterOrEqual(t, low, 80*time.Millisecond)
	require.Less(t, low, 85*time.Millisecond)
	require.Equal(t, 110*time.Millisecond, high)
	for range 1000 {
		wait := r.wait(1, middleware.Outcome{Cause: middleware.Gone, Wait: 105 * time.Millisecond})
		require.GreaterOrEqual(t, wait, 105*time.Millisecond, "the server can lengthen a wait, jitter cannot take it back (Z047)")
	}
}

// keyedDialect judges by the answer's status only: 421 is Gone, 200 success.
type keyedDialect struct{}

func (keyedDialect) Intent(*http.Request) middleware.Intent {
	return middleware.Intent{PartitionKey: "k"}
}

func (keyedDialect) Judge(_ *middleware.Intent, resp *http.Response, err error) middleware.Outcome {
	switch {
	case resp == nil:
		return middleware.JudgeError(err)
	case resp.StatusCode == 421:
		return middleware.Outcome{Cause: middleware.Gone, Unapplied: true, Stale: middleware.StaleRanges}
	}
	return middleware.Outcome{Cause: middleware.Success}
}

func TestWithoutOwnersRerouteIsAPlainRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		script := layertest.NewScript(t, layertest.Step{Status: 421}, layertest.Step{})
		rt, err := Reroute{Dialect: keyedDialect{}}.Wrap(script)
		require.NoError(t, err)
		start := time.Now()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://kv.test/kv/k", nil)
		require.NoError(t, err)
		resp, err := rt.RoundTrip(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, 200, resp.StatusCode)
		require.Equal(t, 100*time.Millisecond, time.Since(start))
	})
}
