package storm

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/cosmos"
	"github.com/reroute-go/reroute/middleware/cosmos/cosmostest"
	"github.com/reroute-go/reroute/regions"
	"github.com/reroute-go/reroute/roundtrippers"
)

const (
	items = "/dbs/d/colls/c/docs"
	sproc = "/dbs/d/colls/c/sprocs/s"
	keys  = 16 // partition keys
)

// cosmosWorld is what a user of a Cosmos DB account has: the standard stack over
// real net/http over a simulated account.
type cosmosWorld struct {
	*storm
	*cosmostest.Account
	account *cosmos.Account
	rt      http.RoundTripper
	wire    *wire
	regions []string
	most    int
	lenient bool // several regions have taken writes at some time: the store is not one register any more
	ppaf    bool

	hosts map[string]string // to region

	mu   sync.Mutex
	runs map[string]int // of the stored procedure, by operation
}

func cosmosStorm(s *storm) {
	w := &cosmosWorld{storm: s, runs: map[string]int{}, hosts: map[string]string{}}
	defer w.open()()
	background, stop := context.WithCancel(s.ctx)
	var aside sync.WaitGroup
	aside.Go(func() { _ = w.account.Run(background) })
	aside.Go(func() { w.direct(s.rand(directorsChance, 0)) })
	w.prepare()
	w.load(w.act)
	if w.intact() {
		w.heal()
		w.check()
	}
	stop()
	aside.Wait()
	s.tally.virtual = s.now()
}

// open builds the world as the seed has it.
func (w *cosmosWorld) open() (close func()) {
	r := w.rand(worldsChance, 0)
	w.regions = []string{"West US", "East US", "North Europe"}[:pick(r, 2, 3, 3)]
	w.lenient = r.IntN(3) == 0 // multi-write
	w.ppaf = !w.lenient && r.IntN(2) == 0
	config := cosmostest.Config{InMemory: true, Regions: w.regions, MultiWrite: w.lenient, Ranges: pick(r, 1, 2, 4, 4), LogSize: 16}
	if w.ppaf {
		config.PartitionFailover = &w.ppaf
	}
	var err error
	w.Account, err = cosmostest.New(config)
	w.must(err)
	w.CreateContainer("d", "c", cosmostest.Container{})
	w.HandleSproc("d", "c", "s", w.execute)
	for _, name := range w.regions {
		w.hosts[strings.TrimPrefix(w.RegionEndpoint(name), "http://")] = name
	}
	w.addFaults()

	dial := func() http.RoundTripper {
		t := cosmos.NewTransport()
		t.Proxy, t.DialContext = nil, w.DialContext
		return t
	}
	pools, metadata := &roundtrippers.Pools{New: dial}, &roundtrippers.Pools{New: dial}
	preferred := make([]regions.Name, 0, len(w.regions))
	for _, i := range r.Perm(len(w.regions)) {
		preferred = append(preferred, regions.Name(w.regions[i]))
	}
	w.account, err = cosmos.Open(w.ctx, w.Endpoint(), cosmos.SharedKey(w.Key()), cosmos.Options{
		PreferredRegions: preferred, StrictPatch: true, Transport: w.watchMetadata(metadata),
	})
	w.must(err)
	w.wire = &wire{storm: w.storm, next: pools, place: w.placeOf, inflict: inflict, probe: w.probeOf}
	b := roundtrippers.Builder{
		Dialect: w.account, Regions: w.account.Regions,
		Observe:        w.observe,
		AttemptTimeout: 3100 * time.Millisecond,
		Failover:       roundtrippers.Failover{Converge: r.IntN(2) == 0},
		Route:          roundtrippers.Route{StrictExclusion: true}, // regions leave: all that are left may be excluded
		Base:           w.wire,
	}
	partitioned := w.ppaf || r.IntN(6) > 0
	if partitioned {
		b.Partitions = w.account.Partitions
	}
	w.rt, err = b.Build()
	w.must(err)
	w.most = boundOf(w.rt)
	w.note("regions %q, multi-write %t, partition failover %t, %d ranges, preferred %q, converge %t, partitioned %t",
		w.regions, w.lenient, w.ppaf, config.Ranges, preferred, b.Failover.Converge, partitioned)
	return func() {
		w.account.Close()
		pools.CloseIdleConnections()
		metadata.CloseIdleConnections()
		w.Account.Close()
	}
}

func (s *storm) must(err error) {
	if err != nil {
		panic(err)
	}
}

var boundIn = regexp.MustCompile(`at most (\d+) sends`)

// boundOf is the number of sends that a stack says it costs at most, 0 = no bound.
func boundOf(rt http.RoundTripper) int {
	found := boundIn.FindStringSubmatch(middleware.Describe(rt))
	if found == nil {
		return 0
	}
	n, _ := strconv.Atoi(found[1])
	return n
}

func (w *cosmosWorld) placeOf(req *http.Request, t middleware.Target) (place, part string) {
	return w.hosts[req.URL.Host], t.Range
}

func (w *cosmosWorld) probeOf(op *middleware.Operation, t middleware.Target, write bool) string {
	switch placed := op.Placement(); {
	case !t.Probe:
		return ""
	case placed.Probe != "" && placed.Probe.Equal(t.Region):
		return fmt.Sprintf("range %s in %s, writes %t", t.Range, t.Region, write)
	}
	return "endpoint " + t.Endpoint
}

// observe keeps what changes for more than one operation.
func (w *cosmosWorld) observe(ctx context.Context, e middleware.Event) {
	switch e.Kind {
	case middleware.EndpointMarked, middleware.EndpointRestored, middleware.BreakerOpened, middleware.BreakerClosed,
		middleware.OverrideRecorded, middleware.PoolReplaced, middleware.TopologyRefreshed:
		if op := operationOf(ctx); op != nil {
			w.note("(operation %d) %s: %s range %s %s", op.number, e.Kind, e.Region, e.Range, e.Code)
		}
	}
}

// execute is the body of the stored procedure.
func (w *cosmosWorld) execute(c cosmostest.SprocCall) (any, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.runs[string(c.Parameters[0])]++
	return "ran", nil
}

// watchMetadata carries the account's own requests, strikes them too, and holds
// them to one fetch at a time.
func (w *cosmosWorld) watchMetadata(next http.RoundTripper) http.RoundTripper {
	watched := map[string]*flights{
		"/":                       {storm: w.storm, what: "the account document", pause: 5 * time.Second},
		"/dbs/d/colls/c":          {storm: w.storm, what: "the container"},
		"/dbs/d/colls/c/pkranges": {storm: w.storm, what: "the ranges"},
	}
	var made atomic.Int64
	return middleware.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
		n := int(made.Add(1))
		land := watched[req.URL.Path].take()
		fault := w.strike(&operation{number: uint64(n)}, 0, "metadata", req.URL.Path)
		resp, err := inflict(next, req, fault)
		if err != nil {
			land(false)
			return nil, err
		}
		resp.Body = &flightBody{ReadCloser: resp.Body, land: land, good: resp.StatusCode == http.StatusOK && fault == ""}
		return resp, nil
	})
}

// flightBody ends a flight with the last byte of its answer.
type flightBody struct {
	io.ReadCloser
	land  func(good bool)
	good  bool
	ended bool
}

func (b *flightBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.ended = b.ended || err == io.EOF
	return n, err
}

func (b *flightBody) Close() error {
	b.land(b.good && b.ended)
	return b.ReadCloser.Close()
}
