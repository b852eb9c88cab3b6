package comparison

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"

	"github.com/reroute-go/reroute/examples/azcosmos/azadapter"
	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/cosmos/cosmostest"
	"github.com/reroute-go/reroute/roundtrippers"
)

// The container has eight partition key ranges, and the first region is home: near, while the others are far. Six workers have keys of the
// range that dies there; each of the other seven ranges has one worker.
const (
	ranges   = 8
	deadKeys = 6

	near, far = 2 * time.Millisecond, 40 * time.Millisecond
	pause     = 100 * time.Millisecond // of a worker between two operations on a key that is or was in trouble
	calm      = time.Second            // and on one that is not
	patience  = 3 * time.Second        // of a caller, for one operation

	sdkTimeout = 65 * time.Second // of the SDK's own http.Client

	observedFor = time.Minute
	diesFor     = observedFor + patience // so that all operations counted end before the recovery
	recoversFor = 15 * time.Second
)

// Death is what becomes of one partition in the first region. All other partitions stay well there, and this one does elsewhere.
type Death struct {
	Name   string
	Answer cosmostest.Answer
	// AttemptTimeout limits each attempt, with the SDK alone by http.Client.Timeout and in the stack by its own field; 0 = 65 s in both.
	AttemptTimeout time.Duration
}

// Deaths are the rows of the table. Callers have three seconds in each.
var Deaths = []Death{
	{Name: "503", Answer: cosmostest.Error(503, 0)},
	{Name: "503 after 1s", Answer: cosmostest.Answer{Status: 503, Delay: time.Second}},
	{Name: "500", Answer: cosmostest.Error(500, 0)},
	{Name: "hangs", Answer: cosmostest.Answer{Hang: true}},
	{Name: "hangs, attempts limited to 500ms", Answer: cosmostest.Answer{Hang: true}, AttemptTimeout: 500 * time.Millisecond},
}

// Load is what some keys' operations came to in the first minute of the partition's death.
type Load struct {
	Operations, Failed int
	P50, P99, Slowest  time.Duration
	First              error // of the failures

	took []time.Duration
}

// Casualty is how one client fared through a partition's death. Sends count for the same minute as operations.
type Casualty struct {
	Dead, Others Load // operations on keys of the dead partition, and on all others
	// DeadAtHome are sends for the dead partition to the region where it is dead, and SinceOpened those of them after Opened.
	DeadAtHome, SinceOpened int
	// OthersAway are sends for the other partitions to any other region.
	OthersAway int
	// Opened is when a breaker first gave the partition up, from its death; 0 = never.
	Opened time.Duration
	// Returned is how long after the partition's recovery the last send for it went to another region; 0 = none did.
	Returned time.Duration
}

// PartitionRow is one death met by one operation, without and with reroute.
type PartitionRow struct {
	Death     Death
	Operation Operation
	SDK, Both Casualty
}

// RunPartitions makes the comparisons of a dead partition: with reads of a single-write account, and with upserts of a multi-write
// account, as a write to the other kind of account has nowhere else to go.
func RunPartitions(t *testing.T, deaths []Death) []PartitionRow {
	var rows []PartitionRow
	for _, d := range deaths {
		for _, op := range []Operation{Operations[0], Operations[2]} {
			rows = append(rows, PartitionRow{Death: d, Operation: op,
				SDK:  survive(t, d, op, aloneThrough),
				Both: survive(t, d, op, overStackThrough(nil)),
			})
		}
	}
	return rows
}

// through makes the options of a client that goes through a death. opened is called when a breaker opens.
type through func(s *setup, d Death, opened func()) *azcosmos.ClientOptions

func aloneThrough(s *setup, d Death, _ func()) *azcosmos.ClientOptions {
	return &azcosmos.ClientOptions{
		ClientOptions: azcore.ClientOptions{Transport: &http.Client{
			Transport: ownBody{s.base},
			Timeout:   cmp.Or(d.AttemptTimeout, sdkTimeout),
		}},
		PreferredRegions: regionNames,
	}
}

func overStackThrough(tune func(*roundtrippers.Builder)) through {
	return func(s *setup, d Death, opened func()) *azcosmos.ClientOptions {
		return azadapter.ClientOptions(stack(s, func(b *roundtrippers.Builder) {
			b.AttemptTimeout = d.AttemptTimeout
			b.Observe = func(_ context.Context, e middleware.Event) {
				if e.Kind == middleware.BreakerOpened {
					opened()
				}
			}
			if tune != nil {
				tune(b)
			}
		}))
	}
}

// survive has a client work through a partition's death and its recovery.
func survive(t *testing.T, d Death, op Operation, way through) (c Casualty) {
	synctest.Test(t, func(t *testing.T) {
		a := cosmostest.Start(t, cosmostest.Config{Regions: regionNames, MultiWrite: op.MultiWrite, Ranges: ranges, InMemory: true})
		a.CreateContainer(database, container, cosmostest.Container{})
		for _, name := range regionNames {
			a.SetLatency(name, far)
		}
		a.SetLatency(regionNames[0], near)
		transport := &http.Transport{DialContext: a.DialContext, MaxIdleConnsPerHost: deadKeys + ranges}
		defer transport.CloseIdleConnections()
		sends := &sendLog{next: transport, account: a}
		var first sync.Once
		var opened time.Time
		s := &setup{t: t, account: a, base: sends, op: op}
		items := client(s, way(s, d, func() { first.Do(func() { opened = time.Now() }) }))

		doomed, keys := seed(t, a, items)
		time.Sleep(10 * time.Second) // the stack's topology grows older than the five seconds in which it is not read again
		sends.take()
		death := time.Now()
		end, recovery := death.Add(observedFor), death.Add(diesFor)
		a.AddFault(cosmostest.Fault{Match: cosmostest.Match{Region: regionNames[0], Range: doomed, Operations: cosmostest.Data()},
			Until: recovery, Answer: d.Answer})

		dead := map[string]bool{}
		var mu sync.Mutex
		var working sync.WaitGroup
		for i, k := range keys {
			dead[k.name] = k.at == doomed
			load, until, rest := &c.Others, end, calm
			if k.at == doomed {
				load, until, rest = &c.Dead, recovery.Add(recoversFor), pause
			}
			working.Go(func() {
				time.Sleep(pause * time.Duration(i) / time.Duration(len(keys))) // no two begin at once
				for begin := time.Now(); begin.Before(until); begin = time.Now() {
					err := use(items, op.Write, k.name)
					if begin.Before(end) {
						mu.Lock()
						load.add(time.Since(begin), err)
						mu.Unlock()
					}
					time.Sleep(rest)
				}
			})
		}
		working.Wait()
		c.Dead.sum()
		c.Others.sum()
		if !opened.IsZero() {
			c.Opened = opened.Sub(death)
		}
		for _, s := range sends.take() {
			home, counts := s.region == regionNames[0], s.at.Before(end)
			switch {
			case !dead[s.key] && !home:
				c.OthersAway++
			case dead[s.key] && home && counts:
				c.DeadAtHome++
				if !opened.IsZero() && s.at.After(opened) {
					c.SinceOpened++
				}
			case dead[s.key] && !home:
				c.Returned = max(c.Returned, s.at.Sub(recovery))
			}
		}
	})
	return c
}

// key is a partition key with one item, whose id is the same.
type key struct{ name, at string }

// seed writes items until there are keys for all workers, and asks the account in which range they are. The first key's is doomed.
func seed(t *testing.T, a *cosmostest.Account, items *azcosmos.ContainerClient) (doomed string, keys []key) {
	has := map[string]int{}
	for n := 0; len(keys) < deadKeys+ranges-1; n++ {
		k := key{name: fmt.Sprintf("order-%d", n)}
		if err := use(items, true, k.name); err != nil {
			t.Fatalf("before the fault: %v", err)
		}
		k.at = a.Requests(cosmostest.Match{ID: k.name})[0].Range
		doomed = cmp.Or(doomed, k.at)
		if wanted := map[bool]int{true: deadKeys, false: 1}[k.at == doomed]; has[k.at] < wanted {
			has[k.at]++
			keys = append(keys, k)
		}
	}
	return doomed, keys
}

// use reads or writes a key's item, as a caller that waits for no longer than its patience.
func use(items *azcosmos.ContainerClient, write bool, name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	pk := azcosmos.NewPartitionKeyString(name)
	if write {
		_, err := items.UpsertItem(ctx, pk, fmt.Appendf(nil, `{"id":%q,"pk":%q}`, name, name), nil)
		return err
	}
	_, err := items.ReadItem(ctx, pk, name, nil)
	return err
}

func (l *Load) add(took time.Duration, err error) {
	l.Operations++
	l.took = append(l.took, took)
	if err != nil {
		if l.Failed == 0 {
			l.First = err
		}
		l.Failed++
	}
}

func (l *Load) sum() {
	slices.Sort(l.took)
	n := len(l.took)
	l.P50, l.P99, l.Slowest = l.took[n/2], l.took[n*99/100], l.took[n-1]
	l.took = nil
}

// sendLog is the last thing above the transport, and knows for which key each send is.
type sendLog struct {
	next    http.RoundTripper
	account *cosmostest.Account

	mu    sync.Mutex
	sends []keySend
}

type keySend struct {
	at          time.Time
	region, key string
}

func (l *sendLog) RoundTrip(req *http.Request) (*http.Response, error) {
	if strings.Contains(req.URL.Path, "/docs") {
		key := strings.Trim(req.Header.Get("x-ms-documentdb-partitionkey"), `[]"`)
		l.mu.Lock()
		l.sends = append(l.sends, keySend{time.Now(), l.account.RegionOf(req.URL.Host), key})
		l.mu.Unlock()
	}
	return l.next.RoundTrip(req)
}

func (l *sendLog) take() []keySend {
	l.mu.Lock()
	defer l.mu.Unlock()
	sends := l.sends
	l.sends = nil
	return sends
}
