package roundtrippers_test

import (
	"crypto/sha256"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sony/gobreaker/v2"
	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/layertest"
	"github.com/reroute-go/reroute/middleware/rest"
	"github.com/reroute-go/reroute/roundtrippers"
)

// K01, request body replay.

func TestB01ABodyIsReplayedByteExactAndNeverALocalLengthError(t *testing.T) {
	text := repeated("0123456789abcdef ", 56_900)
	type seen struct {
		hash   [32]byte
		length int64
	}
	run := func(t *testing.T, rt http.RoundTripper, req *http.Request, attempts *[]seen) {
		req, body := oneShot(req, text)
		status, _, err := exactlyOne(t, rt, req)
		require.NoError(t, err)
		require.Equal(t, 201, status)
		require.Len(t, *attempts, 3)
		for _, a := range *attempts {
			require.Equal(t, seen{sha256.Sum256([]byte(text)), int64(len(text))}, a)
		}
		require.Equal(t, 1, body.Closes())
	}
	answer := func(attempts *[]seen) func(*http.Request) layertest.Step {
		steps := inOrder(apiSteps(503, 503, 201)...)
		return func(req *http.Request) layertest.Step {
			step := steps(req)
			*attempts = append(*attempts, seen{length: req.ContentLength})
			return step
		}
	}
	hashed := func(next http.RoundTripper, attempts *[]seen) http.RoundTripper { // what is on the wire, and how long it was said to be
		return middleware.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
			if req.Body == nil {
				return next.RoundTrip(req)
			}
			sum := sha256.New()
			copied := *req
			copied.Body = struct {
				io.Reader
				io.Closer
			}{io.TeeReader(req.Body, sum), req.Body}
			resp, err := next.RoundTrip(&copied)
			sum.Sum((*attempts)[len(*attempts)-1].hash[:0])
			return resp, err
		})
	}
	var attempts []seen
	inReady(t, tuned{}, func(t *testing.T) http.RoundTripper {
		attempts = nil
		return hashed(layertest.NewServer(t, answer(&attempts)), &attempts)
	}, func(t *testing.T, r ready) { run(t, r.rt, r.request(t.Context(), http.MethodPut, nil), &attempts) })
	t.Run("Cosmos", func(t *testing.T) {
		attempts = nil
		synctest.Test(t, func(t *testing.T) {
			account, script := openAccount(t, true, answer(&attempts))
			rt, err := roundtrippers.Builder{Dialect: account, Regions: account.Regions, Base: hashed(script, &attempts)}.Build()
			require.NoError(t, err)
			run(t, rt, operation("replace").to(t.Context()), &attempts)
		})
	})
	t.Run("over the limit", func(t *testing.T) {
		overScript(t, tuned{maxReplay: 1000}, apiSteps(503, 201), func(t *testing.T, r ready, script *layertest.Script) {
			req, body := oneShot(r.request(t.Context(), http.MethodPut, nil), text)
			status, said, err := exactlyOne(t, r.rt, req)
			require.NoError(t, err)
			require.Equal(t, 503, status)
			require.Equal(t, "body of 503", said, "whole")
			require.Len(t, script.Sends(), 1)
			require.Equal(t, text, script.Sends()[0].Body)
			require.Equal(t, 1, body.Closes())
		})
	})
}

func TestB02ReplayHoldsUnderEveryLayerOrder(t *testing.T) {
	text := repeated("body ", 1024)
	r := registry(t, false)
	names := []string{"retry", "timeout", "auth", "region", "key"}
	list := []func() middleware.Layer{
		func() middleware.Layer { return roundtrippers.Failover{Dialect: words{}, Regions: r} },
		func() middleware.Layer { return roundtrippers.AttemptTimeout{After: 100 * time.Millisecond} },
		func() middleware.Layer {
			return &roundtrippers.Auth{Dialect: words{}, Source: (&tokenSource{}).next, Origins: []string{"http://a.test", "http://b.test"}}
		},
		func() middleware.Layer { return roundtrippers.Route{Dialect: words{}, Regions: r} },
		func() middleware.Layer { return roundtrippers.IdempotencyKey{} },
	}
	for _, order := range permutations(len(list)) {
		var layers []middleware.Layer
		var name []string
		for _, i := range order {
			layers, name = append(layers, list[i]()), append(name, names[i])
		}
		synctest.Test(t, func(t *testing.T) {
			script := layertest.NewScript(t, layertest.Step{Hang: true}, fine)
			ctx, cancel := contextFor(t, time.Second)
			defer cancel()
			req := ask(ctx, http.MethodPut)
			withBody, err := http.NewRequestWithContext(ctx, http.MethodPut, req.URL.String(), strings.NewReader(text))
			require.NoError(t, err)
			got := tell(t, layered(t, script, layers...), withBody)
			for _, send := range script.Sends() {
				require.Equal(t, text, send.Body, name)
			}
			if slices.Index(order, 0) < slices.Index(order, 1) {
				require.Equal(t, "fine", got.body, name)
				require.Len(t, script.Sends(), 2)
			} else {
				require.ErrorIs(t, got.err, middleware.ErrAttemptTimeout, "%s: nobody is above who could send again", name)
			}
		})
	}
	overScript(t, tuned{attemptTimeout: 100 * time.Millisecond}, []layertest.Step{{Hang: true}, fine}, func(t *testing.T, r ready, script *layertest.Script) {
		status, _, err := exactlyOne(t, r.rt, r.request(t.Context(), http.MethodPut, strings.NewReader(text)))
		require.NoError(t, err)
		require.Equal(t, 200, status)
		require.Len(t, script.Sends(), 2)
		require.Equal(t, text, script.Sends()[1].Body)
	})
}

// failingBody fails with the caller's own error at its first Read.
type failingBody struct{}

func (failingBody) Read([]byte) (int, error) { return 0, errBoom }
func (failingBody) Close() error             { return nil }

func TestB04RealABodySourcesErrorIsFinalAndNotTheServersFailure(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body)
	}))
	defer server.Close()
	circuit := &roundtrippers.Circuit{Threshold: 1}
	base := &http.Transport{}
	defer base.CloseIdleConnections()
	rt, err := roundtrippers.APIBuilder{Dialect: rest.Dialect{}, Circuit: circuit, RetryBudget: &roundtrippers.RetryBudget{}, Base: base}.Build()
	require.NoError(t, err)
	ctx := essentially(t.Context())
	for range 3 { // the connection is one that was used before
		status, _, err := exactlyOne(t, rt, get(ctx, server.URL))
		require.NoError(t, err)
		require.Equal(t, 200, status)
		req, err := http.NewRequestWithContext(ctx, http.MethodPut, server.URL, failingBody{})
		require.NoError(t, err)
		req.ContentLength = 10
		got := tell(t, rt, req)
		require.ErrorIs(t, got.err, errBoom)
		require.Equal(t, 1, got.Sends)
		require.Empty(t, got.Charges)
	}
	state, _ := circuit.State()
	require.Equal(t, gobreaker.StateClosed, state)

	w := newWorld(t, setup{})
	w.item()
	req := w.request(t.Context(), http.MethodPost, items, failingBody{})
	req.ContentLength = 10
	r := w.do(req)
	require.ErrorIs(t, r.err, errBoom)
	require.Equal(t, 1, r.report.Sends)
	require.Empty(t, w.marked())
	require.Empty(t, r.report.Charges)
}

func TestB05ReplayBufferingIsBoundedAndOverTheBoundMeansNoRetry(t *testing.T) {
	const limit, huge = 1 << 20, 256 << 20
	for _, c := range []struct {
		name    string
		size    int64
		getBody bool
		want    int
		sends   int
	}{{"from a pipe", huge, false, 503, 1}, {"small from a pipe", limit / 2, false, 200, 2}, {"with GetBody", huge, true, 200, 2}} {
		t.Run(c.name, func(t *testing.T) {
			sends := 0
			base := func(t *testing.T) http.RoundTripper {
				sends = 0
				return middleware.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
					n, err := io.Copy(io.Discard, req.Body)
					_ = req.Body.Close()
					require.NoError(t, err)
					require.Equal(t, c.size, n)
					sends++
					code := 503
					if sends == 2 {
						code = 200
					}
					return &http.Response{StatusCode: code, Body: http.NoBody, Header: http.Header{}}, nil
				})
			}
			inReady(t, tuned{maxReplay: limit}, base, func(t *testing.T, r ready) {
				req := r.request(t.Context(), http.MethodPut, nil)
				open := func() (io.ReadCloser, error) { return io.NopCloser(io.LimitReader(zeros{}, c.size)), nil }
				req.Body, _ = open()
				req.ContentLength = -1
				if c.getBody {
					req.GetBody = open
				}
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				status, _, err := exactlyOne(t, r.rt, req)
				runtime.ReadMemStats(&after)
				require.NoError(t, err)
				require.Equal(t, c.want, status)
				require.Equal(t, c.sends, sends)
				most := uint64(8 << 20) // doubling up to the limit, twice over
				if c.getBody {
					most = 1 << 20
				}
				require.Less(t, after.TotalAlloc-before.TotalAlloc, most)
			})
		})
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

func TestB06LayersPreserveGetBodyAndContentLength(t *testing.T) { // against a real HTTP/2 server that says GOAWAY: TestRealHTTP2GracefulShutdownReplaysThroughUs
	const text = "text"
	var mu sync.Mutex
	var bodies []*layertest.Body
	open := func() (io.ReadCloser, error) {
		mu.Lock()
		defer mu.Unlock()
		bodies = append(bodies, layertest.NewBody(text))
		return bodies[len(bodies)-1], nil
	}
	check := func(t *testing.T, req *http.Request) layertest.Step {
		require.NotNil(t, req.GetBody)
		require.EqualValues(t, len(text), req.ContentLength)
		for range 2 {
			again, err := req.GetBody()
			require.NoError(t, err)
			said, err := io.ReadAll(again)
			require.NoError(t, err)
			require.NoError(t, again.Close())
			require.Equal(t, text, string(said))
		}
		return apiSteps(503)[0]
	}
	run := func(t *testing.T, rt http.RoundTripper, req *http.Request, sends int) {
		bodies = nil
		req.Body, _ = open()
		req.GetBody, req.ContentLength = open, int64(len(text))
		got := tell(t, rt, req)
		require.Equal(t, sends, got.Sends)
		for i, b := range bodies {
			require.Equal(t, 1, b.Closes(), "body %d of %d", i+1, len(bodies))
		}
	}
	inReady(t, tuned{attemptTimeout: time.Second}, func(t *testing.T) http.RoundTripper {
		return layertest.NewServer(t, func(req *http.Request) layertest.Step { return check(t, req) })
	}, func(t *testing.T, r ready) { run(t, r.rt, r.request(t.Context(), http.MethodPut, nil), 3) })
	overCosmos(t, true, roundtrippers.Builder{AttemptTimeout: time.Second}, func(req *http.Request) layertest.Step { return check(t, req) },
		func(t *testing.T, rt http.RoundTripper, _ func() []layertest.Send) {
			run(t, rt, operation("replace").to(t.Context()), 4)
		})
}

// K02, disposal of answers that are not returned.

func TestB07RealAnAnswerThatIsNotReturnedIsClosedBeforeTheNextAttempt(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			server := httptest.NewUnstartedServer(nil)
			var calls atomic.Int64
			server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if calls.Add(1) < 3 {
					w.WriteHeader(503)
					_, _ = io.WriteString(w, repeated("sorry ", 2048))
					return
				}
				_, _ = io.WriteString(w, "here")
			})
			dials := countDials(server)
			defer server.Close()
			base := &http.Transport{MaxConnsPerHost: 1}
			defer base.CloseIdleConnections()
			var open []*watched
			watching := middleware.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
				for i, b := range open {
					require.True(t, b.closed, "answer %d, when attempt %d starts", i+1, len(open)+1)
				}
				resp, err := base.RoundTrip(req)
				if err == nil {
					open = append(open, &watched{ReadCloser: resp.Body})
					resp.Body = open[len(open)-1]
				}
				return resp, err
			})
			r := makeReady(t, kind, watching, server.Listener.Addr().String(), tuned{})
			resp, err := r.rt.RoundTrip(r.request(t.Context(), http.MethodGet, nil))
			require.NoError(t, err)
			require.Len(t, open, 3)
			require.False(t, open[2].closed, "the last is the caller's")
			text, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			require.Equal(t, "here", string(text))
			require.EqualValues(t, 1, dials.Load())
		})
	}
}

type watched struct {
	io.ReadCloser
	closed bool
}

func (w *watched) Close() error {
	w.closed = true
	return w.ReadCloser.Close()
}

// countDials counts the connections that a server gets.
func countDials(server *httptest.Server) *atomic.Int64 {
	dials := new(atomic.Int64)
	server.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			dials.Add(1)
		}
	}
	server.Start()
	return dials
}
