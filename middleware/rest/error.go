package rest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/regions"
)

// Kind says what kind of failure an Error is.
type Kind string

// The kinds of failures.
const (
	// Status: the API answered, and it was no success.
	Status Kind = "status"
	// Transport: there was no answer.
	Transport Kind = "transport"
	// BreakerOpen: nothing was sent, at least in the end, as the breaker is open or the
	// API has asked for a pause.
	BreakerOpen Kind = "breaker_open"
	// Auth: the token could not be had, at first or when the API asked for a new one.
	Auth Kind = "auth"
	// Canceled: the caller gave up, or its time did.
	Canceled Kind = "canceled"
	// Route: no server is known for the request.
	Route Kind = "route"
	// GraphQL: the answer was a success to HTTP and holds errors.
	GraphQL Kind = "graphql"
	// Decode: the answer was a success and could not be understood.
	Decode Kind = "decode"
	// Invalid: the call itself was wrong; nothing was sent.
	Invalid Kind = "invalid"
)

// Error is what a call returns that did not succeed. Its text holds no
// credential: the URL is shown without user and query values. errors.Is finds the
// context's errors, middleware's sentinels and the transport's error underneath.
type Error struct {
	Kind   Kind   // what went wrong
	Method string // HTTP method
	URL    string // redacted
	// Attempts counts the sends that the policy made, a replay with a fresh token
	// being part of one; Sends counts all. 0 = nothing was sent.
	Attempts, Sends int
	// Status is that of the answer the call ended with; 0 without one. The last
	// status of an earlier attempt is in the *middleware.Error underneath.
	Status int
	// Body is the beginning of that answer's body, at most 500 characters.
	Body string
	// Detail says what failed where there is no answer, or none that is understood.
	Detail string
	// InDoubt is set when some attempt may have been carried out all the same.
	InDoubt bool
	// RetryAfter is the wait that the answer asks for; 0 = none.
	RetryAfter time.Duration
	// Stop says why nothing was sent again.
	Stop middleware.Stop
	// Messages are the errors of a GraphQL answer; nil if there are none.
	Messages []Message
	// Data is what a GraphQL answer with errors holds all the same; nil = nothing.
	Data json.RawMessage
	// Response is the answer, nil without one. Its body holds the first 2048 bytes
	// of what came, and needs no Close.
	Response *http.Response
	// Err is what failed, nil if it was an answer.
	Err error

	graphQL bool
	final   bool
}

// Message is one error of a GraphQL answer.
type Message struct {
	Message    string          `json:"message"`              // for people
	Path       []any           `json:"path,omitempty"`       // names and indexes down to the field at fault; nil = unsaid
	Extensions json.RawMessage `json:"extensions,omitempty"` // what the service adds; nil = nothing
}

// UnmarshalJSON takes any JSON value for a message: what a service says in another
// form than the specification's is an error all the same.
func (m *Message) UnmarshalJSON(text []byte) error {
	type plain Message
	var word string
	switch {
	case json.Unmarshal(text, &word) == nil:
		m.Message = word // "" for a null
	case json.Unmarshal(text, (*plain)(m)) != nil && m.Message == "": // it fills in what it can
		m.Message = shown(text)
	}
	return nil
}

// Error says in one line what was asked and what came of it. What the service has
// said is cut, and what does not print in it is left out: texts of errors go into logs.
func (e *Error) Error() string {
	var b strings.Builder
	name := "API"
	if e.graphQL {
		name = "GraphQL"
	}
	fmt.Fprintf(&b, "%s request failed: url: %s, attempts: %d, kind: %s", name, e.URL, e.Attempts, e.Kind)
	add := func(key, value string) {
		if value != "" {
			fmt.Fprintf(&b, ", %s: %s", key, line(value))
		}
	}
	if e.Status != 0 {
		add("status", fmt.Sprint(e.Status))
	}
	if e.InDoubt {
		add("in doubt", "true")
	}
	for i, m := range e.Messages {
		if i == shownMessages {
			add("more messages", fmt.Sprint(len(e.Messages)-i))
			break
		}
		add("message", m.Message)
	}
	add("body", e.Body)
	add("detail", e.Detail)
	return b.String()
}

// line is a text on one line of at most shownRunes characters.
func line(text string) string {
	text = shown([]byte(text))
	if !strings.ContainsFunc(text, unprintable) {
		return text
	}
	return strings.Join(strings.FieldsFunc(text, unprintable), " ")
}

func unprintable(r rune) bool { return !unicode.IsPrint(r) }

// MarshalText gives loggers that marshal what Error shows: the answer and its
// request have headers that are nobody's business.
func (e *Error) MarshalText() ([]byte, error) { return []byte(e.Error()), nil }

// Unwrap returns what failed, nil if it was an answer.
func (e *Error) Unwrap() error { return e.Err }

// Is makes an Error that ends with an answer match what kept it from being sent
// again: the context's errors and middleware's sentinels.
func (e *Error) Is(target error) bool {
	switch target {
	case context.DeadlineExceeded:
		return e.Stop == middleware.Deadline
	case context.Canceled:
		return e.Stop == middleware.CanceledByCaller
	case middleware.ErrBudgetSpent:
		return e.Stop == middleware.BudgetSpent && e.Kind == Status
	case middleware.ErrNotRepeatable:
		return e.Stop == middleware.NotRepeatable
	case middleware.ErrBodyNotReplayable:
		return e.Stop == middleware.NotReplayable
	case middleware.ErrNoCredential:
		return e.Kind == Auth
	}
	return false
}

// Timeout reports whether time ran out.
func (e *Error) Timeout() bool { return e.Stop == middleware.Deadline }

// IsFinal reports whether the same call would fail again as it is: the API has
// understood and refused, there is no token for it, or it cannot be sent (a header
// that is none, an unknown scheme). Server errors, throttling, an open breaker and a
// broken connection pass; a call that its caller ended, or whose time ran out, may
// succeed when made again, and may have been carried out: see InDoubt.
func (e *Error) IsFinal() bool { return e.final }

// kindOf tells the failures without an answer apart.
func kindOf(ctx context.Context, err error, stop middleware.Stop) Kind {
	switch {
	case errors.Is(err, middleware.ErrNoCredential):
		return Auth
	case stop == middleware.CanceledByCaller, stop == middleware.Deadline,
		stop == middleware.NotStopped && ctx.Err() != nil: // no layer of ours below
		return Canceled
	case errors.Is(err, middleware.ErrCircuitOpen):
		return BreakerOpen
	case errors.Is(err, regions.ErrNoRegion), errors.Is(err, middleware.ErrNoOwner):
		return Route
	}
	return Transport
}

// redacted is u without what may be a credential: the user, and the values of the
// query.
func redacted(u *url.URL) string {
	if u == nil {
		return ""
	}
	shown := *u
	shown.User, shown.Fragment, shown.RawFragment = nil, "", ""
	if shown.RawQuery != "" {
		parts := strings.Split(shown.RawQuery, "&")
		for i, part := range parts {
			if name, _, ok := strings.Cut(part, "="); ok {
				parts[i] = name + "=..."
			} else {
				parts[i] = "..."
			}
		}
		shown.RawQuery = strings.Join(parts, "&")
	}
	return shown.String()
}
