package roundtrippers_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/layertest"
	"github.com/reroute-go/reroute/partitions"
	"github.com/reroute-go/reroute/regions"
	"github.com/reroute-go/reroute/roundtrippers"
)

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
	drawnOuter, drawnInner := layers.Draw(rt, "outer"), layers.Draw(rt, "inner")
	if at := rapid.IntRange(-1, len(drawnOuter)).Draw(rt, "placed"); at >= 0 { // these three need one another
		drawnOuter = slices.Insert(drawnOuter, at, anyPartition(1), anyBreaker(r, 1), anyRoute(r))
	}
	feed := &feed{script: rapid.SliceOfN(rapid.SampledFrom(feedSteps), 1, 8).Draw(rt, "feed")}
	foreign := rapid.Bool().Draw(rt, "foreign")
	steps := rapid.SliceOfN(drawStep(), 1, 12).Draw(rt, "script")
	header := rapid.SampledFrom([][]string{nil, {"Once", "yes"}, {"Scope", "foreign"}, {"Scope", "discovery"},
		{"Key", `["a"]`}, {"Key", `["a"]`, "Read", "yes"}, {"Key", `["a"]`, "Once", "yes"}, {"Key", "junk"}, {"Range-Id", "0"}}).Draw(rt, "request")
	body := rapid.SampledFrom([]string{"none", "kept", "streamed", "GetBody"}).Draw(rt, "body")
	patience := rapid.SampledFrom([]time.Duration{0, time.Millisecond, time.Second, time.Minute}).Draw(rt, "patience")
	leaves := rapid.Bool().Draw(rt, "leaves")

	synctest.Test(t, func(t *testing.T) {
		script := layertest.NewScript(t, steps...)
		ranges := feed.registry(t)
		outer, inner := over(ranges, drawnOuter), over(ranges, drawnInner)
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
		method := "POST"
		if slices.Contains(header, "Read") {
			method = "GET"
		}
		req := ask(ctx, method, header...)
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
	_, err := fmt.Sscanf(text[strings.LastIndex(text, "\n")+1:], "at most %d send", &sends)
	require.NoError(t, err)
	return sends
}

// drawn is a layer that lacks the registry of partitions, which belongs to one bubble.
type drawn func(*partitions.Registry) middleware.Layer

func over(p *partitions.Registry, list []drawn) (layers []middleware.Layer) {
	for _, layer := range list {
		layers = append(layers, layer(p))
	}
	return layers
}

func anyPartition(n int) drawn {
	return func(p *partitions.Registry) middleware.Layer {
		return roundtrippers.Partition{Dialect: words{}, Partitions: p, Retries: n, SplitRetries: n, MaxWait: time.Duration(n) * time.Second}
	}
}

func anyBreaker(r *regions.Registry, n int) drawn {
	return func(p *partitions.Registry) middleware.Layer {
		return roundtrippers.Breaker{Dialect: words{}, Regions: r, Partitions: p, MinAttempt: time.Duration(n) * time.Second}
	}
}

func anyRoute(r *regions.Registry) drawn {
	return func(p *partitions.Registry) middleware.Layer {
		return roundtrippers.Route{Dialect: words{}, Regions: r, Partitions: p}
	}
}

func drawLayer(r *regions.Registry) *rapid.Generator[drawn] {
	return rapid.Custom(func(rt *rapid.T) drawn {
		n := rapid.IntRange(1, 3).Draw(rt, "n")
		is := func(l middleware.Layer) drawn { return func(*partitions.Registry) middleware.Layer { return l } }
		switch rapid.IntRange(0, 10).Draw(rt, "kind") {
		case 0:
			return is(roundtrippers.Failover{Dialect: words{}, Regions: r, Retries: n, TopologyRetries: n, Converge: rapid.Bool().Draw(rt, "converge")})
		case 1:
			return is(roundtrippers.Session{Dialect: words{}, Regions: r, Retries: n, MaxRegions: n})
		case 2:
			return is(roundtrippers.Throttle{Dialect: words{}, Retries: n, MaxWait: time.Duration(n) * 10 * time.Second})
		case 3:
			return is(roundtrippers.RetryWith{Dialect: words{}, Retries: n})
		case 4:
			return is(roundtrippers.Shard{Dialect: words{}, Retries: n})
		case 5:
			return is(roundtrippers.Guard{Dialect: words{}})
		case 6:
			return is(roundtrippers.AttemptTimeout{After: time.Duration(n) * time.Second})
		case 7:
			return anyRoute(r)
		case 8:
			return anyPartition(n)
		case 9:
			return anyBreaker(r, n)
		default:
			return is(anything{n})
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
		s.Header["Stale"] = strconv.Itoa(rapid.IntRange(int(middleware.Fresh), int(middleware.StaleContainer)).Draw(rt, "stale"))
		s.Header["Range-Id"] = rapid.SampledFrom([]string{"", "0", "1"}).Draw(rt, "range")
		s.Delay = time.Duration(rapid.IntRange(0, 2).Draw(rt, "delay")) * time.Second
		return s
	})
}

// feed is a Source of one container that plays a script, one step a page, and
// repeats the last.
type feed struct {
	script []string

	mu    sync.Mutex
	pages int
	split bool
}

var feedSteps = []string{"whole", "whole", "split", "gap", "absent", "broken", "slow", "hangs"}

// registry trips on the first failure, so that single operations meet breakers
// that are open, and probe.
func (f *feed) registry(t testing.TB) *partitions.Registry {
	r, err := partitions.New(partitions.Config{
		Source: f, LookupEnv: func(string) (string, bool) { return "", false },
		Failover: partitions.FailoverOptions{ReadFailures: 1, WriteFailures: 1, UnavailabilityDuration: time.Second},
	})
	require.NoError(t, err)
	t.Cleanup(r.Close)
	return r
}

func (f *feed) Container(context.Context, string) (partitions.Container, error) {
	return partitions.Container{RID: "rid", Definition: partitions.Definition{Version: 2}}, nil
}

func (f *feed) RangePage(ctx context.Context, _, continuation string, _ regions.Name) (partitions.Page, error) {
	f.mu.Lock()
	step := f.script[min(f.pages, len(f.script)-1)]
	f.pages++
	f.split = f.split || step == "split"
	split := f.split
	f.mu.Unlock()
	wait := map[string]time.Duration{"slow": 3 * time.Second, "hangs": time.Hour}[step]
	if err := inTime(ctx, wait); err != nil {
		return partitions.Page{}, err
	}
	middle, err := partitions.ParseKey("80")
	if err != nil {
		return partitions.Page{}, err
	}
	page := partitions.Page{Continuation: "whole", Ranges: []partitions.Range{{ID: "0", Max: partitions.MaxKey()}}}
	if split {
		page = partitions.Page{Continuation: "split", Ranges: []partitions.Range{
			{ID: "1", Max: middle, Parents: []string{"0"}}, {ID: "2", Min: middle, Max: partitions.MaxKey(), Parents: []string{"0"}}}}
	}
	switch {
	case step == "absent":
		return partitions.Page{}, &partitions.SourceError{Kind: partitions.Absent}
	case step == "broken":
		return partitions.Page{}, errors.New("reset")
	case step == "gap":
		page.Continuation, page.Ranges = "gap", []partitions.Range{{ID: "3", Min: middle, Max: partitions.MaxKey(), Parents: []string{"0"}}}
	case continuation == page.Continuation:
		page.Unchanged = true
	}
	return page, nil
}
