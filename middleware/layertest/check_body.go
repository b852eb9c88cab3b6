package layertest

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"
)

// bodyKind is a request body as a layer may get it.
type bodyKind struct {
	name                      string
	oneShot, chunked, unsized bool // see bodies
}

var bodyKinds = []bodyKind{
	{name: "a body with GetBody"},
	{name: "a body with GetBody, of unknown length", chunked: true},
	{name: "a body without GetBody", oneShot: true},
	{name: "a body without GetBody and with ContentLength 0, as http.NewRequest makes of any reader", oneShot: true, unsized: true},
}

func (k bodyKind) made() *bodies {
	b := newBodies()
	b.oneShot, b.chunked, b.unsized = k.oneShot, k.chunked, k.unsized
	return b
}

func (t *trial) bodyReplayed() {
	for _, step := range unusual {
		t.checkReplay(bodyKinds[0], step, false)
	}
	again := t.again()
	if len(again) == 0 {
		t.untried = neverAgain
		return
	}
	for _, kind := range bodyKinds {
		for _, step := range again {
			for _, nested := range []bool{false, true} {
				t.checkReplay(kind, step, nested)
			}
		}
	}
}

// checkReplay has three attempts send a body: through one such layer, the first
// attempt breaking off, or through two in each other.
func (t *trial) checkReplay(kind bodyKind, step Step, nested bool) {
	b, whole := t.newBase(step, step, Step{}), 0
	if !nested && step.Err == nil {
		whole = 1
		b.answer = func(n int, s *sent) (*http.Response, error, bool) {
			if n > 0 {
				return nil, nil, false
			}
			_, _ = s.req.Body.Read(make([]byte, 5))
			closeBody(s.req)
			return b.respond(s, step, &answerBody{}), nil, true
		}
	}
	rt := t.wrap(b)
	if nested {
		rt = t.wrap(rt)
	}
	t.call(rt, t.request(context.Background(), kind.made())).finish()
	for _, s := range b.live() {
		switch {
		case s.n < whole:
		case s.bodyErr != nil:
			t.breakf("%s, after %s: attempt %d: %v", kind.name, nameOf(step), s.n+1, s.bodyErr)
		case s.body != payload:
			t.breakf("%s, after %s: attempt %d sent %q of length %d, want %q", kind.name, nameOf(step), s.n+1, s.body, s.req.ContentLength, payload)
		}
	}
}

// readersApart has the first attempt's body read on, as net/http may, while the
// second attempt's is.
func (t *trial) readersApart() {
	again := t.again()
	if len(again) == 0 {
		t.untried = neverAgain
		return
	}
	for _, kind := range bodyKinds {
		for _, step := range again {
			want, got := t.secondSends(step, kind.made(), false), t.secondSends(step, kind.made(), true)
			if got != want {
				t.breakf("%s, after %s: while the first attempt's body is still being read the second one sends %q instead of %q", kind.name, nameOf(step), got, want)
			}
		}
	}
}

// secondSends tells what the second attempt sends; late = while the first one's
// body is still being read.
func (t *trial) secondSends(step Step, body *bodies, late bool) (got string) {
	begun, ended := make(chan struct{}), make(chan struct{})
	b := t.newBase()
	firstReads := func(s *sent) {
		defer close(ended)
		defer closeBody(s.req)
		within(begun, time.Second)
		_, _ = io.Copy(io.Discard, s.req.Body)
	}
	b.answer = func(n int, s *sent) (*http.Response, error, bool) {
		if n > 1 {
			return nil, nil, false
		}
		var half [11]byte
		read, _ := io.ReadFull(s.req.Body, half[:])
		switch {
		case n == 0 && late:
			go firstReads(s)
		case late:
			close(begun)
			within(ended, time.Second)
		}
		if n > 0 {
			rest, err := io.ReadAll(s.req.Body)
			if got = string(half[:read]) + string(rest); err != nil {
				got += " and then " + err.Error()
			}
		}
		if n > 0 || !late {
			closeBody(s.req)
		}
		switch {
		case n > 0:
			return b.respond(s, Step{}, &answerBody{}), nil, true
		case step.Err != nil:
			return nil, step.Err, true
		}
		return b.respond(s, step, &answerBody{}), nil, true
	}
	t.call(t.wrap(b), t.request(context.Background(), body)).finish()
	t.rest()
	return got
}

// getBodyKept asks for the body as net/http does when a connection turns out
// dead: it closes what it has and calls GetBody.
func (t *trial) getBodyKept() {
	for _, step := range append([]Step{{}}, t.again()...) {
		for _, kind := range bodyKinds {
			body := kind.made()
			b := t.newBase(step, Step{})
			var length int64
			b.arrived = func() {
				sends := b.sends.all()
				t.checkGetBody(kind.name, sends[len(sends)-1].req, body, length)
			}
			req := t.request(context.Background(), body)
			length = req.ContentLength
			t.call(t.wrap(b), req).finish()
		}
		for _, none := range []io.ReadCloser{nil, http.NoBody} {
			b := t.newBase(step, Step{})
			b.arrived = func() {
				sends := b.sends.all()
				if req := sends[len(sends)-1].req; req.Body != nil && req.Body != http.NoBody || req.ContentLength != 0 {
					t.breakf("a request without a body is sent with %T and ContentLength %d", req.Body, req.ContentLength)
				}
			}
			req := t.request(context.Background(), nil)
			req.Body = none
			t.call(t.wrap(b), req).finish()
		}
	}
}

func (t *trial) checkGetBody(kind string, req *http.Request, body *bodies, length int64) {
	if req.ContentLength != length {
		t.breakf("%s: ContentLength is %d, was %d", kind, req.ContentLength, length)
	}
	if body.oneShot {
		return
	}
	if req.GetBody == nil {
		t.breakf("%s: GetBody is gone", kind)
		return
	}
	closeBody(req)
	for range 2 {
		fresh, err := req.GetBody()
		if err != nil {
			t.breakf("%s: GetBody: %v", kind, err)
			return
		}
		got, err := io.ReadAll(fresh)
		fresh.Close()
		if err != nil || string(got) != payload {
			t.breakf("%s: GetBody gives %q, %v", kind, got, err)
			return
		}
	}
	req.Body, _ = req.GetBody() // for the base to read
}

func (t *trial) bodyErrorFinal() {
	body := newBodies()
	body.readErr = errBoom
	b := t.newBase(Step{})
	c := t.call(t.wrap(b), t.request(context.Background(), body))
	c.finish()
	if n := b.count(); n > 1 {
		t.breakf("it was sent %d times although its body could not be read", n)
	}
	if c.err != nil && !errors.Is(c.err, errBoom) {
		t.breakf("the error is %v, want one that is the reader's", c.err)
	}
}

func (t *trial) expectContinue() {
	body := newBodies()
	b := t.newBase(Step{})
	var expect string
	var reads int64
	b.answer = func(n int, s *sent) (*http.Response, error, bool) {
		if n == 0 {
			expect, reads = s.req.Header.Get("Expect"), body.handed.all()[0].reads.Load()
		}
		closeBody(s.req)
		return b.respond(s, Step{Status: http.StatusExpectationFailed}, &answerBody{}), nil, true
	}
	req := t.request(context.Background(), body)
	req.Header.Set("Expect", "100-continue")
	t.call(t.wrap(b), req).finish()
	if b.count() > 0 && expect == "" {
		t.breakf("the Expect header is gone")
	}
	after := body.handed.all()[0].reads.Load() // those of GetBody are copies, to be signed for instance
	if reads > 0 || after > 0 {
		t.breakf("the body was read %d times before the transport asked for it and %d times in all", reads, after)
	}
}
