package roundtrippers_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/layertest"
	"github.com/reroute-go/reroute/regions"
	"github.com/reroute-go/reroute/roundtrippers"
)

func TestRouteRewritesACopy(t *testing.T) { // X03, go-peers 6.17
	virtually(t, func(t *testing.T) {
		script := layertest.NewScript(t, fine)
		r := registry(t, false)
		req := ask(t.Context(), "GET")
		req.URL.Host, req.Host, req.URL.Scheme = "global.test", "virtual.test", "https"
		req.URL.RawQuery = "q=1"
		before := *req.URL
		tell(t, layered(t, script, roundtrippers.Route{Dialect: words{}, Regions: r}), req)
		require.Equal(t, before, *req.URL)
		require.Equal(t, "virtual.test", req.Host)
		send := script.Sends()[0]
		require.Equal(t, url.URL{Scheme: "http", Host: "a.test", Path: "/x", RawQuery: "q=1"}, send.URL)
		require.Equal(t, "a.test", send.Host)
	})
}

func TestForeignRequestsAreNotRouted(t *testing.T) {
	virtually(t, func(t *testing.T) {
		script := layertest.NewScript(t, says(middleware.Unavailable))
		req := ask(t.Context(), "GET", "Scope", "foreign")
		req.URL.Host = "elsewhere.test"
		got := tell(t, layered(t, script, roundtrippers.Route{Dialect: words{}, Regions: registry(t, false)}), req)
		require.Equal(t, []string{"elsewhere.test"}, script.Hosts())
		require.Empty(t, got.Attempts[0].Region)
	})
}

func TestDiscoveryStartsWhereItsCallerAsks(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := registry(t, false)
		script := layertest.NewScript(t, says(middleware.Unavailable), fine)
		req := ask(middleware.WithExcludedRegions(t.Context(), "a"), "GET", "Scope", "discovery")
		req.URL.Host = "global.test"
		got := tell(t, layered(t, script, roundtrippers.Failover{Dialect: words{}, Regions: r}, roundtrippers.Route{Dialect: words{}, Regions: r}), req)
		require.Equal(t, "fine", got.body)
		require.Equal(t, []string{"global.test", "a.test"}, script.Hosts(), "exclusions do not blind us to the topology")
	})
}

func TestARegionThatWasExcludedIsNotUsed(t *testing.T) { // R067, R068; DESIGN rule 6
	virtually(t, func(t *testing.T) {
		script := layertest.NewScript(t, says(middleware.Unavailable))
		routed(t, script, true, roundtrippers.Failover{}).tell(middleware.WithExcludedRegions(t.Context(), "A", "C"), "POST")
		require.Equal(t, []string{"b.test", "b.test", "b.test", "b.test"}, script.Hosts())

		all := middleware.WithExcludedRegions(t.Context(), "a", "b", "c")
		script = layertest.NewScript(t, fine)
		routed(t, script, false, roundtrippers.Failover{}).tell(all, "GET")
		require.Equal(t, []string{"a.test"}, script.Hosts(), "the hub is the last resort")

		body := layertest.NewBody("text")
		req := ask(all, "POST")
		req.Body = body
		strict := roundtrippers.Route{Dialect: words{}, Regions: registry(t, false), StrictExclusion: true}
		got := tell(t, layered(t, script, anything{3}, strict), req)
		require.ErrorIs(t, got.err, regions.ErrNoRegion)
		require.Zero(t, got.Sends)
		require.Equal(t, 1, body.Closes(), "B09")
	})
}

func TestARefusalAfterAFailureDoesNotKeepTheOldReason(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r, err := regions.New(regions.Config{Source: regions.SourceFunc(func(context.Context, *regions.Topology) (*regions.Topology, error) {
			return nil, errors.New("no topology")
		})})
		require.NoError(t, err)
		got := tell(t, layered(t, layertest.NewScript(t), anything{3}, roundtrippers.Route{Dialect: words{}, Regions: r}), ask(t.Context(), "GET"))
		require.ErrorIs(t, got.err, regions.ErrNoTopology)
		require.Equal(t, middleware.NotRetried, got.Stop)
	})
}

func TestWhatSpeaksAgainstAnEndpoint(t *testing.T) { // DESIGN rule 7, R002, R004, R028, R037
	refused := layertest.Step{Err: &net.OpError{Op: "dial", Err: errors.New("refused")}}
	for name, c := range map[string]struct {
		step layertest.Step
		want string // the mark's reason, "" = none
		both bool   // for reads too
	}{
		"not sent":         {refused, "unreachable", true},
		"a server error":   {says(middleware.Unavailable), "server error", true},
		"a timeout":        {says(middleware.Timeout), "timeout", true},
		"gone":             {says(middleware.Gone), "server error", true},
		"removed":          {says(middleware.Removed), "region gone", true},
		"no writes":        {says(middleware.NotPrimary), "write forbidden", false},
		"sent and lost":    {layertest.Step{Err: errors.New("reset")}, "", false},
		"throttled":        {says(middleware.Throttled), "", false},
		"final":            {says(middleware.Final), "", false},
		"session lag":      {says(middleware.SessionLag), "", false},
		"success":          {fine, "", false},
		"not trusted":      {layertest.Step{Err: &url.Error{Op: "Get", URL: "x", Err: errors.New("stopped after 10 redirects")}}, "", false},
		"the caller's own": {layertest.Step{Hang: true}, "", false},
	} {
		for _, method := range []string{"GET", "POST"} {
			t.Run(name+" "+method, func(t *testing.T) {
				virtually(t, func(t *testing.T) {
					r := registry(t, true)
					ctx, cancel := contextFor(t, time.Second)
					defer cancel()
					tell(t, layered(t, layertest.NewScript(t, c.step), roundtrippers.Route{Dialect: words{}, Regions: r}), ask(ctx, method))
					marks := r.Marks()
					if c.want == "" || method == "GET" && !c.both {
						require.Empty(t, marks)
						return
					}
					require.Len(t, marks, 1)
					require.Equal(t, c.want, marks[0].Reason.String())
				})
			})
		}
	}
}

func TestAProbeIsGivenBackWhateverHappens(t *testing.T) { // X16, R074
	virtually(t, func(t *testing.T) {
		r := registry(t, true)
		layers := []middleware.Layer{roundtrippers.Route{Dialect: words{}, Regions: r}}
		tell(t, layered(t, layertest.NewScript(t, says(middleware.Unavailable)), layers...), ask(t.Context(), "GET"))
		time.Sleep(2 * time.Minute)
		panics := middleware.RoundTripperFunc(func(*http.Request) (*http.Response, error) { panic("below") })
		require.Panics(t, func() { _, _ = layered(t, panics, layers...).RoundTrip(ask(t.Context(), "GET")) })
		require.False(t, r.Marks()[0].Probing)

		script := layertest.NewScript(t, fine)
		got := tell(t, layered(t, script, layers...), ask(t.Context(), "GET"))
		require.True(t, got.Attempts[0].Probe)
		require.Empty(t, r.Marks())
	})
}

func TestAHealthyOperationThroughTheWholeStackCostsTwoAllocations(t *testing.T) { // DESIGN 5
	r := registry(t, true)
	answer := &http.Response{StatusCode: 200, Body: http.NoBody}
	base := middleware.RoundTripperFunc(func(*http.Request) (*http.Response, error) { return answer, nil })
	rt, err := roundtrippers.Builder{Dialect: words{}, Regions: r, Base: base}.Build()
	require.NoError(t, err)
	req := ask(t.Context(), "GET")
	allocs := testing.AllocsPerRun(100, func() {
		answer.Request = nil
		_, _ = rt.RoundTrip(req)
	})
	require.LessOrEqual(t, allocs, 2.0, "the operation with its request, and the copy for the region")
}
