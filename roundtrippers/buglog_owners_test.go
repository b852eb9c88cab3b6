package roundtrippers_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/cosmos/cosmostest"
	"github.com/reroute-go/reroute/middleware/layertest"
	"github.com/reroute-go/reroute/middleware/ownership"
	"github.com/reroute-go/reroute/middleware/rest"
	"github.com/reroute-go/reroute/roundtrippers"
)

// K24 to K28, over the ownership stack and its map; package regions/snapshot, which all three kinds of map share, has the
// same cases under these ids.

// kv is a store of one segment, whose nodes and map service a test scripts.
type kv struct {
	t       *testing.T
	rt      http.RoundTripper
	owners  *ownership.Registry
	script  *layertest.Script
	fetches atomic.Int64

	mu    sync.Mutex
	node  func(host string, req *http.Request) layertest.Step
	fetch func(ctx context.Context) (*ownership.Map, error)
}

func ownedBy(epoch uint64, owners ...string) *ownership.Map {
	m := &ownership.Map{Epoch: epoch, Nodes: []string{"n1", "n2"}}
	for _, o := range owners {
		m.Segments = append(m.Segments, ownership.Segment{Owner: o})
	}
	return m
}

// newKV knows n1 as the owner, since a second.
func newKV(t *testing.T, b roundtrippers.OwnershipBuilder, node func(host string, req *http.Request) layertest.Step) *kv {
	t.Helper()
	s := &kv{t: t, node: node}
	s.fetch = func(context.Context) (*ownership.Map, error) { return ownedBy(1, "n1"), nil }
	s.script = layertest.NewServer(t, func(req *http.Request) layertest.Step {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.node(req.URL.Host, req)
	})
	var err error
	s.owners, err = ownership.New(ownership.Config{Source: ownership.MapSourceFunc(func(ctx context.Context, _ *ownership.Map) (*ownership.Map, error) {
		s.fetches.Add(1)
		s.mu.Lock()
		fetch := s.fetch
		s.mu.Unlock()
		return fetch(ctx)
	})})
	require.NoError(t, err)
	t.Cleanup(s.owners.Close)
	_, err = s.owners.Force(t.Context())
	require.NoError(t, err)
	b.Dialect, b.Owners, b.Base = kvDialect, s.owners, s.script
	s.rt, err = b.Build()
	require.NoError(t, err)
	time.Sleep(time.Second)
	s.fetches.Store(0)
	return s
}

// mapIs is what the map service says from now on, each time after a while.
func (s *kv) mapIs(m *ownership.Map, takes time.Duration, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fetch = func(ctx context.Context) (*ownership.Map, error) {
		if err := inTime(ctx, takes); err != nil {
			return nil, err
		}
		return m, err
	}
}

func (s *kv) send(ctx context.Context) (told, time.Duration) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, "http://kv.test/kv/k", strings.NewReader("text"))
	require.NoError(s.t, err)
	began := time.Now()
	got := tell(s.t, s.rt, req)
	return got, time.Since(began)
}

func says421(word string) layertest.Step {
	return layertest.Step{Status: 421, Body: word, Header: map[string]string{"X-Route-Status": word}}
}

func TestB71OnlyOwnershipSignalsRefreshAndAtABoundedRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		codes := []int{404, 409, 400}
		n := 0
		s := newKV(t, roundtrippers.OwnershipBuilder{}, func(string, *http.Request) layertest.Step {
			n++
			return layertest.Step{Status: codes[n%3]}
		})
		for range 1000 {
			got, _ := s.send(t.Context())
			require.Equal(t, 1, got.Sends)
			time.Sleep(10 * time.Millisecond)
		}
		require.Zero(t, s.fetches.Load())
		s.mu.Lock()
		s.node = func(string, *http.Request) layertest.Step { return says421("moved") }
		s.mu.Unlock()
		s.mapIs(ownedBy(1, "n1"), 50*time.Millisecond, nil)
		began := time.Now()
		var all sync.WaitGroup
		for range 1000 {
			all.Go(func() { s.send(t.Context()) })
			time.Sleep(10 * time.Millisecond)
		}
		all.Wait()
		most := int64(time.Since(began)/(100*time.Millisecond)) + 2 // 500 ms apart, save where an operation was turned away a second time
		require.LessOrEqual(t, s.fetches.Load(), most)
		require.Positive(t, s.fetches.Load())
	})
}

func TestB72JoinersShareTheFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newKV(t, roundtrippers.OwnershipBuilder{OperationTimeout: -1, Reroute: roundtrippers.Reroute{RefreshWait: time.Hour, Attempts: 2}},
			func(string, *http.Request) layertest.Step { return says421("moved") })
		owners, err := ownership.New(ownership.Config{FetchTimeout: time.Hour, Source: ownership.MapSourceFunc(func(context.Context, *ownership.Map) (*ownership.Map, error) {
			s.fetches.Add(1)
			time.Sleep(time.Minute)
			return nil, errTrouble
		})})
		require.NoError(t, err)
		defer owners.Close()
		var all sync.WaitGroup
		began := time.Now()
		for range 10 {
			all.Go(func() {
				require.ErrorIs(t, owners.Refresh(t.Context(), "k", middleware.Target{Endpoint: "n1", Epoch: 1}, false), errTrouble)
				require.Equal(t, time.Minute, time.Since(began))
			})
		}
		all.Wait()
		require.EqualValues(t, 1, s.fetches.Load())

		s.fetches.Store(0) // with a map to go on with
		s.mapIs(nil, 25*time.Second, errTrouble)
		for range 10 {
			all.Go(func() {
				got, took := s.send(t.Context())
				require.Equal(t, "moved", got.body)
				require.Less(t, took, 26*time.Second, "not one after the other")
			})
		}
		all.Wait()
		require.LessOrEqual(t, s.fetches.Load(), int64(2), "one they share, and one that is asked for by who was turned away again")
	})
}

func TestB74ACancelledCallerDoesNotCancelSharedWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newKV(t, roundtrippers.OwnershipBuilder{}, func(host string, _ *http.Request) layertest.Step {
			if host == "n1" {
				return says421("moved")
			}
			return fine
		})
		s.mapIs(ownedBy(2, "n2"), 50*time.Millisecond, nil)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Millisecond, cancel)
		var all sync.WaitGroup
		all.Go(func() {
			got, took := s.send(ctx)
			require.Equal(t, middleware.CanceledByCaller, got.Stop, "with the answer in hand")
			require.Equal(t, time.Millisecond, took)
		})
		synctest.Wait()
		for range 4 {
			all.Go(func() {
				got, took := s.send(t.Context())
				require.Equal(t, "fine", got.body)
				require.LessOrEqual(t, took, 160*time.Millisecond, "the fetch, and the wait before the second attempt")
			})
		}
		all.Wait()
		require.EqualValues(t, 1, s.fetches.Load())
	})
}

func TestB76AJoinerWaitsNoLongerThanItsOwnDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newKV(t, roundtrippers.OwnershipBuilder{OperationTimeout: -1, Reroute: roundtrippers.Reroute{Attempts: 2}},
			func(string, *http.Request) layertest.Step { return says421("moved") })
		s.mapIs(ownedBy(2, "n2"), 25*time.Second, nil)
		var all sync.WaitGroup
		for _, c := range []struct{ deadline, most time.Duration }{
			{100 * time.Millisecond, 100 * time.Millisecond}, {time.Second, time.Second}, {0, 15*time.Second + 200*time.Millisecond},
		} {
			all.Go(func() {
				ctx, cancel := t.Context(), context.CancelFunc(func() {})
				if c.deadline > 0 {
					ctx, cancel = context.WithTimeout(ctx, c.deadline)
				}
				defer cancel()
				_, took := s.send(ctx)
				require.LessOrEqual(t, took, c.most)
				if c.deadline == 0 {
					require.GreaterOrEqual(t, took, 15*time.Second, "then it goes on with the old map")
				}
			})
		}
		all.Wait()
		time.Sleep(10 * time.Second)
		require.EqualValues(t, 1, s.fetches.Load(), "the refresh went on")
		require.EqualValues(t, 2, s.owners.Map().Epoch)
	})
}

// K27, rerouting. There is no word for a one-off redirect: a node that hands a key over says migrating, which moves
// nothing, and so does a service's own word for "ask n2 this once", given to Dialect.Classify.
func TestB79TemporaryRedirectsDoNotChangeTheMap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		s := newKV(t, roundtrippers.OwnershipBuilder{}, func(string, *http.Request) layertest.Step {
			if n++; n == 1 {
				return layertest.Step{Status: 503, Header: map[string]string{"X-Route-Status": "migrating", "X-Route-Owner": "n2", "X-Route-Epoch": "9"}}
			}
			return fine
		})
		for range 2 {
			got, _ := s.send(t.Context())
			require.Equal(t, "fine", got.body)
		}
		require.Equal(t, []string{"n1", "n1", "n1"}, s.script.Hosts())
		require.EqualValues(t, 1, s.owners.Map().Epoch)
		require.Zero(t, s.fetches.Load())
		target, err := s.owners.Owner(t.Context(), "k")
		require.NoError(t, err)
		require.Equal(t, "n1", target.Endpoint)
	})
}

func TestB80RedirectLoopsAreBoundedByCountAndByTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		s := newKV(t, roundtrippers.OwnershipBuilder{Reroute: roundtrippers.Reroute{Attempts: 20}}, func(host string, _ *http.Request) layertest.Step {
			if host == "n1" {
				return says421("moved")
			}
			return fine
		})
		s.fetch = func(context.Context) (*ownership.Map, error) {
			if time.Since(began) < 4*time.Second { // 3 s from the first send on
				return ownedBy(1, "n1"), nil
			}
			return ownedBy(2, "n2"), nil
		}
		ctx, cancel := contextFor(t, 10*time.Second)
		defer cancel()
		got, took := s.send(ctx)
		require.Equal(t, "fine", got.body)
		require.True(t, 3*time.Second <= took && took <= 5*time.Second, took)
		require.LessOrEqual(t, got.Sends, 10)
		require.LessOrEqual(t, s.fetches.Load(), int64(got.Sends))
		gaps := gapsOf(s.script.Sends())
		require.Greater(t, gaps[len(gaps)-1], gaps[0], "growing")
		require.GreaterOrEqual(t, gaps[0], 100*time.Millisecond, "it waits before it goes back")
	})
	for _, attempts := range []int{0, 1000} { // two nodes that name each other for ever: by count, by time
		synctest.Test(t, func(t *testing.T) {
			s := newKV(t, roundtrippers.OwnershipBuilder{Reroute: roundtrippers.Reroute{Attempts: attempts}}, func(host string, _ *http.Request) layertest.Step {
				other := says421("moved")
				other.Header["X-Route-Owner"] = map[string]string{"n1": "n2", "n2": "n1"}[host]
				return other
			})
			ctx, cancel := contextFor(t, 10*time.Second)
			defer cancel()
			got, took := s.send(ctx)
			require.Equal(t, "moved", got.body, "the last answer")
			if attempts == 0 {
				require.Equal(t, 3, got.Sends)
				require.Less(t, took, time.Second)
			} else {
				require.LessOrEqual(t, took, 10*time.Second)
				require.Less(t, got.Sends, 50)
			}
			require.LessOrEqual(t, s.fetches.Load(), int64(got.Sends))
		})
	}
}

func TestB81ADeadOwnerTriggersARefreshACancelledDialDoesNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newKV(t, roundtrippers.OwnershipBuilder{}, func(host string, _ *http.Request) layertest.Step {
			if host == "n1" {
				return layertest.Step{Err: refusedDial}
			}
			return fine
		})
		s.mapIs(ownedBy(2, "n2"), 10*time.Millisecond, nil)
		got, _ := s.send(t.Context())
		require.Equal(t, "fine", got.body)
		require.EqualValues(t, 1, s.fetches.Load())
		require.LessOrEqual(t, got.Sends, 3)
	})
	synctest.Test(t, func(t *testing.T) {
		s := newKV(t, roundtrippers.OwnershipBuilder{}, func(string, *http.Request) layertest.Step { return layertest.Step{Hang: true} })
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		got, _ := s.send(ctx)
		require.NotNil(t, got.err)
		require.ErrorIs(t, got.err, context.Canceled)
		time.Sleep(time.Minute)
		require.Zero(t, s.fetches.Load())
		require.Equal(t, []string{"n1"}, s.script.Hosts())
	})
	inWorld(t, setup{}, func(t *testing.T, w *world) { // (b) over an Account: no mark
		ctx, cancel := context.WithCancel(t.Context())
		hang := w.once(cosmostest.Answer{Hang: true})
		time.AfterFunc(time.Second, cancel)
		require.ErrorIs(t, w.read(ctx, "k").err, context.Canceled)
		hang.Remove()
		require.Empty(t, w.marked())
	})
}

// K28, dead connections and shards. Against a real HTTP/2 connection that is dropped without a word:
// TestRealASilentlyDroppedHTTP2ConnectionIsLeftByTheShardRetry.
func TestB83AConnectionRetryUsesAnotherConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opened := 0
		var served []int
		pools := &roundtrippers.Pools{New: func() http.RoundTripper {
			opened++
			number := opened
			return middleware.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
				served = append(served, number)
				if number == 1 { // a black hole
					<-req.Context().Done()
					return nil, req.Context().Err()
				}
				return &http.Response{StatusCode: 200, ProtoMajor: 2, Header: http.Header{}, Body: http.NoBody, Request: req}, nil
			})
		}}
		rt, err := roundtrippers.Builder{Dialect: rest.Dialect{}, Base: pools, AttemptTimeout: 200 * time.Millisecond, Shard: roundtrippers.Shard{Timeouts: true}}.Build()
		require.NoError(t, err)
		began := time.Now()
		status, _, err := exactlyOne(t, rt, get(t.Context(), "http://a.test/"))
		require.NoError(t, err)
		require.Equal(t, 200, status)
		require.Equal(t, 200*time.Millisecond, time.Since(began))
		require.Equal(t, []int{1, 2}, served)
		for range 5 {
			status, _, err := exactlyOne(t, rt, get(t.Context(), "http://a.test/"))
			require.NoError(t, err)
			require.Equal(t, 200, status)
		}
		require.NotContains(t, served[2:], 1, "it is not used again at once")
	})
	s := setup{}
	s.stack.AttemptTimeout, s.stack.Shard.Timeouts = 200*time.Millisecond, true
	inWorld(t, s, func(t *testing.T, w *world) {
		id := w.item()
		hang := w.once(cosmostest.Answer{Hang: true})
		r := w.read(t.Context(), id)
		hang.Remove()
		require.Equal(t, 200, r.status)
		require.Equal(t, 200*time.Millisecond, r.took)
		require.Equal(t, []string{west, west}, w.path())
		require.Empty(t, w.marked(), "the region is not marked down")
	})
}
