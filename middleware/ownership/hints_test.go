package ownership_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/layertest"
	"github.com/reroute-go/reroute/middleware/ownership"
	"github.com/reroute-go/reroute/roundtrippers"
)

func TestAHintIsFollowedAtOnce(t *testing.T) { // Z070, P02
	for name, epoch := range map[string]string{"with an epoch": "8", "without one": ""} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newShards(t, map[string][]layertest.Step{"a": {hinting("b", epoch)}, "b": says("200")})
				s.moved(8, "b")
				s.fetch = s.after(time.Second)
				start := time.Now()
				status, err := send(t.Context(), s.build(roundtrippers.OwnershipBuilder{}))
				require.NoError(t, err)
				require.Equal(t, 200, status)
				require.Zero(t, time.Since(start), "neither a wait nor a fetch")
				synctest.Wait()
				require.EqualValues(t, 1, s.fetches.Load(), "the lazy refresh")

				status, err = send(t.Context(), s.build(roundtrippers.OwnershipBuilder{}))
				require.NoError(t, err)
				require.Equal(t, 200, status)
				require.Equal(t, "a b b", s.hosts(), "the next operation knows")
				time.Sleep(time.Second)
				synctest.Wait()
				target, err := s.registry.Owner(t.Context(), "k")
				require.NoError(t, err)
				require.Equal(t, middleware.Target{Endpoint: "b", Range: "0", Epoch: 8}, target, "by the map now")
			})
		})
	}
}

func TestAHintAtAStrangerIsIgnored(t *testing.T) { // Z071
	for owner, trusted := range map[string]bool{
		"evil:80": false, "evil": false, "c": true, "C": true, "n9.kv.example:80": true, "kv.example:80": false,
		"evilkv.example": false, "n1.kv.example.evil:80": false, "one.other:81": true, "one.other": true, "exact:80": true, "exact:81": false,
		"user@c": false, "c/path": false, "c ": true, "": false, "c:0": false, "c:99999": false, "[::1]:80": false,
		strings.Repeat("n", 300) + ".kv.example": false,
	} {
		t.Run(owner, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newShards(t, map[string][]layertest.Step{"a": {hinting(owner, "8")}, "b": says("200")})
				var err error
				s.registry, err = ownership.New(ownership.Config{
					Source: ownership.MapSourceFunc(s.read), HintHosts: []string{".kv.example", "one.other", "exact:80"},
				})
				require.NoError(t, err)
				_, err = s.registry.Force(t.Context())
				require.NoError(t, err)
				time.Sleep(time.Second)
				s.moved(8, "b")
				s.fetch = s.after(time.Second) // not before the hint has served
				for _, host := range []string{"c", "C", "n9.kv.example:80", "one.other:81", "one.other", "exact:80"} {
					s.serves(host, says("200")...)
				}
				status, err := send(t.Context(), s.build(roundtrippers.OwnershipBuilder{}))
				require.NoError(t, err)
				require.Equal(t, 200, status)
				time.Sleep(time.Second) // the lazy refresh ends
				want := "b"             // a normal refresh
				if trusted {
					want = strings.TrimSpace(owner)
				}
				require.Equal(t, "a "+want, s.hosts())
			})
		})
	}
	_, err := ownership.New(ownership.Config{Source: ownership.MapSourceFunc(nil), HintHosts: []string{"http://x/"}, Debounce: -1, FetchTimeout: -2, NegativeTTL: -3})
	for _, part := range []string{`HintHosts[0] is "http://x/"`, "Debounce is -1ns", "FetchTimeout is -2ns", "NegativeTTL is -3ns"} {
		require.ErrorContains(t, err, part)
	}
	_, err = ownership.New(ownership.Config{})
	require.ErrorContains(t, err, "Source is nil")
}

func TestTwoNodesThatNameEachOtherDoNotMakeItSpin(t *testing.T) { // Z073
	for name, epochs := range map[string][2]string{"same epoch": {"8", "8"}, "no epoch": {"", ""}, "older": {"8", "6"}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newShards(t, map[string][]layertest.Step{"a": {hinting("b", epochs[0])}, "b": {hinting("a", epochs[1])}})
				start := time.Now()
				status, err := send(t.Context(), s.build(roundtrippers.OwnershipBuilder{}))
				require.NoError(t, err)
				require.Equal(t, 421, status)
				require.LessOrEqual(t, len(s.script.Sends()), 3)
				times := s.script.Times()
				require.Zero(t, times[1]-times[0])
				require.GreaterOrEqual(t, times[2]-times[1], 200*time.Millisecond, "the second hop waits")
				require.Less(t, time.Since(start), 2*time.Second)
			})
		})
	}
}

func TestAHintThatTheNamedOwnerRejectsIsGivenUp(t *testing.T) {
	for name, epoch := range map[string]string{"with an epoch": "8", "without one": ""} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newShards(t, map[string][]layertest.Step{"a": {hinting("b", epoch)}, "b": says("421"), "c": says("200")})
				s.moved(9, "c")
				s.fetch = s.after(time.Second) // which the third attempt waits for: the first's map is no better
				status, err := send(t.Context(), s.build(roundtrippers.OwnershipBuilder{}))
				require.NoError(t, err)
				require.Equal(t, 200, status)
				require.Equal(t, "a b c", s.hosts())
			})
		})
	}
}

func TestHintsTakeNoMoreRoomThanTheMap(t *testing.T) { // R45
	synctest.Test(t, func(t *testing.T) {
		s := newShards(t, nil)
		used, err := s.registry.Owner(t.Context(), "k")
		require.NoError(t, err)
		for i := range 10_000 {
			require.True(t, s.registry.Learn(fmt.Sprint("key ", i), used, "b", uint64(8+i)))
		}
		require.Equal(t, 1, s.registry.HintCount())
		s.moved(20_000, "c")
		_, err = s.registry.Force(t.Context())
		require.NoError(t, err)
		require.Zero(t, s.registry.HintCount())
	})
}

func TestAHintAndARefreshThatMeetLeaveTheHigherEpoch(t *testing.T) { // R19
	for hinted, want := range map[uint64]string{8: "c", 9: "c", 10: "b"} {
		synctest.Test(t, func(t *testing.T) {
			s := newShards(t, nil)
			s.moved(9, "c")
			s.fetch = s.after(time.Millisecond)
			used, err := s.registry.Owner(t.Context(), "k")
			require.NoError(t, err)
			var wg sync.WaitGroup
			wg.Go(func() { _, _ = s.registry.Force(t.Context()) })
			for range 10 {
				wg.Go(func() {
					time.Sleep(time.Millisecond)
					s.registry.Learn("k", used, "b", hinted)
				})
			}
			wg.Wait()
			target, err := s.registry.Owner(t.Context(), "k")
			require.NoError(t, err)
			require.Equal(t, want, target.Endpoint)
		})
	}
}

func TestAThousandHintsAtOnceCostNoFetchEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hint := hinting("b", "8")
		hint.Delay = time.Millisecond // all have been sent before the first one hears it
		s := newShards(t, map[string][]layertest.Step{"a": {hint}, "b": says("200")})
		s.moved(8, "b")
		start := time.Now()
		require.EqualValues(t, 1000, together(t, 1000, s.build(roundtrippers.OwnershipBuilder{})))
		require.Equal(t, time.Millisecond, time.Since(start))
		require.Len(t, s.script.Sends(), 2000)
		time.Sleep(time.Minute)
		require.LessOrEqual(t, s.fetches.Load(), int64(2))
	})
}

// Whoever is told that a hint is learned finds it, also while another goroutine has only just laid it.
func TestALearnedHintIsSeenAtOnce(t *testing.T) { // R19
	m := owned(7, "a")
	source := ownership.MapSourceFunc(func(context.Context, *ownership.Map) (*ownership.Map, error) { return m, nil })
	for range 2000 {
		r, err := ownership.New(ownership.Config{Source: source, Debounce: time.Hour})
		require.NoError(t, err)
		_, err = r.Force(t.Context())
		require.NoError(t, err)
		used, err := r.Owner(t.Context(), "k")
		require.NoError(t, err)
		var unseen atomic.Int64
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				if !r.Learn("k", used, "b", 8) {
					unseen.Add(1)
				}
				if target, err := r.Owner(t.Context(), "k"); err != nil || target.Endpoint != "b" {
					unseen.Add(1)
				}
			})
		}
		wg.Wait()
		r.Close()
		require.Zero(t, unseen.Load())
	}
}

// The map that is as new as a hint takes its place; nobody may meet the old map without the hint in between.
func TestAHintGivesWayToItsMapWithoutAGap(t *testing.T) { // R19
	for range 100 {
		var now atomic.Pointer[ownership.Map]
		now.Store(owned(7, "a"))
		r, err := ownership.New(ownership.Config{Source: ownership.MapSourceFunc(func(context.Context, *ownership.Map) (*ownership.Map, error) {
			return now.Load(), nil
		}), Debounce: time.Hour})
		require.NoError(t, err)
		_, err = r.Force(t.Context())
		require.NoError(t, err)
		used, err := r.Owner(t.Context(), "k")
		require.NoError(t, err)
		require.True(t, r.Learn("k", used, "b", 8))
		now.Store(owned(8, "b"))
		var back atomic.Int64
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				for r.HintCount() > 0 {
					if target, err := r.Owner(t.Context(), "k"); err != nil || target.Endpoint != "b" {
						back.Add(1)
					}
					runtime.Gosched()
				}
			})
		}
		_, err = r.Force(t.Context())
		require.NoError(t, err)
		wg.Wait()
		r.Close()
		require.Zero(t, back.Load())
	}
}

func TestARejectedHintNoLongerHidesTheMap(t *testing.T) {
	for name, epoch := range map[string]string{"with an epoch": "8", "without one": ""} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := append([]layertest.Step{hinting("b", epoch)}, says("200")...) // it was wrong, and the map is right
				s := newShards(t, map[string][]layertest.Step{"a": a, "b": says("421")})
				s.fetch = s.after(time.Second) // not before the hint has served
				status, err := send(t.Context(), s.build(roundtrippers.OwnershipBuilder{}))
				require.NoError(t, err)
				require.Equal(t, 200, status)
				require.Equal(t, "a b a", s.hosts())
				require.Zero(t, s.registry.HintCount())
			})
		})
	}
}

func TestAHintThatNamesNoEpochHoldsUntilTheMapIsReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShards(t, nil)
		used, err := s.registry.Owner(t.Context(), "k")
		require.NoError(t, err)
		s.fetch = s.after(time.Second)
		require.True(t, s.registry.Learn("k", used, "b", 0))
		target, err := s.registry.Owner(t.Context(), "k")
		require.NoError(t, err)
		require.Equal(t, "b", target.Endpoint)
		time.Sleep(time.Second)
		synctest.Wait()
		target, err = s.registry.Owner(t.Context(), "k")
		require.NoError(t, err)
		require.Equal(t, "a", target.Endpoint, "the map says so still")
		require.Zero(t, s.registry.HintCount())
	})
}

func TestAHintOlderThanTheMapIsNotLearned(t *testing.T) { // R19
	synctest.Test(t, func(t *testing.T) {
		s := newShards(t, nil)
		used, err := s.registry.Owner(t.Context(), "k")
		require.NoError(t, err)
		s.moved(9, "c")
		_, err = s.registry.Force(t.Context())
		require.NoError(t, err)
		require.False(t, s.registry.Learn("k", used, "b", 8))
		require.False(t, s.registry.Learn("k", used, "b", 9), "as new as the map, which was asked last")
		require.Zero(t, s.registry.HintCount())
		require.True(t, s.registry.Learn("k", used, "c", 9), "known already")
		require.Zero(t, s.registry.HintCount())
	})
}

func TestHintsOfAServiceThatDoesNotNumberItsMaps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShards(t, map[string][]layertest.Step{"a": {hinting("b", "1000")}, "b": says("200")})
		s.moved(0, "a")
		var err error
		s.registry, err = ownership.New(ownership.Config{Source: ownership.MapSourceFunc(s.read)})
		require.NoError(t, err)
		_, err = s.registry.Force(t.Context())
		require.NoError(t, err)
		time.Sleep(time.Second)
		s.fetch = s.after(time.Second)
		status, err := send(t.Context(), s.build(roundtrippers.OwnershipBuilder{}))
		require.NoError(t, err)
		require.Equal(t, 200, status)
		s.moved(0, "c")
		time.Sleep(time.Second)
		synctest.Wait()
		target, err := s.registry.Owner(t.Context(), "k")
		require.NoError(t, err)
		require.Equal(t, "c", target.Endpoint, "1000 is no number to compare the map's with")
	})
}
