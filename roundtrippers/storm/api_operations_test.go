package storm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/rest"
)

// act is what one client does.
func (w *apiWorld) act(number uint64, r *rand.Rand) {
	c := &apiClient{apiWorld: w, number: number, r: r}
	switch n := r.IntN(100); {
	case n < 30:
		c.get()
	case n < 45:
		c.put()
	case n < 53:
		c.remove()
	case n < 85:
		c.job()
	case n < 93:
		c.query()
	default:
		c.mutate()
	}
}

type apiClient struct {
	*apiWorld
	number uint64
	step   uint64
	r      *rand.Rand
}

func (c *apiClient) own(what string) string { return fmt.Sprintf("%s-%d", what, c.number) }

// operation draws who asks: background work is sent once, essential work until
// its time is over, and some asks for so many retries.
func (c *apiClient) operation(name string, write bool) (*operation, func(context.Context) context.Context) {
	op := (&operation{number: c.number*16 + c.step, name: name, write: write}).limits(c.r)
	c.step++
	const replay = 1 // with a fresh token
	switch c.r.IntN(5) {
	case 0, 1:
		op.name, op.most = "background "+name, 1+replay
		return op, func(ctx context.Context) context.Context { return ctx }
	case 2:
		retries := 1 + c.r.IntN(5)
		op.name, op.most = "patient "+name, 1+retries+replay
		return op, func(ctx context.Context) context.Context { return middleware.WithPatience(ctx, rest.Bounded(retries)) }
	}
	op.name = "essential " + name
	if op.within == 0 {
		op.within = time.Minute // what is essential has to have an end
	}
	return op, func(ctx context.Context) context.Context { return middleware.WithPriority(ctx, middleware.Essential) }
}

// raw sends a request of its own making.
func (c *apiClient) raw(name, method, path, bodyName string, headers ...string) (*operation, *result) {
	op, priority := c.operation(name, method != http.MethodGet)
	streamed := c.r.IntN(2) == 0
	return op, c.send(c.rt, op, func(ctx context.Context) *http.Request {
		var body io.Reader
		if bodyName != "" {
			if body = strings.NewReader(payload(bodyName)); streamed {
				body = onlyOf(payload(bodyName))
			}
		}
		req, err := http.NewRequestWithContext(priority(ctx), method, origin+path, body)
		c.must(err)
		req.Header.Set("X-Body", bodyName)
		for i := 0; i < len(headers); i += 2 {
			req.Header.Set(headers[i], headers[i+1])
		}
		return req
	})
}

// with makes a call of the helper's.
func (c *apiClient) with(name string, write bool, do func(ctx context.Context) error) (*operation, *result) {
	op, priority := c.operation(name, write)
	return op, c.call(op, func(ctx context.Context) {
		err := do(priority(ctx))
		op.answered.Store(true)
		r := &op.result
		if err == nil {
			r.status, r.report.Sends = http.StatusOK, int(op.sends.Load())
			return
		}
		var typed *rest.Error
		if !errors.As(err, &typed) {
			c.breakIn(op, "an error of type %T", err)
			return
		}
		r.err = err
		r.report.Sends, r.report.InDoubt = typed.Sends, typed.InDoubt
		if typed.Kind == rest.Decode {
			r.status, r.report.InDoubt = http.StatusOK, true
		}
	})
}

func (c *apiClient) get() {
	if c.r.IntN(2) == 0 {
		var into string
		op, r := c.with("get", false, func(ctx context.Context) error { return c.api.Get(ctx, "things/base", &into) })
		if r.err == nil && into != "base" {
			c.breakIn(op, "it read %q", into)
		}
		return
	}
	c.raw("get", http.MethodGet, "/things/base", "")
}

func (c *apiClient) put() {
	id := c.own("put")
	op, r := c.raw("put", http.MethodPut, "/things/"+id, fmt.Sprintf("%s-%d", id, c.size()))
	c.claim(claim{op: op, kind: "thing", id: id, acknowledged: r.succeeded(), refused: r.refused()})
}

func (c *apiClient) size() int { return pick(c.r, 10, 10, 10, 3000, 50_000) }

func (c *apiClient) remove() {
	id := c.own("removed")
	op, r := c.raw("put", http.MethodPut, "/things/"+id, id+"-10")
	if !r.succeeded() {
		c.claim(claim{op: op, kind: "thing", id: id, refused: r.refused()})
		return
	}
	op, r = c.raw("delete", http.MethodDelete, "/things/"+id, "")
	c.claim(claim{op: op, kind: gone, id: id, acknowledged: r.succeeded(), refused: r.refused()})
}

// job runs what must not run twice.
func (c *apiClient) job() {
	id := c.own("job")
	op, r := c.raw("job", http.MethodPost, "/jobs/"+id, fmt.Sprintf("%s-%d", id, c.size()))
	c.claim(claim{op: op, kind: "run", id: id, acknowledged: r.succeeded(), refused: r.refused()})
}

func (c *apiClient) query() {
	var into struct{ Base string }
	op, r := c.with("query", false, func(ctx context.Context) error {
		return c.api.GraphQL(ctx, rest.Document{Query: "query { base }"}, &into)
	})
	if r.err == nil && into.Base != "base" {
		c.breakIn(op, "it read %q", into.Base)
	}
}

func (c *apiClient) mutate() {
	id := c.own("mutation")
	api := c.api
	api.Header = http.Header{"X-Job": {id}}
	var into struct{ Ran bool }
	op, r := c.with("mutation", true, func(ctx context.Context) error {
		return api.GraphQL(ctx, rest.Document{Query: "mutation { run }"}, &into)
	})
	c.claim(claim{op: op, kind: "run", id: id, acknowledged: r.err == nil, refused: r.refused()})
}

// heal ends everything that is wrong, and lets the longest pause of the breaker
// pass.
func (w *apiWorld) heal() {
	w.sleepUntil(w.lasts)
	w.sleep(10 * time.Second)
	w.source.set(func(s *tokenSource) { s.failing, s.takes, s.life = false, 0, 0 })
	w.server.down.Store(false)
	w.note("all is well again")
	w.sleep(61 * time.Second)
}

func (w *apiWorld) check() {
	for _, c := range w.claims {
		n := w.server.runs[c.id]
		if _, there := w.server.things[c.id]; there {
			n = 1
		}
		w.settle(c, n)
	}
	for try := range 2 { // the first probes
		op := &operation{name: "get at home"}
		r := w.send(w.rt, op, func(ctx context.Context) *http.Request {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, origin+"/things/base", nil)
			w.must(err)
			return req
		})
		if r.status != http.StatusOK || try > 0 && r.report.Sends != 1 {
			w.breakIn(op, "all is well, and it does not go through at once")
		}
	}
	if n := w.wire.open.Load(); n != 0 {
		w.break_("%d answers were not closed", n)
	}
	if n := w.circuit.Waiting(); n != 0 {
		w.break_("%d wait for the breaker when all is over", n)
	}
	if w.pause != nil && w.pause.Waiting() != 0 {
		w.break_("%d wait for the end of a pause when all is over", w.pause.Waiting())
	}
}
