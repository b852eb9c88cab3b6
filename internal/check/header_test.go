package check_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/internal/check"
)

// net/http itself is the judge, asked over a connection that cannot be had.
func TestAHeaderIsValidWhereNetHTTPWouldSendIt(t *testing.T) {
	sends := func(h http.Header) bool {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://a.test", nil)
		require.NoError(t, err)
		req.Header = h
		dialed := false
		base := &http.Transport{DialContext: noDial(&dialed)}
		resp, err := base.RoundTrip(req)
		require.Nil(t, resp)
		require.Error(t, err)
		return dialed
	}
	for _, name := range []string{"X-A", "x", "!#$%&'*+-.^_`|~", "", " ", "a b", "a:", "a\n", "ä", "(a)", "a\x7f", "Bad header"} {
		require.Equal(t, sends(http.Header{name: {"x"}}), check.HeaderName(name), "%q", name)
	}
	for _, value := range []string{"", "Bearer abc", "a\tb", "ä", "a\nb", "a\r", "\x00", "\x7f"} {
		require.Equal(t, sends(http.Header{"X": {value}}), check.HeaderValue(value), "%q", value)
	}
}

func noDial(dialed *bool) func(context.Context, string, string) (net.Conn, error) {
	return func(context.Context, string, string) (net.Conn, error) {
		*dialed = true
		return nil, errors.New("no network")
	}
}
