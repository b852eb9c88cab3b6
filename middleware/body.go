package middleware

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// defaultReplayBytes is the largest request the Cosmos DB service takes.
const defaultReplayBytes = 2 << 20

// ErrBodyNotReplayable says that a request could not be sent again because its
// body came without GetBody and was larger than what is kept, or had failed.
var ErrBodyNotReplayable = errors.New("reroute: the request body cannot be replayed")

// ReplayBody is a Layer, to be stacked outermost, that sets how much of a
// request body without GetBody is kept for replay. Without the layer it is
// 2 MiB. The body is kept while it is sent, not read ahead; one that grows
// beyond the limit is streamed on and the operation is not sent again.
type ReplayBody struct {
	// MaxBytes kept per operation; 0 = 2 MiB, -1 = keep nothing.
	MaxBytes int64
}

// Wrap reports a MaxBytes below -1.
func (l ReplayBody) Wrap(next http.RoundTripper) (http.RoundTripper, error) {
	limit := l.MaxBytes
	switch {
	case limit < -1:
		return nil, fmt.Errorf("ReplayBody.MaxBytes is %d, want >= -1", limit)
	case limit == 0:
		limit = defaultReplayBytes
	}
	return Operate(next, nil, func(op *Operation, req *http.Request, next http.RoundTripper) (*http.Response, error) {
		if op.replay != nil {
			op.replay.setLimit(limit)
		}
		return next.RoundTrip(req)
	}), nil
}

// keepBody has the body of a starting operation kept for replay where the
// request brings no GetBody. req is the operation's own copy.
func (op *Operation) keepBody(req *http.Request, limit int64) {
	if !hasBody(req) || req.GetBody != nil {
		return
	}
	op.replay = &replay{src: req.Body, length: req.ContentLength, limit: limit}
	req.Body, _ = op.replay.again()
	req.GetBody = op.replay.again
}

func hasBody(req *http.Request) bool { return req.Body != nil && req.Body != http.NoBody }

// canReplay is the last of the loop's four checks.
func (op *Operation) canReplay(req *http.Request) bool {
	if !hasBody(req) {
		return true
	}
	return req.GetBody != nil && (op.replay == nil || op.replay.ready())
}

// replayed returns a copy of req with a body of its own. net/http may still be
// reading the last attempt's body and request after RoundTrip has returned, so
// neither is used twice.
func replayed(req *http.Request) (*http.Request, error) {
	again := *req
	if hasBody(req) {
		body, err := req.GetBody()
		if err != nil {
			return nil, err
		}
		again.Body = body
	}
	return &again, nil
}

// replay keeps a body while it is first sent and hands it out again. Only one
// reader is live: handing out the next detaches the one before.
type replay struct {
	mu       sync.Mutex
	src      io.ReadCloser
	length   int64 // as announced, -1 = not
	limit    int64
	kept     []byte
	end      error // io.EOF or the source's failure, once seen
	overflow bool  // grew beyond limit: the live reader is the only one ever
	reading  bool  // a Read of src is under way
	live     *replayReader
	finished bool // the operation is over: no reader follows
	closed   bool
}

type replayReader struct {
	body     *replay
	pos      int
	detached bool
	closed   bool
}

func (b *replay) setLimit(limit int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.limit = limit
	if int64(len(b.kept)) > limit {
		b.overflow, b.kept = true, nil
	}
}

// ready reports whether another reader could be handed out now.
func (b *replay) ready() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.available()
}

func (b *replay) available() bool {
	if b.live == nil {
		return true
	}
	return !b.overflow && b.length <= b.limit && !b.reading && !b.closed && (b.end == nil || b.end == io.EOF)
}

// again is the GetBody of the operation's request.
func (b *replay) again() (io.ReadCloser, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.available() {
		return nil, ErrBodyNotReplayable
	}
	if b.live != nil {
		b.live.detached = true
	}
	b.live = &replayReader{body: b}
	return b.live, nil
}

// finish closes the source unless the transport still reads it, in which case
// the transport's own Close will.
func (b *replay) finish() {
	b.mu.Lock()
	b.finished = true
	idle := b.live == nil || b.live.closed
	b.mu.Unlock()
	if idle {
		b.closeSource()
	}
}

func (b *replay) closeSource() {
	b.mu.Lock()
	first := !b.closed
	b.closed = true
	b.mu.Unlock()
	if first {
		_ = b.src.Close()
	}
}

func (r *replayReader) Read(p []byte) (int, error) {
	b := r.body
	b.mu.Lock()
	switch {
	case r.detached || r.closed:
		b.mu.Unlock()
		return 0, http.ErrBodyReadAfterClose
	case r.pos < len(b.kept):
		n := copy(p, b.kept[r.pos:])
		r.pos += n
		b.mu.Unlock()
		return n, nil
	case b.end != nil:
		err := b.end
		b.mu.Unlock()
		return 0, err
	}
	b.reading = true
	b.mu.Unlock()

	n, err := b.src.Read(p) // not under the lock: it may block

	b.mu.Lock()
	defer b.mu.Unlock()
	b.reading = false
	b.end = err
	if !b.overflow && (b.length > b.limit || int64(len(b.kept)+n) > b.limit) {
		b.overflow, b.kept = true, nil
	}
	if !b.overflow {
		b.kept = append(b.kept, p[:n]...)
		r.pos += n
	}
	return n, err
}

func (r *replayReader) Close() error {
	b := r.body
	b.mu.Lock()
	r.closed = true
	last := !r.detached && (b.finished || b.overflow)
	b.mu.Unlock()
	if last {
		b.closeSource()
	}
	return nil
}

const (
	drainBytes = 64 << 10
	drainTime  = 50 * time.Millisecond
)

// discard disposes of an answer that will not be returned: a short body is read
// to its end so that the connection can serve again, anything else is cut off.
// The timer guards against a body that never ends; it closes from another
// goroutine, which the bodies of net/http allow.
func discard(resp *http.Response) {
	defer resp.Body.Close()
	if resp.ContentLength > drainBytes || resp.ProtoMajor >= 2 || resp.Body == http.NoBody {
		return // HTTP/2 streams are reset without harm to the connection
	}
	if resp.ContentLength == 0 {
		return
	}
	timer := time.AfterFunc(drainTime, func() { _ = resp.Body.Close() })
	defer timer.Stop()
	_, _ = io.CopyN(io.Discard, resp.Body, drainBytes+1)
}

// ForbidTransportReplay keeps net/http from sending the operation's requests
// again by itself when a kept-alive connection turns out dead: without GetBody
// it cannot. Requests without a body are not affected.
func (op *Operation) ForbidTransportReplay() {
	op.mu.Lock()
	defer op.mu.Unlock()
	op.sendOnce = true
}
