package partitions

import (
	"maps"
	"slices"
)

// Map says which range owns a key. It is complete, each key below [MaxKey] has exactly one owner, and it never
// changes. Its ranges stand in the order of their keys and are addressed by their ordinal there, so that what belongs
// to a range can be kept in a slice beside the map. Ordinals mean nothing in another map.
//
// A nil or zero Map owns nothing: every lookup in it finds no range.
type Map struct {
	ranges []Range
	index  index
	byID   map[string]int
	gone   map[string]struct{}
}

// NewMap builds the map of ranges, which come in any order. Ranges that another one names as a parent are dropped and
// remembered as gone; of two copies of a range the later one counts. If the others do not cover the line exactly once,
// there is no map but a [*MapError].
//
// The ranges are copied, their Parents are shared and must not be changed afterwards.
func NewMap(ranges []Range) (*Map, error) {
	return new(Map).merge(ranges)
}

// Combine is m after delta: new ranges take the place of their parents, and a range that m has already is renewed.
// m does not change, and is the result of an empty delta. A delta that leaves the line not covered exactly once is a
// [*MapError]; then the complete set has to be read again.
func (m *Map) Combine(delta []Range) (*Map, error) {
	if len(delta) == 0 {
		return m, nil
	}
	if m == nil {
		return NewMap(delta)
	}
	next, err := m.merge(delta)
	if err != nil {
		if orphan := m.orphan(delta); orphan != nil {
			return nil, orphan
		}
		return nil, err
	}
	return next, nil
}

// merge is NewMap when m is empty.
func (m *Map) merge(delta []Range) (*Map, error) {
	live := make([]Range, len(m.ranges), len(m.ranges)+len(delta))
	copy(live, m.ranges)
	at := maps.Clone(m.byID)
	if at == nil {
		at = make(map[string]int, len(delta))
	}
	gone := maps.Clone(m.gone)
	for i := range delta {
		r := &delta[i]
		if err := r.check(); err != nil {
			return nil, err
		}
		if len(r.Parents) > 0 && gone == nil {
			gone = make(map[string]struct{})
		}
		for _, parent := range r.Parents {
			gone[parent] = struct{}{}
		}
		if j, ok := at[r.ID]; !ok {
			at[r.ID] = len(live)
			live = append(live, *r)
		} else if live[j].Min == r.Min && live[j].Max == r.Max {
			live[j] = *r
		} else {
			return nil, &MapError{Err: ErrDuplicateRange, Range: live[j], Other: *r}
		}
	}
	if len(gone) > 0 {
		live = slices.DeleteFunc(live, func(r Range) bool {
			_, dead := gone[r.ID]
			if dead {
				delete(at, r.ID)
			}
			return dead
		})
	}
	slices.SortFunc(live, func(a, b Range) int { return a.Min.Compare(b.Min) })
	if err := checkComplete(live); err != nil {
		return nil, err
	}
	for i := range live {
		at[live[i].ID] = i
	}
	return &Map{ranges: live, index: newIndex(live), byID: at, gone: gone}, nil
}

// checkComplete refuses sorted ranges that do not cover the line exactly once.
func checkComplete(sorted []Range) error {
	if len(sorted) == 0 {
		return &MapError{Err: ErrNoRanges}
	}
	var before Range // ends where the line starts
	for i := range sorted {
		r := &sorted[i]
		switch order := before.Max.Compare(r.Min); {
		case order < 0:
			return &MapError{Err: ErrGap, Range: before, Other: *r}
		case order > 0:
			return &MapError{Err: ErrOverlap, Range: before, Other: *r}
		}
		before = *r
	}
	if before.Max != MaxKey() {
		return &MapError{Err: ErrGap, Range: before}
	}
	return nil
}

// orphan tells why a delta does not fit: it finds a new range of which no parent was ever seen, so that m missed what
// happened in between. Some unknown parents alone are no fault, a delta may skip generations.
func (m *Map) orphan(delta []Range) error {
	known := make(map[string]bool, len(delta))
	for i := range delta {
		known[delta[i].ID] = true
	}
	for i := range delta {
		r := &delta[i]
		if _, old := m.byID[r.ID]; old || len(r.Parents) == 0 {
			continue
		}
		if !slices.ContainsFunc(r.Parents, func(id string) bool { return known[id] || m.has(id) }) {
			return &MapError{Err: ErrUnknownParent, Range: *r, Other: Range{ID: r.Parents[0]}}
		}
	}
	return nil
}

func (m *Map) has(id string) bool {
	_, live := m.byID[id]
	return live || m.Gone(id)
}

// Len is the number of ranges.
func (m *Map) Len() int {
	if m == nil {
		return 0
	}
	return len(m.ranges)
}

// At is the range with that ordinal, and panics for one outside of [0, Len). Its Parents must not be changed.
func (m *Map) At(ordinal int) Range { return m.ranges[ordinal] }

// ID is At(ordinal).ID without the copy of the rest.
func (m *Map) ID(ordinal int) string { return m.ranges[ordinal].ID }

// Find is the ordinal of the range that owns k, and false for a key at or beyond [MaxKey]. A key on a boundary belongs
// to the range above it.
func (m *Map) Find(k Key) (ordinal int, ok bool) {
	if m == nil || len(m.ranges) == 0 || k.hi >= MaxKey().hi {
		return 0, false
	}
	return m.index.find(m.ranges, &k), true
}

// FindID is the ordinal of the range named id, and false when the map has none.
func (m *Map) FindID(id string) (ordinal int, ok bool) {
	if m == nil {
		return 0, false
	}
	ordinal, ok = m.byID[id]
	return ordinal, ok
}

// Overlapping is the ranges that own a key in s, as the ordinals from first to before end. There are none, first ==
// end, when s ends before it starts or starts at or beyond [MaxKey].
func (m *Map) Overlapping(s Span) (first, end int) {
	first, ok := m.Find(s.Min)
	if !ok {
		return 0, 0
	}
	switch order := s.Min.Compare(s.Max); {
	case order == 0:
		return first, first + 1
	case order > 0:
		return 0, 0
	}
	last, ok := m.Find(s.Max)
	if !ok {
		return first, len(m.ranges)
	}
	if m.ranges[last].Min == s.Max {
		return first, last // the end is exclusive
	}
	return first, last + 1
}

// Gone is true for a range that the map knows to have been split or merged into others.
func (m *Map) Gone(id string) bool {
	if m == nil {
		return false
	}
	_, gone := m.gone[id]
	return gone
}
