package roundtrippers_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/layertest"
	"github.com/reroute-go/reroute/middleware/rest"
	"github.com/reroute-go/reroute/roundtrippers"
)

// A call that is cancelled in the moment of its answer has one end, and no body
// stays open: NewScript's Cleanup sees to that (R25).
func TestACancellationInTheMomentOfTheAnswerHasOneEndR25(t *testing.T) {
	answered, cancelled := 0, 0
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			c := apiOver(t, nil, layertest.Step{Delay: time.Second, Body: "ok"})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			time.AfterFunc(time.Second, cancel)
			resp, err := c.rt.RoundTrip(get(ctx, "https://api.test/"))
			if err == nil {
				answered++
				require.NotNil(t, resp)
				_ = resp.Body.Close()
			} else {
				cancelled++
				require.Nil(t, resp)
				require.ErrorIs(t, err, context.Canceled)
			}
			require.Zero(t, c.builder.Concurrency.InFlight())
		})
	}
	t.Logf("%d answered, %d cancelled", answered, cancelled)
}

// Over real goroutines and the real clock: everything at once, and exact in the
// end. Run it with -race (X15, R01, R04, R05, R07, R26, R27, R34, R35).
func TestEverythingAtOnceIsExactInTheEndX15(t *testing.T) {
	var tokens atomic.Int64
	var good atomic.Int64
	good.Store(1)
	base := middleware.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
		var n int64
		_, _ = fmt.Sscanf(req.Header.Get("Authorization"), "Bearer secret-%d", &n)
		switch r := rand.IntN(100); {
		case r == 0:
			good.Store(tokens.Load() + 1) // revoked
		case r < 25:
			return answer(req, 1, 503)
		case r < 30:
			return answer(req, 1, 404)
		case r < 35:
			return nil, errReset
		}
		if n < good.Load() {
			return answer(req, 1, 401)
		}
		return answer(req, 1, 200)
	})
	circuit := &roundtrippers.Circuit{Threshold: 3, Cooldown: time.Millisecond, MaxCooldown: 2 * time.Millisecond}
	concurrency := &roundtrippers.Concurrency{Limit: 3, ReserveEssential: 1}
	limit := &roundtrippers.RateLimit{PerSecond: 20_000, Burst: 1}
	var started, ended atomic.Int64
	rt, err := roundtrippers.APIBuilder{
		Dialect: rest.Dialect{}, Base: base, Circuit: circuit, Concurrency: concurrency, RateLimit: limit,
		RetryBudget: &roundtrippers.RetryBudget{Share: 10}, IdempotencyKey: &roundtrippers.IdempotencyKey{},
		Observe: func(_ context.Context, e middleware.Event) {
			switch e.Kind {
			case middleware.AttemptStarted:
				started.Add(1)
			case middleware.AttemptEnded:
				ended.Add(1)
			}
		},
		Auth: &roundtrippers.Auth{Origins: []string{"https://api.test"}, Source: func(context.Context) (roundtrippers.Token, error) {
			return roundtrippers.Token{Value: fmt.Sprint("Bearer secret-", tokens.Add(1))}, nil
		}},
	}.Build()
	require.NoError(t, err)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 12 {
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(1+rand.IntN(20))*time.Millisecond)
				if rand.IntN(2) == 0 {
					ctx = patiently(ctx, middleware.Patience{Retries: 5, Base: time.Millisecond, AwaitCircuit: true})
				}
				if resp, err := rt.RoundTrip(get(ctx, "https://api.test/")); err == nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
				}
				cancel()
			}
		})
	}
	all.Wait()
	require.Zero(t, concurrency.InFlight())
	require.Zero(t, concurrency.Waiting())
	require.Zero(t, limit.Waiting())
	require.Zero(t, circuit.Waiting())
	require.Equal(t, started.Load(), ended.Load())
}

// What is kept does not grow with hosts, paths or callers (R45).
func TestNothingIsKeptPerHostR45(t *testing.T) {
	c := apiOver(t, func(b *roundtrippers.APIBuilder) {
		withAuth(&tokenSource{})(b)
		b.Observe = nil
	})
	for i := range 10_000 {
		resp, err := c.rt.RoundTrip(get(t.Context(), fmt.Sprintf("https://h%d.test/%d", i, i)))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
	}
	// The layers hold no map but the one of origins, which only Wrap fills.
	require.Zero(t, c.builder.Circuit.Waiting()+c.builder.Concurrency.Waiting()+c.builder.Concurrency.InFlight())
}

func TestTheAPIBuilderNamesEveryBadField(t *testing.T) {
	_, err := roundtrippers.APIBuilder{OperationTimeout: -1, AttemptTimeout: -2}.Build()
	require.EqualError(t, err, "roundtrippers.APIBuilder: OperationTimeout is -1ns, want >= 0\nDialect is nil: which service is this?\nAttemptTimeout is -2ns, want >= 0")
	_, err = roundtrippers.APIBuilder{Dialect: rest.Dialect{}, Circuit: &roundtrippers.Circuit{Threshold: -1},
		Retry: roundtrippers.Retry{MaxRetries: -3, Jitter: 2}, RateLimit: &roundtrippers.RateLimit{Burst: -1}}.Build()
	for _, field := range []string{"Threshold is -1", "MaxRetries is -3", "Jitter is 2", "PerSecond is 0", "Burst is -1"} {
		require.ErrorContains(t, err, field)
	}
}
