package roundtrippers_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/cosmos"
	"github.com/reroute-go/reroute/middleware/cosmos/cosmostest"
	"github.com/reroute-go/reroute/roundtrippers"
)

// TestReadmeShowsWhatIsReallyPrinted has the simulator put the standard stack
// through every kind of event and compares what Describe, Report and LogTo print
// with the README. With -update it rewrites the README.
func TestReadmeShowsWhatIsReallyPrinted(t *testing.T) {
	var describe, report, log string
	synctest.Test(t, func(t *testing.T) { describe, report, log = printed(t) })
	const path = "../README.md"
	readme, err := os.ReadFile(path)
	require.NoError(t, err)
	want := string(readme)
	for name, text := range map[string]string{"describe": describe, "report": report, "log": log} {
		block := regexp.MustCompile(`(?s)(<!-- printed: ` + name + ` -->\n` + "```text\n" + `).*?(` + "\n```" + `)`)
		require.Truef(t, block.MatchString(want), "README.md has no block %q", name)
		want = block.ReplaceAllStringFunc(want, func(old string) string {
			parts := block.FindStringSubmatch(old)
			return parts[1] + text + parts[2]
		})
	}
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(want), 0o644))
		return
	}
	for i, line := range strings.Split(want, "\n") {
		require.Equal(t, line, strings.Split(string(readme), "\n")[i], "README.md:%d: run with -update and read the difference", i+1)
	}
}

// printed tells a story in which everything happens once.
func printed(t *testing.T) (describe, report, log string) {
	sim := cosmostest.Start(t, cosmostest.Config{InMemory: true, IgnoreSignatures: true})
	sim.CreateContainer("shop", "orders", cosmostest.Container{Paths: []string{"/customer"}})
	account, err := cosmos.Open(t.Context(), sim.Endpoint(), cosmos.SharedKey(sim.Key()), cosmos.Options{Transport: sim.Transport()})
	require.NoError(t, err)
	t.Cleanup(account.Close)

	lines := &firstLines{seen: map[middleware.EventKind]string{}}
	pools := &roundtrippers.Pools{New: func() http.RoundTripper { return sim.Transport().Clone() }, Grace: time.Millisecond}
	rt, err := roundtrippers.Builder{
		Dialect: account, Regions: account.Regions, Partitions: account.Partitions,
		Observe: lines.observe, OperationTimeout: time.Minute, AttemptTimeout: 5 * time.Second, Base: pools,
	}.Build()
	require.NoError(t, err)
	t.Cleanup(pools.CloseIdleConnections)

	do := func(method, path, body string) *http.Response {
		req, err := http.NewRequestWithContext(t.Context(), method, sim.Endpoint()+path, strings.NewReader(body))
		require.NoError(t, err)
		req.Header.Set("x-ms-documentdb-partitionkey", `["ann"]`)
		resp, err := rt.RoundTrip(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		return resp
	}
	const docs = "/dbs/shop/colls/orders/docs"
	const west, east, north = "West US", "East US", "North Europe"
	create := func(id string) *http.Response {
		return do("POST", docs, fmt.Sprintf(`{"id":%q,"customer":"ann"}`, id))
	}
	read := func() *http.Response { return do("GET", docs+"/1", "") }

	create("1")
	read()
	throttled := sim.AddFault(cosmostest.Fault{Match: cosmostest.Match{Region: east}, Count: 1, Answer: cosmostest.Throttled(20 * time.Millisecond)})
	sim.AddFault(cosmostest.Fault{Match: cosmostest.Match{Region: west, Operations: cosmostest.DataReads()}, Count: 1, Answer: cosmostest.Error(503, 0)})
	report = middleware.FromResponse(read()).Report().String()
	require.Equal(t, 1, throttled.Hits())

	// A wait that does not fit: the answer in hand comes back.
	sim.AddFault(cosmostest.Fault{Match: cosmostest.Match{Operations: cosmostest.DataReads()}, Count: 1, Answer: cosmostest.Throttled(40 * time.Second)})
	require.Equal(t, http.StatusTooManyRequests, read().StatusCode)

	// A partition that fails in one region, until its breaker opens, and recovers.
	broken := sim.AddFault(cosmostest.Fault{Match: cosmostest.Match{Region: west, Operations: cosmostest.DataReads()}, Answer: cosmostest.Error(503, 0)})
	for range 10 {
		read()
	}
	broken.Remove()
	time.Sleep(8 * time.Second)
	read()

	// A split.
	sim.AddFault(cosmostest.Fault{Match: cosmostest.Match{Operations: cosmostest.DataReads()}, Count: 1, Answer: cosmostest.Error(410, 1002)})
	read()

	// The write role moves, and comes back after the mark is old enough for a probe.
	time.Sleep(time.Minute)
	sim.SetWriteRegion(east)
	create("2")
	time.Sleep(time.Minute)
	sim.SetWriteRegion(west)
	create("3")

	// The writes of a single partition move.
	on := true
	sim.SetPartitionFailover(&on)
	time.Sleep(time.Minute)
	_, err = account.Regions.Refresh(t.Context(), account.Regions.Topology())
	require.NoError(t, err)
	sim.FailoverPartition("shop", "orders", "", north)
	create("4")

	// A region that cannot be reached, until its connections are given up.
	sim.SetOffline(west, cosmostest.BlackHole)
	for range 6 {
		read()
		time.Sleep(time.Minute)
	}
	return middleware.Describe(rt), report, lines.text(t)
}

// firstLines keeps the first line of each kind as LogTo prints it, without the
// time.
type firstLines struct {
	mu   sync.Mutex
	seen map[middleware.EventKind]string
}

func (f *firstLines) observe(ctx context.Context, e middleware.Event) {
	var b bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&b, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
	middleware.LogTo(logger)(ctx, e)
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, ok := f.seen[e.Kind]; !ok {
		f.seen[e.Kind] = strings.TrimSpace(b.String())
	}
}

// tellers are the kinds that no layer of this stack can tell of: they belong to
// those who read answers and write items, such as rest.API.
var tellers = []middleware.EventKind{middleware.RowsPulled, middleware.WritePushed}

// text is one line for each kind there is. It fails where the story left one out.
func (f *firstLines) text(t *testing.T) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var lines []string
	for kind := middleware.AttemptStarted; kind.String() != "unknown event"; kind++ {
		line, seen := f.seen[kind]
		require.Equal(t, !slices.Contains(tellers, kind), seen, "%s", kind)
		if seen {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n")
}
