package regions

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reroute-go/reroute/internal/check"
	"github.com/reroute-go/reroute/regions/snapshot"
)

// maxHosts bounds what is remembered of hosts that left the topology.
const maxHosts = 1024

// Source tells the topology. A Source that needs several tries or several addresses makes them itself.
type Source interface {
	// Fetch returns the topology as it is now; old is the one held, nil at first, and may be returned for "unchanged". It
	// must not change old. ctx ends with Config.FetchTimeout or Close, never with an operation.
	Fetch(ctx context.Context, old *Topology) (*Topology, error)
}

// SourceFunc is a function that is a Source.
type SourceFunc func(ctx context.Context, old *Topology) (*Topology, error)

// Fetch calls f.
func (f SourceFunc) Fetch(ctx context.Context, old *Topology) (*Topology, error) { return f(ctx, old) }

// Config configures a Registry. Zero values are the defaults named at each field; New refuses negative ones.
type Config struct {
	Source    Source // required; one with a method Validate() error is asked by New
	Preferred []Name // order of preference; unknown regions are skipped. None: account order

	RefreshInterval    time.Duration // from a successful fetch to the next one: 5 s
	BackgroundInterval time.Duration // between the refreshes of Run: 5 min
	FetchTimeout       time.Duration // of one fetch: 30 s
	RefreshWait        time.Duration // one Refresh waits so long for a fetch and goes on without it: 15 s
	MarkFor            time.Duration // from a mark to its probe: 60 s

	// OnChange is told of each new topology, before those who wait for it go on; old is nil the first time. It runs without a
	// lock and may use the Registry. It must not block for long.
	OnChange func(old, new *Topology)
}

// Registry holds the newest topology of an account and the marks of its endpoints. All methods may be called concurrently;
// reading never waits for a refresh. One Registry serves every client of an account.
type Registry struct {
	holder     snapshot.Holder[Topology]
	preferred  []Name
	background time.Duration
	markFor    time.Duration
	generation atomic.Uint64

	mu    sync.Mutex // orders changes of marks and hosts; only for moments
	marks atomic.Pointer[marks]
	hosts atomic.Pointer[map[string]struct{}]

	closing sync.Once
	closed  chan struct{}
}

// New checks cfg and returns a Registry that knows no topology yet: Refresh fetches the first.
func New(cfg Config) (*Registry, error) {
	var errs []error
	if err := check.Part("regions: Config.Source", cfg.Source); err != nil {
		errs = append(errs, err)
	}
	for i, n := range cfg.Preferred {
		if n.Key() == "" {
			errs = append(errs, fmt.Errorf("regions: Config.Preferred[%d] is %q: a region needs a name", i, string(n)))
		}
	}
	duration := func(name string, d, def time.Duration) time.Duration {
		if d < 0 {
			errs = append(errs, fmt.Errorf("regions: Config.%s is %v: must not be negative", name, d))
		}
		if d == 0 {
			return def
		}
		return d
	}
	r := &Registry{closed: make(chan struct{})}
	r.background = duration("BackgroundInterval", cfg.BackgroundInterval, 5*time.Minute)
	r.markFor = duration("MarkFor", cfg.MarkFor, time.Minute)
	r.holder.Interval = duration("RefreshInterval", cfg.RefreshInterval, 5*time.Second)
	r.holder.Timeout = duration("FetchTimeout", cfg.FetchTimeout, 30*time.Second)
	r.holder.MaxWait = duration("RefreshWait", cfg.RefreshWait, 15*time.Second)
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	for _, n := range cfg.Preferred {
		if !contains(r.preferred, n) {
			r.preferred = append(r.preferred, n)
		}
	}
	// A failed refresh does not throttle the next (R077), but a Source that fails at once is not called in a loop.
	r.holder.FailureGrace, r.holder.FailureDelay, r.holder.MaxFailureDelay = 3, 100*time.Millisecond, r.holder.Interval
	r.holder.OnChange = func(old, new *Topology) {
		if cfg.OnChange != nil {
			cfg.OnChange(old, new)
		}
	}
	r.holder.Fetch = func(ctx context.Context, old *Topology) (*Topology, error) { return r.fetch(ctx, cfg.Source, old) }
	r.marks.Store(&marks{})
	r.hosts.Store(&map[string]struct{}{})
	return r, nil
}

func (r *Registry) fetch(ctx context.Context, source Source, old *Topology) (*Topology, error) {
	told, err := source.Fetch(ctx, old)
	if err != nil || told == nil || told == old {
		return told, err
	}
	t, err := adopt(told, r.preferred)
	if err != nil {
		return nil, err
	}
	if old != nil && t.same(old) {
		return old, nil
	}
	t.Generation = r.generation.Add(1)
	r.remember(t)
	return t, nil
}

// Topology returns the newest topology, nil before the first successful Refresh.
func (r *Registry) Topology() *Topology { return r.holder.Load() }

// Refresh returns a topology newer than seen, the one that proved stale (Choice.Topology): at once if there is one
// already, else after one fetch that all callers share. Within Config.RefreshInterval of the last fetch it returns the
// current one at once.
//
// A failure returns the current topology, nil if there is none, and the error: the source's own or a *TopologyError; the
// context's; snapshot.ErrMaxWait after Config.RefreshWait; snapshot.ErrTimeout; snapshot.ErrClosed. The fetch goes on when its
// callers leave. The first three failures in a row do not delay the next fetch; further ones do, by 100 ms doubling up
// to Config.RefreshInterval, and a Refresh in between returns the last failure.
func (r *Registry) Refresh(ctx context.Context, seen *Topology) (*Topology, error) {
	return r.holder.Refresh(ctx, seen)
}

// Run refreshes every Config.BackgroundInterval, and at once and every Config.RefreshInterval while there is no topology.
// A failed refresh keeps the topology. It returns the context's error when that ends, or snapshot.ErrClosed after Close.
func (r *Registry) Run(ctx context.Context) error {
	if ctx.Err() == nil {
		_, _ = r.holder.Refresh(ctx, nil) // returns at once if a topology is held
	}
	for {
		wait := r.background
		if r.holder.Load() == nil {
			wait = r.holder.Interval
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-r.closed:
			return snapshot.ErrClosed
		case <-time.After(wait):
		}
		_, _ = r.holder.Refresh(ctx, r.holder.Load())
	}
}

// Close ends a running fetch and Run. Pick and Report go on with what is known.
func (r *Registry) Close() {
	r.closing.Do(func() { close(r.closed) })
	r.holder.Close()
}

// Knows reports whether host ("name" or "name:port", as in url.URL.Host) is in the topology or was in an earlier one;
// requests to other hosts are not the account's. About a thousand hosts are remembered beside the newest topology's.
func (r *Registry) Knows(host string) bool {
	hosts := *r.hosts.Load()
	if _, ok := hosts[host]; ok {
		return true // spelled as usual, which spares each request 25 ns
	}
	_, ok := hosts[strings.ToLower(host)]
	return ok
}

// remember adds a topology's hosts to those known.
func (r *Registry) remember(t *Topology) {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := *r.hosts.Load()
	next := make(map[string]struct{}, len(known)+2)
	if len(known) < 2*maxHosts {
		for h := range known {
			next[h] = struct{}{}
		}
	}
	for _, t := range []*Topology{r.holder.Load(), t} {
		if t == nil {
			continue
		}
		for _, e := range slices.Concat(t.Reads, t.Writes) {
			for _, h := range spellings(e.URL) {
				next[h] = struct{}{}
			}
		}
	}
	r.hosts.Store(&next)
}

// spellings are the ways url.URL.Host can be written for the same place.
func spellings(u *url.URL) []string {
	key := hostKey(u)
	if bare, ok := strings.CutSuffix(key, ":"+defaultPort(u.Scheme)); ok {
		return []string{key, bare}
	}
	return []string{key}
}

// current reports whether the topology has an endpoint at this candidate.host.
func (r *Registry) current(host string) bool {
	t := r.holder.Load()
	return t != nil && slices.ContainsFunc(t.plan.all, func(c candidate) bool { return c.host == host })
}
