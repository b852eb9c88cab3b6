package ownership_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/layertest"
	"github.com/reroute-go/reroute/middleware/ownership"
	"github.com/reroute-go/reroute/roundtrippers"
)

// shards is a scripted service of one segment: each node plays its own steps
// and repeats the last, and the map service says what the test wants.
type shards struct {
	t        testing.TB
	script   *layertest.Script
	registry *ownership.Registry
	fetches  atomic.Int64
	fetch    func(ctx context.Context, n int64) (*ownership.Map, error) // set it before the first
	healed   atomic.Bool                                                // fetch no longer counts

	mu    sync.Mutex
	nodes map[string][]layertest.Step
	now   *ownership.Map
}

// owned is a map of one segment.
func owned(epoch uint64, owner string) *ownership.Map {
	return &ownership.Map{Epoch: epoch, Segments: []ownership.Segment{{Owner: owner}}, Nodes: []string{"a", "b", "c"}}
}

// newShards starts with a as owner at epoch 7 and the registry knowing it, long enough
// ago for a fetch to be allowed.
func newShards(t testing.TB, nodes map[string][]layertest.Step) *shards {
	s := &shards{t: t, nodes: nodes, now: owned(7, "a")}
	s.script = layertest.NewServer(t, s.play)
	var err error
	s.registry, err = ownership.New(ownership.Config{Source: ownership.MapSourceFunc(s.read)})
	require.NoError(t, err)
	_, err = s.registry.Force(t.Context())
	require.NoError(t, err)
	time.Sleep(time.Second)
	s.fetches.Store(0)
	t.Cleanup(func() { s.registry.Close() }) // a delayed refresh may be left
	return s
}

func (s *shards) read(ctx context.Context, _ *ownership.Map) (*ownership.Map, error) {
	n := s.fetches.Add(1)
	if s.fetch != nil && !s.healed.Load() {
		return s.fetch(ctx, n)
	}
	return s.current(), nil
}

func (s *shards) current() *ownership.Map {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

// moved is what the map service says from now on.
func (s *shards) moved(epoch uint64, owner string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = owned(epoch, owner)
}

// serves replaces a node's steps.
func (s *shards) serves(node string, steps ...layertest.Step) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.nodes == nil {
		s.nodes = map[string][]layertest.Step{}
	}
	s.nodes[node] = steps
}

func (s *shards) play(req *http.Request) layertest.Step {
	s.mu.Lock()
	defer s.mu.Unlock()
	steps, ok := s.nodes[req.URL.Host]
	if !ok {
		return layertest.Step{Err: refusedDial}
	}
	if len(steps) > 1 {
		s.nodes[req.URL.Host] = steps[1:]
	}
	return steps[0]
}

// build makes the ready-made stack over the shards.
func (s *shards) build(b roundtrippers.OwnershipBuilder) http.RoundTripper {
	if b.Dialect == nil {
		b.Dialect = &ownership.Dialect{Key: ownership.PathKey("/kv/")}
	}
	b.Owners, b.Base = s.registry, s.script
	rt, err := b.Build()
	require.NoError(s.t, err)
	return rt
}

// hosts joins the nodes asked: "a b".
func (s *shards) hosts() string { return strings.Join(s.script.Hosts(), " ") }

// says makes steps of texts: "421", "503/migrating", "503/migrating/1" with a
// Retry-After, or an error by its name in failures.
func says(texts ...string) []layertest.Step {
	var steps []layertest.Step
	for _, text := range texts {
		if err, ok := failures[text]; ok {
			steps = append(steps, layertest.Step{Err: err})
			continue
		}
		parts := strings.Split(text, "/")
		code, err := strconv.Atoi(parts[0])
		if err != nil {
			panic(err)
		}
		step := layertest.Step{Status: code, Body: text, Header: map[string]string{}}
		if len(parts) > 1 {
			step.Header["X-Route-Status"] = parts[1]
		}
		if len(parts) > 2 {
			step.Header["Retry-After"] = parts[2]
		}
		steps = append(steps, step)
	}
	return steps
}

// hinting is a 421 that names the owner.
func hinting(owner string, epoch string) layertest.Step {
	return layertest.Step{Status: 421, Header: map[string]string{"X-Route-Owner": owner, "X-Route-Epoch": epoch}}
}

var (
	refusedDial = &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	resetRead   = &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}
	errUnknown  = errors.New("x")
)

var failures = map[string]error{
	"refused":      refusedDial,
	"reset":        resetRead,
	"unknown":      errUnknown,
	"dial timeout": &net.OpError{Op: "dial", Net: "tcp", Err: context.DeadlineExceeded},
}

// request is one to key k of the service as a whole.
func request(ctx context.Context, method, body string, header ...string) *http.Request {
	var reader io.Reader
	if body != "" {
		reader = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://kv.test/kv/k", reader)
	if err != nil {
		panic(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	return req
}

// text reads and closes an answer's body.
func text(t testing.TB, resp *http.Response) string {
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return string(body)
}

// reportOf is the story of an operation, however it ended.
func reportOf(t testing.TB, resp *http.Response, err error) middleware.Report {
	if err != nil {
		var failed *middleware.Error
		require.ErrorAs(t, err, &failed)
		return failed.Report
	}
	return middleware.FromResponse(resp).Report()
}
