package idempotency

import (
	"net/http"
	"strings"
)

// Echo names what a server answers to the repeat of a write whose first send
// was carried out although its answer was lost. It is how a caller tells "my
// own write came back to me" from "somebody else was faster".
type Echo uint8

const (
	// NoEcho means a repeat answers like the first send, or cannot be told apart.
	NoEcho Echo = iota
	// Exists is the echo of a create: the thing is already there.
	Exists
	// Missing is the echo of a delete: the thing is already gone.
	Missing
	// Changed is the echo of a write guarded by an entity tag: the tag is no
	// longer the current one.
	Changed
)

// String returns the echo's name in lower case.
func (e Echo) String() string {
	switch e {
	case Exists:
		return "exists"
	case Missing:
		return "missing"
	case Changed:
		return "changed"
	default:
		return "none"
	}
}

// EchoOf says what a repeat of req answers if its first send was carried out, as
// far as method and preconditions tell: Exists for a write that is made only where
// nothing is, Changed for another guarded one, Missing for a delete.
func EchoOf(req *http.Request) Echo {
	switch {
	case OfMethod(req) == Safe:
		return NoEcho
	case strings.TrimSpace(req.Header.Get("If-None-Match")) == "*":
		return Exists
	case Guarded(req.Header):
		return Changed
	case req.Method == http.MethodDelete:
		return Missing
	}
	return NoEcho
}
