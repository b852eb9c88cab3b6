package middleware_test

import (
	"context"
	"net"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/middleware"
)

// net/http itself is the judge, asked over a connection that cannot be had.
func TestAHeaderIsValidWhereNetHTTPWouldSendIt(t *testing.T) {
	sends := func(h http.Header) bool {
		req := get(t.Context())
		req.Header = h
		dialed := false
		base := &http.Transport{DialContext: noDial(&dialed)}
		resp, err := base.RoundTrip(req)
		require.Nil(t, resp)
		require.Error(t, err)
		return dialed
	}
	for _, name := range []string{"X-A", "x", "!#$%&'*+-.^_`|~", "", " ", "a b", "a:", "a\n", "ä", "(a)", "a\x7f", "Bad header"} {
		require.Equal(t, sends(http.Header{name: {"x"}}), middleware.ValidHeaderName(name), "%q", name)
	}
	for _, value := range []string{"", "Bearer abc", "a\tb", "ä", "a\nb", "a\r", "\x00", "\x7f"} {
		require.Equal(t, sends(http.Header{"X": {value}}), middleware.ValidHeaderValue(value), "%q", value)
	}
}

func noDial(dialed *bool) func(context.Context, string, string) (net.Conn, error) {
	return func(context.Context, string, string) (net.Conn, error) {
		*dialed = true
		return nil, errBoom
	}
}
