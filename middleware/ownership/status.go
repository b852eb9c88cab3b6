package ownership

import (
	"strings"

	"github.com/reroute-go/reroute/middleware"
)

// Status says why a node does not serve a key, or that it has answered.
type Status uint8

const (
	// Other is any answer that says nothing about ownership. It is final here.
	Other Status = iota
	// Moved means that the node does not own the key's segment at all: the map of
	// the client is outdated.
	Moved
	// OwnershipChanging means that the node is not the active owner while
	// ownership of the segment is being handed over.
	OwnershipChanging
	// ReplicaWriteRejected means that the node has the segment as a replica and
	// takes no writes: the client's active owner is outdated.
	ReplicaWriteRejected
	// Migrating means that the segment is on its way to another owner and writes
	// are held for a while.
	Migrating
	// Unavailable means that the segment has no owner that can be reached now.
	Unavailable
	// NotFound is an answer: the key is not there.
	NotFound
	// Conflict is an answer: a precondition failed, somebody else wrote first.
	Conflict
)

// The recommended code of each status, its word in the header, and what it
// means to the layers. Everything but a bare Unavailable is certain not to have
// been applied.
var statuses = [...]struct {
	word  string
	code  int
	cause middleware.Cause
	stale middleware.Stale
}{
	Other:                {"other", 500, middleware.Final, middleware.Fresh},
	Moved:                {"moved", 421, middleware.Gone, middleware.StaleRanges},
	OwnershipChanging:    {"ownership-changing", 503, middleware.Split, middleware.StaleRanges},
	ReplicaWriteRejected: {"replica-write-rejected", 421, middleware.NotPrimary, middleware.StaleRanges},
	Migrating:            {"migrating", 503, middleware.Migrating, middleware.Fresh},
	Unavailable:          {"unavailable", 503, middleware.Unavailable, middleware.Fresh},
	NotFound:             {"not-found", 404, middleware.Final, middleware.Fresh},
	Conflict:             {"conflict", 412, middleware.Final, middleware.Fresh},
}

// String returns the status's word in the header: "replica-write-rejected".
func (s Status) String() string {
	if int(s) < len(statuses) {
		return statuses[s].word
	}
	return "unknown status"
}

// ParseStatus reads a status's word, without regard to case and surrounding
// space (Z013). Unknown words, "other" among them, are not ok.
func ParseStatus(word string) (s Status, ok bool) {
	word = strings.TrimSpace(word)
	for s := Moved; int(s) < len(statuses); s++ {
		if strings.EqualFold(word, statuses[s].word) {
			return s, true
		}
	}
	return Other, false
}

// defaultCode is what a code alone means, without a word in the header
// (reference 3.1). 421 is made for it (RFC 9110, 15.5.20).
func defaultCode(code int) Status {
	switch code {
	case 421:
		return Moved
	case 502, 503, 504:
		return Unavailable
	case 404:
		return NotFound
	case 409, 412:
		return Conflict
	}
	return Other
}
