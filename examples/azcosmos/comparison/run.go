package comparison

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"

	"github.com/reroute-go/reroute/examples/azcosmos/azadapter"
	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/cosmos"
	"github.com/reroute-go/reroute/middleware/cosmos/cosmostest"
	"github.com/reroute-go/reroute/roundtrippers"
)

const (
	database  = "db"
	container = "items"
	item      = `{"id":"1","pk":"p"}`
)

// Result is what one run took.
type Result struct {
	// Sends of the operation, in each region and in all.
	At    [3]int
	Sends int
	// Account counts the reads of the account document after the fault.
	Account int
	Took    time.Duration
	// Outcome is "ok", a status with its substatus, or a word for an error.
	Outcome string
	Err     error
}

// Row is one fault met by one operation in three ways.
type Row struct {
	Fault     Fault
	Operation Operation
	SDK       Result // the SDK alone
	Stack     Result // reroute alone
	Both      Result // the SDK over reroute
}

// Run makes every comparison there is. tune may change the stack, in both of its ways; nil = the defaults.
func Run(t *testing.T, tune func(*roundtrippers.Builder)) []Row {
	var rows []Row
	for _, f := range Faults {
		for _, op := range Operations {
			rows = append(rows, Compare(t, f, op, tune))
		}
	}
	return rows
}

// Compare runs one operation in three ways.
func Compare(t *testing.T, f Fault, op Operation, tune func(*roundtrippers.Builder)) Row {
	return Row{Fault: f, Operation: op,
		SDK:   run(t, f, op, sdkAlone),
		Stack: run(t, f, op, func(s *setup) action { return stackAlone(s, tune) }),
		Both:  run(t, f, op, func(s *setup) action { return sdkOverStack(s, tune) }),
	}
}

// setup is what a way of running gets.
type setup struct {
	t       *testing.T
	account *cosmostest.Account
	base    http.RoundTripper
	op      Operation
}

// action does the operation once. It returns how that ended, in one word, and the error of the SDK or the stack.
type action func(ctx context.Context) (outcome string, err error)

func run(t *testing.T, f Fault, op Operation, way func(*setup) action) (r Result) {
	synctest.Test(t, func(t *testing.T) {
		a, transport := account(t, op, f.HTTP2)
		sends := &counter{next: transport, account: a}
		do := way(&setup{t: t, account: a, base: sends, op: op})

		// A write first: it creates the item and has the SDK read the account. Then the stack's topology grows older than the five
		// seconds in which it is not read again.
		ctx := context.Background()
		if _, err := do(ctx); err != nil {
			t.Fatalf("before the fault: %v", err)
		}
		time.Sleep(10 * time.Second)
		sends.reset()
		f.Cause(a)

		start := time.Now()
		r.Outcome, r.Err = do(ctx)
		r.Took = time.Since(start)
		synctest.Wait() // background refreshes of the SDK
		r.At, r.Account = sends.total()
		r.Sends = r.At[0] + r.At[1] + r.At[2]
		transport.CloseIdleConnections()
	})
	return r
}

// sdkAlone is the SDK as it comes, but for the dialing, which a bubble needs to be in memory.
func sdkAlone(s *setup) action {
	return sdk(s, &azcosmos.ClientOptions{
		ClientOptions:    azcore.ClientOptions{Transport: &http.Client{Transport: ownBody{s.base}}},
		PreferredRegions: regionNames,
	})
}

// ownBody mends what would make the SDK's numbers a matter of chance: it rewinds a request's body while net/http may still be reading it,
// a data race after which a write is at times sent without its body. The adapter does the same for the stack.
type ownBody struct{ next http.RoundTripper }

func (o ownBody) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body == nil || req.Body == http.NoBody {
		return o.next.RoundTrip(req)
	}
	kept, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	own := *req
	own.Body, own.GetBody = io.NopCloser(bytes.NewReader(kept)), nil
	return o.next.RoundTrip(&own)
}

func sdkOverStack(s *setup, tune func(*roundtrippers.Builder)) action {
	return sdk(s, azadapter.ClientOptions(stack(s, tune)))
}

// stack is the same for both ways that have one.
func stack(s *setup, tune func(*roundtrippers.Builder)) *azadapter.Transport {
	account, err := cosmos.Open(context.Background(), s.account.Endpoint(), cosmos.SharedKey(s.account.Key()), cosmos.Options{Transport: s.base})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(account.Close)
	b := roundtrippers.Builder{Dialect: account, Regions: account.Regions, Partitions: account.Partitions, Base: s.base}
	if tune != nil {
		tune(&b)
	}
	transport, err := azadapter.New(b)
	if err != nil {
		s.t.Fatal(err)
	}
	return transport
}

// sdk does the operation with a client of the SDK.
func sdk(s *setup, options *azcosmos.ClientOptions) action {
	items := client(s, options)
	first := true
	return func(ctx context.Context) (string, error) {
		var err error
		if s.op.Write || first {
			first = false
			_, err = items.UpsertItem(ctx, azcosmos.NewPartitionKeyString("p"), []byte(item), nil)
		} else {
			_, err = items.ReadItem(ctx, azcosmos.NewPartitionKeyString("p"), "1", nil)
		}
		return outcome(err), err
	}
}

func client(s *setup, options *azcosmos.ClientOptions) *azcosmos.ContainerClient {
	key, err := azcosmos.NewKeyCredential(s.account.Key())
	if err != nil {
		s.t.Fatal(err)
	}
	client, err := azcosmos.NewClientWithKey(s.account.Endpoint(), key, options)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(client.Close) // its caches are the process's, and would outlive the bubble
	items, err := client.NewContainer(database, container)
	if err != nil {
		s.t.Fatal(err)
	}
	return items
}

// stackAlone does the operation as the SDK words it, straight through the stack.
func stackAlone(s *setup, tune func(*roundtrippers.Builder)) action {
	rt := stack(s, tune).Next
	first := true
	return func(ctx context.Context) (string, error) {
		req := request(ctx, s.account, s.op.Write || first)
		first = false
		resp, err := rt.RoundTrip(req)
		if err != nil {
			return outcome(err), err
		}
		defer resp.Body.Close()
		if _, err = io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode < 400 {
			return outcome(err), err
		}
		return code(resp), nil
	}
}

func request(ctx context.Context, a *cosmostest.Account, write bool) *http.Request {
	method, path, body := http.MethodGet, "/docs/1", ""
	if write {
		method, path, body = http.MethodPost, "/docs", item
	}
	req, err := http.NewRequestWithContext(ctx, method, a.Endpoint()+"/dbs/"+database+"/colls/"+container+path, strings.NewReader(body))
	if err != nil {
		panic(err)
	}
	req.Header.Set("x-ms-version", "2020-11-05")
	req.Header.Set("x-ms-documentdb-partitionkey", `["p"]`)
	if write {
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Prefer", "return=minimal")
		req.Header.Set("x-ms-documentdb-is-upsert", "true")
	}
	a.Sign(req)
	return req
}

// outcome is an end without an answer, or as the SDK tells one, in one word.
func outcome(err error) string {
	var answered *azcore.ResponseError
	var ours *azadapter.Error
	var typed *middleware.Error
	switch {
	case errors.As(err, &answered):
		return code(answered.RawResponse)
	case errors.As(err, &typed):
		return typed.Outcome.Code
	case errors.As(err, &ours):
		return ours.Outcome.Code
	case err != nil:
		return middleware.JudgeError(err).Code
	}
	return "ok"
}

func code(resp *http.Response) string {
	text := resp.Status[:3]
	if sub := resp.Header.Get("x-ms-substatus"); sub != "" {
		text += "/" + sub
	}
	return text
}

// counter is the last thing above the transport: what passes here is sent, or dialled for.
type counter struct {
	next    http.RoundTripper
	account *cosmostest.Account

	mu   sync.Mutex
	at   map[string]int
	docs int
}

func (c *counter) RoundTrip(req *http.Request) (*http.Response, error) {
	c.mu.Lock()
	if strings.Contains(req.URL.Path, "/docs") {
		if c.at == nil {
			c.at = map[string]int{}
		}
		c.at[c.account.RegionOf(req.URL.Host)]++
	} else {
		c.docs++
	}
	c.mu.Unlock()
	return c.next.RoundTrip(req)
}

func (c *counter) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at, c.docs = nil, 0
}

func (c *counter) total() (at [3]int, account int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, name := range regionNames {
		at[i] = c.at[name]
		delete(c.at, name)
	}
	for name := range c.at {
		panic("a send to " + name)
	}
	return at, c.docs
}

// plain is a policy.Transporter that adds nothing.
type plain struct{ http.RoundTripper }

func (p plain) Do(req *http.Request) (*http.Response, error) { return p.RoundTrip(req) }
