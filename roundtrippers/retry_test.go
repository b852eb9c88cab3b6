package roundtrippers_test

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-retryablehttp"
	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/layertest"
	"github.com/reroute-go/reroute/middleware/rest"
	"github.com/reroute-go/reroute/roundtrippers"
)

type ctxKey struct{}

func TestPriorityDecidesThePolicy(t *testing.T) {
	down := apiSteps(503)
	never := threshold(math.MaxInt32) // these are about retries, not the breaker
	playAll(t, []scenario{
		{"V001 V010 a background call is sent once", never, down, func(t *testing.T, c *apiClient) {
			want(t, c, t.Context(), 503)
			require.Equal(t, 1, c.sends())
		}},
		{"V002 derived contexts inherit", never, apiSteps(503, 200), func(t *testing.T, c *apiClient) {
			ctx, cancel := context.WithTimeout(essentially(t.Context()), time.Minute)
			defer cancel()
			want(t, c, context.WithValue(ctx, ctxKey{}, 1), 200)
			require.Equal(t, 2, c.sends())
		}},
		{"V003 the innermost wins", never, down, func(t *testing.T, c *apiClient) {
			want(t, c, middleware.WithPriority(essentially(t.Context()), middleware.Background), 503)
			require.Equal(t, 1, c.sends())
		}},
		{"V004 goroutines inherit through the context they are given", never, apiSteps(503, 200, 503), func(t *testing.T, c *apiClient) {
			for _, ctx := range []context.Context{essentially(t.Context()), context.Background()} {
				done := make(chan int)
				go func() { status, _ := c.do(ctx); done <- status }()
				<-done
			}
			require.Equal(t, 3, c.sends())
		}},
		{"V005 WithoutCancel keeps the class, Detach resets it", never, apiSteps(503, 200, 503), func(t *testing.T, c *apiClient) {
			ctx := essentially(t.Context())
			want(t, c, context.WithoutCancel(ctx), 200)
			want(t, c, middleware.Detach(ctx), 503)
			require.Equal(t, 3, c.sends())
		}},
		{"V007 an unknown value is background", never, down, func(t *testing.T, c *apiClient) {
			want(t, c, middleware.WithPriority(essentially(t.Context()), middleware.Priority(99)), 503)
			require.Equal(t, 1, c.sends())
		}},
		{"V009 an explicit policy beats the class", never, down, func(t *testing.T, c *apiClient) {
			want(t, c, patiently(t.Context(), rest.Bounded(1)), 503)
			require.Equal(t, 2, c.sends())
			want(t, c, patiently(essentially(t.Context()), rest.Background()), 503)
			require.Equal(t, 3, c.sends())
		}},
		{"V011 an essential call is sent until it is answered", never, append(repeatStep(7, layertest.Step{Status: 503}), apiSteps(200)...), func(t *testing.T, c *apiClient) {
			want(t, c, essentially(t.Context()), 200)
			ms := time.Millisecond
			require.Equal(t, []time.Duration{250 * ms, 500 * ms, 1000 * ms, 2000 * ms, 4000 * ms, 8000 * ms, 10000 * ms}, c.gaps())
		}},
		{"V012 an essential call stops with its caller", never, down, func(t *testing.T, c *apiClient) {
			ctx, cancel := context.WithCancel(essentially(t.Context()))
			time.AfterFunc(3*time.Second, cancel)
			_, err := c.do(ctx)
			require.ErrorIs(t, err, context.Canceled)
			sent := c.sends()
			time.Sleep(time.Hour)
			require.Equal(t, sent, c.sends())
			require.Equal(t, 4, sent) // at 0, 250, 750 and 1750 ms
		}},
		{"V013 other 4xx are final", never, apiSteps(404), func(t *testing.T, c *apiClient) {
			want(t, c, essentially(t.Context()), 404)
			require.Equal(t, 1, c.sends())
		}},
		{"V013 V023 V025 all of them, and redirects, whatever the policy", never, finalSteps(), func(t *testing.T, c *apiClient) {
			for i := 0; i < len(finalSteps()); i += 3 {
				status := finalSteps()[i].Status
				want(t, c, t.Context(), status)
				want(t, c, patiently(t.Context(), rest.Bounded(4)), status)
				want(t, c, essentially(t.Context()), status)
			}
			require.Equal(t, len(finalSteps()), c.sends())
			require.NotContains(t, c.tags.String(), "retry")
		}},
		{"V014 bounded counts retries", never, down, func(t *testing.T, c *apiClient) {
			r := c.report(patiently(t.Context(), rest.Bounded(4)))
			require.Equal(t, 5, c.sends())
			require.Equal(t, middleware.BudgetSpent, r.Stop) // P23: the reason is told
			require.Equal(t, []time.Duration{50 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond}, c.gaps())
		}},
		{"V015 no policy makes the client spin", func(b *roundtrippers.APIBuilder) {
			b.Retry.Backoff = func(_, _ time.Duration, _ int, _ *http.Response) time.Duration { return -1 }
			b.Circuit.Threshold = math.MaxInt32
		}, down, func(t *testing.T, c *apiClient) {
			want(t, c, patiently(t.Context(), middleware.Patience{Retries: 3, Base: 1, Max: 1}), 503)
			require.Equal(t, []time.Duration{time.Millisecond, time.Millisecond, time.Millisecond}, c.gaps())
		}},
		{"V023 without a token source a 401 is final", never, apiSteps(401), func(t *testing.T, c *apiClient) {
			want(t, c, essentially(t.Context()), 401)
			require.Equal(t, 1, c.sends())
		}},
		{"V025 redirects are answers", never, apiSteps(302, 304), func(t *testing.T, c *apiClient) {
			want(t, c, essentially(t.Context()), 302)
			want(t, c, essentially(t.Context()), 304)
			require.Equal(t, "started, ok:302, started, ok:304", c.tags.String())
		}},
	})
}

// finalSteps are the answers that no policy repeats, each three times.
func finalSteps() (steps []layertest.Step) {
	for code := 300; code < 500; code++ {
		if code != 408 && code != 421 && code != 429 {
			steps = append(steps, repeatStep(3, layertest.Step{Status: code})...)
		}
	}
	return steps
}

func TestThePriorityIsReadOnceV006(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen []middleware.Priority
		below := middleware.LayerFunc(func(next http.RoundTripper) http.RoundTripper {
			return middleware.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
				req = req.WithContext(middleware.WithPriority(req.Context(), middleware.Background)) // too late
				seen = append(seen, middleware.FromContext(req.Context()).Priority())
				return next.RoundTrip(req)
			})
		})
		c := apiOver(t, func(b *roundtrippers.APIBuilder) { b.PerAttempt = []middleware.Layer{below} }, apiSteps(503, 503, 200)...)
		want(t, c, essentially(t.Context()), 200)
		require.Equal(t, []middleware.Priority{middleware.Essential, middleware.Essential, middleware.Essential}, seen)
	})
}

func TestJitterIsAddedAfterTheCapV011V017(t *testing.T) {
	for share, next := range map[float64]float64{0: 1, math.Nextafter(1, 0): 1.25} {
		synctest.Test(t, func(t *testing.T) {
			c := apiOver(t, func(b *roundtrippers.APIBuilder) {
				b.Retry.Rand = func() float64 { return share }
				b.Circuit.Threshold = math.MaxInt32
			}, append(repeatStep(7, layertest.Step{Status: 503}), apiSteps(200)...)...)
			want(t, c, essentially(t.Context()), 200)
			for i, base := range []float64{250, 500, 1000, 2000, 4000, 8000, 10000} {
				gap := c.gaps()[i]
				require.InDelta(t, base*next, float64(gap)/1e6, 0.001)
				if share > 0 {
					require.Less(t, gap, time.Duration(base*1.25*1e6))
				}
			}
		})
	}
}

// Neither a schedule beyond all time nor a Rand that is none makes it spin (V015).
func TestNoJitterShortensAWaitV015(t *testing.T) {
	for _, base := range []time.Duration{time.Second, math.MaxInt64} {
		for _, r := range []float64{0.9, -1e300, math.NaN(), math.Inf(1)} {
			synctest.Test(t, func(t *testing.T) {
				c := apiOver(t, func(b *roundtrippers.APIBuilder) { b.Retry.Rand = func() float64 { return r } }, apiSteps(503, 200)...)
				ctx, cancel := context.WithTimeout(t.Context(), 900*time.Millisecond)
				defer cancel()
				want(t, c, patiently(ctx, middleware.Patience{Retries: 1, Base: base, Max: base}), 503)
				require.Equal(t, 1, c.sends(), r)
			})
		}
	}
}

func TestWhichFailuresAreRetried(t *testing.T) {
	refused := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	for name, step := range map[string]layertest.Step{
		"V020 500": {Status: 500}, "V020 501": {Status: 501}, "V020 502": {Status: 502}, "V020 504": {Status: 504}, "V020 599": {Status: 599},
		"V021 refused": {Err: refused}, "V021 reset": {Err: errReset}, "V021 EOF": {Err: io.EOF},
		"V021 TLS handshake timeout": {Err: errors.New("net/http: TLS handshake timeout")}, "V021 AttemptTimeout": {Hang: true},
		"X18 a dial's own timeout": {Err: &net.OpError{Op: "dial", Err: context.DeadlineExceeded}},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := apiOver(t, func(b *roundtrippers.APIBuilder) {
				b.AttemptTimeout = time.Second
				b.Circuit.Threshold = 2
			}, step)
			ctx, cancel := context.WithTimeout(essentially(t.Context()), 3*time.Second)
			defer cancel()
			_, _ = c.do(ctx)
			require.Equal(t, 2, c.sends(), name)                 // retried once,
			require.Contains(t, c.tags.String(), "opened", name) // and counted
		})
	}
	t.Run("V027 an untrusted certificate is counted and final", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := apiOver(t, threshold(2), layertest.Step{Err: x509.UnknownAuthorityError{}})
			for range 2 {
				_, err := c.do(essentially(t.Context()))
				require.Error(t, err)
			}
			require.Equal(t, 2, c.sends())
			wantOpen(t, c)
		})
	})
	t.Run("V027 what cannot be sent is its caller's fault alone", func(t *testing.T) {
		bad := &http.Request{Method: "GET", URL: &url.URL{Scheme: "http", Host: "h"}, Header: http.Header{"Bad": {"a\nb"}}}
		_, unsendable := (&http.Transport{}).RoundTrip(bad) //nolint:bodyclose // an error
		synctest.Test(t, func(t *testing.T) {
			c := apiOver(t, threshold(2), layertest.Step{Err: unsendable})
			for range 9 {
				_, err := c.do(essentially(t.Context()))
				require.ErrorIs(t, err, unsendable)
			}
			require.Equal(t, 9, c.sends(), "each is told why; nobody else is refused")
			require.NotContains(t, c.tags.String(), "opened")
		})
	})
	t.Run("V020 501 and 505 can be made final", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := apiOver(t, func(b *roundtrippers.APIBuilder) { b.Dialect = rest.Dialect{FinalNotImplemented: true} }, apiSteps(501, 505)...)
			want(t, c, essentially(t.Context()), 501)
			want(t, c, essentially(t.Context()), 505)
		})
	})
	t.Run("P09 the server's own verdict", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			no, yes := map[string]string{"X-Should-Retry": "false"}, map[string]string{"X-Should-Retry": "true"}
			c := apiOver(t, threshold(9), layertest.Step{Status: 500, Header: no}, layertest.Step{Status: 409, Header: yes}, layertest.Step{})
			want(t, c, essentially(t.Context()), 500)
			want(t, c, essentially(t.Context()), 200)
			require.Equal(t, 3, c.sends())
		})
	})
}

func TestRetryAfter(t *testing.T) {
	after := func(status int, value string) layertest.Step {
		return layertest.Step{Status: status, Header: map[string]string{"Retry-After": value}}
	}
	schedule := 250 * time.Millisecond
	future, past := time.Now().Add(time.Hour).UTC().Format(http.TimeFormat), time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat)
	for name, row := range map[string]struct {
		step layertest.Step
		wait time.Duration
	}{
		"V055":        {after(429, "2"), 2 * time.Second},
		"V057 0":      {after(429, "0"), schedule},
		"V057 -5":     {after(429, "-5"), schedule},
		"V057 empty":  {after(429, ""), schedule},
		"V057 abc":    {after(429, "abc"), schedule},
		"V057 1.5":    {after(429, "1.5"), schedule},
		"V057 1e3":    {after(429, "1e3"), schedule},
		"V057 future": {after(429, future), schedule},
		"V057 past":   {after(429, past), schedule},
		"V058":        {after(429, " 3 "), 3 * time.Second},
		"V059":        {after(429, "+3"), schedule},
		"V060":        {after(429, "999999999999999999999999999999"), 10 * time.Second},
		"V063":        {after(503, "3"), 3 * time.Second},
		"V063 408":    {after(408, "4"), 4 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := apiOver(t, nil, row.step, layertest.Step{})
			want(t, c, essentially(t.Context()), 200)
			require.Equal(t, []time.Duration{row.wait}, c.gaps(), name)
		})
	}
	playAll(t, []scenario{
		{"V061 the first line counts", nil, []layertest.Step{{Answer: func(req *http.Request) (*http.Response, error) {
			resp, err := answer(req, 1, 429)
			resp.Header["Retry-After"] = []string{"7", "1"}
			return resp, err
		}}, {}}, func(t *testing.T, c *apiClient) {
			want(t, c, essentially(t.Context()), 200)
			require.Equal(t, []time.Duration{7 * time.Second}, c.gaps())
		}},
		{"V062 it replaces a longer schedule", threshold(99), append(repeatStep(7, layertest.Step{Status: 503}), after(503, "1"), layertest.Step{}), func(t *testing.T, c *apiClient) {
			want(t, c, essentially(t.Context()), 200)
			require.Equal(t, time.Second, c.gaps()[7])
		}},
		{"V063 on a final answer it means nothing", nil, []layertest.Step{after(404, "3")}, func(t *testing.T, c *apiClient) {
			want(t, c, essentially(t.Context()), 404)
		}},
		{"V065 R23 X19 a wait beyond the deadline is not begun", nil, []layertest.Step{after(429, "9")}, func(t *testing.T, c *apiClient) {
			ctx, cancel := context.WithTimeout(essentially(t.Context()), 4*time.Second)
			defer cancel()
			began := time.Now()
			err := rest.API{Transport: c.rt, BaseURL: "https://api.test"}.Get(ctx, "/rows", nil)
			require.Zero(t, time.Since(began))
			require.ErrorIs(t, err, context.DeadlineExceeded)
			var failed *rest.Error
			require.ErrorAs(t, err, &failed)
			require.Equal(t, 429, failed.Status)
			require.Equal(t, 9*time.Second, failed.RetryAfter)
		}},
		{"V066 a background call hands the header to its caller", nil, []layertest.Step{after(429, "1")}, func(t *testing.T, c *apiClient) {
			resp, err := c.rt.RoundTrip(get(t.Context(), "https://api.test/"))
			require.NoError(t, err)
			require.Equal(t, "1", resp.Header.Get("Retry-After"))
			require.NoError(t, resp.Body.Close())
			require.Equal(t, 1, c.sends())
		}},
		{"V067 V022 an API that throttles for ever is called no faster than the policy says", func(b *roundtrippers.APIBuilder) {
			b.Retry.Rand = func() float64 { return math.Nextafter(1, 0) }
		}, apiSteps(429), func(t *testing.T, c *apiClient) {
			ctx, cancel := context.WithTimeout(essentially(t.Context()), 30*time.Minute)
			defer cancel()
			_, _ = c.do(ctx)
			require.Greater(t, c.sends(), 100)
			for _, gap := range c.gaps() {
				require.LessOrEqual(t, gap, 12500*time.Millisecond)
				require.GreaterOrEqual(t, gap, time.Millisecond)
			}
			require.NotContains(t, c.tags.String(), "opened")
		}},
	})
}

func TestDelayAgreesWithAModelOverRandomSchedules(t *testing.T) {
	// R50 as a property: whatever the policy and the header, 1 ms <= wait <= ceiling.
	synctest.Test(t, func(t *testing.T) {
		for n := range 64 {
			for _, base := range []time.Duration{0, 1, time.Millisecond, time.Second, math.MaxInt64} {
				for _, header := range []string{"", "1", "12", "999999999999999999999"} {
					limit := 10 * time.Second
					var waits []time.Duration
					c := apiOver(t, func(b *roundtrippers.APIBuilder) {
						b.Circuit.Threshold = math.MaxInt32
						b.Observe = func(_ context.Context, e middleware.Event) {
							if e.Kind == middleware.RetryScheduled {
								waits = append(waits, e.Wait)
							}
						}
					}, layertest.Step{Status: 503, Header: map[string]string{"Retry-After": header}})
					_, _ = c.do(patiently(t.Context(), middleware.Patience{Retries: n % 7, Base: base}))
					for i, wait := range waits {
						expected := base
						if base == 0 {
							expected = 50 * time.Millisecond
						}
						for range i {
							expected = min(expected, limit) * 2
						}
						switch header {
						case "1":
							expected = time.Second
						case "12", "999999999999999999999":
							expected = limit
						}
						require.Equal(t, max(min(expected, limit), time.Millisecond), wait)
					}
				}
			}
		}
	})
}

func TestPoliciesOfGoRetryablehttpRunUnchanged(t *testing.T) {
	patience := middleware.Patience{Retries: 4, Base: time.Second, Max: 30 * time.Second}
	with := func(check retryablehttp.CheckRetry, backoff retryablehttp.Backoff) func(*roundtrippers.APIBuilder) {
		return func(b *roundtrippers.APIBuilder) {
			b.Circuit.Threshold = 99
			b.Retry.CheckRetry, b.Retry.Backoff, b.Retry.Background = check, backoff, patience
		}
	}
	playAll(t, []scenario{
		{"the default policy and backoff", with(retryablehttp.DefaultRetryPolicy, retryablehttp.DefaultBackoff), apiSteps(503), func(t *testing.T, c *apiClient) {
			want(t, c, t.Context(), 503)
			require.Equal(t, []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second}, c.gaps())
		}},
		{"its Retry-After", with(retryablehttp.DefaultRetryPolicy, retryablehttp.DefaultBackoff), []layertest.Step{{Status: 429, Header: map[string]string{"Retry-After": "17"}}, {}}, func(t *testing.T, c *apiClient) {
			want(t, c, t.Context(), 200)
			require.Equal(t, []time.Duration{17 * time.Second}, c.gaps())
		}},
		{"what it calls final", with(retryablehttp.DefaultRetryPolicy, retryablehttp.DefaultBackoff), apiSteps(501), func(t *testing.T, c *apiClient) {
			want(t, c, t.Context(), 501)
			require.Equal(t, 1, c.sends())
		}},
		{"a policy that repeats what we call an answer, and sees the caller's values", with(func(ctx context.Context, resp *http.Response, err error) (bool, error) {
			return err == nil && resp.StatusCode == 404 && ctx.Value(ctxKey{}) == "mine", nil
		}, nil), apiSteps(404, 404, 200), func(t *testing.T, c *apiClient) {
			want(t, c, context.WithValue(t.Context(), ctxKey{}, "mine"), 200)
			require.Equal(t, 3, c.sends())
		}},
		{"a policy's error stands before the transport's", with(func(_ context.Context, _ *http.Response, err error) (bool, error) {
			return false, fmt.Errorf("policy: no: %w", errTrouble)
		}, nil), []layertest.Step{{Err: errReset}}, func(t *testing.T, c *apiClient) {
			_, err := c.do(t.Context())
			require.ErrorIs(t, err, errTrouble)
			require.ErrorIs(t, err, errReset)
		}},
		{"and never before an answer", with(retryablehttp.ErrorPropagatedRetryPolicy, retryablehttp.DefaultBackoff), apiSteps(503), func(t *testing.T, c *apiClient) {
			want(t, c, t.Context(), 503)
			require.Equal(t, 5, c.sends())
		}},
		{"it is not asked about what a layer refused", with(retryablehttp.DefaultRetryPolicy, nil), nil, func(t *testing.T, c *apiClient) {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			_, err := c.do(ctx)
			require.ErrorIs(t, err, context.Canceled)
			require.Zero(t, c.sends())
		}},
	})
}

var errTrouble = errors.New("trouble")

func TestAStackRunsInsideAGoRetryablehttpClient(t *testing.T) {
	// Done-when 7: the outer client multiplies, as each of its tries is an
	// operation of its own: 3 tries x (1 + 2 retries).
	synctest.Test(t, func(t *testing.T) {
		c := apiOver(t, threshold(99), apiSteps(503)...)
		outer := retryablehttp.NewClient()
		outer.Logger, outer.RetryMax, outer.ErrorHandler = nil, 2, retryablehttp.PassthroughErrorHandler
		outer.HTTPClient = &http.Client{Transport: c.rt}
		req, err := retryablehttp.NewRequestWithContext(patiently(t.Context(), rest.Bounded(2)), http.MethodGet, "https://api.test/", nil)
		require.NoError(t, err)
		resp, err := outer.Do(req)
		require.NoError(t, err)
		require.Equal(t, 503, resp.StatusCode)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, 9, c.sends())
	})
}

func TestNestedRetriesAddAndNeverMultiplyX07R37(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		script := layertest.NewScript(t, apiSteps(503)...)
		one := roundtrippers.APIBuilder{Dialect: rest.Dialect{}, Base: script,
			Circuit: &roundtrippers.Circuit{Threshold: 99}, Concurrency: &roundtrippers.Concurrency{Limit: 1},
			RateLimit: &roundtrippers.RateLimit{PerSecond: 1000}}
		inner, err := one.Build()
		require.NoError(t, err)
		one.Base = inner // the same breaker, permits and bucket once more
		outer, err := one.Build()
		require.NoError(t, err)
		resp, err := outer.RoundTrip(get(patiently(t.Context(), rest.Bounded(2)), "https://api.test/"))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.LessOrEqual(t, len(script.Sends()), 1+2+2)
		require.Zero(t, one.Concurrency.InFlight())
	})
}

func TestRetryNamesBadFields(t *testing.T) {
	for field, layer := range map[string]roundtrippers.Retry{
		"Dialect":                            {},
		"MaxRetries is -1":                   {Dialect: rest.Dialect{}, MaxRetries: -1},
		"MaxWait is -1ns":                    {Dialect: rest.Dialect{}, MaxWait: -1},
		"Jitter is NaN":                      {Dialect: rest.Dialect{}, Jitter: math.NaN()},
		"Background: Patience.Retries is -2": {Dialect: rest.Dialect{}, Background: middleware.Patience{Retries: -2}},
		"Essential: Patience.Max is -1ns":    {Dialect: rest.Dialect{}, Essential: middleware.Patience{Max: -1}},
	} {
		_, err := layer.Wrap(http.DefaultTransport)
		require.ErrorContains(t, err, field)
	}
}

func TestTheBoundOfRetriesIsDescribed(t *testing.T) {
	c := apiOver(t, nil)
	require.Contains(t, middleware.Describe(c.rt), "[retry unlimited]")
	require.Contains(t, middleware.Describe(c.rt), "no limit of sends but the context's end")
	c = apiOver(t, func(b *roundtrippers.APIBuilder) {
		b.Retry.MaxRetries, b.Retry.MaxWait, b.Retry.Background.Retries = 6, time.Minute, 1
	})
	require.Contains(t, middleware.Describe(c.rt), "[retry 6/1m0s]")
	require.Contains(t, middleware.Describe(c.rt), "at most 7 sends")
}

func TestRetryBoundsHoldWhateverThePatience(t *testing.T) {
	playAll(t, []scenario{
		{"MaxRetries", func(b *roundtrippers.APIBuilder) { b.Circuit.Threshold, b.Retry.MaxRetries = 99, 2 }, apiSteps(503), func(t *testing.T, c *apiClient) {
			require.Equal(t, middleware.BudgetSpent, c.report(essentially(t.Context())).Stop)
			require.Equal(t, 3, c.sends())
		}},
		{"A15 MaxWait", func(b *roundtrippers.APIBuilder) { b.Circuit.Threshold, b.Retry.MaxWait = 99, time.Second }, apiSteps(503), func(t *testing.T, c *apiClient) {
			require.Equal(t, middleware.BudgetSpent, c.report(essentially(t.Context())).Stop)
			require.Equal(t, 3, c.sends()) // 250 + 500 ms; 1 s more does not fit
		}},
		{"a class's own patience", func(b *roundtrippers.APIBuilder) {
			b.Circuit.Threshold = 99
			b.Retry.Background = middleware.Patience{Retries: 1}
			b.Retry.Essential = middleware.Patience{Retries: 2}
		}, apiSteps(503), func(t *testing.T, c *apiClient) {
			want(t, c, t.Context(), 503)
			require.Equal(t, 2, c.sends())
			want(t, c, essentially(t.Context()), 503)
			require.Equal(t, 5, c.sends())
		}},
		{"X21 a client's Timeout", threshold(99), apiSteps(503), func(t *testing.T, c *apiClient) {
			client := &http.Client{Transport: c.rt, Timeout: 3 * time.Second}
			began := time.Now()
			resp, err := client.Do(get(essentially(context.Background()), "https://api.test/"))
			// The next wait does not fit: the answer in hand comes now.
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			require.LessOrEqual(t, time.Since(began), 3*time.Second)
			require.Equal(t, middleware.Deadline, middleware.FromResponse(resp).Report().Stop)
		}},
	})
}
