package middleware

import (
	"errors"
	"fmt"
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
		return nil, fmt.Errorf("MaxBytes is %d, want >= -1", limit)
	case limit == 0:
		limit = defaultReplayBytes
	}
	return Relay(next, nil, func(op *Operation, req *http.Request, next http.RoundTripper) (*http.Response, error) {
		if op.replay != nil {
			op.replay.setLimit(limit)
		}
		return next.RoundTrip(req)
	}), nil
}

// keepBody makes the body of a starting operation replayable. req is the
// operation's own copy.
func (op *Operation) keepBody(req *http.Request, limit int64) {
	if !hasBody(req) {
		return
	}
	op.replay = newReplay(req, limit)
	req.Body = &op.replay.first
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
	buffer, _ := drainBuffers.Get().(*[4 << 10]byte)
	for read, n := 0, 0; read <= drainBytes; read += n {
		var err error
		if n, err = resp.Body.Read(buffer[:min(len(buffer), drainBytes+1-read)]); err != nil {
			break
		}
	}
	drainBuffers.Put(buffer)
}

// drainBuffers saves the allocation that io.CopyN makes, a third of what a
// re-send may cost (DESIGN 5).
var drainBuffers = sync.Pool{New: func() any { return new([4 << 10]byte) }}

// ForbidTransportReplay keeps net/http from sending the operation's requests
// again by itself when a kept-alive connection turns out dead: without GetBody
// it cannot. Requests without a body are not affected.
func (op *Operation) ForbidTransportReplay() {
	op.set(sendOnce)
}
