package layertest

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// idHeader tells a base whose request it has.
const idHeader = "X-Layertest-Id"

func (t *trial) concurrentUse() {
	again := append([]Step{{}}, t.again()...)
	const many = 32
	var mu sync.Mutex
	var seen visits
	faults := map[string]bool{}
	b := t.newBase(Step{})
	b.answer = func(_ int, s *sent) (*http.Response, error, bool) {
		id := s.req.Header.Get(idHeader)
		n := seen.before(id)
		if id == "" {
			return nil, nil, false
		}
		if err := s.readBody(); err != nil {
			return nil, err, true
		}
		if !strings.HasPrefix(id+payload, s.body) {
			mu.Lock()
			faults[fmt.Sprintf("request %s was sent with the body %q", id, s.body)] = true
			mu.Unlock()
		}
		var i int
		_, _ = fmt.Sscan(id, &i)
		step := again[i%len(again)]
		switch i % 16 { // few, for a layer may count them
		case 5:
			step = Step{Status: http.StatusInternalServerError}
		case 11:
			step = Step{Err: errBoom}
		}
		switch {
		case n > 0:
			step = Step{}
		case step.Err != nil:
			return nil, step.Err, true
		}
		t.pause() // so that all are under way at once
		return b.respond(s, step, &answerBody{text: "the answer to " + id}), nil, true
	}
	rt := t.wrap(b)
	shared := t.request(context.Background(), nil)
	var answered int
	var all sync.WaitGroup
	for i := range many {
		id := fmt.Sprint(i)
		body := newBodies()
		body.text = id + payload
		req := t.request(context.Background(), body)
		req.Header.Set(idHeader, id)
		all.Go(func() {
			c := t.newCall(rt, req).start().wait()
			t.pause() // so that all have their answers before the first is read
			c.finish()
			one := t.newCall(rt, shared).start().wait() // the same request object in all
			one.finish()
			mu.Lock()
			defer mu.Unlock()
			switch {
			case c.hung || one.hung:
				faults[t.tooLong()] = true
			case c.resp == nil: // it may be refused
			case c.body != "the answer to "+id:
				faults[fmt.Sprintf("request %s got the answer %q", id, c.body)] = true
			default:
				answered++
			}
		})
	}
	all.Wait()
	if answered == 0 {
		t.breakf("of %d requests at once none was answered", many)
	}
	for _, fault := range slices.Sorted(maps.Keys(faults)) {
		t.breakf("%s", fault)
	}
}

func (t *trial) idleClosed() {
	b := t.newBase(Step{})
	rt := t.wrap(b)
	t.call(rt, t.request(context.Background(), newBodies())).finish() // so that there is a connection
	(&http.Client{Transport: rt}).CloseIdleConnections()
	if b.idle.Load() == 0 {
		t.breakf("CloseIdleConnections of a %T does not reach the transport below", rt)
	}
}

func (t *trial) noGoroutineLeft() {
	for range t.paths() { // each is walked to its end
	}
	grace := time.Second
	if t.virtual {
		grace = 5 * time.Minute
	}
	n, one := t.goroutines()
	for wait := time.Millisecond; n > 0 && wait < grace; wait *= 2 {
		time.Sleep(wait)
		t.rest()
		n, one = t.goroutines()
	}
	if n > 0 {
		t.breakf("%d goroutines go on, such as %s", n, one)
	}
}
