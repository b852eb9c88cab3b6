package ownership

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/reroute-go/reroute/internal/check"
	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/regions/snapshot"
)

// MapSource tells the ownership map. One that needs several tries or addresses
// makes them itself.
type MapSource interface {
	// Fetch returns the map as it is now; old is the one held, nil at first, and
	// may be returned for "unchanged". It must not change old. ctx ends with
	// Config.FetchTimeout or Registry.Close, never with an operation. An error with
	// a method Permanent() bool that says true is remembered: see Config.NegativeTTL.
	Fetch(ctx context.Context, old *Map) (*Map, error)
}

// MapSourceFunc is a function that is a MapSource.
type MapSourceFunc func(ctx context.Context, old *Map) (*Map, error)

// Fetch calls f.
func (f MapSourceFunc) Fetch(ctx context.Context, old *Map) (*Map, error) { return f(ctx, old) }

// Config configures a Registry. Zero values are the defaults named at each
// field; New refuses negative ones.
type Config struct {
	Source MapSource // required; one with a method Validate() error is asked by New
	// Segment says which of n segments a key belongs to: SegmentOf.
	Segment func(key string, n int) int
	// HintHosts are hosts, besides the map's own members, that an answer may name
	// as owners: "node-7.kv.example:8080", "node-7.kv.example" with any port, or
	// ".kv.example" with any name before it. Credentials go to no other host.
	HintHosts []string

	Debounce     time.Duration // from a successful fetch to the next: 500 ms, late but never missed
	FetchTimeout time.Duration // of one fetch: 30 s
	// NegativeTTL is how long a permanent failure of Source is remembered: 10 s.
	// Force asks nevertheless.
	NegativeTTL time.Duration

	// OnChange is told of each new map, before those who wait for it go on; old is
	// nil the first time. It runs without a lock and may use the Registry.
	OnChange func(old, new *Map)
}

const (
	firstWait    = 15 * time.Second       // for the first map, where there is nothing to go on with
	insistPause  = 100 * time.Millisecond // between fetches that pass over Debounce
	failureDelay = 100 * time.Millisecond // after a failed fetch, doubling (Z057)
	longestDelay = 5 * time.Second
)

// Registry holds the newest ownership map and what answers have hinted at since.
// It is the Owners of package roundtrippers. All methods may be called
// concurrently; reading never waits for a refresh once there is a map. One
// Registry serves every client of a service.
type Registry struct {
	holder   snapshot.Holder[held]
	source   MapSource
	segment  func(string, int) int
	allowed  []string
	negative time.Duration
	hints    hints

	started  time.Time
	insisted atomic.Int64            // when Debounce was last passed over, since started
	refused  atomic.Pointer[refusal] // permanent failure of Source
}

// refusal is a permanent failure and how long it is remembered.
type refusal struct {
	err   error
	until time.Time
}

// New checks cfg and returns a Registry that knows no map yet: the first
// operation fetches it, or Force.
func New(cfg Config) (*Registry, error) {
	var errs []error
	if err := check.Part("ownership: Config.Source", cfg.Source); err != nil {
		errs = append(errs, err)
	}
	duration := func(name string, d, standard time.Duration) time.Duration {
		if d < 0 {
			errs = append(errs, fmt.Errorf("ownership: Config.%s is %v: must not be negative", name, d))
		}
		return orDefault(d, standard)
	}
	r := &Registry{source: cfg.Source, segment: cfg.Segment, allowed: cfg.HintHosts, started: time.Now()}
	for i, pattern := range cfg.HintHosts {
		if !validHost("x" + pattern) {
			errs = append(errs, fmt.Errorf("ownership: Config.HintHosts[%d] is %q: want host, host:port or .suffix", i, pattern))
		}
	}
	if r.segment == nil {
		r.segment = SegmentOf
	}
	r.negative = duration("NegativeTTL", cfg.NegativeTTL, 10*time.Second)
	r.holder.Interval = duration("Debounce", cfg.Debounce, 500*time.Millisecond)
	r.holder.Timeout = duration("FetchTimeout", cfg.FetchTimeout, 30*time.Second)
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	r.holder.Delay = true             // a move within the interval is learned late, never missed (A1)
	r.holder.MaxWait = 24 * time.Hour // the caller's context decides
	r.holder.FailureDelay, r.holder.MaxFailureDelay = failureDelay, longestDelay
	r.holder.Fetch = r.fetch
	r.holder.Newer = func(fetched, current *held) bool { return fetched.Epoch > current.Epoch }
	r.holder.OnChange = func(old, new *held) {
		r.hints.settle(new, new.began)
		if cfg.OnChange != nil {
			cfg.OnChange(old.read(), new.read())
		}
	}
	r.insisted.Store(-int64(insistPause))
	return r, nil
}

func (h *held) read() *Map {
	if h == nil {
		return nil
	}
	return &h.Map
}

// told is what the source gets back: an Epoch of our own would pass for the
// service's, as an entity tag of another map for instance.
func (h *held) told() *Map {
	if h == nil {
		return nil
	}
	return &h.given
}

// Map returns the newest map, nil before the first. It must not be changed, and
// does not hold what hints have told since.
func (r *Registry) Map() *Map { return r.holder.Load().read() }

// Force fetches the map now, whatever Debounce or a remembered failure say, or
// shares the fetch that runs. It returns the map then held.
func (r *Registry) Force(ctx context.Context) (*Map, error) {
	r.refused.Store(nil)
	m, err := r.holder.Force(ctx)
	return m.read(), err
}

// Close ends a fetch that is under way and starts no new one: whoever waits gets
// snapshot.ErrClosed. The map stays readable.
func (r *Registry) Close() { r.holder.Close() }

// Owner returns where requests with key go: the owner of its segment by the
// newest map, or by a newer hint. Target.Range is the segment's number. Without
// any map it waits, up to 15 s, for the first. The error wraps
// middleware.ErrNoOwner when there is none, or nobody owns the segment.
func (r *Registry) Owner(ctx context.Context, key string) (middleware.Target, error) {
	m := r.holder.Load()
	if m == nil {
		var err error
		if m, err = r.first(ctx); m == nil {
			return middleware.Target{}, err
		}
	}
	s, err := r.place(m, key)
	if err != nil {
		return middleware.Target{}, err
	}
	t := r.target(m, s)
	for now := r.holder.Load(); now != m; now = r.holder.Load() {
		// The map came meanwhile that replaces a hint: the old map without the hint
		// would send this request back.
		m, t = now, r.target(now, s)
	}
	if t.Endpoint == "" {
		return t, fmt.Errorf("ownership: segment %d: %w", s, middleware.ErrNoOwner)
	}
	return t, nil
}

type fetching struct{}

// errOwnFetch ends what would wait for itself: the map's own fetch has come back to us.
var errOwnFetch = errors.New("ownership: the map is fetched through the stack that needs it: give its source a client of its own")

// first waits for the first map.
func (r *Registry) first(ctx context.Context) (*held, error) {
	if ctx.Value(fetching{}) == r {
		return nil, errOwnFetch
	}
	waiting, cancel := context.WithTimeout(ctx, firstWait)
	defer cancel()
	err := r.remembered()
	if err == nil {
		var m *held
		if m, err = r.holder.Refresh(waiting, nil); m != nil {
			return m, nil
		}
		if waiting.Err() != nil && ctx.Err() == nil {
			err = snapshot.ErrMaxWait // no end of the operation's own time
		}
	}
	return nil, fmt.Errorf("%w: no map: %w", middleware.ErrNoOwner, err)
}

// place finds key's segment.
func (r *Registry) place(m *held, key string) (int, error) {
	s := r.segment(key, len(m.Segments))
	if s < 0 || s >= len(m.Segments) {
		return 0, fmt.Errorf("ownership: Config.Segment returned %d of %d segments", s, len(m.Segments))
	}
	return s, nil
}

// target is where segment s is, as far as is known.
func (r *Registry) target(m *held, s int) middleware.Target {
	t := middleware.Target{Endpoint: m.Segments[s].Owner, Range: m.ids[s], Epoch: m.Epoch}
	if h := r.hints.of(s); h != nil && h.beats(m) {
		t.Endpoint, t.Override = h.owner, true
		t.Epoch = max(h.epoch, m.Epoch)
	}
	return t
}

// fetch reads the map and accepts it only if it is whole and no older than the
// one held.
func (r *Registry) fetch(ctx context.Context, old *held) (*held, error) {
	began := time.Now()
	m, err := r.source.Fetch(context.WithValue(ctx, fetching{}, r), old.told())
	if err == nil && m == nil {
		err = snapshot.ErrNoValue
	}
	if err == nil && m != old.told() {
		err = m.check(old.read())
	}
	if err != nil {
		if ctx.Err() == nil { // a fetch left behind tells nothing of the service as it is now
			r.remember(err)
		}
		return nil, err
	}
	r.refused.Store(nil)
	switch {
	case old == nil:
		return hold(m, orDefault(m.Epoch, 1), began, nil), nil
	case m == old.told(), m.Epoch != 0 && m.Epoch <= old.Epoch, m.Epoch == 0 && m.same(&old.Map):
		r.hints.settle(old, began)
		return old, nil // nothing new, or the answer of a map service that lags (Z060)
	default:
		return hold(m, orDefault(m.Epoch, old.Epoch+1), began, old), nil
	}
}

// remember keeps a permanent failure for a while (Z069).
func (r *Registry) remember(err error) {
	var p interface{ Permanent() bool }
	if errors.As(err, &p) && p.Permanent() {
		r.refused.Store(&refusal{err: err, until: time.Now().Add(r.negative)})
	}
}

func (r *Registry) remembered() error {
	if refused := r.refused.Load(); refused != nil && time.Now().Before(refused.until) {
		return refused.err
	}
	return nil
}
