package cosmostest

import (
	"net/http"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/reroute-go/reroute/partitions"
)

// keyRange is a partition key range: the keys whose effective partition key is in [min, max).
type keyRange struct {
	id        string
	from, to  uint64 // positions of the boundaries
	min, max  partitions.Key
	texts     [2]string // the boundaries as the feed writes them
	parents   []string
	ancestors map[string]bool
	published int    // version of the feed that shows it; 0 = not shown
	locked    bool   // a split or merge is under way: 410/1007
	writer    string // key of the region the partition has failed over to, "" = none

	version  int // of session tokens, +1 by a merge
	lsn      int64
	commits  []commit
	replicas map[string]*replica
}

func (c *container) newRange(from, to uint64, parents ...*keyRange) *keyRange {
	g := &keyRange{id: strconv.Itoa(c.rangesMade), from: from, to: to, texts: [2]string{c.boundary(from), c.boundary(to)},
		ancestors: map[string]bool{}, version: 1, replicas: map[string]*replica{}}
	g.min, g.max = mustKey(g.texts[0]), mustKey(g.texts[1])
	c.rangesMade++
	for _, p := range parents {
		g.parents = append(g.parents, p.id)
		g.ancestors[p.id] = true
		for id := range p.ancestors {
			g.ancestors[id] = true
		}
	}
	return g
}

// makeRanges divides the key space of a new container evenly.
func (c *container) makeRanges(n int) {
	c.rangesVersion = 1
	for i := range uint64(n) {
		g := c.newRange(wholeSpace*i/uint64(n), wholeSpace*(i+1)/uint64(n))
		g.published = 1
		c.ranges = append(c.ranges, g)
	}
}

// rangeOf finds the range that owns an effective partition key. The ranges always cover the whole space.
func (c *container) rangeOf(epk partitions.Key) *keyRange {
	i := sort.Search(len(c.ranges)-1, func(i int) bool { return epk.Compare(c.ranges[i].max) < 0 })
	return c.ranges[i]
}

// writer is the region that takes the writes of a range: the account's write region unless the partition has failed over.
func (a *Account) writer(g *keyRange) *region {
	if g.writer != "" && !a.multiWrite {
		if r := a.regionByKey(g.writer); r != nil {
			return r
		}
	}
	return a.hub
}

// scope is the part of a container a request is about.
type scope struct {
	container *container
	key       *partitionKey    // nil when the request names none
	span      *partitions.Span // of effective partition keys, nil = all
	ranges    []*keyRange
	exact     bool // the request names one key or one range
}

// scope finds the container, key and ranges of an item request, and refuses what the gateway refuses.
func (a *Account) scope(c *call) (*scope, error) {
	coll := a.store.container(c.database, c.container)
	if coll == nil {
		return nil, &apiError{status: http.StatusNotFound, substatus: 1003, message: "Owner resource does not exist."}
	}
	if rid := c.header.Get(headerContainerRID); rid != "" && rid != coll.rid {
		return nil, &apiError{status: http.StatusBadRequest, substatus: 1024, message: "The collection resource id does not match."}
	}
	s := &scope{container: coll, ranges: coll.ranges}
	if err := s.narrow(c); err != nil {
		return nil, err
	}
	if id := c.header.Get(headerRangeID); id != "" {
		if err := s.pin(id); err != nil {
			return nil, err
		}
	}
	c.scope = s
	return s, nil
}

// narrow applies the partition key or the span of effective partition keys that a request names.
func (s *scope) narrow(c *call) error {
	if text := c.header.Get(headerPartitionKey); text != "" {
		key, err := s.container.parseKey(text)
		if err != nil {
			return err
		}
		switch {
		case key.complete:
			s.key, s.ranges, s.exact = key, []*keyRange{s.container.rangeOf(key.span.Min)}, true
		case len(key.parts) > 0:
			s.key, s.ranges = key, s.container.overlapping(key.span)
		}
	}
	start, end := c.header.Get(headerStartEPK), c.header.Get(headerEndEPK)
	if start == "" && end == "" {
		return nil
	}
	from, err := partitions.ParseKey(start)
	if err != nil {
		return badRequest("%s: %v", headerStartEPK, err)
	}
	to := partitions.MaxKey()
	if end != "" {
		if to, err = partitions.ParseKey(end); err != nil {
			return badRequest("%s: %v", headerEndEPK, err)
		}
	}
	s.span = &partitions.Span{Min: from, Max: to}
	s.ranges = slices.DeleteFunc(s.container.overlapping(*s.span), func(g *keyRange) bool { return !slices.Contains(s.ranges, g) })
	return nil
}

// covers reports whether an item belongs to the scope.
func (s *scope) covers(it *item) bool {
	switch {
	case !slices.Contains(s.ranges, s.container.rangeOf(it.epk)),
		s.span != nil && (it.epk.Compare(s.span.Min) < 0 || it.epk.Compare(s.span.Max) >= 0):
		return false
	case s.key == nil:
		return true
	case s.key.complete:
		return it.key == s.key.text
	}
	return strings.HasPrefix(it.key, strings.TrimSuffix(s.key.text, "]")+",")
}

// pin narrows a scope to the range the client names.
func (s *scope) pin(id string) error {
	i := slices.IndexFunc(s.container.ranges, func(g *keyRange) bool { return g.id == id })
	if i < 0 {
		if old := s.container.retired[id]; old != nil && old.locked {
			return completingSplit()
		}
		return rangeGone(id)
	}
	g := s.container.ranges[i]
	if !slices.Contains(s.ranges, g) {
		return rangeGone(id)
	}
	s.ranges, s.exact = []*keyRange{g}, true
	return nil
}

func (c *container) overlapping(span partitions.Span) []*keyRange {
	var found []*keyRange
	for _, g := range c.ranges {
		if g.min.Compare(span.Max) < 0 && span.Min.Compare(g.max) < 0 {
			found = append(found, g)
		}
	}
	return found
}

func rangeGone(id string) error {
	return &apiError{status: http.StatusGone, substatus: 1002, message: "The requested partition key range '" + id + "' does not exist or is not the owner."}
}

func completingSplit() error {
	return &apiError{status: http.StatusGone, substatus: 1007, message: "The requested resource is being split or merged."}
}

// eachRange visits every range there is.
func (a *Account) eachRange(visit func(*container, *keyRange)) {
	for _, db := range a.store.databases {
		for _, c := range db.containers {
			for _, g := range c.ranges {
				visit(c, g)
			}
		}
	}
}
