package cosmos

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/reroute-go/reroute/middleware"
)

// FetchError says why one endpoint did not give what the Account asked of it on its own behalf.
type FetchError struct {
	// What was asked for, such as "account".
	What string
	// Endpoint is the host[:port] that was asked.
	Endpoint string
	// Status and Substatus are those of the answer, 0 if there was none.
	Status, Substatus int
	// Message is what the answer's body said, on one line of at most 512 bytes; it holds no credential.
	Message string
	// Err is what failed: the transport, the authorizer, or the reading of the answer. Nil for an answer of another
	// status than 200.
	Err error
}

// Error says in one line what was read, where, and what came back. It holds no credential.
func (e *FetchError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "cosmos: %s from %s: ", e.What, e.Endpoint)
	if e.Status != 0 {
		b.WriteString(code(e.Status, e.Substatus))
		if text := http.StatusText(e.Status); text != "" {
			b.WriteString(" " + text)
		}
		if e.Message != "" {
			b.WriteString(": " + e.Message)
		}
	}
	if e.Err != nil {
		fmt.Fprint(&b, e.Err)
	}
	return b.String()
}

// Unwrap returns Err.
func (e *FetchError) Unwrap() error { return e.Err }

// hopeless says that no other endpoint would answer otherwise: the credential is refused, or could not be made.
func (e *FetchError) hopeless() bool {
	switch e.Status {
	case 0:
		_, ok := e.Err.(*authorizerError)
		return ok
	case http.StatusUnauthorized:
		return true
	case http.StatusForbidden:
		return e.Substatus != writeForbidden && e.Substatus != accountNotFound
	}
	return false
}

// unreachable says that the endpoint was certainly not reached.
func (e *FetchError) unreachable() bool {
	var typed *middleware.Error
	return errors.As(e.Err, &typed) && typed.Outcome.Cause == middleware.Unreachable
}

// authorizerError marks an error of the Authorizer.
type authorizerError struct{ err error }

func (e *authorizerError) Error() string { return "authorizing: " + e.err.Error() }
func (e *authorizerError) Unwrap() error { return e.err }
