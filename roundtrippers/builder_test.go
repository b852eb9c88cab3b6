package roundtrippers_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/reroute-go/reroute/idempotency"
	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/layertest"
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
	return middleware.Outcome{
		Cause: middleware.Cause(cause), Unapplied: resp.Header.Get("Unapplied") != "", Wait: time.Duration(wait) * time.Millisecond,
		Status: resp.StatusCode, Code: middleware.Cause(cause).String(),
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
		"MaxBytes is -2", "OperationTimeout is -1ns", "AttemptTimeout is -1ns", "Dialect is nil", "Partitions is set without Regions",
		"(roundtrippers.Failover): Retries is -1", "Wait is -2ns", "(roundtrippers.Throttle): MaxWait is -1ns",
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

func TestSendsAreBoundedByTheSumOfBudgets(t *testing.T) { // X07, X09, X10, B30; DESIGN 3
	registries := []*regions.Registry{registry(t, false), registry(t, true)}
	rapid.Check(t, func(rt *rapid.T) { boundedSends(t, rt, registries) })
}

// boundedSends draws a stack of retrying layers in any order, perhaps with
// another in it and a foreign RoundTripper between, and a service that answers
// anything, and checks what holds whatever happens.
func boundedSends(t *testing.T, rt *rapid.T, registries []*regions.Registry) {
	r := registries[rapid.IntRange(0, 1).Draw(rt, "multi")]
	layers := rapid.SliceOfN(drawLayer(r), 0, 6)
	outer, inner := layers.Draw(rt, "outer"), layers.Draw(rt, "inner")
	foreign := rapid.Bool().Draw(rt, "foreign")
	steps := rapid.SliceOfN(drawStep(), 1, 12).Draw(rt, "script")
	header := rapid.SampledFrom([][]string{nil, {"Once", "yes"}, {"Scope", "foreign"}, {"Scope", "discovery"}}).Draw(rt, "request")
	body := rapid.SampledFrom([]string{"none", "kept", "streamed", "GetBody"}).Draw(rt, "body")
	patience := rapid.SampledFrom([]time.Duration{0, time.Millisecond, time.Second, time.Minute}).Draw(rt, "patience")
	leaves := rapid.Bool().Draw(rt, "leaves")

	synctest.Test(t, func(t *testing.T) {
		script := layertest.NewScript(t, steps...)
		below := layered(t, script, inner...)
		if foreign {
			next := below
			below = middleware.RoundTripperFunc(func(req *http.Request) (*http.Response, error) { return next.RoundTrip(req.Clone(req.Context())) })
		}
		var started, ended atomic.Int64
		observer := middleware.Observer(func(_ context.Context, e middleware.Event) {
			switch e.Kind {
			case middleware.AttemptStarted:
				started.Add(1)
			case middleware.AttemptEnded:
				ended.Add(1)
			}
		})
		stack := layered(t, below, append([]middleware.Layer{observer}, outer...)...)
		bound := boundOf(t, stack)
		if foreign { // hides the inner stack from Describe
			bound += boundOf(t, layered(t, script, inner...)) - 1
		}

		ctx, cancel := t.Context(), context.CancelFunc(func() {})
		switch {
		case patience > 0 && leaves:
			ctx, cancel = context.WithCancel(ctx)
			stop := time.AfterFunc(patience, cancel)
			defer stop.Stop()
		case patience > 0:
			ctx, cancel = context.WithTimeout(ctx, patience)
		}
		defer cancel()
		req := ask(ctx, "POST", header...)
		source := layertest.NewBody("text")
		switch body {
		case "kept", "streamed":
			req.Body, req.ContentLength = source, -1
			if body == "streamed" {
				stack = layered(t, stack, middleware.ReplayBody{MaxBytes: 3})
			}
		case "GetBody":
			req.Body, req.ContentLength = source, 4
			req.GetBody = func() (io.ReadCloser, error) { return layertest.NewBody("text"), nil }
		}
		got := tell(t, stack, req)
		sends := script.Sends()
		if len(sends) > bound {
			rt.Fatalf("%d sends, bound %d", len(sends), bound)
		}
		require.Len(t, sends, got.Sends, "%s", got.Report)
		require.EqualValues(t, started.Load(), ended.Load())
		if !foreign { // else what an inner stack refuses has been told as an attempt
			require.EqualValues(t, len(sends), started.Load())
		}
		require.NotEqual(t, middleware.NotStopped, got.Stop)
		if body != "none" {
			require.Equal(t, 1, source.Closes())
			for _, send := range sends {
				require.Equal(t, "text", send.Body)
			}
		}
		spent := 0
		for _, c := range got.Charges {
			spent += c.Retries
		}
		require.GreaterOrEqual(t, spent+1, len(sends))
		if got.err == nil {
			require.NotEmpty(t, got.body)
		}
	})
}

func boundOf(t testing.TB, rt http.RoundTripper) (sends int) {
	t.Helper()
	text := middleware.Describe(rt)
	_, err := fmt.Sscanf(text[strings.LastIndex(text, "\n")+1:], "at most %d sends", &sends)
	require.NoError(t, err)
	return sends
}

func drawLayer(r *regions.Registry) *rapid.Generator[middleware.Layer] {
	return rapid.Custom(func(rt *rapid.T) middleware.Layer {
		n := rapid.IntRange(1, 3).Draw(rt, "n")
		switch rapid.IntRange(0, 8).Draw(rt, "kind") {
		case 0:
			return roundtrippers.Failover{Dialect: words{}, Regions: r, Retries: n, TopologyRetries: n, Converge: rapid.Bool().Draw(rt, "converge")}
		case 1:
			return roundtrippers.Session{Dialect: words{}, Regions: r, Retries: n, MaxRegions: n}
		case 2:
			return roundtrippers.Throttle{Dialect: words{}, Retries: n, MaxWait: time.Duration(n) * 10 * time.Second}
		case 3:
			return roundtrippers.RetryWith{Dialect: words{}, Retries: n}
		case 4:
			return roundtrippers.Shard{Dialect: words{}, Retries: n}
		case 5:
			return roundtrippers.Guard{Dialect: words{}}
		case 6:
			return roundtrippers.AttemptTimeout{After: time.Duration(n) * time.Second}
		case 7:
			return roundtrippers.Route{Dialect: words{}, Regions: r}
		default:
			return anything{n}
		}
	})
}

// anything is an own layer that retries whatever comes.
type anything struct{ Retries int }

func (l anything) Wrap(next http.RoundTripper) (http.RoundTripper, error) {
	budget := &middleware.Budget{Name: "anything", Retries: l.Retries}
	return middleware.Retry(next, words{}, func(_ context.Context, _ *middleware.Operation, out middleware.Outcome) middleware.Verdict {
		return middleware.Verdict{Budget: budget, Wait: out.Wait}
	}, budget)
}

func drawStep() *rapid.Generator[layertest.Step] {
	return rapid.Custom(func(rt *rapid.T) layertest.Step {
		if rapid.IntRange(0, 5).Draw(rt, "error") == 0 {
			return layertest.Step{Err: errors.New("reset"), Delay: time.Duration(rapid.IntRange(0, 5).Draw(rt, "s")) * time.Second}
		}
		s := says(middleware.Cause(rapid.IntRange(int(middleware.Success), int(middleware.DeadlineExceeded)).Draw(rt, "cause")))
		if rapid.Bool().Draw(rt, "unapplied") {
			s = words{}.unapplied(s)
		}
		s = waiting(s, time.Duration(rapid.SampledFrom([]int{0, 1, 1000, 40000}).Draw(rt, "wait"))*time.Millisecond)
		s.Delay = time.Duration(rapid.IntRange(0, 2).Draw(rt, "delay")) * time.Second
		return s
	})
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
