package cosmostest

import (
	"maps"
	"slices"

	"github.com/reroute-go/reroute/partitions"
)

// Ranges lists the ranges that own the keys of a container, in order, also those the feed does not show yet. Nil for an unknown container.
func (a *Account) Ranges(db, coll string) []partitions.Range {
	a.mu.Lock()
	defer a.mu.Unlock()
	c := a.store.container(db, coll)
	if c == nil {
		return nil
	}
	var list []partitions.Range
	for _, g := range c.ranges {
		list = append(list, partitions.Range{ID: g.id, Min: g.min, Max: g.max, Parents: slices.Clone(g.parents), Status: partitions.StatusOnline})
	}
	return list
}

// RangeOf is the id of the range that owns a partition key, written as in x-ms-documentdb-partitionkey. It panics on an unknown
// container and on a key that cannot be.
func (a *Account) RangeOf(db, coll, key string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	c := a.mustContainer(db, coll)
	k, err := c.parseKey(key)
	if err != nil || !k.complete {
		panic("cosmostest: no complete partition key: " + key)
	}
	return c.rangeOf(k.span.Min).id
}

// RangeChange is a split or merge under way. Until it is complete the operations on its keys are answered 410/1007.
type RangeChange struct {
	account   *Account
	container *container
	old, new  []*keyRange
	installed bool
	done      bool
}

// BeginSplit starts to split a range in two even halves: the feed still shows it, operations on it are answered 410/1007. It panics on
// an unknown container or range and on a range that is already changing.
func (a *Account) BeginSplit(db, coll, rangeID string) *RangeChange {
	a.mu.Lock()
	defer a.mu.Unlock()
	c := a.mustContainer(db, coll)
	g := c.mustRange(rangeID)
	middle := g.from + (g.to-g.from)/2
	if middle == g.from {
		panic("cosmostest: range " + rangeID + " is too small to split")
	}
	return a.beginChange(c, []*keyRange{g}, []*keyRange{c.newRange(g.from, middle, g), c.newRange(middle, g.to, g)})
}

// BeginMerge starts to merge two ranges that lie side by side. It panics on ranges that do not.
func (a *Account) BeginMerge(db, coll, left, right string) *RangeChange {
	a.mu.Lock()
	defer a.mu.Unlock()
	c := a.mustContainer(db, coll)
	l, r := c.mustRange(left), c.mustRange(right)
	if l.to != r.from {
		panic("cosmostest: ranges " + left + " and " + right + " do not lie side by side")
	}
	return a.beginChange(c, []*keyRange{l, r}, []*keyRange{c.newRange(l.from, r.to, l, r)})
}

func (a *Account) beginChange(c *container, old, new []*keyRange) *RangeChange {
	for _, g := range slices.Concat(old, new) {
		g.locked = true
	}
	return &RangeChange{account: a, container: c, old: old, new: new}
}

func (c *container) mustRange(id string) *keyRange {
	for _, g := range c.ranges {
		if g.id == id && !g.locked {
			return g
		}
	}
	panic("cosmostest: no range " + id + " that could change")
}

// PublishHalf shows the feed in the middle of the change: the old ranges are gone, the last of the new ones is not there yet, so the
// feed has a hole. Operations are still answered 410/1007.
func (r *RangeChange) PublishHalf() {
	r.account.mu.Lock()
	defer r.account.mu.Unlock()
	r.install()
	if len(r.new) > 1 && r.new[0].published == 0 {
		r.container.publish(r.new[:1])
	}
}

// Complete ends the change: the feed shows the new ranges, which serve. It returns their ids. Requests that name an old range are from now
// on answered 410/1002. A second call only returns the ids.
func (r *RangeChange) Complete() []string {
	r.account.mu.Lock()
	defer r.account.mu.Unlock()
	ids := make([]string, len(r.new))
	for i, g := range r.new {
		ids[i] = g.id
	}
	if r.done {
		return ids
	}
	r.install()
	r.done = true
	r.container.publish(r.new)
	for _, g := range slices.Concat(r.old, r.new) {
		g.locked = false
	}
	return ids
}

// publish shows the ranges that the feed does not show yet.
func (c *container) publish(ranges []*keyRange) {
	c.rangesVersion++
	for _, g := range ranges {
		if g.published == 0 {
			g.published = c.rangesVersion
		}
	}
}

// install gives the keys of the old ranges to the new ones, with the log they have.
func (r *RangeChange) install() {
	if r.installed {
		return
	}
	r.installed = true
	c := r.container
	i := slices.Index(c.ranges, r.old[0])
	c.ranges = slices.Replace(c.ranges, i, i+len(r.old), r.new...)
	for _, g := range r.old {
		c.retired[g.id] = g
	}
	if len(r.old) == 1 {
		for _, g := range r.new {
			g.inherit(r.old[0])
		}
		return
	}
	r.account.join(r.new[0], r.old)
}

// inherit gives a child of a split the log of its parent: what had not reached a region before the split still has not.
func (g *keyRange) inherit(parent *keyRange) {
	g.version, g.lsn, g.writer, g.commits = parent.version, parent.lsn, parent.writer, slices.Clone(parent.commits)
	for region, p := range parent.replicas {
		g.replicas[region] = &replica{floor: p.floor, own: p.own, seen: maps.Clone(p.seen)}
	}
}

// join makes the range of a merge out of its parents. A merge waits for replication, so every region has everything afterwards.
func (a *Account) join(g *keyRange, parents []*keyRange) {
	for _, p := range parents {
		g.version, g.lsn = max(g.version, p.version), max(g.lsn, p.lsn)
		g.writer = p.writer
	}
	g.version++
	for _, r := range a.regions {
		joined := g.replicaOf(r)
		for _, p := range parents {
			a.catchUp(p, r)
			old := p.replicaOf(r)
			joined.own = max(joined.own, old.own)
			for origin, lsn := range old.seen {
				joined.seen[origin] = max(joined.seen[origin], lsn)
			}
		}
	}
}

// Split splits a range in two even halves at once and returns their ids; see BeginSplit.
func (a *Account) Split(db, coll, rangeID string) (left, right string) {
	ids := a.BeginSplit(db, coll, rangeID).Complete()
	return ids[0], ids[1]
}

// Merge merges two neighbouring ranges at once and returns the id of the new one; see BeginMerge.
func (a *Account) Merge(db, coll, left, right string) string {
	return a.BeginMerge(db, coll, left, right).Complete()[0]
}
