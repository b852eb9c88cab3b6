package ownership_test

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/layertest"
	"github.com/reroute-go/reroute/middleware/ownership"
	"github.com/reroute-go/reroute/regions/snapshot"
	"github.com/reroute-go/reroute/roundtrippers"
)

// waitless has no wait between attempts, so that what takes time is the map.
var waitless = roundtrippers.OwnershipBuilder{Reroute: roundtrippers.Reroute{Base: 1}}

// moving is a service whose key has moved from a to b, as the map will tell.
func moving(t *testing.T) *shards {
	s := newShards(t, map[string][]layertest.Step{"a": says("421"), "b": says("200")})
	s.moved(8, "b")
	return s
}

// send sends a GET and returns the answer's status, or 0.
func send(ctx context.Context, rt http.RoundTripper) (int, error) {
	resp, err := rt.RoundTrip(request(ctx, "GET", ""))
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}

// together runs n operations at the same instant and counts those that found b.
func together(t *testing.T, n int, rt http.RoundTripper) (ok int64) {
	var wg sync.WaitGroup
	var found atomic.Int64
	for range n {
		wg.Go(func() {
			if status, err := send(t.Context(), rt); err == nil && status == 200 {
				found.Add(1)
			}
		})
	}
	wg.Wait()
	return found.Load()
}

// after is a fetch that takes a while and reads the map at its end.
func (s *shards) after(d time.Duration) func(context.Context, int64) (*ownership.Map, error) {
	return func(ctx context.Context, _ int64) (*ownership.Map, error) {
		if d > 0 { // a timer of 0 in a bubble brings the race detector's runtime down (go1.26)
			select {
			case <-time.After(d):
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		return s.current(), nil
	}
}

// early is a fetch that takes a while and has read the map at its beginning.
func (s *shards) early(d time.Duration) func(context.Context, int64) (*ownership.Map, error) {
	return func(context.Context, int64) (*ownership.Map, error) {
		m := s.current()
		time.Sleep(d)
		return m, nil
	}
}

func TestTheDebounceHasAnExactEdge(t *testing.T) { // Z051
	for since, wait := range map[time.Duration]time.Duration{499 * time.Millisecond: time.Millisecond, 500 * time.Millisecond: 0} {
		synctest.Test(t, func(t *testing.T) {
			s := newShards(t, map[string][]layertest.Step{"a": says("421"), "b": says("200")})
			_, err := s.registry.Force(t.Context())
			require.NoError(t, err)
			time.Sleep(since)
			s.moved(8, "b")
			start := time.Now()
			_, err = send(t.Context(), s.build(waitless))
			require.NoError(t, err)
			require.Equal(t, wait+1, time.Since(start))
			require.EqualValues(t, 2, s.fetches.Load())
		})
	}
}

func TestTheDebounceDelaysAndNeverStarves(t *testing.T) { // Z052, R21, A1
	synctest.Test(t, func(t *testing.T) {
		s := newShards(t, map[string][]layertest.Step{"a": says("421"), "b": says("200")})
		start := time.Now()
		_, err := s.registry.Force(t.Context())
		require.NoError(t, err)
		time.Sleep(10 * time.Millisecond)
		s.moved(8, "b")
		time.Sleep(10 * time.Millisecond)
		status, err := send(t.Context(), s.build(roundtrippers.OwnershipBuilder{}))
		require.NoError(t, err)
		require.Equal(t, 200, status)
		require.Equal(t, 600*time.Millisecond, time.Since(start))
		require.EqualValues(t, 2, s.fetches.Load())
		require.Equal(t, "a b", s.hosts())
	})
}

func TestASecondMoveDuringTheRetryIsFollowed(t *testing.T) { // R20: a second rejection passes over the debounce
	synctest.Test(t, func(t *testing.T) {
		s := newShards(t, map[string][]layertest.Step{"a": says("421"), "b": says("421"), "c": says("200")})
		s.moved(8, "b")
		time.AfterFunc(50*time.Millisecond, func() { s.moved(9, "c") })
		start := time.Now()
		status, err := send(t.Context(), s.build(roundtrippers.OwnershipBuilder{}))
		require.NoError(t, err)
		require.Equal(t, 200, status)
		require.Equal(t, "a b c", s.hosts())
		require.Equal(t, 300*time.Millisecond, time.Since(start))
	})
}

func TestAWaitEndsAndTheFetchGoesOn(t *testing.T) { // Z053
	synctest.Test(t, func(t *testing.T) {
		s := moving(t)
		s.serves("a", says("421", "200")...)
		var ended error
		s.fetch = func(ctx context.Context, _ int64) (*ownership.Map, error) {
			m, err := s.after(20*time.Second)(ctx, 0)
			ended = err
			return m, err
		}
		var refreshed error
		start := time.Now()
		status, err := send(t.Context(), s.build(roundtrippers.OwnershipBuilder{Observe: func(_ context.Context, e middleware.Event) {
			if e.Kind == middleware.RangesRefreshed {
				refreshed = e.Err
			}
		}}))
		require.NoError(t, err)
		require.Equal(t, 200, status)
		require.Equal(t, 15100*time.Millisecond, time.Since(start))
		require.Equal(t, "a a", s.hosts(), "by the old map")
		require.ErrorIs(t, refreshed, snapshot.ErrMaxWait)
		time.Sleep(5 * time.Second)
		require.EqualValues(t, 8, s.registry.Map().Epoch)
		require.NoError(t, ended, "the fetch was not cancelled")
	})
}

func TestAWaitLeavesTimeForTheAnswer(t *testing.T) { // Z054, P14
	synctest.Test(t, func(t *testing.T) {
		s := moving(t)
		s.fetch = s.after(20 * time.Second)
		start := time.Now()
		resp, err := s.build(roundtrippers.OwnershipBuilder{OperationTimeout: 2 * time.Second}).RoundTrip(request(t.Context(), "GET", ""))
		require.NoError(t, err)
		require.Equal(t, 1900*time.Millisecond, time.Since(start), "no attempt would follow a longer wait")
		require.Equal(t, middleware.Deadline, reportOf(t, resp, err).Stop)
		require.Equal(t, "421", text(t, resp))
	})
}

func TestWhoStartedTheFetchMayLeave(t *testing.T) { // Z055, R11
	for _, leave := range []time.Duration{0, 10 * time.Millisecond, 50 * time.Millisecond, time.Second} {
		synctest.Test(t, func(t *testing.T) {
			s := moving(t)
			s.fetch = s.after(50 * time.Millisecond)
			rt := s.build(waitless)
			ctx, cancel := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			wg.Go(func() { _, _ = send(ctx, rt) })
			if leave == 0 { // a timer of 0 now and then ends the race detector's runtime in a bubble
				synctest.Wait()
				cancel()
			} else {
				time.AfterFunc(leave, cancel)
			}
			synctest.Wait()
			start := time.Now()
			wg.Go(func() {
				status, err := send(t.Context(), rt)
				require.NoError(t, err)
				require.Equal(t, 200, status)
				require.LessOrEqual(t, time.Since(start), 50*time.Millisecond+1)
			})
			wg.Wait()
			require.EqualValues(t, 1, s.fetches.Load())
			cancel()
		})
	}
}

func TestTheLastFailureLeavesARefreshBehind(t *testing.T) { // Z040, Z066, Z074, A4: a trigger, no wait
	for name, b := range map[string]roundtrippers.OwnershipBuilder{
		"one attempt": {Reroute: roundtrippers.Reroute{Attempts: 1}},
		"disabled":    {Switches: roundtrippers.Switches{DisableRetries: true}},
		"no time":     {OperationTimeout: 50 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := moving(t)
				s.fetch = s.after(20 * time.Millisecond)
				rt := s.build(b)
				start := time.Now()
				status, err := send(t.Context(), rt)
				require.NoError(t, err)
				require.Equal(t, 421, status, "the raw answer")
				require.Zero(t, time.Since(start))
				time.Sleep(20 * time.Millisecond)
				synctest.Wait()
				status, err = send(t.Context(), rt)
				require.NoError(t, err)
				require.Equal(t, 200, status)
				require.Equal(t, "a b", s.hosts())
				require.EqualValues(t, 1, s.fetches.Load())
			})
		})
	}
	t.Run("a POST in doubt", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := moving(t)
			s.serves("a", says("reset")...)
			_, err := s.build(roundtrippers.OwnershipBuilder{}).RoundTrip(request(t.Context(), "POST", "v"))
			require.ErrorIs(t, err, middleware.ErrNotRepeatable)
			synctest.Wait()
			require.EqualValues(t, 1, s.fetches.Load())
		})
	})
}

func TestARefreshWaitOfNoneTriggersAndGoesOn(t *testing.T) { // Z078
	synctest.Test(t, func(t *testing.T) {
		s := moving(t)
		s.fetch = s.after(50 * time.Millisecond)
		start := time.Now()
		status, err := send(t.Context(), s.build(roundtrippers.OwnershipBuilder{Switches: roundtrippers.Switches{RefreshWait: -1}}))
		require.NoError(t, err)
		require.Equal(t, 200, status)
		require.Equal(t, 100*time.Millisecond, time.Since(start), "the map came during the wait between the attempts")
	})
}

func TestARefreshWaitByTheSwitchIsKept(t *testing.T) { // Z078
	synctest.Test(t, func(t *testing.T) {
		s := moving(t)
		s.serves("a", says("421", "200")...)
		s.fetch = s.after(20 * time.Second)
		switches, err := roundtrippers.SwitchesFromEnv("KV_", func(name string) (string, bool) {
			if name == "KV_CLIENT_MAP_REFRESH_WAIT_MS" {
				return "500", true
			}
			return "", false
		})
		require.NoError(t, err)
		start := time.Now()
		status, err := send(t.Context(), s.build(roundtrippers.OwnershipBuilder{Switches: switches}))
		require.NoError(t, err)
		require.Equal(t, 200, status)
		require.Equal(t, 600*time.Millisecond, time.Since(start))
		require.Equal(t, "a a", s.hosts(), "by the old map")
	})
}

func TestOnChangeMayUseTheRegistry(t *testing.T) { // Z067, R16
	synctest.Test(t, func(t *testing.T) {
		s := moving(t)
		calls := 0
		var registry *ownership.Registry
		registry, err := ownership.New(ownership.Config{Source: ownership.MapSourceFunc(s.read), OnChange: func(old, new *ownership.Map) {
			calls++
			require.Same(t, new, registry.Map())
			target, err := registry.Owner(t.Context(), "k")
			require.NoError(t, err)
			require.Equal(t, new.Epoch, target.Epoch)
			if new.Epoch == 8 {
				require.Nil(t, old)
				s.moved(9, "c")
				require.NoError(t, registry.Refresh(t.Context(), "k", target, true))
			}
		}})
		require.NoError(t, err)
		m, err := registry.Force(t.Context())
		require.NoError(t, err)
		require.Equal(t, 2, calls)
		require.EqualValues(t, 9, m.Epoch)
	})
}

func TestASlowObserverHoldsUpOnlyItsOwnCall(t *testing.T) { // R47
	synctest.Test(t, func(t *testing.T) {
		s := moving(t)
		slow := s.build(roundtrippers.OwnershipBuilder{Observe: func(_ context.Context, e middleware.Event) {
			if e.Kind == middleware.RangesRefreshed {
				time.Sleep(time.Second)
			}
		}})
		quick := s.build(waitless)
		var wg sync.WaitGroup
		start := time.Now()
		wg.Go(func() { _, _ = send(t.Context(), slow) })
		synctest.Wait()
		wg.Go(func() {
			_, err := send(t.Context(), quick)
			require.NoError(t, err)
			require.Less(t, time.Since(start), time.Millisecond)
		})
		wg.Wait()
		require.GreaterOrEqual(t, time.Since(start), time.Second)
	})
}

func TestAWaitThatEndsWithTheFlightLosesNothing(t *testing.T) { // R13
	synctest.Test(t, func(t *testing.T) {
		s := moving(t)
		s.serves("a", says("421", "200")...)
		s.fetch = s.after(15 * time.Second) // as long as the wait
		start := time.Now()
		status, err := send(t.Context(), s.build(roundtrippers.OwnershipBuilder{}))
		require.NoError(t, err)
		require.Equal(t, 200, status)
		require.Equal(t, 15100*time.Millisecond, time.Since(start))
		require.EqualValues(t, 8, s.registry.Map().Epoch)
		require.EqualValues(t, 1, s.fetches.Load())
	})
}

func TestACancelThatMeetsTheAnswerIsOneOrTheOther(t *testing.T) { // R25; the script fails the test if a body stays open
	synctest.Test(t, func(t *testing.T) {
		s := newShards(t, map[string][]layertest.Step{"a": {{Delay: 50 * time.Millisecond, Body: "v"}}})
		rt := s.build(roundtrippers.OwnershipBuilder{})
		for range 20 {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(50*time.Millisecond, cancel)
			resp, err := rt.RoundTrip(request(ctx, "GET", ""))
			require.NotEqual(t, resp == nil, err == nil)
			if err != nil {
				require.ErrorIs(t, err, context.Canceled)
			} else {
				_ = resp.Body.Close()
			}
			cancel()
		}
	})
}
