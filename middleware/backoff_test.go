package middleware_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/reroute-go/reroute/middleware"
)

func TestBackoffIsBoundedForEveryAttempt(t *testing.T) { // B27
	duration := rapid.OneOf(
		rapid.Int64Range(0, math.MaxInt64),
		rapid.Int64Range(0, int64(time.Minute)),
		rapid.SampledFrom([]int64{0, 1, math.MaxInt64, math.MaxInt64 - 1}),
	)
	rapid.Check(t, func(t *rapid.T) {
		b := middleware.Backoff{
			Base:   time.Duration(duration.Draw(t, "base")),
			Cap:    time.Duration(duration.Draw(t, "cap")),
			Salt:   time.Duration(duration.Draw(t, "salt")),
			Jitter: rapid.Float64Range(0, 1).Draw(t, "jitter"),
		}
		n := rapid.OneOf(rapid.IntRange(0, 70), rapid.IntRange(0, 1_000_000)).Draw(t, "n")
		require.NoError(t, b.Validate())
		wait := b.After(n)
		require.GreaterOrEqual(t, wait, time.Duration(0))
		if b.Cap > 0 {
			require.LessOrEqual(t, wait, b.Cap)
		}
	})
}

func TestBackoffDoublesWithinItsJitter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		base := time.Duration(rapid.Int64Range(1000, int64(time.Second)).Draw(t, "base"))
		jitter := rapid.Float64Range(0, 1).Draw(t, "jitter")
		salt := time.Duration(rapid.Int64Range(0, int64(time.Second)).Draw(t, "salt"))
		n := rapid.IntRange(0, 20).Draw(t, "n")
		wait := middleware.Backoff{Base: base, Jitter: jitter, Salt: salt}.After(n)
		exact := float64(base << n)
		require.GreaterOrEqual(t, float64(wait), exact*(1-jitter)-1)
		require.LessOrEqual(t, float64(wait), exact*(1+jitter)+float64(salt)+1)
	})
}

func TestBackoffWithoutChanceIsExact(t *testing.T) {
	b := middleware.Backoff{Base: 10 * time.Millisecond, Cap: time.Second}
	var waits []time.Duration
	for n := range 9 {
		waits = append(waits, b.After(n)/time.Millisecond)
	}
	require.Equal(t, []time.Duration{10, 20, 40, 80, 160, 320, 640, 1000, 1000}, waits)
	require.Equal(t, 10*time.Millisecond, b.After(-5), "counted from 0")
	require.Zero(t, middleware.Backoff{}.After(3))
	require.Zero(t, middleware.Backoff{Cap: time.Second, Jitter: 1}.After(70))
	require.Equal(t, time.Second, middleware.Backoff{Base: time.Minute, Cap: time.Second}.After(0), "Base beyond Cap")
	for range 1000 {
		require.Less(t, middleware.Backoff{Salt: time.Second}.After(70), time.Second)
	}
}

func TestBackoffNamesTheBadField(t *testing.T) {
	for want, b := range map[string]middleware.Backoff{
		"Backoff.Base is -1ns, want >= 0":   {Base: -1},
		"Backoff.Cap is -1ns, want >= 0":    {Cap: -1},
		"Backoff.Salt is -1ns, want >= 0":   {Salt: -1},
		"Backoff.Jitter is -0.5, want 0..1": {Jitter: -0.5},
		"Backoff.Jitter is 1.5, want 0..1":  {Jitter: 1.5},
		"Backoff.Jitter is NaN, want 0..1":  {Jitter: math.NaN()},
		"Backoff.Jitter is +Inf, want 0..1": {Jitter: math.Inf(1)},
		"Backoff.Base is -1ns, want >= 0\nBackoff.Salt is -3ns, want >= 0\nBackoff.Jitter is 2, want 0..1": {Base: -1, Salt: -3, Jitter: 2},
	} {
		require.EqualError(t, b.Validate(), want)
	}
}
