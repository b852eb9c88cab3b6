package roundtrippers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/reroute-go/reroute/middleware"
)

// Pools is a base transport that keeps several connection pools per endpoint
// (scheme and host), each an http.RoundTripper of its own. That is the only way
// to leave an HTTP/2 connection that is dead without saying so: net/http puts
// each retry on the same connection (go.dev/issue/36026, B83).
//
// A healthy endpoint has one pool. Another one is opened
//   - when all have Streams requests in flight, and the endpoint is known to
//     speak HTTP/2: a pool of HTTP/1.1 dials as many connections as it needs;
//   - when an operation asks for a pool on which it has not failed yet; see
//     Shard and middleware.Operation.AnotherPool.
//
// A request goes to the pool with the least in flight among as many as the load
// needs; it never waits. Over HTTP/2 a pool that has just failed is left alone
// while another works. A pool that keeps failing is replaced; a surplus pool
// that idles is closed. Both are decided while requests pass: there is no
// goroutine and no timer, and the hot path takes no lock and allocates nothing.
//
// Any answer is a pool's success. Transport errors and attempts that ran out of
// time are its failures, as a dead connection shows itself in no other way; the
// caller's leaving, and errors that no connection could mend, count as neither.
//
// The zero value is ready. All methods are safe for concurrent use; the fields
// must not be changed after the first request. The numbers follow the reference
// driver's sections 2.5 and 2.6.
type Pools struct {
	// New opens a pool; nil = an http.Transport with a dial limit of 5 s, HTTP/2
	// pings, and the environment's proxy. It is called on the request path and
	// must not block. A pool's CloseIdleConnections, if it has one, is called
	// when it is left. A Transport of your own should set IdleConnTimeout: an
	// HTTP/2 connection whose last answer is still being read when its pool is
	// left may otherwise stay open.
	New func() http.RoundTripper
	// Streams in flight are what an HTTP/2 pool should have at most; beyond the
	// last pool it is exceeded. A request is in flight until its headers have
	// come. 0 = 8.
	Streams int
	// MaxPools per endpoint; 0 = 32.
	MaxPools int
	// MaxFailures in a row have a pool replaced; 0 = 5.
	MaxFailures int
	// Grace is how long after its last success, or its opening, a failing pool is
	// kept; 0 = 2 s.
	Grace time.Duration
	// IdleAfter unused, a surplus pool is closed; 0 = 60 s.
	IdleAfter time.Duration
	// MaxEndpoints are kept; beyond, the one that idled longest is forgotten and
	// its connections are closed. 0 = 256.
	MaxEndpoints int

	table atomic.Pointer[poolTable]
}

// poolTable is an immutable snapshot of the endpoints.
type poolTable struct {
	epoch     time.Time // what pools count their times from
	endpoints map[poolKey]*endpointPools
}

type poolKey struct{ scheme, host string }

// Validate reports negative fields, all at once. RoundTrip fails with the same
// error.
func (p *Pools) Validate() error {
	var errs []error
	for _, f := range []struct {
		name  string
		value int
	}{{"Streams", p.Streams}, {"MaxPools", p.MaxPools}, {"MaxFailures", p.MaxFailures}, {"MaxEndpoints", p.MaxEndpoints}} {
		if f.value < 0 {
			errs = append(errs, fmt.Errorf("Pools.%s is %d, want >= 0", f.name, f.value))
		}
	}
	for _, f := range []struct {
		name  string
		value time.Duration
	}{{"Grace", p.Grace}, {"IdleAfter", p.IdleAfter}} {
		if f.value < 0 {
			errs = append(errs, fmt.Errorf("Pools.%s is %v, want >= 0", f.name, f.value))
		}
	}
	return errors.Join(errs...)
}

// RoundTrip sends req over one of its endpoint's pools. The response is the
// pool's own, its body included.
func (p *Pools) RoundTrip(req *http.Request) (*http.Response, error) {
	e, err := p.endpoint(req.URL)
	if err != nil {
		return middleware.Refuse(req, err)
	}
	ctx := req.Context()
	op := middleware.FromContext(ctx)
	c := e.acquire(op)
	defer c.release() // on a panic too
	resp, err := c.transport.RoundTrip(req)
	switch {
	case err == nil:
		if resp != nil {
			e.succeeded(c, resp)
		}
		return resp, nil
	case callerLeft(ctx):
		c.touched.Store(e.now())
		e.canceled.Add(1)
		return resp, err
	case middleware.JudgeError(err).Cause == middleware.Unmendable:
		c.touched.Store(e.now())
		return resp, err
	}
	if e.failed(c) && op != nil {
		e.tell(ctx, op, err)
	}
	if op != nil {
		err = &poolError{pool: c, err: err}
	}
	return resp, err
}

// callerLeft reports whether ctx was ended by will rather than by the clock.
func callerLeft(ctx context.Context) bool {
	end := ctx.Err()
	if end == nil || errors.Is(end, context.DeadlineExceeded) {
		return false
	}
	var t interface{ Timeout() bool }
	return !errors.As(context.Cause(ctx), &t) || !t.Timeout()
}

// tell emits the replacement of a pool.
func (e *endpointPools) tell(ctx context.Context, op *middleware.Operation, err error) {
	target := op.Target()
	target.Endpoint = e.key.host
	op.Emit(ctx, middleware.Event{Kind: middleware.PoolReplaced, Attempt: op.Sends(), Target: target, Err: err})
}

var errNoURL = errors.New("reroute: the request has no URL")

func (p *Pools) endpoint(u *url.URL) (*endpointPools, error) {
	if u == nil {
		return nil, errNoURL
	}
	key := poolKey{u.Scheme, u.Host}
	if t := p.table.Load(); t != nil {
		if e, ok := t.endpoints[key]; ok {
			return e, nil
		}
	}
	return p.open(poolKey{strings.Clone(u.Scheme), strings.Clone(u.Host)})
}

// open adds an endpoint, with its first pool, to a copy of the table.
func (p *Pools) open(key poolKey) (*endpointPools, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	for {
		old := p.table.Load()
		next := &poolTable{epoch: time.Now(), endpoints: map[poolKey]*endpointPools{}}
		if old != nil {
			if e, ok := old.endpoints[key]; ok {
				return e, nil // somebody was faster
			}
			next.epoch, next.endpoints = old.epoch, maps.Clone(old.endpoints)
		}
		e := p.newEndpoint(key, next.epoch)
		first := e.newPool()
		if first == nil {
			return nil, errors.New("Pools.New returned nil")
		}
		e.set.Store(&poolSet{active: []*pool{first}})
		dropped := next.makeRoom(orDefault(p.MaxEndpoints, 256))
		next.endpoints[key] = e
		if !p.table.CompareAndSwap(old, next) {
			first.close()
			continue
		}
		if dropped != nil {
			dropped.retireAll()
		}
		return e, nil
	}
}

func (p *Pools) newEndpoint(key poolKey, epoch time.Time) *endpointPools {
	e := &endpointPools{
		key:         key,
		epoch:       epoch,
		build:       p.New,
		streams:     int64(orDefault(p.Streams, 8)),
		maxPools:    orDefault(p.MaxPools, 32),
		maxFailures: int64(orDefault(p.MaxFailures, 5)),
		grace:       orDefault(p.Grace, 2*time.Second),
		idleAfter:   orDefault(p.IdleAfter, time.Minute),
	}
	if e.build == nil {
		e.build = newPoolTransport
	}
	return e
}

// makeRoom removes the endpoint that idled longest, or, where none idles, was
// used longest ago, if the table is full.
func (t *poolTable) makeRoom(limit int) (dropped *endpointPools) {
	if len(t.endpoints) < limit {
		return nil
	}
	var key poolKey
	var busiest bool
	var oldest time.Duration
	for k, e := range t.endpoints {
		busy, used := e.use()
		if dropped == nil || busiest && !busy || busy == busiest && used < oldest {
			key, dropped, busiest, oldest = k, e, busy, used
		}
	}
	delete(t.endpoints, key)
	return dropped
}

// CloseIdleConnections closes the idle connections of all pools, left ones
// included.
func (p *Pools) CloseIdleConnections() {
	t := p.table.Load()
	if t == nil {
		return
	}
	for _, e := range t.endpoints {
		set := e.set.Load()
		for _, c := range set.active {
			c.close()
		}
		for _, c := range set.retired {
			c.close()
		}
	}
}

// newPoolTransport is the default pool: what http.DefaultTransport does, with
// room for the idle connections of one busy host, and with pings, which are what
// finds a silent HTTP/2 connection out.
func newPoolTransport() http.RoundTripper {
	dialer := &net.Dialer{Timeout: 5 * time.Second, KeepAlive: 15 * time.Second}
	return &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           dialer.DialContext,
		ForceAttemptHTTP2:     true,
		MaxIdleConns:          100,
		MaxIdleConnsPerHost:   100,
		IdleConnTimeout:       90 * time.Second,
		TLSHandshakeTimeout:   5 * time.Second,
		ExpectContinueTimeout: time.Second,
		HTTP2:                 &http.HTTP2Config{SendPingTimeout: 10 * time.Second, PingTimeout: 5 * time.Second},
	}
}
