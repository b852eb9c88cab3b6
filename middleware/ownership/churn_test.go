package ownership_test

import (
	"context"
	"fmt"
	"io"
	"math/rand"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/ownership"
	"github.com/reroute-go/reroute/middleware/ownership/ownershiptest"
	"github.com/reroute-go/reroute/roundtrippers"
)

// clustered is a client of a simulated cluster.
type clustered struct {
	*ownershiptest.Cluster
	registry *ownership.Registry
	client   *http.Client
}

func newClustered(t testing.TB, cfg ownershiptest.Config, b roundtrippers.OwnershipBuilder) *clustered {
	c, err := ownershiptest.New(cfg)
	require.NoError(t, err)
	registry, err := ownership.New(ownership.Config{Source: c.Source()})
	require.NoError(t, err)
	b.Dialect = &ownership.Dialect{Key: ownership.PathKey("/kv/")}
	b.Owners, b.Base = registry, c.Transport()
	rt, err := b.Build()
	require.NoError(t, err)
	t.Cleanup(func() {
		registry.Close()
		c.Close()
	})
	return &clustered{c, registry, &http.Client{Transport: rt}}
}

// do sends and returns status, body and answer.
func (c *clustered) do(ctx context.Context, method, key, body string, guard func(*http.Request) error) (int, string, *http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.URL(key), strings.NewReader(body))
	if err != nil {
		return 0, "", nil, err
	}
	if guard != nil {
		if err := guard(req); err != nil {
			return 0, "", nil, err
		}
	}
	resp, err := c.client.Do(req)
	if err != nil {
		return 0, "", nil, err
	}
	data, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	return resp.StatusCode, string(data), resp, err
}

// increment is a caller's compare-and-swap loop: it knows nothing of churn.
func (c *clustered) increment(ctx context.Context, key string, note func(status int, err error)) error {
	for {
		status, value, resp, err := c.do(ctx, http.MethodGet, key, "", nil)
		note(status, err)
		var guard func(*http.Request) error
		n := 0
		switch {
		case err != nil:
			return err
		case status == 404:
			guard = ownership.IfAbsent
		case status == 200:
			n, _ = strconv.Atoi(value)
			version, ok := ownership.Version(resp)
			if !ok {
				return fmt.Errorf("no version of %s", key)
			}
			guard = func(req *http.Request) error { return ownership.IfVersion(req, version) }
		default:
			return fmt.Errorf("GET %s: %d", key, status)
		}
		status, _, _, err = c.do(ctx, http.MethodPut, key, strconv.Itoa(n+1), guard)
		note(status, err)
		switch {
		case err != nil:
			return err
		case status < 300:
			return nil
		case status != 412:
			return fmt.Errorf("PUT %s: %d", key, status)
		}
	}
}

// churn disturbs the segment of a key in one of the ways ownership changes.
func (c *clustered) churn(rng *rand.Rand, segment int) {
	nodes := c.Nodes()
	to := nodes[rng.Intn(len(nodes))]
	switch rng.Intn(4) {
	case 0, 1:
		c.MoveSegment(segment, to)
	case 2:
		c.HandOffSegment(segment, to, 100*time.Millisecond)
	case 3:
		c.MigrateSegment(segment, to, 500*time.Millisecond)
	}
}

func TestACompareAndSwapLoopWorksUnchangedUnderChurn(t *testing.T) { // Z091, Z007, issue point 4
	for _, hints := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c := newClustered(t, ownershiptest.Config{InMemory: true, Segments: 4, Latency: 5 * time.Millisecond, Hints: hints}, roundtrippers.OwnershipBuilder{})
			ctx, stop := context.WithCancel(t.Context())
			var wg, storm sync.WaitGroup
			storm.Go(func() {
				rng := rand.New(rand.NewSource(1))
				for ctx.Err() == nil {
					c.churn(rng, c.Segment("counter"))
					time.Sleep(1500 * time.Millisecond)
					c.Promote("counter")
					time.Sleep(1500 * time.Millisecond)
				}
			})
			for range 8 {
				wg.Go(func() {
					for range 100 {
						require.NoError(t, c.increment(ctx, "counter", func(int, error) {}))
					}
				})
			}
			wg.Wait()
			stop()
			storm.Wait()
			value, _, _ := c.Value("counter")
			require.Equal(t, "800", value)
			require.NotZero(t, c.Answers(ownership.Conflict), "writers did meet")
			require.NotZero(t, c.Answers(ownership.Moved)+c.Answers(ownership.ReplicaWriteRejected), "keys did move")
		})
	}
}

func TestSoakWithATenthOfTheKeysMovingEachSecond(t *testing.T) { // issue point 6
	for _, hints := range []bool{false, true} {
		t.Run(fmt.Sprint("hints ", hints), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const clients, segments = 64, 60
				length := time.Minute
				if raceEnabled {
					length = 5 * time.Second // the detector is slow; what it looks for happens in each of them
				}
				c := newClustered(t, ownershiptest.Config{InMemory: true, Segments: segments, Latency: 10 * time.Millisecond, Hints: hints}, roundtrippers.OwnershipBuilder{})
				ctx, stop := context.WithCancel(t.Context())
				var wg sync.WaitGroup
				var calls, failed, done [clients]int
				var longest [clients]time.Duration
				start := time.Now()
				wg.Go(func() {
					rng := rand.New(rand.NewSource(2))
					for time.Since(start) < length {
						for range segments / 10 {
							c.churn(rng, rng.Intn(segments))
							time.Sleep(time.Second / (segments / 10))
						}
					}
					stop()
				})
				for i := range clients {
					wg.Go(func() {
						rng := rand.New(rand.NewSource(int64(i)))
						for ctx.Err() == nil {
							key := fmt.Sprint("key ", rng.Intn(200))
							began := time.Now()
							err := c.increment(context.WithoutCancel(ctx), strings.ReplaceAll(key, " ", "-"), func(status int, err error) {
								calls[i]++
								if err != nil || status == 421 || status >= 500 {
									failed[i]++
								}
								longest[i] = max(longest[i], time.Since(began))
								began = time.Now()
							})
							if err == nil {
								done[i]++
							}
							time.Sleep(100 * time.Millisecond)
						}
					})
				}
				wg.Wait()
				sum := func(counts [clients]int) (n int) {
					for _, k := range counts {
						n += k
					}
					return n
				}
				total := 0
				for i := range 200 {
					value, _, _ := c.Value(fmt.Sprint("key-", i))
					n, _ := strconv.Atoi(value)
					total += n
				}
				var slowest time.Duration
				for _, d := range longest {
					slowest = max(slowest, d)
				}
				success := 1 - float64(sum(failed))/float64(sum(calls))
				t.Logf("%d calls, %.3f %% answered, %d increments, %.2f fetches/s, longest call %s, rejections: %d moved %d changing %d migrating",
					sum(calls), 100*success, sum(done), float64(c.Fetches())/length.Seconds(), slowest,
					c.Answers(ownership.Moved), c.Answers(ownership.OwnershipChanging), c.Answers(ownership.Migrating))
				require.Equal(t, sum(done), total, "no lost update, none twice")
				require.GreaterOrEqual(t, success, 0.999)
				require.LessOrEqual(t, float64(c.Fetches()), 2.5*length.Seconds()+5, "two a second by the debounce, and those who insisted")
				require.LessOrEqual(t, slowest, 5*time.Second)
			}) // the bubble fails if a goroutine is left
		})
	}
}

func TestANodeDiesAndComesBack(t *testing.T) { // Z023, P17
	synctest.Test(t, func(t *testing.T) {
		c := newClustered(t, ownershiptest.Config{InMemory: true, Latency: time.Millisecond}, roundtrippers.OwnershipBuilder{})
		for i := range 100 {
			status, _, _, err := c.do(t.Context(), "PUT", fmt.Sprint("key-", i), "v", nil)
			require.NoError(t, err)
			require.Equal(t, 201, status)
		}
		time.Sleep(time.Second)
		dead := c.Owner("key-0")
		c.Fail(dead)
		c.FailOver(dead)
		before := c.Fetches()
		resent := 0
		for i := range 100 {
			status, _, resp, err := c.do(t.Context(), "GET", fmt.Sprint("key-", i), "", nil)
			require.NoError(t, err)
			require.Equal(t, 200, status)
			resent += middleware.FromResponse(resp).Sends() - 1
		}
		require.Equal(t, 1, resent, "one dial error spared the other keys the same")
		require.Equal(t, before+1, c.Fetches())
		require.NoError(t, c.Recover(dead))
		c.Move("key-0", dead)
		status, _, _, err := c.do(t.Context(), "GET", "key-0", "", nil)
		require.NoError(t, err)
		require.Equal(t, 200, status)
	})
}

func TestALostAnswerIsTheCallersToJudge(t *testing.T) { // Z085, Z086, Z030 against a store that commits
	synctest.Test(t, func(t *testing.T) {
		c := newClustered(t, ownershiptest.Config{InMemory: true}, roundtrippers.OwnershipBuilder{})
		c.LoseAnswers("k", 1)
		status, _, resp, err := c.do(t.Context(), "PUT", "k", "1", ownership.IfAbsent)
		require.NoError(t, err)
		require.Equal(t, 412, status)
		report := middleware.FromResponse(resp).Report()
		require.True(t, report.InDoubt)
		require.NotZero(t, report.Echo, "it was our own write")
		value, _, _ := c.Value("k")
		require.Equal(t, "1", value)

		c.LoseAnswers("k", 1)
		_, _, _, err = c.do(t.Context(), "POST", "k", "5", nil)
		require.ErrorIs(t, err, middleware.ErrNotRepeatable)
		value, _, _ = c.Value("k")
		require.Equal(t, "6", value, "added once")
	})
}

func TestStaleAndSlowMapsAreSurvived(t *testing.T) { // Z059, Z060
	synctest.Test(t, func(t *testing.T) {
		c := newClustered(t, ownershiptest.Config{InMemory: true}, roundtrippers.OwnershipBuilder{})
		status, _, _, err := c.do(t.Context(), "PUT", "k", "1", nil)
		require.NoError(t, err)
		require.Equal(t, 201, status)
		time.Sleep(time.Second)
		nodes := c.Nodes()
		c.StaleMap(1)
		c.Move("k", nodes[(c.Segment("k")+2)%len(nodes)])
		status, _, _, err = c.do(t.Context(), "PUT", "k", "2", nil)
		require.NoError(t, err)
		require.Equal(t, 200, status, "the second fetch told the truth")

		time.Sleep(time.Second)
		c.SlowMap(3 * time.Second)
		c.Move("k", nodes[(c.Segment("k")+3)%len(nodes)])
		start := time.Now()
		status, _, _, err = c.do(t.Context(), "PUT", "k", "3", nil)
		require.NoError(t, err)
		require.Equal(t, 200, status)
		require.Equal(t, 3100*time.Millisecond, time.Since(start))
	})
}

func TestEachAttemptTellsItsEpochAndWhatTimeIsLeft(t *testing.T) { // P15
	synctest.Test(t, func(t *testing.T) {
		c := newClustered(t, ownershiptest.Config{InMemory: true, Latency: 10 * time.Millisecond}, roundtrippers.OwnershipBuilder{
			OperationTimeout: 2 * time.Second, PerAttempt: []middleware.Layer{ownership.Stamp{}},
		})
		_, _, _, err := c.do(t.Context(), "GET", "k", "", nil)
		require.NoError(t, err)
		time.Sleep(time.Second)
		c.Move("k", c.Nodes()[(c.Segment("k")+2)%5])
		_, _, _, err = c.do(t.Context(), "GET", "k", "", nil)
		require.NoError(t, err)
		hits := c.Hits("k")
		require.Len(t, hits, 3)
		for i, want := range []struct {
			epoch uint64
			left  time.Duration
		}{{1, 2000 * time.Millisecond}, {1, 2000 * time.Millisecond}, {2, 1890 * time.Millisecond}} {
			req := &http.Request{Header: hits[i].Header}
			epoch, _ := ownership.Words{}.Epoch(req)
			left, _ := ownership.Words{}.Remaining(req)
			require.Equal(t, want.epoch, epoch)
			require.Equal(t, want.left, left)
		}
	})
}

func TestRealSocketsCarryTheSameChurn(t *testing.T) {
	c := newClustered(t, ownershiptest.Config{Nodes: 3, Segments: 6, Hints: true}, roundtrippers.OwnershipBuilder{Reroute: roundtrippers.Reroute{Attempts: 10}})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var writers sync.WaitGroup
	var errs atomic.Int64
	for i := range 4 {
		writers.Go(func() {
			for j := range 25 {
				if err := c.increment(ctx, fmt.Sprint("c", (i+j)%3), func(int, error) {}); err != nil {
					t.Log(err)
					errs.Add(1)
				}
			}
		})
	}
	rng := rand.New(rand.NewSource(3))
	for range 30 {
		c.MoveSegment(rng.Intn(6), c.Nodes()[rng.Intn(3)])
	}
	dead := c.Nodes()[0]
	c.FailOver(dead) // first, so that nothing is under way there for long
	c.Fail(dead)
	writers.Wait()
	require.NoError(t, c.Recover(dead))
	c.Move("c0", dead)
	require.NoError(t, c.increment(ctx, "c0", func(int, error) {}))
	total := 0
	for i := range 3 {
		value, _, _ := c.Value(fmt.Sprint("c", i))
		n, _ := strconv.Atoi(value)
		total += n
	}
	require.Zero(t, errs.Load())
	require.GreaterOrEqual(t, total, 101, "a lost answer may make its caller count once more, never less")
}
