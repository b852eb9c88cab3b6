// Ownership runs a cluster of five nodes on loopback whose keys change owner, and
// 64 clients that count in it with compare-and-swap (If-Match) through a plain
// http.Client, while keys move, segments migrate, a node dies and comes back.
// In the end every acknowledged increment must be there, exactly once.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lmittmann/tint"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/ownership"
	"github.com/reroute-go/reroute/middleware/ownership/ownershiptest"
	"github.com/reroute-go/reroute/roundtrippers"
)

const (
	clients  = 64
	counters = 32
	segments = 40
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "\nownership: FAILED:", err)
		os.Exit(1)
	}
}

func run() error {
	cluster, err := ownershiptest.New(ownershiptest.Config{Nodes: 5, Segments: segments, Latency: 2 * time.Millisecond})
	if err != nil {
		return err
	}
	defer cluster.Close()
	client, registry, err := connect(cluster)
	if err != nil {
		return err
	}
	defer registry.Close()

	// The load runs until the script is through.
	ctx, stop := context.WithCancel(context.Background())
	load := &load{cluster: cluster, client: client}
	var writers sync.WaitGroup
	for i := range clients {
		writers.Go(func() { load.count(ctx, fmt.Sprint("client-", i)) })
	}
	start := time.Now()
	play(load, slog.New(tint.NewTextHandler(os.Stdout, &tint.Options{TimeFormat: "05.000"})))
	stop()
	writers.Wait()

	took := time.Since(start).Seconds()
	fmt.Printf("\n%d increments by %d clients, %d calls, %.3f %% of them answered, %.1f map fetches a second, longest call %s\n",
		load.done.Load(), clients, load.calls.Load(), 100*load.answered(), float64(cluster.Fetches())/took, load.longest())
	return load.verdict()
}

// connect is all there is to it on the client's side.
func connect(cluster *ownershiptest.Cluster) (*http.Client, *ownership.Registry, error) {
	switches, err := roundtrippers.SwitchesFromEnv("KV_", nil)
	if err != nil {
		fmt.Fprintln(os.Stderr, err) // junk in the environment is reported, and ignored
	}
	registry, err := ownership.New(ownership.Config{Source: cluster.Source()})
	if err != nil {
		return nil, nil, err
	}
	rt, err := roundtrippers.OwnershipBuilder{
		Dialect:  &ownership.Dialect{Key: ownership.PathKey("/kv/")},
		Owners:   registry,
		Switches: switches,
		Base:     cluster.Transport(),
	}.Build()
	if err != nil {
		return nil, nil, err
	}
	fmt.Printf("%s\n\n", middleware.Describe(rt))
	return &http.Client{Transport: rt}, registry, nil
}

// play is the script.
func play(load *load, log *slog.Logger) {
	cluster := load.cluster
	nodes := cluster.Nodes()
	anywhere := func() string { return nodes[rand.IntN(len(nodes))] }
	scene := func(what string, change func()) {
		log.Info("--- " + what)
		before, fetches, start := load.done.Load(), cluster.Fetches(), time.Now()
		change()
		time.Sleep(max(0, 1500*time.Millisecond-time.Since(start)))
		log.Info("counted", "increments", load.done.Load()-before, "fetches", cluster.Fetches()-fetches, "unanswered", load.failed.Load())
	}
	scene("all is well", func() {})
	scene("a segment moves every 50 ms", func() {
		for range 25 {
			cluster.MoveSegment(rand.IntN(segments), anywhere())
			time.Sleep(50 * time.Millisecond)
		}
	})
	scene("segments migrate, writes are held for 300 ms", func() {
		for range 8 {
			cluster.MigrateSegment(rand.IntN(segments), anywhere(), 300*time.Millisecond)
			time.Sleep(100 * time.Millisecond)
		}
	})
	dead := nodes[2]
	scene(dead+" dies; its replicas take over 200 ms later", func() {
		cluster.Fail(dead)
		time.Sleep(200 * time.Millisecond)
		cluster.FailOver(dead)
	})
	scene(dead+" comes back and is handed a fifth of the segments", func() {
		if err := cluster.Recover(dead); err != nil {
			log.Error("recover", "err", err)
			return
		}
		for i := range segments / 5 {
			cluster.HandOffSegment(5*i, dead, 100*time.Millisecond)
		}
	})
	scene("the map service needs 400 ms an answer while segments move", func() {
		cluster.SlowMap(400 * time.Millisecond)
		for range 10 {
			cluster.MoveSegment(rand.IntN(segments), anywhere())
			time.Sleep(100 * time.Millisecond)
		}
		cluster.SlowMap(0)
	})
	scene("all is well again", func() {})
}

// load counts. A counter is one value: how often each client has incremented it.
type load struct {
	cluster *ownershiptest.Cluster
	client  *http.Client

	calls, failed, done atomic.Int64 // done: increments known to have happened
	slowest             atomic.Int64
}

type tally map[string]int

// count increments one counter after the other.
func (l *load) count(ctx context.Context, me string) {
	for ctx.Err() == nil {
		key := fmt.Sprint("counter-", rand.IntN(counters))
		for !l.increment(key, me) {
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// increment is a compare-and-swap that knows nothing of churn: read, add, write
// if nobody else has. It reports whether the increment is known to have happened.
func (l *load) increment(key, me string) bool {
	now, version, ok := l.read(key)
	if !ok {
		return false
	}
	want := now[me] + 1
	now[me] = want
	body, err := json.Marshal(now)
	if err != nil {
		panic(err)
	}
	status, report := l.send(http.MethodPut, key, string(body), version, nil)
	if status < 300 && status != 0 {
		l.done.Add(1)
		return true
	}
	// Refused, or nobody knows. Where an attempt's answer was lost it may have been
	// our own write that came first: the value tells.
	for report.InDoubt {
		if now, _, ok := l.read(key); ok {
			if now[me] != want {
				return false
			}
			l.done.Add(1)
			return true
		}
	}
	return false
}

func (l *load) read(key string) (now tally, version string, ok bool) {
	now = tally{}
	status, _ := l.send(http.MethodGet, key, "", "", func(resp *http.Response, body []byte) {
		version, _ = ownership.Version(resp)
		ok = json.Unmarshal(body, &now) == nil
	})
	return now, version, ok || status == http.StatusNotFound
}

// send makes one request, guarded if it writes. Owners and retries are the
// transport's. A status of 0 means that there was no answer.
func (l *load) send(method, key, body, version string, read func(*http.Response, []byte)) (int, middleware.Report) {
	req, err := http.NewRequestWithContext(context.Background(), method, l.cluster.URL(key), strings.NewReader(body))
	if err == nil && method == http.MethodPut {
		if version == "" {
			err = ownership.IfAbsent(req)
		} else {
			err = ownership.IfVersion(req, version)
		}
	}
	if err != nil {
		panic(err)
	}
	started := time.Now()
	resp, err := l.client.Do(req)
	l.calls.Add(1)
	l.note(time.Since(started))
	if err != nil {
		l.failed.Add(1)
		return 0, middleware.Report{InDoubt: true}
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if resp.StatusCode == http.StatusMisdirectedRequest || resp.StatusCode >= 500 {
		l.failed.Add(1)
	}
	if err == nil && read != nil && resp.StatusCode == http.StatusOK {
		read(resp, data)
	}
	return resp.StatusCode, middleware.FromResponse(resp).Report()
}

func (l *load) note(took time.Duration) {
	for {
		old := l.slowest.Load()
		if int64(took) <= old || l.slowest.CompareAndSwap(old, int64(took)) {
			return
		}
	}
}

func (l *load) longest() time.Duration {
	return time.Duration(l.slowest.Load()).Round(time.Millisecond)
}

func (l *load) answered() float64 {
	return 1 - float64(l.failed.Load())/float64(max(l.calls.Load(), 1))
}

// verdict compares what was acknowledged with what is stored.
func (l *load) verdict() error {
	stored := int64(0)
	for i := range counters {
		value, _, ok := l.cluster.Value(fmt.Sprint("counter-", i))
		if !ok {
			continue
		}
		counted := tally{}
		if err := json.Unmarshal([]byte(value), &counted); err != nil {
			return fmt.Errorf("counter %d: %w", i, err)
		}
		for _, n := range counted {
			stored += int64(n)
		}
	}
	if done := l.done.Load(); stored != done {
		return fmt.Errorf("%d increments acknowledged, %d stored: updates were lost or doubled", done, stored)
	}
	fmt.Printf("every one of %d acknowledged increments is stored, exactly once\n", stored)
	return nil
}
