package roundtrippers

import (
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/reroute-go/reroute/internal/check"
	"github.com/reroute-go/reroute/middleware"
)

// endpointPools are the pools of one endpoint.
type endpointPools struct {
	key              poolKey
	build            func() http.RoundTripper
	streams          int64
	maxPools         int
	maxFailures      int64
	grace, idleAfter time.Duration
	epoch            time.Time

	set atomic.Pointer[poolSet]
	// multiplexed is set when the endpoint speaks HTTP/2: only then does a pool
	// mean one connection.
	multiplexed atomic.Bool
	tidied      poolTime

	failures, canceled, replaced atomic.Int64
}

// poolSet is an immutable snapshot; active is never empty.
type poolSet struct {
	active []*pool
	// retired pools are kept for a while, to be closed again: see pool.close.
	retired []*pool
}

func (e *endpointPools) now() time.Duration { return time.Since(e.epoch) }

// newPool opens a pool, nil if New gives none.
func (e *endpointPools) newPool() *pool {
	transport := e.build()
	if check.IsNil(transport) {
		return nil
	}
	c := &pool{home: e, transport: transport}
	c.succeeded.Store(e.now())
	return c
}

// acquire reserves a place for one request. It never waits.
func (e *endpointPools) acquire(op *middleware.Operation) *pool {
	failed, another, fresh := e.failedOn(op)
	set := e.set.Load()
	if !another && len(set.active) == 1 && len(set.retired) == 0 && e.take(set.active[0]) {
		return set.active[0]
	}
	e.tidy()
	var spare *pool // opened here, without a lock, and perhaps in vain
	for {
		set = e.set.Load()
		if !fresh {
			if c := e.pick(set, failed, another); c != nil {
				if !e.take(c) {
					continue // somebody was faster
				}
				spare.close()
				return c
			}
		}
		grow := e.mayGrow(set, another)
		if grow && spare == nil {
			if spare = e.newPool(); spare != nil {
				spare.inFlight.Store(1)
			}
		}
		if !grow || spare == nil {
			spare.close()
			c := set.least(failed)
			c.inFlight.Add(1)
			return c
		}
		if e.set.CompareAndSwap(set, set.with(spare)) {
			return spare
		}
	}
}

// take reserves a place on c, over HTTP/2 unless it is full.
func (e *endpointPools) take(c *pool) bool {
	if !e.multiplexed.Load() {
		c.inFlight.Add(1)
		return true
	}
	return c.reserve(e.streams)
}

// mayGrow reports whether a pool may be added. A wish for another pool adds none
// to an endpoint where two new ones have failed: that is the endpoint's fault,
// and more would be opened in vain.
func (e *endpointPools) mayGrow(set *poolSet, another bool) bool {
	if len(set.active) >= e.maxPools {
		return false
	}
	duds := 0
	for _, c := range set.active {
		if !c.proven.Load() && c.failures.Load() > 0 {
			duds++
		}
	}
	return !another || duds < 2
}

// pick chooses a pool with a place, nil if there is none: over HTTP/1.1 the
// first, over HTTP/2 the one with the least in flight among as many as the load
// needs, so that the rest can idle and be closed.
func (e *endpointPools) pick(set *poolSet, failed []*pool, another bool) *pool {
	multiplexed := e.multiplexed.Load()
	// A connection of HTTP/1.1 that failed is gone and its pool as good as
	// before; one of HTTP/2 may still be there.
	tolerated := int64(1)
	if !multiplexed && !another {
		tolerated = e.maxFailures
	}
	well := func(c *pool) bool { return c.failures.Load() < tolerated && !slices.Contains(failed, c) }
	var n, load int64
	var best *pool
	for _, c := range set.active {
		if well(c) {
			n++
			load += c.inFlight.Load()
			if best == nil {
				best = c
			}
		}
	}
	switch {
	case n == 0 && another:
		return nil
	case n == 0: // all are failing: any may be the first to recover
		best = set.least(nil)
	case multiplexed:
		best = leastOf(set.active, well, min(load/e.streams+1, n))
	}
	if best == nil || multiplexed && best.inFlight.Load() >= e.streams {
		return nil
	}
	return best
}

// leastOf returns the pool with the least in flight among the first n that are
// well, nil if none is any more.
func leastOf(active []*pool, well func(*pool) bool, n int64) (best *pool) {
	for _, c := range active {
		if n == 0 {
			break
		}
		if well(c) {
			n--
			if best == nil || c.inFlight.Load() < best.inFlight.Load() {
				best = c
			}
		}
	}
	return best
}

// least returns the pool with the least in flight, rather one that has not
// failed this operation and does not fail now.
func (s *poolSet) least(failed []*pool) *pool {
	rank := func(c *pool) int64 {
		r := c.inFlight.Load()
		if c.failures.Load() > 0 {
			r += 1 << 40
		}
		if slices.Contains(failed, c) {
			r += 1 << 41
		}
		return r
	}
	best, bestRank := s.active[0], rank(s.active[0])
	for _, c := range s.active[1:] {
		if r := rank(c); r < bestRank {
			best, bestRank = c, r
		}
	}
	return best
}

func (s *poolSet) with(c *pool) *poolSet {
	active := make([]*pool, len(s.active), len(s.active)+1)
	copy(active, s.active)
	return &poolSet{active: append(active, c), retired: s.retired}
}
