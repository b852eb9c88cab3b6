// Quickstart runs a simulated Cosmos DB account with three regions on loopback
// and keeps reading and writing through a plain http.Client while regions go
// down, throttle, lose the write role and come back.
package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/lmittmann/tint"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/cosmos"
	"github.com/reroute-go/reroute/middleware/cosmos/cosmostest"
	"github.com/reroute-go/reroute/regions"
	"github.com/reroute-go/reroute/roundtrippers"
)

const (
	west, east, north = "West US", "East US", "North Europe"
	docs              = "/dbs/shop/colls/orders/docs"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

func run() error {
	sim, err := cosmostest.New(cosmostest.Config{Regions: []string{west, east, north}})
	if err != nil {
		return err
	}
	defer sim.Close()
	sim.CreateContainer("shop", "orders", cosmostest.Container{Paths: []string{"/customer"}})

	log := slog.New(tint.NewTextHandler(os.Stdout, &tint.Options{TimeFormat: "05.000"}))
	client, account, err := connect(sim, log)
	if err != nil {
		return err
	}
	defer account.Close()

	// The load runs until the script is through.
	ctx, stop := context.WithCancel(context.Background())
	shop := &shop{sim: sim, client: client}
	var load sync.WaitGroup
	for _, worker := range []func(context.Context){shop.write, shop.read} {
		load.Go(func() { worker(ctx) })
	}
	play(sim, log)
	stop()
	load.Wait()

	fmt.Println()
	for _, tally := range []*tally{&shop.writes, &shop.reads} {
		tally.print()
	}
	return shop.verdict()
}

// connect is all there is to putting reroute under a client.
func connect(sim *cosmostest.Account, log *slog.Logger) (*http.Client, *cosmos.Account, error) {
	account, err := cosmos.Open(context.Background(), sim.Endpoint(), cosmos.SharedKey(sim.Key()), cosmos.Options{
		PreferredRegions: []regions.Name{east, west},
		Transport:        sim.Transport(),
		MarkFor:          2 * time.Second, // a minute in earnest; the script has no minute
	})
	if err != nil {
		return nil, nil, err
	}
	rt, err := roundtrippers.Builder{
		Dialect:        account,
		Regions:        account.Regions,
		Partitions:     account.Partitions,
		Observe:        onChange(middleware.LogTo(log)),
		AttemptTimeout: time.Second,
		Base:           &roundtrippers.Pools{New: func() http.RoundTripper { return sim.Transport().Clone() }},
	}.Build()
	if err != nil {
		return nil, nil, err
	}
	fmt.Println(middleware.Describe(rt))
	fmt.Println()
	return &http.Client{Transport: rt}, account, nil
}

// onChange thins the log: of retries that tell the same story, one a second.
func onChange(log middleware.Observer) middleware.Observer {
	var mu sync.Mutex
	told := map[string]time.Time{}
	return func(ctx context.Context, e middleware.Event) {
		if e.Kind == middleware.AttemptStarted || e.Kind == middleware.AttemptEnded {
			return
		}
		story := fmt.Sprint(e.Kind, e.Region, e.Code, e.Budget)
		mu.Lock()
		again := time.Since(told[story]) < time.Second
		if !again {
			told[story] = time.Now()
		}
		mu.Unlock()
		if !again {
			log(ctx, e)
		}
	}
}

// play is the script. The two changes of the write role are more than five
// seconds apart: an account document is read at most every five.
func play(sim *cosmostest.Account, log *slog.Logger) {
	scene := func(what string, change func()) {
		log.Info("--- " + what)
		change()
		time.Sleep(1500 * time.Millisecond)
	}
	var fault *cosmostest.FaultHandle
	scene("all regions well; reads go to "+east+", writes to "+west, func() {})
	scene(east+" goes down (connections refused)", func() { sim.SetOffline(east, cosmostest.Refused) })
	scene(east+" comes back", func() { sim.SetOnline(east) })
	scene("every region throttles three of ten requests", func() {
		fault = sim.AddFault(cosmostest.Fault{Probability: 0.3, Seed: 1, Match: cosmostest.Match{Operations: cosmostest.Data()},
			Answer: cosmostest.Throttled(20 * time.Millisecond)})
	})
	scene(west+" loses the write role to "+north, func() {
		fault.Remove()
		sim.SetWriteRegion(north)
	})
	scene("half of the reads in "+east+" fail with 503", func() {
		fault = sim.AddFault(cosmostest.Fault{Probability: 0.5, Seed: 2, Match: cosmostest.Match{Region: east, Operations: cosmostest.DataReads()},
			Answer: cosmostest.Error(http.StatusServiceUnavailable, 0)})
	})
	scene(east+" swallows requests without an answer", func() {
		fault.Remove()
		sim.SetOffline(east, cosmostest.BlackHole)
	})
	scene(east+" comes back", func() { sim.SetOnline(east) })
	scene(west+" takes the write role again", func() { sim.SetWriteRegion(west) })
}

// shop writes orders and reads the newest one back.
type shop struct {
	sim           *cosmostest.Account
	client        *http.Client
	writes, reads tally

	mu     sync.Mutex
	newest int
}

func (s *shop) write(ctx context.Context) {
	s.writes.name = "create"
	for n := 1; ctx.Err() == nil; n++ {
		resp := s.send(ctx, &s.writes, http.MethodPost, docs, fmt.Sprintf(`{"id":"%d","customer":"ann"}`, n))
		if resp != nil {
			s.mu.Lock()
			s.newest = n
			s.mu.Unlock()
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func (s *shop) read(ctx context.Context) {
	s.reads.name = "read"
	for ctx.Err() == nil {
		s.mu.Lock()
		id := s.newest
		s.mu.Unlock()
		if id > 0 {
			s.send(ctx, &s.reads, http.MethodGet, fmt.Sprintf("%s/%d", docs, id), "")
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// send makes one signed REST request, as any HTTP client would, and returns the
// answer if it is a good one. The regions and retries are the transport's.
func (s *shop) send(ctx context.Context, t *tally, method, path, body string) *http.Response {
	req, err := http.NewRequestWithContext(context.WithoutCancel(ctx), method, s.sim.Endpoint()+path, strings.NewReader(body))
	if err != nil {
		panic(err)
	}
	req.Header.Set("x-ms-documentdb-partitionkey", `["ann"]`)
	s.sim.Sign(req)
	started := time.Now()
	resp, err := s.client.Do(req)
	t.took(time.Since(started))
	if err != nil {
		t.failed(err.Error(), middleware.Report{})
		return nil
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	report := middleware.FromResponse(resp).Report()
	if resp.StatusCode >= 300 {
		t.failed(report.String(), report)
		return nil
	}
	t.succeeded(report)
	return resp
}

// verdict says whether every operation succeeded and nothing acknowledged is lost.
func (s *shop) verdict() error {
	if n := s.writes.failures + s.reads.failures; n > 0 {
		return fmt.Errorf("%d operations failed that should not have", n)
	}
	if stored := len(s.sim.Items("shop", "orders")); stored != s.writes.ok {
		return fmt.Errorf("%d orders acknowledged, %d stored", s.writes.ok, stored)
	}
	return nil
}

// tally counts one kind of operation; only its own worker uses it.
type tally struct {
	name                string
	ok, failures, sends int
	longest             time.Duration
	regions             map[regions.Name]int
}

func (t *tally) took(d time.Duration) { t.longest = max(t.longest, d) }

func (t *tally) succeeded(r middleware.Report) {
	t.ok++
	t.count(r)
}

func (t *tally) failed(why string, r middleware.Report) {
	t.failures++
	t.count(r)
	if t.failures <= 3 {
		fmt.Println("FAILED:", why)
	}
}

func (t *tally) count(r middleware.Report) {
	t.sends += r.Sends
	if t.regions == nil {
		t.regions = map[regions.Name]int{}
	}
	for _, a := range r.Attempts {
		t.regions[a.Region]++
	}
}

func (t *tally) print() {
	n := t.ok + t.failures
	fmt.Printf("%-7s %5d operations  %5d ok  %d failed  %.2f sends each  longest %s  sends:", t.name, n, t.ok, t.failures,
		float64(t.sends)/float64(max(n, 1)), t.longest.Round(time.Millisecond))
	for _, name := range []regions.Name{west, east, north} {
		fmt.Printf("  %s %d", name, t.regions[name])
	}
	fmt.Println()
}
