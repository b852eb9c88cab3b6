package comparison

import (
	"net/http"
	"time"

	"github.com/reroute-go/reroute/middleware/cosmos/cosmostest"
)

// The account's regions, in the order in which everybody prefers them. The fault is at the first, which is the write region.
var regionNames = []string{"West US", "East US", "North Europe"}

// Operation is what is done to the item.
type Operation struct {
	Name       string
	Write      bool
	MultiWrite bool // what kind of account it is done to
}

// Operations are the columns of the SDK's baseline.
var Operations = []Operation{
	{Name: "read"},
	{Name: "upsert, single-write", Write: true},
	{Name: "upsert, multi-write", Write: true, MultiWrite: true},
}

// Fault is what goes wrong in the first region, from the operation's start on and for good.
type Fault struct {
	Name string
	// HTTP2 runs the case over HTTP/2.
	HTTP2 bool
	// Cause has it happen.
	Cause func(*cosmostest.Account)
}

// Faults are the rows of the SDK's baseline, and the connection faults one by one.
var Faults = []Fault{
	answer("503", cosmostest.Error(503, 0)),
	answer("429, retry after 100 ms", cosmostest.Throttled(100*time.Millisecond)),
	answer("429/3092", cosmostest.Error(429, 3092)),
	answer("408", cosmostest.Error(408, 0)),
	answer("410/1002", cosmostest.Error(410, 1002)),
	answer("449", cosmostest.Error(449, 0)),
	answer("404/1002", cosmostest.Error(404, 1002)),
	answer("403/3", cosmostest.Error(403, 3)),
	answer("403/1008", cosmostest.Error(403, 1008)),
	answer("500", cosmostest.Error(500, 0)),
	answer("connection reset", cosmostest.Answer{Reset: true}),
	answer("closed unanswered", cosmostest.Answer{Refuse: true}),
	{Name: "connection refused", Cause: func(a *cosmostest.Account) { a.SetOffline(regionNames[0], cosmostest.Refused) }},
	{Name: "HTTP/2 stream aborted", HTTP2: true, Cause: answer("", cosmostest.Answer{Refuse: true}).Cause},
	answer("200, body cut", cosmostest.Answer{CutAfter: 1}),
	{Name: "write region moved", Cause: func(a *cosmostest.Account) { a.SetWriteRegion(regionNames[1]) }},
}

func answer(name string, is cosmostest.Answer) Fault {
	return Fault{Name: name, Cause: func(a *cosmostest.Account) {
		a.AddFault(cosmostest.Fault{Match: cosmostest.Match{Region: regionNames[0], Operations: cosmostest.Data()}, Answer: is})
	}}
}

// account starts the simulated account of a run, with the item in it, and a base transport without connection reuse: net/http replays
// requests on connections that died idle, and those sends would be nobody's.
func account(t cosmostest.TB, op Operation, http2 bool) (*cosmostest.Account, *http.Transport) {
	a := cosmostest.Start(t, cosmostest.Config{Regions: regionNames, MultiWrite: op.MultiWrite, InMemory: true})
	a.CreateContainer(database, container, cosmostest.Container{})
	base := &http.Transport{DialContext: a.DialContext, DisableKeepAlives: !http2, Protocols: new(http.Protocols)}
	base.Protocols.SetHTTP1(!http2)
	base.Protocols.SetUnencryptedHTTP2(http2)
	return a, base
}
