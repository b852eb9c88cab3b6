package cosmostest

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/reroute-go/reroute/partitions"
)

// store is what the account holds. Account.mu guards all of it.
type store struct {
	databases map[string]*database // by id
	created   uint32               // databases ever made: part of resource ids, so a re-created one is told apart
	offers    uint32
}

type database struct {
	id, rid, etag string
	changed       time.Time
	containers    map[string]*container // by id
	created       uint32
	offer         *offer
}

// container holds items and the ranges they fall into. One LSN counter serves all ranges, so a split or merge renumbers nothing.
type container struct {
	db            *database
	id, rid, etag string
	changed       time.Time
	properties    map[string]any // as the client wrote them
	paths         []string       // of the partition key
	kind          string
	keyVersion    int
	offer         *offer

	ranges        []*keyRange // those that own keys, in order
	retired       map[string]*keyRange
	rangesMade    int
	rangesVersion int // +1 for every published change
	rangesPage    int // ranges a feed page holds, 0 = all

	lsn     int64
	items   map[itemKey]*item
	order   []*item // by seq
	scripts map[string]map[string]*script
}

// itemKey identifies an item: an id is unique within one partition key only.
type itemKey struct{ key, id string }

// item is the history of one id. Versions that every region has passed are dropped.
type item struct {
	itemKey
	epk      partitions.Key
	seq      int64 // order of first creation: the order of feeds and queries
	rid      string
	versions []*version
}

// version is one committed state of an item.
type version struct {
	lsn     int64
	origin  string // key of the region that took the write
	etag    string
	doc     map[string]any // never changed once stored
	body    []byte
	changed time.Time
	deleted bool
}

func (s *store) database(id string) *database {
	if db := s.databases[id]; db != nil {
		return db
	}
	for _, db := range s.databases {
		if sameRID(db.rid, id) {
			return db
		}
	}
	return nil
}

func (s *store) container(db, coll string) *container {
	d := s.database(db)
	if d == nil {
		return nil
	}
	if c := d.containers[coll]; c != nil {
		return c
	}
	for _, c := range d.containers {
		if sameRID(c.rid, coll) {
			return c
		}
	}
	return nil
}

// sameRID compares resource ids; in a path a dash stands for the slash of base64.
func sameRID(rid, segment string) bool { return rid == strings.ReplaceAll(segment, "-", "/") }

// newRID appends a number to the resource id of the owner. Owners have 4 (database) or 8 (container) bytes.
func newRID(owner string, width int, n uint64) string {
	b, _ := base64.StdEncoding.DecodeString(owner)
	if width == 8 {
		b = binary.LittleEndian.AppendUint64(b, n)
	} else {
		b = binary.BigEndian.AppendUint32(b, uint32(n))
	}
	return base64.StdEncoding.EncodeToString(b)
}

func newETag(kind string, n uint64, at time.Time) string {
	return fmt.Sprintf("\"%s-%08x-%016x\"", kind, n, uint64(at.UnixNano()))
}

// resource is the system part of the JSON of databases, containers and scripts.
func resource(into map[string]any, rid, self, etag string, changed time.Time) map[string]any {
	into["_rid"], into["_self"], into["_etag"], into["_ts"] = rid, self, etag, changed.Unix()
	return into
}

func (d *database) self() string { return "dbs/" + d.rid + "/" }

func (d *database) document() map[string]any {
	doc := resource(map[string]any{"id": d.id}, d.rid, d.self(), d.etag, d.changed)
	doc["_colls"], doc["_users"] = "colls/", "users/"
	return doc
}

func (c *container) self() string { return c.db.self() + "colls/" + c.rid + "/" }

func (c *container) document() map[string]any {
	doc := map[string]any{}
	for name, v := range c.properties {
		doc[name] = v
	}
	if doc["indexingPolicy"] == nil {
		doc["indexingPolicy"] = map[string]any{"indexingMode": "consistent", "automatic": true}
	}
	resource(doc, c.rid, c.self(), c.etag, c.changed)
	doc["_docs"], doc["_sprocs"], doc["_triggers"], doc["_udfs"], doc["_conflicts"] = "docs/", "sprocs/", "triggers/", "udfs/", "conflicts/"
	return doc
}

// visible is the newest state of an item that a region knows; nil when it knows none or a deletion.
func (a *Account) visible(it *item, g *keyRange, at *region, now time.Time) *version {
	if it == nil {
		return nil
	}
	seen := a.advance(g, at, now)
	for _, v := range slices.Backward(it.versions) {
		if v.lsn <= seen || v.origin == at.key {
			if v.deleted {
				return nil
			}
			return v
		}
	}
	return nil
}

// prune drops versions that no region can see any more.
func (a *Account) prune(it *item, g *keyRange, now time.Time) {
	if len(it.versions) < 16 {
		return
	}
	everywhere := g.lsn
	for _, r := range a.regions {
		everywhere = min(everywhere, a.advance(g, r, now))
	}
	for i, v := range slices.Backward(it.versions) {
		if v.lsn <= everywhere {
			it.versions = slices.Delete(it.versions, 0, i)
			return
		}
	}
}

// Item is one stored document.
type Item struct {
	ID           string          // its "id"
	PartitionKey string          // JSON array, as in x-ms-documentdb-partitionkey
	Body         json.RawMessage // the document with its system properties, a copy
	ETag         string          // of this version, quotes included
	LSN          int64           // of the write that made this version, counted per partition key range
}

// Items returns what the write region (in multi-write accounts the first region) holds, in the order of creation.
// It returns nil for a container that does not exist.
func (a *Account) Items(db, coll string) []Item {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.itemsAt(db, coll, nil)
}

// ItemsIn returns what a region holds at this moment, replication lag included. It panics on an unknown region.
func (a *Account) ItemsIn(region, db, coll string) []Item {
	at := a.mustRegion(region)
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.itemsAt(db, coll, at)
}

// itemsAt lists the items region at knows; nil = the write region of each range.
func (a *Account) itemsAt(db, coll string, at *region) []Item {
	c := a.store.container(db, coll)
	if c == nil {
		return nil
	}
	now := time.Now()
	var found []Item
	for _, it := range c.order {
		g := c.rangeOf(it.epk)
		viewer := at
		if viewer == nil {
			viewer = a.writer(g)
		}
		if v := a.visible(it, g, viewer, now); v != nil {
			found = append(found, Item{ID: it.id, PartitionKey: it.key, Body: slices.Clone(v.body), ETag: v.etag, LSN: v.lsn})
		}
	}
	return found
}
