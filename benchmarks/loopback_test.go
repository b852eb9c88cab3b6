package benchmarks

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/benchmarks/internal/workload"
)

// BenchmarkLoopbackSocket puts the stacks over net/http and a real server, to see
// how much of an exchange they are.
func BenchmarkLoopbackSocket(b *testing.B) {
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body)
		_, _ = io.WriteString(rw, `{"id":"a","pk":"p1","value":12345678}`)
	}))
	b.Cleanup(server.Close)
	// All hosts are the server, which speaks in the clear whatever the scheme says.
	dial := func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, server.Listener.Addr().String())
	}
	transport := &http.Transport{DialContext: dial, DialTLSContext: dial, MaxIdleConnsPerHost: 100}
	b.Cleanup(transport.CloseIdleConnections)

	api, err := workload.API(transport)
	require.NoError(b, err)
	owners, err := workload.Ownership(transport)
	require.NoError(b, err)
	for _, s := range []struct {
		name string
		rt   http.RoundTripper
	}{
		{"bare", transport},
		{"Cosmos", cosmosStack(b, 10_000, transport)},
		{"Ownership", owners},
		{"API", api},
	} {
		b.Run(s.name, func(b *testing.B) { everyWay(b, s.rt) })
	}
}
