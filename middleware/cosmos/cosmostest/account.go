package cosmostest

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// Global is the name of the account's global endpoint wherever a region is named. It is served by the write region.
const Global = "global"

// Defaults of Config.
const (
	DefaultKey   = "Y29zbW9zdGVzdCBtYXN0ZXIga2V5LCBub3QgYSBzZWNyZXQgYXQgYWxsIQ=="
	DefaultToken = "cosmostest-access-token"
)

// Config describes an account. The zero Config is three regions, single-write, Session consistency, on loopback sockets.
type Config struct {
	// ID is the account name. Default "acct".
	ID string
	// Regions in the order of the account document; the first is the write region (hub). Default West US, East US, North Europe.
	Regions []string
	// MultiWrite lets every region take item writes that carry x-ms-cosmos-allow-tentative-writes: true.
	MultiWrite bool
	// PartitionFailover is the account flag enablePerPartitionFailoverBehavior. Default nil: absent from the document.
	PartitionFailover *bool
	// Consistency is the account's default level. Default "Session"; with "Strong" replication has no lag.
	Consistency string
	// Key is the base64 master key. Default DefaultKey.
	Key string
	// Token is the access token that Authorization "type=aad&ver=1.0&sig=<token>" must carry. Default DefaultToken.
	Token string
	// IgnoreSignatures accepts any Authorization, or none. Default: every request is verified, a wrong one is answered 401 and counted.
	IgnoreSignatures bool
	// Ranges is how many partition key ranges a new container has. Default 1.
	Ranges int
	// ReplicationLag is the lag of every region at the start; see SetReplicationLag. Default 0.
	ReplicationLag time.Duration
	// LogSize is how many requests the log keeps. Default 16384.
	LogSize int
	// InMemory serves over net.Pipe instead of loopback sockets, as a synctest bubble needs. Reach it through Transport or DialContext.
	InMemory bool
}

// Account is a running simulated account. Its methods are safe for concurrent use. Methods that take a region panic when the account
// has no such region, as a test that misspells one is wrong.
type Account struct {
	cfg       Config
	global    *endpoint
	transport *http.Transport
	log       requestLog
	rules     ruleBook
	done      chan struct{} // closed by Close
	serving   sync.WaitGroup

	mu         sync.Mutex // guards what follows; never held over a write to the network or a wait
	closed     bool
	key        []byte
	token      string
	regions    []*region
	hub        *region
	multiWrite bool
	failover   *bool
	held       *heldTopology
	store      store
	sprocs     map[sprocKey]Sproc
	executions map[sprocKey]int
	made       uint64 // numbers for etags and activity ids
}

// endpoint is one address of the account.
type endpoint struct {
	name   string // region name or Global
	url    string // with trailing slash
	gate   *gate
	server *http.Server

	outage    Outage        // 0 = online; Account.mu guards what can be wrong with it
	recovered chan struct{} // closed when the outage ends, nil without one
	latency   time.Duration
}

// New starts an account. Close it when done.
func New(cfg Config) (*Account, error) {
	key, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	a := &Account{
		cfg: cfg, key: key, token: cfg.Token, multiWrite: cfg.MultiWrite, failover: cfg.PartitionFailover,
		done:   make(chan struct{}),
		store:  store{databases: map[string]*database{}},
		log:    requestLog{size: cfg.LogSize, counts: map[string]map[Operation]int{}},
		sprocs: map[sprocKey]Sproc{}, executions: map[sprocKey]int{},
	}
	a.transport = &http.Transport{DialContext: a.DialContext, MaxIdleConnsPerHost: 64, IdleConnTimeout: 90 * time.Second}
	if a.global, err = a.open(Global, cfg.ID); err != nil {
		return nil, err
	}
	for _, name := range cfg.Regions {
		if _, err := a.addRegion(name); err != nil {
			a.Close()
			return nil, err
		}
	}
	a.hub = a.regions[0]
	return a, nil
}

// TB is the part of testing.TB that Start uses.
type TB interface {
	Helper()
	Cleanup(func())
	Fatalf(format string, args ...any)
}

// Start is New for tests: a bad Config fails the test, and the account is closed when the test (or its bubble) ends.
func Start(t TB, cfg Config) *Account {
	t.Helper()
	a, err := New(cfg)
	if err != nil {
		t.Fatalf("cosmostest: %v", err)
	}
	t.Cleanup(a.Close)
	return a
}

// complete fills in the defaults, refuses what cannot be, and returns the decoded key.
func (c *Config) complete() ([]byte, error) {
	c.Regions = slices.Clone(c.Regions)
	if len(c.Regions) == 0 {
		c.Regions = []string{"West US", "East US", "North Europe"}
	}
	defaults := []struct {
		field *string
		value string
	}{{&c.ID, "acct"}, {&c.Consistency, "Session"}, {&c.Key, DefaultKey}, {&c.Token, DefaultToken}}
	for _, d := range defaults {
		if *d.field == "" {
			*d.field = d.value
		}
	}
	if c.Ranges == 0 {
		c.Ranges = 1
	}
	if c.LogSize == 0 {
		c.LogSize = 16384
	}
	key, err := base64.StdEncoding.DecodeString(c.Key)
	switch {
	case err != nil || len(key) == 0:
		return nil, errors.New("Config.Key is no base64")
	case c.Ranges < 0 || c.Ranges > 1<<16:
		return nil, fmt.Errorf("Config.Ranges is %d, want 1 to 65536", c.Ranges)
	case c.ReplicationLag < 0:
		return nil, fmt.Errorf("Config.ReplicationLag is %v, want 0 or more", c.ReplicationLag)
	case c.LogSize < 0:
		return nil, fmt.Errorf("Config.LogSize is %d, want 1 or more", c.LogSize)
	}
	return key, nil
}

// open starts an endpoint.
func (a *Account) open(name, host string) (*endpoint, error) {
	address := ""
	if a.cfg.InMemory {
		address = strings.ToLower(host) + ".documents.example"
	}
	g, err := newGate(address, a.cfg.InMemory)
	if err != nil {
		return nil, fmt.Errorf("listening for %s: %w", name, err)
	}
	e := &endpoint{name: name, url: "http://" + g.address + "/", gate: g}
	e.server = &http.Server{
		Handler:  http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { a.serve(e, w, r) }),
		ErrorLog: log.New(io.Discard, "", 0), // broken connections are what this server is for
	}
	e.server.Protocols = new(http.Protocols)
	e.server.Protocols.SetHTTP1(true)
	e.server.Protocols.SetUnencryptedHTTP2(true)
	a.serving.Go(func() { _ = e.server.Serve(g) })
	return e, nil
}

// Close stops the account: open requests are cut off, and every goroutine of the account has ended when it returns. Idle connections
// of Transport are closed too. Close can be called again.
func (a *Account) Close() {
	a.mu.Lock()
	first := !a.closed
	a.closed = true
	endpoints := a.endpoints()
	a.mu.Unlock()
	if first {
		close(a.done)
		for _, e := range endpoints {
			_ = e.server.Close()
			_ = e.gate.Close()
		}
	}
	a.serving.Wait()
	a.transport.CloseIdleConnections()
}

// endpoints lists every address. The caller holds mu.
func (a *Account) endpoints() []*endpoint {
	var all []*endpoint
	if a.global != nil {
		all = append(all, a.global)
	}
	for _, r := range a.regions {
		all = append(all, r.endpoint)
	}
	return all
}

// Endpoint is the URL of the global endpoint, without trailing slash.
func (a *Account) Endpoint() string { return strings.TrimSuffix(a.global.url, "/") }

// RegionEndpoint is the URL of a region, without trailing slash. It stays the same for the life of the account.
func (a *Account) RegionEndpoint(region string) string {
	return strings.TrimSuffix(a.endpointOf(region).url, "/")
}

// RegionOf names the region (or Global) that a host or host:port belongs to; "" for a stranger.
func (a *Account) RegionOf(host string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, e := range a.endpoints() {
		if strings.EqualFold(host, e.gate.address) || strings.EqualFold(strings.TrimSuffix(host, ":80"), e.gate.address) {
			return e.name
		}
	}
	return ""
}

// Regions lists the regions that belong to the account, in the order of the account document.
func (a *Account) Regions() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var names []string
	for _, r := range a.regions {
		if !r.removed {
			names = append(names, r.name)
		}
	}
	return names
}

// Key is the base64 master key that requests are verified against.
func (a *Account) Key() string { return base64.StdEncoding.EncodeToString(a.masterKey()) }

// SetKey changes the base64 master key, as a key rotation does. It panics on a bad key.
func (a *Account) SetKey(key string) {
	raw, err := base64.StdEncoding.DecodeString(key)
	if err != nil || len(raw) == 0 {
		panic("cosmostest: the key is no base64")
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.key = raw
}

// SetToken changes the access token that type=aad requests must carry.
func (a *Account) SetToken(token string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.token = token
}

// Transport reaches the account. It is one transport with one connection pool; Close closes its idle connections.
func (a *Account) Transport() *http.Transport { return a.transport }

// DialContext connects to an address of the account, for a transport of one's own. In memory it refuses a shut endpoint with
// ECONNREFUSED and does not know any other host; with sockets it is the ordinary dialer.
func (a *Account) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	if !a.cfg.InMemory {
		var d net.Dialer
		return d.DialContext(ctx, network, address)
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = address
	}
	a.mu.Lock()
	endpoints := a.endpoints()
	a.mu.Unlock()
	for _, e := range endpoints {
		if strings.EqualFold(e.gate.address, host) {
			return e.gate.dial(ctx)
		}
	}
	return nil, &net.OpError{Op: "dial", Net: network, Err: &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}}
}

// Client is a plain client of the account: it signs requests that carry no Authorization and sends them where their URL says.
func (a *Account) Client() *http.Client { return &http.Client{Transport: signer{a}} }

type signer struct{ account *Account }

func (s signer) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Header.Get("Authorization") == "" {
		r = r.Clone(r.Context())
		s.account.Sign(r)
	}
	return s.account.transport.RoundTrip(r)
}

// CloseIdleConnections lets http.Client.CloseIdleConnections reach the pool.
func (s signer) CloseIdleConnections() { s.account.transport.CloseIdleConnections() }

// CreateDatabase makes a database without a request. It does nothing when there is one.
func (a *Account) CreateDatabase(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ensureDatabase(id)
}

func (a *Account) ensureDatabase(id string) *database {
	if a.store.databases[id] == nil {
		a.store.databases[id] = a.newDatabase(id, time.Now())
	}
	return a.store.databases[id]
}

// Container describes a container for CreateContainer.
type Container struct {
	// Paths of the partition key. Default /pk. Two or three make a hierarchical key.
	Paths []string
	// KeyVersion is the version of the partition key hash, 1 or 2. Default 2.
	KeyVersion int
	// Ranges is how many partition key ranges the container has. Default Config.Ranges.
	Ranges int
}

// CreateContainer makes a container, and its database when missing, without a request. It panics on a Container that cannot be or
// an id that is taken.
func (a *Account) CreateContainer(db, id string, c Container) {
	if len(c.Paths) == 0 {
		c.Paths = []string{"/pk"}
	}
	if c.KeyVersion == 0 {
		c.KeyVersion = 2
	}
	kind := "Hash"
	if len(c.Paths) > 1 {
		kind = "MultiHash"
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	d := a.ensureDatabase(db)
	if d.containers[id] != nil {
		panic("cosmostest: container " + id + " exists")
	}
	coll, err := a.newContainer(d, map[string]any{"id": id,
		"partitionKey": map[string]any{"paths": c.Paths, "kind": kind, "version": c.KeyVersion}}, c.Ranges, time.Now())
	if err != nil {
		panic("cosmostest: " + err.Error())
	}
	d.containers[id] = coll
}
