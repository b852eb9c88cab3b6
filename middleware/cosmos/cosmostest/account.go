package cosmostest

import (
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"log"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Account is a running simulated account. Its methods are safe for concurrent use. Methods that take a region panic when the account
// has no such region, as a test that misspells one is wrong.
type Account struct {
	cfg       Config
	global    *endpoint
	transport *http.Transport
	identity  *identity // certificate, nil without TLS
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
	if cfg.TLS {
		if a.identity, err = newIdentity(); err != nil {
			return nil, err
		}
	}
	a.transport = a.newTransport()
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
	Helper()                           // see testing.TB
	Cleanup(func())                    // see testing.TB
	Fatalf(format string, args ...any) // see testing.TB
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
	serve := func() error { return e.server.Serve(g) }
	if a.identity != nil {
		e.url = "https://" + g.address + "/"
		serve = func() error { return e.server.ServeTLS(g, "", "") }
	}
	e.server = &http.Server{
		Handler:  http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { a.serve(e, w, r) }),
		ErrorLog: log.New(io.Discard, "", 0), // broken connections are what this server is for
	}
	e.server.Protocols = new(http.Protocols)
	e.server.Protocols.SetHTTP1(true)
	e.server.Protocols.SetHTTP2(true)
	e.server.Protocols.SetUnencryptedHTTP2(true)
	if a.identity != nil {
		e.server.TLSConfig = &tls.Config{Certificates: []tls.Certificate{a.identity.certificate}, MinVersion: tls.VersionTLS12}
	}
	a.serving.Go(func() { _ = serve() })
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
		for _, form := range []string{host, strings.TrimSuffix(host, ":80"), strings.TrimSuffix(host, ":443")} {
			if strings.EqualFold(form, e.gate.address) {
				return e.name
			}
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
