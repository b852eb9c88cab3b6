package cosmostest

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// keyRange is a partition key range: the keys whose effective partition key is in [min, max).
type keyRange struct {
	id, min, max string
	parents      []string
	ancestors    map[string]bool
	published    int  // version of the feed that shows it; 0 = not shown yet
	locked       bool // a split or merge is under way: 410/1007
	writer       string

	version  int // of session tokens, +1 by a merge
	lsn      int64
	commits  []commit
	replicas map[string]*replica
}

func (c *container) newRange(from, to string, parents ...*keyRange) *keyRange {
	g := &keyRange{id: strconv.Itoa(c.rangesMade), min: from, max: to, ancestors: map[string]bool{}, version: 1, replicas: map[string]*replica{}}
	c.rangesMade++
	for _, p := range parents {
		g.parents = append(g.parents, p.id)
		g.ancestors[p.id] = true
		for id := range p.ancestors {
			g.ancestors[id] = true
		}
		g.version, g.lsn, g.writer = max(g.version, p.version), max(g.lsn, p.lsn), p.writer
	}
	return g
}

// rangeOf finds the range that owns an effective partition key. The ranges always cover the whole space.
func (c *container) rangeOf(epk string) *keyRange {
	for _, g := range c.ranges {
		if g.max == "FF" || epk < g.max {
			return g
		}
	}
	return c.ranges[len(c.ranges)-1]
}

// holds reports whether an item falls into a range.
func (g *keyRange) holds(epk string) bool { return epk >= g.min && (g.max == "FF" || epk < g.max) }

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
	key       *partitionKey // nil when the request names none
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
	if text := c.header.Get(headerPartitionKey); text != "" {
		key, err := coll.parseKey(text)
		if err != nil {
			return nil, err
		}
		s.key = key
		if key.complete {
			s.ranges, s.exact = []*keyRange{coll.rangeOf(key.epk)}, true
		} else {
			s.ranges = coll.overlapping(key.epk, key.epk+"FF")
		}
	}
	if start, end := c.header.Get(headerStartEPK), c.header.Get(headerEndEPK); start != "" || end != "" {
		s.ranges = coll.overlapping(start, end)
	}
	if id := c.header.Get(headerRangeID); id != "" {
		if err := s.pin(id); err != nil {
			return nil, err
		}
	}
	c.scope = s
	return s, nil
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

func (c *container) overlapping(from, to string) []*keyRange {
	var found []*keyRange
	for _, g := range c.ranges {
		if (to == "" || g.min < to) && (g.max == "FF" || from < g.max) {
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

// readRanges answers the partition key range feed. With A-IM it is a change feed: pages until 304, each page's etag asks for the
// next. Etags mean something in the region that gave them only; elsewhere the feed starts again.
func (a *Account) readRanges(c *call, at *region) (*reply, error) {
	coll := a.store.container(c.database, c.container)
	if coll == nil {
		return nil, notFound()
	}
	now := time.Now()
	shown := slices.DeleteFunc(slices.Clone(coll.ranges), func(g *keyRange) bool { return g.published == 0 })
	next := len(shown)
	if c.header.Get("A-IM") != "" {
		since, offset := 0, 0
		if etag := c.header.Get("If-None-Match"); etag != "" {
			since, offset = parseRangesETag(etag, at.number)
		}
		if offset < 0 { // the end of an older walk: only what changed since
			shown = slices.DeleteFunc(shown, func(g *keyRange) bool { return g.published <= since })
			offset = 0
		}
		if offset >= len(shown) {
			return newReply(http.StatusNotModified, nil).charge(1).set("ETag", rangesETag(at.number, coll.rangesVersion, -1)), nil
		}
		next = len(shown)
		if coll.rangesPage > 0 {
			next = min(next, offset+coll.rangesPage)
		}
		position := next
		if next == len(shown) {
			position = -1
		}
		r := coll.rangesPageOf(shown[offset:next], now)
		return r.set("ETag", rangesETag(at.number, coll.rangesVersion, position)), nil
	}
	return coll.rangesPageOf(shown, now).set("ETag", rangesETag(at.number, coll.rangesVersion, -1)), nil
}

func (c *container) rangesPageOf(ranges []*keyRange, now time.Time) *reply {
	list := make([]map[string]any, 0, len(ranges))
	for i, g := range ranges {
		parents := g.parents
		if parents == nil {
			parents = []string{}
		}
		status := "online"
		if g.locked {
			status = "splitting"
		}
		rid := newRID(c.rid, 8, uint64(i)|0x50<<56)
		list = append(list, resource(map[string]any{
			"id": g.id, "minInclusive": g.min, "maxExclusive": g.max, "ridPrefix": i, "throughputFraction": 1 / float64(len(c.ranges)),
			"status": status, "parents": parents, "ownedArchivalPKRangeIds": []string{}, "lsn": g.lsn,
		}, rid, c.self()+"pkranges/"+rid+"/", fmt.Sprintf("\"range-%s-%d\"", g.id, g.published), now))
	}
	body := encode(map[string]any{"_rid": c.rid, "PartitionKeyRanges": list, "_count": len(list)})
	return newReply(http.StatusOK, body).charge(2).set(headerItemCount, strconv.Itoa(len(list)))
}

// rangesETag is "region.version.offset"; offset -1 = the walk is finished.
func rangesETag(region, version, offset int) string {
	return fmt.Sprintf("\"%d.%d.%d\"", region, version, offset)
}

func parseRangesETag(etag string, region int) (version, offset int) {
	var number int
	if n, _ := fmt.Sscanf(strings.Trim(etag, `"`), "%d.%d.%d", &number, &version, &offset); n != 3 || number != region {
		return 0, 0
	}
	return version, offset
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
