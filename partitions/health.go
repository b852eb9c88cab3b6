package partitions

import (
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/reroute-go/reroute/regions"
)

// direction tells reads from writes: they fail, trip and recover apart.
type direction uint8

const (
	reads direction = iota
	writes
)

func directionOf(write bool) direction {
	if write {
		return writes
	}
	return reads
}

// breaker is the trouble of one partition in one region in one direction. A partition without trouble has none.
type breaker struct {
	partition Partition
	region    regions.Name
	due       atomic.Int64 // when a probe may go: positive while tripped, 0 while counting, quiet after a recovery
	last      atomic.Int64 // last counted failure, or the recovery

	// Guarded by health.mu.
	machine   *gobreaker.TwoStepCircuitBreaker[struct{}] // counts, trips and half-opens. nil: no failures
	done      func(error)                                // reports the probe that is out, nil if none is
	wait      uint32                                     // from a trip to the probe, in ms
	claim     uint32                                     // number of the newest probe
	era       uint32                                     // of the newest recovery, 0 if there was none
	direction direction
	removed   bool
}

func (b *breaker) key() *Partition { return &b.partition }

// quiet is breaker.due after a recovery: no failures, but failures of attempts that are older must be told apart.
const quiet = -1

// What a machine is told of an attempt.
var (
	errFailed  = errors.New("failed")
	errNeutral = errors.New("neutral")
)

// health holds the breakers of all partitions.
type health struct {
	limits limits
	start  time.Time
	trip   [2]func(gobreaker.Counts) bool

	// state is the number of recoveries, the switch and the number of breakers in one word, so that an operation learns
	// with one load that nobody is in trouble. Changed with mu held.
	state atomic.Uint64

	mu       sync.Mutex // only for moments
	breakers table[breaker, *breaker]
}

const (
	eraUnit   = 1 << 32
	switchBit = 1 << 31
	countMask = switchBit - 1
)

func newHealth(l limits) *health {
	h := &health{limits: l, start: time.Now(), breakers: newTable[breaker]()}
	for d, threshold := range l.failures {
		h.trip[d] = func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= threshold }
	}
	h.turn(l.on(false))
	return h
}

// now is a time that a breaker can hold, always positive.
func (h *health) now() int64 { return int64(time.Since(h.start)) + 1 }

// finish tells the machine what became of the probe that is out.
func (b *breaker) finish(verdict error) {
	if b.done != nil {
		b.done(verdict)
		b.done = nil
	}
}

func (h *health) report(p Partition, region regions.Name, write bool, a *Admission, v regions.Verdict) Transition {
	if !a.watched {
		return Unchanged
	}
	if a.breaker != nil {
		if v == regions.Neutral || region.Equal(a.Probe) {
			return h.settle(a, v)
		}
		h.settle(a, regions.Neutral) // it went elsewhere: another operation may probe
	}
	state := h.state.Load()
	if v == regions.Neutral || region == "" || state&switchBit == 0 || v == regions.Healthy && state&countMask == 0 {
		return Unchanged
	}
	b := h.find(&p, region, directionOf(write))
	switch {
	case b != nil && b.due.Load() > 0:
		return Unchanged // only its probe decides
	case v == regions.Failed:
		return h.fail(p, region, directionOf(write), a.era)
	case b != nil:
		h.succeed(b)
	}
	return Unchanged
}

// settle takes the verdict of a probe, unless its lease went to another.
func (h *health) settle(a *Admission, v regions.Verdict) Transition {
	h.mu.Lock()
	defer h.mu.Unlock()
	b := a.breaker
	if b.claim != a.claim || b.done == nil {
		return Unchanged
	}
	switch v {
	case regions.Healthy:
		b.finish(nil)
		h.state.Add(eraUnit)
		b.era = uint32(h.state.Load() / eraUnit)
		b.machine = nil
		b.last.Store(h.now())
		b.due.Store(quiet)
		if !b.removed {
			return Recovered
		}
	case regions.Failed:
		b.finish(errFailed)
		h.arm(b)
		if !b.removed {
			return Rearmed
		}
	default:
		b.finish(errNeutral)
		b.due.Store(h.now())
	}
	return Unchanged
}

// arm sets the time of the next probe, just after the machine's own.
func (h *health) arm(b *breaker) {
	now := h.now()
	b.last.Store(now)
	b.due.Store(now + int64(b.wait)*int64(time.Millisecond) + 1)
}

// fail counts a failure.
func (h *health) fail(p Partition, region regions.Name, d direction, era uint32) Transition {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.state.Load()&switchBit == 0 {
		return Unchanged
	}
	b := h.find(&p, region, d)
	if b == nil {
		if b = h.add(p, region, d); b == nil {
			return Unchanged
		}
	}
	if b.due.Load() > 0 || b.era != 0 && int32(era-b.era) < 0 {
		return Unchanged
	}
	now := h.now()
	if b.machine == nil || now-b.last.Load() > int64(h.limits.resetWindow) {
		b.machine = h.machine(b)
	}
	b.last.Store(now)
	b.due.Store(0)
	if done, err := b.machine.Allow(); err == nil {
		done(errFailed)
	}
	if b.machine.State() != gobreaker.StateOpen {
		return Unchanged
	}
	h.arm(b)
	return Tripped
}

// add makes a breaker if there is room.
func (h *health) add(p Partition, region regions.Name, d direction) *breaker {
	now, full := h.now(), h.breakers.live >= h.limits.maxTracked
	h.count(-h.breakers.sweep(func(b *breaker) bool {
		// A tripped one is dropped only for want of room: its one probe is worth more than its memory.
		stale := now-max(b.last.Load(), b.due.Load()) > int64(h.limits.resetWindow) && (full || b.due.Load() <= 0)
		b.removed = b.removed || stale
		return stale
	}))
	if h.breakers.live >= h.limits.maxTracked {
		return nil
	}
	b := &breaker{partition: p, region: region, direction: d}
	h.breakers.add(b)
	h.count(1)
	return b
}

// machine makes the state machine of one breaker. Its waiting time is its own, so that partitions that tripped together
// do not probe together.
func (h *health) machine(b *breaker) *gobreaker.TwoStepCircuitBreaker[struct{}] {
	wait := h.limits.unavailable
	wait = (wait + rand.N(wait/2)).Truncate(time.Millisecond)
	b.wait = uint32(wait / time.Millisecond)
	return gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		MaxRequests: 1,
		Timeout:     wait,
		ReadyToTrip: h.trip[b.direction],
		IsExcluded:  func(err error) bool { return err == errNeutral },
	})
}

// succeed forgets failures that did not trip.
func (h *health) succeed(b *breaker) {
	recent := func() bool { return h.now()-b.last.Load() < int64(h.limits.lease) }
	if b.due.Load() == quiet && recent() {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case b.removed || b.due.Load() > 0:
	case b.era != 0 && recent():
		b.machine = nil
		b.due.Store(quiet)
	default:
		h.remove(b)
	}
}

// remove and count are called with mu held.
func (h *health) remove(b *breaker) {
	if h.breakers.replace(b, nil) {
		b.removed = true
		h.count(-1)
	}
}

func (h *health) count(n int) { h.state.Add(uint64(int64(n))) }

// forget drops the breakers of a partition that is no more.
func (h *health) forget(p Partition) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for {
		w := h.breakers.walk(&p)
		b := w.next(&p)
		if b == nil {
			return
		}
		h.remove(b)
	}
}

// forgetIf drops the breakers that match.
func (h *health) forgetIf(match func(Partition) bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.count(-h.breakers.removeIf(func(b *breaker) bool {
		b.removed = b.removed || match(b.partition)
		return b.removed
	}))
}

// turn switches the breakers on or off. A change forgets all.
func (h *health) turn(on bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if on == (h.state.Load()&switchBit != 0) {
		return
	}
	h.count(-h.breakers.removeIf(func(b *breaker) bool { b.removed = true; return true }))
	if on {
		h.state.Add(switchBit)
	} else {
		h.state.Add(^uint64(switchBit - 1))
	}
}

// tracked is the number of breakers.
func (h *health) tracked() int { return int(h.state.Load() & countMask) }
