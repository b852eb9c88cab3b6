package roundtrippers_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"runtime"
	"strings"
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

// tokenSource hands out "Bearer secret-1", "Bearer secret-2", ...
type tokenSource struct {
	calls atomic.Int64
	takes time.Duration
	fails atomic.Bool
	life  time.Duration
}

func (s *tokenSource) next(ctx context.Context) (roundtrippers.Token, error) {
	n := s.calls.Add(1)
	if s.takes > 0 {
		select {
		case <-time.After(s.takes):
		case <-ctx.Done():
			return roundtrippers.Token{}, ctx.Err()
		}
	}
	if s.fails.Load() {
		return roundtrippers.Token{}, errTrouble
	}
	token := roundtrippers.Token{Value: fmt.Sprint("Bearer secret-", n)}
	if s.life > 0 {
		token.Expires = time.Now().Add(s.life)
	}
	return token, nil
}

// accepting answers 401 unless the token is one of the good ones.
func accepting(good func(n int64) bool) func(*http.Request) layertest.Step {
	return func(req *http.Request) layertest.Step {
		var n int64
		_, _ = fmt.Sscanf(req.Header.Get("Authorization"), "Bearer secret-%d", &n)
		if n > 0 && good(n) {
			return layertest.Step{Status: 200}
		}
		return layertest.Step{Status: 401, Delay: time.Millisecond}
	}
}

func withAuth(s *tokenSource) func(*roundtrippers.APIBuilder) {
	return func(b *roundtrippers.APIBuilder) {
		b.Auth = &roundtrippers.Auth{Origins: []string{"https://api.test"}, Source: s.next}
		b.Concurrency.Limit = 1000
	}
}

func authorizations(c *apiClient) (list []string) {
	for _, send := range c.script.Sends() {
		list = append(list, strings.Join(send.Header.Values("Authorization"), "|"))
	}
	return list
}

func TestAuth(t *testing.T) {
	var s *tokenSource // of the scenario at play
	fresh := func(change func(*tokenSource), more ...func(*roundtrippers.APIBuilder)) func(*roundtrippers.APIBuilder) {
		return func(b *roundtrippers.APIBuilder) {
			s = &tokenSource{}
			if change != nil {
				change(s)
			}
			withAuth(s)(b)
			for _, m := range more {
				m(b)
			}
		}
	}
	playAll(t, []scenario{
		{"V068 the first token is fetched when needed, and kept", fresh(nil), nil, func(t *testing.T, c *apiClient) {
			require.Zero(t, s.calls.Load())
			for range 3 {
				want(t, c, t.Context(), 200)
			}
			require.EqualValues(t, 1, s.calls.Load())
			require.Equal(t, []string{"Bearer secret-1", "Bearer secret-1", "Bearer secret-1"}, authorizations(c))
		}},
		{"V069 V102 B41b a 401 is replayed once with a fresh token", fresh(nil), apiSteps(401, 200), func(t *testing.T, c *apiClient) {
			want(t, c, t.Context(), 200)
			require.Equal(t, []string{"Bearer secret-1", "Bearer secret-2"}, authorizations(c))
			require.Equal(t, "started, failed:status, started, ok:200", c.tags.String())
		}},
		{"V070 B41a a second 401 is final", fresh(nil), apiSteps(401), func(t *testing.T, c *apiClient) {
			err := rest.API{Transport: c.rt, BaseURL: "https://api.test"}.Get(essentially(t.Context()), "/", nil)
			var failed *rest.Error
			require.ErrorAs(t, err, &failed)
			require.Equal(t, []any{401, 1, 2}, []any{failed.Status, failed.Attempts, failed.Sends})
			require.EqualValues(t, 2, s.calls.Load())
		}},
		{"V073 V103 a source that fails: nothing is sent, nothing retried, the breaker untouched", fresh(func(s *tokenSource) { s.fails.Store(true) }, threshold(1)), nil, func(t *testing.T, c *apiClient) {
			_, err := c.do(essentially(t.Context()))
			require.ErrorIs(t, err, middleware.ErrNoCredential)
			require.ErrorIs(t, err, errTrouble)
			require.Zero(t, c.sends())
			require.Equal(t, "started, failed:auth", c.tags.String())
			require.EqualValues(t, 1, s.calls.Load())
			s.fails.Store(false)
			want(t, c, t.Context(), 200) // R34: the next call tries again
		}},
		{"V073 also where the source was refused by layers of its own", fresh(nil, func(b *roundtrippers.APIBuilder) {
			refusals := []error{&roundtrippers.CircuitOpenError{}, &middleware.WaitError{Wait: time.Hour, For: "the source's own rate limit"}, middleware.ErrAttemptTimeout}
			b.Auth.Source = func(context.Context) (token roundtrippers.Token, err error) {
				err, refusals = refusals[0], refusals[1:]
				return token, err
			}
		}), nil, func(t *testing.T, c *apiClient) {
			began := time.Now()
			for range 3 {
				_, err := c.do(essentially(t.Context()))
				require.ErrorIs(t, err, middleware.ErrNoCredential)
				var typed *middleware.Error
				require.ErrorAs(t, err, &typed)
				require.Equal(t, middleware.Refused, typed.Outcome.Cause, err)
			}
			require.Zero(t, time.Since(began))
			require.Equal(t, "started, failed:auth, started, failed:auth, started, failed:auth", c.tags.String())
		}},
		{"V074 R11 V150 a caller that cancels leaves the fetch to the others", fresh(func(s *tokenSource) { s.takes = time.Second }), nil, func(t *testing.T, c *apiClient) {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			defer cancel()
			var all sync.WaitGroup
			all.Go(func() {
				began := time.Now()
				_, err := c.do(ctx)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.Equal(t, 10*time.Millisecond, time.Since(began))
			})
			synctest.Wait()
			all.Go(func() { want(t, c, t.Context(), 200) })
			all.Wait()
			require.EqualValues(t, 1, s.calls.Load())
		}},
		{"V074 a source that heeds no context is given up on", fresh(nil, func(b *roundtrippers.APIBuilder) {
			b.Auth.Source = func(context.Context) (roundtrippers.Token, error) {
				time.Sleep(time.Hour)
				return roundtrippers.Token{}, nil
			}
		}), nil, func(t *testing.T, c *apiClient) {
			began := time.Now()
			_, err := c.do(t.Context())
			require.ErrorIs(t, err, middleware.ErrNoCredential)
			require.Equal(t, 30*time.Second, time.Since(began))
			time.Sleep(2 * time.Hour) // its late answer changes nothing
			synctest.Wait()
		}},
		{"R28 a source that panics is an error", fresh(nil, func(b *roundtrippers.APIBuilder) {
			b.Auth.Source = func(context.Context) (roundtrippers.Token, error) { panic("source") }
		}), nil, func(t *testing.T, c *apiClient) {
			_, err := c.do(t.Context())
			require.ErrorIs(t, err, middleware.ErrNoCredential)
			require.ErrorContains(t, err, "panicked: source")
		}},
		{"V075 the caller's own header wins, once, and is not replayed", fresh(nil), apiSteps(401), func(t *testing.T, c *apiClient) {
			req := get(t.Context(), "https://api.test/")
			req.Header.Set("Authorization", "Basic mine")
			resp, err := c.rt.RoundTrip(req)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			require.Equal(t, []string{"Basic mine"}, authorizations(c))
			require.Zero(t, s.calls.Load())
		}},
		{"V076 B40 the replay has the whole body; one that cannot be replayed leaves the 401", fresh(nil), apiSteps(401, 200, 401), func(t *testing.T, c *apiClient) {
			body := strings.Repeat("x", 4096)
			send := func(body io.Reader, grow bool) int {
				req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "https://api.test/", body)
				require.NoError(t, err)
				if grow { // a stream beyond what is kept
					req.Body, req.GetBody, req.ContentLength = io.NopCloser(strings.NewReader(strings.Repeat("y", 3<<20))), nil, -1
				}
				resp, err := c.rt.RoundTrip(req)
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
				return resp.StatusCode
			}
			require.Equal(t, 200, send(strings.NewReader(body), false))
			require.Equal(t, body, c.script.Sends()[1].Body)
			require.Equal(t, 401, send(strings.NewReader(body), true))
			require.Equal(t, 3, c.sends())
		}},
		{"V078 B41c the replay has a count of its own, a call at a time", fresh(nil), apiSteps(401, 503, 200, 401, 200, 503, 401, 200), func(t *testing.T, c *apiClient) {
			want(t, c, essentially(t.Context()), 200)
			require.Equal(t, 3, c.sends())
			want(t, c, essentially(t.Context()), 200)
			require.Equal(t, 5, c.sends())
			want(t, c, essentially(t.Context()), 200)
			require.Equal(t, 8, c.sends())
			require.EqualValues(t, 4, s.calls.Load())
		}},
		{"V077 the replay is none of the policy's retries", fresh(nil), apiSteps(401, 503, 200, 503, 401, 503), func(t *testing.T, c *apiClient) {
			once := patiently(t.Context(), rest.Bounded(1))
			want(t, c, once, 200)
			require.Equal(t, 3, c.sends())
			want(t, c, once, 503)
			require.Equal(t, 6, c.sends())
			require.Equal(t, "started, failed:status, started, failed:status, retry:2, started, ok:200, "+
				"started, failed:status, retry:1, started, failed:status, started, failed:status", c.tags.String())
		}},
		{"V077 the replay passes the breaker, which opened while the token was fetched", fresh(func(s *tokenSource) { s.takes = time.Second }, threshold(1)), []layertest.Step{{Status: 401}, {Status: 503}, {Status: 200}}, func(t *testing.T, c *apiClient) {
			var all sync.WaitGroup
			all.Go(func() { // its 401 comes at 1 s, its token at 2 s
				_, err := c.do(t.Context())
				require.ErrorIs(t, err, middleware.ErrCircuitOpen)
				var typed *middleware.Error
				require.ErrorAs(t, err, &typed)
				require.Equal(t, []int{401, 1}, []int{typed.LastStatus, typed.Report.Sends})
			})
			time.Sleep(1500 * time.Millisecond)
			req := get(t.Context(), "https://api.test/rows")
			req.Header.Set("Authorization", "Basic mine") // waits for no token
			resp, err := c.rt.RoundTrip(req)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			all.Wait()
			require.Equal(t, 2, c.sends())
		}},
		{"V077 the replay waits for a permit like any send", fresh(nil, func(b *roundtrippers.APIBuilder) { b.Concurrency.Limit = 1 }), []layertest.Step{{Status: 401, Delay: time.Second}, {Delay: time.Second}, {}}, func(t *testing.T, c *apiClient) {
			var all sync.WaitGroup
			all.Go(func() { want(t, c, t.Context(), 200) })
			synctest.Wait()
			all.Go(func() { want(t, c, t.Context(), 200) }) // is given the permit that the 401 frees
			all.Wait()
			require.Equal(t, []time.Duration{time.Second, time.Second}, c.gaps())
		}},
		{"V038 a 401 to the probe closes the breaker and is replayed", fresh(nil, threshold(2)), apiSteps(503, 503, 401, 200), func(t *testing.T, c *apiClient) {
			want(t, c, essentially(t.Context()), 200)
			require.Equal(t, 4, c.sends())
			require.Equal(t, "started, failed:status, retry:1, started, failed:status, opened, retry:2, started, failed:status, closed, started, ok:200", c.tags.String())
		}},
		{"V081 R39 the token goes to no other host, scheme or port", fresh(nil), nil, func(t *testing.T, c *apiClient) {
			for url, sent := range map[string]bool{
				"https://api.test/": true, "https://API.test:443/x": true,
				"https://evil.test/": false, "http://api.test/": false, "https://api.test:444/": false, "https://api.test.evil.test/": false,
			} {
				before := c.sends()
				resp, err := c.rt.RoundTrip(get(t.Context(), url))
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
				require.Equal(t, sent, authorizations(c)[before] != "", url)
			}
		}},
		{"R35 a token that was replaced meanwhile needs no refresh", fresh(nil), []layertest.Step{{Status: 401, Delay: time.Second}, {Status: 401}, {Status: 200}}, func(t *testing.T, c *apiClient) {
			var all sync.WaitGroup
			all.Go(func() { want(t, c, t.Context(), 200) }) // its 401 comes when the token is new
			synctest.Wait()
			want(t, c, t.Context(), 200)
			all.Wait()
			require.EqualValues(t, 2, s.calls.Load())
		}},
		{"P12 a token is replaced in good time", fresh(func(s *tokenSource) { s.life, s.takes = 10*time.Minute, time.Second }), nil, func(t *testing.T, c *apiClient) {
			want(t, c, t.Context(), 200)
			time.Sleep(9*time.Minute + 31*time.Second)
			began := time.Now()
			want(t, c, t.Context(), 200) // with the old one, while the new one is fetched
			require.Zero(t, time.Since(began))
			time.Sleep(2 * time.Second)
			want(t, c, t.Context(), 200)
			require.Equal(t, []string{"Bearer secret-1", "Bearer secret-1", "Bearer secret-2"}, authorizations(c))
			time.Sleep(time.Hour)
			want(t, c, t.Context(), 200) // long expired: waited for
			require.Equal(t, "Bearer secret-3", authorizations(c)[3])
		}},
		{"no token, no header", fresh(nil, func(b *roundtrippers.APIBuilder) {
			b.Auth.Source = func(context.Context) (roundtrippers.Token, error) { return roundtrippers.Token{}, nil }
		}), nil, func(t *testing.T, c *apiClient) {
			want(t, c, t.Context(), 200)
			require.Equal(t, []string{""}, authorizations(c))
		}},
		{"no token is fetched while the breaker is open", fresh(func(s *tokenSource) { s.life = time.Second }, threshold(1)), apiSteps(503), func(t *testing.T, c *apiClient) {
			want(t, c, t.Context(), 503)
			time.Sleep(2 * time.Second) // expired
			wantOpen(t, c)
			require.EqualValues(t, 1, s.calls.Load())
		}},
		{"R34 a refresh that fails: all end as auth failures, the next call tries again", fresh(nil), nil, func(t *testing.T, c *apiClient) {
			want(t, c, t.Context(), 200)
			s.fails.Store(true)
			stale := apiBase(t, layertest.NewServer(t, accepting(func(n int64) bool { return n >= 3 })), func(b *roundtrippers.APIBuilder) { b.Auth = c.builder.Auth })
			api := rest.API{Transport: stale.rt, BaseURL: "https://api.test"}
			var all sync.WaitGroup
			for range 4 {
				all.Go(func() {
					var failed *rest.Error
					require.ErrorAs(t, api.Get(t.Context(), "/", nil), &failed)
					require.Equal(t, rest.Auth, failed.Kind)
					require.ErrorIs(t, failed, middleware.ErrNoCredential)
				})
			}
			all.Wait()
			s.fails.Store(false)
			require.NoError(t, api.Get(t.Context(), "/", nil))
		}},
	})
}

func TestFiftyOperationsWithAStaleTokenFetchOneV071R34(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &tokenSource{takes: time.Second}
		script := layertest.NewServer(t, accepting(func(n int64) bool { return n == 2 }))
		c := apiBase(t, script, withAuth(s))
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() { want(t, c, t.Context(), 200) })
		}
		all.Wait()
		require.EqualValues(t, 2, s.calls.Load())
		require.Equal(t, 100, c.sends())
	})
}

func TestASourceThatUsesItsOwnClientDoesNotDeadlockR38(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var rt http.RoundTripper
		c := apiOver(t, func(b *roundtrippers.APIBuilder) {
			b.Concurrency.Limit = 1
			b.RateLimit = &roundtrippers.RateLimit{PerSecond: 10}
			b.Auth = &roundtrippers.Auth{Origins: []string{"https://api.test"}, Source: func(ctx context.Context) (roundtrippers.Token, error) {
				resp, err := rt.RoundTrip(get(ctx, "https://api.test/token"))
				if err != nil {
					return roundtrippers.Token{}, err
				}
				return roundtrippers.Token{Value: "Bearer secret-1"}, resp.Body.Close()
			}}
		})
		rt = c.rt
		want(t, c, essentially(t.Context()), 200)
		require.Equal(t, []string{"", "Bearer secret-1"}, authorizations(c))
		require.Equal(t, "/token", c.script.Sends()[0].URL.Path)
	})
}

// Nor does it hang where the breaker is open: whoever probes is told at once that
// there is no token, and leaves the slot to the next (R38).
func TestASourceThatUsesItsOwnClientIsRefusedByItsOpenBreakerR38(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var rt http.RoundTripper
		c := apiOver(t, func(b *roundtrippers.APIBuilder) {
			b.Circuit.Threshold = 1
			b.Auth = &roundtrippers.Auth{Origins: []string{"https://api.test"}, Source: func(ctx context.Context) (roundtrippers.Token, error) {
				resp, err := rt.RoundTrip(get(ctx, "https://api.test/token"))
				if err != nil {
					return roundtrippers.Token{}, err
				}
				return roundtrippers.Token{}, errors.Join(errTrouble, resp.Body.Close())
			}}
		}, apiSteps(503)...)
		rt = c.rt
		for range 3 {
			began := time.Now()
			_, err := c.do(essentially(t.Context()))
			require.ErrorIs(t, err, middleware.ErrNoCredential)
			require.Zero(t, time.Since(began))
			time.Sleep(5 * time.Second)
		}
		require.Equal(t, []string{"/token"}, pathsOf(c)) // its 503 has opened the breaker
	})
}

func TestAuthAloneIsALayer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		script := layertest.NewScript(t, apiSteps(401, 200)...)
		rt, err := (&roundtrippers.Auth{Dialect: rest.Dialect{}, Origins: []string{"https://api.test/"}, Source: (&tokenSource{}).next}).Wrap(script)
		require.NoError(t, err)
		resp, err := rt.RoundTrip(get(t.Context(), "https://api.test/"))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, 200, resp.StatusCode)
		require.Equal(t, 1, middleware.FromResponse(resp).Report().Replays)
	})
}

// What the token's request does on its connection is nothing that the operation
// has done: it would pass for never sent, and a POST be carried out twice.
func TestTheTokensRequestIsNotTraced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, sends := &tokenSource{life: time.Minute}, 0
		var traced []bool
		c := apiOver(t, func(b *roundtrippers.APIBuilder) {
			withAuth(s)(b)
			b.Retry.Background.Retries = 2
			b.Auth.Source = func(ctx context.Context) (roundtrippers.Token, error) {
				hooks := httptrace.ContextClientTrace(ctx)
				traced = append(traced, hooks != nil)
				if hooks != nil { // as net/http would tell of a server that does not accept
					time.Sleep(10 * time.Millisecond)
					hooks.GetConn("login.test:443")
				}
				return s.next(ctx)
			}
			b.Base = middleware.RoundTripperFunc(func(*http.Request) (*http.Response, error) { // one that does not trace
				sends++
				time.Sleep(100 * time.Millisecond)
				return nil, errReset
			})
		})
		_, err := c.do(t.Context())
		require.ErrorIs(t, err, errReset)
		time.Sleep(40 * time.Second) // the next token is fetched beside the request
		sends = 0
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://api.test/rows", strings.NewReader("x"))
		require.NoError(t, err)
		_, err = c.rt.RoundTrip(req)
		require.ErrorIs(t, err, errReset)
		require.Equal(t, 1, sends)
		synctest.Wait() // the fetch is over
		require.Equal(t, []bool{false, false}, traced)
	})
}

// The end of the fetch's own time is no end of the caller's, whether the source
// heeds its context or not.
func TestASlowSourceIsNoDeadlineOfTheCaller(t *testing.T) {
	for _, heeds := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			c := apiOver(t, func(b *roundtrippers.APIBuilder) {
				withAuth(&tokenSource{})(b)
				b.Auth.Source = func(ctx context.Context) (roundtrippers.Token, error) {
					if heeds {
						<-ctx.Done()
					}
					time.Sleep(time.Minute)
					return roundtrippers.Token{}, &url.Error{Op: "Post", URL: "https://login.test/?client_secret=s3cr3t", Err: context.DeadlineExceeded}
				}
			})
			began := time.Now()
			_, err := c.do(t.Context())
			require.Equal(t, 30*time.Second, time.Since(began))
			require.ErrorIs(t, err, middleware.ErrNoCredential)
			require.NotErrorIs(t, err, context.DeadlineExceeded)
			require.ErrorContains(t, err, "longer than RefreshTimeout")
			time.Sleep(time.Hour)
		})
	}
	synctest.Test(t, func(t *testing.T) {
		c := apiOver(t, func(b *roundtrippers.APIBuilder) {
			withAuth(&tokenSource{})(b)
			b.Auth.Source = func(ctx context.Context) (roundtrippers.Token, error) {
				<-ctx.Done()
				return roundtrippers.Token{}, &url.Error{Op: "Post", URL: "https://login.test/?client_secret=s3cr3t", Err: ctx.Err()}
			}
			b.Auth.RefreshTimeout = time.Second
		})
		for range 50 { // the source and the limit end it in either order
			_, err := c.do(t.Context())
			require.NotErrorIs(t, err, context.DeadlineExceeded)
			require.NotContains(t, fmt.Sprintf("%v %+v", err, errors.Unwrap(err)), "s3cr3t")
		}
	})
}

func TestAuthRefusesARequestWithoutAURL(t *testing.T) {
	rt, err := (&roundtrippers.Auth{Dialect: rest.Dialect{}, Origins: []string{"https://api.test"}, Source: (&tokenSource{}).next}).Wrap(layertest.NewScript(t))
	require.NoError(t, err)
	_, err = rt.RoundTrip((&http.Request{}).WithContext(t.Context()))
	require.ErrorContains(t, err, "no URL")
}

func TestAuthNamesBadFields(t *testing.T) {
	source, origins := (&tokenSource{}).next, []string{"https://api.test"}
	for field, layer := range map[string]*roundtrippers.Auth{
		"Dialect":                {Source: source, Origins: origins},
		"Source is nil":          {Dialect: rest.Dialect{}, Origins: origins},
		"Origins is empty":       {Dialect: rest.Dialect{}, Source: source},
		"Origins[0]":             {Dialect: rest.Dialect{}, Source: source, Origins: []string{"api.test"}},
		"Origins[1]":             {Dialect: rest.Dialect{}, Source: source, Origins: []string{"https://a.test", "https://user:secret@api.test"}},
		"RefreshTimeout is -1ns": {Dialect: rest.Dialect{}, Source: source, Origins: origins, RefreshTimeout: -1},
		"RefreshAhead is -1ns":   {Dialect: rest.Dialect{}, Source: source, Origins: origins, RefreshAhead: -1},
	} {
		_, err := layer.Wrap(http.DefaultTransport)
		require.ErrorContains(t, err, field)
		require.NotContains(t, err.Error(), "secret")
	}
}

// A token that lives no longer than RefreshAhead, and a source that is down, must
// not have every request fetch the next one.
func TestRefreshingAheadIsNoStorm(t *testing.T) {
	for name, tc := range map[string]struct {
		life    time.Duration
		fails   bool
		fetches int64 // at most, in the 20 s of 2,000 requests
	}{
		"tokens shorter than RefreshAhead": {10 * time.Second, false, 5},
		"a source that is down":            {30 * time.Second, true, 8},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &tokenSource{life: tc.life}
			c := apiOver(t, withAuth(s), repeatStep(2000, layertest.Step{Status: 200})...)
			for i := range 2000 {
				want(t, c, t.Context(), 200)
				s.fails.Store(tc.fails && i < 1900)
				time.Sleep(10 * time.Millisecond)
			}
			require.LessOrEqual(t, s.calls.Load(), tc.fetches, name)
			require.Greater(t, s.calls.Load(), int64(1), name)
		})
	}
}

// A source that ends its goroutine, as a failing test does, must not leave those
// who wait for it, and all who come later, without a token for ever (R28).
func TestASourceThatEndsItsGoroutineIsAFailureR28(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &tokenSource{}
		c := apiOver(t, func(b *roundtrippers.APIBuilder) {
			withAuth(s)(b)
			b.Auth.Source = func(ctx context.Context) (roundtrippers.Token, error) {
				if s.calls.Load() == 0 {
					s.calls.Add(1)
					runtime.Goexit()
				}
				return s.next(ctx)
			}
		}, apiSteps(200)...)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		_, err := c.do(ctx)
		require.ErrorIs(t, err, middleware.ErrNoCredential)
		require.ErrorContains(t, err, "ended its goroutine")
		want(t, c, ctx, 200)
	})
}
