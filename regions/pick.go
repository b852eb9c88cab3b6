package regions

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

var (
	// ErrNoRegion is matched by the error of a Pick that the exclusions leave no region for; see NoRegionError.
	ErrNoRegion = errors.New("regions: no region left")
	// ErrNoTopology is returned by Pick before the first successful Refresh.
	ErrNoTopology = errors.New("regions: topology not known yet")
)

// NoRegionError says which exclusions left no region. errors.Is matches ErrNoRegion.
type NoRegionError struct {
	From     List   // the list that was asked for
	Excluded []Name // the caller's
	Known    []Name // every region of the account
}

// Error names the exclusions and the regions that there are.
func (e *NoRegionError) Error() string {
	return fmt.Sprintf("%v: %q exclude all of %q", ErrNoRegion, e.Excluded, e.Known)
}

// Is makes errors.Is(err, ErrNoRegion) true.
func (e *NoRegionError) Is(target error) bool { return target == ErrNoRegion }

// Avoided is one operation's own bad experience with a region.
type Avoided struct {
	Region Name // which one
	Times  int  // how often; 0 or less counts as never
}

// Want says what an operation needs of a region. The zero value is any read.
type Want struct {
	From  List // which regions can serve; the zero value is ReadRegions
	Write bool // WriteForbidden marks count

	// Excluded is sacred: while the account has one region that is not excluded, healthy or not, an excluded one is never
	// chosen, as a probe neither.
	Excluded []Name
	// Strict: with every region excluded, Pick fails. Else the last resort is the hub, or with multiple write regions
	// the first of WriteRegions.
	Strict bool

	// Avoided lists regions that this operation has had trouble with; each time costs as much as a mark.
	Avoided []Avoided
	// Prefer is put first in the list for this operation, if it is in it. Empty: the usual order.
	Prefer Name
}

// Choice is the region picked for one attempt, and the handle to report on it.
type Choice struct {
	Endpoint
	// Topology is what the choice was made from: give it to Refresh when the choice proves stale.
	Topology *Topology
	// From is the list that the region comes from. It is ReadRegions, whatever Want.From asked, when every region of the
	// wanted list is excluded but the account has another: exclusions come before the list.
	From List
	// Excluded: every region is excluded, and this is the last resort.
	Excluded bool
	// Probe: this operation is the one that tries a marked endpoint again. Report on it, whatever happens.
	Probe bool

	write bool
	host  string
	seq   uint64 // of the marks the choice was made with
	claim *claim
}

// Pick chooses the region for one attempt. Regions are ranked by cost: the times this operation avoids them, plus one if
// marked. Of equals, an unmarked one wins, then Prefer, then the list's order. So a mark demotes a region and never
// removes it: when all are marked, all are still tried (R066, B63).
//
// Errors: ErrNoTopology, and with Want.Strict a *NoRegionError. Without marks and wishes it costs two atomic loads and
// allocates nothing.
func (r *Registry) Pick(w Want) (Choice, error) {
	t := r.holder.Load()
	if t == nil {
		return Choice{}, ErrNoTopology
	}
	table := r.marks.Load()
	if len(table.hosts) == 0 && len(w.Excluded) == 0 && len(w.Avoided) == 0 && w.Prefer == "" {
		if list := t.list(w.From); len(list) > 0 {
			return choose(&list[0], t, w.From, w.Write, table), nil
		}
	}
	return r.rank(&w, t, table)
}

// rank is Pick where there is something to weigh.
func (r *Registry) rank(w *Want, t *Topology, table *marks) (Choice, error) {
	list := t.list(w.From)
	for {
		from := w.From
		best, s := r.best(list, w, table)
		if best == nil {
			from, list = ReadRegions, t.plan.all
			best, s = r.best(list, w, table)
		}
		if best == nil {
			return r.lastResort(t, w, table)
		}
		c := choose(best, t, from, w.Write, table)
		if s != due {
			return c, nil
		}
		if c.claim = table.hosts[best.host].claim(w.Write, time.Now(), r.markFor); c.claim != nil {
			c.Probe = true
			return c, nil
		}
		// Somebody else took the probe in between: for us the endpoint is marked now.
		table = r.marks.Load()
	}
}

func choose(c *candidate, t *Topology, from List, write bool, table *marks) Choice {
	return Choice{Endpoint: c.Endpoint, Topology: t, From: from, write: write, host: c.host, seq: table.seq}
}

// best returns the cheapest region of list that is not excluded, nil if there is none.
func (r *Registry) best(list []candidate, w *Want, table *marks) (best *candidate, s state) {
	var now time.Time
	lowest := 0
	for i := range list {
		c := &list[i]
		if contains(w.Excluded, c.Region) {
			continue
		}
		is := unmarked
		if m, ok := table.hosts[c.host]; ok {
			if now.IsZero() {
				now = time.Now()
			}
			is = m.state(w.Write, now, r.markFor)
		}
		// The list's order decides by who comes first; a preferred region beats equals before it.
		rank := 4 * w.avoided(c.Region)
		if is == marked {
			rank += 4 + 2
		}
		if w.Prefer == "" || !w.Prefer.Equal(c.Region) {
			rank++
		}
		if best == nil || rank < lowest {
			best, s, lowest = c, is, rank
		}
	}
	return best, s
}

func (w *Want) avoided(n Name) int {
	times := 0
	for _, a := range w.Avoided {
		if a.Region.Equal(n) {
			times += min(max(a.Times, 0), 1<<20) // no overflow, whatever a caller counts
		}
	}
	return times
}

// lastResort serves an operation that excludes every region of the account.
func (r *Registry) lastResort(t *Topology, w *Want, table *marks) (Choice, error) {
	if w.Strict {
		e := &NoRegionError{From: w.From, Excluded: slices.Clone(w.Excluded)}
		for _, c := range t.plan.all {
			e.Known = append(e.Known, c.Region)
		}
		return Choice{}, e
	}
	from, list := WriteRegions, t.plan.writes
	if len(list) == 0 {
		from, list = ReadRegions, t.plan.reads
	}
	c := choose(&list[0], t, from, w.Write, table)
	c.Excluded = true
	return c, nil
}

// Candidates returns how many regions of a list are not excluded, marked or not; 0 before the first topology.
func (r *Registry) Candidates(from List, excluded []Name) int {
	n := 0
	if t := r.holder.Load(); t != nil {
		for i := range t.list(from) {
			if !contains(excluded, t.list(from)[i].Region) {
				n++
			}
		}
	}
	return n
}

// Names returns the regions of a list, in its order and regardless of marks; none before the first topology. It allocates
// nothing; the slice must not be changed.
func (r *Registry) Names(from List) []Name {
	if t := r.holder.Load(); t != nil && int(from) < len(t.plan.names) {
		return t.plan.names[from]
	}
	return nil
}

// Endpoints returns a copy of a list, in its order and regardless of marks; empty before the first topology.
func (r *Registry) Endpoints(from List) []Endpoint {
	if t := r.holder.Load(); t != nil {
		return endpoints(t.list(from))
	}
	return nil
}
