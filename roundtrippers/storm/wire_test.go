package storm

import (
	"io"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reroute-go/reroute/idempotency"
	"github.com/reroute-go/reroute/middleware"
)

// wire is the base of the stack under test. It strikes requests with the faults
// that hang over them, and watches what leaves the stack and what becomes of the
// answers.
type wire struct {
	*storm
	next http.RoundTripper
	// place names where a request goes and which part of the data it is about.
	place func(req *http.Request, t middleware.Target) (place, part string)
	// inflict sends a request struck by a fault.
	inflict func(next http.RoundTripper, req *http.Request, fault string) (*http.Response, error)
	// probe names what an attempt tests, "" if it is no probe: one at a time may.
	probe func(op *middleware.Operation, t middleware.Target, write bool) string

	open atomic.Int64 // bodies

	probing sync.Mutex
	probes  map[string]*operation
}

func (w *wire) RoundTrip(req *http.Request) (*http.Response, error) {
	op, inner := operationOf(req.Context()), middleware.FromContext(req.Context())
	if op == nil {
		return w.next.RoundTrip(req) // of the healed world's own checks
	}
	target := inner.Target()
	send := int(op.sends.Add(1))
	w.tally.sends.Add(1)
	place, part := w.place(req, target)
	if !w.allows(op, req, send, place) {
		return middleware.Refuse(req, errBroken)
	}
	if w.probe != nil {
		if what := w.probe(inner, target, op.write); what != "" {
			defer w.lone(op, what)()
		}
	}
	var resp *http.Response
	var err error
	if fault := w.strike(op, send, place, part); fault != "" {
		resp, err = w.inflict(w.next, req, fault)
	} else {
		resp, err = w.next.RoundTrip(req)
	}
	if err == nil {
		w.watch(op, resp)
	}
	return resp, err
}

// allows holds what is sent against what was promised of it.
func (w *wire) allows(op *operation, req *http.Request, send int, place string) bool {
	switch {
	case op.most > 0 && send > op.most:
		w.breakIn(op, "send %d of at most %d", send, op.most)
	case slices.Contains(op.excluded, place):
		w.breakIn(op, "sent to %s, which is excluded", place)
	case place == "":
		w.breakIn(op, "sent to %s, which nobody knows", req.URL.Host)
	case req.Host != "" && req.Host != req.URL.Host:
		w.breakIn(op, "Host is %s at %s", req.Host, req.URL.Host)
	case !w.sameKey(op, req.Header.Get(idempotency.Key)):
		w.breakIn(op, "another Idempotency-Key than before: %q", req.Header.Get(idempotency.Key))
	default:
		return true
	}
	return false
}

func (w *wire) sameKey(op *operation, key string) bool {
	return op.key.CompareAndSwap(nil, &key) || *op.key.Load() == key
}

// lone notes a probe until its end, and that it is the only one.
func (w *wire) lone(op *operation, what string) (end func()) {
	w.probing.Lock()
	other := w.probes[what]
	if w.probes == nil {
		w.probes = map[string]*operation{}
	}
	w.probes[what] = op
	w.probing.Unlock()
	if other != nil {
		w.breakIn(op, "two probes of %s at once: the other is of operation %d, %s", what, other.number, other.name)
	}
	return func() {
		w.probing.Lock()
		defer w.probing.Unlock()
		if w.probes[what] == op {
			delete(w.probes, what)
		}
	}
}

// watch follows an answer's body to its end.
func (w *wire) watch(op *operation, resp *http.Response) {
	w.open.Add(1)
	resp.Body = &watchedBody{ReadCloser: resp.Body, wire: w, op: op, length: resp.ContentLength, came: time.Now()}
}

// watchedBody knows whether it was read to its end, as an answer that is
// discarded has to be, if it is short: else its connection is lost.
type watchedBody struct {
	io.ReadCloser
	wire   *wire
	op     *operation
	length int64
	came   time.Time
	ended  atomic.Bool // read to its end, or to an error
	closed atomic.Bool
}

const shortBody = 64 << 10

func (b *watchedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.ended.Store(true)
	}
	return n, err
}

func (b *watchedBody) Close() error {
	if b.closed.CompareAndSwap(false, true) {
		b.wire.open.Add(-1)
		hasten := time.Since(b.came) < 50*time.Millisecond
		if b.length > 0 && b.length <= shortBody && !b.ended.Load() && hasten && !b.op.answered.Load() && b.wire.ctx.Err() == nil {
			b.wire.breakIn(b.op, "an answer of %d bytes was discarded, not drained", b.length)
		}
	}
	return b.ReadCloser.Close()
}
