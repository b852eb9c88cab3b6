package snapshot_test

import (
	"context"
	"errors"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/regions/snapshot"
)

// version is a value whose number is the number of the fetch that brought it.
type version struct{ n int }

// counter is a Fetch that takes its time and counts.
type counter struct {
	calls atomic.Int64
	takes time.Duration
	err   error // of every fetch, if set
}

func (c *counter) fetch(ctx context.Context, _ *version) (*version, error) {
	n := c.calls.Add(1)
	if c.takes > 0 { // a timer of 0 in a bubble brings the race detector's runtime down (go1.26)
		select {
		case <-time.After(c.takes):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if c.err != nil {
		return nil, c.err
	}
	return &version{int(n)}, nil
}

func TestAThousandCallersShareOneFetch(t *testing.T) { // Z049, B71
	synctest.Test(t, func(t *testing.T) {
		c := &counter{takes: 50 * time.Millisecond}
		h := &snapshot.Holder[version]{Fetch: c.fetch}
		seen := &version{}
		h.Store(seen)
		var wg sync.WaitGroup
		for range 1000 {
			wg.Go(func() {
				v, err := h.Refresh(t.Context(), seen)
				require.NoError(t, err)
				require.Equal(t, 1, v.n)
			})
		}
		wg.Wait()
		require.EqualValues(t, 1, c.calls.Load())
	})
}

func TestARefreshOfSomethingOlderThanWhatIsHeldFetchesNothing(t *testing.T) { // Z050
	c := &counter{}
	h := &snapshot.Holder[version]{Fetch: c.fetch}
	old, current := &version{7}, &version{8}
	h.Store(current)
	for _, seen := range []*version{old, nil} {
		v, err := h.Refresh(t.Context(), seen)
		require.NoError(t, err)
		require.Same(t, current, v)
	}
	h.Trigger(old)
	require.Zero(t, c.calls.Load())
}

func TestWithinTheIntervalTheHeldValueComesBackAtOnce(t *testing.T) { // R076, Z051
	synctest.Test(t, func(t *testing.T) {
		c := &counter{takes: time.Second}
		h := &snapshot.Holder[version]{Fetch: c.fetch, Interval: 5 * time.Second}
		first, err := h.Refresh(t.Context(), nil)
		require.NoError(t, err)

		time.Sleep(5*time.Second - 1)
		start := time.Now()
		v, err := h.Refresh(t.Context(), first)
		require.NoError(t, err)
		require.Same(t, first, v)
		require.Zero(t, time.Since(start))
		require.EqualValues(t, 1, c.calls.Load())

		time.Sleep(1) // the edge belongs to the next fetch
		v, err = h.Refresh(t.Context(), first)
		require.NoError(t, err)
		require.Equal(t, 2, v.n)
	})
}

func TestDelayPutsARefreshOffToTheEndOfTheIntervalAndNeverDropsIt(t *testing.T) { // Z052, A1
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		c := &counter{}
		h := &snapshot.Holder[version]{Fetch: c.fetch, Interval: 500 * time.Millisecond, Delay: true}
		first, err := h.Refresh(t.Context(), nil)
		require.NoError(t, err)

		time.Sleep(20 * time.Millisecond)
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				v, err := h.Refresh(t.Context(), first)
				require.NoError(t, err)
				require.Equal(t, 2, v.n)
				require.Equal(t, 500*time.Millisecond, time.Since(start))
			})
		}
		wg.Wait()
		require.EqualValues(t, 2, c.calls.Load())
	})
}

func TestWhoJoinsAFetchThatBeganTooEarlyGetsOneMore(t *testing.T) { // Z059, A2
	synctest.Test(t, func(t *testing.T) {
		old, moved := &version{0}, &version{1}
		var fetches atomic.Int64
		var owner atomic.Pointer[version]
		owner.Store(old)
		h := &snapshot.Holder[version]{Delay: true, Interval: 100 * time.Millisecond}
		h.Fetch = func(context.Context, *version) (*version, error) {
			fetches.Add(1)
			read := owner.Load()
			time.Sleep(50 * time.Millisecond)
			return read, nil
		}
		h.Store(old)
		h.Trigger(old)
		time.Sleep(5 * time.Millisecond)
		owner.Store(moved) // after the fetch has read

		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				v, err := h.Refresh(t.Context(), old)
				require.NoError(t, err)
				require.Same(t, moved, v)
			})
		}
		wg.Wait()
		require.EqualValues(t, 2, fetches.Load(), "not 51")
	})
}

func TestAJoinerWaitsNoLongerThanItsOwnDeadlineOrMaxWait(t *testing.T) { // B76, Z053, Z054
	synctest.Test(t, func(t *testing.T) {
		c := &counter{takes: time.Minute}
		h := &snapshot.Holder[version]{Fetch: c.fetch, Timeout: 2 * time.Minute}
		old := &version{-1}
		h.Store(old)
		start := time.Now()
		wait := func(deadline, expect time.Duration, target error) func() {
			return func() {
				ctx := t.Context()
				if deadline > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, deadline)
					defer cancel()
				}
				v, err := h.Refresh(ctx, old)
				require.ErrorIs(t, err, target)
				require.Same(t, old, v, "the value held comes along")
				require.Equal(t, expect, time.Since(start))
			}
		}
		var wg sync.WaitGroup
		wg.Go(wait(100*time.Millisecond, 100*time.Millisecond, context.DeadlineExceeded))
		wg.Go(wait(time.Second, time.Second, context.DeadlineExceeded))
		wg.Go(wait(0, 15*time.Second, snapshot.ErrMaxWait))
		wg.Wait()

		time.Sleep(time.Minute - 15*time.Second)
		synctest.Wait()
		require.Equal(t, 1, h.Load().n, "the fetch went on without them")
		require.EqualValues(t, 1, c.calls.Load())
	})
}

func TestTheInitiatorsCancellationLeavesTheFetchToTheOthers(t *testing.T) { // B74, Z055
	synctest.Test(t, func(t *testing.T) {
		type key struct{}
		c := &counter{takes: 50 * time.Millisecond}
		h := &snapshot.Holder[version]{}
		h.Fetch = func(ctx context.Context, old *version) (*version, error) {
			require.Nil(t, ctx.Value(key{}), "no caller's values")
			return c.fetch(ctx, old)
		}
		start := time.Now()
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "the first caller's"))
		time.AfterFunc(time.Millisecond, cancel)
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := h.Refresh(ctx, nil)
			require.ErrorIs(t, err, context.Canceled)
			require.Equal(t, time.Millisecond, time.Since(start))
		})
		synctest.Wait()
		for range 4 {
			wg.Go(func() {
				v, err := h.Refresh(t.Context(), nil)
				require.NoError(t, err)
				require.Equal(t, 1, v.n)
				require.Equal(t, 50*time.Millisecond, time.Since(start))
			})
		}
		wg.Wait()
		require.EqualValues(t, 1, c.calls.Load())
	})
}

func TestADeadCallerStartsNothing(t *testing.T) {
	c := &counter{}
	h := &snapshot.Holder[version]{Fetch: c.fetch}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := h.Refresh(ctx, nil)
	require.ErrorIs(t, err, context.Canceled)
	require.Zero(t, c.calls.Load())
}

func TestJoinersShareTheFailureAndKeepTheOldValue(t *testing.T) { // B72, R078, Z057
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		c := &counter{takes: 10 * time.Second, err: broken}
		h := &snapshot.Holder[version]{Fetch: c.fetch, Interval: 5 * time.Second}
		old := &version{-1}
		h.Store(old)
		start := time.Now()
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				v, err := h.Refresh(t.Context(), old)
				require.ErrorIs(t, err, broken)
				require.Same(t, old, v)
				require.Equal(t, 10*time.Second, time.Since(start))
			})
		}
		wg.Wait()
		require.EqualValues(t, 1, c.calls.Load())

		// R077: a failure does not throttle.
		c.err = nil
		v, err := h.Refresh(t.Context(), old)
		require.NoError(t, err)
		require.Equal(t, 2, v.n)
	})
}

func TestFailuresAreSpacedByDoublingPausesAfterTheGrace(t *testing.T) { // Z057, Z069
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		c := &counter{err: broken}
		h := &snapshot.Holder[version]{
			Fetch: c.fetch, FailureDelay: 100 * time.Millisecond, MaxFailureDelay: 300 * time.Millisecond, FailureGrace: 1,
		}
		start := time.Now()
		var fetched []time.Duration
		for time.Since(start) < 1200*time.Millisecond {
			before := c.calls.Load()
			_, err := h.Refresh(t.Context(), nil)
			require.ErrorIs(t, err, broken, "a refresh in between returns the failure before")
			if c.calls.Load() > before {
				fetched = append(fetched, time.Since(start))
			}
			time.Sleep(10 * time.Millisecond)
		}
		ms := time.Millisecond
		require.Equal(t, []time.Duration{0, 10 * ms, 110 * ms, 310 * ms, 610 * ms, 910 * ms}, fetched)

		// An explicit Force passes the spacing, and a success ends it.
		c.err = nil
		v, err := h.Force(t.Context())
		require.NoError(t, err)
		require.Equal(t, 7, v.n)
		v, err = h.Refresh(t.Context(), v)
		require.NoError(t, err)
		require.Equal(t, 8, v.n)
	})
}

func TestForceHurriesADelayedFetchAndSharesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &counter{}
		h := &snapshot.Holder[version]{Fetch: c.fetch, Interval: time.Minute, Delay: true}
		first, err := h.Refresh(t.Context(), nil)
		require.NoError(t, err)
		start := time.Now()
		h.Trigger(first)
		synctest.Wait()
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				v, err := h.Force(t.Context())
				require.NoError(t, err)
				require.GreaterOrEqual(t, v.n, 2)
			})
		}
		wg.Wait()
		require.Zero(t, time.Since(start))
	})
}

func TestAPanicBecomesAnErrorAndFreesTheSlot(t *testing.T) { // Z058
	synctest.Test(t, func(t *testing.T) {
		for name, misbehave := range map[string]func(){
			"panic":  func() { panic("boom") },
			"goexit": runtime.Goexit,
		} {
			bad := true
			h := &snapshot.Holder[version]{Fetch: func(context.Context, *version) (*version, error) {
				if bad {
					misbehave()
				}
				return &version{2}, nil
			}}
			_, err := h.Refresh(t.Context(), nil)
			var p *snapshot.PanicError
			require.ErrorAs(t, err, &p, name)
			if name == "panic" {
				require.Equal(t, "boom", p.Value)
				require.NotEmpty(t, p.Stack)
			}
			bad = false
			v, err := h.Refresh(t.Context(), nil)
			require.NoError(t, err)
			require.Equal(t, 2, v.n)
		}
	})
}

func TestAHungFetchLosesTheSlotAtItsTimeout(t *testing.T) { // Z065, Z060
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		h := &snapshot.Holder[version]{Timeout: time.Second}
		h.Fetch = func(context.Context, *version) (*version, error) {
			if calls.Add(1) == 1 {
				time.Sleep(time.Minute) // deaf to its context
				return &version{1}, nil
			}
			return &version{2}, nil
		}
		start := time.Now()
		_, err := h.Refresh(t.Context(), nil)
		require.ErrorIs(t, err, snapshot.ErrTimeout)
		require.NotErrorIs(t, err, context.DeadlineExceeded, "no caller's deadline has passed")
		require.Equal(t, time.Second, time.Since(start))

		v, err := h.Refresh(t.Context(), nil)
		require.NoError(t, err)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		require.Same(t, v, h.Load(), "the late answer of an earlier flight changes nothing")
	})
}

func TestTheLateEndOfAnAbandonedFetchLeavesTheNextItsSlot(t *testing.T) { // R15, Z067: compare and swap of the slot
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		h := &snapshot.Holder[version]{Timeout: 10 * time.Second}
		h.Fetch = func(ctx context.Context, _ *version) (*version, error) {
			n := calls.Add(1)
			takes := 8 * time.Second
			if n == 1 {
				takes = 15 * time.Second // deaf to its context: it ends while the second runs
			}
			time.Sleep(takes)
			return &version{int(n)}, nil
		}
		_, err := h.Refresh(t.Context(), nil)
		require.ErrorIs(t, err, snapshot.ErrTimeout)
		require.ErrorIs(t, h.Err(), snapshot.ErrTimeout)
		held := &version{-1}
		h.Store(held)
		start := time.Now()
		var wg sync.WaitGroup
		for _, later := range []time.Duration{0, 4 * time.Second, 5*time.Second + 1, 6 * time.Second} { // before, and after the late end at 5 s
			wg.Go(func() {
				time.Sleep(later)
				v, err := h.Refresh(t.Context(), held)
				require.NoError(t, err)
				require.Equal(t, 2, v.n, "the late value came before what is stored")
				require.Equal(t, 8*time.Second, time.Since(start), "all wait for the same fetch")
			})
		}
		wg.Wait()
		require.EqualValues(t, 2, calls.Load(), "nobody found the slot empty")
		require.NoError(t, h.Err())
	})
}

func TestALateAnswerIsTakenWhenNothingNewerIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &snapshot.Holder[version]{Timeout: time.Second, Fetch: func(context.Context, *version) (*version, error) {
			time.Sleep(time.Minute)
			return &version{1}, nil
		}}
		_, err := h.Refresh(t.Context(), nil)
		require.ErrorIs(t, err, snapshot.ErrTimeout)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, 1, h.Load().n)
	})
}

func TestATimeoutThatFetchObeysIsNoContextErrorEither(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &counter{takes: time.Hour}
		h := &snapshot.Holder[version]{Fetch: c.fetch}
		start := time.Now()
		h.MaxWait = time.Hour
		_, err := h.Refresh(t.Context(), nil)
		require.ErrorIs(t, err, snapshot.ErrTimeout)
		require.NotErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 30*time.Second, time.Since(start), "the default")
	})
}

func TestAValueStoredDuringAFetchIsNotOverwrittenByAnOlderOne(t *testing.T) { // Z060
	for name, tc := range map[string]struct {
		newer           func(fetched, current *version) bool
		brought, expect int
	}{
		"no judge":      {nil, 43, 42},
		"older fetched": {func(f, c *version) bool { return f.n > c.n }, 41, 42},
		"newer fetched": {func(f, c *version) bool { return f.n > c.n }, 43, 43},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := &snapshot.Holder[version]{Newer: tc.newer, Fetch: func(context.Context, *version) (*version, error) {
					time.Sleep(time.Second)
					return &version{tc.brought}, nil
				}}
				old := &version{40}
				h.Store(old)
				time.AfterFunc(time.Millisecond, func() { h.Store(&version{42}) })
				v, err := h.Refresh(t.Context(), old)
				require.NoError(t, err)
				require.Equal(t, tc.expect, v.n)
			})
		})
	}
}

func TestReturningTheOldValueIsASuccessWithoutAChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		h := &snapshot.Holder[version]{Interval: time.Minute}
		h.Fetch = func(_ context.Context, old *version) (*version, error) { calls++; return old, nil }
		h.OnChange = func(_, _ *version) { t.Error("nothing changed") }
		old := &version{1}
		h.Store(old)
		for range 3 {
			v, err := h.Refresh(t.Context(), old)
			require.NoError(t, err)
			require.Same(t, old, v)
		}
		require.Equal(t, 1, calls, "the success is spaced")
	})
}

func TestAFetchWithoutValueAndErrorIsAFailure(t *testing.T) {
	h := &snapshot.Holder[version]{Fetch: func(context.Context, *version) (*version, error) { return nil, nil }}
	_, err := h.Refresh(t.Context(), nil)
	require.ErrorIs(t, err, snapshot.ErrNoValue)
}

func TestOnChangeMayRefreshAndComesBeforeTheWaiters(t *testing.T) { // Z067
	synctest.Test(t, func(t *testing.T) {
		c := &counter{takes: time.Second}
		h := &snapshot.Holder[version]{Fetch: c.fetch}
		told := 0
		h.OnChange = func(old, v *version) {
			told++
			require.Same(t, v, h.Load())
			if v.n == 1 {
				require.Nil(t, old)
				next, err := h.Refresh(context.Background(), v)
				require.NoError(t, err)
				require.Equal(t, 2, next.n)
			}
		}
		_, err := h.Refresh(t.Context(), nil)
		require.NoError(t, err)
		require.Equal(t, 2, told)
	})
}

func TestAPanicOfOnChangeReachesTheWaiters(t *testing.T) {
	c := &counter{}
	h := &snapshot.Holder[version]{Fetch: c.fetch, OnChange: func(_, _ *version) { panic("boom") }}
	v, err := h.Refresh(t.Context(), nil)
	var p *snapshot.PanicError
	require.ErrorAs(t, err, &p)
	require.Equal(t, 1, v.n, "the value is held all the same")
}

func TestTriggerLeavesARefreshBehind(t *testing.T) { // Z066
	synctest.Test(t, func(t *testing.T) {
		c := &counter{takes: time.Second}
		h := &snapshot.Holder[version]{Fetch: c.fetch}
		start := time.Now()
		h.Trigger(nil)
		h.Trigger(nil)
		require.Zero(t, time.Since(start))
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, 1, h.Load().n)
	})
}

func TestCloseEndsTheFetchAndReleasesItsWaiters(t *testing.T) {
	for name, interval := range map[string]time.Duration{"fetching": 0, "delayed": time.Minute} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &counter{takes: 10 * time.Second}
				h := &snapshot.Holder[version]{Fetch: c.fetch, Interval: interval, Delay: true}
				first, err := h.Refresh(t.Context(), nil)
				require.NoError(t, err)
				start := time.Now()
				time.AfterFunc(time.Second, h.Close)
				v, err := h.Refresh(t.Context(), first)
				require.ErrorIs(t, err, snapshot.ErrClosed)
				require.NotErrorIs(t, err, context.Canceled)
				require.Same(t, first, v)
				require.Equal(t, time.Second, time.Since(start))

				before := c.calls.Load()
				v, err = h.Refresh(t.Context(), first)
				require.ErrorIs(t, err, snapshot.ErrClosed)
				require.Same(t, first, v)
				v, err = h.Refresh(t.Context(), nil)
				require.NoError(t, err, "a value that the caller has not seen")
				require.Same(t, first, v)
				require.Equal(t, before, c.calls.Load())
				h.Close()
			}) // the bubble fails if a goroutine is left
		})
	}
}

func TestReadersNeverWaitForAFetch(t *testing.T) { // Z061, B77
	synctest.Test(t, func(t *testing.T) {
		c := &counter{takes: time.Second}
		h := &snapshot.Holder[version]{Fetch: c.fetch}
		old := &version{-1}
		h.Store(old)
		h.Trigger(old)
		synctest.Wait()
		start := time.Now()
		for range 10_000 {
			require.Same(t, old, h.Load())
		}
		require.Zero(t, time.Since(start))
		require.Zero(t, testing.AllocsPerRun(100, func() { h.Load() }))
		h.Close()
		synctest.Wait()
	})
}

func TestBadFieldsAreNamedWithTheirValue(t *testing.T) {
	h := &snapshot.Holder[version]{Interval: -1, Timeout: -2, MaxWait: math.MinInt64, FailureDelay: -4, MaxFailureDelay: -5, FailureGrace: -6}
	_, err := h.Refresh(t.Context(), nil)
	for _, part := range []string{
		"Fetch is nil", "Interval is -1ns", "Timeout is -2ns", "MaxWait is -", "FailureDelay is -4ns", "MaxFailureDelay is -5ns", "FailureGrace is -6",
	} {
		require.ErrorContains(t, err, part)
	}
}

func BenchmarkLoad(b *testing.B) {
	h := &snapshot.Holder[version]{}
	h.Store(&version{})
	b.ReportAllocs()
	for b.Loop() {
		_ = h.Load()
	}
}

func TestWhoAsksWhileAFlightLandsStartsNoOther(t *testing.T) { // R14
	synctest.Test(t, func(t *testing.T) {
		c := &counter{takes: time.Second}
		h := &snapshot.Holder[version]{Fetch: c.fetch, Interval: time.Minute, Delay: true}
		stored := &version{-1}
		asked := make(chan error, 1)
		h.Newer = func(fetched, _ *version) bool { // runs while the flight lands
			go func() {
				v, err := h.Refresh(t.Context(), stored)
				if v != fetched {
					err = errors.New("an old value")
				}
				asked <- err
			}()
			time.Sleep(time.Millisecond)
			return true
		}
		h.Trigger(nil)
		synctest.Wait()
		h.Store(stored)
		require.NoError(t, <-asked)
		require.EqualValues(t, 1, c.calls.Load())
	})
}
