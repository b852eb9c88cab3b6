package layertest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

func (t *trial) answerXorError() {
	for p := range t.paths() {
		if !p.call.over() {
			continue
		}
		switch resp, err := p.call.resp, p.call.err; {
		case p.call.panicked != nil: // nothing below it does
			t.breakf("%s: RoundTrip panicked: %v", p.name, p.call.panicked)
		case resp != nil && err != nil:
			t.breakf("%s: a response (%s) and an error (%v)", p.name, resp.Status, err)
		case resp == nil && err == nil:
			t.breakf("%s: neither a response nor an error", p.name)
		case resp != nil && resp.Body == nil:
			t.breakf("%s: a response (%s) without a body", p.name, resp.Status)
		}
	}
}

// statuses are those with a meaning somewhere, and some without.
var statuses = []int{
	200, 201, 202, 204, 206, 299, 300, 301, 302, 303, 304, 307, 308,
	400, 401, 402, 403, 404, 405, 406, 408, 409, 410, 411, 412, 413, 414, 415, 416, 417, 418, 421, 422, 423, 424, 425, 426, 428, 429, 431, 449, 451, 499,
	500, 501, 502, 503, 504, 505, 507, 508, 511, 530, 599,
}

func (t *trial) answersPass() {
	steps := append([]Step(nil), t.kit.Again...)
	for _, status := range statuses {
		steps = append(steps, Step{Status: status})
	}
	for _, step := range steps {
		if step.Err != nil || step.Answer != nil {
			continue
		}
		b := t.newBase()
		b.most = t.kit.maxSends()
		b.answer = func(n int, s *sent) (*http.Response, error, bool) {
			if n > b.most {
				return nil, nil, false
			}
			if err := s.readBody(); err != nil {
				return nil, err, true
			}
			return b.respond(s, step, &answerBody{text: answerOf(n)}), nil, true
		}
		c := t.call(t.wrap(b), t.request(context.Background(), newBodies()))
		var was http.Response
		if c.resp != nil {
			was = *c.resp
		}
		c.finish()
		body, err := c.body, c.readErr
		last := b.count() - 1
		switch {
		case last >= b.most: // for "sends bounded"
		case c.resp == nil:
			t.breakf("status %d, sent %d times, came back as the error %v", step.Status, last+1, c.err)
		case was.StatusCode != step.Status || !strings.HasPrefix(was.Status, fmt.Sprint(step.Status)):
			t.breakf("status %d came back as %d (%q)", step.Status, was.StatusCode, was.Status)
		case was.Header.Get(sendHeader) != fmt.Sprint(last):
			t.breakf("status %d: of %d attempts the answer of number %s came back", step.Status, last+1, was.Header.Get(sendHeader))
		case err != nil || body != answerOf(last):
			t.breakf("status %d: the body reads %q, %v; want %q", step.Status, body, err, answerOf(last))
		case was.ContentLength != int64(len(body)) || was.ProtoMajor != 1:
			t.breakf("status %d: ContentLength %d, %s", step.Status, was.ContentLength, was.Proto)
		}
	}
}

func answerOf(n int) string { return fmt.Sprintf("the answer to attempt %d", n+1) }

func (t *trial) errorsKept() {
	for _, step := range append([]Step{{Err: errBoom}}, t.again()...) {
		steps, want := []Step{step}, step.Err
		if want == nil {
			steps, want = append(steps, Step{Err: errBoom}), errBoom
		}
		b := t.newBase(steps...)
		b.most = t.kit.maxSends()
		c := t.call(t.wrap(b), t.request(context.Background(), newBodies()))
		c.finish()
		if c.resp == nil && c.err != nil && !errors.Is(c.err, want) {
			t.breakf("the base's error %q came back as %q, in which errors.Is does not find it", want, c.err)
		}
	}
}

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
		if step.Err == nil {
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
		if err := s.readBody(); err != nil {
			return nil, err, true
		}
		return b.respond(s, step, body), nil, true
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
		c.finish()
		switch read, _, took := body.ended(); {
		case c.hung:
			t.breakf("%s: RoundTrip did not return within %v", name, t.limit())
		case b.count() < 2: // it came back
		case read > mostBytes:
			t.breakf("%s: more than %d bytes were read", name, mostBytes)
		case took > mostTime:
			t.breakf("%s: it was read for %v", name, took)
		}
	})
}

func (t *trial) bodyReadable() {
	for _, step := range append([]Step{{}}, t.again()...) {
		for _, cut := range []error{nil, io.ErrUnexpectedEOF} {
			want := strings.Repeat("0123456789abcdef", 1<<10)
			b := t.newBase(step)
			b.answer = func(n int, s *sent) (*http.Response, error, bool) {
				if n == 0 && (step.Err != nil || step.Status != 0) {
					return nil, nil, false
				}
				if err := s.readBody(); err != nil {
					return nil, err, true
				}
				return b.respond(s, Step{}, &answerBody{text: want, cut: cut, tied: true}), nil, true
			}
			c := t.call(t.wrap(b), t.request(context.Background(), newBodies()))
			t.pause()
			sends := b.count()
			c.finish()
			got, err := c.body, c.readErr
			t.pause()
			switch {
			case c.resp == nil || c.resp.StatusCode != http.StatusOK: // for "answers pass"
			case cut == nil && (err != nil || got != want):
				t.breakf("of %d bytes %d could be read, then: %v", len(want), len(got), err)
			case cut != nil && (!errors.Is(err, cut) || got != want):
				t.breakf("an answer cut after %d bytes reads as %d bytes, then: %v; want %v", len(want), len(got), err, cut)
			case b.count() != sends:
				t.breakf("it was sent again after it had been answered")
			}
		}
	}
}

func (t *trial) trailers() {
	const name = "X-Layertest-Sum"
	for _, step := range append([]Step{{}}, t.again()...) {
		b := t.newBase(step)
		b.answer = func(n int, s *sent) (*http.Response, error, bool) {
			if n == 0 && (step.Err != nil || step.Status != 0) {
				return nil, nil, false
			}
			if err := s.readBody(); err != nil {
				return nil, err, true
			}
			body := &answerBody{text: "fine", unsized: true}
			resp := b.respond(s, Step{}, body)
			trailer := http.Header{name: nil} // net/http fills it in at the end
			resp.Trailer = trailer
			body.atEnd = func() { trailer[name] = []string{"sum"} }
			return resp, nil, true
		}
		c := t.call(t.wrap(b), t.request(context.Background(), newBodies()))
		c.finish()
		if c.resp != nil && c.resp.StatusCode == http.StatusOK && c.resp.Trailer.Get(name) != "sum" {
			t.breakf("once the body is read the trailers are %v, want %s: sum", c.resp.Trailer, name)
		}
	}
}

// duplex is the body of a 101 answer.
type duplex struct {
	*answerBody
	written strings.Builder
}

func (d *duplex) Write(p []byte) (int, error) { return d.written.Write(p) }

func (t *trial) upgradeWritable() {
	b := t.newBase()
	var below *duplex
	b.answer = func(_ int, s *sent) (*http.Response, error, bool) {
		below = &duplex{answerBody: &answerBody{text: "welcome", unsized: true}}
		resp := b.respond(s, Step{Status: http.StatusSwitchingProtocols, Header: map[string]string{"Connection": "Upgrade", "Upgrade": "layertest"}}, below.answerBody)
		resp.Body = below
		return resp, nil, true
	}
	req := t.request(context.Background(), nil)
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", "layertest")
	c := t.call(t.wrap(b), req)
	defer c.finish()
	if c.resp == nil {
		return // for "answers pass"
	}
	t.pause()
	w, ok := c.resp.Body.(io.Writer)
	if !ok {
		t.breakf("the body, a %T, is no io.Writer", c.resp.Body)
		return
	}
	if _, err := io.WriteString(w, "hello"); err != nil || below.written.String() != "hello" {
		t.breakf("of \"hello\" the transport got %q, %v", below.written.String(), err)
	}
}
