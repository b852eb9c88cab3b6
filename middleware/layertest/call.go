package layertest

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"runtime/debug"
	"time"
)

// call is one RoundTrip under way, or over.
type call struct {
	t        *trial
	rt       http.RoundTripper
	req      *http.Request
	done     chan struct{}
	cancel   context.CancelFunc
	begun    time.Time
	elapsed  time.Duration
	resp     *http.Response
	err      error
	panicked any
	stack    []byte // of the panic
	body     string // of the answer, once finished
	readErr  error
	hung     bool
}

// newCall readies a call. The request's context is made cancellable.
func (t *trial) newCall(rt http.RoundTripper, req *http.Request) *call {
	ctx, cancel := context.WithCancel(req.Context())
	return &call{t: t, rt: rt, req: req.WithContext(ctx), cancel: cancel, done: make(chan struct{})}
}

// start runs RoundTrip in a goroutine, so that one that hangs can be given up.
func (c *call) start() *call {
	c.begun = time.Now()
	go func() {
		defer close(c.done)
		defer func() {
			c.elapsed = time.Since(c.begun)
			if c.panicked = recover(); c.panicked != nil {
				c.stack = debug.Stack()
			}
		}()
		c.resp, c.err = c.rt.RoundTrip(c.req)
	}()
	return c
}

// wait waits for RoundTrip to return. One that does not in time is cancelled;
// one that heeds not even that is given up.
func (c *call) wait() *call {
	if !c.within(c.t.limit()) {
		c.hung = true
		c.cancel()
		c.within(2 * c.t.limit())
	}
	return c
}

func (c *call) within(limit time.Duration) bool { return within(c.done, limit) }

// within waits for done, and reports whether it came in time.
func within(done <-chan struct{}, limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

// answered reports whether there is an answer to read.
func (c *call) answered() bool { return c.over() && c.resp != nil && c.resp.Body != nil }

// over reports whether RoundTrip has returned.
func (c *call) over() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// call is start and wait. Not returning breaks whatever promise was checked.
func (t *trial) call(rt http.RoundTripper, req *http.Request) *call {
	c := t.newCall(rt, req).start().wait()
	if c.hung {
		t.breakf("%s", t.tooLong())
	}
	return c
}

// finish reads the answer to its end and closes it, as a good caller does.
func (c *call) finish() {
	defer c.cancel()
	if !c.answered() {
		return
	}
	defer c.resp.Body.Close()
	var buf bytes.Buffer
	_, c.readErr = buf.ReadFrom(io.LimitReader(c.resp.Body, 8<<20))
	c.body = buf.String()
}

// closeWithin closes, and reports whether that returned in time.
func closeWithin(body io.Closer, limit time.Duration) bool {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		body.Close()
	}()
	return within(closed, limit)
}
