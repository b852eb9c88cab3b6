package ownership

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Map says which node owns which segment of the keys. It must not change once a
// Source has returned it.
type Map struct {
	// Epoch numbers the map; a newer map has a higher one. 0 = the service does not
	// number its maps: each one read is then taken for newer if it differs.
	Epoch uint64 `json:"epoch,omitempty"`
	// Segments are the parts of the key space, in order. There are as many as ever:
	// a map with fewer is incomplete and refused.
	Segments []Segment `json:"segments"`
	// Nodes names members that may own nothing yet, so that hints may name them.
	Nodes []string `json:"nodes,omitempty"`
}

// Segment is one part of the key space.
type Segment struct {
	// Owner is the node, host[:port], that serves the segment, the only one to
	// take its writes; "" = nobody does now.
	Owner string `json:"owner"`
	// Replica is the node that takes over when Owner fails; "" = none.
	Replica string `json:"replica,omitempty"`
}

// maxSegments bounds a map.
const maxSegments = 1 << 20

// MapError says why a map was refused. The one held stays.
type MapError struct {
	Segment int    // the one at fault, -1 = the map as a whole
	Value   string // what is wrong, cut to 260 bytes
	Reason  string // why that cannot be
}

// Error names the segment, the value and the reason.
func (e *MapError) Error() string {
	if e.Segment < 0 {
		return fmt.Sprintf("ownership: map refused: %s", e.Reason)
	}
	return fmt.Sprintf("ownership: map refused: segment %d: %q %s", e.Segment, e.Value, e.Reason)
}

// check refuses what is no complete map, or one with another number of segments
// than the map held: keys would fall into other segments (Z068).
func (m *Map) check(held *Map) error {
	whole := func(format string, args ...any) error {
		return &MapError{Segment: -1, Reason: fmt.Sprintf(format, args...)}
	}
	switch n := len(m.Segments); {
	case n == 0:
		return whole("it has no segments")
	case n > maxSegments:
		return whole("it has %d segments, want at most %d", n, maxSegments)
	case held != nil && n != len(held.Segments):
		return whole("it has %d segments, the one held has %d", n, len(held.Segments))
	}
	owned := false
	for i, s := range m.Segments {
		owned = owned || s.Owner != ""
		for _, host := range []string{s.Owner, s.Replica} {
			if host != "" && !validHost(host) {
				return &MapError{Segment: i, Value: host[:min(len(host), maxHost)], Reason: "is no host[:port]"}
			}
		}
	}
	if !owned {
		return whole("nobody owns any of its %d segments", len(m.Segments))
	}
	for _, host := range m.Nodes {
		if !validHost(host) {
			return whole("node %q is no host[:port]", host[:min(len(host), maxHost)])
		}
	}
	return nil
}

func (m *Map) same(o *Map) bool {
	return slices.Equal(m.Segments, o.Segments) && slices.Equal(m.Nodes, o.Nodes)
}

// SegmentOf is the standard key function: FNV-1a over the key's bytes, modulo n.
// A server may use it too.
func SegmentOf(key string, n int) int {
	h := uint64(14695981039346656037)
	for i := range len(key) {
		h = (h ^ uint64(key[i])) * 1099511628211
	}
	return int(h % uint64(n))
}

// held is a map in use. It is immutable.
type held struct {
	Map                          // with an Epoch of its own where the service gives none
	given    Map                 // as the source has told it
	numbered bool                // by the service
	began    time.Time           // when the fetch that brought it began
	ids      []string            // of the segments, for reports
	members  map[string]struct{} // in lower case
}

func hold(m *Map, epoch uint64, began time.Time, old *held) *held {
	h := &held{Map: *m, given: *m, numbered: m.Epoch != 0, began: began, members: map[string]struct{}{}}
	h.Epoch = epoch
	if old != nil {
		h.ids = old.ids // as many segments as ever
	} else {
		h.ids = make([]string, len(m.Segments))
		for i := range h.ids {
			h.ids[i] = strconv.Itoa(i)
		}
	}
	var last string
	for _, s := range m.Segments {
		for _, host := range []string{s.Owner, s.Replica} {
			if host != "" && host != last {
				h.members[strings.ToLower(host)] = struct{}{}
				last = host
			}
		}
	}
	for _, host := range m.Nodes {
		h.members[strings.ToLower(host)] = struct{}{}
	}
	return h
}

func (h *held) isMember(host string) bool {
	_, ok := h.members[strings.ToLower(host)]
	return ok
}
