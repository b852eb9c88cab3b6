package roundtrippers

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/reroute-go/reroute/internal/check"
	"github.com/reroute-go/reroute/middleware"
)

// PriorityHeader hands an operation's Priority on to the service that it is sent
// to, so that the calls which that one makes for its answer have it too (the SRE
// book propagates criticality so). Both ends use the same value: the client stacks
// it, in APIBuilder as PerOperation, and the server wraps its handler with Inherit.
//
// The header says "essential" or "background". One that the caller has set stays.
// It is a wish, and not signed: a server that heeds it lets whoever can reach it
// choose, so where strangers can, take it off at the edge.
type PriorityHeader struct {
	// Header is its name; "" = X-Request-Priority.
	Header string
}

// Wrap reports a Header that is no name of one.
func (l PriorityHeader) Wrap(next http.RoundTripper) (http.RoundTripper, error) {
	name := l.header()
	if !check.HeaderName(name) {
		return nil, fmt.Errorf("Header is %q, want the name of a header", check.Shown(l.Header))
	}
	return middleware.Operate(next, nil, func(op *middleware.Operation, req *http.Request, next http.RoundTripper) (*http.Response, error) {
		if len(req.Header[name]) == 0 {
			req = withHeader(req, name, op.Priority().String())
		}
		return next.RoundTrip(req)
	}), nil
}

// Inherit returns h with each request's Priority in its context, for the operations
// that h begins with it. Only what says essential and nothing else is that: a
// missing header, names of other classes and values that disagree are Background.
func (l PriorityHeader) Inherit(h http.Handler) http.Handler {
	name := l.header()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p := priorityIn(r.Header[name])
		if middleware.PriorityOf(r.Context()) != p {
			r = r.WithContext(middleware.WithPriority(r.Context(), p))
		}
		h.ServeHTTP(w, r)
	})
}

func (l PriorityHeader) header() string {
	return http.CanonicalHeaderKey(orDefault(l.Header, "X-Request-Priority"))
}

// priorityIn reads a header's lines, which proxies may have joined by commas.
func priorityIn(lines []string) middleware.Priority {
	for _, line := range lines {
		for value := range strings.SplitSeq(line, ",") {
			if !strings.EqualFold(strings.TrimSpace(value), middleware.Essential.String()) {
				return middleware.Background
			}
		}
	}
	if len(lines) == 0 {
		return middleware.Background
	}
	return middleware.Essential
}
