package cosmostest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// sorted lists the values of a map in the order of their ids.
func sorted[V any](m map[string]V) []V {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, cmp.Compare[string])
	list := make([]V, len(keys))
	for i, k := range keys {
		list[i] = m[k]
	}
	return list
}

// databaseRequest serves /dbs and /dbs/{id}.
func (a *Account) databaseRequest(c *call, now time.Time) (*reply, error) {
	switch c.operation {
	case ListDatabases, QueryDatabases:
		var docs []map[string]any
		for _, db := range sorted(a.store.databases) {
			docs = append(docs, db.document())
		}
		return listOf(c, "", "Databases", docs)
	case CreateDatabase:
		properties, err := decodeDoc(c.body)
		if err != nil {
			return nil, err
		}
		id, _ := properties["id"].(string)
		if id == "" {
			return nil, badRequest("The database has no id.")
		}
		if a.store.databases[id] != nil {
			return nil, conflict()
		}
		db := a.newDatabase(id, now)
		if err := a.offerFrom(c.header, &db.offer, db.rid, db.self()); err != nil {
			return nil, err
		}
		a.store.databases[id] = db
		c.applied = true
		return newReply(http.StatusCreated, encode(db.document())).charge(4.95).set("ETag", db.etag), nil
	}
	db := a.store.database(c.database)
	if db == nil {
		return nil, notFound()
	}
	if c.operation == DeleteDatabase {
		delete(a.store.databases, db.id)
		c.applied = true
		return newReply(http.StatusNoContent, nil).charge(4.95), nil
	}
	return newReply(http.StatusOK, encode(db.document())).charge(1).set("ETag", db.etag), nil
}

func (a *Account) newDatabase(id string, now time.Time) *database {
	a.store.created++
	return &database{id: id, rid: newRID("", 4, uint64(a.store.created)<<16|0x1), etag: newETag("db", uint64(a.store.created), now),
		changed: now, containers: map[string]*container{}}
}

// containerRequest serves /dbs/{id}/colls and below it each container.
func (a *Account) containerRequest(c *call, now time.Time) (*reply, error) {
	db := a.store.database(c.database)
	if db == nil {
		return nil, notFound()
	}
	switch c.operation {
	case ListContainers, QueryContainers:
		var docs []map[string]any
		for _, coll := range sorted(db.containers) {
			docs = append(docs, coll.document())
		}
		return listOf(c, db.rid, "DocumentCollections", docs)
	case CreateContainer:
		properties, err := decodeDoc(c.body)
		if err != nil {
			return nil, err
		}
		id, _ := properties["id"].(string)
		if id != "" && db.containers[id] != nil {
			return nil, conflict()
		}
		coll, err := a.newContainer(db, properties, 0, now)
		if err != nil {
			return nil, err
		}
		if err := a.offerFrom(c.header, &coll.offer, coll.rid, coll.self()); err != nil {
			return nil, err
		}
		db.containers[coll.id] = coll
		c.applied = true
		return newReply(http.StatusCreated, encode(coll.document())).charge(4.95).set("ETag", coll.etag), nil
	}
	coll := a.store.container(c.database, c.container)
	if coll == nil {
		return nil, notFound()
	}
	switch c.operation {
	case DeleteContainer:
		delete(db.containers, coll.id)
		c.applied = true
		return newReply(http.StatusNoContent, nil).charge(4.95), nil
	case ReplaceContainer:
		return a.replaceContainer(c, coll, now)
	}
	return newReply(http.StatusOK, encode(coll.document())).charge(1).set("ETag", coll.etag), nil
}

// newContainer makes a container with its ranges, not yet part of the database. ranges 0 = Config.Ranges.
func (a *Account) newContainer(db *database, properties map[string]any, ranges int, now time.Time) (*container, error) {
	id, _ := properties["id"].(string)
	if id == "" {
		return nil, badRequest("The container has no id.")
	}
	db.created++
	c := &container{db: db, id: id, rid: newRID(db.rid, 4, uint64(db.created)|0x80<<24), etag: newETag("coll", uint64(db.created), now), changed: now,
		retired: map[string]*keyRange{}, items: map[itemKey]*item{}, scripts: map[string]map[string]*script{}}
	if err := c.readDefinition(properties); err != nil {
		return nil, err
	}
	c.properties = withoutSystem(properties)
	if ranges == 0 {
		ranges = a.cfg.Ranges
	}
	c.makeRanges(ranges)
	return c, nil
}

// replaceContainer changes the settings of a container; its id and partition key stay.
func (a *Account) replaceContainer(c *call, coll *container, now time.Time) (*reply, error) {
	if match := c.header.Get("If-Match"); match != "" && !etagIn(match, coll.etag) {
		return nil, preconditionFailed()
	}
	properties, err := decodeDoc(c.body)
	if err != nil {
		return nil, err
	}
	var probe container
	if err := probe.readDefinition(properties); err != nil {
		return nil, err
	}
	if properties["id"] != coll.id || !slices.Equal(probe.paths, coll.paths) {
		return nil, badRequest("The id and partition key of a container cannot change.")
	}
	a.made++
	coll.properties, coll.etag, coll.changed = withoutSystem(properties), newETag("coll", a.made, now), now
	c.applied = true
	return newReply(http.StatusOK, encode(coll.document())).charge(4.95).set("ETag", coll.etag), nil
}

// withoutSystem drops what clients send back of an earlier answer.
func withoutSystem(properties map[string]any) map[string]any {
	kept := map[string]any{}
	for name, v := range properties {
		switch name {
		case "_rid", "_self", "_etag", "_ts", "_docs", "_sprocs", "_triggers", "_udfs", "_conflicts", "_colls", "_users":
		default:
			kept[name] = v
		}
	}
	return kept
}

// listOf answers a feed or a query over small resources.
func listOf(c *call, rid, name string, docs []map[string]any) (*reply, error) {
	q := &query{top: -1}
	if c.isQuery() {
		var err error
		if q, err = parseQuery(c.body); err != nil {
			return nil, err
		}
	}
	p := &page{}
	for _, doc := range docs {
		body := encode(doc)
		read, err := decodeDoc(body) // as a client sees it: numbers and all
		if err != nil {
			return nil, err
		}
		if row, ok := q.project(&version{doc: read, body: body}); ok && q.holds(read) && (q.top < 0 || len(p.rows) < q.top) {
			p.rows = append(p.rows, row)
		}
	}
	if q.count {
		p.rows = []json.RawMessage{encode(len(p.rows))}
	}
	return p.reply(rid, name), nil
}

// offer is the throughput of a database or container.
type offer struct {
	id, target, link, etag string
	content                map[string]any
}

// offerFrom reads the throughput headers of a create; containers and databases without one have no offer.
func (a *Account) offerFrom(h http.Header, into **offer, rid, link string) error {
	content := map[string]any{}
	if text := h.Get(headerThroughput); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return badRequest("The throughput %q is no number above 0.", text)
		}
		content["offerThroughput"] = n
	}
	if text := h.Get(headerAutopilot); text != "" {
		settings, err := decodeDoc([]byte(text))
		if err != nil {
			return err
		}
		content["offerAutopilotSettings"] = settings
	}
	if len(content) == 0 {
		return nil
	}
	a.store.offers++
	id := fmt.Sprintf("of%02x", a.store.offers)
	*into = &offer{id: id, target: rid, link: link, etag: newETag("offer", uint64(a.store.offers), time.Now()), content: content}
	return nil
}

func (o *offer) document() map[string]any {
	return resource(map[string]any{"id": o.id, "offerVersion": "V2", "offerType": "Invalid", "resource": o.link, "offerResourceId": o.target,
		"content": o.content}, o.id, "offers/"+o.id+"/", o.etag, time.Unix(0, 0))
}

// offerRequest serves /offers.
func (a *Account) offerRequest(c *call) (*reply, error) {
	var docs []map[string]any
	for _, db := range sorted(a.store.databases) {
		all := []*offer{db.offer}
		for _, coll := range sorted(db.containers) {
			all = append(all, coll.offer)
		}
		for _, o := range all {
			switch {
			case o == nil:
			case c.operation == ListOffers:
				docs = append(docs, o.document())
			case o.id == c.id:
				return o.serve(c)
			}
		}
	}
	if c.operation == ListOffers {
		return listOf(c, "", "Offers", docs)
	}
	return nil, notFound()
}

func (o *offer) serve(c *call) (*reply, error) {
	if c.operation == ReplaceOffer {
		doc, err := decodeDoc(c.body)
		if err != nil {
			return nil, err
		}
		content, ok := doc["content"].(map[string]any)
		if !ok {
			return nil, badRequest("The offer has no content.")
		}
		o.content, c.applied = content, true
	}
	return newReply(http.StatusOK, encode(o.document())).charge(1).set("ETag", o.etag), nil
}
