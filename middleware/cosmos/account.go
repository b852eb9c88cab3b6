package cosmos

import (
	"context"
	"net/http"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/partitions"
	"github.com/reroute-go/reroute/regions"
)

// Account is one Cosmos DB account: the dialect of its requests and answers (middleware.Dialect, middleware.Stamper),
// and where its regions are. One Account serves every client of the account; all methods may be called concurrently.
type Account struct {
	// Regions knows the account's regions and which of them are in trouble.
	Regions *regions.Registry
	// Partitions knows the containers' partitions, which of them are in trouble, and where their writes go.
	Partitions *partitions.Registry

	dialect dialect
	domain  *domain
	name    string
	release func()
}

// Run refreshes the topology in the background, every Options.BackgroundInterval, until ctx ends (it returns ctx's
// error) or the Account is closed (snapshot.ErrClosed). Without Run the topology is refreshed only when an answer
// proves it stale.
func (a *Account) Run(ctx context.Context) error { return a.Regions.Run(ctx) }

// NewTransport is the base transport that the service wants: see the function of that name.
func (a *Account) NewTransport() *http.Transport { return NewTransport() }

// Close ends Run and a running refresh. What is known stays usable. Close may be called again.
func (a *Account) Close() {
	a.Regions.Close()
	a.Partitions.Close()
	a.release()
}

// Intent says what a request asks for, by its method, path and headers. A request to a host that is not the account's
// is Foreign. A path that the service's grammar does not have is named "unknown", counts as Metadata, and is judged
// by its method.
//
// Reads and queries are Safe. Creates, deletes, replaces, upserts, patches and batches are Idempotent with the echo
// that their repeat gives, as the driver has it. Stored procedure calls, writes that run triggers and sweeps over
// many items are NonIdempotent.
func (a *Account) Intent(req *http.Request) middleware.Intent {
	if req.URL != nil && !a.serves(req.URL.Host) {
		return middleware.Intent{Name: "request to another host", Scope: middleware.Foreign}
	}
	return a.dialect.Intent(req)
}

// serves reports whether a host is the account's. A region's host by its name alone will do, since an SDK can know a
// new region before we do; of addresses and the loopback only known ones count, since other services may be there.
func (a *Account) serves(host string) bool {
	return a.domain.configured(host) || a.Regions.Knows(host) || a.domain.named(host)
}

// Judge says what a result means, by status, substatus and headers. The operation's own deadline has the code
// 408/20008.
func (a *Account) Judge(in *middleware.Intent, resp *http.Response, err error) middleware.Outcome {
	return a.dialect.Judge(in, resp, err)
}

// Stamp asks the gateway to leave 449 to us (x-ms-noretry-449), and for a write to an account with multiple write
// regions to accept it in any of them (x-ms-cosmos-allow-tentative-writes). A value that the caller has set stays.
func (a *Account) Stamp(in *middleware.Intent, h http.Header) http.Header {
	t := a.Regions.Topology()
	return stamp(in, h, t != nil && t.MultiWrite)
}

// String names the account by its host.
func (a *Account) String() string { return "cosmos.Account(" + a.name + ")" }

// GoString is String: an Account holds a credential.
func (a *Account) GoString() string { return a.String() }
