package middleware

import (
	"net/http"
	"time"

	"github.com/reroute-go/reroute/idempotency"
)

// Dialect is the only place that knows status numbers, substatuses and header
// names of one kind of service. Implementations are safe for concurrent use.
type Dialect interface {
	// Intent says what req asks for. It is called once per operation, reads
	// method, URL and headers only, and must not change req.
	Intent(req *http.Request) Intent
	// Judge says what a result means; exactly one of resp and err is set. It
	// reads the status line and the headers only. JudgeError serves for err.
	Judge(in *Intent, resp *http.Response, err error) Outcome
}

// Stamper is a Dialect whose requests carry headers of the dialect's own, such
// as the one that keeps a gateway from retrying by itself.
type Stamper interface {
	// Stamp returns h when nothing is missing, otherwise a copy with the headers
	// added; it never changes h. It is called once per operation.
	Stamp(in *Intent, h http.Header) http.Header
}

// Scope says which part of a service answers a request.
type Scope uint8

const (
	// Data requests read or write what the service keeps for its users.
	Data Scope = iota
	// Metadata requests read or write descriptions of it.
	Metadata
	// Discovery requests read the topology itself; they may use the global
	// endpoint, which other requests never see.
	Discovery
	// Foreign requests are not the dialect's business: they pass unjudged.
	Foreign
)

// Intent says what one request asks for, in words that every layer understands.
type Intent struct {
	// Name is the dialect's name of the operation, such as "read item".
	Name string
	// Scope says which part of the service answers.
	Scope Scope
	// Write tells requests that change something from those that only read.
	Write bool
	// Partitioned is set where one partition of a container answers.
	Partitioned bool
	// Level is the dialect's judgement of a repeat. It binds only where a Guard
	// layer or the caller asks for it: see Operation.Guard.
	Level idempotency.Level
	// Lenient is set where Level is the service's convention rather than a fact:
	// the repeat of a patch or a batch does no harm only if its caller saw to
	// that. Shard, which repeats in place, leaves such writes to the other layers.
	Lenient bool
	// Echo is what a repeat answers if the first send was carried out.
	Echo idempotency.Echo
	// Container names the partitioned container, "" when there is none.
	Container string
	// PartitionKey is the key as the dialect's header carries it.
	PartitionKey string
	// RangeID is the partition that the request itself names, if it does.
	RangeID string
}

// Outcome says what one attempt's result means.
type Outcome struct {
	// Cause is what policies switch on; Unjudged until a dialect has looked.
	Cause Cause
	// Unapplied is set when it is certain that nothing was carried out.
	Unapplied bool
	// NoRetry is set when the server asks not to be sent the request again.
	NoRetry bool
	// Stale names the map that this result proves outdated.
	Stale Stale
	// Answer says how a final answer would read as the echo of a lost write.
	Answer idempotency.Echo
	// Confirms is set by an answer that only a region which takes the partition's
	// writes can give.
	Confirms bool
	// Wait is how long the server wishes us to wait; 0 = it did not say.
	Wait time.Duration
	// Code is the dialect's short form for logs and reports: "403/3".
	Code string
	// Status and Substatus are the numbers of the answer; 0 without one.
	Status, Substatus int
	// Range is the partition that the answer says it came from, "" if it does not.
	Range string
	// Owner is the endpoint, host[:port], that the answer names as the partition's
	// owner, "" if it names none.
	Owner string
	// Epoch says how new the knowledge of Owner is: higher is newer, 0 = unsaid.
	Epoch uint64
}

// Stale names a map of the service that must be read again.
type Stale uint8

const (
	// Fresh means no map is known to be outdated.
	Fresh Stale = iota
	// StaleTopology means the regions have changed their roles.
	StaleTopology
	// StaleRanges means the container's partitions have split, merged or moved.
	StaleRanges
	// StaleContainer means the container itself is not the one we know.
	StaleContainer
)

// Cause is the reason behind a result: the one thing that policies switch on.
type Cause uint8

// The causes. Each dialect maps its own statuses to them.
const (
	// Unjudged is the zero value: no dialect has looked at the result.
	Unjudged Cause = iota
	// Success means that the service did what was asked.
	Success
	// Final is a real answer that no layer may hide: not found, conflict,
	// precondition failed, bad request, forbidden.
	Final
	// Throttled means that the caller sends too much: wait, same endpoint.
	Throttled
	// Contended means that two writers met and this one lost for the moment:
	// wait a little, same endpoint (Cosmos DB 449).
	Contended
	// Unavailable means that the endpoint cannot serve, others may.
	Unavailable
	// Timeout means that the endpoint, or the attempt's own limit, ran out of
	// time; the request may have been carried out.
	Timeout
	// Gone means that the partition is not where the request went.
	Gone
	// Split means that the partition is being, or was, split, merged or moved.
	Split
	// NotPrimary means that the endpoint does not take writes (for this
	// partition) now.
	NotPrimary
	// Removed means that the region no longer belongs to the account.
	Removed
	// SessionLag means that the replica has not seen the session's own writes.
	SessionLag
	// Migrating means that the partition is on its way to another owner: wait.
	Migrating
	// Unauthorized means that the credential was not accepted.
	Unauthorized
	// Unreachable means that the request was certainly not sent.
	Unreachable
	// Broken means that the connection failed and the request may have been sent.
	Broken
	// Unmendable is an error that no repeat can mend: an untrusted certificate,
	// an unsupported scheme, a malformed header.
	Unmendable
	// Refused means that a layer above the base transport declined to send.
	Refused
	// CircuitOpen is a refusal by a breaker; another endpoint may serve.
	CircuitOpen
	// Canceled means that the caller gave up.
	Canceled
	// DeadlineExceeded means that the operation's time ran out.
	DeadlineExceeded
)

var causeNames = [...]string{
	"unjudged", "success", "final", "throttled", "contended", "unavailable", "timeout", "gone", "split",
	"not primary", "removed", "session lag", "migrating", "unauthorized", "unreachable", "broken",
	"unmendable", "refused", "circuit open", "canceled", "deadline exceeded",
}

// String returns the cause in lower case words.
func (c Cause) String() string {
	if int(c) < len(causeNames) {
		return causeNames[c]
	}
	return "unknown cause"
}

// Transient reports whether another send could have a different end.
func (c Cause) Transient() bool {
	switch c {
	case Unjudged, Success, Final, Unmendable, Refused, Canceled, DeadlineExceeded:
		return false
	}
	return true
}
