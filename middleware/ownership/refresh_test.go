package ownership_test

import (
	"context"
	"errors"
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
		select {
		case <-time.After(d):
			return s.current(), nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
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

func TestAThousandFailuresAtOnceShareOneFetch(t *testing.T) { // Z049, Z062, R22, issue point 2
	for name, a := range map[string][]layertest.Step{"moved": says("421"), "dead": says("refused")} {
		for takes, fetch := range map[string]time.Duration{"a fetch that takes time": 50 * time.Millisecond, "an instant fetch": 0} {
			t.Run(name+", "+takes, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := moving(t)
					a := a[0]
					a.Delay = time.Millisecond // all have been sent before the first one fails
					s.serves("a", a)
					s.fetch = s.after(fetch)
					start := time.Now()
					require.EqualValues(t, 1000, together(t, 1000, s.build(roundtrippers.OwnershipBuilder{})))
					require.EqualValues(t, 1, s.fetches.Load())
					require.Len(t, s.script.Sends(), 2000, "all failed once")
					require.Equal(t, time.Millisecond+fetch+100*time.Millisecond, time.Since(start), "nobody waited for anybody else")
				})
			})
		}
	}
}

func TestAFlightThatBeganBeforeTheFailureIsFollowedByOneMore(t *testing.T) { // Z059, A2
	for name, changed := range map[string]bool{"it brought nothing new": false, "it brought a newer map that is still wrong": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newShards(t, map[string][]layertest.Step{"a": says("421"), "b": says("200")})
				if changed {
					s.moved(8, "a")
				}
				s.fetch = s.early(50 * time.Millisecond)
				s.registry.Trigger("k", middleware.Target{Endpoint: "a", Epoch: 7})
				time.Sleep(5 * time.Millisecond)
				s.moved(9, "b")
				require.EqualValues(t, 50, together(t, 50, s.build(waitless)))
				require.EqualValues(t, 2, s.fetches.Load(), "not one for each who joined")
				require.Len(t, s.script.Sends(), 100, "nobody asked a twice")
			})
		})
	}
}

func TestTheStormWithAHungMapService(t *testing.T) { // R17, Z061, Z065, issue point 2
	synctest.Test(t, func(t *testing.T) {
		s := moving(t)
		hang := make(chan struct{})
		defer close(hang)
		s.fetch = func(context.Context, int64) (*ownership.Map, error) { <-hang; return nil, errors.New("at last") } // ignores its context
		rt := s.build(roundtrippers.OwnershipBuilder{})
		start := time.Now()
		var wg sync.WaitGroup
		for range 1000 {
			wg.Go(func() {
				began := time.Now()
				status, err := send(t.Context(), rt)
				require.NoError(t, err)
				require.Equal(t, 421, status, "the answer in hand")
				require.LessOrEqual(t, time.Since(began), time.Minute)
			})
		}
		time.Sleep(time.Second)
		for range 10_000 { // readers are not held up
			target, err := s.registry.Owner(t.Context(), "k")
			require.NoError(t, err)
			require.Equal(t, "a", target.Endpoint)
		}
		require.Equal(t, time.Second, time.Since(start))
		wg.Wait()
		require.LessOrEqual(t, time.Since(start), 31*time.Second, "two waits of 15 s")
		require.LessOrEqual(t, s.fetches.Load(), int64(3), "one each time its 30 s were over")

		// The slot is free again.
		time.Sleep(time.Minute)
		s.healed.Store(true)
		status, err := send(t.Context(), rt)
		require.NoError(t, err)
		require.Equal(t, 200, status)
	})
}

func TestWhatSomebodyElseHasReadIsUsedAtOnce(t *testing.T) { // Z050
	synctest.Test(t, func(t *testing.T) {
		s := moving(t)
		s.serves("a", layertest.Step{Status: 421, Delay: 50 * time.Millisecond})
		time.AfterFunc(20*time.Millisecond, func() { _, _ = s.registry.Force(t.Context()) })
		start := time.Now()
		status, err := send(t.Context(), s.build(roundtrippers.OwnershipBuilder{}))
		require.NoError(t, err)
		require.Equal(t, 200, status)
		require.EqualValues(t, 1, s.fetches.Load(), "the other's")
		require.Equal(t, 150*time.Millisecond, time.Since(start), "no wait for a fetch")
	})
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

func TestAThousandOperationsThatTheMapCannotHelpDoNotStormIt(t *testing.T) { // the seed's incident: "a cluster-map refresh on every attempt"
	synctest.Test(t, func(t *testing.T) {
		s := newShards(t, map[string][]layertest.Step{"a": says("421")})
		start := time.Now()
		require.Zero(t, together(t, 1000, s.build(roundtrippers.OwnershipBuilder{})))
		require.LessOrEqual(t, s.fetches.Load(), int64(4))
		require.LessOrEqual(t, time.Since(start), 2*time.Second)
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
			time.AfterFunc(leave, cancel)
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

func TestAFailedFetchReleasesTheWaitersAndIsNoSuccess(t *testing.T) { // Z057, A6
	synctest.Test(t, func(t *testing.T) {
		s := moving(t)
		boom := errors.New("map service down")
		s.fetch = func(_ context.Context, n int64) (*ownership.Map, error) {
			if n == 1 {
				return nil, boom
			}
			return s.current(), nil
		}
		var seen []error
		start := time.Now()
		status, err := send(t.Context(), s.build(roundtrippers.OwnershipBuilder{Observe: func(_ context.Context, e middleware.Event) {
			if e.Kind == middleware.RangesRefreshed {
				seen = append(seen, e.Err)
			}
		}}))
		require.NoError(t, err)
		require.Equal(t, 200, status)
		require.Equal(t, "a a b", s.hosts())
		require.Len(t, seen, 2)
		require.ErrorIs(t, seen[0], boom)
		require.NoError(t, seen[1])
		require.Equal(t, 300*time.Millisecond, time.Since(start), "100 ms after the failure it was asked again, not 500")
	})
}

func TestAPanicInTheSourceIsAnError(t *testing.T) { // Z058
	synctest.Test(t, func(t *testing.T) {
		s := moving(t)
		s.fetch = func(_ context.Context, n int64) (*ownership.Map, error) {
			if n == 1 {
				panic("boom")
			}
			return s.current(), nil
		}
		status, err := send(t.Context(), s.build(roundtrippers.OwnershipBuilder{}))
		require.NoError(t, err)
		require.Equal(t, 200, status)
	})
}

func TestAnOlderMapNeverOverwritesANewerOne(t *testing.T) { // Z060
	synctest.Test(t, func(t *testing.T) {
		s := newShards(t, map[string][]layertest.Step{"a": {hinting("b", "42")}, "b": says("200")})
		s.moved(41, "a")
		status, err := send(t.Context(), s.build(roundtrippers.OwnershipBuilder{}))
		require.NoError(t, err)
		require.Equal(t, 200, status)
		time.Sleep(time.Second)
		require.EqualValues(t, 41, s.registry.Map().Epoch, "read in the background")
		target, err := s.registry.Owner(t.Context(), "k")
		require.NoError(t, err)
		require.Equal(t, middleware.Target{Endpoint: "b", Range: "0", Epoch: 42, Override: true}, target)

		s.moved(40, "c")
		_, err = s.registry.Force(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 41, s.registry.Map().Epoch)
		s.moved(42, "c")
		_, err = s.registry.Force(t.Context())
		require.NoError(t, err)
		target, err = s.registry.Owner(t.Context(), "k")
		require.NoError(t, err)
		require.Equal(t, "c", target.Endpoint, "the map is as new as the hint")
		require.False(t, target.Override)
	})
}

func TestUnavailableAndMigratingNeverFetch(t *testing.T) { // Z063
	for _, first := range []string{"503", "503/migrating"} {
		synctest.Test(t, func(t *testing.T) {
			s := moving(t)
			steps := make([]layertest.Step, 100)
			for i := range steps {
				steps[i] = says(first)[0]
			}
			s.serves("a", append(steps, says("200")...)...)
			require.EqualValues(t, 100, together(t, 100, s.build(roundtrippers.OwnershipBuilder{})))
			time.Sleep(time.Minute)
			require.Zero(t, s.fetches.Load())
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

func TestASourceThatPanicsIsLeftAlone(t *testing.T) { // Z057, Z058: a panic is a failure, so nobody passes over the spacing
	synctest.Test(t, func(t *testing.T) {
		s := moving(t)
		s.fetch = func(context.Context, int64) (*ownership.Map, error) { panic("boom") }
		rt := s.build(roundtrippers.OwnershipBuilder{Reroute: roundtrippers.Reroute{RefreshWait: 50 * time.Millisecond}})
		var wg sync.WaitGroup
		for range 500 {
			wg.Go(func() { _, _ = send(t.Context(), rt) })
			time.Sleep(20 * time.Millisecond)
		}
		wg.Wait()
		require.GreaterOrEqual(t, s.fetches.Load(), int64(6))
		require.LessOrEqual(t, s.fetches.Load(), int64(8))
	})
}

func TestWhatAnAbandonedFetchSaysLateIsNotRemembered(t *testing.T) { // Z065, Z069
	synctest.Test(t, func(t *testing.T) {
		s := moving(t)
		hang := make(chan struct{})
		s.fetch = func(_ context.Context, n int64) (*ownership.Map, error) {
			if n == 1 {
				<-hang // deaf to its context
				return nil, &ownership.FetchError{Status: 403}
			}
			return s.current(), nil
		}
		used := middleware.Target{Endpoint: "a", Epoch: 7}
		require.ErrorIs(t, s.registry.Refresh(t.Context(), "k", used, false), snapshot.ErrTimeout)
		require.NoError(t, s.registry.Refresh(t.Context(), "k", used, false))
		require.EqualValues(t, 8, s.registry.Map().Epoch)
		close(hang) // the service was out of sorts half a minute ago
		time.Sleep(time.Second)
		s.moved(9, "c")
		require.NoError(t, s.registry.Refresh(t.Context(), "k", middleware.Target{Endpoint: "b", Epoch: 8}, false))
		require.EqualValues(t, 9, s.registry.Map().Epoch)
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

func TestJitterSpreadsTheStormOverTime(t *testing.T) { // R22: the surviving node sees no synchronous spike
	for jitter, most := range map[float64]int{0: 1000, 0.5: 100} {
		synctest.Test(t, func(t *testing.T) {
			s := moving(t)
			s.serves("a", layertest.Step{Status: 421, Delay: time.Millisecond})
			require.EqualValues(t, 1000, together(t, 1000, s.build(roundtrippers.OwnershipBuilder{Reroute: roundtrippers.Reroute{Jitter: jitter}})))
			perMillisecond, spike := map[time.Duration]int{}, 0
			for _, sent := range s.script.Sends() {
				if sent.URL.Host == "b" {
					at := sent.After.Truncate(time.Millisecond)
					perMillisecond[at]++
					spike = max(spike, perMillisecond[at])
				}
			}
			require.LessOrEqual(t, spike, most)
			require.GreaterOrEqual(t, spike, most/10)
		})
	}
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

func TestAnIncompleteMapIsRefused(t *testing.T) { // Z068, P21
	whole := []ownership.Segment{{Owner: "a"}, {Owner: "b"}}
	for name, bad := range map[string]*ownership.Map{
		"shrunken":      {Epoch: 9, Segments: whole[:1]},
		"grown":         {Epoch: 9, Segments: append(whole, whole...)},
		"empty":         {Epoch: 9},
		"without owner": {Epoch: 9, Segments: []ownership.Segment{{}, {}}},
		"junk owner":    {Epoch: 9, Segments: []ownership.Segment{{Owner: "a"}, {Owner: "user@b/path"}}},
		"junk node":     {Epoch: 9, Segments: whole, Nodes: []string{"b:port"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				now := &ownership.Map{Epoch: 8, Segments: whole}
				r, err := ownership.New(ownership.Config{Source: ownership.MapSourceFunc(func(context.Context, *ownership.Map) (*ownership.Map, error) { return now, nil })})
				require.NoError(t, err)
				_, err = r.Force(t.Context())
				require.NoError(t, err)
				now = bad
				m, err := r.Force(t.Context())
				var refused *ownership.MapError
				require.ErrorAs(t, err, &refused)
				require.EqualValues(t, 8, m.Epoch)
				now = &ownership.Map{Epoch: 10, Segments: whole}
				start := time.Now()
				require.NoError(t, r.Refresh(t.Context(), "k", middleware.Target{Endpoint: r.Map().Segments[ownership.SegmentOf("k", 2)].Owner, Epoch: 8}, false))
				require.Equal(t, 100*time.Millisecond, time.Since(start), "counted as a failed fetch")
			})
		})
	}
}

func TestAPermanentFailureIsRemembered(t *testing.T) { // Z069, P21
	for _, status := range []int{401, 403, 404} {
		synctest.Test(t, func(t *testing.T) {
			s := moving(t)
			s.fetch = func(context.Context, int64) (*ownership.Map, error) {
				return nil, &ownership.FetchError{Status: status}
			}
			rt := s.build(roundtrippers.OwnershipBuilder{})
			var wg sync.WaitGroup
			for i := range 100 {
				time.Sleep(10 * time.Millisecond)
				_ = i
				wg.Go(func() { _, _ = send(t.Context(), rt) })
			}
			wg.Wait()
			require.LessOrEqual(t, s.fetches.Load(), int64(2))
			s.healed.Store(true)
			m, err := s.registry.Force(t.Context())
			require.NoError(t, err, "an explicit refresh asks nevertheless")
			require.EqualValues(t, 8, m.Epoch)
		})
	}
	t.Run("for ten seconds", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := moving(t)
			s.fetch = func(context.Context, int64) (*ownership.Map, error) { return nil, &ownership.FetchError{Status: 403} }
			used := middleware.Target{Endpoint: "a", Epoch: 7}
			require.Error(t, s.registry.Refresh(t.Context(), "k", used, false))
			s.healed.Store(true)
			time.Sleep(9999 * time.Millisecond)
			require.Error(t, s.registry.Refresh(t.Context(), "k", used, true))
			require.EqualValues(t, 1, s.fetches.Load())
			time.Sleep(time.Millisecond)
			require.NoError(t, s.registry.Refresh(t.Context(), "k", used, false))
			require.EqualValues(t, 2, s.fetches.Load())
		})
	})
}

func TestOneDeadNodeSparesTheOtherKeysTheSameError(t *testing.T) { // P17: by the map that its first failure has read
	synctest.Test(t, func(t *testing.T) {
		s := moving(t)
		s.serves("a", says("refused")...)
		rt := s.build(roundtrippers.OwnershipBuilder{})
		for range 100 {
			status, err := send(t.Context(), rt)
			require.NoError(t, err)
			require.Equal(t, 200, status)
		}
		require.Len(t, s.script.Sends(), 101)
		require.EqualValues(t, 1, s.fetches.Load())
	})
}

func TestTheFirstMapIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShards(t, map[string][]layertest.Step{"a": says("200")})
		s.fetch = s.after(3 * time.Second)
		var err error
		s.registry, err = ownership.New(ownership.Config{Source: ownership.MapSourceFunc(s.read)})
		require.NoError(t, err)
		require.EqualValues(t, 100, together(t, 100, s.build(roundtrippers.OwnershipBuilder{})))
		require.EqualValues(t, 1, s.fetches.Load())
	})
}

func TestAMapFetchedThroughItsOwnStackDoesNotDeadlock(t *testing.T) { // R38
	synctest.Test(t, func(t *testing.T) {
		s := newShards(t, nil)
		source := &ownership.HTTPSource{URL: "http://kv.test/kv/map"}
		var err error
		s.registry, err = ownership.New(ownership.Config{Source: source})
		require.NoError(t, err)
		rt := s.build(roundtrippers.OwnershipBuilder{})
		source.Client = &http.Client{Transport: rt}
		start := time.Now()
		_, err = send(t.Context(), rt)
		require.ErrorIs(t, err, middleware.ErrNoOwner)
		require.ErrorContains(t, err, "a client of its own")
		require.Less(t, time.Since(start), 2*time.Second)
	})
}

func TestAMapServiceAmongTheKeysItMapsIsNotWaitedFor(t *testing.T) { // R16, R38: a map is held, and proves outdated on the way to the next
	synctest.Test(t, func(t *testing.T) {
		s := newShards(t, map[string][]layertest.Step{"a": says("421")})
		source := &ownership.HTTPSource{URL: "http://kv.test/kv/map"}
		through := false
		var err error
		s.registry, err = ownership.New(ownership.Config{Source: ownership.MapSourceFunc(func(ctx context.Context, old *ownership.Map) (*ownership.Map, error) {
			if through {
				return source.Fetch(ctx, old)
			}
			return s.current(), nil
		})})
		require.NoError(t, err)
		_, err = s.registry.Force(t.Context())
		require.NoError(t, err)
		rt := s.build(roundtrippers.OwnershipBuilder{})
		source.Client = &http.Client{Transport: rt}
		through = true
		start := time.Now()
		_, err = s.registry.Force(t.Context())
		var failed *ownership.FetchError
		require.ErrorAs(t, err, &failed)
		require.Equal(t, 421, failed.Status)
		require.Equal(t, 300*time.Millisecond, time.Since(start), "three sends, no wait for itself")
	})
}

func TestCloseReleasesTheWaiters(t *testing.T) { // R46
	synctest.Test(t, func(t *testing.T) {
		s := moving(t)
		s.fetch = s.after(time.Hour)
		time.AfterFunc(time.Second, s.registry.Close)
		start := time.Now()
		err := s.registry.Refresh(t.Context(), "k", middleware.Target{Endpoint: "a", Epoch: 7}, false)
		require.ErrorIs(t, err, snapshot.ErrClosed)
		require.Equal(t, time.Second, time.Since(start))
		fetches := s.fetches.Load()
		status, err := send(t.Context(), s.build(roundtrippers.OwnershipBuilder{}))
		require.NoError(t, err)
		require.Equal(t, 421, status, "by the map that stays")
		require.Equal(t, fetches, s.fetches.Load())
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

func TestUnnumberedMapsAreNewerWhenTheyDiffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShards(t, map[string][]layertest.Step{"a": says("421"), "b": says("200")})
		s.moved(0, "a")
		var err error
		s.registry, err = ownership.New(ownership.Config{Source: ownership.MapSourceFunc(s.read)})
		require.NoError(t, err)
		first, err := s.registry.Force(t.Context())
		require.NoError(t, err)
		same, err := s.registry.Force(t.Context())
		require.NoError(t, err)
		require.Same(t, first, same)
		s.moved(0, "b")
		status, err := send(t.Context(), s.build(roundtrippers.OwnershipBuilder{}))
		require.NoError(t, err)
		require.Equal(t, 200, status)
		require.Greater(t, s.registry.Map().Epoch, first.Epoch)
	})
}

func TestAFailingMapServiceIsLeftAlone(t *testing.T) { // Z057: 100 ms doubling to 5 s, whoever insists
	synctest.Test(t, func(t *testing.T) {
		s := moving(t)
		s.fetch = func(context.Context, int64) (*ownership.Map, error) { return nil, errors.New("down") }
		rt := s.build(roundtrippers.OwnershipBuilder{Reroute: roundtrippers.Reroute{RefreshWait: 50 * time.Millisecond}})
		var wg sync.WaitGroup
		for range 1000 {
			wg.Go(func() { _, _ = send(t.Context(), rt) })
			time.Sleep(10 * time.Millisecond)
		}
		wg.Wait()
		require.GreaterOrEqual(t, s.fetches.Load(), int64(6))
		require.LessOrEqual(t, s.fetches.Load(), int64(8))
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

func TestAFailureThatMeetsTheEndOfAFlightStartsNoOther(t *testing.T) { // R14, R15
	synctest.Test(t, func(t *testing.T) {
		s := moving(t)
		s.fetch = s.after(50 * time.Millisecond)
		s.serves("a", layertest.Step{Status: 421}, layertest.Step{Status: 421, Delay: 50 * time.Millisecond})
		require.EqualValues(t, 100, together(t, 100, s.build(waitless)), "failures at 0 and, just when the map comes, at 50 ms")
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
