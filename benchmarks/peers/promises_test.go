//go:build !race

// Under the race detector the kit finds that the peers write into the caller's
// request, which ends the test; without it, that is one of the findings.

package main

import (
	"flag"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/PuerkitoBio/rehttp"
	"github.com/failsafe-go/failsafe-go/failsafehttp"
	"github.com/gojek/heimdall/v7"
	"github.com/gojek/heimdall/v7/httpclient"
	"github.com/hashicorp/go-retryablehttp"
	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/benchmarks/internal/measure"
	"github.com/reroute-go/reroute/benchmarks/internal/workload"
	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/layertest"
)

var update = flag.Bool("update", false, "write the table of promises anew")

// wait before each retry, so that a wait shows; in virtual time it costs nothing.
const wait = time.Second

// heimdallClient is heimdall's client as a RoundTripper.
type heimdallClient struct{ *httpclient.Client }

func (c heimdallClient) RoundTrip(req *http.Request) (*http.Response, error) { return c.Do(req) }

// unaided is a layer that adds nothing to what wrap returns. A middleware.LayerFunc
// would lend it a CloseIdleConnections.
type unaided func(http.RoundTripper) http.RoundTripper

func (wrap unaided) Wrap(next http.RoundTripper) (http.RoundTripper, error) { return wrap(next), nil }

// retriers are the peers as a careful user would set them up to retry three times,
// with what keeps the last answer where there is such an option.
func retriers() []struct {
	name  string
	layer middleware.Layer
} {
	layer := func(wrap func(http.RoundTripper) http.RoundTripper) middleware.Layer { return unaided(wrap) }
	return []struct {
		name  string
		layer middleware.Layer
	}{
		{"reroute", workload.Again{Retries: 3, Wait: wait}},
		{"go-retryablehttp", layer(func(next http.RoundTripper) http.RoundTripper {
			return &retryablehttp.RoundTripper{Client: &retryablehttp.Client{
				HTTPClient: &http.Client{Transport: next}, RetryMax: 3, RetryWaitMin: wait, RetryWaitMax: wait,
				CheckRetry: retryablehttp.DefaultRetryPolicy, Backoff: retryablehttp.DefaultBackoff, ErrorHandler: retryablehttp.PassthroughErrorHandler,
			}}
		})},
		{"failsafe-go", layer(func(next http.RoundTripper) http.RoundTripper {
			return failsafehttp.NewRoundTripper(next, failsafehttp.NewRetryPolicyBuilder().WithMaxRetries(3).WithDelay(wait).ReturnLastFailure().Build())
		})},
		{"rehttp", layer(func(next http.RoundTripper) http.RoundTripper {
			return rehttp.NewTransport(next, rehttp.RetryAll(rehttp.RetryMaxRetries(3),
				rehttp.RetryAny(rehttp.RetryStatusInterval(500, 600), rehttp.RetryIsErr(func(err error) bool { return err != nil }))), rehttp.ConstDelay(wait))
		})},
		{"heimdall", layer(func(next http.RoundTripper) http.RoundTripper {
			return heimdallClient{httpclient.NewClient(httpclient.WithHTTPClient(&http.Client{Transport: next}), httpclient.WithRetryCount(3),
				httpclient.WithRetrier(heimdall.NewRetrierFunc(func(int) time.Duration { return wait })))}
		})},
	}
}

// What the peers promise by what they do, by the kit that reroute's own layers go
// through. To write the table anew:
//
//	go test -run TestPromisesOfPeers . -update
func TestPromisesOfPeers(t *testing.T) { // issue 6, Done-when 5
	rows := [][]string{{"promise"}}
	for _, p := range layertest.Promises() {
		name := p.Name
		if p.Own {
			name += " (reroute's own)"
		}
		rows = append(rows, []string{name})
	}
	var why strings.Builder
	for _, r := range retriers() {
		rows[0] = append(rows[0], r.name)
		kept := 0
		fmt.Fprintf(&why, "\n%s breaks:\n\n", r.name)
		for i, f := range (layertest.Kit{Layer: r.layer}).CheckVirtual(t) {
			verdict := "**broken**"
			switch {
			case f.Kept():
				verdict = "kept"
				kept++
			case f.Untried != "":
				verdict = "not tried"
			default:
				fmt.Fprintf(&why, "- %s: %s\n", f.Promise.Name, brief(f.Broken[0]))
			}
			rows[i+1] = append(rows[i+1], verdict)
		}
		if r.name == "reroute" {
			require.Equal(t, len(rows)-1, kept, why.String())
			why.Reset()
		}
	}
	table := measure.Table(rows)
	if *update {
		require.NoError(t, measure.Rewrite(document, "promises", "\n"+table+why.String()+"\n"))
	}
	section, err := measure.Section(document, "promises")
	require.NoError(t, err)
	require.Contains(t, section, table, "the README shows another table: run this test with -update")
}

var addresses = regexp.MustCompile(`0x[0-9a-f]+`)

// brief is the beginning of a breach, without what differs from run to run.
func brief(breach string) string {
	breach = addresses.ReplaceAllString(breach, "0x...")
	if runes := []rune(breach); len(runes) > 200 {
		return string(runes[:200]) + " ..."
	}
	return breach
}
