package storm

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"
)

// storm is one seed in one world.
type storm struct {
	t       *testing.T
	seed    uint64
	lasts   time.Duration // until all faults are over
	started time.Time
	ctx     context.Context // ends when a promise was broken: then the rest is noise
	stop    context.CancelCauseFunc

	arrivals []arrival
	fronts   []front
	timeline timeline
	tally    tally

	mu     sync.Mutex
	broken []string
	under  map[*operation]struct{} // way
	claims []claim
}

// arrival is a moment at which so many operations begin.
type arrival struct {
	at    time.Duration
	count int
}

// front is a fault that hangs over some requests for a while.
type front struct {
	from, until time.Duration
	fault       string
	place, part string // region or node, range or segment; "" = all
	writes      int    // 1 = writes only, -1 = reads only, 0 = both
	share       float64
}

func (f front) String() string {
	kind := map[int]string{1: " of writes", -1: " of reads"}[f.writes]
	return fmt.Sprintf("until %s: %.0f %% %s%s at %q, part %q", f.until, 100*f.share, f.fault, kind, f.place, f.part)
}

func newStorm(t *testing.T, seed uint64) *storm {
	return &storm{t: t, seed: seed, under: map[*operation]struct{}{}}
}

// rand is a source of its own for each user of chance, so that what one of them
// draws does not depend on how often another one did.
func (s *storm) rand(user, number uint64) *rand.Rand {
	return rand.New(rand.NewPCG(s.seed, user<<40|number))
}

// The users of chance.
const (
	worldsChance uint64 = iota + 1
	arrivalsChance
	frontsChance
	directorsChance
	operationsChance
)

// schedule draws when operations begin: one by one and in crowds, as it is the
// crowds that races and refreshes suffer from.
func (s *storm) schedule(clients int) {
	r := s.rand(arrivalsChance, 0)
	at := 10 * time.Second // the topology is old enough to be read again
	for left := clients; left > 0; {
		at += time.Duration(r.ExpFloat64() * float64(150*time.Millisecond))
		a := arrival{at: at, count: 1}
		switch r.IntN(40) {
		case 0:
			a.count = 10 + r.IntN(40)
		case 1, 2, 3:
			a.count = 2 + r.IntN(8)
		}
		a.count = min(a.count, left)
		left -= a.count
		s.arrivals = append(s.arrivals, a)
		if r.IntN(300) == 0 {
			at += time.Duration(r.IntN(30)) * time.Second // a lull, in which marks and breakers come due
		}
	}
	s.lasts = at + time.Second
}

// weather draws fronts, about one every so often.
func (s *storm) weather(every time.Duration, draw func(r *rand.Rand, f *front)) {
	r := s.rand(frontsChance, uint64(len(s.fronts)))
	for at := 5 * time.Second; at < s.lasts; at += time.Duration(r.ExpFloat64() * float64(every)) {
		f := front{from: at, share: pick(r, 0.03, 0.1, 0.3, 0.6, 1, 1), writes: pick(r, 0, 0, 0, 1, -1)}
		f.until = min(at+time.Duration(r.ExpFloat64()*float64(12*time.Second)), s.lasts)
		draw(r, &f)
		s.fronts = append(s.fronts, f)
		s.timeline.plan(f.from, "%s", f)
	}
	slices.SortFunc(s.fronts, func(a, b front) int { return cmp.Compare(a.from, b.from) })
}

// strike returns the fault that strikes a request, "" for none. It follows from
// the operation and the number of the send alone, whoever else sends meanwhile.
func (s *storm) strike(op *operation, send int, place, part string) string {
	now := s.now()
	for i, f := range s.fronts {
		if f.from > now {
			break
		}
		if now >= f.until || f.place != "" && f.place != place || f.part != "" && f.part != part ||
			f.writes > 0 && !op.write || f.writes < 0 && op.write {
			continue
		}
		if f.share >= 1 || chance(s.seed, op.number, uint64(send), uint64(i)) < f.share {
			s.tally.faults.Add(1)
			return f.fault
		}
	}
	return ""
}

// chance is a number in [0,1) that follows from its arguments.
func chance(parts ...uint64) float64 {
	h := uint64(0x9e3779b97f4a7c15)
	for _, p := range parts {
		h ^= p
		h *= 0xbf58476d1ce4e5b9
		h ^= h >> 29
		h *= 0x94d049bb133111eb
		h ^= h >> 32
	}
	return float64(h>>11) / (1 << 53)
}

func (s *storm) now() time.Duration { return time.Since(s.started) }

// load has act called for each arrival at its time, and returns when all have
// returned.
func (s *storm) load(act func(number uint64, r *rand.Rand)) {
	var all sync.WaitGroup
	next := make(chan uint64) // to those who have nothing to do: their stacks have grown already
	number := uint64(0)
	for _, a := range s.arrivals {
		if !s.sleepUntil(a.at) {
			break
		}
		for range a.count {
			number++
			select {
			case next <- number:
				continue
			default:
			}
			first := number
			all.Go(func() {
				for n, more := first, true; more; n, more = <-next {
					act(n, s.rand(operationsChance, n))
				}
			})
		}
	}
	close(next)
	all.Wait()
}

// sleepUntil reports whether the storm still goes on at that time.
func (s *storm) sleepUntil(at time.Duration) bool { return s.sleep(at - s.now()) }

func (s *storm) sleep(d time.Duration) bool {
	if d <= 0 {
		return s.ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-s.ctx.Done():
		return false
	}
}

// later undoes something after a while.
func (s *storm) later(r *rand.Rand, most time.Duration, what string, undo func()) {
	after := between(r, 0, most)
	s.tally.events.Add(1)
	s.note("%s, for %s", what, after)
	time.AfterFunc(after, func() {
		if s.ctx.Err() == nil {
			undo()
		}
	})
}

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

func between(r *rand.Rand, low, high time.Duration) time.Duration {
	return low + time.Duration(r.Int64N(int64(high-low)+1))
}
