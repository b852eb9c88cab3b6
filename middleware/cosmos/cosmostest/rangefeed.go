package cosmostest

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// readRanges answers the partition key range feed. With A-IM it is a change feed: pages until 304, each page's etag asks for the
// next. Etags mean something in the region that gave them only; elsewhere the feed starts again.
func (a *Account) readRanges(c *call, at *region) (*reply, error) {
	coll := a.store.container(c.database, c.container)
	if coll == nil {
		return nil, notFound()
	}
	now := time.Now()
	walk := rangesWalk{region: at.number}
	incremental := c.header.Get("A-IM") != ""
	if etag := c.header.Get("If-None-Match"); etag != "" && incremental {
		walk = parseRangesWalk(etag, at.number)
	}
	if walk.offset < 0 { // an earlier walk has ended: only what changed after it
		walk.since, walk.offset = walk.version, 0
	}
	if walk.version != coll.rangesVersion { // changed under the walk
		walk.version, walk.offset = coll.rangesVersion, 0
	}
	shown := slices.DeleteFunc(slices.Clone(coll.ranges), func(g *keyRange) bool { return g.published == 0 || g.published <= walk.since })
	if incremental && walk.offset >= len(shown) {
		walk.offset = -1
		return newReply(http.StatusNotModified, nil).charge(1).set("ETag", walk.String()), nil
	}
	first, end := walk.offset, len(shown)
	if incremental && coll.rangesPage > 0 {
		end = min(end, first+coll.rangesPage)
	}
	if walk.offset = end; end == len(shown) {
		walk.offset = -1
	}
	return coll.rangesReply(shown[first:end], now).set("ETag", walk.String()), nil
}

func (c *container) rangesReply(ranges []*keyRange, now time.Time) *reply {
	list := make([]map[string]any, 0, len(ranges))
	for i, g := range ranges {
		status := "online"
		if g.locked {
			status = "splitting"
		}
		rid := newRID(c.rid, 8, uint64(i)|0x50<<56)
		list = append(list, resource(map[string]any{
			"id": g.id, "minInclusive": g.texts[0], "maxExclusive": g.texts[1], "ridPrefix": i, "throughputFraction": 1 / float64(len(c.ranges)),
			"status": status, "parents": slices.Concat([]string{}, g.parents), "ownedArchivalPKRangeIds": []string{}, "lsn": g.lsn,
		}, rid, c.self()+"pkranges/"+rid+"/", fmt.Sprintf("\"range-%s-%d\"", g.id, g.published), now))
	}
	body := encode(map[string]any{"_rid": c.rid, "PartitionKeyRanges": list, "_count": len(list)})
	return newReply(http.StatusOK, body).charge(2).set(headerItemCount, strconv.Itoa(len(list)))
}

// rangesWalk is the position of a walk over the feed, as its etags carry it.
type rangesWalk struct {
	region  int
	since   int // shows only ranges published after this version
	version int // the version the walk is over
	offset  int // where the next page starts, -1 = the walk has ended
}

func (w rangesWalk) String() string {
	return fmt.Sprintf("\"%d.%d.%d.%d\"", w.region, w.since, w.version, w.offset)
}

// parseRangesWalk reads an etag; one of another region, or junk, is the beginning.
func parseRangesWalk(etag string, region int) rangesWalk {
	var w rangesWalk
	n, _ := fmt.Sscanf(strings.Trim(etag, `"`), "%d.%d.%d.%d", &w.region, &w.since, &w.version, &w.offset)
	if n != 4 || w.region != region {
		return rangesWalk{region: region}
	}
	return w
}

// SetRangePageSize sets how many ranges a page of the incremental range feed of a container holds; 0 = all (default).
// It panics on an unknown container.
func (a *Account) SetRangePageSize(db, coll string, n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mustContainer(db, coll).rangesPage = max(0, n)
}
