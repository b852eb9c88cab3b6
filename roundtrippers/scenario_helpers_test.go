package roundtrippers_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/cosmos"
	"github.com/reroute-go/reroute/middleware/cosmos/cosmostest"
	"github.com/reroute-go/reroute/regions"
	"github.com/reroute-go/reroute/roundtrippers"
)

// The scenario tests run what a user has: the standard stack, over pools of
// connections, over an account, against a simulated service that verifies every
// signature. West is the hub and comes first unless a test says otherwise.
const (
	west, east, north = "West US", "East US", "North Europe"

	items = "/dbs/d/colls/c/docs"
	sproc = "/dbs/d/colls/c/sprocs/s"
)

// setup is what differs between scenarios; its zero value is all defaults.
type setup struct {
	sim   cosmostest.Config
	open  cosmos.Options
	stack roundtrippers.Builder
	// partitioned: the stack knows the partitions too, and breaks their circuits.
	partitioned bool
}

// world is one such installation. Its end checks what holds in every scenario:
// valid signatures, an address and a Host that agree, no data traffic at the
// global endpoint, no answer left open.
type world struct {
	*cosmostest.Account
	t       *testing.T
	account *cosmos.Account
	rt      http.RoundTripper
	wire    *wire
	made    *atomic.Int64 // ids given out
}

// inWorld runs a scenario in virtual time.
func inWorld(t *testing.T, s setup, scenario func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s.sim.InMemory = true
		w := newWorld(t, s)
		time.Sleep(10 * time.Second) // the topology is old enough to be read again
		scenario(t, w)
	})
}

func newWorld(t *testing.T, s setup) *world {
	t.Helper()
	sim := cosmostest.Start(t, s.sim)
	sim.CreateContainer("d", "c", cosmostest.Container{})
	sim.HandleSproc("d", "c", "s", func(cosmostest.SprocCall) (any, error) { return "ran", nil })

	open := func() http.RoundTripper {
		transport := cosmos.NewTransport()
		transport.Proxy, transport.DialContext, transport.TLSClientConfig = nil, sim.DialContext, sim.TLSClientConfig()
		return transport
	}
	pools := &roundtrippers.Pools{New: open}
	s.open.Transport = &roundtrippers.Pools{New: open}
	w := &world{t: t, Account: sim, made: new(atomic.Int64), wire: &wire{t: t, next: pools, sim: sim}}
	var err error
	w.account, err = cosmos.Open(t.Context(), sim.Endpoint(), cosmos.SharedKey(sim.Key()), s.open)
	require.NoError(t, err)
	s.stack.Dialect, s.stack.Regions, s.stack.Base = w.account, w.account.Regions, w.wire
	if s.partitioned {
		s.stack.Partitions = w.account.Partitions
	}
	w.rt, err = s.stack.Build()
	require.NoError(t, err)
	t.Cleanup(func() {
		w.check()
		w.account.Close()
		pools.CloseIdleConnections()
		s.open.Transport.(*roundtrippers.Pools).CloseIdleConnections()
	})
	return w
}

func (w *world) check() {
	w.t.Helper()
	require.Zero(w.t, w.BadSignatures(), "re-hosting keeps signatures valid")
	require.Zero(w.t, w.Sends(cosmostest.Global, cosmostest.Data()...), "the global endpoint gets no data traffic")
	require.Zero(w.t, w.wire.open.Load(), "every answer's body is closed")
}

// forget starts counting anew.
func (w *world) forget() {
	w.t.Helper()
	w.check()
	w.ResetLog()
}

// data counts the requests on items that a region has received.
func (w *world) data(region string) int { return w.Sends(region, cosmostest.Data()...) }

// reads counts the account documents read, at any endpoint.
func (w *world) accountReads() int { return w.Sends("", cosmostest.ReadAccount) }

// path tells the regions that got requests on items, in order.
func (w *world) path() (names []string) {
	for _, r := range w.Requests(cosmostest.Match{Operations: cosmostest.Data()}) {
		names = append(names, r.Region)
	}
	return names
}

// marked lists the endpoints that are demoted now.
func (w *world) marked() (names []string) {
	for _, m := range w.account.Regions.Marks() {
		names = append(names, string(m.Endpoint.Region))
	}
	return names
}

// fail has regions give an answer to everything about items; no regions: all.
func (w *world) fail(answer cosmostest.Answer, names ...string) {
	if len(names) == 0 {
		names = []string{""}
	}
	for _, name := range names {
		w.AddFault(cosmostest.Fault{Match: cosmostest.Match{Region: name, Operations: cosmostest.Data()}, Answer: answer})
	}
}

// once has the next request on items, wherever it goes, answered so.
func (w *world) once(answer cosmostest.Answer) *cosmostest.FaultHandle {
	return w.AddFault(cosmostest.Fault{Match: cosmostest.Match{Operations: cosmostest.Data()}, Count: 1, Answer: answer})
}

// result is how an operation ended, its body read and closed.
type result struct {
	status, substatus int
	code              string // "403/3", or "error: <code>" without an answer
	etag, session     string
	body              string
	err               error // of the operation
	broken            error // of reading the body
	report            middleware.Report
	took              time.Duration
}

// send sends an operation on partition key "p"; headers are name, value pairs.
func (w *world) send(ctx context.Context, method, path, body string, headers ...string) result {
	var reader io.Reader
	if body != "" {
		reader = strings.NewReader(body)
	}
	return w.do(w.request(ctx, method, path, reader, headers...))
}

func (w *world) request(ctx context.Context, method, path string, body io.Reader, headers ...string) *http.Request {
	req, err := http.NewRequestWithContext(ctx, method, w.Endpoint()+path, body)
	if err != nil {
		panic(err)
	}
	req.Header.Set("X-Ms-Documentdb-Partitionkey", `["p"]`)
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	w.Sign(req)
	return req
}

func (w *world) do(req *http.Request) result {
	started := time.Now()
	resp, err := w.rt.RoundTrip(req)
	r := result{err: err, code: ending(resp, err), took: time.Since(started)}
	if err != nil {
		if typed := new(middleware.Error); errors.As(err, &typed) {
			r.report = typed.Report
		}
		return r
	}
	r.status, r.etag, r.session = resp.StatusCode, resp.Header.Get("Etag"), resp.Header.Get("X-Ms-Session-Token")
	_, _ = fmt.Sscan(resp.Header.Get("X-Ms-Substatus"), &r.substatus)
	r.report = middleware.FromResponse(resp).Report()
	body, err := io.ReadAll(resp.Body)
	r.body, r.broken = string(body), err
	_ = resp.Body.Close()
	return r
}

func (w *world) id() string { return fmt.Sprint("id", w.made.Add(1)) }

func document(id string) string { return fmt.Sprintf(`{"id":%q,"pk":"p"}`, id) }

func (w *world) read(ctx context.Context, id string) result {
	return w.send(ctx, http.MethodGet, items+"/"+id, "")
}

func (w *world) create(ctx context.Context) result {
	return w.send(ctx, http.MethodPost, items, document(w.id()))
}

// item makes an item beyond any fault, before the scenario begins.
func (w *world) item() (id string) {
	w.t.Helper()
	id = w.id()
	require.Equal(w.t, 201, w.send(w.t.Context(), http.MethodPost, items, document(id)).status)
	w.forget()
	return id
}

// crowd runs n operations at once and waits for all of them.
func (w *world) crowd(n int, do func(ctx context.Context)) {
	var all sync.WaitGroup
	for range n {
		all.Go(func() { do(w.t.Context()) })
	}
	all.Wait()
}

// deed is one kind of operation on items.
type deed struct {
	name  string
	write bool
	do    func(w *world, ctx context.Context) result
}

var deeds = []deed{
	{"read", false, func(w *world, ctx context.Context) result { return w.read(ctx, "some") }},
	{"query", false, func(w *world, ctx context.Context) result {
		return w.send(ctx, http.MethodPost, items, `{"query":"SELECT * FROM c"}`,
			"Content-Type", "application/query+json", "X-Ms-Documentdb-Isquery", "True")
	}},
	{"create", true, func(w *world, ctx context.Context) result { return w.create(ctx) }},
	{"upsert", true, func(w *world, ctx context.Context) result {
		return w.send(ctx, http.MethodPost, items, document("some"), "X-Ms-Documentdb-Is-Upsert", "True")
	}},
	{"sproc", true, func(w *world, ctx context.Context) result { return w.send(ctx, http.MethodPost, sproc, "[]") }},
}

// excluding keeps an operation out of regions.
func excluding(ctx context.Context, names ...string) context.Context {
	list := make([]regions.Name, len(names))
	for i, n := range names {
		list[i] = regions.Name(n)
	}
	return middleware.WithExcludedRegions(ctx, list...)
}

// accounts runs a scenario on an account of each kind.
func accounts(t *testing.T, scenario func(t *testing.T, multiWrite bool)) {
	for _, multiWrite := range []bool{false, true} {
		t.Run(map[bool]string{false: "single-write", true: "multi-write"}[multiWrite], func(t *testing.T) { scenario(t, multiWrite) })
	}
}
