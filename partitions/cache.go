package partitions

import (
	"context"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
)

// cache holds the containers by name. There are few and they rarely change, so the map is copied for each change and read
// without a lock.
type cache struct {
	cfg   Config
	moved func(old, new *routing)

	containers atomic.Pointer[map[string]*container]

	mu     sync.Mutex // orders changes of the map; only for moments
	closed bool
}

func newCache(cfg Config, moved func(old, new *routing)) *cache {
	c := &cache{cfg: cfg, moved: moved}
	c.containers.Store(&map[string]*container{})
	return c
}

// container returns the one with this name, making room for it if it is new.
func (c *cache) container(name string) *container {
	if known := (*c.containers.Load())[name]; known != nil {
		if !known.used.Load() {
			known.used.Store(true)
		}
		return known
	}
	added, evicted := c.add(name)
	if evicted != nil {
		evicted.close()
		c.moved(evicted.held.Load(), nil)
	}
	return added
}

func (c *cache) add(name string) (added, evicted *container) {
	c.mu.Lock()
	defer c.mu.Unlock()
	old := *c.containers.Load()
	if known := old[name]; known != nil {
		return known, nil
	}
	next := make(map[string]*container, len(old)+1)
	maps.Copy(next, old)
	if len(old) >= c.cfg.MaxContainers {
		evicted = unused(old)
		delete(next, evicted.name)
	}
	added = newContainer(strings.Clone(name), &c.cfg, c.moved)
	if c.closed {
		added.close()
	}
	next[added.name] = added
	c.containers.Store(&next)
	return added, evicted
}

// unused picks a container to make room, first of all one that was used only once.
func unused(containers map[string]*container) (pick *container) {
	for _, pick = range containers {
		if !pick.used.Load() {
			return pick
		}
	}
	for _, one := range containers {
		one.used.Store(false)
	}
	return pick
}

func (c *cache) close() {
	c.mu.Lock()
	c.closed = true
	containers := *c.containers.Load()
	c.mu.Unlock()
	for _, one := range containers {
		one.close()
	}
}

func (c *cache) refresh(ctx context.Context, name string, seen *routing) (*routing, error) {
	return c.container(name).held.Refresh(ctx, seen)
}

func (c *cache) refreshContainer(ctx context.Context, name string, seen *routing) error {
	return c.container(name).refresh(ctx, seen)
}

func (c *cache) suspect(name string, seen *routing) {
	if one := c.container(name); one.held.Load() == seen && one.mayDoubt() {
		one.held.Trigger(seen)
	}
}

// unexpected returns newer routing than seen if there is some, or if it is time to ask.
func (c *cache) unexpected(ctx context.Context, name string, seen *routing) (*routing, error) {
	one := c.container(name)
	if v := one.held.Load(); v != nil && v != seen {
		return v, nil
	}
	if !one.mayDoubt() {
		return seen, nil
	}
	return one.held.Refresh(ctx, seen)
}
