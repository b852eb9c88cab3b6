package middleware_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/layertest"
)

// An http.Client below quotes its URLs, queries and passwords included.
func TestWhatObserversAndReportsAreGivenShowsNoCredentialOfAURL(t *testing.T) {
	for _, whole := range []string{"https://service.test/path?sig=secret", "https://user:secret@service.test/", "https://service.test/%zz?sig=secret"} {
		raw := &url.Error{Op: "Get", URL: whole, Err: errBoom}
		for _, below := range []error{raw, fmt.Errorf("below: %w", raw), errors.Join(errBoom, raw)} {
			var seen events
			rt := stack(t, layertest.NewScript(t, layertest.Step{Err: below}), seen.observer(), again{})
			err := failed(t, rt, get(t.Context()))
			var shown []any
			found := 0
			for _, e := range seen.list {
				shown = append(shown, e, e.Err)
				if e.Err != nil {
					require.ErrorIs(t, e.Err, errBoom)
					found++
				}
			}
			require.Positive(t, found)
			for _, a := range err.Report.Attempts {
				shown = append(shown, a, a.Err)
				require.ErrorIs(t, a.Err, below)
			}
			for _, v := range append(shown, err, *err, err.Err) {
				for _, verb := range []string{"%v", "%+v", "%s", "%q"} {
					require.NotContains(t, fmt.Sprintf(verb, v), "secret", "%T", v)
				}
				text, _ := json.Marshal(v)
				require.NotContains(t, string(text), "secret", "%T", v)
			}
			var u *url.Error
			require.ErrorAs(t, err, &u)
			require.Equal(t, raw, u, "and the error itself is found")
		}
	}
	plain := failed(t, stack(t, layertest.NewScript(t, layertest.Step{Err: errBoom})), get(t.Context()))
	require.True(t, plain.Err == errBoom, "what quotes nothing stays as it is")
	require.Nil(t, middleware.Redact(nil))
}

// url.Parse quotes what it takes for a port, and that may be a password.
func TestNoErrorOfURLParseShowsAPassword(t *testing.T) {
	for _, text := range []string{"https://me:secret", "https://me:x]secret/v1", "https://[me:secret]", "//me:secret"} {
		_, err := url.Parse(text)
		require.Error(t, err)
		err = middleware.Redact(fmt.Errorf("token: %w", err))
		require.NotContains(t, err.Error(), "secret")
		require.ErrorContains(t, err, "invalid ")
	}
}
