// Package live keeps a client of the SDK reading and writing, over real sockets, while a simulated account has its bad days.
package live

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"

	"github.com/reroute-go/reroute/examples/azcosmos/azadapter"
	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/cosmos"
	"github.com/reroute-go/reroute/middleware/cosmos/cosmostest"
	"github.com/reroute-go/reroute/regions"
	"github.com/reroute-go/reroute/roundtrippers"
)

const (
	hub       = "West US"
	home      = "East US" // where the application lives, and reads
	other     = "North Europe"
	database  = "shop"
	container = "orders"

	workers  = 4
	patience = 2 * time.Second // of a caller, for one operation
)

// Phase is a time of the account's life.
type Phase struct {
	Name  string
	Enter func(*cosmostest.Account)
	Leave func(*cosmostest.Account)
}

// Phases are what happens to the account, in this order.
var Phases = []Phase{
	{Name: "healthy"},
	{Name: "home region refuses connections",
		Enter: func(a *cosmostest.Account) { a.SetOffline(home, cosmostest.Refused) },
		Leave: func(a *cosmostest.Account) { a.SetOnline(home) }},
	{Name: "all regions throttle in bursts", Enter: throttleInBursts, Leave: (*cosmostest.Account).ClearFaults},
	{Name: "home region's answers break off",
		Enter: func(a *cosmostest.Account) {
			a.AddFault(cosmostest.Fault{Match: cosmostest.Match{Region: home, Operations: cosmostest.DataReads()}, Answer: cosmostest.Answer{CutAfter: 1}})
		},
		Leave: (*cosmostest.Account).ClearFaults},
	{Name: "write region moves", Enter: func(a *cosmostest.Account) { a.SetWriteRegion(other) }},
	{Name: "healthy again"},
}

// throttleInBursts throttles everything for 150 ms of each 500 ms: longer than the SDK's three retries last, shorter than ours.
func throttleInBursts(a *cosmostest.Account) {
	for i := range 20 {
		from := time.Now().Add(time.Duration(i) * 500 * time.Millisecond)
		a.AddFault(cosmostest.Fault{Match: cosmostest.Match{Operations: cosmostest.Data()},
			From: from, Until: from.Add(150 * time.Millisecond), Answer: cosmostest.Throttled(30 * time.Millisecond)})
	}
}

// Start starts the account of a client.
func Start() (*cosmostest.Account, error) {
	a, err := cosmostest.New(cosmostest.Config{Regions: []string{hub, home, other}})
	if err != nil {
		return nil, err
	}
	a.CreateContainer(database, container, cosmostest.Container{})
	return a, nil
}

// Alone is a client of the SDK as it comes.
func Alone(a *cosmostest.Account) (*azcosmos.Client, error) {
	return client(a, &azcosmos.ClientOptions{PreferredRegions: []string{home, hub, other}})
}

// OverReroute is a client of the SDK over a stack, which tells log what it learns. Call done after the last operation.
func OverReroute(ctx context.Context, a *cosmostest.Account, log *slog.Logger) (c *azcosmos.Client, done func(), err error) {
	account, err := cosmos.Open(ctx, a.Endpoint(), cosmos.SharedKey(a.Key()), cosmos.Options{
		PreferredRegions: []regions.Name{home, hub, other},
		// The account's days are seconds here: what is a minute by default is one as well.
		RefreshInterval: time.Second,
		MarkFor:         time.Second,
	})
	if err != nil {
		return nil, nil, err
	}
	transport, err := azadapter.New(roundtrippers.Builder{
		Dialect: account, Regions: account.Regions, Partitions: account.Partitions, Observe: changes(middleware.LogTo(log)),
	})
	if err != nil {
		account.Close()
		return nil, nil, err
	}
	c, err = client(a, azadapter.ClientOptions(transport))
	return c, func() { transport.CloseIdleConnections(); account.Close() }, err
}

// changes leaves out what happens to single operations: in a bad phase that is several hundred lines a second.
func changes(next middleware.Observer) middleware.Observer {
	return func(ctx context.Context, e middleware.Event) {
		switch e.Kind {
		case middleware.AttemptStarted, middleware.AttemptEnded, middleware.RetryScheduled, middleware.GaveUp:
			return
		}
		next(ctx, e)
	}
}

func client(a *cosmostest.Account, o *azcosmos.ClientOptions) (*azcosmos.Client, error) {
	key, err := azcosmos.NewKeyCredential(a.Key())
	if err != nil {
		return nil, err
	}
	return azcosmos.NewClientWithKey(a.Endpoint(), key, o)
}

// Figures are what the operations of one phase came to.
type Figures struct {
	Phase      string
	Operations int
	Failed     int
	P50, P99   time.Duration
	Slowest    time.Duration
	First      error // of the failures
}

// Run has workers read and write through c while a goes through the phases, each of which lasts for d, and tells begin of each. An
// operation belongs to the phase in which it began.
func Run(c *azcosmos.Client, a *cosmostest.Account, d time.Duration, begin func(Phase)) ([]Figures, error) {
	items, err := c.NewContainer(database, container)
	if err != nil {
		return nil, err
	}
	r := &recorder{took: make([][]time.Duration, len(Phases)), figures: make([]Figures, len(Phases))}
	stop := make(chan struct{})
	var working sync.WaitGroup
	for w := range workers {
		working.Go(func() { work(items, fmt.Sprintf("order-%d", w), r, stop) })
	}
	for i, p := range Phases {
		begin(p)
		if p.Enter != nil {
			p.Enter(a)
		}
		r.enter(i)
		time.Sleep(d)
		if p.Leave != nil {
			p.Leave(a)
		}
	}
	close(stop)
	working.Wait()
	return r.result(), nil
}

// work upserts an item and reads it back until stop.
func work(items *azcosmos.ContainerClient, id string, r *recorder, stop <-chan struct{}) {
	pk := azcosmos.NewPartitionKeyString(id)
	item := fmt.Appendf(nil, `{"id":%q,"pk":%q}`, id, id)
	for n := 0; ; n++ {
		select {
		case <-stop:
			return
		case <-time.After(5 * time.Millisecond):
		}
		r.do(func() error {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			if n%2 == 0 {
				_, err := items.UpsertItem(ctx, pk, item, nil)
				return err
			}
			_, err := items.ReadItem(ctx, pk, id, nil)
			return err
		})
	}
}

type recorder struct {
	mu      sync.Mutex
	phase   int
	took    [][]time.Duration
	figures []Figures
}

func (r *recorder) enter(phase int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.phase = phase
}

func (r *recorder) do(operation func() error) {
	r.mu.Lock()
	phase := r.phase
	r.mu.Unlock()
	start := time.Now()
	err := operation()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.took[phase] = append(r.took[phase], time.Since(start))
	f := &r.figures[phase]
	f.Operations++
	if err != nil {
		if f.Failed == 0 {
			f.First = err
		}
		f.Failed++
	}
}

func (r *recorder) result() []Figures {
	for i := range r.figures {
		took := r.took[i]
		r.figures[i].Phase = Phases[i].Name
		if len(took) == 0 {
			continue
		}
		slices.Sort(took)
		r.figures[i].P50, r.figures[i].P99, r.figures[i].Slowest = took[len(took)/2], took[len(took)*99/100], took[len(took)-1]
	}
	return r.figures
}

// Markdown prints the phases of two clients side by side.
func Markdown(alone, over []Figures) string {
	var b strings.Builder
	b.WriteString("| phase | SDK alone: failed of operations | p50 | p99 | slowest | SDK + reroute: failed of operations | p50 | p99 | slowest |\n" +
		"|---|---|---|---|---|---|---|---|---|\n")
	for i := range alone {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", alone[i].Phase, alone[i], over[i])
	}
	return b.String()
}

func (f Figures) String() string {
	return fmt.Sprintf("%d of %d | %s | %s | %s", f.Failed, f.Operations, short(f.P50), short(f.P99), short(f.Slowest))
}

func short(d time.Duration) string { return d.Round(100 * time.Microsecond).String() }
