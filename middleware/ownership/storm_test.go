package ownership_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/layertest"
	"github.com/reroute-go/reroute/middleware/ownership"
	"github.com/reroute-go/reroute/roundtrippers"
)

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

func TestAThousandOperationsThatTheMapCannotHelpDoNotStormIt(t *testing.T) { // the seed's incident: "a cluster-map refresh on every attempt"
	synctest.Test(t, func(t *testing.T) {
		s := newShards(t, map[string][]layertest.Step{"a": says("421")})
		start := time.Now()
		require.Zero(t, together(t, 1000, s.build(roundtrippers.OwnershipBuilder{})))
		require.LessOrEqual(t, s.fetches.Load(), int64(4))
		require.LessOrEqual(t, time.Since(start), 2*time.Second)
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

func TestAFailureThatMeetsTheEndOfAFlightStartsNoOther(t *testing.T) { // R14, R15
	synctest.Test(t, func(t *testing.T) {
		s := moving(t)
		s.fetch = s.after(50 * time.Millisecond)
		s.serves("a", layertest.Step{Status: 421}, layertest.Step{Status: 421, Delay: 50 * time.Millisecond})
		require.EqualValues(t, 100, together(t, 100, s.build(waitless)), "failures at 0 and, just when the map comes, at 50 ms")
		require.EqualValues(t, 1, s.fetches.Load())
	})
}
