package layertest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
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
	for _, status := range statuses {
		c := t.call(t.wrap(t.newBase(Step{Status: status})), t.request(context.Background(), newBodies()))
		resp, err := c.resp, c.err
		if c.finish(); resp != nil && err != nil {
			t.breakf("a %d: a response (%s) and an error (%v)", status, resp.Status, err)
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
		if step.Status == 0 {
			step.Status = http.StatusOK
		}
		b := t.newBase()
		b.answer = func(n int, s *sent) (*http.Response, error, bool) {
			if n > b.most {
				return nil, nil, false
			}
			return b.reply(s, step, &answerBody{text: answerOf(n)})
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
	steps := append([]Step{{Err: errBoom}}, unusual...)
	for _, step := range append(steps, t.again()...) {
		steps, want := []Step{step}, step.Err
		if want == nil {
			steps, want = append(steps, Step{Err: errBoom}), errBoom
		}
		b := t.newBase(steps...)
		c := t.call(t.wrap(b), t.request(context.Background(), newBodies()))
		c.finish()
		if c.resp == nil && c.err != nil && !errors.Is(c.err, want) {
			t.breakf("the base's error %q came back as %q, in which errors.Is does not find it", want, c.err)
		}
	}
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
				return b.reply(s, Step{}, &answerBody{text: want, cut: cut, tied: true})
			}
			c := t.call(t.wrap(b), t.request(context.Background(), newBodies()))
			t.pause()
			sends := b.count()
			c.finish()
			got, err := c.body, c.readErr
			t.pause()
			switch {
			case c.resp == nil && cut != nil && errors.Is(c.err, cut):
				t.breakf("an answer cut after %d bytes came back as the error %v: reading it is the caller's", len(want), c.err)
			case c.resp == nil || c.resp.StatusCode != http.StatusOK: // for "answers pass"
			case cut == nil && (err != nil || got != want):
				t.breakf("of %d bytes %d could be read, then: %v", len(want), len(got), err)
			case cut != nil && (!errors.Is(err, cut) || got != want):
				t.breakf("an answer cut after %d bytes reads as %d bytes, then: %v; want %v", len(want), len(got), err, cut)
			case b.count() != sends:
				t.breakf("it was sent again after it had been answered")
			case c.resp.Body != nil && !closeWithin(c.resp.Body, t.limit()):
				t.breakf("a second Close of the body does not return")
			}
		}
	}
	t.bigAnswer()
	t.streamed()
}

// bigAnswer is more than a layer may keep in memory.
func (t *trial) bigAnswer() {
	want := strings.Repeat("0123456789abcdef", 3<<16)
	c := t.call(t.wrap(t.newBase(Step{Body: want})), t.request(context.Background(), newBodies()))
	if c.finish(); c.resp != nil && (c.body != want || c.readErr != nil) {
		t.breakf("of %d bytes %d could be read, then: %v", len(want), len(c.body), c.readErr)
	}
}

// streamed answers with a body of which no more comes for now.
func (t *trial) streamed() {
	b := t.newBase()
	b.answer = func(_ int, s *sent) (*http.Response, error, bool) {
		return b.reply(s, Step{}, &answerBody{text: "first", silent: true, tied: true})
	}
	c := t.newCall(t.wrap(b), t.request(context.Background(), newBodies())).start()
	defer c.cancel()
	if c.wait(); c.hung {
		t.breakf("an answer whose body goes on: RoundTrip did not return before its end")
	}
	if c.hung || !c.answered() {
		return
	}
	var first [5]byte
	if n, err := io.ReadFull(c.resp.Body, first[:]); err != nil || string(first[:]) != "first" {
		t.breakf("an answer whose body goes on: of the 5 bytes that have come %d could be read, then: %v", n, err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = c.resp.Body.Read(first[:])
	}()
	t.pause()
	if !closeWithin(c.resp.Body, t.limit()) || !within(read, t.limit()) && b.made.all()[0].closes.Load() > 0 {
		t.breakf("an answer whose body goes on: Close does not end a Read that waits for more, as net/http's does")
	}
}

func (t *trial) trailers() {
	for _, step := range append([]Step{{}}, t.again()...) {
		for _, announced := range []bool{true, false} {
			t.checkTrailers(step, announced)
		}
	}
}

// checkTrailers has a trailer come after step. net/http fills in those that a
// header has announced, and sets others in the Response that it has returned, of
// which a copy does not learn.
func (t *trial) checkTrailers(step Step, announced bool) {
	const name = "X-Layertest-Sum"
	b := t.newBase(step)
	b.answer = func(n int, s *sent) (*http.Response, error, bool) {
		if n == 0 && (step.Err != nil || step.Status != 0) {
			return nil, nil, false
		}
		body := &answerBody{text: "fine", unsized: true}
		resp, err, own := b.reply(s, Step{}, body)
		if err != nil {
			return nil, err, own
		}
		if announced {
			resp.Trailer = http.Header{name: nil}
		}
		trailer := resp.Trailer
		body.atEnd = func() {
			if announced {
				trailer[name] = []string{"sum"}
			} else {
				resp.Trailer = http.Header{name: {"sum"}}
			}
		}
		return resp, nil, own
	}
	c := t.call(t.wrap(b), t.request(context.Background(), newBodies()))
	c.finish()
	if c.resp != nil && c.resp.StatusCode == http.StatusOK && c.resp.Trailer.Get(name) != "sum" {
		t.breakf("once the body is read the trailers are %v, want %s: sum (announced in a header: %t)", c.resp.Trailer, name, announced)
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
