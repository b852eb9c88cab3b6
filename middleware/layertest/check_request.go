package layertest

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"
)

const neverAgain = "the layer never sent a request again"

func (t *trial) requestUnchanged() {
	for p := range t.paths() {
		for _, what := range p.touched {
			t.breakf("%s: changed: %s", p.name, what)
		}
	}
}

func (t *trial) requestBodyClosed() {
	t.uploadGoesOn()
	for p := range t.paths() {
		if p.bodies == nil || !p.call.over() {
			continue
		}
		for i, r := range p.bodies.handed.all() {
			which := "the request's body"
			if i > 0 {
				which = fmt.Sprintf("body %d of GetBody", i)
			}
			if n := r.closes.Load(); n != 1 {
				t.breakf("%s: %s was closed %d times", p.name, which, n)
			}
		}
	}
}

// uploadGoesOn answers before it reads the body, as net/http may, and reads it
// before the answer is.
func (t *trial) uploadGoesOn() {
	b, done := t.newBase(Step{}), make(chan struct{})
	var upload *sent
	b.answer = func(n int, s *sent) (*http.Response, error, bool) {
		if n > 0 {
			return nil, nil, false
		}
		upload = s
		go func() {
			defer close(done)
			time.Sleep(time.Millisecond)
			_ = s.readBody()
		}()
		return b.respond(s, Step{}, &answerBody{text: "early"}), nil, true
	}
	c := t.call(t.wrap(b), t.request(context.Background(), newBodies()))
	if b.count() > 0 {
		<-done
		if c.err == nil && (upload.bodyErr != nil || upload.body != payload) {
			t.breakf("an answer before the body was read: the body was closed while the transport read it, after %d bytes: %v", len(upload.body), upload.bodyErr)
		}
	}
	c.finish()
}

// contextKept looks at the contexts that attempts are sent with.
func (t *trial) contextKept() {
	for _, step := range append([]Step{{}, {Err: errBoom}}, t.again()...) {
		b := t.newBase(step, Step{})
		c := t.newCall(t.wrap(b), t.request(context.Background(), newBodies())).start().wait()
		if c.answered() {
			_, _ = io.Copy(io.Discard, c.resp.Body)
			c.resp.Body.Close()
		}
		t.rest()
		for _, s := range b.live() {
			switch {
			case !s.marked:
				t.breakf("attempt %d is sent without the values of the caller's context", s.n+1)
			case s.ctx.Done() != nil && s.ctx.Done() != c.req.Context().Done() && s.ctx.Err() == nil:
				t.breakf("the context of attempt %d goes on when its answer has been closed: the cancel of whoever derived it has not been called", s.n+1)
			}
		}
		c.cancel()
	}
}

func (t *trial) requestTrailers() {
	const name = "X-Layertest-Sum"
	for _, step := range append([]Step{{}}, t.again()...) {
		body := newBodies()
		body.chunked = true
		req := t.request(context.Background(), body)
		req.Trailer = http.Header{name: nil}
		var trailer http.Header
		body.trailing = func() { trailer[name] = []string{"sum"} }
		b := t.newBase(step, Step{})
		c := t.newCall(t.wrap(b), req)
		trailer = c.req.Trailer
		c.start().wait().finish()
		for _, s := range b.live() {
			if s.bodyErr == nil && s.req.Trailer.Get(name) != "sum" {
				t.breakf("at the body's end attempt %d has the trailers %v, want the caller's %s: sum", s.n+1, s.req.Trailer, name)
			}
		}
	}
}
