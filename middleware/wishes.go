package middleware

import (
	"slices"

	"github.com/reroute-go/reroute/partitions"
	"github.com/reroute-go/reroute/regions"
)

// Avoid asks Route to prefer other regions than this one for the rest of the
// operation. It weighs as much as a shared mark, and more with each call.
func (op *Operation) Avoid(region regions.Name) { op.avoid(region, 1) }

// Shun asks Route to come back to region only when all others were tried,
// marked ones too.
func (op *Operation) Shun(region regions.Name) { op.avoid(region, 2) }

func (op *Operation) avoid(region regions.Name, weight int) {
	op.mu.Lock()
	defer op.mu.Unlock()
	t := op.troubled()
	next := t.avoided
	if len(next) > 0 {
		next = slices.Clone(next) // Route may be reading the old one
	}
	for i := range next {
		if next[i].Region == region {
			next[i].Times += weight
			t.avoided = next
			return
		}
	}
	t.avoided = append(next, regions.Avoided{Region: region, Times: weight})
}

// Avoided returns the regions to avoid. The slice must not be changed.
func (op *Operation) Avoided() []regions.Avoided {
	t := op.trouble.Load()
	if t == nil {
		return nil
	}
	op.mu.Lock()
	defer op.mu.Unlock()
	return t.avoided
}

// PreferHub asks Route for the write region, or lifts that wish.
func (op *Operation) PreferHub(yes bool) {
	op.mu.Lock()
	defer op.mu.Unlock()
	if yes || op.trouble.Load() != nil {
		op.troubled().hub = yes
	}
}

// WantsHub reports whether a layer prefers the write region.
func (op *Operation) WantsHub() bool {
	t := op.trouble.Load()
	if t == nil {
		return false
	}
	op.mu.Lock()
	defer op.mu.Unlock()
	return t.hub
}

// AnotherPool asks the base transport for a connection pool that this operation
// has not used; see Pool.
func (op *Operation) AnotherPool() {
	op.mu.Lock()
	defer op.mu.Unlock()
	op.troubled().pool++
}

// Pool returns how often another connection pool was asked for.
func (op *Operation) Pool() int {
	t := op.trouble.Load()
	if t == nil {
		return 0
	}
	op.mu.Lock()
	defer op.mu.Unlock()
	return t.pool
}

// ExcludedRegions returns the caller's exclusions: see WithExcludedRegions. The
// slice must not be changed.
func (op *Operation) ExcludedRegions() []regions.Name { return op.inputs.excluded }

// Target is where an attempt goes.
type Target struct {
	Region   regions.Name // "" where nothing routes by region
	Endpoint string       // host[:port]
	// Topology is what the choice was made from.
	Topology *regions.Topology
	Range    string // partition range id, "" when unknown
	// Epoch is that of the ownership map which the choice was made from; 0 = of none.
	Epoch uint64
	// Probe is set when this attempt tests a region that was given up on.
	Probe bool
	// Override is set when the partition's own health or history chose the region.
	Override bool
}

// SetTarget records where the next attempt goes. The layer that routes calls it.
func (op *Operation) SetTarget(t Target) {
	op.mu.Lock()
	if op.now.by == ended {
		op.turn()
	}
	op.now.target = t
	op.mu.Unlock()
}

// Target returns where the current, or last, attempt went.
func (op *Operation) Target() Target {
	op.mu.Lock()
	defer op.mu.Unlock()
	return op.now.target
}

// Placement is what is known of the partition that the next attempt is for.
type Placement struct {
	// Resolved is where the operation belongs; its Partition is zero where nothing
	// is known.
	partitions.Resolved
	// Avoid are regions that do not serve this partition now. It must not be
	// changed.
	Avoid []regions.Name
	// Probe is the region that this attempt, and no other, tries again.
	Probe regions.Name
	// Watched is set where the partition's own health decides: then a failure
	// answered by the service speaks against the partition, not the endpoint
	// (DESIGN rule 7).
	Watched bool
}

// Place records what is known of the next attempt's partition.
func (op *Operation) Place(p Placement) {
	op.mu.Lock()
	defer op.mu.Unlock()
	op.placed = p.Resolved
	if len(p.Avoid) > 0 || p.Probe != "" || op.trouble.Load() != nil {
		t := op.troubled()
		t.shunned, t.probe = p.Avoid, p.Probe
	}
	switch {
	case p.Watched:
		op.set(watched)
	case op.is(watched):
		op.flags.And(^watched)
	}
}

// Placement returns what is known of the current attempt's partition.
func (op *Operation) Placement() Placement {
	op.mu.Lock()
	defer op.mu.Unlock()
	p := Placement{Resolved: op.placed, Watched: op.is(watched)}
	if t := op.trouble.Load(); t != nil {
		p.Avoid, p.Probe = t.shunned, t.probe
	}
	return p
}
