package roundtrippers_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/cosmos"
	"github.com/reroute-go/reroute/partitions"
	"github.com/reroute-go/reroute/regions"
	"github.com/reroute-go/reroute/roundtrippers"
)

// paper is an account without a network: three regions, and a container of four ranges.
type paper struct{ flags string }

func (p paper) RoundTrip(req *http.Request) (*http.Response, error) {
	const host = "acct.documents.example"
	location := func(region string) string {
		return fmt.Sprintf(`{"name":%q,"databaseAccountEndpoint":"https://acct-%s.documents.example:443/"}`, region, region)
	}
	status, body := 200, ""
	switch {
	case req.URL.Path == "/" && req.URL.Hostname() == host:
		body = fmt.Sprintf(`{"id":"acct","writableLocations":[%s],"readableLocations":[%[1]s,%s,%s]%s}`, location("west"), location("east"), location("north"), p.flags)
	case strings.HasSuffix(req.URL.Path, "/pkranges") && req.Header.Get("If-None-Match") != "":
		status = 304
	case strings.HasSuffix(req.URL.Path, "/pkranges"):
		var ranges []string
		bounds := []string{"", "10", "20", "30", "FF"}
		for i := range 4 {
			ranges = append(ranges, fmt.Sprintf(`{"id":"%d","minInclusive":%q,"maxExclusive":%q}`, i, bounds[i], bounds[i+1]))
		}
		body = `{"PartitionKeyRanges":[` + strings.Join(ranges, ",") + `]}`
	default:
		body = `{"id":"c","_rid":"rid==","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2}}`
	}
	return &http.Response{StatusCode: status, Header: http.Header{"Etag": {`"e"`}}, Body: io.NopCloser(strings.NewReader(body)), Request: req}, nil
}

func paperAccount(t *testing.T, flags string) *cosmos.Account {
	t.Helper()
	a, err := cosmos.Open(t.Context(), "https://acct.documents.example/", cosmos.SharedKey("a2V5"), cosmos.Options{Transport: paper{flags: flags}})
	require.NoError(t, err)
	t.Cleanup(a.Close)
	return a
}

// served is the base: it answers as the range of the key does.
var served = middleware.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: 200, Body: http.NoBody, Header: http.Header{}, Request: req}, nil
})

func TestHealthOfPartitionsAllocatesNothingForHealthyTraffic(t *testing.T) { // issue 3, Done-when 6
	for name, row := range map[string]struct {
		flags, method string
	}{
		"reads of one write region":    {"", http.MethodGet},
		"writes of several":            {`,"enableMultipleWriteLocations":true`, http.MethodDelete},
		"writes that can move alone":   {`,"enablePerPartitionFailoverBehavior":true`, http.MethodDelete},
		"reads while another is away ": {"", http.MethodGet},
	} {
		t.Run(name, func(t *testing.T) {
			a := paperAccount(t, row.flags)
			req, err := http.NewRequest(row.method, "https://acct.documents.example/dbs/d/colls/c/docs/i", nil)
			require.NoError(t, err)
			req.Header.Set(keyHeader, `["p"]`)
			allocs := func(layers ...middleware.Layer) float64 {
				rt, err := middleware.Stack(served, layers...)
				require.NoError(t, err)
				send := func() {
					resp, err := rt.RoundTrip(req)
					if err != nil || resp.StatusCode != 200 {
						t.Fatal(resp, err)
					}
				}
				send() // the container is read
				return testing.AllocsPerRun(200, send)
			}
			partition := roundtrippers.Partition{Dialect: a, Partitions: a.Partitions}
			breaker := roundtrippers.Breaker{Dialect: a, Regions: a.Regions, Partitions: a.Partitions}
			route := roundtrippers.Route{Dialect: a, Regions: a.Regions}
			placed := route
			placed.Partitions = a.Partitions

			resolved, err := a.Partitions.Resolve(t.Context(), "dbs/d/colls/c", `["p"]`)
			require.NoError(t, err)
			if strings.Contains(name, "another") {
				sick := partitions.Partition{Container: resolved.Partition.Container, Range: "sick"}
				for range 10 {
					a.Partitions.Report(sick, "west", false, a.Partitions.Admit(sick, false, "west", "east"), regions.Failed)
				}
				require.NotNil(t, a.Partitions.Admit(sick, false, "west", "east").Avoid)
			}
			bare := allocs(route)
			require.Equal(t, bare, allocs(partition, route), "finding the partition")
			require.Equal(t, bare, allocs(partition, breaker, route), "watching it")
			require.Equal(t, bare, allocs(partition, breaker, placed), "knowing where its writes go")
		})
	}
}
