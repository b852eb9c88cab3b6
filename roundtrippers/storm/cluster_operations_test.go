package storm

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/reroute-go/reroute/idempotency"
)

func hotKey(what string, key int) string { return fmt.Sprintf("%s-%d", what, key) }

// act is what one client does.
func (w *clusterWorld) act(number uint64, r *rand.Rand) {
	c := &clusterClient{clusterWorld: w, number: number, r: r, key: min(r.IntN(keys), r.IntN(keys))}
	switch n := r.IntN(100); {
	case n < 30:
		c.read()
	case n < 42:
		c.put()
	case n < 52:
		c.create()
	case n < 60:
		c.remove()
	case n < 75:
		c.run()
	case n < 85:
		c.add()
	default:
		c.swap()
	}
}

type clusterClient struct {
	*clusterWorld
	number uint64
	step   uint64
	r      *rand.Rand
	key    int
}

func (c *clusterClient) own(what string) string { return fmt.Sprintf("%s-of-%d", what, c.number) }

func (c *clusterClient) do(method, key, body string, headers ...string) (*operation, *result) {
	op := &operation{number: c.number*16 + c.step, name: method + " " + key, write: method != http.MethodGet, most: c.most}
	c.step++
	op.limits(c.r)
	streamed := c.r.IntN(4) == 0
	return op, c.send(c.rt, op, func(ctx context.Context) *http.Request {
		return c.request(ctx, method, key, body, streamed, headers...)
	})
}

func (w *clusterWorld) request(ctx context.Context, method, key, body string, streamed bool, headers ...string) *http.Request {
	var reader io.Reader
	switch {
	case body != "" && streamed:
		reader = onlyOf(body)
	case body != "":
		reader = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, w.URL(key), reader)
	w.must(err)
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	return req
}

func (w *clusterWorld) prepare() {
	for key := range keys {
		for what, value := range map[string]string{"base": "base", "sum": "0", "log": ","} {
			op := &operation{name: "prepare", most: w.most}
			r := w.send(w.rt, op, func(ctx context.Context) *http.Request {
				return w.request(ctx, http.MethodPut, hotKey(what, key), value, false)
			})
			if !r.succeeded() {
				w.breakIn(op, "nothing can be stored before the storm")
			}
		}
	}
}

func (c *clusterClient) read() {
	op, r := c.do(http.MethodGet, hotKey("base", c.key), "")
	if r.status == http.StatusNotFound || r.status == http.StatusOK && r.cut == nil && string(r.body) != "base" {
		c.breakIn(op, "what was always there reads %q", r.body)
	}
}

func (c *clusterClient) put() {
	op, r := c.do(http.MethodPut, c.own("put"), "value "+c.own("put"))
	c.claim(claim{op: op, kind: "value", id: c.own("put"), acknowledged: r.succeeded(), refused: r.refused()})
}

// create makes what nobody else makes.
func (c *clusterClient) create() {
	op, r := c.do(http.MethodPut, c.own("created"), "value "+c.own("created"), "If-None-Match", "*")
	exists := r.status == http.StatusPreconditionFailed
	if exists && r.report.Echo == idempotency.NoEcho {
		c.breakIn(op, "it exists, though nobody else makes it")
	}
	c.claim(claim{op: op, kind: "value", id: c.own("created"), acknowledged: r.succeeded() || exists, refused: r.refused()})
}

func (c *clusterClient) remove() {
	op, r := c.do(http.MethodPut, c.own("removed"), "value "+c.own("removed"))
	if !r.succeeded() {
		c.claim(claim{op: op, kind: "value", id: c.own("removed"), refused: r.refused()})
		return
	}
	op, r = c.do(http.MethodDelete, c.own("removed"), "")
	missing := r.status == http.StatusNotFound
	if missing && r.report.Echo == idempotency.NoEcho {
		c.breakIn(op, "an acknowledged value is gone before it is deleted")
	}
	c.claim(claim{op: op, kind: gone, id: c.own("removed"), acknowledged: r.succeeded() || missing, refused: r.refused()})
}

// run posts what must not be carried out twice.
func (c *clusterClient) run() {
	op, r := c.do(http.MethodPost, c.own("run"), "1")
	c.claim(claim{op: op, kind: "run", id: c.own("run"), acknowledged: r.succeeded(), refused: r.refused()})
}

func (c *clusterClient) add() {
	op, r := c.do(http.MethodPost, hotKey("sum", c.key), "1")
	c.claim(claim{op: op, kind: "sum", id: hotKey("sum", c.key), acknowledged: r.succeeded(), refused: r.refused()})
}

// swap appends its number to a log by compare and swap.
func (c *clusterClient) swap() {
	key := hotKey("log", c.key)
	for range 4 {
		_, r := c.do(http.MethodGet, key, "")
		if r.status != http.StatusOK || r.cut != nil {
			return
		}
		op, r := c.do(http.MethodPut, key, fmt.Sprintf("%s%d,", r.body, c.number), "If-Match", r.header.Get("Etag"))
		if r.status == http.StatusPreconditionFailed && r.report.Echo == idempotency.NoEcho {
			continue
		}
		c.claim(claim{op: op, kind: "entry", id: key, acknowledged: r.succeeded(), refused: r.refused()})
		return
	}
}

// heal ends everything that is wrong. There is no time to wait for: what a
// client finds out at once is that the map is old.
func (w *clusterWorld) heal() {
	w.sleepUntil(w.lasts)
	w.sleep(15 * time.Second) // what was begun ends
	w.SlowMap(0)
	w.StaleMap(0)
	w.FailMap(0, 0)
	for _, name := range w.Nodes() {
		w.must(w.Recover(name))
	}
	for i, s := range w.Map().Segments {
		if s.Owner == "" {
			w.MoveSegment(i, w.Nodes()[0])
		}
	}
	for key := range keys {
		for _, what := range []string{"base", "sum", "log"} {
			w.LoseAnswers(hotKey(what, key), 0)
		}
	}
	w.note("all is well again")
	w.sleep(10 * time.Second)
}

func (w *clusterWorld) check() {
	sums := sums{}
	for _, c := range w.claims {
		value, _, there := w.Value(c.id)
		n := 0
		switch number := c.op.number / 16; {
		case c.kind == "sum":
			sums.add(c)
			continue
		case c.kind == "run":
			n, _ = strconv.Atoi(value)
		case c.kind == "entry":
			n = strings.Count(value, fmt.Sprintf(",%d,", number))
		case there:
			n = 1
			if want := "value " + c.id; value != want {
				w.breakIn(c.op, "%q was stored, not %q", value, want)
			}
		}
		w.settle(c, n)
	}
	for id := range sums {
		value, _, _ := w.Value(id)
		n, _ := strconv.Atoi(value)
		sums.check(w.storm, id, n)
	}
	w.checkHome()
	if n := w.wire.open.Load(); n != 0 {
		w.break_("%d answers were not closed", n)
	}
}

// checkHome: a key's first operation may find out that the map is old, the
// second goes to the owner.
func (w *clusterWorld) checkHome() {
	for key := range keys {
		for try := range 2 {
			name := hotKey("base", key)
			op := &operation{name: "put at home", write: true, most: w.most}
			r := w.send(w.rt, op, func(ctx context.Context) *http.Request { return w.request(ctx, http.MethodPut, name, "base", false) })
			if !r.succeeded() || try > 0 && (r.report.Sends != 1 || r.report.Attempts[0].Endpoint != w.Owner(name)) {
				w.breakIn(op, "not at home at %s", w.Owner(name))
			}
		}
	}
}
