package roundtrippers

import (
	"net/http"
	"slices"
	"time"
)

// succeeded notes an answer, whatever it says.
func (e *endpointPools) succeeded(c *pool, resp *http.Response) {
	if multiplexed := resp.ProtoMajor >= 2; e.multiplexed.Load() != multiplexed {
		e.multiplexed.Store(multiplexed)
	}
	if c.failures.Load() != 0 {
		c.failures.Store(0)
	}
	if !c.proven.Load() {
		c.proven.Store(true)
	}
	c.succeeded.Store(e.now())
}

// failed notes a failure and reports whether a pool was replaced for it.
func (e *endpointPools) failed(c *pool) bool {
	now := e.now()
	c.touched.Store(now)
	e.failures.Add(1)
	if c.failures.Add(1) < e.maxFailures || now-c.succeeded.Load() < e.grace {
		return false
	}
	return e.replace(c)
}

// replace gives a pool up because c keeps failing, and reports whether it did.
func (e *endpointPools) replace(c *pool) bool {
	var spare *pool // opened here, without a lock, and perhaps in vain
	for {
		set := e.set.Load()
		victim, refill := e.victim(set, c)
		if victim == nil {
			spare.close()
			return false
		}
		next := set.without(victim, e.maxPools)
		if refill {
			if spare == nil {
				if spare = e.newPool(); spare == nil {
					return false
				}
			}
			next.active = append(next.active, spare)
		}
		if e.set.CompareAndSwap(set, next) {
			if !refill {
				spare.close()
			}
			victim.retire()
			e.replaced.Add(1)
			return true
		}
	}
}

// victim says which pool to give up now that c keeps failing: c itself where
// another one is known to work; the worst of all, for a new one, where none
// does; and nothing while a new one is still to show whether it works.
func (e *endpointPools) victim(set *poolSet, c *pool) (victim *pool, refill bool) {
	if !slices.Contains(set.active, c) {
		return nil, false
	}
	worst, untried := c, false
	for _, other := range set.active {
		failures := other.failures.Load()
		switch {
		case other != c && failures < e.maxFailures && other.proven.Load():
			return c, false
		case other != c && failures < e.maxFailures:
			untried = true
		case failures > worst.failures.Load():
			worst = other
		}
	}
	if untried {
		return nil, false
	}
	return worst, true
}

// without moves c to the retired ones, of which only the newest are kept.
func (s *poolSet) without(c *pool, limit int) *poolSet {
	next := &poolSet{active: make([]*pool, 0, len(s.active))}
	for _, a := range s.active {
		if a != c {
			next.active = append(next.active, a)
		}
	}
	next.retired = append(slices.Clone(s.retired), c)
	if n := len(next.retired) - limit; n > 0 {
		next.retired = next.retired[n:]
	}
	return next
}

// tidy closes surplus pools that idle, and forgets retired ones, now and then.
// It runs only where there is more than one pool.
func (e *endpointPools) tidy() {
	now, last := e.now(), e.tidied.Load()
	if now-last < e.idleAfter/8 || !e.tidied.nanos.CompareAndSwap(int64(last), int64(now)) {
		return
	}
	set := e.set.Load()
	next := &poolSet{}
	kept := set.least(nil)
	var idle, left []*pool
	for _, c := range set.active {
		if c != kept && c.idle(now, e.idleAfter) {
			idle = append(idle, c)
		} else {
			next.active = append(next.active, c)
		}
	}
	for _, c := range set.retired {
		if c.idle(now, 2*e.idleAfter) {
			left = append(left, c)
		} else {
			next.retired = append(next.retired, c)
		}
	}
	next.retired = append(next.retired, idle...)
	if len(idle)+len(left) == 0 || !e.set.CompareAndSwap(set, next) {
		return
	}
	for _, c := range idle {
		c.retire()
	}
	for _, c := range left {
		c.close()
	}
}

// use reports whether anything is in flight, and when the endpoint was last used.
func (e *endpointPools) use() (busy bool, last time.Duration) {
	for _, c := range e.set.Load().active {
		busy = busy || c.inFlight.Load() > 0
		last = max(last, c.lastUsed())
	}
	return busy, last
}

func (e *endpointPools) retireAll() {
	set := e.set.Load()
	for _, c := range slices.Concat(set.active, set.retired) {
		c.retire()
	}
}
