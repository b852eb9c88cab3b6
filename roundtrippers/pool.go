package roundtrippers

import (
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/reroute-go/reroute/middleware"
)

// pool is one connection pool of an endpoint and how it has been doing. Its
// times are counted from the epoch of the Pools.
type pool struct {
	home      *endpointPools
	transport http.RoundTripper

	inFlight  atomic.Int64
	failures  atomic.Int64 // in a row
	proven    atomic.Bool  // has answered at least once
	retired   atomic.Bool  // no longer chosen
	succeeded poolTime     // last success, or when it was opened
	touched   poolTime     // last end of any other kind
}

type poolTime struct{ nanos atomic.Int64 }

func (t *poolTime) Load() time.Duration   { return time.Duration(t.nanos.Load()) }
func (t *poolTime) Store(d time.Duration) { t.nanos.Store(int64(d)) }

// reserve takes a place among at most limit.
func (c *pool) reserve(limit int64) bool {
	for {
		n := c.inFlight.Load()
		if n >= limit {
			return false
		}
		if c.inFlight.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// release gives the place back; the last one out of a retired pool closes it.
func (c *pool) release() {
	if c.inFlight.Add(-1) == 0 && c.retired.Load() {
		c.close()
	}
}

// retire has the pool closed now, or by the last request in flight. A request
// that chose it just before still gets through, and closes it again.
func (c *pool) retire() {
	c.retired.Store(true)
	if c.inFlight.Load() == 0 {
		c.close()
	}
}

// close closes what idles; a nil pool has nothing to close. An HTTP/1.1 connection whose answer is still being
// read is closed by net/http when that is done, as nothing is sent any more; an
// HTTP/2 connection by a later close or its own idle limit.
func (c *pool) close() {
	if c == nil {
		return
	}
	if idle, ok := c.transport.(interface{ CloseIdleConnections() }); ok {
		idle.CloseIdleConnections()
	}
}

func (c *pool) lastUsed() time.Duration { return max(c.succeeded.Load(), c.touched.Load()) }

// idle reports whether the pool has been unused for so long.
func (c *pool) idle(now, after time.Duration) bool {
	return c.inFlight.Load() == 0 && now-c.lastUsed() >= after
}

// poolError is how an operation remembers the pools it failed on: through its
// attempt log, so that healthy operations pay nothing.
type poolError struct {
	pool *pool
	err  error
}

func (e *poolError) Error() string { return e.err.Error() }

// Unwrap returns the transport's error.
func (e *poolError) Unwrap() error { return e.err }

// Timeout and Temporary keep it the net.Error that it was.
func (e *poolError) Timeout() bool {
	var t interface{ Timeout() bool }
	return errors.As(e.err, &t) && t.Timeout()
}

func (e *poolError) Temporary() bool {
	var t interface{ Temporary() bool }
	return errors.As(e.err, &t) && t.Temporary()
}

// failedOn returns the pools of home that op has failed on, and whether it asks
// for another one. If it asked more often than it failed, somebody wants to get
// away from an answer: which pool gave it is not recorded, so that only a new one
// is certainly another.
func (e *endpointPools) failedOn(op *middleware.Operation) (failed []*pool, another, fresh bool) {
	if op == nil {
		return nil, false, false
	}
	asked := op.Pool()
	if asked == 0 {
		return nil, false, false
	}
	known := 0
	for _, a := range op.Report().Attempts {
		var failure *poolError
		if !errors.As(a.Err, &failure) {
			continue
		}
		known++
		if failure.pool.home == e {
			failed = append(failed, failure.pool)
		}
	}
	fresh = asked > known
	return failed, fresh || len(failed) > 0, fresh
}
