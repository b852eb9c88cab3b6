package cosmostest

import (
	"errors"
	"io"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheAccountSpeaksTLSAndHTTP2(t *testing.T) {
	for name, cfg := range map[string]Config{"TLS": {TLS: true}, "TLS and HTTP2": {TLS: true, HTTP2: true}, "HTTP2": {HTTP2: true}} {
		t.Run(name, func(t *testing.T) {
			inBoth(t, cfg, func(t *testing.T, c *client) {
				c.CreateContainer("db", "c", Container{})
				require.Equal(t, cfg.TLS, strings.HasPrefix(c.Endpoint(), "https://"))
				require.Equal(t, 201, c.item(west, "POST", "", `{"id":"a","pk":"p"}`).status)
				require.Equal(t, 200, c.item(east, "GET", "a", "").status)

				for _, broken := range []Answer{{Refuse: true}, {Reset: true}, {CutAfter: 3}, {CutAfter: 3, Reset: true}, {CutHeader: true}} {
					h := c.AddFault(Fault{Answer: broken})
					_, err := c.try(west, "GET", "/dbs", "")
					require.Error(t, err, "%+v", broken)
					if !cfg.HTTP2 && broken.Reset && !broken.cuts() {
						require.ErrorIs(t, err, syscall.ECONNRESET)
					}
					if !cfg.HTTP2 && broken.Refuse {
						require.True(t, errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF), "%v", err)
					}
					h.Remove()
					require.Equal(t, 200, c.do(west, "GET", "/dbs", "").status)
				}
				c.SetOffline(west, Refused)
				_, err := c.try(west, "GET", "/dbs", "")
				require.Error(t, err)
				c.SetOnline(west)
				require.Equal(t, 200, c.do(west, "GET", "/dbs", "").status)
			})
		})
	}
}
