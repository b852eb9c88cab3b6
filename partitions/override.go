package partitions

import (
	"sync"
	"sync/atomic"

	"github.com/reroute-go/reroute/regions"
)

// override says where the writes of one partition go. It does not change.
type override struct {
	partition Partition
	region    regions.Name
}

func (o *override) key() *Partition { return &o.partition }

// overrides remembers where writes of single-write accounts were confirmed (PPAF).
type overrides struct {
	limit int
	on    atomic.Bool
	count atomic.Int64

	mu    sync.Mutex // only for moments
	table table[override, *override]
}

func newOverrides(limit int) *overrides {
	return &overrides{limit: limit, table: newTable[override]()}
}

func (o *overrides) find(p Partition) *override {
	if o.count.Load() == 0 {
		return nil
	}
	w := o.table.walk(&p)
	return w.next(&p)
}

func (o *overrides) confirm(p Partition, region, home regions.Name) bool {
	if p.Range == "" || region == "" || !o.on.Load() {
		return false
	}
	atHome := region.Equal(home)
	if old := o.find(p); old == nil && atHome || old != nil && !atHome && old.region.Equal(region) {
		return false
	}
	if atHome {
		region = ""
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.set(p, region)
}

// set records a region, or none. Called with mu held; a flag that went off in between counts.
func (o *overrides) set(p Partition, region regions.Name) (changed bool) {
	w := o.table.walk(&p)
	old := w.next(&p)
	switch {
	case !o.on.Load() || old == nil && region == "" || old != nil && old.region.Equal(region):
		return false
	case region == "":
		o.table.replace(old, nil)
	case old != nil:
		o.table.replace(old, &override{p, region})
	case o.table.live >= o.limit:
		return false
	default:
		o.table.add(&override{p, region})
	}
	o.count.Store(int64(o.table.live))
	return true
}

// turn switches overrides on or off. A change forgets all.
func (o *overrides) turn(on bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.on.Swap(on) != on {
		o.table.clear()
		o.count.Store(0)
	}
}

// forgetIf drops the overrides that match.
func (o *overrides) forgetIf(match func(Partition) bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.table.removeIf(func(r *override) bool { return match(r.partition) })
	o.count.Store(int64(o.table.live))
}

// split passes the overrides of the ranges that are not in next on to their children, and drops them. A child is where
// its parent was, because a split moves nothing to another region; the child of a merge is only where all its parents were.
func (o *overrides) split(rid string, before, next *Map) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := range next.Len() {
		child := next.At(i)
		if _, old := before.FindID(child.ID); old || len(child.Parents) == 0 {
			continue
		}
		o.set(Partition{Container: rid, Range: child.ID}, o.inherited(rid, before, child.Parents))
	}
	for i := range before.Len() {
		id := before.ID(i)
		if _, stays := next.FindID(id); !stays {
			o.set(Partition{Container: rid, Range: id}, "")
		}
	}
}

// inherited is the one region of all the parents that the map before had.
func (o *overrides) inherited(rid string, before *Map, parents []string) regions.Name {
	var region regions.Name
	for _, id := range parents {
		if _, live := before.FindID(id); !live {
			continue // an older generation
		}
		p := Partition{Container: rid, Range: id}
		w := o.table.walk(&p)
		r := w.next(&p)
		if r == nil || region != "" && !region.Equal(r.region) {
			return ""
		}
		region = r.region
	}
	return region
}
