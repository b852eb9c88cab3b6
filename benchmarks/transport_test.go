// Package benchmarks measures what reroute costs, as ratios within one run.
package benchmarks

import (
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// terminal is the base of all benchmarks: it consumes the body and answers 200
// with 37 bytes, like the terminal that the peers are measured with.
type terminal struct{}

const answerBody = `{"id":"a","pk":"p1","value":12345678}`

func (terminal) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		_, _ = io.Copy(io.Discard, req.Body)
		_ = req.Body.Close()
	}
	return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(answerBody)),
		ContentLength: int64(len(answerBody)), Request: req}, nil
}

// floor is what any re-hosting RoundTripper must do, written by hand: a shallow
// copy of the request and of its URL.
type floor struct{ next http.RoundTripper }

func (f floor) RoundTrip(req *http.Request) (*http.Response, error) {
	r := *req
	u := *req.URL
	u.Host = "account-westus.documents.example"
	r.URL, r.Host = &u, u.Host
	return f.next.RoundTrip(&r)
}

func itemRead(tb testing.TB) *http.Request {
	u, err := url.Parse("https://account.documents.example/dbs/db/colls/c/docs/a")
	require.NoError(tb, err)
	return &http.Request{Method: http.MethodGet, URL: u, Host: u.Host, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{
		"Authorization":                         {"type%3Dmaster%26ver%3D1.0%26sig%3Dredacted"},
		"User-Agent":                            {"azsdk-go-azcosmos/v1.5.0"},
		"X-Ms-Activity-Id":                      {"e9d47935-8ba7-4035-7064-4b5c4c69c26a"},
		"X-Ms-Cosmos-Sdk-Supportedcapabilities": {"1"},
		"X-Ms-Date":                             {"Sun, 29 Nov 2026 18:26:49 GMT"},
		"X-Ms-Documentdb-Partitionkey":          {`["p1"]`},
		"X-Ms-Version":                          {"2020-11-05"},
		"Accept":                                {"application/json"},
	}}
}

// drive sends req through rt once an iteration, as a client would.
func drive(b *testing.B, rt http.RoundTripper, req *http.Request) {
	b.ReportAllocs()
	for b.Loop() {
		resp, err := rt.RoundTrip(req)
		if err != nil {
			b.Fatal(err)
		}
		_ = resp.Body.Close()
	}
}

func BenchmarkBare(b *testing.B)  { drive(b, terminal{}, itemRead(b)) }
func BenchmarkFloor(b *testing.B) { drive(b, floor{terminal{}}, itemRead(b)) }
