// Package idempotency answers one question: may this request be repeated?
//
// A Level says whether repeating is harmless, an Echo says what a repeat
// answers when the first send had gone through after all, and the
// preconditions of RFC 9110 section 13 turn a plain write into one whose
// repeat is noticed by the server.
package idempotency

import (
	"net/http"
	"strings"
)

// Level says what repeating a request does, in the words of RFC 9110
// section 9.2. The zero value Unknown means that nobody judged.
type Level uint8

const (
	// Unknown means nobody judged the request.
	Unknown Level = iota
	// Safe requests change nothing (RFC 9110, 9.2.1).
	Safe
	// Idempotent requests leave the same state however often they are sent
	// (RFC 9110, 9.2.2). The answers may differ: see Echo.
	Idempotent
	// NonIdempotent requests may do their work again each time.
	NonIdempotent
)

// String returns the level's name in lower case.
func (l Level) String() string {
	switch l {
	case Safe:
		return "safe"
	case Idempotent:
		return "idempotent"
	case NonIdempotent:
		return "non-idempotent"
	default:
		return "unknown"
	}
}

// Repeatable reports whether a request of this level may be sent again
// although an earlier send may have been carried out. Unknown is repeatable:
// only a judgement forbids.
func (l Level) Repeatable() bool { return l != NonIdempotent }

// Key is the header by which a client asks the server to carry out a request
// once however often it arrives (IETF draft "The Idempotency-Key HTTP Header
// Field").
const Key = "Idempotency-Key"

// OfMethod judges by the method alone (RFC 9110, 9.2.1 and 9.2.2), as is right
// for a service of which nothing else is known. A request that carries an
// Idempotency-Key is idempotent whatever its method, and so is a write guarded
// by a precondition that its own success invalidates: see Guarded.
func OfMethod(req *http.Request) Level {
	switch req.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return Safe
	case http.MethodPut, http.MethodDelete:
		return Idempotent
	}
	if req.Header.Get(Key) != "" || Guarded(req.Header) {
		return Idempotent
	}
	return NonIdempotent
}

// Guarded reports whether a write's header holds a precondition that fails on a
// repeat once the first send was carried out: If-Match with an entity tag, which
// the first success changes, or If-None-Match: *, which the first success makes
// false (RFC 9110, 13.1.1 and 13.1.2). If-Match: * only asks that the thing
// exists and guards nothing.
func Guarded(h http.Header) bool {
	if match := strings.TrimSpace(h.Get("If-Match")); match != "" && match != "*" {
		return true
	}
	return strings.TrimSpace(h.Get("If-None-Match")) == "*"
}
