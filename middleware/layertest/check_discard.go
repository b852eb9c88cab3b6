package layertest

import (
	"context"
	"net/http"
	"strings"
	"time"
)

func (t *trial) discardedClosed() {
	for p := range t.paths() {
		for _, s := range p.base.sends.all() {
			if s.open > 0 && !p.runaway() {
				t.breakf("%s: attempt %d began while %d of the earlier answers were not closed", p.name, s.n+1, s.open)
			}
		}
		if !p.call.over() {
			continue
		}
		for i, a := range p.base.made.all() {
			if a.closes.Load() == 0 {
				t.breakf("%s: the body of answer %d was never closed", p.name, i+1)
			}
		}
	}
}

func (t *trial) discardedDrained() {
	t.discarding(func(step Step, unsized bool) {
		b := t.newBase(Step{})
		b.answer = first(b, step, &answerBody{text: strings.Repeat("busy", 512), unsized: unsized})
		t.call(t.wrap(b), t.request(context.Background(), newBodies())).finish()
		if b.count() < 2 {
			return
		}
		if read, eof, _ := b.made.all()[0].ended(); !eof {
			t.breakf("%s (ContentLength known: %v): of its 2 KiB %d bytes were read, and not the io.EOF after them", nameOf(step), !unsized, read)
		}
	})
}

// discarding runs f for each answer that the layer discards.
func (t *trial) discarding(f func(step Step, other bool)) {
	t.untried = "the layer never discarded an answer"
	for _, step := range t.again() {
		if step.Err == nil && step.Answer == nil {
			t.untried = ""
			f(step, false)
			f(step, true)
		}
	}
}

// first answers the first attempt with body.
func first(b *base, step Step, body *answerBody) func(int, *sent) (*http.Response, error, bool) {
	return func(n int, s *sent) (*http.Response, error, bool) {
		if n > 0 {
			return nil, nil, false
		}
		return b.reply(s, step, body)
	}
}

func (t *trial) drainBounded() {
	const mostBytes, mostTime = 1 << 20, 5 * time.Second
	t.discarding(func(step Step, silent bool) {
		body, name := &answerBody{text: "busy", silent: silent}, nameOf(step)+" with a body that stalls"
		if !silent {
			body.endless, name = 8<<20, nameOf(step)+" with a body without end"
		}
		b := t.newBase(Step{})
		b.answer = first(b, step, body)
		c := t.newCall(t.wrap(b), t.request(context.Background(), newBodies())).start().wait()
		if c.answered() && b.count() < 2 {
			c.resp.Body.Close() // it came back, and reading it would not end
		}
		c.finish()
		t.rest() // if it is read in the background
		if sends := b.sends.all(); len(sends) > 1 && sends[1].open > 0 && body.touched() && body.closes.Load() > 0 {
			t.breakf("%s: the next attempt began while it was still read", name)
		}
		switch read, _, took := body.ended(); {
		case c.hung:
			t.breakf("%s: %s", name, t.tooLong())
		case b.count() < 2:
		case read > mostBytes:
			t.breakf("%s: more than %d bytes were read", name, mostBytes)
		case took > mostTime:
			t.breakf("%s: it was read for %v", name, took)
		}
	})
}
