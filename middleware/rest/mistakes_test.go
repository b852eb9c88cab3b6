package rest_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/middleware/layertest"
	"github.com/reroute-go/reroute/middleware/rest"
)

func TestABaseURLThatIsNoneIsShownWithoutItsCredential(t *testing.T) {
	for base, shown := range map[string]string{
		"":                                  "",
		"api.test/v1":                       "api.test/v1",
		"/v1?token=secret":                  "/v1...",
		"user:secret@api.test":              "...@api.test",
		"https://user:secret@%zz/?t=secret": "https://...@%zz/...",
		"https://":                          "https://",
	} {
		err := rest.API{Transport: layertest.NewScript(t), BaseURL: base}.Get(t.Context(), "/items", nil)
		var typed *rest.Error
		require.ErrorAs(t, err, &typed)
		require.Equal(t, rest.Invalid, typed.Kind)
		require.ErrorContains(t, err, `BaseURL is "`+shown+`", want an absolute URL`)
		require.NotContains(t, err.Error(), "secret")
	}
}

func TestATransportThatIsANilPointerIsNoPanic(t *testing.T) {
	api := rest.API{Transport: (*http.Transport)(nil), BaseURL: "https://api.test"}
	var typed *rest.Error
	err := api.Get(t.Context(), "/items", nil)
	require.ErrorAs(t, err, &typed)
	require.Equal(t, rest.Invalid, typed.Kind)
	require.ErrorContains(t, err, "Transport is a nil *http.Transport")

	body := &closed{Reader: strings.NewReader("x")}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://api.test", body)
	require.NoError(t, err)
	_, err = api.Do(req) //nolint:bodyclose // there is none
	require.ErrorContains(t, err, "Transport is a nil *http.Transport")
	require.True(t, body.closed)
}

type closed struct {
	*strings.Reader
	closed bool
}

func (c *closed) Close() error { c.closed = true; return nil }
