package ownershiptest

import (
	"time"

	"github.com/reroute-go/reroute/middleware/ownership"
)

// Move gives the segment of key to node to, at once. The old owner answers Moved.
func (c *Cluster) Move(key, to string) { c.MoveSegment(c.Segment(key), to) }

// MoveSegment is Move by number.
func (c *Cluster) MoveSegment(number int, to string) {
	n := c.find(to)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.give(number, n)
}

// Migrate holds the writes of key's segment for d, with Migrating, and then gives
// it to node to.
func (c *Cluster) Migrate(key, to string, d time.Duration) {
	c.over(c.Segment(key), to, ownership.Migrating, d)
}

// HandOff rejects all that concerns key's segment for d, with OwnershipChanging,
// and then gives it to node to.
func (c *Cluster) HandOff(key, to string, d time.Duration) {
	c.over(c.Segment(key), to, ownership.OwnershipChanging, d)
}

// MigrateSegment is Migrate by number.
func (c *Cluster) MigrateSegment(number int, to string, d time.Duration) {
	c.over(number, to, ownership.Migrating, d)
}

// HandOffSegment is HandOff by number.
func (c *Cluster) HandOffSegment(number int, to string, d time.Duration) {
	c.over(number, to, ownership.OwnershipChanging, d)
}

// Promote has key's replica and owner change places. The old owner answers writes
// with ReplicaWriteRejected and still serves reads.
func (c *Cluster) Promote(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := &c.segments[c.Segment(key)]
	if s.replica == nil {
		return
	}
	s.owner, s.replica = s.replica, s.owner
	c.epoch++
}

// Fail stops a node: connections are refused, and those that are open are cut.
// The map still names it, until FailOver.
func (c *Cluster) Fail(name string) { c.find(name).down() }

// FailOver gives all segments of a node to their replicas, and to nobody where
// there is none that is up. Every such segment gets a new replica.
func (c *Cluster) FailOver(name string) {
	dead := c.find(name)
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.segments {
		s := &c.segments[i]
		if s.owner == dead {
			s.end(c)
			s.owner, s.replica = s.replica, nil
			if s.owner != nil && !s.owner.isUp() {
				s.owner = nil
			}
		}
		if s.replica == nil || s.replica == dead {
			s.replica = c.spare(i, s.owner, dead)
		}
	}
	c.epoch++
}

// spare returns a node that is up and none of the others.
func (c *Cluster) spare(from int, others ...*node) *node {
	for i := range c.nodes {
		n := c.nodes[(from+i)%len(c.nodes)]
		free := n.isUp()
		for _, o := range others {
			free = free && n != o
		}
		if free {
			return n
		}
	}
	return nil
}

// Recover starts a node again at its old address. It owns what the map says it
// owns, which is nothing after FailOver.
func (c *Cluster) Recover(name string) error {
	n := c.find(name)
	if !c.cfg.InMemory {
		if err := n.listen(); err != nil {
			return err
		}
	}
	n.up()
	return nil
}

// Orphan leaves key's segment without an owner: every node answers Unavailable.
func (c *Cluster) Orphan(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.give(c.Segment(key), nil)
}

// LoseAnswers has the next n writes of key that are carried out go unanswered:
// the connection is cut.
func (c *Cluster) LoseAnswers(key string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lose[key] = n
}

// give changes the owner. Called with mu held.
func (c *Cluster) give(number int, to *node) {
	s := &c.segments[number]
	s.end(c)
	if s.owner == to {
		return
	}
	if s.replica == to {
		s.replica = c.spare(number, to, s.owner)
	}
	s.owner = to
	c.epoch++
}

// over puts a segment into a state for d and gives it away then.
func (c *Cluster) over(number int, to string, state ownership.Status, d time.Duration) {
	n := c.find(to)
	c.mu.Lock()
	defer c.mu.Unlock()
	s := &c.segments[number]
	s.end(c)
	if c.closed {
		return
	}
	s.state = state
	var timer *time.Timer
	timer = time.AfterFunc(d, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if s.next == timer && !c.closed { // nobody else has given it away since
			c.give(number, n)
		}
	})
	s.next = timer
	c.timers[timer] = struct{}{}
}

// end ends the segment's state. Called with mu held.
func (s *segment) end(c *Cluster) {
	s.state = ownership.Other
	if s.next != nil {
		s.next.Stop()
		delete(c.timers, s.next)
		s.next = nil
	}
}
