package partitions

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/reroute-go/reroute/regions"
	"github.com/reroute-go/reroute/regions/snapshot"
)

const (
	// doubtInterval is the time between two reads that answers ask for by being unexpected. They may be so for good.
	doubtInterval = 5 * time.Second
	// patience is how many failures are followed by no pause. Then operations go on without their partition, for
	// outage after each further failure, instead of each waiting for one more.
	patience = 3
	outage   = time.Second
)

// routing is one state of a container. It does not change.
type routing struct {
	container *Container
	ranges    *Map
}

func (v *routing) rid() string            { return v.container.RID }
func (v *routing) definition() Definition { return v.container.Definition }

// container keeps the routing of one container.
type container struct {
	name  string
	cfg   *Config
	start time.Time
	used  atomic.Bool // again since it was added, or since the last time that all had been

	properties snapshot.Holder[Container]
	held       snapshot.Holder[routing]

	feed     atomic.Pointer[feed]
	failure  atomic.Pointer[failure]
	failures atomic.Int32 // Transient ones
	doubted  atomic.Int64 // when a read was last asked for in doubt, since start
}

// feed is how far the feed of ranges was read.
type feed struct {
	routing      *routing // what came of it
	continuation string
	region       regions.Name // where the continuation means something
}

// failure is what operations without routing are told while it is fresh.
type failure struct {
	err   error
	until time.Time
}

func newContainer(name string, cfg *Config, moved func(old, new *routing)) *container {
	c := &container{name: name, cfg: cfg, start: time.Now()}
	c.properties.Fetch = c.fetchProperties
	c.properties.MaxWait = cfg.FetchTimeout // a read of ranges waits for it
	pace(&c.properties, cfg)
	c.held.Fetch = c.fetchRouting
	c.held.OnChange = moved
	c.held.MaxWait = cfg.RefreshWait
	pace(&c.held, cfg)
	return c
}

func pace[T any](h *snapshot.Holder[T], cfg *Config) {
	h.Timeout, h.Interval, h.Delay = cfg.FetchTimeout, cfg.RefreshInterval, true
	h.FailureGrace, h.FailureDelay, h.MaxFailureDelay = patience, cfg.RefreshInterval, outage
}

// resolve returns what is held, however stale, or reads it.
func (c *container) resolve(ctx context.Context) (*routing, error) {
	if v := c.held.Load(); v != nil {
		return v, nil
	}
	if f := c.failure.Load(); f != nil && time.Now().Before(f.until) {
		return nil, f.err
	}
	asked := time.Now()
	limited, cancel := withHalf(ctx)
	defer cancel()
	v, err := c.held.Refresh(limited, nil)
	if v != nil {
		return v, nil
	}
	if limited.Err() != nil && ctx.Err() == nil {
		err = snapshot.ErrMaxWait
	}
	if errors.Is(err, snapshot.ErrMaxWait) {
		// One was kept long enough. While the read hangs, the next go on without it for as long.
		c.failure.Store(&failure{err: err, until: time.Now().Add(time.Since(asked))})
	}
	return nil, err
}

// withHalf leaves half of what time there is for the operation itself, which can do without its partition.
func withHalf(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, time.Until(deadline)/2)
}

// refresh is renew within RefreshWait.
func (c *container) refresh(ctx context.Context, seen *routing) error {
	limited, cancel := context.WithTimeout(ctx, c.cfg.RefreshWait)
	defer cancel()
	err := c.renew(limited, seen)
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		return snapshot.ErrMaxWait
	}
	return err
}

// renew reads the properties, unless they are newer than seen, and then the ranges if that changed them.
func (c *container) renew(ctx context.Context, seen *routing) error {
	var stale *Container
	if seen != nil {
		stale = seen.container
	}
	properties, err := c.properties.Refresh(ctx, stale)
	if err != nil {
		return err
	}
	// A read of ranges that had begun before belongs to the properties of that time.
	for range 3 {
		v := c.held.Load()
		if v != nil && v.container == properties {
			return nil
		}
		if _, err := c.held.Refresh(ctx, v); err != nil {
			return err
		}
	}
	return nil
}

// mayDoubt is true once in doubtInterval.
func (c *container) mayDoubt() bool {
	now := time.Since(c.start) + 1
	last := c.doubted.Load()
	return (last == 0 || now-time.Duration(last) >= doubtInterval) && c.doubted.CompareAndSwap(last, int64(now))
}

// remember notes a failed read for those who have no routing. Once there is some it stays, so no success takes it back.
func (c *container) remember(err error) {
	var keep time.Duration
	switch kindOf(err) {
	case Absent, Forbidden:
		keep = c.cfg.NegativeTTL
	case Transient:
		if c.failures.Add(1) > patience {
			keep = outage
		}
	}
	if keep > 0 {
		c.failure.Store(&failure{err: err, until: time.Now().Add(keep)})
	}
}

func (c *container) close() {
	c.properties.Close()
	c.held.Close()
}
