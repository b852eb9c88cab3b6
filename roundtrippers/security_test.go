package roundtrippers_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/cosmos"
	"github.com/reroute-go/reroute/middleware/layertest"
	"github.com/reroute-go/reroute/regions"
	"github.com/reroute-go/reroute/roundtrippers"
)

const evil = "evil.example"

// No topology makes the account's key, or its users' signatures, go to a host
// that a reply invented, or over plain HTTP (DESIGN rule 8): not when the account
// is opened, and not by a later refresh, which leaves the old topology in force.
func TestAHostileTopologySendsNothingElsewhere(t *testing.T) {
	good := accountDocument(false, "a", "b")
	location := func(u string) string {
		return fmt.Sprintf(`{"writableLocations":[{"name":"a","databaseAccountEndpoint":%q}],"readableLocations":[]}`, u)
	}
	redirect := func(code int) layertest.Step {
		return layertest.Step{Status: code, Header: map[string]string{"Location": "https://" + evil + "/"}, Body: good}
	}
	for name, hostile := range map[string]layertest.Step{
		"a foreign host":              {Body: location("https://" + evil)},
		"a foreign host as a read":    {Body: strings.Replace(good, `"readableLocations":[`, `"readableLocations":[{"name":"z","databaseAccountEndpoint":"https://`+evil+`"},`, 1)},
		"a host that begins the same": {Body: location("https://" + accountHost + "." + evil)},
		"a user before the host":      {Body: location("https://" + accountHost + "@" + evil)},
		"a scheme downgrade":          {Body: location("http://" + regionHost("a"))},
		"another scheme":              {Body: location("file:///etc/passwd")},
		"a path":                      {Body: location("https://" + regionHost("a") + "/../" + evil)},
		"301":                         redirect(301),
		"307":                         redirect(307),
		"308":                         redirect(308),
		"huge":                        {Body: good + strings.Repeat(" ", 2<<20)},
		"a document of one name":      {Body: location("https://acct-" + strings.Repeat("x", 1<<20) + ".documents.example")},
		"very many regions":           {Body: `{"writableLocations":[` + strings.Repeat(`{"name":"a","databaseAccountEndpoint":"https://`+evil+`"},`, 20000) + `{}]}`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				document := hostile
				script := layertest.NewServer(t, func(req *http.Request) layertest.Step {
					if accountsOwn(req.Header) {
						return document
					}
					return answerOf(403, "1008") // sends for the topology
				})
				open := func() (*cosmos.Account, error) {
					return cosmos.Open(t.Context(), "https://"+accountHost, cosmos.SharedKey(accountKey), cosmos.Options{Transport: script})
				}
				_, err := open()
				require.Error(t, err)
				require.Less(t, len(err.Error()), 2000)

				document = layertest.Step{Body: good}
				account, err := open()
				require.NoError(t, err)
				defer account.Close()
				before := account.Regions.Topology()
				document = hostile
				time.Sleep(10 * time.Second)
				rt, err := roundtrippers.Builder{Dialect: account, Regions: account.Regions, Base: script, Failover: roundtrippers.Failover{TopologyRetries: 3}}.Build()
				require.NoError(t, err)
				req := operation("create").to(t.Context())
				req.Header.Set("Authorization", "signature")
				got := tell(t, rt, req)
				require.Positive(t, got.Sends)
				require.Same(t, before, account.Regions.Topology())
				for _, s := range script.Sends() {
					require.Equal(t, "https", s.URL.Scheme)
					require.Contains(t, []string{accountHost, regionHost("a"), regionHost("b")}, s.URL.Host)
				}
			})
		})
	}
}

// An answer that redirects is the caller's to follow: no layer goes there with what
// the request carries.
func TestNoLayerFollowsARedirect(t *testing.T) {
	for _, code := range []int{301, 302, 303, 307, 308} {
		step := layertest.Step{Status: code, Header: map[string]string{"Location": "http://" + evil + "/", "X-Route-Status": "moved", "X-Route-Owner": evil, "X-Route-Epoch": "99"}}
		run := func(t *testing.T, rt http.RoundTripper, req *http.Request, sends func() []layertest.Send) {
			req.Header.Set("Authorization", "secret")
			status, _, err := exactlyOne(t, rt, req)
			require.NoError(t, err)
			require.Equal(t, code, status)
			for _, s := range sends() {
				require.NotEqual(t, evil, s.URL.Host)
			}
		}
		overScript(t, tuned{}, []layertest.Step{step}, func(t *testing.T, r ready, script *layertest.Script) {
			run(t, r.rt, r.request(t.Context(), http.MethodGet, nil), script.Sends)
		})
		overCosmos(t, true, roundtrippers.Builder{}, inOrder(step), func(t *testing.T, rt http.RoundTripper, sends func() []layertest.Send) {
			run(t, rt, operation("read").to(t.Context()), sends)
		})
	}
}

// Whatever a caller, a map or a token source puts into keys, names and tokens, no
// line of it reaches the wire as a header of its own: net/http refuses, once, and
// that is nobody's failure but the caller's.
func TestRealHeadersCannotBeInjected(t *testing.T) {
	var mu sync.Mutex
	var lines []string
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		for name := range req.Header {
			lines = append(lines, name)
		}
	}))
	defer server.Close()
	base := &http.Transport{}
	defer base.CloseIdleConnections()
	for _, junk := range []string{"a\r\nX-Evil: 1", "a\nX-Evil: 1", "a\rX-Evil: 1", "a\x00b", "a\x7fb", "a\x1b[31m", "\r\n\r\nGET /evil HTTP/1.1"} {
		for _, header := range []string{"X-Ms-Documentdb-Partitionkey", "X-Ms-Session-Token", "Idempotency-Key", "Authorization", "X-Ms-Documentdb-Partitionkeyrangeid"} {
			for _, kind := range kinds {
				r := makeReady(t, kind, base, server.Listener.Addr().String(), tuned{})
				ctx := middleware.WithExcludedRegions(middleware.WithPartitionKey(t.Context(), junk), regions.Name(junk))
				req := r.request(essentially(ctx), http.MethodPut, strings.NewReader("text"))
				req.Header[header] = []string{junk}
				got := tell(t, r.rt, req)
				require.NotNil(t, got.err, "%s %q", header, junk)
				require.Equal(t, 1, got.Sends, "%s %q", header, junk)
				require.Equal(t, middleware.Unmendable, got.err.Outcome.Cause)
				require.NotContains(t, got.err.Error(), junk)
			}
		}
		// Where the library itself writes a header, it asks first.
		auth := &roundtrippers.Auth{Origins: []string{server.URL}, Source: func(context.Context) (roundtrippers.Token, error) {
			return roundtrippers.Token{Value: junk}, nil
		}}
		rt, err := roundtrippers.APIBuilder{Dialect: kvRest, Auth: auth, Base: base}.Build()
		require.NoError(t, err)
		got := tell(t, rt, get(t.Context(), server.URL))
		require.ErrorIs(t, got.err, middleware.ErrNoCredential)
		require.Zero(t, got.Sends)
		require.NotContains(t, got.err.Error(), "Evil")
		rt, err = roundtrippers.APIBuilder{Dialect: kvRest, Base: base, IdempotencyKey: &roundtrippers.IdempotencyKey{New: func() string { return junk }}}.Build()
		require.NoError(t, err)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, strings.NewReader("text"))
		require.NoError(t, err)
		got = tell(t, rt, req)
		require.NotNil(t, got.err)
		require.Zero(t, got.Sends)
	}
	require.Empty(t, lines, "nothing was sent at all")
}

// A priority and a patience are numbers that stay here, whatever they are.
func TestAPriorityOfJunkIsBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := apiOver(t, nil, apiSteps(503)...)
		want(t, c, middleware.WithPriority(t.Context(), middleware.Priority(200)), 503)
		want(t, c, middleware.WithPatience(t.Context(), middleware.Patience{Retries: -5, Base: -1, Max: -1}), 503)
		require.Equal(t, 2, c.sends())
	})
}

// Region names and partition keys that come from elsewhere do not break lines of
// logs or reports.
func TestLogsAndReportsKeepToTheirLines(t *testing.T) {
	junk := "a\r\nlevel=ERROR msg=owned"
	for _, step := range []layertest.Step{{Err: resetConn}, answerOf(503, "", "X-Ms-Documentdb-Partitionkeyrangeid", junk), answerOf(200, "")} {
		var text, lines bytes.Buffer
		observe := middleware.Observer(func(ctx context.Context, e middleware.Event) {
			middleware.LogTo(slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{Level: slog.LevelDebug})))(ctx, e)
			middleware.LogTo(slog.New(slog.NewJSONHandler(&lines, &slog.HandlerOptions{Level: slog.LevelDebug})))(ctx, e)
		})
		overCosmos(t, true, roundtrippers.Builder{Observe: observe}, inOrder(step), func(t *testing.T, rt http.RoundTripper, _ func() []layertest.Send) {
			ctx := excluding(middleware.WithPartitionKey(t.Context(), junk), junk)
			req := operation("read").to(ctx)
			req.Header["X-Ms-Documentdb-Partitionkey"] = []string{junk}
			got := tell(t, rt, req)
			for _, line := range strings.Split(text.String()+lines.String()+got.Report.String(), "\n") {
				require.False(t, strings.HasPrefix(line, "level=ERROR"), line)
			}
			require.NotContains(t, got.Report.String(), "owned")
		})
	}
}

// What V079's test does for an API, for an account and a sharded service: nothing
// that can be printed, logged or marshalled shows the key, a signature or a token.
func TestNoCredentialOfAnAccountCanBePrinted(t *testing.T) {
	const secret = "c2VjcmV0"
	quoting := &url.Error{Op: "Get", URL: "https://user:" + secret + "@x.example/?sig=" + secret, Err: resetConn}
	for name, step := range map[string]layertest.Step{
		"fine": {Body: "{}"}, "401": answerOf(401, ""), "403/1008": answerOf(403, "1008"), "503": answerOf(503, ""), "410/1002": answerOf(410, "1002"),
		"reset": {Err: resetConn}, "a base that quotes the URL": {Err: quoting}, "hangs": {Hang: true},
	} {
		t.Run(name, func(t *testing.T) {
			var out lockedBuffer
			show := func(values ...any) {
				for _, v := range values {
					for _, verb := range []string{"%v\n", "%+v\n", "%#v\n", "%s\n", "%q\n"} {
						if _, isEvent := v.(middleware.Event); isEvent && verb == "%#v\n" {
							continue // Go's own syntax, by reflection, of whatever error is in it
						}
						fmt.Fprintf(&out, verb, v)
					}
					if text, err := json.Marshal(v); err == nil {
						_, _ = out.Write(text)
					}
				}
			}
			log := middleware.LogTo(slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})))
			observe := middleware.Observer(func(ctx context.Context, e middleware.Event) {
				log(ctx, e)
				e.Topology = nil
				show(e)
			})
			run := func(t *testing.T, rt http.RoundTripper, req *http.Request) {
				for name, value := range map[string]string{"Authorization": "type=master&sig=" + secret, "X-Ms-Session-Token": secret, "Idempotency-Key": secret, "Cookie": secret} {
					req.Header.Set(name, value)
				}
				req.URL.RawQuery, req.URL.User = "sig="+secret, url.UserPassword("u", secret)
				resp, err := rt.RoundTrip(req)
				if err != nil {
					var e *middleware.Error
					require.ErrorAs(t, err, &e)
					show(err.Error(), e.Report.String(), e.Outcome, e.Stop)
					fmt.Fprintf(&out, "%v %+v %s %q", err, err, err, err)
					for _, a := range e.Report.Attempts {
						a.Topology = nil
						fmt.Fprintf(&out, "%v %+v %v\n", a, a, a.Err)
					}
					require.False(t, errors.Is(err, middleware.ErrNoCredential))
					return
				}
				show(middleware.FromResponse(resp).Report().String())
				require.NoError(t, resp.Body.Close())
			}
			deadline := func(ctx context.Context) context.Context {
				ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
				_ = cancel // the bubble's end is later
				return ctx
			}
			overCosmos(t, true, roundtrippers.Builder{Observe: observe}, inOrder(step), func(t *testing.T, rt http.RoundTripper, _ func() []layertest.Send) {
				run(t, rt, operation("read").to(deadline(t.Context())))
				show(middleware.Describe(rt))
			})
			overScript(t, tuned{observe: observe}, []layertest.Step{step}, func(t *testing.T, r ready, _ *layertest.Script) {
				run(t, r.rt, r.request(deadline(t.Context()), http.MethodPut, strings.NewReader(secret)))
				show(middleware.Describe(r.rt))
			})
			text := out.String()
			require.Greater(t, len(text), 1000)
			for _, word := range []string{secret, accountKey} {
				if i := strings.Index(text, word); i >= 0 {
					t.Fatalf("...%s", text[max(0, i-300):min(len(text), i+50)])
				}
			}
		})
	}
}

// A map that names hosts of any kind: the ownership map is the service's own word, so
// its hosts are trusted, but nothing that is no host is taken for one.
func TestAHostileOwnershipMapIsRefused(t *testing.T) {
	for _, owner := range []string{
		"http://" + evil, evil + "/path", "user@" + evil, evil + "?q", evil + "#f", "a b", "a\r\nX-Evil: 1", "a\x00", "%65vil", evil + ":", evil + ":0", evil + ":99999",
		strings.Repeat("a", 300), "\u202eevil",
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newKV(t, roundtrippers.OwnershipBuilder{}, func(host string, _ *http.Request) layertest.Step {
				if host == "n1" {
					return says421("moved")
				}
				return fine
			})
			s.mapIs(ownedBy(2, owner), 0, nil)
			got, _ := s.send(t.Context())
			require.Equal(t, "moved", got.body, "%q", owner)
			for _, host := range s.script.Hosts() {
				require.Equal(t, "n1", host)
			}
			require.EqualValues(t, 1, s.owners.Map().Epoch, "%q: the old map stays", owner)
		})
	}
}
