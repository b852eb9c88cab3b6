package partitions

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// resolve is Resolve of some key, which has to succeed.
func resolve(t *testing.T, r *Registry) Resolved {
	t.Helper()
	found, err := r.Resolve(t.Context(), coll, `["a"]`)
	require.NoError(t, err)
	return found
}

func TestElevenPagesAreReadUntilTheFeedSaysItsEnd(t *testing.T) { // R143
	synctest.Test(t, func(t *testing.T) {
		var specs, want []string
		for i := range 11 {
			lower, upper := fmt.Sprintf("%02X", 16*i), fmt.Sprintf("%02X", 16*i+16)
			if i == 0 {
				lower = ""
			}
			if i == 10 {
				upper = "FF"
			}
			specs = append(specs, fmt.Sprintf("%d:%s-%s", i, lower, upper))
			want = append(want, fmt.Sprint(i))
		}
		s := newService(specs...)
		s.page = 1
		r := newRegistry(t, s)
		resolve(t, r)
		require.Equal(t, want, held(r))
		require.Equal(t, []string{"", "e1", "e2", "e3", "e4", "e5", "e6", "e7", "e8", "e9", "e10", "e11"}, s.continuations())
		for i, read := range s.pages() {
			pin := east
			if i == 0 {
				pin = ""
			}
			require.Equal(t, pin, read.pin, "only the region of page 1 knows the continuation of page 2")
		}
	})
}

func TestARangeDeliveredTwiceCountsOnce(t *testing.T) { // R144, N129, B77 (c)
	synctest.Test(t, func(t *testing.T) {
		s := newService()
		again := data("b", "0:-30", "1:30-FF")
		again.Ranges[0].Status = StatusSplitting
		s.answer(gives(data("a", "0:-30")), gives(again), gives(Page{Unchanged: true}))
		r := newRegistry(t, s)
		resolve(t, r)
		require.Equal(t, []string{"0", "1"}, held(r))
		c := (*r.cache.containers.Load())[coll]
		require.Equal(t, StatusSplitting, c.held.Load().ranges.At(0).Status, "the later copy is the newer one")
	})
}

func TestTheEndOfTheFeedHasNoRangesButMovesTheContinuation(t *testing.T) { // R146
	synctest.Test(t, func(t *testing.T) {
		s := newService()
		end := data("c", "9:-FF")
		end.Unchanged = true
		s.answer(gives(data("a", "0:-FF")), gives(end))
		r := newRegistry(t, s)
		found := resolve(t, r)
		require.Equal(t, []string{"0"}, held(r))
		require.NoError(t, r.Refresh(t.Context(), found))
		require.Equal(t, []string{"", "a", "c"}, s.continuations())
	})
}

func TestAFailingPageLeavesNothingBehind(t *testing.T) { // R147
	synctest.Test(t, func(t *testing.T) {
		s := newService("0:-FF")
		for range 2 {
			s.answer(gives(data("a", "0:-30")), fails(kind(Transient)))
		}
		r := newRegistry(t, s)
		for range 2 {
			_, err := r.Resolve(t.Context(), coll, `["a"]`)
			require.ErrorContains(t, err, "transient")
			require.Nil(t, held(r))
		}
		require.Equal(t, []string{"", "a", "", "a"}, s.continuations())
		resolve(t, r)
	})
}

func TestADeltaThatDoesNotFitIsReplacedByACompleteRead(t *testing.T) { // R148
	synctest.Test(t, func(t *testing.T) {
		for name, delta := range map[string][]string{
			"unknown parent":       {"5:30-40<7"},
			"overlapping children": {"2:-20<0", "3:10-30<0"},
			"a gap":                {"2:-10<0"},
		} {
			s := newService("0:-30", "1:30-FF")
			r := newRegistry(t, s)
			found := resolve(t, r)
			s.forget()
			s.feeds["rid1"] = ranges("0:-30", "1:30-FF", "2:-10<0", "3:10-30<0")
			s.answer(gives(data("x", delta...)), gives(Page{Unchanged: true}))
			require.NoError(t, r.Refresh(t.Context(), found), name)
			require.Equal(t, []string{"2", "3", "1"}, held(r), name)
			require.Equal(t, []read{{coll, "e2", east}, {coll, "x", east}, {coll, "", ""}, {coll, "e4", east}}, s.pages(),
				"%s: a new start is not bound to a region", name)
		}
	})
}

func TestAFailedCompleteReadKeepsTheRangesAndDropsTheContinuation(t *testing.T) { // R149
	synctest.Test(t, func(t *testing.T) {
		s := newService("0:-30", "1:30-FF")
		r := newRegistry(t, s)
		found := resolve(t, r)
		s.forget()
		s.answer(gives(data("x", "5:30-40<7")), gives(Page{Unchanged: true}), fails(kind(Transient)))
		require.ErrorContains(t, r.Refresh(t.Context(), found), "transient")
		require.Len(t, s.pages(), 3)
		require.Equal(t, []string{"0", "1"}, held(r))
		require.Equal(t, found, resolve(t, r))

		s.forget()
		require.NoError(t, r.Refresh(t.Context(), found))
		require.Equal(t, []string{"", "e2"}, s.continuations(), "the next read is complete")
	})
}

func TestAFailedReadOfWhatIsNewIsTriedOnceFromTheStart(t *testing.T) { // R151, N139
	synctest.Test(t, func(t *testing.T) {
		for _, err := range []error{kind(Transient), kind(SessionUnavailable), kind(Absent), errors.New("plain")} {
			s := newService("0:-FF")
			r := newRegistry(t, s)
			found := resolve(t, r)
			s.forget()
			s.setFault(always(err))
			require.ErrorIs(t, r.Refresh(t.Context(), found), err)
			require.Equal(t, []string{"e1", ""}, s.continuations())
			require.Equal(t, []string{"0"}, held(r))

			s.forget()
			s.setFault(nil)
			s.deliver("1:-30<0", "2:30-FF<0")
			require.NoError(t, r.Refresh(t.Context(), found))
			require.Equal(t, []string{"", "e3"}, s.continuations())
			require.Equal(t, []string{"1", "2"}, held(r))
		}
	})
}

func TestAFailedReadOfWhatIsNewRecoversFromTheStart(t *testing.T) { // R150
	synctest.Test(t, func(t *testing.T) {
		s := newService("0:-FF")
		r := newRegistry(t, s)
		found := resolve(t, r)
		s.forget()
		s.deliver("1:-30<0", "2:30-FF<0")
		s.answer(fails(kind(Transient)))
		require.NoError(t, r.Refresh(t.Context(), found))
		require.Equal(t, []string{"e1", "", "e3"}, s.continuations())
		require.Equal(t, []string{"1", "2"}, held(r))
	})
}

func TestAContainerWithoutRangesIsNotHeld(t *testing.T) { // R152, gap 2
	synctest.Test(t, func(t *testing.T) {
		s := newService()
		r := newRegistry(t, s)
		for i := range 2 {
			_, err := r.Resolve(t.Context(), coll, `["a"]`)
			require.ErrorIs(t, err, ErrNoRanges)
			require.Nil(t, held(r))
			require.Len(t, s.pages(), i+1, "an empty list is not a split under way, but the next call asks again")
		}
		s.deliver("0:-FF")
		resolve(t, r)
	})
}

func TestASplitThatCascadesInOnePageLeavesTheLeaves(t *testing.T) { // R154
	synctest.Test(t, func(t *testing.T) {
		s := newService("0:-FF")
		r := newRegistry(t, s)
		found := resolve(t, r)
		s.deliver("1:-30<0", "2:30-FF<0", "3:-10<1,0", "4:10-30<1,0")
		require.NoError(t, r.Refresh(t.Context(), found))
		require.Equal(t, []string{"3", "4", "2"}, held(r))
	})
}

func TestAnIncompleteMapIsReadAgainInTheSameCall(t *testing.T) { // gap 2, N122, B77 (b)
	synctest.Test(t, func(t *testing.T) {
		s := newService("0:-30", "1:30-FF")
		torn := gives(data("e9", "0:-30"))
		s.answer(torn, gives(Page{Unchanged: true}), torn, gives(Page{Unchanged: true}), torn, gives(Page{Unchanged: true}))
		r := newRegistry(t, s)
		start := time.Now()
		resolve(t, r)
		require.Equal(t, []string{"0", "1"}, held(r))
		require.Len(t, s.pages(), 8)
		require.Equal(t, 700*time.Millisecond, time.Since(start), "100, 200 and 400 ms")
	})
}

func TestWhatIsWrongWithTheRangesIsToldApart(t *testing.T) { // gap 2
	for want, specs := range map[error][]string{
		ErrGap:            {"0:-30", "1:31-FF"},
		ErrOverlap:        {"0:-30", "1:20-FF"},
		ErrDuplicateRange: {"0:-30", "1:30-FF", "0:-20"},
		ErrNoRanges:       {"0:-30<1", "1:30-FF<0"},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newService(specs...)
			r := newRegistry(t, s, func(c *Config) { c.IncompleteRetries, c.IncompleteBackoff = 2, time.Second })
			start := time.Now()
			_, err := r.Resolve(t.Context(), coll, `["a"]`)
			require.ErrorIs(t, err, want)
			var broken *MapError
			require.ErrorAs(t, err, &broken)
			require.ErrorContains(t, err, "read 3 times")
			require.Equal(t, 3*time.Second, time.Since(start))
			require.Nil(t, held(r), "never stored")
			require.Len(t, s.pages(), 6)
		})
	}
	s := newService()
	s.feeds["rid1"] = []Range{{ID: "0", Min: key("30"), Max: key("20")}}
	_, err := newRegistry(t, s).Resolve(t.Context(), coll, `["a"]`)
	require.ErrorIs(t, err, ErrMalformedRange)
	require.Len(t, s.pages(), 2, "junk is not a split under way")
}

func TestAnIncompleteRefreshKeepsTheOldMap(t *testing.T) { // gap 2
	synctest.Test(t, func(t *testing.T) {
		s := newService("0:-FF")
		r := newRegistry(t, s)
		found := resolve(t, r)
		s.deliver("1:-30<0")
		require.ErrorIs(t, r.Refresh(t.Context(), found), ErrGap)
		require.Equal(t, []string{"0"}, held(r))
		require.Equal(t, found, resolve(t, r))
	})
}

func TestAServerThatNeverEndsItsFeedHoldsNobody(t *testing.T) { // G28
	synctest.Test(t, func(t *testing.T) {
		for name, etag := range map[string]func(n int) string{
			"same etag": func(int) string { return "a" },
			"no etag":   func(int) string { return "" },
			"new etags": func(n int) string { return fmt.Sprint(n) },
		} {
			s := newService()
			n := 0
			var endless func() (Page, error)
			endless = func() (Page, error) {
				n++
				s.answer(endless)
				return data(etag(n), "0:-30", "1:30-FF"), nil
			}
			s.answer(endless)
			r := newRegistry(t, s)
			resolve(t, r)
			require.Equal(t, []string{"0", "1"}, held(r))
			require.Len(t, s.pages(), 2, name)
		}
	})
}

func TestAFeedThatRepeatsAContradictionEnds(t *testing.T) { // as does one that repeats itself
	synctest.Test(t, func(t *testing.T) {
		s := newService()
		var endless func() (Page, error)
		endless = func() (Page, error) {
			s.answer(endless)
			return data("e", "0:-30", "0:30-FF"), nil
		}
		s.answer(endless)
		r := newRegistry(t, s)
		_, err := r.Resolve(t.Context(), coll, `["a"]`)
		require.ErrorIs(t, err, ErrDuplicateRange)
		require.Len(t, s.pages(), 4*2, "two pages, read four times")
	})
}

func TestAFeedWithoutMeasureIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService()
		n := 0
		var endless func() (Page, error)
		endless = func() (Page, error) {
			many := make([]Range, 1<<16)
			for i := range many {
				n++
				many[i] = Range{ID: fmt.Sprint(n), Max: MaxKey()}
			}
			s.answer(endless)
			return Page{Ranges: many}, nil
		}
		s.answer(endless)
		_, err := newRegistry(t, s).Resolve(t.Context(), coll, `["a"]`)
		require.ErrorContains(t, err, "more than 262144 ranges")
	})
}

func TestSessionUnavailableComesBackAsItself(t *testing.T) { // gap 3
	synctest.Test(t, func(t *testing.T) {
		s := newService("0:-FF")
		s.answer(fails(kind(SessionUnavailable)))
		r := newRegistry(t, s)
		_, err := r.Resolve(t.Context(), coll, `["a"]`)
		var failure *SourceError
		require.ErrorAs(t, err, &failure)
		require.Equal(t, SessionUnavailable, failure.Kind)
		resolve(t, r) // not remembered
	})
}

func TestAThousandLookupsOfAMissingContainerCostTwoReads(t *testing.T) { // gap 4, G11
	for _, k := range []FailureKind{Absent, Forbidden} {
		synctest.Test(t, func(t *testing.T) {
			s := newService("0:-FF")
			s.takes = 5 * time.Millisecond
			s.setFault(always(kind(k)))
			r := newRegistry(t, s)
			var wg sync.WaitGroup
			for range 1000 {
				wg.Go(func() {
					_, err := r.Resolve(t.Context(), coll, `["a"]`)
					require.Equal(t, k, kindOf(err))
				})
				time.Sleep(10 * time.Millisecond)
			}
			wg.Wait()
			require.Equal(t, []string{coll}, s.containers, "10 s have not passed since the first failed")

			unresolved, err := r.Resolve(t.Context(), coll, `["a"]`)
			require.Error(t, err)
			s.setFault(nil)
			_, err = r.Resolve(t.Context(), coll, `["a"]`)
			require.Error(t, err, "remembered")
			require.NoError(t, r.Refresh(t.Context(), unresolved), "a forced refresh passes through")
			resolve(t, r)
		})
	}
}

func TestANegativeMemoryEnds(t *testing.T) { // gap 4
	for ttl, want := range map[time.Duration]time.Duration{0: 10 * time.Second, 30 * time.Second: 30 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			s := newService("0:-FF")
			s.answer(fails(kind(Absent)))
			r := newRegistry(t, s, func(c *Config) { c.NegativeTTL = ttl })
			_, err := r.Resolve(t.Context(), coll, `["a"]`)
			require.Error(t, err)
			time.Sleep(want - 1)
			_, err = r.Resolve(t.Context(), coll, `["a"]`)
			require.Equal(t, Absent, kindOf(err))
			require.Len(t, s.pages(), 1)
			time.Sleep(1)
			resolve(t, r)
		})
	}
}

func TestAContainerThatBecomesForbiddenKeepsItsMap(t *testing.T) { // ruling on N141 and N142: a region that lags says 404 too
	synctest.Test(t, func(t *testing.T) {
		s := newService("0:-FF")
		r := newRegistry(t, s)
		found := resolve(t, r)
		s.setFault(always(kind(Forbidden)))
		require.Equal(t, Forbidden, kindOf(r.Refresh(t.Context(), found)))
		require.Equal(t, found, resolve(t, r))
	})
}

func TestAServiceThatIsDownIsNotAskedByEachOperation(t *testing.T) { // R157
	synctest.Test(t, func(t *testing.T) {
		s := newService("0:-FF")
		s.setFault(always(kind(Transient)))
		r := newRegistry(t, s)
		start := time.Now()
		for range 10_000 {
			_, err := r.Resolve(t.Context(), coll, `["a"]`)
			require.Equal(t, Transient, kindOf(err))
			time.Sleep(time.Millisecond)
		}
		require.Less(t, time.Since(start), 11*time.Second, "operations go on without waiting")
		require.LessOrEqual(t, len(s.containers), 14)
	})
}

func TestAServiceThatWasDownIsFoundUpAgain(t *testing.T) { // R158
	synctest.Test(t, func(t *testing.T) {
		s := newService("0:-FF")
		s.answer(fails(kind(Transient)), fails(kind(Transient)), fails(kind(Transient)))
		r := newRegistry(t, s)
		for range 3 {
			_, err := r.Resolve(t.Context(), coll, `["a"]`)
			require.Error(t, err)
		}
		resolve(t, r)
	})
}

func TestAReadThatHangsIsWaitedForOnce(t *testing.T) { // B76
	synctest.Test(t, func(t *testing.T) {
		s := newService("0:-FF")
		s.takes = 40 * time.Second
		r := newRegistry(t, s)
		start := time.Now()
		_, err := r.Resolve(t.Context(), coll, `["a"]`)
		require.ErrorContains(t, err, "maximum wait")
		require.Equal(t, 15*time.Second, time.Since(start))
		_, err = r.Resolve(t.Context(), coll, `["a"]`)
		require.Error(t, err)
		require.Equal(t, 15*time.Second, time.Since(start), "the next ones do not wait as well")
		time.Sleep(106 * time.Second)
		require.Nil(t, held(r), "three calls of 40 s are longer than the limit of 90 s")

		s.slow(25 * time.Second)
		r = newRegistry(t, s)
		_, err = r.Resolve(t.Context(), coll, `["a"]`)
		require.Error(t, err)
		time.Sleep(70 * time.Second)
		require.Equal(t, []string{"0"}, held(r), "the read went on without its caller")
		resolve(t, r)
	})
}

func TestARefreshIsPinnedToTheRegionOfItsContinuation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService()
		page := data("a", "0:-FF")
		page.Region = west
		s.answer(gives(page), gives(Page{Unchanged: true, Region: west}), gives(Page{Unchanged: true, Region: west}))
		r := newRegistry(t, s)
		require.NoError(t, r.Refresh(t.Context(), resolve(t, r)))
		require.Equal(t, []read{{coll, "", ""}, {coll, "a", west}, {coll, "a", west}}, s.pages())
	})
}

func TestSplitsAndMergesAreFollowed(t *testing.T) { // R161, R163, N125 to N127
	synctest.Test(t, func(t *testing.T) {
		s := newService("0:-30", "1:30-FF")
		r := newRegistry(t, s)
		found := resolve(t, r)
		require.NoError(t, r.Refresh(t.Context(), found))
		require.Equal(t, found, resolve(t, r), "410/1007 until the lock is released: nothing is new")
		s.deliver("2:30-60<1", "3:60-FF<1")
		require.NoError(t, r.Refresh(t.Context(), found))
		require.Equal(t, []string{"0", "2", "3"}, held(r))
		s.deliver("4:-60<0,2")
		require.NoError(t, r.Refresh(t.Context(), resolve(t, r)))
		require.Equal(t, []string{"4", "3"}, held(r))
	})
}
