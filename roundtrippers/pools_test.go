package roundtrippers_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
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
	"github.com/reroute-go/reroute/middleware/rest"
	"github.com/reroute-go/reroute/roundtrippers"
)

var errReset = errors.New("read: connection reset by peer")

// pooled hands out numbered pools that all answer by one function.
type pooled struct {
	answer func(pool int, req *http.Request) (*http.Response, error)
	mu     sync.Mutex
	opened []*onePool
}

type onePool struct {
	all    *pooled
	number int
	sends  atomic.Int64
	closes atomic.Int64
}

func (p *pooled) New() http.RoundTripper {
	p.mu.Lock()
	defer p.mu.Unlock()
	one := &onePool{all: p, number: len(p.opened)}
	p.opened = append(p.opened, one)
	return one
}

func (p *pooled) pools() []*onePool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]*onePool(nil), p.opened...)
}

// sends returns how many requests each pool got, in order of opening.
func (p *pooled) sends() (n []int) {
	for _, one := range p.pools() {
		n = append(n, int(one.sends.Load()))
	}
	return n
}

func (o *onePool) RoundTrip(req *http.Request) (*http.Response, error) {
	o.sends.Add(1)
	if req.Body != nil {
		_, _ = io.Copy(io.Discard, req.Body)
		_ = req.Body.Close()
	}
	return o.all.answer(o.number, req)
}

func (o *onePool) CloseIdleConnections() { o.closes.Add(1) }

func answer(req *http.Request, major, status int) (*http.Response, error) {
	return &http.Response{StatusCode: status, ProtoMajor: major, Header: http.Header{}, Body: http.NoBody, Request: req}, nil
}

// blocked answers when told to, or when the request's context ends.
func blocked(req *http.Request, until <-chan struct{}) (*http.Response, error) {
	select {
	case <-until:
		return answer(req, 2, http.StatusOK)
	case <-req.Context().Done():
		return nil, req.Context().Err()
	}
}

func get(ctx context.Context, url string) *http.Request {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		panic(err)
	}
	return req
}

const endpointA = "http://a.test"

func send(t *testing.T, rt http.RoundTripper) {
	t.Helper()
	resp, err := rt.RoundTrip(get(t.Context(), endpointA))
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
}

func fail(t *testing.T, rt http.RoundTripper, times int) {
	t.Helper()
	for range times {
		_, err := rt.RoundTrip(get(t.Context(), endpointA))
		require.ErrorIs(t, err, errReset)
	}
}

func inFlight(p *roundtrippers.Pools) (n []int) {
	for _, e := range p.Stats() {
		for _, one := range e.Pools {
			n = append(n, one.InFlight)
		}
	}
	return n
}

// background sends n requests that stay open until the test says so, one after
// the other: of two that come at once to a full pool, both open one, and the
// slower one's is closed unused, which would make its number a matter of luck.
func background(ctx context.Context, rt http.RoundTripper, n int) *sync.WaitGroup {
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			if resp, err := rt.RoundTrip(get(ctx, endpointA)); err == nil {
				_ = resp.Body.Close()
			}
		})
		synctest.Wait()
	}
	return &wg
}

func TestASecondHTTP2PoolIsOpenedOnTheFifthRequestAndTwentySpreadOverFive(t *testing.T) { // R058
	synctest.Test(t, func(t *testing.T) {
		done := make(chan struct{})
		first := true
		script := &pooled{}
		script.answer = func(_ int, req *http.Request) (*http.Response, error) {
			if first {
				first = false
				return answer(req, 2, http.StatusOK)
			}
			return blocked(req, done)
		}
		pools := &roundtrippers.Pools{New: script.New, Streams: 4}
		send(t, pools)
		four := background(t.Context(), pools, 4)
		require.Equal(t, []int{4}, inFlight(pools))
		fifth := background(t.Context(), pools, 1)
		require.Equal(t, []int{4, 1}, inFlight(pools))
		rest := background(t.Context(), pools, 15)
		require.Equal(t, []int{4, 4, 4, 4, 4}, inFlight(pools))
		close(done)
		four.Wait()
		fifth.Wait()
		rest.Wait()
		require.Equal(t, []int{0, 0, 0, 0, 0}, inFlight(pools))
	})
}

func TestBeyondTheLastPoolTheTargetIsExceededEvenlyAndNobodyWaits(t *testing.T) { // R059
	synctest.Test(t, func(t *testing.T) {
		done := make(chan struct{})
		first := true
		script := &pooled{answer: func(_ int, req *http.Request) (*http.Response, error) {
			if first {
				first = false
				return answer(req, 2, http.StatusOK)
			}
			return blocked(req, done)
		}}
		pools := &roundtrippers.Pools{New: script.New, Streams: 4, MaxPools: 2}
		send(t, pools)
		wg := background(t.Context(), pools, 40)
		require.Equal(t, []int{20, 20}, inFlight(pools))
		require.Zero(t, time.Since(start()))
		close(done)
		wg.Wait()
	})
}

// start is when every synctest bubble begins.
func start() time.Time { return time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) }

func TestACanceledCallLeavesItsPoolOnceAndIsCounted(t *testing.T) { // R061
	synctest.Test(t, func(t *testing.T) {
		script := &pooled{answer: func(_ int, req *http.Request) (*http.Response, error) { return blocked(req, nil) }}
		pools := &roundtrippers.Pools{New: script.New}
		ctx, cancel := context.WithCancel(t.Context())
		wg := background(ctx, pools, 7)
		require.Equal(t, []int{7}, inFlight(pools))
		cancel()
		wg.Wait()
		stats := pools.Stats()[0]
		require.Equal(t, 0, stats.InFlight)
		require.EqualValues(t, 7, stats.Canceled)
		require.EqualValues(t, 0, stats.Failures)
		require.Equal(t, 0, stats.Pools[0].Failures)
	})
}

func TestAnAttemptThatRunsOutOfTimeIsAFailureOfItsPool(t *testing.T) { // R054
	synctest.Test(t, func(t *testing.T) {
		script := &pooled{answer: func(_ int, req *http.Request) (*http.Response, error) { return blocked(req, nil) }}
		pools := &roundtrippers.Pools{New: script.New}
		rt, err := middleware.Stack(pools, roundtrippers.Shard{Dialect: rest.Dialect{}})
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		_, err = rt.RoundTrip(get(ctx, endpointA))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		var e *middleware.Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, middleware.DeadlineExceeded, e.Outcome.Cause)
		require.Equal(t, 300*time.Millisecond, time.Since(start()))
		require.Equal(t, []int{1}, script.sends())
		require.EqualValues(t, 1, pools.Stats()[0].Failures)
		require.Zero(t, pools.Stats()[0].Canceled)
	})
}

func TestADeadlineWithACauseOfItsOwnIsADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		script := &pooled{answer: func(_ int, req *http.Request) (*http.Response, error) { return blocked(req, nil) }}
		pools := &roundtrippers.Pools{New: script.New}
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errors.New("the report is due"))
		defer cancel()
		_, err := pools.RoundTrip(get(ctx, endpointA))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.EqualValues(t, 1, pools.Stats()[0].Failures)
	})
}

func TestAPanicBelowGivesThePlaceBack(t *testing.T) {
	script := &pooled{answer: func(int, *http.Request) (*http.Response, error) { panic("boom") }}
	pools := &roundtrippers.Pools{New: script.New}
	require.Panics(t, func() { _, _ = pools.RoundTrip(get(t.Context(), endpointA)) })
	require.Equal(t, []int{0}, inFlight(pools))
}

func TestHTTP1LoadAndAnyServerErrorStayOnOnePool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		script := &pooled{answer: func(_ int, req *http.Request) (*http.Response, error) {
			time.Sleep(time.Second)
			return answer(req, 1, http.StatusInternalServerError)
		}}
		pools := &roundtrippers.Pools{New: script.New}
		background(t.Context(), pools, 100).Wait()
		background(t.Context(), pools, 100).Wait()
		require.Equal(t, []int{200}, script.sends())
		require.Zero(t, pools.Stats()[0].Failures)
	})
}

func TestRequestsThatOpenAPoolAtOnceShareOneAndCloseTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 5
		script := &pooled{answer: func(_ int, req *http.Request) (*http.Response, error) {
			return answer(req, 1, http.StatusOK)
		}}
		var opening sync.WaitGroup // nobody has a pool before all have asked for one
		opening.Add(n)
		pools := &roundtrippers.Pools{New: func() http.RoundTripper {
			opening.Done()
			opening.Wait()
			return script.New()
		}}
		var wg sync.WaitGroup
		for range n {
			wg.Go(func() { _, _ = pools.RoundTrip(get(t.Context(), endpointA)) })
		}
		wg.Wait()
		served := 0
		for i, sends := range script.sends() {
			if sends > 0 {
				served++
				require.Equal(t, n, sends)
			}
			require.Equal(t, sends == 0, script.pools()[i].closes.Load() == 1, "pool %d", i)
		}
		require.Equal(t, 1, served)
		require.Len(t, pools.Stats()[0].Pools, 1)
	})
}

func TestAPoolThatKeepsFailingIsReplacedButNotWithinTheGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := true
		script := &pooled{answer: func(pool int, req *http.Request) (*http.Response, error) {
			if down && pool == 0 {
				return nil, errReset
			}
			return answer(req, 2, http.StatusOK)
		}}
		pools := &roundtrippers.Pools{New: script.New}
		down = false
		send(t, pools)
		down = true
		fail(t, pools, 20) // a success was moments ago
		require.Equal(t, []int{21}, script.sends())
		time.Sleep(2*time.Second - 1)
		fail(t, pools, 1)
		require.Zero(t, pools.Stats()[0].Replaced)
		time.Sleep(1)
		fail(t, pools, 1) // now it is 2 s ago
		require.EqualValues(t, 1, pools.Stats()[0].Replaced)
		require.EqualValues(t, 1, script.pools()[0].closes.Load())
		send(t, pools)
		require.Equal(t, []int{23, 1}, script.sends())
	})
}

func TestFourFailuresAndASuccessStartTheCountAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		script := &pooled{answer: func(_ int, req *http.Request) (*http.Response, error) {
			if n++; n%5 == 0 {
				return answer(req, 2, http.StatusBadGateway)
			}
			return nil, errReset
		}}
		pools := &roundtrippers.Pools{New: script.New}
		for range 20 {
			time.Sleep(time.Minute)
			fail(t, pools, 4)
			send(t, pools)
		}
		require.Equal(t, []int{100}, script.sends())
		require.Zero(t, pools.Stats()[0].Replaced)
	})
}

func TestAReplacedPoolIsClosedWhenItsLastRequestEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		done := make(chan struct{})
		hang := true
		script := &pooled{answer: func(pool int, req *http.Request) (*http.Response, error) {
			switch {
			case hang:
				return blocked(req, done)
			case pool == 0:
				return nil, errReset
			}
			return answer(req, 2, http.StatusOK)
		}}
		pools := &roundtrippers.Pools{New: script.New}
		wg := background(t.Context(), pools, 3)
		hang = false
		time.Sleep(3 * time.Second)
		fail(t, pools, 5)
		require.EqualValues(t, 1, pools.Stats()[0].Replaced)
		require.Equal(t, 3, pools.Stats()[0].InFlight, "those on the pool that was left")
		require.Zero(t, script.pools()[0].closes.Load())
		close(done)
		wg.Wait()
		require.EqualValues(t, 1, script.pools()[0].closes.Load())
		require.Zero(t, pools.Stats()[0].InFlight)
		send(t, pools)
		require.Equal(t, 1, script.sends()[1])
	})
}

func TestOfAllFailingPoolsOnlyTheWorstIsReplacedUntilTheNewOneHasShownItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		state := "warm"
		done := make(chan struct{})
		script := &pooled{}
		script.answer = func(pool int, req *http.Request) (*http.Response, error) {
			switch state {
			case "warm":
				return answer(req, 2, http.StatusOK)
			case "busy":
				return blocked(req, done)
			case "recovering":
				if pool >= 2 {
					return answer(req, 2, http.StatusOK)
				}
			}
			return nil, errReset
		}
		pools := &roundtrippers.Pools{New: script.New, Streams: 1}
		send(t, pools)
		state = "busy"
		wg := background(t.Context(), pools, 2)
		close(done)
		wg.Wait()
		require.Len(t, pools.Stats()[0].Pools, 2)

		state = "down"
		time.Sleep(3 * time.Second)
		// Until both have failed five times one of them counts as healthy, and the
		// failing one is given up without a new one.
		for pools.Stats()[0].Replaced == 0 {
			fail(t, pools, 1)
		}
		fail(t, pools, 30)
		require.EqualValues(t, 2, pools.Stats()[0].Replaced, "the second by a new one, which has yet to show itself")
		require.Len(t, pools.Stats()[0].Pools, 1)
		require.Len(t, script.pools(), 3)

		state = "recovering"
		send(t, pools)
		require.Equal(t, 0, pools.Stats()[0].Pools[0].Failures)
	})
}

func TestWhileANewPoolIsUntriedNoOtherIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var until chan struct{}
		script := &pooled{}
		script.answer = func(_ int, req *http.Request) (*http.Response, error) {
			if until == nil {
				return answer(req, 2, http.StatusOK)
			}
			<-until
			return nil, errReset
		}
		pools := &roundtrippers.Pools{New: script.New, Streams: 1, MaxPools: 2}
		send(t, pools)
		early, late := make(chan struct{}), make(chan struct{})
		until = early
		first := background(t.Context(), pools, 12)
		until = late
		second := background(t.Context(), pools, 12)
		require.Equal(t, []int{12, 12}, inFlight(pools))

		time.Sleep(time.Second)
		close(early) // six failures each, but within the grace
		first.Wait()
		require.Zero(t, pools.Stats()[0].Replaced)

		time.Sleep(2 * time.Second)
		close(late) // both are failing now
		second.Wait()
		require.EqualValues(t, 1, pools.Stats()[0].Replaced)
		require.Len(t, pools.Stats()[0].Pools, 2)
	})
}

func TestTheObserverIsToldOfAReplacedPool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		script := &pooled{answer: func(int, *http.Request) (*http.Response, error) { return nil, errReset }}
		pools := &roundtrippers.Pools{New: script.New}
		var told []middleware.Event
		rt, err := middleware.Stack(pools, middleware.Observer(func(_ context.Context, e middleware.Event) {
			if e.Kind == middleware.PoolReplaced {
				told = append(told, e)
			}
		}))
		require.NoError(t, err)
		time.Sleep(3 * time.Second)
		fail(t, rt, 4)
		time.Sleep(2 * time.Second)
		fail(t, rt, 1)
		require.Len(t, told, 1)
		require.Equal(t, "a.test", told[0].Endpoint)
		require.ErrorIs(t, told[0].Err, errReset)
		require.Equal(t, 1, told[0].Attempt)
	})
}

func TestSurplusPoolsThatIdleAreClosedAfterAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var wait time.Duration
		script := &pooled{answer: func(_ int, req *http.Request) (*http.Response, error) {
			time.Sleep(wait)
			return answer(req, 2, http.StatusOK)
		}}
		pools := &roundtrippers.Pools{New: script.New, Streams: 2}
		send(t, pools)
		wait = time.Second
		background(t.Context(), pools, 10).Wait()
		require.Len(t, inFlight(pools), 5)
		wait = 0
		for range 59 {
			send(t, pools)
			time.Sleep(time.Second)
		}
		require.Len(t, inFlight(pools), 5)
		for range 10 {
			send(t, pools)
			time.Sleep(time.Second)
		}
		require.Len(t, inFlight(pools), 1)
		require.Equal(t, 4, closes(script))
		for range 130 {
			send(t, pools)
			time.Sleep(time.Second)
		}
		pools.CloseIdleConnections()
		require.Equal(t, 4+4+1, closes(script), "each left pool is closed once more, then forgotten; the last one is closed here")
	})
}

// closes sums up how often the pools that were used were closed; those that lost
// the race to be opened were not.
func closes(script *pooled) (sum int) {
	for _, one := range script.pools() {
		if one.sends.Load() > 0 {
			sum += int(one.closes.Load())
		}
	}
	return sum
}

func TestErrorsThatNoConnectionCouldMendAreNoFailures(t *testing.T) {
	script := &pooled{answer: func(int, *http.Request) (*http.Response, error) {
		return nil, errors.New(`unsupported protocol scheme "ftp"`)
	}}
	pools := &roundtrippers.Pools{New: script.New}
	_, err := pools.RoundTrip(get(t.Context(), "ftp://a.test"))
	require.Error(t, err)
	require.Zero(t, pools.Stats()[0].Failures)
}

func TestErrorsStayWhatTheyWere(t *testing.T) {
	timeout := &timeoutError{}
	script := &pooled{answer: func(int, *http.Request) (*http.Response, error) { return nil, timeout }}
	pools := &roundtrippers.Pools{New: script.New}
	_, err := pools.RoundTrip(get(t.Context(), endpointA))
	require.Same(t, timeout, err, "without an operation nothing is wrapped")

	_, req := middleware.Begin(get(t.Context(), endpointA))
	_, err = pools.RoundTrip(req)
	require.ErrorIs(t, err, timeout)
	require.EqualError(t, err, timeout.Error())
	net, ok := err.(interface {
		Timeout() bool
		Temporary() bool
	})
	require.True(t, ok && net.Timeout() && net.Temporary())
}

type timeoutError struct{}

func (*timeoutError) Error() string   { return "timed out" }
func (*timeoutError) Timeout() bool   { return true }
func (*timeoutError) Temporary() bool { return true }

func TestEndpointsAreBoundedAndTheOneIdleLongestIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		done := make(chan struct{})
		script := &pooled{answer: func(_ int, req *http.Request) (*http.Response, error) {
			if req.URL.Host == "busy.test" {
				return blocked(req, done)
			}
			return answer(req, 1, http.StatusOK)
		}}
		pools := &roundtrippers.Pools{New: script.New, MaxEndpoints: 3}
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = pools.RoundTrip(get(t.Context(), "http://busy.test")) })
		synctest.Wait()
		for i := range 1000 {
			time.Sleep(time.Second)
			resp, err := pools.RoundTrip(get(t.Context(), fmt.Sprintf("http://h%d.test", i)))
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
		}
		var names []string
		for _, e := range pools.Stats() {
			names = append(names, e.Endpoint)
		}
		require.Equal(t, []string{"http://busy.test", "http://h998.test", "http://h999.test"}, names)
		for i, one := range script.pools() {
			kept := i == 0 || i >= 999
			require.Equal(t, !kept, one.closes.Load() == 1, "pool %d", i)
		}
		close(done)
		wg.Wait()
	})
}

func TestCloseIdleConnectionsReachesEveryPoolThroughTheStack(t *testing.T) {
	script := &pooled{answer: func(_ int, req *http.Request) (*http.Response, error) { return answer(req, 1, http.StatusOK) }}
	pools := &roundtrippers.Pools{New: script.New}
	pools.CloseIdleConnections() // before the first request there is nothing to close
	rt, err := middleware.Stack(pools, roundtrippers.Shard{Dialect: rest.Dialect{}})
	require.NoError(t, err)
	for _, url := range []string{"http://a.test", "https://a.test", "http://b.test"} {
		resp, err := rt.RoundTrip(get(t.Context(), url))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
	}
	(&http.Client{Transport: rt}).CloseIdleConnections()
	require.Len(t, script.pools(), 3)
	for _, one := range script.pools() {
		require.EqualValues(t, 1, one.closes.Load())
	}
}

func TestBadFieldsAreNamedAndTheRequestBodyIsClosed(t *testing.T) {
	for name, pools := range map[string]*roundtrippers.Pools{
		"Pools.Streams is -1":      {Streams: -1},
		"Pools.MaxPools is -2":     {MaxPools: -2},
		"Pools.MaxFailures is -3":  {MaxFailures: -3},
		"Pools.MaxEndpoints is -4": {MaxEndpoints: -4},
		"Pools.Grace is -1s":       {Grace: -time.Second},
		"Pools.IdleAfter is -2s":   {IdleAfter: -2 * time.Second},
		"Pools.New returned nil":   {New: func() http.RoundTripper { return nil }},
	} {
		body := layertest.NewBody("x")
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, endpointA, body)
		require.NoError(t, err)
		_, err = pools.RoundTrip(req)
		require.ErrorContains(t, err, name)
		require.Equal(t, 1, body.Closes(), name)
		if pools.New == nil {
			require.ErrorContains(t, pools.Validate(), name)
		}
	}
	require.NoError(t, new(roundtrippers.Pools).Validate())
	_, err := new(roundtrippers.Pools).RoundTrip(&http.Request{})
	require.ErrorContains(t, err, "no URL")
}

func TestWhereNoFurtherPoolCanBeOpenedTheOnesThereServe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		script := &pooled{answer: func(_ int, req *http.Request) (*http.Response, error) {
			time.Sleep(time.Second)
			return answer(req, 2, http.StatusOK)
		}}
		pools := &roundtrippers.Pools{Streams: 2, New: func() http.RoundTripper {
			if len(script.pools()) > 0 {
				return nil
			}
			return script.New()
		}}
		send(t, pools)
		background(t.Context(), pools, 9).Wait()
		require.Equal(t, []int{10}, script.sends())
	})
}

func TestAHealthyRequestAllocatesNothing(t *testing.T) {
	resp, _ := answer(nil, 2, http.StatusOK)
	pools := &roundtrippers.Pools{New: func() http.RoundTripper {
		return middleware.RoundTripperFunc(func(*http.Request) (*http.Response, error) { return resp, nil })
	}}
	bare := get(t.Context(), endpointA)
	_, operation := middleware.Begin(get(t.Context(), endpointA))
	for name, req := range map[string]*http.Request{"bare": bare, "in an operation": operation} {
		require.Zero(t, testing.AllocsPerRun(200, func() { _, _ = pools.RoundTrip(req) }), name)
	}
}

func TestWhateverHappensAllPlacesAreGivenBackAndThePoolsStayBounded(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		script := rapid.SliceOfN(rapid.IntRange(0, 5), 1, 60).Draw(rt, "script")
		major := rapid.IntRange(1, 2).Draw(rt, "protocol")
		workers := rapid.IntRange(1, 6).Draw(rt, "workers")
		synctest.Test(t, func(t *testing.T) {
			var n atomic.Int64
			under := &pooled{answer: func(_ int, req *http.Request) (*http.Response, error) {
				step := script[int(n.Add(1))%len(script)]
				switch step {
				case 0:
					return nil, errReset
				case 1:
					<-req.Context().Done()
					return nil, req.Context().Err()
				case 2:
					time.Sleep(700 * time.Millisecond)
					return nil, errReset
				case 3:
					time.Sleep(100 * time.Millisecond)
				}
				return answer(req, major, http.StatusOK)
			}}
			pools := &roundtrippers.Pools{New: under.New, Streams: 2, MaxPools: 3, IdleAfter: 3 * time.Second}
			stack, err := middleware.Stack(pools, roundtrippers.Shard{Dialect: rest.Dialect{}, Retries: 2, Timeouts: true},
				roundtrippers.AttemptTimeout{After: time.Second})
			require.NoError(t, err)
			var wg sync.WaitGroup
			for range workers {
				wg.Go(func() {
					for range 20 {
						if resp, err := stack.RoundTrip(get(t.Context(), endpointA)); err == nil {
							_ = resp.Body.Close()
						}
						if s := pools.Stats()[0]; len(s.Pools) < 1 || len(s.Pools) > 3 {
							t.Errorf("%d pools", len(s.Pools))
						}
					}
				})
			}
			wg.Wait()
			require.Zero(t, pools.Stats()[0].InFlight)
			pools.CloseIdleConnections()
			for i, one := range under.pools() {
				require.NotZero(t, one.closes.Load(), "pool %d was left open", i)
			}
		})
	})
}

func BenchmarkPoolsHealthy(b *testing.B) {
	resp, _ := answer(nil, 2, http.StatusOK)
	base := middleware.RoundTripperFunc(func(*http.Request) (*http.Response, error) { return resp, nil })
	pools := &roundtrippers.Pools{New: func() http.RoundTripper { return base }}
	_, req := middleware.Begin(get(context.Background(), "https://"+strings.Repeat("a", 20)+".documents.test/dbs/x"))
	b.Run("base", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, _ = base.RoundTrip(req)
		}
	})
	b.Run("pools", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, _ = pools.RoundTrip(req)
		}
	})
	b.Run("pools, parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				_, _ = pools.RoundTrip(req)
			}
		})
	})
}
