package ownership

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/reroute-go/reroute/middleware"
)

// hints lie over the map: what answers have told about single segments since it
// was read. There is at most one a segment. Reading takes no lock.
type hints struct {
	some sync.Map     // segment number to *hint
	n    atomic.Int64 // of them, never too few; 0 spares the look-up
}

type hint struct {
	owner string
	epoch uint64    // 0 = unsaid
	since time.Time // when it was learned
	over  *held     // the map it was laid over
}

func (h *hints) of(segment int) *hint {
	if h.n.Load() == 0 {
		return nil
	}
	v, _ := h.some.Load(segment)
	known, _ := v.(*hint)
	return known
}

// beats reports whether the hint is newer than m. One that does not say holds
// over the map it came after, until settle sees a fetch that began later.
func (h *hint) beats(m *held) bool {
	return h.epoch > m.Epoch || h.epoch == 0 && (h.over == m || m.began.Before(h.since))
}

// learn adds a hint, unless a newer one is there.
func (h *hints) learn(segment int, new *hint) bool {
	for {
		h.n.Add(1) // before it can be found: who finds one here must find it by of too
		v, loaded := h.some.LoadOrStore(segment, new)
		if !loaded {
			return true
		}
		h.n.Add(-1)
		if old := v.(*hint); new.epoch < old.epoch || new.epoch == old.epoch && new.epoch != 0 {
			return old.owner == new.owner
		}
		if h.some.CompareAndSwap(segment, v, new) {
			return true
		}
	}
}

// forget drops the hint that led to used.
func (h *hints) forget(segment int, used middleware.Target) {
	if old := h.of(segment); old != nil && old.owner == used.Endpoint && (old.epoch == 0 || old.epoch == used.Epoch) {
		h.drop(segment, old)
	}
}

// settle drops the hints that m, or a fetch which began then and confirmed it,
// has caught up with.
func (h *hints) settle(m *held, began time.Time) {
	if h.n.Load() == 0 {
		return
	}
	h.some.Range(func(segment, v any) bool {
		if old := v.(*hint); old.epoch != 0 && old.epoch <= m.Epoch || old.epoch == 0 && !began.Before(old.since) {
			h.drop(segment, old)
		}
		return true
	})
}

func (h *hints) drop(segment any, old *hint) {
	if h.some.CompareAndDelete(segment, old) {
		h.n.Add(-1)
	}
}
