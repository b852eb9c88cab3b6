package layertest

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
)

func (t *trial) panicReleases() {
	for _, step := range append([]Step{{}}, t.again()...) {
		begin, many := 0, 100 // the attempt that panics, and more requests than a layer lets in at once
		if step.Err != nil || step.Status != 0 {
			begin, many = 1, 10
		}
		panicking := true
		var seen visits
		b := t.newBase(Step{})
		b.answer = func(_ int, s *sent) (*http.Response, error, bool) {
			n := seen.before(s.req.Header.Get(idHeader))
			switch {
			case !panicking:
				return nil, nil, false
			case n >= begin:
				closeBody(s.req)
				panic(errPanic)
			}
			return b.reply(s, step, &answerBody{text: "busy"})
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

// failure is a way for a request to end of which a layer must have nothing left.
type failure struct {
	name   string
	step   Step // that the base plays
	cancel moment
	crowd  bool // all at once, and then all are cancelled
	unread bool // the answer is closed, not read
}

var failures = []failure{
	{name: "an error", step: Step{Err: errBoom}},
	{name: "a 500", step: Step{Status: http.StatusInternalServerError}},
	{name: "a context that had ended", cancel: before},
	{name: "a cancellation", step: Step{Hang: true}, cancel: during},
	{name: "a cancellation in a crowd", step: Step{Hang: true}, crowd: true},
	{name: "an answer closed unread", step: Step{Body: "fine"}, unread: true},
}

// failuresRelease has many requests fail in one way, and one that should be served
// after them.
func (t *trial) failuresRelease() {
	for _, f := range failures {
		t.checkReleased(f)
	}
}

func (t *trial) checkReleased(f failure) {
	const many = 100
	var over atomic.Bool
	b := t.newBase(f.step)
	b.most *= many
	b.answer = func(_ int, s *sent) (*http.Response, error, bool) {
		if !over.Load() {
			return nil, nil, false
		}
		return b.reply(s, Step{}, &answerBody{})
	}
	rt := t.wrap(b)
	if rt == nil {
		return
	}
	calls, sent := t.fail(rt, f, many)
	over.Store(true)
	for i, c := range calls {
		if c.hung {
			if i > 0 { // else other promises tell
				t.breakf("after %d times %s: %s", i, f.name, t.tooLong())
			}
			return
		}
	}
	t.calm()
	closes := func(b *bodies) int64 { return b.handed.all()[0].closes.Load() }
	if closes(sent[0]) == 1 { // else "request body closed" tells
		for _, body := range sent {
			if n := closes(body); n != 1 {
				t.breakf("%d times %s: a request body was closed %d times", many, f.name, n)
			}
		}
	}
	c := t.newCall(rt, t.request(context.Background(), newBodies())).start().wait()
	if c.hung || c.err != nil && t.virtual { // on the wall's clock it may still hold it against the base
		t.breakf("after %d times %s no request is served: %v", many, f.name, c.err)
	}
	c.finish()
}

// fail has requests fail until one hangs: one after the other, or in a crowd.
func (t *trial) fail(rt http.RoundTripper, f failure, many int) (calls []*call, sent []*bodies) {
	for range many {
		body := newBodies()
		c := t.newCall(rt, t.request(context.Background(), body))
		calls, sent = append(calls, c), append(sent, body)
		if f.cancel == before {
			c.cancel()
		}
		c.start()
		if f.crowd {
			continue
		}
		if f.cancel == during {
			t.cancelSoon(c)
		}
		if c.wait(); c.hung {
			return
		}
		if f.unread && c.answered() {
			c.resp.Body.Close()
			c.cancel()
			continue
		}
		c.finish()
	}
	if f.crowd {
		t.pause()
		for _, c := range slices.Backward(calls) { // those that wait before those that are sent
			c.cancel()
		}
		for _, c := range calls {
			c.wait().finish()
		}
	}
	return
}
