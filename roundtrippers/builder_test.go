package roundtrippers_test

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/idempotency"
	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/layertest"
	"github.com/reroute-go/reroute/middleware/ownership"
	"github.com/reroute-go/reroute/middleware/rest"
	"github.com/reroute-go/reroute/partitions"
	"github.com/reroute-go/reroute/regions"
	"github.com/reroute-go/reroute/roundtrippers"
)

// words is a dialect without a service: answers say in headers what they mean,
// and requests what they are.
type words struct{}

func (words) Intent(req *http.Request) middleware.Intent {
	in := middleware.Intent{Name: "word", Write: req.Method != http.MethodGet}
	if req.Header.Get("Once") != "" {
		in.Level = idempotency.NonIdempotent
	}
	if in.PartitionKey, in.RangeID = req.Header.Get("Key"), req.Header.Get("Range-Id"); in.PartitionKey+in.RangeID != "" {
		in.Partitioned, in.Container = true, "words"
	}
	switch req.Header.Get("Scope") {
	case "foreign":
		in.Scope = middleware.Foreign
	case "discovery":
		in.Scope = middleware.Discovery
	}
	return in
}

func (words) Judge(_ *middleware.Intent, resp *http.Response, err error) middleware.Outcome {
	if resp == nil {
		return middleware.JudgeError(err)
	}
	if resp.Header.Get("Cause") == "" {
		return middleware.Outcome{Cause: middleware.Success, Status: resp.StatusCode}
	}
	cause, _ := strconv.Atoi(resp.Header.Get("Cause"))
	wait, _ := strconv.Atoi(resp.Header.Get("Wait-Ms"))
	stale, _ := strconv.Atoi(resp.Header.Get("Stale"))
	return middleware.Outcome{
		Cause: middleware.Cause(cause), Unapplied: resp.Header.Get("Unapplied") != "", Wait: time.Duration(wait) * time.Millisecond,
		Status: resp.StatusCode, Code: middleware.Cause(cause).String(), Stale: middleware.Stale(stale), Range: resp.Header.Get("Range-Id"),
	}
}

// says is the step that means cause.
func says(cause middleware.Cause) layertest.Step {
	return layertest.Step{Status: 500, Body: "why: " + cause.String(), Header: map[string]string{"Cause": strconv.Itoa(int(cause))}}
}

func (words) unapplied(s layertest.Step) layertest.Step {
	s.Header["Unapplied"] = "yes"
	return s
}

func waiting(s layertest.Step, wait time.Duration) layertest.Step {
	s.Header["Wait-Ms"] = strconv.FormatInt(wait.Milliseconds(), 10)
	return s
}

var fine = layertest.Step{Status: 200, Body: "fine"}

// registry knows the regions a, b and c at a.test, b.test and c.test; a is the hub.
func registry(t testing.TB, multiWrite bool) *regions.Registry {
	t.Helper()
	r, err := regions.New(regions.Config{Source: regions.SourceFunc(func(context.Context, *regions.Topology) (*regions.Topology, error) {
		topology := &regions.Topology{MultiWrite: multiWrite}
		for _, name := range []string{"a", "b", "c"} {
			e := regions.Endpoint{Region: regions.Name(name), URL: &url.URL{Scheme: "http", Host: name + ".test"}}
			topology.Reads = append(topology.Reads, e)
			if multiWrite || name == "a" {
				topology.Writes = append(topology.Writes, e)
			}
		}
		return topology, nil
	})})
	require.NoError(t, err)
	_, err = r.Refresh(context.Background(), nil)
	require.NoError(t, err)
	t.Cleanup(r.Close)
	return r
}

func layered(t testing.TB, base http.RoundTripper, layers ...middleware.Layer) http.RoundTripper {
	t.Helper()
	rt, err := middleware.Stack(base, layers...)
	require.NoError(t, err)
	return rt
}

func ask(ctx context.Context, method string, header ...string) *http.Request {
	req, err := http.NewRequestWithContext(ctx, method, "http://a.test/x", nil)
	if err != nil {
		panic(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	return req
}

// told is how an operation ended.
type told struct {
	middleware.Report
	body string // of the answer, "" without
	err  *middleware.Error
}

func tell(t testing.TB, rt http.RoundTripper, req *http.Request) told {
	t.Helper()
	resp, err := rt.RoundTrip(req)
	if err != nil {
		var typed *middleware.Error
		require.ErrorAs(t, err, &typed)
		return told{Report: typed.Report, err: typed}
	}
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return told{Report: middleware.FromResponse(resp).Report(), body: string(body)}
}

func virtually(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

// R042: nothing in it hedges (DESIGN rule 12).
func TestTheBuilderStacksInTheStandardOrder(t *testing.T) {
	script := layertest.NewScript(t)
	own := middleware.LayerFunc(func(next http.RoundTripper) http.RoundTripper { return next })
	rt, err := roundtrippers.Builder{
		Dialect: words{}, Regions: registry(t, true), Base: script,
		Observe:          func(context.Context, middleware.Event) {},
		OperationTimeout: time.Minute, AttemptTimeout: time.Second, MaxReplayBytes: 100,
		PerOperation: []middleware.Layer{own, own}, PerAttempt: []middleware.Layer{middleware.ReplayBody{MaxBytes: 7}},
		Throttle: roundtrippers.Throttle{Retries: 2},
	}.Build()
	require.NoError(t, err)
	var names []string
	for _, line := range strings.Split(middleware.Describe(rt), "\n") {
		names = append(names, strings.TrimPrefix(line, "roundtrippers."))
	}
	require.Equal(t, []string{
		"middleware.Observer",
		"middleware.ReplayBody{MaxBytes: 100}",
		"Deadline{After: 1m0s}",
		"Guard",
		"Failover [failover 3, topology 120]",
		"Session [session 16]",
		"Route",
		"Throttle{Retries: 2} [throttle 2/30s]",
		"RetryWith [retry with 35/30s]",
		"Shard [shard 1]",
		"AttemptTimeout{After: 1s}",
		"middleware.ReplayBody{MaxBytes: 7}",
		"*layertest.Script",
		"at most 178 sends",
	}, names)
}

func TestAChangedListOfLayersStandsOnTheSameBase(t *testing.T) {
	d := &ownership.Dialect{} // knows the transport that its service wants
	b := roundtrippers.Builder{Dialect: d}
	pools, ok := b.Transport().(*roundtrippers.Pools)
	require.True(t, ok)
	made, ok := pools.New().(*http.Transport)
	require.True(t, ok)
	require.Equal(t, d.NewTransport().MaxIdleConnsPerHost, made.MaxIdleConnsPerHost)
	rt, err := middleware.Stack(b.Transport(), b.Layers()[1:]...)
	require.NoError(t, err)
	require.Contains(t, middleware.Describe(rt), "*roundtrippers.Pools")

	nodes, ok := roundtrippers.OwnershipBuilder{Dialect: d}.Transport().(*http.Transport)
	require.True(t, ok)
	require.Equal(t, d.NewTransport().MaxIdleConnsPerHost, nodes.MaxIdleConnsPerHost)

	mine := &http.Transport{}
	require.Same(t, mine, roundtrippers.Builder{Base: mine}.Transport())
	require.Same(t, mine, roundtrippers.OwnershipBuilder{Base: mine}.Transport())
	require.Same(t, http.DefaultTransport, roundtrippers.OwnershipBuilder{}.Transport())
}

func TestTheBuilderLeavesOutWhatHasNothingToWorkWith(t *testing.T) {
	rt, err := roundtrippers.Builder{Dialect: words{}, NoGuard: true}.Build()
	require.NoError(t, err)
	text := middleware.Describe(rt)
	for _, name := range []string{"Guard", "Session", "Route", "Deadline", "AttemptTimeout", "Observer", "Partition", "Breaker"} {
		require.NotContains(t, text, name)
	}
	require.Contains(t, text, "*roundtrippers.Pools")
}

func TestTheBuilderNamesEveryBadField(t *testing.T) {
	_, err := roundtrippers.Builder{Base: &roundtrippers.Pools{Streams: -3}, OperationTimeout: -1, AttemptTimeout: -1, MaxReplayBytes: -2,
		Partitions: new(partitions.Registry),
		Failover:   roundtrippers.Failover{Retries: -1, Wait: -2}, Throttle: roundtrippers.Throttle{Dialect: words{}, MaxWait: -1},
		RetryWith: roundtrippers.RetryWith{Dialect: words{}, Backoff: middleware.Backoff{Cap: -1}}}.Build()
	for _, want := range []string{
		"MaxReplayBytes is -2", "OperationTimeout is -1ns", "AttemptTimeout is -1ns", "Dialect is nil", "Partitions is set without Regions",
		"(roundtrippers.Failover): Retries is -1", "(roundtrippers.Failover): Wait is -2ns", "(roundtrippers.Throttle): MaxWait is -1ns",
		"(roundtrippers.RetryWith): Backoff.Cap is -1ns", "Streams is -3",
	} {
		require.ErrorContains(t, err, want)
	}
	require.Equal(t, 1, strings.Count(err.Error(), "Dialect is nil"), "once is enough: %v", err)
}

func TestEachLayerNamesItsBadField(t *testing.T) {
	r := registry(t, false)
	for want, layer := range map[string]middleware.Layer{
		"Retries is -2, want >= 0":          roundtrippers.Failover{Dialect: words{}, Retries: -2},
		"TopologyRetries is -2":             roundtrippers.Failover{Dialect: words{}, TopologyRetries: -2},
		"Wait is -2ns":                      roundtrippers.Failover{Dialect: words{}, Wait: -2},
		"TopologyWait is -2ns":              roundtrippers.Failover{Dialect: words{}, TopologyWait: -2},
		"Retries is -3, want >= 0":          roundtrippers.Throttle{Dialect: words{}, Retries: -3},
		"MaxWait is -3ns":                   roundtrippers.Throttle{Dialect: words{}, MaxWait: -3},
		"Backoff.Jitter is 2":               roundtrippers.Throttle{Dialect: words{}, Backoff: middleware.Backoff{Jitter: 2}},
		"Retries is -4, want >= 0":          roundtrippers.RetryWith{Dialect: words{}, Retries: -4},
		"MaxWait is -4ns":                   roundtrippers.RetryWith{Dialect: words{}, MaxWait: -4},
		"Retries is -5":                     roundtrippers.Session{Dialect: words{}, Regions: r, Retries: -5},
		"MaxRegions is -5":                  roundtrippers.Session{Dialect: words{}, Regions: r, MaxRegions: -5},
		"Regions is nil":                    roundtrippers.Session{Dialect: words{}},
		"Regions is nil: which registry":    roundtrippers.Route{Dialect: words{}},
		"After is 0s, want > 0":             roundtrippers.Deadline{},
		"After is -7ns, want > 0":           roundtrippers.AttemptTimeout{After: -7},
		"Dialect is nil: which service":     roundtrippers.Guard{},
		"Dialect is nil: which service is ": roundtrippers.Route{Regions: r},
	} {
		rt, err := layer.Wrap(http.DefaultTransport)
		require.ErrorContains(t, err, want)
		require.Nil(t, rt)
	}
	for _, layer := range []middleware.Layer{roundtrippers.Failover{}, roundtrippers.Session{Regions: r}, roundtrippers.Throttle{}, roundtrippers.RetryWith{}} {
		_, err := layer.Wrap(http.DefaultTransport)
		require.ErrorContains(t, err, "Dialect is nil")
	}
}

func TestTheWholeStackIsSharedByManyGoroutines(t *testing.T) { // X15, B12
	r := registry(t, true)
	script := layertest.NewServer(t, func(req *http.Request) layertest.Step {
		n, _ := strconv.Atoi(req.Header.Get("N"))
		switch {
		case n%4 == 0 && req.URL.Host == "a.test":
			return says(middleware.SessionLag)
		case n%4 == 1 && req.URL.Host == "a.test":
			return says(middleware.CircuitOpen)
		}
		return fine
	})
	rt, err := roundtrippers.Builder{Dialect: words{}, Regions: r, Base: script, OperationTimeout: time.Minute, AttemptTimeout: time.Minute}.Build()
	require.NoError(t, err)
	var wg sync.WaitGroup
	for g := range 64 {
		wg.Go(func() {
			for i := range 20 {
				n := g + i
				req := ask(t.Context(), "GET", "N", strconv.Itoa(n))
				resp, err := rt.RoundTrip(req)
				if err != nil {
					t.Error(err)
					return
				}
				want := 1
				if n%4 < 2 {
					want = 2 // each has a budget and a first choice of its own
				}
				if got := middleware.FromResponse(resp).Sends(); got != want {
					t.Errorf("%d sends, want %d", got, want)
				}
				_ = resp.Body.Close()
			}
		})
	}
	wg.Wait()
}

func TestTheRestDialectDrivesTheStack(t *testing.T) { // a plain API, no regions
	virtually(t, func(t *testing.T) {
		start := time.Now()
		script := layertest.NewScript(t,
			layertest.Step{Status: 429, Header: map[string]string{"Retry-After": "2"}},
			layertest.Step{Status: 503}, layertest.Step{Err: io.ErrUnexpectedEOF}, fine)
		rt, err := roundtrippers.Builder{Dialect: rest.Dialect{}, Base: script}.Build()
		require.NoError(t, err)
		got := tell(t, rt, ask(t.Context(), "GET"))
		require.Equal(t, "fine", got.body)
		require.Equal(t, 4, got.Sends)
		require.Equal(t, 2*time.Second, time.Since(start))
	})
}

func contextFor(t *testing.T, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(t.Context(), d)
}
