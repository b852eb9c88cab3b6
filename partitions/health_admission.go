package partitions

import "github.com/reroute-go/reroute/regions"

// Admission is what an operation, or one attempt of it, is told about the health of its partition, and what its reports
// are judged by. The zero Admission belongs to something that is not watched: it avoids nothing, and reports on it do nothing.
type Admission struct {
	// Avoid are the candidates that do not serve this partition now. Nil when there are none, and when no other is left:
	// then the usual order counts (B63). It must not be changed.
	Avoid []regions.Name
	// Probe is the region that this operation, and no other, tries again; "" if it is no probe. It is the first candidate
	// that is not in Avoid.
	Probe regions.Name

	breaker *breaker // being probed
	claim   uint32   // which of its probes this is
	era     uint32   // number of recoveries before this admission
	watched bool
}

// Watched is whether the partition's own health decides where the operation goes: breakers are on, and it may go somewhere.
func (a Admission) Watched() bool { return a.watched }

// Transition is what a report did to a breaker.
type Transition uint8

const (
	Unchanged Transition = iota // it was counted, or said nothing
	Tripped                     // the failure was one too many: the partition avoids the region from now on
	Rearmed                     // the probe failed: it goes on avoiding it
	Recovered                   // the probe succeeded: it uses it again
)

// String is the transition in one lower case word.
func (t Transition) String() string {
	switch t {
	case Unchanged:
		return "unchanged"
	case Tripped:
		return "tripped"
	case Rearmed:
		return "rearmed"
	case Recovered:
		return "recovered"
	}
	return "unknown transition"
}

func (h *health) admit(p Partition, write bool, candidates []regions.Name) Admission {
	state := h.state.Load()
	if state&switchBit == 0 || p.Range == "" || len(candidates) == 0 {
		return Admission{}
	}
	a := Admission{era: uint32(state / eraUnit), watched: true}
	if state&countMask != 0 && h.tripped(&p, directionOf(write)) {
		h.choose(&a, &p, directionOf(write), candidates)
	}
	return a
}

// tripped is whether the partition has a tripped breaker at all.
func (h *health) tripped(p *Partition, d direction) bool {
	w := h.breakers.walk(p)
	for b := w.next(p); b != nil; b = w.next(p) {
		if b.direction == d && b.due.Load() > 0 {
			return true
		}
	}
	return false
}

// choose goes through the candidates to the first that may serve: only a region before it is worth a probe.
func (h *health) choose(a *Admission, p *Partition, d direction, candidates []regions.Name) {
	now := h.now()
	served := false
	for _, region := range candidates {
		b := h.find(p, region, d)
		if b == nil || b.due.Load() <= 0 {
			served = true
			continue
		}
		if !served && b.due.Load() <= now && h.probe(b, a, now) {
			a.Probe, served = region, true
			continue
		}
		if a.Avoid == nil {
			a.Avoid = make([]regions.Name, 0, len(candidates))
		}
		a.Avoid = append(a.Avoid, region)
	}
	if !served {
		a.Avoid = nil
	}
}

func (h *health) find(p *Partition, region regions.Name, d direction) *breaker {
	w := h.breakers.walk(p)
	for b := w.next(p); b != nil; b = w.next(p) {
		if b.direction == d && b.region.Equal(region) {
			return b
		}
	}
	return nil
}

// probe takes the breaker's one permit, if it is still there.
func (h *health) probe(b *breaker, a *Admission, now int64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if due := b.due.Load(); b.removed || due <= 0 || due > now {
		return false
	}
	b.finish(errNeutral) // a probe that never reported
	done, err := b.machine.Allow()
	if err != nil {
		return false
	}
	b.claim++
	b.done = done
	b.due.Store(now + int64(h.limits.lease))
	a.breaker, a.claim = b, b.claim
	return true
}
