package storm

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/ownership"
	"github.com/reroute-go/reroute/middleware/ownership/ownershiptest"
	"github.com/reroute-go/reroute/roundtrippers"
)

const segments = 12

// clusterWorld is what a user of a service whose keys change owner has: the
// ready-made stack over a simulated cluster.
type clusterWorld struct {
	*storm
	*ownershiptest.Cluster
	registry *ownership.Registry
	rt       http.RoundTripper
	wire     *wire
	most     int
}

func clusterStorm(s *storm) {
	w := &clusterWorld{storm: s}
	defer w.open()()
	var aside sync.WaitGroup
	w.prepare()
	aside.Go(func() { w.direct(s.rand(directorsChance, 0)) })
	w.load(w.act)
	if w.intact() {
		w.heal()
		w.check()
	}
	aside.Wait()
	s.tally.virtual = s.now()
}

func (w *clusterWorld) open() (close func()) {
	r := w.rand(worldsChance, 0)
	var err error
	w.Cluster, err = ownershiptest.New(ownershiptest.Config{
		Nodes: pick(r, 3, 5), Segments: segments, Hints: r.IntN(2) == 0, Latency: pick(r, 0, 2*time.Millisecond), InMemory: true, LogSize: 8,
	})
	w.must(err)
	w.weather(4*time.Second, func(r *rand.Rand, f *front) {
		f.fault = pick(r, clusterFaults...)
		if r.IntN(3) > 0 {
			f.place = pick(r, w.Nodes()...)
		}
		if r.IntN(3) > 0 {
			f.part = strconv.Itoa(r.IntN(segments))
		}
	})
	source, fetches := w.Source(), &flights{storm: w.storm, what: "the map", pause: 500 * time.Millisecond, early: 100 * time.Millisecond}
	w.registry, err = ownership.New(ownership.Config{Source: ownership.MapSourceFunc(func(ctx context.Context, old *ownership.Map) (*ownership.Map, error) {
		land := fetches.take()
		lasts(ctx, 2*time.Millisecond) // a map that takes no time is no map of a network: fetches would not overlap
		m, err := source.Fetch(ctx, old)
		land(err == nil)
		return m, err
	})})
	w.must(err)
	w.wire = &wire{storm: w.storm, next: w.Transport(), place: w.placeOf, inflict: inflictHere}
	b := roundtrippers.OwnershipBuilder{
		Dialect:        &ownership.Dialect{Key: ownership.PathKey("/kv/")},
		Owners:         w.registry,
		Observe:        w.observe,
		AttemptTimeout: 3100 * time.Millisecond,
		Reroute:        roundtrippers.Reroute{Attempts: pick(r, 0, 0, 8), Jitter: pick(r, 0, 0.2), SuspectAfter: pick(r, 0, 2)},
		Base:           w.wire,
	}
	w.rt, err = b.Build()
	w.must(err)
	w.most = boundOf(w.rt)
	w.note("%d nodes, %d attempts", len(w.Nodes()), w.most)
	return func() {
		w.registry.Close()
		w.Close()
	}
}

func (w *clusterWorld) placeOf(req *http.Request, t middleware.Target) (place, part string) {
	if !slices.Contains(w.Nodes(), req.URL.Host) {
		return "", ""
	}
	return req.URL.Host, t.Range
}

func (w *clusterWorld) observe(ctx context.Context, e middleware.Event) {
	if op := operationOf(ctx); op != nil && e.Kind == middleware.RangesRefreshed {
		w.note("(operation %d) %s: %v", op.number, e.Kind, e.Err)
	}
}

// direct has keys change owner and nodes die, and the map service tell it late or
// not at all.
func (w *clusterWorld) direct(r *rand.Rand) {
	d := &clusterDirector{clusterWorld: w, r: r, down: map[string]bool{}}
	events := []func(){d.move, d.move, d.move, d.migrate, d.handOff, d.promote, d.promote, d.die, d.orphan, d.lose, d.lose, d.slowMap, d.staleMap, d.failMap}
	for w.sleep(between(r, 0, 2*time.Second)) && w.now() < w.lasts {
		events[r.IntN(len(events))]()
	}
}

type clusterDirector struct {
	*clusterWorld
	r *rand.Rand

	mu   sync.Mutex
	down map[string]bool
}

func (d *clusterDirector) node() string { return pick(d.r, d.Nodes()...) }
func (d *clusterDirector) key() string {
	return hotKey(pick(d.r, "base", "sum", "log"), d.r.IntN(keys))
}

func (d *clusterDirector) did(format string, args ...any) {
	d.tally.events.Add(1)
	d.note(format, args...)
}

func (d *clusterDirector) move() {
	for range 1 + d.r.IntN(3) {
		n, to := d.r.IntN(segments), d.node()
		d.did("segment %d goes to %s", n, to)
		d.MoveSegment(n, to)
	}
}

func (d *clusterDirector) migrate() {
	n, to, takes := d.r.IntN(segments), d.node(), between(d.r, 0, 4*time.Second)
	d.did("segment %d migrates to %s in %s", n, to, takes)
	d.MigrateSegment(n, to, takes)
}

func (d *clusterDirector) handOff() {
	n, to, takes := d.r.IntN(segments), d.node(), between(d.r, 0, 2*time.Second)
	d.did("segment %d is handed to %s in %s", n, to, takes)
	d.HandOffSegment(n, to, takes)
}

func (d *clusterDirector) promote() {
	key := d.key()
	d.did("the replica of %s's segment %d becomes its owner", key, d.Segment(key))
	d.Promote(key)
}

func (d *clusterDirector) die() {
	name := d.node()
	d.mu.Lock()
	alive := !d.down[name] && len(d.down)+1 < len(d.Nodes())/2+1
	if alive {
		d.down[name] = true
	}
	d.mu.Unlock()
	if !alive {
		return
	}
	d.Fail(name)
	takeover := between(d.r, 0, 4*time.Second)
	d.later(d.r, 10*time.Second, name+" is down, its replicas take over after "+takeover.String(), func() {
		d.must(d.Recover(name))
		d.mu.Lock()
		delete(d.down, name)
		d.mu.Unlock()
	})
	time.AfterFunc(takeover, func() { d.FailOver(name) })
}

func (d *clusterDirector) orphan() {
	key, to := d.key(), d.node()
	d.Orphan(key)
	d.later(d.r, 3*time.Second, fmt.Sprintf("segment %d has no owner", d.Segment(key)), func() { d.Move(key, to) })
}

func (d *clusterDirector) lose() {
	key, n := d.key(), 1+d.r.IntN(3)
	d.did("%d answers to writes of %s get lost", n, key)
	d.LoseAnswers(key, n)
}

func (d *clusterDirector) slowMap() {
	takes := between(d.r, 0, 3*time.Second)
	d.SlowMap(takes)
	d.later(d.r, 8*time.Second, "the map takes "+takes.String(), func() { d.SlowMap(0) })
}

func (d *clusterDirector) staleMap() {
	n := 1 + d.r.IntN(4)
	d.did("the map is old, %d times", n)
	d.StaleMap(n)
}

func (d *clusterDirector) failMap() {
	status, n := pick(d.r, 500, 503, 404), 1+d.r.IntN(4)
	d.did("the map service answers %d, %d times", status, n)
	d.FailMap(status, n)
}
