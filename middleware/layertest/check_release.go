package layertest

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
)

func (t *trial) panicReleases() {
	for _, step := range append([]Step{{}}, t.again()...) {
		begin, many := 0, 100 // the attempt that panics, and more requests than a layer lets in at once
		if step.Err != nil || step.Status != 0 {
			begin, many = 1, 10
		}
		panicking := true
		var mu sync.Mutex
		seen := map[string]int{}
		b := t.newBase(Step{})
		b.answer = func(_ int, s *sent) (*http.Response, error, bool) {
			id := s.req.Header.Get(idHeader)
			mu.Lock()
			n := seen[id]
			seen[id]++
			mu.Unlock()
			switch {
			case !panicking:
				return nil, nil, false
			case n >= begin:
				closeBody(s.req)
				panic(errPanic)
			}
			if err := s.readBody(); err != nil {
				return nil, err, true
			}
			if step.Err != nil {
				return nil, step.Err, true
			}
			return b.respond(s, step, &answerBody{text: "busy"}), nil, true
		}
		rt := t.wrap(b)
		for i := range many {
			body := newBodies()
			req := t.request(context.Background(), body)
			req.Header.Set(idHeader, fmt.Sprint(i))
			c := t.newCall(rt, req).start().wait()
			c.finish()
			if c.hung {
				t.breakf("after %d panics %s", i, t.tooLong())
				return
			}
			for _, r := range body.handed.all() {
				if n := r.closes.Load(); n == 0 {
					t.breakf("after a panic of attempt %d a request body was left open", begin+1)
				}
			}
		}
		panicking = false
		t.calm()
		if c := t.call(rt, t.request(context.Background(), newBodies())); c.err != nil {
			t.breakf("after %d panics a request fails: %v", many, c.err)
		} else {
			c.finish()
		}
	}
}

// failures are ways for a request to end that a layer must have nothing left of.
var failures = []string{"an error", "a 500", "a context that had ended", "a cancellation", "an answer closed unread", "a cancellation in a crowd"}

// failuresRelease has many requests fail in one way, and one that should be served
// after them.
func (t *trial) failuresRelease() {
	for _, how := range failures {
		t.checkReleased(how)
	}
}

func (t *trial) checkReleased(how string) {
	const many = 100
	var over atomic.Bool
	rt := t.wrap(t.failing(how, &over))
	if rt == nil {
		return
	}
	var calls []*call
	var sent []*bodies
	for range many {
		body := newBodies()
		req := t.request(context.Background(), body)
		req.Header.Set(idHeader, "fails")
		c := t.newCall(rt, req)
		calls, sent = append(calls, c), append(sent, body)
		switch how {
		case "a context that had ended":
			c.cancel()
		case "a cancellation in a crowd":
			c.start()
			continue
		}
		c.start()
		if how == "a cancellation" {
			t.cancelSoon(c)
		}
		if c.wait(); c.hung {
			break
		}
		if how == "an answer closed unread" && c.answered() {
			c.resp.Body.Close()
			c.resp = nil
		}
		c.finish()
	}
	if how == "a cancellation in a crowd" {
		t.pause()
		for _, c := range slices.Backward(calls) { // those that wait before those that are sent
			c.cancel()
		}
		for _, c := range calls {
			c.wait().finish()
		}
	}
	over.Store(true)
	for i, c := range calls {
		if c.hung {
			if i > 0 { // else other promises tell
				t.breakf("after %d times %s: %s", i, how, t.tooLong())
			}
			return
		}
	}
	t.calm()
	for _, body := range sent {
		n := body.handed.all()[0].closes.Load()
		if n != 1 && body == sent[0] {
			break // "request body closed" tells
		}
		if n != 1 {
			t.breakf("%d times %s: a request body was closed %d times", many, how, n)
		}
	}
	c := t.newCall(rt, t.request(context.Background(), newBodies())).start().wait()
	if c.hung || c.err != nil && t.virtual { // on the wall's clock it may still hold it against the base
		t.breakf("after %d times %s no request is served: %v", many, how, c.err)
	}
	c.finish()
}

// failing is a base that has requests end as they shall, until it is over.
func (t *trial) failing(how string, over *atomic.Bool) *base {
	b := t.newBase(Step{})
	b.answer = func(_ int, s *sent) (*http.Response, error, bool) {
		if over.Load() {
			return nil, nil, false
		}
		err := s.readBody()
		switch {
		case err != nil:
		case how == "an error":
			err = errBoom
		case how == "a 500":
			return b.respond(s, Step{Status: http.StatusInternalServerError}, &answerBody{text: "busy"}), nil, true
		case how == "a cancellation", how == "a cancellation in a crowd":
			if within(s.ctx.Done(), b.hang) {
				err = s.ctx.Err()
			} else {
				err = errBoom
			}
		default:
			return b.respond(s, Step{}, &answerBody{text: "fine"}), nil, true
		}
		return nil, err, true
	}
	return b
}
