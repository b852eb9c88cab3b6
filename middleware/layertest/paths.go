package layertest

import (
	"context"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"time"
)

// usual are results after which layers send again.
var usual = []Step{
	{Status: 408}, {Status: 410}, {Status: 421}, {Status: 429}, {Status: 449},
	{Status: 500}, {Status: 502}, {Status: 503}, {Status: 504}, {Status: 401},
	{Err: &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}},
	{Err: io.EOF},
}

// unusual are others, for the promises about what is repeated by mistake.
var unusual = []Step{
	{Err: &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}},
	{Err: &net.OpError{Op: "read", Net: "tcp", Err: os.ErrDeadlineExceeded}},
	{Err: &net.DNSError{Err: "no such host", Name: "layer.test", IsNotFound: true}},
	{Err: io.ErrUnexpectedEOF}, {Err: net.ErrClosed},
}

// again finds the results after which the layer sends again: a PUT, or a GET where
// it repeats no other.
func (t *trial) again() []Step {
	known := t.kit.known
	for _, get := range []bool{false, true} {
		if len(known.again) > 0 || get && t.kit.Request != nil {
			break
		}
		known.get = get
		for _, step := range append(t.kit.Again[:len(t.kit.Again):len(t.kit.Again)], usual...) {
			b := t.newBase(step, Step{})
			b.most = 1
			t.call(t.wrap(b), t.request(context.Background(), newBodies())).finish()
			if b.count() > 1 {
				known.again = append(known.again, step)
			}
		}
	}
	known.get = known.get && len(known.again) > 0
	if len(t.kit.Again) > 0 && len(known.again) == 0 {
		t.breakf("it sends again after none of the results in Kit.Again")
	}
	return known.again
}

// path is one way through a layer, walked to its end: the answer has been read
// and closed.
type path struct {
	name    string
	base    *base
	bodies  *bodies
	call    *call
	touched []string // what was changed of the caller's request, at any time
}

// way is what makes a path: a scripted base, a request body and when the caller
// cancels.
type way struct {
	name   string
	base   *base
	bodies *bodies
	cancel moment
}

type moment int

const (
	never moment = iota
	before
	during
)

// paths walks all ways through the layer that the kit can bring about, each on a
// layer of its own.
func (t *trial) paths() iter.Seq[*path] {
	return func(yield func(*path) bool) {
		for _, w := range t.ways() {
			if rt := t.wrap(w.base); rt == nil || !yield(t.walk(rt, w)) {
				return
			}
		}
	}
}

func (t *trial) ways() []way {
	fine, failing := Step{Body: "fine"}, newBodies()
	failing.readErr = errBoom
	ways := []way{
		{"an answer", t.newBase(fine), newBodies(), never},
		{"an answer, no request body", t.newBase(fine), nil, never},
		{"an error of the base", t.newBase(Step{Err: errBoom}), newBodies(), never},
		{"a request body that fails", t.newBase(fine), failing, never},
		{"an answer before the body was read", t.earlyAnswer(), newBodies(), never},
		{"cancelled before it is sent", t.newBase(fine), newBodies(), before},
		{"cancelled while it is sent", t.newBase(Step{Hang: true}), newBodies(), during},
	}
	for _, step := range t.again() {
		name := nameOf(step)
		step.Body = "busy"
		stuck, oneShot := newBodies(), newBodies()
		stuck.getErr, oneShot.oneShot = errBoom, true
		ways = append(ways,
			way{name + ", then an answer", t.newBase(step, fine), newBodies(), never},
			way{name + ", for ever", t.newBase(step), newBodies(), never},
			way{name + ", then an error of the base", t.newBase(step, Step{Err: errBoom}), newBodies(), never},
			way{name + ", a GetBody that fails", t.newBase(step, fine), stuck, never},
			way{name + ", a body without GetBody", t.newBase(step, fine), oneShot, never},
			way{name + ", then cancelled", t.newBase(step, Step{Hang: true}), newBodies(), during},
		)
	}
	return ways
}

func nameOf(step Step) string {
	switch {
	case step.Err != nil:
		return step.Err.Error()
	case step.Status == 0:
		return "200 OK"
	}
	return strings.TrimSpace(fmt.Sprint(step.Status, " ", http.StatusText(step.Status)))
}

// runaway reports a layer that sends on and on: what came of it is for the promise
// about that.
func (p *path) runaway() bool { return p.base.count() > p.base.most }

// walk sends one request and plays the good caller to its end.
func (t *trial) walk(rt http.RoundTripper, w way) *path {
	p := &path{name: w.name, base: w.base, bodies: w.bodies}
	p.call = t.newCall(rt, t.request(context.Background(), w.bodies))
	untouched := snapshotOf(p.call.req)
	w.base.arrived = func() { p.touched = append(p.touched, untouched.changes(p.call.req)...) }
	if w.cancel == before {
		p.call.cancel()
	}
	p.call.start()
	if w.cancel == during {
		p.call.within(soon)
		p.call.cancel()
	}
	p.call.wait()
	p.call.finish()
	t.rest()
	if p.call.over() {
		p.touched = append(p.touched, untouched.changes(p.call.req)...)
	}
	return p
}

// earlyAnswer answers while the request body is still being read.
func (t *trial) earlyAnswer() *base {
	b := t.newBase()
	b.answer = func(_ int, s *sent) (*http.Response, error, bool) {
		read := make(chan struct{})
		t.reading.add(read)
		go func() {
			defer close(read)
			defer closeBody(s.req)
			time.Sleep(time.Millisecond)
			_, _ = io.Copy(io.Discard, s.req.Body)
		}()
		return b.respond(s, Step{}, &answerBody{text: "early"}), nil, true
	}
	return b
}
