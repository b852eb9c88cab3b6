package roundtrippers_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/idempotency"
	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/layertest"
	"github.com/reroute-go/reroute/middleware/rest"
	"github.com/reroute-go/reroute/roundtrippers"
)

func keyed(b *roundtrippers.APIBuilder) { b.IdempotencyKey = &roundtrippers.IdempotencyKey{} }

// write sends a body with a method and returns the report and the status.
func (c *apiClient) write(ctx context.Context, method, body string, header ...string) (middleware.Report, int, error) {
	req, err := http.NewRequestWithContext(ctx, method, "https://api.test/rows", strings.NewReader(body))
	require.NoError(c.t, err)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := c.rt.RoundTrip(req)
	if err != nil {
		var typed *middleware.Error
		require.ErrorAs(c.t, err, &typed)
		return typed.Report, 0, err
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	return middleware.FromResponse(resp).Report(), resp.StatusCode, nil
}

func (c *apiClient) keys() (keys []string) {
	for _, send := range c.script.Sends() {
		keys = append(keys, strings.Join(send.Header.Values(idempotency.Key), "|"))
	}
	return keys
}

func TestWrites(t *testing.T) {
	reset := layertest.Step{Err: errReset}
	playAll(t, []scenario{
		{"V127 V134 one key on every send, body and headers the same", keyed, apiSteps(503, 503, 201), func(t *testing.T, c *apiClient) {
			_, status, err := c.write(essentially(t.Context()), http.MethodPost, `{"n":1}`, "X-Trace", "7")
			require.NoError(t, err)
			require.Equal(t, 201, status)
			sends := c.script.Sends()
			require.Len(t, sends, 3)
			require.NotEmpty(t, c.keys()[0])
			for _, send := range sends {
				require.Equal(t, sends[0].Header, send.Header)
				require.Equal(t, `{"n":1}`, send.Body)
			}
		}},
		{"V129 two writes have two keys, a stored key stays", keyed, nil, func(t *testing.T, c *apiClient) {
			for range 2 {
				_, _, err := c.write(t.Context(), http.MethodPost, "x")
				require.NoError(t, err)
			}
			_, _, err := c.write(t.Context(), http.MethodPost, "x", idempotency.Key, "stored-1")
			require.NoError(t, err)
			require.NotEqual(t, c.keys()[0], c.keys()[1])
			require.Equal(t, "stored-1", c.keys()[2])
		}},
		{"only writes that must not be repeated get one", keyed, nil, func(t *testing.T, c *apiClient) {
			for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodDelete} {
				_, _, err := c.write(t.Context(), method, "x")
				require.NoError(t, err)
			}
			_, _, err := c.write(t.Context(), http.MethodPatch, "x", "If-Match", `"7"`)
			require.NoError(t, err)
			_, _, err = c.write(middleware.WithIdempotency(t.Context(), idempotency.Safe), http.MethodPost, "a query")
			require.NoError(t, err)
			require.Equal(t, []string{"", "", "", "", ""}, c.keys())
		}},
		{"stacked below the loop it still is one key", func(b *roundtrippers.APIBuilder) {
			b.NoGuard, b.PerAttempt = true, []middleware.Layer{roundtrippers.IdempotencyKey{}}
		}, apiSteps(503, 201), func(t *testing.T, c *apiClient) {
			_, _, err := c.write(essentially(t.Context()), http.MethodPost, "x")
			require.NoError(t, err)
			require.Equal(t, c.keys()[0], c.keys()[1])
		}},
		{"V131 a write in doubt without a key is not sent again", nil, []layertest.Step{reset}, func(t *testing.T, c *apiClient) {
			r, _, err := c.write(essentially(t.Context()), http.MethodPost, "x")
			require.ErrorIs(t, err, errReset)
			require.ErrorIs(t, err, middleware.ErrNotRepeatable)
			require.True(t, r.InDoubt)
			require.Equal(t, 1, c.sends())
		}},
		{"V131 with a key it is", keyed, []layertest.Step{reset, {Status: 201}}, func(t *testing.T, c *apiClient) {
			_, status, _ := c.write(essentially(t.Context()), http.MethodPost, "x")
			require.Equal(t, 201, status)
		}},
		{"V131 A16 and as the seed does, if asked to", func(b *roundtrippers.APIBuilder) { b.NoGuard = true }, []layertest.Step{reset, {Status: 201}}, func(t *testing.T, c *apiClient) {
			_, status, _ := c.write(essentially(t.Context()), http.MethodPost, "x")
			require.Equal(t, 201, status)
		}},
		{"a throttled write was not carried out", nil, apiSteps(429, 201), func(t *testing.T, c *apiClient) {
			_, status, _ := c.write(essentially(t.Context()), http.MethodPost, "x")
			require.Equal(t, 201, status)
		}},
		{"V132 a 409 under a key is an answer", keyed, apiSteps(409), func(t *testing.T, c *apiClient) {
			_, status, _ := c.write(essentially(t.Context()), http.MethodPost, "x")
			require.Equal(t, 409, status)
			require.Equal(t, 1, c.sends())
		}},
		{"V132 unless the dialect says that it means in progress", func(b *roundtrippers.APIBuilder) {
			keyed(b)
			b.Dialect = rest.Dialect{RetryConflict: true}
		}, apiSteps(409, 201, 409), func(t *testing.T, c *apiClient) {
			_, status, _ := c.write(essentially(t.Context()), http.MethodPost, "x")
			require.Equal(t, 201, status)
			_, status, _ = c.write(essentially(t.Context()), http.MethodPut, "no key") // here it is a conflict
			require.Equal(t, 409, status)
		}},
		{"V133 a 422 is final", keyed, apiSteps(422), func(t *testing.T, c *apiClient) {
			_, status, _ := c.write(essentially(t.Context()), http.MethodPost, "x")
			require.Equal(t, 422, status)
			require.Equal(t, 1, c.sends())
		}},
		{"R29 a GetBody that fails leaves the answer in hand", keyed, apiSteps(503, 200), func(t *testing.T, c *apiClient) {
			req, err := http.NewRequestWithContext(essentially(t.Context()), http.MethodPost, "https://api.test/", strings.NewReader("x"))
			require.NoError(t, err)
			req.GetBody = func() (io.ReadCloser, error) { return nil, errTrouble }
			resp, err := c.rt.RoundTrip(req)
			require.NoError(t, err)
			require.Equal(t, 503, resp.StatusCode)
			require.NoError(t, resp.Body.Close())
			require.Equal(t, middleware.NotReplayable, middleware.FromResponse(resp).Report().Stop)
		}},
		{"X05 nor is a stream beyond what is kept sent twice", func(b *roundtrippers.APIBuilder) { keyed(b); b.MaxReplayBytes = -1 }, apiSteps(503, 200), func(t *testing.T, c *apiClient) {
			req, err := http.NewRequestWithContext(essentially(t.Context()), http.MethodPost, "https://api.test/", io.NopCloser(strings.NewReader("x")))
			require.NoError(t, err)
			resp, err := c.rt.RoundTrip(req)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			require.Equal(t, 503, resp.StatusCode)
			require.Equal(t, middleware.NotReplayable, middleware.FromResponse(resp).Report().Stop)
		}},
	})
}

func TestAKeyIsNeverWrittenIntoTheCallersRequestX03(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := apiOver(t, func(b *roundtrippers.APIBuilder) {
			keyed(b)
			withAuth(&tokenSource{})(b)
		}, apiSteps(503, 401, 201)...)
		req, err := http.NewRequestWithContext(essentially(t.Context()), http.MethodPost, "https://api.test/rows?a=1", strings.NewReader("x"))
		require.NoError(t, err)
		req.Header.Set("X-Mine", "1")
		before, body := req.Header.Clone(), req.Body
		resp, err := c.rt.RoundTrip(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, before, req.Header)
		require.Equal(t, "https://api.test/rows?a=1", req.URL.String())
		require.True(t, body == req.Body)
		require.Equal(t, 3, c.sends())
	})
}

func TestKeysOfTheCallersMakingAreChecked(t *testing.T) {
	for name, key := range map[string]string{"empty": "", "long": strings.Repeat("k", 256), "split": "a\r\nX-Evil: 1", "spaced": "a b"} {
		c := apiOver(t, func(b *roundtrippers.APIBuilder) {
			b.IdempotencyKey = &roundtrippers.IdempotencyKey{New: func() string { return key }}
		})
		_, _, err := c.write(t.Context(), http.MethodPost, "x")
		require.ErrorContains(t, err, "IdempotencyKey.New", name)
		require.Zero(t, c.sends())
	}
}

func TestRequestBodiesAreClosedOnEveryPathX04(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &tokenSource{}
		c := apiOver(t, func(b *roundtrippers.APIBuilder) {
			withAuth(s)(b)
			b.RateLimit = &roundtrippers.RateLimit{PerSecond: 1}
			b.Circuit.Threshold = 1
		}, apiSteps(503)...)
		closed := func(ctx context.Context) error {
			body := layertest.NewBody("x")
			req, err := http.NewRequestWithContext(ctx, http.MethodPut, "https://api.test/", body)
			require.NoError(t, err)
			resp, err := c.rt.RoundTrip(req)
			if err == nil {
				_ = resp.Body.Close()
			}
			synctest.Wait()
			require.Equal(t, 1, body.Closes())
			return err
		}
		s.fails.Store(true)
		require.ErrorIs(t, closed(t.Context()), middleware.ErrNoCredential)
		s.fails.Store(false)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, closed(ctx), context.Canceled)
		require.NoError(t, closed(t.Context())) // opens
		require.ErrorIs(t, closed(t.Context()), middleware.ErrCircuitOpen)
		time.Sleep(5 * time.Second)
		short, cancel := context.WithTimeout(essentially(t.Context()), time.Second)
		defer cancel()
		err := closed(short)
		require.True(t, errors.Is(err, context.DeadlineExceeded) || err == nil, err)
	})
}
