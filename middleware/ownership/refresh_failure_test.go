package ownership_test

import (
	"context"
	"errors"
	"net/http"
	"sync"
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

func TestTheReportTellsOfAFailedRefresh(t *testing.T) { // X20, Z057: the error is kept where the call is told
	synctest.Test(t, func(t *testing.T) {
		s := moving(t)
		boom := errors.New("map service down")
		s.fetch = func(context.Context, int64) (*ownership.Map, error) { return nil, boom }
		resp, err := s.build(roundtrippers.OwnershipBuilder{}).RoundTrip(request(t.Context(), http.MethodGet, ""))
		report := reportOf(t, resp, err)
		require.Equal(t, 2, report.Refreshes, "before each of the two re-sends")
		require.ErrorIs(t, report.RefreshErr, boom)
		require.NoError(t, resp.Body.Close())
	})
}

func TestTheReportCountsTheWaitForTheMap(t *testing.T) { // X20: from the operation's begin to its end
	for _, wait := range []time.Duration{time.Second, time.Minute} { // the map comes, or time runs out before it
		synctest.Test(t, func(t *testing.T) {
			s := moving(t)
			s.fetch = func(context.Context, int64) (*ownership.Map, error) {
				time.Sleep(wait)
				return s.current(), nil
			}
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			rt := s.build(roundtrippers.OwnershipBuilder{})
			start := time.Now()
			resp, err := rt.RoundTrip(request(ctx, http.MethodGet, ""))
			took := time.Since(start)
			require.Equal(t, took, reportOf(t, resp, err).Elapsed)
			require.Greater(t, took, 900*time.Millisecond)
			if resp != nil {
				require.NoError(t, resp.Body.Close())
			}
			time.Sleep(time.Minute) // for the fetch that is left
		})
	}
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
