package roundtrippers_test

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/idempotency"
	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/cosmos"
	"github.com/reroute-go/reroute/middleware/layertest"
	"github.com/reroute-go/reroute/middleware/rest"
	"github.com/reroute-go/reroute/roundtrippers"
)

// K09, writes whose outcome is unknown.

// post is the write that must not be carried out twice.
func (r ready) post(t *testing.T) *http.Request {
	return r.request(t.Context(), http.MethodPost, strings.NewReader("text"))
}

func TestB31SentOrUnknownIsKeptApartFromNeverSent(t *testing.T) {
	overScript(t, tuned{}, []layertest.Step{{Err: resetConn}, {Status: 409}}, func(t *testing.T, r ready, script *layertest.Script) {
		got := tell(t, r.rt, r.post(t))
		require.ErrorIs(t, got.err, resetConn)
		require.ErrorIs(t, got.err, middleware.ErrNotRepeatable)
		require.True(t, got.InDoubt, "may have been applied")
		require.Len(t, script.Sends(), 1)
	})
	overScript(t, tuned{}, []layertest.Step{{Err: refusedDial}, {Status: 201}}, func(t *testing.T, r ready, script *layertest.Script) {
		status, _, err := exactlyOne(t, r.rt, r.post(t))
		require.NoError(t, err)
		require.Equal(t, 201, status, "what was never sent is")
		require.Len(t, script.Sends(), 2)
	})
	// Cosmos DB creates are repeated, as by the reference driver, unless the caller says that they must not be.
	for _, stated := range []bool{true, false} {
		overCosmos(t, true, roundtrippers.Builder{}, inOrder(layertest.Step{Err: resetConn}, answerOf(409, "")), func(t *testing.T, rt http.RoundTripper, sends func() []layertest.Send) {
			ctx := t.Context()
			if stated {
				ctx = middleware.WithIdempotency(ctx, idempotency.NonIdempotent)
			}
			got := tell(t, rt, operation("create").to(ctx))
			require.True(t, got.InDoubt)
			if stated {
				require.ErrorIs(t, got.err, resetConn)
				require.Len(t, sends(), 1)
			} else {
				require.Equal(t, idempotency.Exists, got.Echo)
			}
		})
	}
}

func TestB32AReplays409IsShownNotTranslated(t *testing.T) {
	steps := []layertest.Step{{Status: 408}, {Status: 409, Body: "there"}}
	overScript(t, tuned{}, steps, func(t *testing.T, r ready, script *layertest.Script) {
		if r.name == "OwnershipBuilder" {
			script = nil // 408 is an answer there
		}
		got := tell(t, r.rt, r.post(t))
		require.Nil(t, got.err)
		require.Equal(t, 1, got.Sends)
		if script != nil {
			require.Equal(t, middleware.NotRepeatable, got.Stop)
		}
	})
	t.Run("with an idempotency key", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := apiOver(t, keyed, steps...)
			ctx := patiently(t.Context(), middleware.Patience{Retries: 2, Base: time.Millisecond})
			report, status, err := c.write(ctx, http.MethodPost, "text")
			require.NoError(t, err)
			require.Equal(t, 409, status)
			require.Equal(t, 2, report.Sends)
			require.Equal(t, idempotency.Exists, report.Echo)
			require.Equal(t, c.keys()[0], c.keys()[1])
		})
	})
	overCosmos(t, true, roundtrippers.Builder{}, inOrder(answerOf(408, ""), answerOf(409, "")), func(t *testing.T, rt http.RoundTripper, sends func() []layertest.Send) {
		resp, err := rt.RoundTrip(operation("create").to(t.Context()))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, 409, resp.StatusCode)
		report := middleware.FromResponse(resp).Report()
		require.Equal(t, idempotency.Exists, report.Echo)
		require.True(t, report.InDoubt)
		require.Len(t, sends(), 2)
	})
}

func TestB33ChangingEndpointDoesNotMakeAnUnsafeRetrySafe(t *testing.T) {
	for _, c := range []struct {
		step  layertest.Step
		moves bool
	}{{answerOf(504, ""), false}, {layertest.Step{Err: resetConn}, false}, {layertest.Step{Err: refusedDial}, true}, {answerOf(429, "3092"), true}, {answerOf(410, ""), true}} {
		answer := func(req *http.Request) layertest.Step {
			if req.URL.Host == regionHost("a") {
				return c.step
			}
			return layertest.Step{Body: "{}"}
		}
		overCosmos(t, true, roundtrippers.Builder{}, answer, func(t *testing.T, rt http.RoundTripper, sends func() []layertest.Send) {
			got := tell(t, rt, operation("create").to(middleware.WithIdempotency(t.Context(), idempotency.NonIdempotent)))
			require.Equal(t, c.moves, got.body == "{}", "%v", c.step)
			at := sends()
			require.Equal(t, c.moves, at[len(at)-1].URL.Host == regionHost("b"), "%v", c.step)
		})
	}
}

// K10, errors that no retry can mend.

func TestB35UnrecoverableErrorsAreClassifiedThroughWrapping(t *testing.T) {
	bad := x509.UnknownAuthorityError{}
	for name, err := range map[string]error{
		"bare":                  bad,
		"in a url.Error":        &url.Error{Op: "Get", URL: "https://a.test", Err: bad},
		"in a tls error":        &tls.CertificateVerificationError{Err: bad},
		"in both":               &url.Error{Op: "Get", URL: "https://a.test", Err: fmt.Errorf("dial: %w", &tls.CertificateVerificationError{Err: bad})},
		"an unsupported scheme": &url.Error{Op: "Get", URL: "ftp://a.test", Err: fmt.Errorf("unsupported protocol scheme %q", "ftp")},
		"an invalid header":     &url.Error{Op: "Get", URL: "http://a.test", Err: fmt.Errorf("net/http: invalid header field value for %q", "X")},
		"redirects":             &url.Error{Op: "Get", URL: "http://a.test", Err: fmt.Errorf("stopped after 10 redirects")},
	} {
		t.Run(name, func(t *testing.T) {
			overScript(t, tuned{}, []layertest.Step{{Err: err}}, func(t *testing.T, r ready, script *layertest.Script) {
				got := tell(t, r.rt, r.request(t.Context(), http.MethodGet, nil))
				require.ErrorIs(t, got.err, err)
				require.Len(t, script.Sends(), 1)
			})
			overCosmos(t, true, roundtrippers.Builder{}, inOrder(layertest.Step{Err: err}), func(t *testing.T, rt http.RoundTripper, sends func() []layertest.Send) {
				require.ErrorIs(t, tell(t, rt, operation("read").to(t.Context())).err, err)
				require.Len(t, sends(), 1)
			})
		})
	}
	t.Run("a policy hook may think otherwise", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			script := layertest.NewScript(t, layertest.Step{Err: bad}, fine)
			rt := layered(t, script, moody{})
			require.Equal(t, "fine", tell(t, rt, ask(t.Context(), "GET")).body)
		})
	})
}

// moody is a layer of the user's own that sends again whatever came.
type moody struct{}

func (moody) Wrap(next http.RoundTripper) (http.RoundTripper, error) {
	budget := &middleware.Budget{Name: "moody", Retries: 1}
	return middleware.RetryAny(next, words{}, everyTime(budget), budget)
}

// K11, the stored procedure guard.

func TestB36ASprocIsRetriedOnlyWhereExecutionIsRuledOut(t *testing.T) {
	may := []layertest.Step{answerOf(408, ""), answerOf(500, ""), answerOf(502, ""), answerOf(504, ""), answerOf(503, ""), {Err: resetConn}}
	cannot := []layertest.Step{answerOf(410, ""), answerOf(429, "3200", "X-Ms-Retry-After-Ms", "10"), answerOf(449, ""), answerOf(403, "3"), answerOf(403, "1008"), {Err: refusedDial}}
	for i, step := range append(append([]layertest.Step(nil), may...), cannot...) {
		once := i < len(may)
		// DESIGN rule 4 puts 503 into the first group: proxies make it as well.
		overCosmos(t, true, roundtrippers.Builder{}, inOrder(step, layertest.Step{Body: "{}"}), func(t *testing.T, rt http.RoundTripper, sends func() []layertest.Send) {
			got := tell(t, rt, operation("sproc execute").to(t.Context()))
			require.Equal(t, once, len(sends()) == 1, "%+v: %d", step, len(sends()))
			require.Equal(t, !once, got.body == "{}")
		})
	}
	t.Run("under every nesting", func(t *testing.T) {
		for _, order := range permutations(4) {
			synctest.Test(t, func(t *testing.T) {
				account, script := openAccount(t, true, inOrder(answerOf(429, "3200", "X-Ms-Retry-After-Ms", "10"), layertest.Step{Err: resetConn}, layertest.Step{Body: "{}"}))
				list := []middleware.Layer{
					roundtrippers.Failover{Dialect: account, Regions: account.Regions}, roundtrippers.Throttle{Dialect: account},
					roundtrippers.Shard{Dialect: account}, roundtrippers.Session{Dialect: account, Regions: account.Regions},
				}
				layers := []middleware.Layer{roundtrippers.Guard{Dialect: account}}
				for _, i := range order {
					layers = append(layers, list[i])
				}
				got := tell(t, layered(t, script, append(layers, roundtrippers.Route{Dialect: account, Regions: account.Regions})...), operation("sproc execute").to(t.Context()))
				require.ErrorIs(t, got.err, resetConn)
				require.Len(t, dataSends(script), 2, "after the throttle, not after the reset")
			})
		}
	})
}

// K12, idempotency keys.

func TestB38RealTheKeysSideEffectOnNetHTTPIsKnown(t *testing.T) {
	// All rows: TestRealTransportReplaysAreSeenAndCanBeForbiddenX08B38R40R43. This is the case itself: one attempt of ours, two on the wire, one key.
	for _, withKey := range []bool{true, false} {
		server := newDyingServer(t)
		base := &http.Transport{}
		defer base.CloseIdleConnections()
		b := roundtrippers.APIBuilder{Dialect: rest.Dialect{}, Base: base}
		if withKey {
			b.IdempotencyKey = &roundtrippers.IdempotencyKey{}
		}
		rt, err := b.Build()
		require.NoError(t, err)
		post := func() told {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.url, strings.NewReader("body"))
			require.NoError(t, err)
			return tell(t, rt, req)
		}
		require.Nil(t, post().err)
		time.Sleep(20 * time.Millisecond) // the connection goes back to the pool
		server.die.Store(true)
		got := post()
		require.Equal(t, 1, got.Sends)
		hits := server.hits()[1:]
		if withKey {
			require.Nil(t, got.err)
			require.Equal(t, 1, got.TransportReplays, "shown as not counted")
			require.Len(t, hits, 2)
			require.NotEmpty(t, hits[0])
			require.Equal(t, hits[0], hits[1])
		} else {
			require.NotNil(t, got.err)
			require.Len(t, hits, 1)
		}
	}
}

// K13, the replay after a 401, and signing.

func TestB40AuthReplayRewindsTheBody(t *testing.T) {
	text := repeated("body ", 4096)
	for _, replayable := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			s := &tokenSource{}
			c := apiOver(t, func(b *roundtrippers.APIBuilder) {
				withAuth(s)(b)
				if !replayable {
					b.MaxReplayBytes = -1
				}
			}, layertest.Step{Status: 401, Body: "who?"}, layertest.Step{Status: 200})
			req, body := oneShot(get(t.Context(), "https://api.test/rows"), text)
			req.Method = http.MethodPut
			status, said, err := exactlyOne(t, c.rt, req)
			require.NoError(t, err)
			require.Equal(t, 1, body.Closes())
			if !replayable {
				require.Equal(t, 401, status)
				require.Equal(t, "who?", said)
				require.Equal(t, 1, c.sends())
				want(t, c, t.Context(), 200)
				require.Equal(t, []string{"Bearer secret-1", "Bearer secret-2"}, authorizations(c), "the next one has a fresh token")
				return
			}
			require.Equal(t, 200, status)
			require.Equal(t, []string{"Bearer secret-1", "Bearer secret-2"}, authorizations(c))
			for _, send := range c.script.Sends() {
				require.Equal(t, text, send.Body)
			}
		})
	}
}

func TestB41OneReplayWithTheFreshTokenCountedOnItsOwn(t *testing.T) {
	for name, codes := range map[string][]int{"a": {401}, "b": {401, 200}, "c": {503, 401, 200}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &tokenSource{}
				c := apiOver(t, withAuth(s), apiSteps(codes...)...)
				last := codes[len(codes)-1]
				want(t, c, patiently(t.Context(), middleware.Patience{Retries: 1, Base: time.Millisecond}), last)
				require.Equal(t, int64(2), s.calls.Load(), "one refresh")
				sent := authorizations(c)
				require.Equal(t, "Bearer secret-2", sent[len(sent)-1])
				require.Len(t, sent, max(2, len(codes)))
			})
		})
	}
}

func TestB43EveryAttemptIsSignedAnew(t *testing.T) {
	signs := middleware.LayerFunc(func(next http.RoundTripper) http.RoundTripper {
		key := cosmos.SharedKey(accountKey)
		return middleware.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
			signed := req.Clone(req.Context())
			if err := key.Authorize(req.Context(), signed); err != nil {
				return middleware.Refuse(req, err)
			}
			return next.RoundTrip(signed)
		})
	})
	steps := inOrder(answerOf(503, ""), answerOf(429, "3200", "Retry-After", "20"), layertest.Step{Body: "{}"})
	overCosmos(t, true, roundtrippers.Builder{PerAttempt: []middleware.Layer{signs}}, steps, func(t *testing.T, rt http.RoundTripper, sends func() []layertest.Send) {
		began := time.Now()
		require.Equal(t, "{}", tell(t, rt, operation("read").to(t.Context())).body)
		list := sends()
		require.Equal(t, []string{regionHost("a"), regionHost("b"), regionHost("b")}, []string{list[0].URL.Host, list[1].URL.Host, list[2].URL.Host})
		for _, s := range list {
			require.Equal(t, began.Add(s.After).UTC().Format(http.TimeFormat), s.Header.Get("X-Ms-Date"), "the date of that attempt")
		}
		require.NotEqual(t, list[1].Header.Get("Authorization"), list[2].Header.Get("Authorization"))
	})
}
