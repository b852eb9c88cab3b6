package storm

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"

	"github.com/reroute-go/reroute/idempotency"
)

// act is what one client does: one operation, or a few that belong together.
func (w *cosmosWorld) act(number uint64, r *rand.Rand) {
	c := &cosmosClient{cosmosWorld: w, number: number, r: r, key: min(r.IntN(keys), r.IntN(keys))} // some keys are hot
	switch n := r.IntN(100); {
	case n < 24:
		c.read()
	case n < 28:
		c.query()
	case n < 30:
		c.feed()
	case n < 32:
		c.changes()
	case n < 46:
		c.create()
	case n < 54:
		c.upsert()
	case n < 60:
		c.remove()
	case n < 67:
		c.patch()
	case n < 72:
		c.add()
	case n < 82:
		c.swap()
	case n < 94:
		c.call()
	default:
		c.batch()
	}
}

type cosmosClient struct {
	*cosmosWorld
	number uint64
	step   uint64
	r      *rand.Rand
	key    int
}

func (c *cosmosClient) own(what string) string { return fmt.Sprintf("%s-%d", what, c.number) }
func (c *cosmosClient) hot(what string) string { return fmt.Sprintf("%s-%d", what, c.key) }

// do sends one request on the client's partition key; headers are name, value pairs.
func (c *cosmosClient) do(name string, write bool, method, path, body string, headers ...string) (*operation, *result) {
	op := &operation{number: c.number*16 + c.step, name: name, write: write, most: c.most}
	c.step++
	op.limits(c.r)
	if c.r.IntN(5) == 0 {
		for _, i := range c.r.Perm(len(c.regions))[:1+c.r.IntN(len(c.regions))] {
			op.excluded = append(op.excluded, c.regions[i])
		}
	}
	streamed := c.r.IntN(4) == 0
	r := c.send(c.rt, op, func(ctx context.Context) *http.Request {
		return c.request(ctx, op, c.key, method, path, body, streamed, headers...)
	})
	if r.status == http.StatusBadRequest || r.status == http.StatusUnauthorized {
		c.breakIn(op, "the service does not understand it: %s", r.body)
	}
	return op, r
}

func (w *cosmosWorld) request(ctx context.Context, op *operation, key int, method, path, body string, streamed bool, headers ...string) *http.Request {
	var reader io.Reader
	switch {
	case body != "" && streamed:
		reader = onlyOf(body)
	case body != "":
		reader = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(excluding(ctx, op.excluded), method, w.Endpoint()+path, reader)
	w.must(err)
	req.Header.Set("X-Ms-Documentdb-Partitionkey", fmt.Sprintf(`["p%d"]`, key))
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	w.Sign(req)
	return req
}

func document(id string, key int, more string) string {
	return fmt.Sprintf(`{"id":%q,"pk":"p%d"%s}`, id, key, more)
}

// prepare stores what all clients share, before anything is wrong.
func (w *cosmosWorld) prepare() {
	for key := range keys {
		for what, more := range map[string]string{"base": "", "patched": "", "sum": `,"sum":0`, "log": `,"log":[]`} {
			op := &operation{name: "create", most: w.most}
			r := w.send(w.rt, op, func(ctx context.Context) *http.Request {
				return w.request(ctx, op, key, http.MethodPost, items, document(fmt.Sprintf("%s-%d", what, key), key, more), false)
			})
			if r.status != http.StatusCreated {
				w.breakIn(op, "nothing can be stored before the storm")
			}
		}
	}
}

func (c *cosmosClient) read() {
	op, r := c.do("read", false, http.MethodGet, items+"/"+c.hot("base"), "")
	if r.status == http.StatusNotFound && r.header.Get("X-Ms-Substatus") == "" {
		c.breakIn(op, "an item that was always there is not found")
	}
}

func (c *cosmosClient) query() {
	c.do("query", false, http.MethodPost, items, fmt.Sprintf(`{"query":"SELECT * FROM c WHERE c.id = '%s'"}`, c.hot("base")),
		"Content-Type", "application/query+json", "X-Ms-Documentdb-Isquery", "True")
}

func (c *cosmosClient) feed() {
	c.do("read feed", false, http.MethodGet, items, "", "X-Ms-Max-Item-Count", "3")
}

func (c *cosmosClient) changes() {
	c.do("change feed", false, http.MethodGet, items, "", "A-Im", "Incremental feed", "X-Ms-Max-Item-Count", "3")
}

// create makes an item and, in the session of that write, reads it.
func (c *cosmosClient) create() {
	id := c.own("created")
	op, r := c.do("create", true, http.MethodPost, items, document(id, c.key, ""))
	c.stored(op, r, id)
	session := r.header.Get("X-Ms-Session-Token")
	if r.status != http.StatusCreated || session == "" || c.r.IntN(2) == 0 {
		return
	}
	op, r = c.do("read own write", false, http.MethodGet, items+"/"+id, "", "X-Ms-Session-Token", session)
	if r.status == http.StatusNotFound && r.header.Get("X-Ms-Substatus") == "" {
		c.breakIn(op, "a read in the session of a write does not see it")
	}
}

// stored claims an item that only this operation makes: it cannot be there
// before, so that a conflict is the echo of the operation's own write.
func (c *cosmosClient) stored(op *operation, r *result, id string) {
	conflict := r.status == http.StatusConflict
	if conflict && r.report.Echo != idempotency.Exists {
		c.breakIn(op, "a conflict, though nobody else makes %s", id)
	}
	c.claim(claim{op: op, kind: "item", id: id, acknowledged: r.succeeded() || conflict, refused: r.refused()})
}

func (c *cosmosClient) upsert() {
	id := c.own("upserted")
	op, r := c.do("upsert", true, http.MethodPost, items, document(id, c.key, ""), "X-Ms-Documentdb-Is-Upsert", "True")
	c.stored(op, r, id)
}

func (c *cosmosClient) batch() {
	id := c.own("batched")
	body := fmt.Sprintf(`[{"operationType":"Create","resourceBody":%s},{"operationType":"Read","id":%q}]`, document(id, c.key, ""), c.hot("base"))
	op, r := c.do("batch", true, http.MethodPost, items, body, "X-Ms-Cosmos-Is-Batch-Request", "True", "X-Ms-Cosmos-Batch-Atomic", "True")
	if r.status == http.StatusMultiStatus { // undone, unless it is the echo of its own create
		c.claim(claim{op: op, kind: "item", id: id, refused: !r.report.InDoubt})
		return
	}
	c.claim(claim{op: op, kind: "item", id: id, acknowledged: r.status == http.StatusOK && r.cut == nil, refused: r.refused()})
}

// remove makes an item and deletes it.
func (c *cosmosClient) remove() {
	id := c.own("removed")
	op, r := c.do("create", true, http.MethodPost, items, document(id, c.key, ""))
	if r.status != http.StatusCreated {
		c.stored(op, r, id)
		return
	}
	op, r = c.do("delete", true, http.MethodDelete, items+"/"+id, "")
	missing := r.status == http.StatusNotFound && r.header.Get("X-Ms-Substatus") == ""
	if missing && !c.lenient && r.report.Echo != idempotency.Missing {
		c.breakIn(op, "an acknowledged item is gone before it is deleted")
	}
	c.claim(claim{op: op, kind: gone, id: id, acknowledged: r.succeeded() || missing && !c.lenient, refused: r.refused() && !missing})
}

// patch adds a property of its own to an item that many patch.
func (c *cosmosClient) patch() {
	op, r := c.do("patch", true, http.MethodPatch, items+"/"+c.hot("patched"),
		fmt.Sprintf(`{"operations":[{"op":"set","path":"/n%d","value":1}]}`, c.number))
	c.claim(claim{op: op, kind: "property", id: c.hot("patched"), acknowledged: r.succeeded(), refused: r.refused()})
}

// add counts in an item. Patches are strict here: under the guard none runs twice.
func (c *cosmosClient) add() {
	op, r := c.do("increment", true, http.MethodPatch, items+"/"+c.hot("sum"), `{"operations":[{"op":"incr","path":"/sum","value":1}]}`)
	c.claim(claim{op: op, kind: "sum", id: c.hot("sum"), acknowledged: r.succeeded(), refused: r.refused()})
}

func (c *cosmosClient) call() {
	op, r := c.do("stored procedure", true, http.MethodPost, sproc, fmt.Sprintf(`["%d"]`, c.number))
	c.claim(claim{op: op, kind: "run", id: fmt.Sprintf(`"%d"`, c.number), acknowledged: r.succeeded(), refused: r.refused()})
}

// swap appends its number to the log of an item that many append to, by compare
// and swap.
func (c *cosmosClient) swap() {
	id := c.hot("log")
	for range 4 {
		_, r := c.do("read for swap", false, http.MethodGet, items+"/"+id, "")
		var doc struct{ Log []uint64 }
		if r.status != http.StatusOK || r.cut != nil || json.Unmarshal(r.body, &doc) != nil {
			return
		}
		log, err := json.Marshal(append(doc.Log, c.number))
		c.must(err)
		op, r := c.do("swap", true, http.MethodPut, items+"/"+id, document(id, c.key, fmt.Sprintf(`,"log":%s`, log)), "If-Match", r.header.Get("Etag"))
		lost := r.status == http.StatusPreconditionFailed
		if lost && r.report.Echo == idempotency.NoEcho {
			continue // another one was faster
		}
		c.claim(claim{op: op, kind: "entry", id: id, acknowledged: r.succeeded(), refused: r.refused()})
		return
	}
}
