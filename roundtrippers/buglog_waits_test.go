package roundtrippers_test

import (
	"context"
	"crypto/x509"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/layertest"
	"github.com/reroute-go/reroute/roundtrippers"
)

// K06, waits, deadlines, cancellation.

func TestB18NoSleepThatMustOutliveTheDeadline(t *testing.T) {
	within := func(t *testing.T, rt http.RoundTripper, req func(context.Context) *http.Request, sends func() int, status int) {
		ctx, cancel := contextFor(t, 5*time.Second)
		defer cancel()
		began := time.Now()
		resp, err := rt.RoundTrip(req(ctx))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, status, resp.StatusCode)
		require.Equal(t, 1, sends())
		require.Zero(t, time.Since(began))
		require.Equal(t, middleware.Deadline, middleware.FromResponse(resp).Report().Stop, "no time for the next attempt")
	}
	synctest.Test(t, func(t *testing.T) {
		c := apiOver(t, nil, layertest.Step{Status: 503, Header: map[string]string{"Retry-After": "10"}})
		within(t, c.rt, func(ctx context.Context) *http.Request { return get(essentially(ctx), "https://api.test/rows") }, c.sends, 503)
	})
	overCosmos(t, false, roundtrippers.Builder{}, inOrder(answerOf(429, "3200", "Retry-After", "10")), func(t *testing.T, rt http.RoundTripper, sends func() []layertest.Send) {
		within(t, rt, operation("read").to, func() int { return len(sends()) }, 429)
	})
	synctest.Test(t, func(t *testing.T) { // its waits are at most 2 s, whatever the node wishes
		script := layertest.NewScript(t, layertest.Step{Status: 503, Header: map[string]string{"X-Route-Status": "migrating", "Retry-After": "10"}})
		r := makeReady(t, "OwnershipBuilder", script, "", tuned{})
		ctx, cancel := contextFor(t, time.Second)
		defer cancel()
		began := time.Now()
		status, _, err := exactlyOne(t, r.rt, r.request(ctx, http.MethodGet, nil))
		require.NoError(t, err)
		require.Equal(t, 503, status)
		require.Zero(t, time.Since(began))
	})
}

func TestB19TheLastCauseIsNeverLost(t *testing.T) {
	busy := layertest.Step{Status: 503, Header: map[string]string{"X-Why": "load"}}
	last := func(t *testing.T, err error) *middleware.Error {
		var e *middleware.Error
		require.ErrorAs(t, err, &e)
		return e
	}
	t.Run("the deadline comes during the third attempt", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := apiOver(t, func(b *roundtrippers.APIBuilder) { b.Circuit.Threshold = 100 }, busy, busy, layertest.Step{Hang: true})
			ctx, cancel := contextFor(t, time.Second)
			defer cancel()
			_, err := c.do(patiently(ctx, middleware.Patience{Retries: 10, Base: 300 * time.Millisecond, Max: 300 * time.Millisecond}))
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Equal(t, 503, last(t, err).LastStatus)
			require.Equal(t, "load", last(t, err).LastHeader.Get("X-Why"))
		})
	})
	t.Run("the deadline leaves no room for another wait", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := apiOver(t, func(b *roundtrippers.APIBuilder) { b.Circuit.Threshold = 100 }, busy)
			ctx, cancel := contextFor(t, time.Second)
			defer cancel()
			status, err := c.do(patiently(ctx, middleware.Patience{Retries: 10, Base: 300 * time.Millisecond, Max: 300 * time.Millisecond}))
			require.NoError(t, err)
			require.Equal(t, 503, status, "the answer itself")
		})
	})
	for _, first := range []layertest.Step{busy, {Err: resetConn}} {
		t.Run("the caller leaves in the second sleep", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := apiOver(t, func(b *roundtrippers.APIBuilder) { b.Circuit.Threshold = 100 }, first)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				time.AfterFunc(400*time.Millisecond, cancel)
				_, err := c.do(patiently(ctx, middleware.Patience{Retries: 10, Base: 300 * time.Millisecond, Max: 300 * time.Millisecond}))
				require.ErrorIs(t, err, context.Canceled)
				attempts := last(t, err).Report.Attempts
				require.Equal(t, first.Status, last(t, err).LastStatus)
				require.Equal(t, first.Err, attempts[len(attempts)-1].Err)
			})
		})
	}
	overScript(t, tuned{}, []layertest.Step{{Err: x509.UnknownAuthorityError{}}}, func(t *testing.T, r ready, script *layertest.Script) {
		_, _, err := exactlyOne(t, r.rt, r.request(t.Context(), http.MethodGet, nil))
		require.ErrorAs(t, err, new(x509.UnknownAuthorityError), "a refusal leaves the error unchanged")
		require.Len(t, script.Sends(), 1)
	})
}

func TestB20NoSleepAfterTheLastAttemptAndNoAttemptAfterTheContextEnds(t *testing.T) {
	patience := middleware.Patience{Retries: 2, Base: time.Second, Max: time.Second}
	t.Run("a", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := apiOver(t, func(b *roundtrippers.APIBuilder) { b.Circuit.Threshold = 100 }, apiSteps(503)...)
			began := time.Now()
			want(t, c, patiently(t.Context(), patience), 503)
			require.Equal(t, 2*time.Second, time.Since(began))
		})
	})
	t.Run("b", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := apiOver(t, nil, apiSteps(503)...)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			time.AfterFunc(100*time.Millisecond, cancel)
			began := time.Now()
			_, err := c.do(patiently(ctx, middleware.Patience{Retries: 2, Base: 10 * time.Second, Max: 10 * time.Second}))
			require.ErrorIs(t, err, context.Canceled)
			require.Equal(t, 100*time.Millisecond, time.Since(began))
		})
	})
	hang := []layertest.Step{{Hang: true}}
	overScript(t, tuned{}, hang, func(t *testing.T, r ready, script *layertest.Script) { // c
		ctx, cancel := contextFor(t, time.Second)
		defer cancel()
		_, _, err := exactlyOne(t, r.rt, r.request(patiently(ctx, middleware.Patience{Retries: 9}), http.MethodGet, nil))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Len(t, script.Sends(), 1)
	})
	overCosmos(t, true, roundtrippers.Builder{}, inOrder(hang...), func(t *testing.T, rt http.RoundTripper, sends func() []layertest.Send) {
		ctx, cancel := contextFor(t, time.Second)
		defer cancel()
		_, _, err := exactlyOne(t, rt, operation("read").to(ctx))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Len(t, sends(), 1)
	})
}

// K07, working out the delay.

func TestB22TheCeilingBindsServerGivenDelays(t *testing.T) {
	// An API client caps the wish and tries; the reference driver for Cosmos DB does not retry, and returns the 429 with its header.
	synctest.Test(t, func(t *testing.T) {
		c := apiOver(t, nil, layertest.Step{Status: 429, Header: map[string]string{"Retry-After": "3600"}}, fine)
		want(t, c, patiently(t.Context(), middleware.Patience{Retries: 2, Base: time.Second, Max: 5 * time.Second}), 200)
		require.Equal(t, []time.Duration{5 * time.Second}, c.gaps())
	})
	synctest.Test(t, func(t *testing.T) {
		script := layertest.NewScript(t, layertest.Step{Status: 503, Header: map[string]string{"X-Route-Status": "migrating", "Retry-After": "3600"}}, fine)
		r := makeReady(t, "OwnershipBuilder", script, "", tuned{})
		status, _, err := exactlyOne(t, r.rt, r.request(t.Context(), http.MethodGet, nil))
		require.NoError(t, err)
		require.Equal(t, 200, status)
		require.Equal(t, []time.Duration{2 * time.Second}, gapsOf(script.Sends()))
	})
	overCosmos(t, false, roundtrippers.Builder{Throttle: roundtrippers.Throttle{MaxWait: 5 * time.Second}}, inOrder(answerOf(429, "3200", "Retry-After", "3600"), fuzzFine),
		func(t *testing.T, rt http.RoundTripper, sends func() []layertest.Send) {
			began := time.Now()
			resp, err := rt.RoundTrip(operation("read").to(t.Context()))
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			require.Equal(t, 429, resp.StatusCode)
			require.Equal(t, "3600", resp.Header.Get("Retry-After"))
			require.Zero(t, time.Since(began))
			require.Len(t, sends(), 1)
		})
}

func TestB23DelayArithmeticSaturates(t *testing.T) {
	in := func(d time.Duration) string { return time.Now().Add(d).UTC().Format(http.TimeFormat) }
	const ms = time.Millisecond
	for _, c := range []struct {
		name, value string
		ahead       time.Duration // of the date that stands for value
		least, most time.Duration // of the wait; 0, 0 = no re-send
	}{
		{"Retry-After", "9223372037", 0, 0, 0}, {"Retry-After", "9223372036854775807", 0, 0, 0}, {"Retry-After", "99999999999999999999", 0, 0, 0},
		{"Retry-After", "Fri, 31 Dec 9999 23:59:59 GMT", 0, 0, 0}, {"X-Ms-Retry-After-Ms", "9223372036855", 0, 0, 0},
		{"Retry-After", "-5", 0, 3 * ms, 7 * ms}, {"Retry-After", "soon", 0, 3 * ms, 7 * ms},
		{"Retry-After", "", -time.Hour, 3 * ms, 7 * ms}, {"Retry-After", "", 400 * ms, 400 * ms, 400 * ms},
	} {
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(600 * ms) // dates have whole seconds: the next one is 400 ms ahead
			if c.value == "" {
				c.value = in(c.ahead)
			}
			script := layertest.NewScript(t, answerOf(429, "3200", c.name, c.value), fuzzFine)
			account, _ := openAccount(t, false, nil)
			rt := layered(t, script, roundtrippers.Throttle{Dialect: account})
			status, _, err := exactlyOne(t, rt, operation("read").to(t.Context()))
			require.NoError(t, err)
			sends := script.Sends()
			if c.most == 0 {
				require.Equal(t, 429, status, c)
				require.Len(t, sends, 1)
				return
			}
			require.Equal(t, 200, status, c)
			gap := gapsOf(sends)[0]
			require.True(t, c.least <= gap && gap <= c.most, "%v: %s", c, gap)
		})
	}
	for value, wait := range map[string]time.Duration{
		"9223372037": 5 * time.Second, "9223372036854775807": 5 * time.Second, "99999999999999999999": 5 * time.Second,
		"-5": time.Second, in(-time.Hour): time.Second, "Fri, 31 Dec 9999 23:59:59 GMT": time.Second, // a date is not heeded: seed api-requests
	} {
		synctest.Test(t, func(t *testing.T) {
			c := apiOver(t, nil, layertest.Step{Status: 429, Header: map[string]string{"Retry-After": value}}, fine)
			want(t, c, patiently(t.Context(), middleware.Patience{Retries: 1, Base: time.Second, Max: 5 * time.Second}), 200)
			require.Equal(t, []time.Duration{wait}, c.gaps(), value)
		})
	}
}

func TestB24ZeroDelayFromTheServerDoesNotMeanSpin(t *testing.T) {
	zero := layertest.Step{Status: 429, Header: map[string]string{"Retry-After": "0"}}
	synctest.Test(t, func(t *testing.T) {
		c := apiOver(t, nil, zero, zero, fine)
		want(t, c, patiently(t.Context(), middleware.Patience{Retries: 2, Base: 100 * time.Millisecond}), 200)
		require.Equal(t, []time.Duration{100 * time.Millisecond, 200 * time.Millisecond}, c.gaps())
	})
	overCosmos(t, false, roundtrippers.Builder{Throttle: roundtrippers.Throttle{Backoff: middleware.Backoff{Base: 100 * time.Millisecond}}},
		inOrder(answerOf(429, "3200", "Retry-After", "0"), answerOf(429, "3200", "X-Ms-Retry-After-Ms", "0"), fuzzFine),
		func(t *testing.T, rt http.RoundTripper, sends func() []layertest.Send) {
			status, _, err := exactlyOne(t, rt, operation("read").to(t.Context()))
			require.NoError(t, err)
			require.Equal(t, 200, status)
			require.Equal(t, []time.Duration{100 * time.Millisecond, 200 * time.Millisecond}, gapsOf(sends()))
		})
	synctest.Test(t, func(t *testing.T) {
		script := layertest.NewScript(t, layertest.Step{Status: 503, Header: map[string]string{"Retry-After": "0"}})
		r := makeReady(t, "OwnershipBuilder", script, "", tuned{})
		_, _, err := exactlyOne(t, r.rt, r.request(t.Context(), http.MethodGet, nil))
		require.NoError(t, err)
		require.Equal(t, []time.Duration{100 * time.Millisecond, 200 * time.Millisecond}, gapsOf(script.Sends()))
	})
}

func TestB25HeaderPrecedenceAndOnlyRetryableStatusesLookAtIt(t *testing.T) {
	for _, c := range []struct {
		name  string
		first layertest.Step
		gaps  []time.Duration
	}{
		{"a", answerOf(429, "3200", "Retry-After-Ms", "20", "X-Ms-Retry-After-Ms", "30", "Retry-After", "1"), []time.Duration{20 * time.Millisecond}},
		{"b", answerOf(429, "3200", "X-Ms-Retry-After-Ms", "30"), []time.Duration{30 * time.Millisecond}},
		{"c", answerOf(201, "", "Retry-After", "1"), nil},
		{"d", answerOf(429, "3200", "X-Ms-Retry-After-Ms", "abc", "Retry-After", "1"), []time.Duration{time.Second}},
	} {
		t.Run(c.name, func(t *testing.T) {
			overCosmos(t, false, roundtrippers.Builder{}, inOrder(c.first, fuzzFine), func(t *testing.T, rt http.RoundTripper, sends func() []layertest.Send) {
				_, _, err := exactlyOne(t, rt, operation("create").to(t.Context()))
				require.NoError(t, err)
				require.Equal(t, c.gaps, gapsOf(sends()))
			})
		})
	}
	overScript(t, tuned{}, []layertest.Step{{Status: 201, Header: map[string]string{"Retry-After": "1"}}}, func(t *testing.T, r ready, script *layertest.Script) {
		status, _, err := exactlyOne(t, r.rt, r.request(t.Context(), http.MethodPut, nil))
		require.NoError(t, err)
		require.Equal(t, 201, status)
		require.Len(t, script.Sends(), 1)
	})
}

func TestB27BackoffIsBoundedForEveryAttemptNumber(t *testing.T) {
	const base, most = 30 * time.Millisecond, time.Second
	for _, jitter := range []float64{0, 1} {
		for _, b := range []middleware.Backoff{{Base: base, Cap: most, Jitter: jitter}, {Cap: most, Jitter: jitter}, {Base: time.Minute, Cap: most, Jitter: jitter}, {Base: base, Jitter: jitter}} {
			before := time.Duration(0)
			for n := range 10_000 {
				wait := b.After(n)
				require.GreaterOrEqual(t, wait, time.Duration(0), "%s, retry %d", b, n)
				if b.Cap > 0 {
					require.LessOrEqual(t, wait, most)
				}
				if jitter == 0 {
					require.GreaterOrEqual(t, wait, before, "monotone")
					before = wait
				}
			}
			if b.Base > 0 && jitter == 0 {
				require.GreaterOrEqual(t, before, most)
			}
		}
	}
}

// K08, budgets across attempts and layers.

func TestB28TheTimeBudgetCountsWhatWasReallyWaited(t *testing.T) {
	throttled := answerOf(429, "3200") // without a word on how long
	schedule := roundtrippers.Throttle{Retries: 9, MaxWait: 30 * time.Second, Backoff: middleware.Backoff{Base: 5 * time.Second, Cap: 5 * time.Second}}
	overCosmos(t, false, roundtrippers.Builder{Throttle: schedule}, inOrder(throttled), func(t *testing.T, rt http.RoundTripper, sends func() []layertest.Send) {
		began := time.Now()
		status, _, err := exactlyOne(t, rt, operation("read").to(t.Context()))
		require.NoError(t, err)
		require.Equal(t, 429, status)
		require.Equal(t, 30*time.Second, time.Since(began))
		require.Len(t, sends(), 7, "six waits")
	})
	synctest.Test(t, func(t *testing.T) {
		c := apiOver(t, func(b *roundtrippers.APIBuilder) { b.Retry.MaxWait = 30 * time.Second }, apiSteps(429)...)
		want(t, c, patiently(t.Context(), middleware.Patience{Retries: 9, Base: 5 * time.Second, Max: 5 * time.Second}), 429)
		require.Equal(t, 7, c.sends())
	})
}

func TestB30RetryTokensMeasureServerHealthAndSayTheyAreLocal(t *testing.T) {
	t.Run("healthy answers do not use it up", func(t *testing.T) {
		for _, end := range []int{404, 409, 200} {
			synctest.Test(t, func(t *testing.T) {
				var steps []layertest.Step
				for range 50 {
					steps = append(steps, apiSteps(503, end)...)
				}
				budget := &roundtrippers.RetryBudget{}
				c := apiOver(t, func(b *roundtrippers.APIBuilder) { b.RetryBudget = budget; b.Circuit.Threshold = 1000 }, steps...)
				for range 50 {
					want(t, c, patiently(t.Context(), middleware.Patience{Retries: 1, Base: 100 * time.Millisecond}), end)
				}
			})
		}
	})
	t.Run("a lasting outage does, and first attempts go on", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := apiOver(t, func(b *roundtrippers.APIBuilder) {
				b.RetryBudget = &roundtrippers.RetryBudget{PerSecond: 1, Share: 0.1}
				b.Circuit.Threshold = 1000
			}, apiSteps(503)...)
			refused := 0
			for range 100 {
				resp, err := c.rt.RoundTrip(get(patiently(t.Context(), middleware.Patience{Retries: 1, Base: time.Millisecond}), "https://api.test/rows"))
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
				require.Equal(t, 503, resp.StatusCode, "the server's answer is what comes out")
				report := middleware.FromResponse(resp).Report()
				if report.Sends == 1 {
					refused++
					require.Equal(t, middleware.BudgetSpent, report.Stop)
					require.Contains(t, report.String(), "budget", "and the report says that it was us")
				}
			}
			require.Greater(t, refused, 70)
			require.Equal(t, 200-refused, c.sends())
			time.Sleep(time.Minute)
			before := c.sends()
			want(t, c, patiently(t.Context(), middleware.Patience{Retries: 1, Base: time.Millisecond}), 503)
			require.Equal(t, 2, c.sends()-before, "it has come back")
		})
	})
}
