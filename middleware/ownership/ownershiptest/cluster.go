package ownershiptest

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/reroute-go/reroute/middleware/ownership"
)

// Config describes a cluster. The zero Config is five nodes with 64 segments on
// loopback sockets.
type Config struct {
	Nodes    int // 0 = 5
	Segments int // 0 = 64
	// Hints has nodes name the owner, with the map's epoch, when they answer Moved or
	// ReplicaWriteRejected.
	Hints bool
	// Latency of every request to a node, before it is carried out.
	Latency time.Duration
	// InMemory needs no sockets: the cluster is reached through Transport only.
	InMemory bool
	// LogSize is how many hits are kept; 0 = 16384.
	LogSize int
}

// Cluster is a running cluster. All methods may be called concurrently.
type Cluster struct {
	cfg     Config
	nodes   []*node
	service *node // the map service
	client  http.RoundTripper
	log     hitLog

	mu       sync.Mutex
	epoch    uint64
	segments []segment
	values   map[string]value
	lose     map[string]int // writes whose answer gets lost, by key
	maps     mapFaults
	timers   map[*time.Timer]struct{}
	closed   bool
}

type segment struct {
	owner, replica *node
	state          ownership.Status // Other, Migrating or OwnershipChanging
	next           *time.Timer      // ends the state
}

type value struct {
	data    string
	version uint64
}

// New starts a cluster. Each segment has an owner and a replica, spread evenly.
func New(cfg Config) (*Cluster, error) {
	for _, f := range []struct {
		name     string
		value    *int
		standard int
	}{{"Nodes", &cfg.Nodes, 5}, {"Segments", &cfg.Segments, 64}, {"LogSize", &cfg.LogSize, 16384}} {
		if *f.value == 0 {
			*f.value = f.standard
		}
		if *f.value < 0 {
			return nil, fmt.Errorf("ownershiptest: Config.%s is %d, want >= 0", f.name, *f.value)
		}
	}
	if cfg.Latency < 0 {
		return nil, fmt.Errorf("ownershiptest: Config.Latency is %v, want >= 0", cfg.Latency)
	}
	c := &Cluster{cfg: cfg, epoch: 1, values: map[string]value{}, lose: map[string]int{}, timers: map[*time.Timer]struct{}{}}
	c.log.size = cfg.LogSize
	c.service = &node{name: "map.cluster.test:80"}
	c.service.handler = http.HandlerFunc(c.serveMap)
	for i := range cfg.Nodes {
		n := &node{name: fmt.Sprintf("n%d.cluster.test:80", i)}
		n.handler = http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) { c.serveKey(n, rw, req) })
		c.nodes = append(c.nodes, n)
	}
	c.client = memory{c}
	if !cfg.InMemory {
		for _, n := range append(c.nodes, c.service) {
			if err := n.listen(); err != nil {
				c.Close()
				return nil, err
			}
		}
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.Proxy, t.MaxIdleConnsPerHost = nil, 64
		c.client = t
	}
	for i := range cfg.Segments {
		s := segment{owner: c.nodes[i%cfg.Nodes]}
		if cfg.Nodes > 1 {
			s.replica = c.nodes[(i+1)%cfg.Nodes]
		}
		c.segments = append(c.segments, s)
	}
	for _, n := range append(c.nodes, c.service) {
		n.up()
	}
	return c, nil
}

// Close ends the cluster and all that is scheduled.
func (c *Cluster) Close() {
	c.mu.Lock()
	c.closed = true
	for t := range c.timers {
		t.Stop()
	}
	c.mu.Unlock()
	for _, n := range append(c.nodes, c.service) {
		n.down()
	}
	if t, ok := c.client.(*http.Transport); ok {
		t.CloseIdleConnections()
	}
}

// Transport reaches the nodes and the map service, and nothing else in memory.
func (c *Cluster) Transport() http.RoundTripper { return c.client }

// Source reads the map from the map service.
func (c *Cluster) Source() *ownership.HTTPSource {
	return &ownership.HTTPSource{URL: "http://" + c.service.name + "/map", Client: &http.Client{Transport: c.client}}
}

// URL is a key's address at the service as a whole, kv.cluster.test, which only a
// client that routes can reach.
func (c *Cluster) URL(key string) string { return "http://kv.cluster.test/kv/" + key }

// Nodes returns the nodes' addresses, host:port.
func (c *Cluster) Nodes() []string {
	var names []string
	for _, n := range c.nodes {
		names = append(names, n.name)
	}
	return names
}

// Map returns the map as it is, whatever the map service is made to answer.
func (c *Cluster) Map() *ownership.Map {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mapNow()
}

func (c *Cluster) mapNow() *ownership.Map {
	m := &ownership.Map{Epoch: c.epoch, Nodes: c.Nodes()}
	for _, s := range c.segments {
		m.Segments = append(m.Segments, ownership.Segment{Owner: s.owner.address(), Replica: s.replica.address()})
	}
	return m
}

// Segment returns the number of key's segment.
func (c *Cluster) Segment(key string) int { return ownership.SegmentOf(key, c.cfg.Segments) }

// Owner returns the address of key's owner, "" if it has none.
func (c *Cluster) Owner(key string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.segments[c.Segment(key)].owner.address()
}

// Value returns what is stored under key, and its version; ok is false if there
// is nothing.
func (c *Cluster) Value(key string) (data string, version uint64, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v, ok := c.values[key]
	return v.data, v.version, ok
}

// find returns the node with this address.
func (c *Cluster) find(name string) *node {
	i := slices.IndexFunc(c.nodes, func(n *node) bool { return n.name == name })
	if i < 0 {
		panic(errors.New("ownershiptest: no node " + name)) // a mistake in the test
	}
	return c.nodes[i]
}
