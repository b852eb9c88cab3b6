package cosmostest

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/reroute-go/reroute/partitions"
)

// maxItem is the largest request body of an item, in bytes.
const maxItem = 2 << 20

// itemOp is one operation on one item, alone or in a batch.
type itemOp struct {
	kind        Operation
	id          string
	body        []byte
	ifMatch     string
	ifNoneMatch string
	minimal     bool // leave the body out of a write's answer
}

// itemResult is what an itemOp did.
type itemResult struct {
	status int
	etag   string
	body   []byte
	charge float64
}

// transaction runs item operations of one range in one region and commits them together, or not at all.
type transaction struct {
	account   *Account
	container *container
	keyRange  *keyRange
	at        *region
	now       time.Time
	lsn       int64
	staged    map[itemKey]*version
	epks      map[itemKey]partitions.Key
	touched   []itemKey
}

func (a *Account) begin(c *container, g *keyRange, at *region, now time.Time) *transaction {
	return &transaction{account: a, container: c, keyRange: g, at: at, now: now, lsn: c.lsn + 1,
		staged: map[itemKey]*version{}, epks: map[itemKey]partitions.Key{}}
}

// get is the state of an item as this transaction sees it, nil when there is none.
func (t *transaction) get(k itemKey) *version {
	if v, ok := t.staged[k]; ok {
		if v.deleted {
			return nil
		}
		return v
	}
	return t.account.visible(t.container.items[k], t.keyRange, t.at, t.now)
}

func (t *transaction) stage(k itemKey, key *partitionKey, v *version) {
	if _, again := t.staged[k]; !again {
		t.touched = append(t.touched, k)
	}
	v.lsn, v.origin, v.changed = t.lsn, t.at.key, t.now
	t.staged[k], t.epks[k] = v, key.span.Min
}

// put stages a new state of an item.
func (t *transaction) put(k itemKey, key *partitionKey, doc map[string]any) *version {
	rid, etag := t.ridOf(k), newETag("item", uint64(t.lsn)<<8|uint64(len(t.touched)), t.now)
	resource(doc, rid, t.container.self()+"docs/"+rid+"/", etag, t.now)
	doc["_attachments"] = "attachments/"
	v := &version{etag: etag, doc: doc, body: encode(doc)}
	t.stage(k, key, v)
	return v
}

func (t *transaction) ridOf(k itemKey) string {
	if it := t.container.items[k]; it != nil {
		return it.rid
	}
	if v := t.staged[k]; v != nil && !v.deleted {
		return v.doc["_rid"].(string)
	}
	return newRID(t.container.rid, 8, uint64(len(t.container.order)+len(t.touched)+1))
}

// commit makes what was staged part of the container and reports whether there was anything.
func (t *transaction) commit() bool {
	if len(t.touched) == 0 {
		return false
	}
	c := t.container
	c.lsn = t.lsn
	t.account.append(t.keyRange, t.lsn, t.at, t.now)
	for _, k := range t.touched {
		it := c.items[k]
		if it == nil {
			it = &item{itemKey: k, epk: t.epks[k], seq: int64(len(c.order) + 1), rid: t.ridOf(k)}
			c.items[k] = it
			c.order = append(c.order, it)
		}
		it.versions = append(it.versions, t.staged[k])
		t.account.prune(it, t.keyRange, t.now)
	}
	return true
}

// run performs one operation. A failed operation stages nothing.
func (t *transaction) run(op itemOp, key *partitionKey) (itemResult, error) {
	switch op.kind {
	case CreateItem, UpsertItem:
		return t.create(op, key)
	case ReadItem:
		v := t.get(itemKey{key.text, op.id})
		if v == nil {
			return itemResult{}, notFound()
		}
		if op.ifNoneMatch != "" && etagIn(op.ifNoneMatch, v.etag) {
			return itemResult{status: http.StatusNotModified, etag: v.etag, charge: 1}, nil
		}
		return itemResult{status: http.StatusOK, etag: v.etag, body: v.body, charge: 1}, nil
	case DeleteItem:
		k := itemKey{key.text, op.id}
		if _, err := t.existing(k, op); err != nil {
			return itemResult{}, err
		}
		t.stage(k, key, &version{deleted: true})
		return itemResult{status: http.StatusNoContent, charge: 5.71}, nil
	case ReplaceItem:
		return t.replace(op, key)
	case PatchItem:
		return t.patch(op, key)
	}
	return itemResult{}, badRequest("Operation type '%s' is not supported.", op.kind)
}

// existing finds the item a write needs and checks If-Match.
func (t *transaction) existing(k itemKey, op itemOp) (*version, error) {
	v := t.get(k)
	if v == nil {
		return nil, notFound()
	}
	if op.ifMatch != "" && !etagIn(op.ifMatch, v.etag) {
		return nil, preconditionFailed()
	}
	return v, nil
}

func (t *transaction) create(op itemOp, key *partitionKey) (itemResult, error) {
	doc, id, err := t.document(op, key)
	if err != nil {
		return itemResult{}, err
	}
	k := itemKey{key.text, id}
	old := t.get(k)
	switch {
	case op.kind == CreateItem && old != nil:
		return itemResult{}, conflict()
	case op.ifMatch != "" && (old == nil || !etagIn(op.ifMatch, old.etag)):
		return itemResult{}, preconditionFailed()
	case op.ifNoneMatch != "" && old != nil && etagIn(op.ifNoneMatch, old.etag):
		return itemResult{}, preconditionFailed()
	}
	status := http.StatusCreated
	if old != nil {
		status = http.StatusOK
	}
	return written(status, t.put(k, key, doc), op), nil
}

func (t *transaction) replace(op itemOp, key *partitionKey) (itemResult, error) {
	doc, id, err := t.document(op, key)
	if err != nil {
		return itemResult{}, err
	}
	k := itemKey{key.text, op.id}
	if _, err := t.existing(k, op); err != nil {
		return itemResult{}, err
	}
	if id != op.id {
		return itemResult{}, badRequest("The id in the body, %q, is not the id of the resource.", id)
	}
	return written(http.StatusOK, t.put(k, key, doc), op), nil
}

func (t *transaction) patch(op itemOp, key *partitionKey) (itemResult, error) {
	k := itemKey{key.text, op.id}
	old, err := t.existing(k, op)
	if err != nil {
		return itemResult{}, err
	}
	doc, err := applyPatch(op.body, old)
	if err != nil {
		return itemResult{}, err
	}
	if doc["id"] != op.id || t.container.mustMatch(doc, key) != nil {
		return itemResult{}, badRequest("A patch cannot change the id or the partition key.")
	}
	return written(http.StatusOK, t.put(k, key, doc), op), nil
}

func written(status int, v *version, op itemOp) itemResult {
	r := itemResult{status: status, etag: v.etag, body: v.body, charge: 6.29}
	if op.minimal {
		r.body = nil
	}
	return r
}

// document reads the body of a write.
func (t *transaction) document(op itemOp, key *partitionKey) (map[string]any, string, error) {
	if len(op.body) > maxItem {
		return nil, "", tooLarge()
	}
	doc, err := decodeDoc(op.body)
	if err != nil {
		return nil, "", err
	}
	id, ok := doc["id"].(string)
	if !ok || id == "" || len(id) > 1023 {
		return nil, "", badRequest("The required property 'id' is missing or no string of 1 to 1023 bytes.")
	}
	return doc, id, t.container.mustMatch(doc, key)
}

// etagIn reports whether an If-Match or If-None-Match value names an etag. Quotes are optional, as in the service.
func etagIn(header, etag string) bool {
	return header == "*" || strings.Trim(header, `"`) == strings.Trim(etag, `"`)
}

// itemRequest serves the single-item operations.
func (a *Account) itemRequest(c *call, at *region, now time.Time) (*reply, error) {
	s, err := a.scope(c)
	if err != nil {
		return nil, err
	}
	if s.key == nil || !s.key.complete {
		return nil, badRequest("PartitionKey supplied in x-ms-documentdb-partitionkey header has fewer components than defined in the collection.")
	}
	g := s.ranges[0]
	if err := a.admit(c, g, at, now); err != nil {
		return nil, err
	}
	t := a.begin(s.container, g, at, now)
	result, err := t.run(itemOp{
		kind: c.operation, id: c.id, body: c.body,
		ifMatch: c.header.Get("If-Match"), ifNoneMatch: c.header.Get("If-None-Match"),
		minimal: strings.EqualFold(c.header.Get("Prefer"), "return=minimal"),
	}, s.key)
	c.applied = err == nil && t.commit()
	if err != nil {
		return nil, err
	}
	return newReply(result.status, result.body).charge(result.charge).set("ETag", result.etag), nil
}

// deletePartition serves the deletion of all items of a partition key.
func (a *Account) deletePartition(c *call, at *region, now time.Time) (*reply, error) {
	s, err := a.scope(c)
	if err != nil {
		return nil, err
	}
	if s.key == nil || !s.key.complete {
		return nil, badRequest("The partition key header is missing.")
	}
	if err := a.admit(c, s.ranges[0], at, now); err != nil {
		return nil, err
	}
	t := a.begin(s.container, s.ranges[0], at, now)
	for _, it := range s.container.order {
		if it.key == s.key.text && t.get(it.itemKey) != nil {
			t.stage(it.itemKey, s.key, &version{deleted: true})
		}
	}
	c.applied = t.commit()
	return newReply(http.StatusOK, nil).charge(5.71), nil
}

// admit decides whether a range is served here and now: moves under way, who may write, and whether the reader's session is there.
func (a *Account) admit(c *call, g *keyRange, at *region, now time.Time) error {
	if c.operation.isDataWrite() && !a.takesWrites(c.header, g, at) || isTrue(c.header, headerHubOnly) && a.writer(g) != at {
		return writeForbidden()
	}
	if g.locked {
		return completingSplit()
	}
	if c.operation.isDataRead() {
		return a.checkSession(c.header.Get(headerSession), g, at, now)
	}
	return nil
}

// takesWrites reports whether a region accepts a write to a range.
func (a *Account) takesWrites(h http.Header, g *keyRange, at *region) bool {
	return a.writer(g) == at || a.multiWrite && isTrue(h, headerTentative)
}

func writeForbidden() error {
	return &apiError{status: http.StatusForbidden, substatus: 3, message: "The requested operation cannot be performed at this region."}
}

// itemsIn lists the items of a scope that a region knows, with their current versions, in order of creation.
func (a *Account) itemsIn(s *scope, at *region, now time.Time) []*version {
	var found []*version
	for _, it := range s.container.order {
		if !s.covers(it) {
			continue
		}
		if v := a.visible(it, s.container.rangeOf(it.epk), at, now); v != nil {
			found = append(found, v)
		}
	}
	return found
}

// String makes failures in tests readable.
func (i Item) String() string { return fmt.Sprintf("%s%s %s", i.PartitionKey, i.ID, i.Body) }
