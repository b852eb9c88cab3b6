package partitions

import (
	"hash/maphash"
	"math/bits"
	"sync/atomic"
)

// record is what a table holds: a *T that knows its partition. A partition can have several.
type record[T any] interface {
	*T
	key() *Partition
}

// table finds records by partition. Reading takes no lock; changing needs the owner's. It is a hash table with open
// addressing because neither a locked map nor a map that is copied for each change fits an outage, in which every
// operation reads and thousands of partitions fail within a second, and because a slot costs only its pointer.
type table[T any, P record[T]] struct {
	seed  maphash.Seed
	slots atomic.Pointer[[]atomic.Pointer[T]] // a power of two of them, at least a quarter nil
	dead  *T                                  // stands where a record was removed and the search must go on

	// Guarded by the owner's mutex.
	live, filled int // filled counts the dead too
	hand         int // where the next sweep goes on
}

func newTable[T any, P record[T]]() table[T, P] {
	return table[T, P]{seed: maphash.MakeSeed(), dead: new(T)}
}

// walk is a search for the records of one partition.
type walk[T any, P record[T]] struct {
	slots []atomic.Pointer[T]
	at    uint64
}

func (t *table[T, P]) walk(p *Partition) walk[T, P] {
	slots := t.slots.Load()
	if slots == nil {
		return walk[T, P]{}
	}
	return walk[T, P]{slots: *slots, at: t.hash(p)}
}

func (t *table[T, P]) hash(p *Partition) uint64 { return maphash.Comparable(t.seed, *p) }

// next is the partition's next record, nil at the end.
func (w *walk[T, P]) next(p *Partition) *T {
	mask := uint64(len(w.slots) - 1)
	for len(w.slots) > 0 {
		r := w.slots[w.at&mask].Load()
		if r == nil {
			break
		}
		w.at++
		if *P(r).key() == *p {
			return r
		}
	}
	return nil
}

// add puts a new record in.
func (t *table[T, P]) add(r *T) {
	slots := t.slots.Load()
	if slots == nil || 4*(t.filled+1) > 3*len(*slots) {
		slots = t.rebuild()
	}
	i, mask := t.hash(P(r).key()), uint64(len(*slots)-1)
	for {
		switch (*slots)[i&mask].Load() {
		case nil:
			t.filled++
			fallthrough
		case t.dead:
			(*slots)[i&mask].Store(r)
			t.live++
			return
		}
		i++
	}
}

// rebuild makes room for one more and at least a third as many, without the dead.
func (t *table[T, P]) rebuild() *[]atomic.Pointer[T] {
	next := make([]atomic.Pointer[T], max(8, 1<<bits.Len(uint(2*t.live+1))))
	mask := uint64(len(next) - 1)
	t.each(func(r *T) {
		i := t.hash(P(r).key())
		for next[i&mask].Load() != nil {
			i++
		}
		next[i&mask].Store(r)
	})
	t.filled = t.live
	t.slots.Store(&next)
	return &next
}

// replace puts other, or nothing if it is nil, where r is, and reports whether r was there.
func (t *table[T, P]) replace(r, other *T) bool {
	slots := t.slots.Load()
	if slots == nil {
		return false
	}
	mask := uint64(len(*slots) - 1)
	for i := t.hash(P(r).key()); ; i++ {
		switch (*slots)[i&mask].Load() {
		case nil:
			return false
		case r:
			if other != nil {
				(*slots)[i&mask].Store(other)
				return true
			}
			(*slots)[i&mask].Store(t.dead)
			if t.live--; t.live == 0 {
				t.clear()
			}
			return true
		}
	}
}

// each calls f for every record. f must not change the table.
func (t *table[T, P]) each(f func(*T)) {
	slots := t.slots.Load()
	if slots == nil {
		return
	}
	for i := range *slots {
		if r := (*slots)[i].Load(); r != nil && r != t.dead {
			f(r)
		}
	}
}

// removeIf removes the records that drop picks.
func (t *table[T, P]) removeIf(drop func(*T) bool) (removed int) {
	var out []*T
	t.each(func(r *T) {
		if drop(r) {
			out = append(out, r)
		}
	})
	for _, r := range out {
		t.replace(r, nil)
	}
	return len(out)
}

// sweep looks at a few slots, going on where the last sweep ended, and removes the records that drop picks.
func (t *table[T, P]) sweep(drop func(*T) bool) (removed int) {
	for range 8 {
		slots := t.slots.Load()
		if slots == nil {
			return removed
		}
		t.hand = (t.hand + 1) % len(*slots)
		if r := (*slots)[t.hand].Load(); r != nil && r != t.dead && drop(r) {
			t.replace(r, nil)
			removed++
		}
	}
	return removed
}

// clear removes everything and gives the memory back.
func (t *table[T, P]) clear() {
	t.slots.Store(nil)
	t.live, t.filled, t.hand = 0, 0, 0
}
