package partitions

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// maxRanges bounds a feed. The largest containers have some ten thousand ranges.
const maxRanges = 1 << 18

// maxParents bounds the names of parents in a feed, and the ranges that a map remembers as gone.
const maxParents = 4 * maxRanges

func (c *container) fetchProperties(ctx context.Context, old *Container) (*Container, error) {
	properties, err := c.cfg.Source.Container(ctx, c.name)
	if err == nil && properties.RID == "" {
		err = errors.New("partitions: Source gave a container without RID")
	}
	if err == nil {
		_, _, err = properties.Definition.resolve()
	}
	if err != nil {
		c.remember(err)
		return nil, err
	}
	if old != nil && *old == properties {
		return old, nil
	}
	return &properties, nil
}

func (c *container) fetchRouting(ctx context.Context, old *routing) (*routing, error) {
	next, at, err := c.read(ctx, old)
	if err != nil {
		c.feed.Store(nil) // what was read last may be what is wrong
		c.remember(err)
		return nil, err
	}
	if old != nil && *old == *next {
		next = old
	}
	at.routing = next
	c.feed.Store(at)
	return next, nil
}

// read reads what is new, or everything.
func (c *container) read(ctx context.Context, old *routing) (*routing, *feed, error) {
	properties := c.properties.Load()
	if properties == nil {
		var err error
		if properties, err = c.properties.Refresh(ctx, nil); err != nil {
			return nil, nil, err
		}
	}
	if at := c.feed.Load(); at != nil && at.continuation != "" && old != nil && at.routing == old && old.rid() == properties.RID {
		delta, next, err := c.drain(ctx, at)
		if err == nil {
			var ranges *Map
			// What is gone only grows from one delta to the next: at some time everything is read again.
			if ranges, err = old.ranges.Combine(delta); err == nil && len(ranges.gone) <= maxParents {
				return &routing{container: properties, ranges: ranges}, next, nil
			}
		}
		if ctx.Err() != nil {
			return nil, nil, err
		}
		// Whatever went wrong can come of the continuation or its region: once without both.
	}
	ranges, next, err := c.readAll(ctx)
	if err != nil {
		return nil, nil, err
	}
	return &routing{container: properties, ranges: ranges}, next, nil
}

// readAll reads everything, again while it is not complete: for a moment of a split, the parent is gone from the feed and
// a child not yet in it.
func (c *container) readAll(ctx context.Context) (*Map, *feed, error) {
	wait := c.cfg.IncompleteBackoff
	for retries := 0; ; retries++ {
		all, next, err := c.drain(ctx, &feed{})
		if err != nil {
			return nil, nil, err
		}
		ranges, err := NewMap(all)
		if err == nil {
			return ranges, next, nil
		}
		if len(all) == 0 || errors.Is(err, ErrMalformedRange) || retries == c.cfg.IncompleteRetries {
			return nil, nil, fmt.Errorf("partitions: %d ranges of container %q, read %d times: %w", len(all), clip(c.name), retries+1, err)
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, nil, err
		}
		wait *= 2
	}
}

// drain reads the feed from a continuation to its end: the page that says so, or one that brings no range that was not
// there before, because a server that never says so must not hold us for ever. The ranges are unjudged, but copies
// replace each other.
func (c *container) drain(ctx context.Context, from *feed) ([]Range, *feed, error) {
	at := &feed{continuation: from.continuation, region: from.region}
	var all []Range
	parents := 0
	type copies struct {
		id       string
		min, max Key
	}
	place := make(map[copies]int)
	for {
		page, err := c.cfg.Source.RangePage(ctx, c.name, at.continuation, at.region)
		if err != nil {
			return nil, nil, err
		}
		if page.Continuation != "" {
			at.continuation = page.Continuation
		}
		if at.region == "" {
			at.region = page.Region
		}
		if page.Unchanged {
			return all, at, nil
		}
		before := len(all)
		for _, r := range page.Ranges {
			parents += len(r.Parents)
			if i, copied := place[copies{r.ID, r.Min, r.Max}]; copied {
				all[i] = r
				continue
			}
			place[copies{r.ID, r.Min, r.Max}] = len(all)
			all = append(all, r)
		}
		if len(all) == before {
			return all, at, nil
		}
		if len(all) > maxRanges || parents > maxParents {
			return nil, nil, fmt.Errorf("partitions: container %q has more than %d ranges, or %d parents of them", clip(c.name), maxRanges, maxParents)
		}
	}
}
