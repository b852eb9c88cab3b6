package benchmarks

import (
	"context"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/cosmos"
	"github.com/reroute-go/reroute/roundtrippers"
)

// service answers an account's own reads (document, container, ranges) and hands
// everything else to the terminal.
type service struct {
	terminal
	ranges string
}

func newService(ranges int) *service {
	var b strings.Builder
	b.WriteString(`{"PartitionKeyRanges":[`)
	space := new(big.Int).Lsh(big.NewInt(1), 126) // hashes of version 2 have 126 bits
	bound := func(i int) string {
		switch i {
		case 0:
			return ""
		case ranges:
			return "FF"
		}
		at := new(big.Int).Mul(space, big.NewInt(int64(i)))
		return fmt.Sprintf("%032X", at.Div(at, big.NewInt(int64(ranges))))
	}
	for i := range ranges {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"id":"%d","minInclusive":%q,"maxExclusive":%q}`, i, bound(i), bound(i+1))
	}
	b.WriteString(`]}`)
	return &service{ranges: b.String()}
}

func (s *service) RoundTrip(req *http.Request) (*http.Response, error) {
	answer := func(status int, body string) (*http.Response, error) {
		return &http.Response{StatusCode: status, Header: http.Header{"Etag": {`"1"`}}, Body: io.NopCloser(strings.NewReader(body)), Request: req}, nil
	}
	switch {
	case req.URL.Path == "/":
		return answer(200, `{"id":"acct","writableLocations":[{"name":"West US","databaseAccountEndpoint":"https://account-westus.documents.example/"}],`+
			`"readableLocations":[{"name":"West US","databaseAccountEndpoint":"https://account-westus.documents.example/"},`+
			`{"name":"East US","databaseAccountEndpoint":"https://account-eastus.documents.example/"}]}`)
	case strings.HasSuffix(req.URL.Path, "/colls/c"):
		return answer(200, `{"_rid":"OVJwAOcMtA0=","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2}}`)
	case strings.HasSuffix(req.URL.Path, "/pkranges"):
		if req.Header.Get("If-None-Match") != "" {
			return answer(304, "")
		}
		return answer(200, s.ranges)
	}
	return s.terminal.RoundTrip(req)
}

const benchKey = "bm90IGEgc2VjcmV0LCBqdXN0IGEgdGVzdCBrZXk="

func openAccount(tb testing.TB, ranges int) (*cosmos.Account, http.RoundTripper) {
	base := newService(ranges)
	account, err := cosmos.Open(context.Background(), "https://account.documents.example", cosmos.SharedKey(benchKey), cosmos.Options{Transport: base})
	require.NoError(tb, err)
	tb.Cleanup(account.Close)
	return account, base
}

// fullStack is the standard Cosmos DB stack, warm: the partition is known.
func fullStack(tb testing.TB, ranges int) http.RoundTripper {
	account, base := openAccount(tb, ranges)
	rt, err := roundtrippers.Builder{Dialect: account, Regions: account.Regions, Partitions: account.Partitions, Base: base}.Build()
	require.NoError(tb, err)
	resp, err := rt.RoundTrip(itemRead(tb))
	require.NoError(tb, err)
	require.NotEmpty(tb, middleware.FromResponse(resp).Target().Range)
	require.NoError(tb, resp.Body.Close())
	return rt
}

func BenchmarkFullStackGET(b *testing.B) { drive(b, fullStack(b, 10_000), itemRead(b)) }

// BenchmarkFullStackGETStamped is the same for a request that carries the stamped
// header already.
func BenchmarkFullStackGETStamped(b *testing.B) {
	req := itemRead(b)
	req.Header.Set("X-Ms-Noretry-449", "true")
	drive(b, fullStack(b, 10_000), req)
}
