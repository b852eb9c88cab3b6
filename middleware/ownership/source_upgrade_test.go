package ownership_test

import (
	"errors"
	"net"
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/ownership"
)

// net/http leaves an upgraded connection to whoever reads it, for ever: no context ends that.
func TestAnUpgradeThatNobodyAskedForHoldsNoFetch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		silent, body := net.Pipe()
		defer silent.Close()
		source := &ownership.HTTPSource{URL: "http://map.test", Client: &http.Client{
			Transport: middleware.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: http.StatusSwitchingProtocols, Header: http.Header{}, Body: body, Request: req}, nil
			}),
		}}
		_, err := source.Fetch(t.Context(), nil)
		var failed *ownership.FetchError
		require.True(t, errors.As(err, &failed))
		require.Equal(t, http.StatusSwitchingProtocols, failed.Status)
	})
}
