package ownership

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/reroute-go/reroute/idempotency"
	"github.com/reroute-go/reroute/middleware"
)

// Dialect judges the answers of a service whose keys change owner. Its zero
// value speaks the recommended words. Use it by pointer; do not change it once
// it is in use. It is safe for concurrent use.
//
// What an answer means is decided in this order: success is success; Classify;
// 409 and 412 are Conflict whatever a header says; the word in the header; the
// code alone; otherwise it is an answer.
type Dialect struct {
	Words
	// Key returns the key of a request, "" = it has none and is sent where its URL
	// says. nil = the URL's path without the leading slash. It must not change
	// the request.
	Key func(*http.Request) string
	// Service is the host[:port] by which callers name the service as a whole;
	// requests to other hosts pass untouched. "" = every request is for it.
	Service string
	// Codes adds to, or changes, what a code without a known word in the header
	// means. 307: Moved has redirects intercepted, with Location naming the owner.
	Codes map[int]Status
	// Classify, if set, knows better than header and code what an answer that is
	// no success means. ok = false leaves it to them. It reads status and headers only.
	Classify func(resp *http.Response) (s Status, ok bool)
	// VerdictHeader names a header by which the service says "true" or "false" to
	// whether sending again makes sense. It beats everything but the bounds, so
	// "true" must mean that nothing was carried out. "" = there is none.
	VerdictHeader string
}

// PathKey returns a Dialect.Key: the path element after prefix, unescaped. Paths
// that do not start with prefix have no key.
func PathKey(prefix string) func(*http.Request) string {
	return func(req *http.Request) string {
		rest, ok := strings.CutPrefix(req.URL.EscapedPath(), prefix)
		if !ok {
			return ""
		}
		element, _, _ := strings.Cut(rest, "/")
		if strings.IndexByte(element, '%') >= 0 {
			if plain, err := url.PathUnescape(element); err == nil {
				return plain
			}
		}
		return element
	}
}

// Intent judges by method and preconditions: see idempotency.OfMethod.
func (d *Dialect) Intent(req *http.Request) middleware.Intent {
	name := orDefault(req.Method, http.MethodGet)
	if req.URL == nil {
		return middleware.Intent{Name: name, Scope: middleware.Foreign} // the transport will refuse it
	}
	if d.Service != "" && !strings.EqualFold(d.Service, orDefault(req.Host, req.URL.Host)) {
		return middleware.Intent{Name: name, Scope: middleware.Foreign}
	}
	level := idempotency.OfMethod(req)
	in := middleware.Intent{Name: name, Write: level != idempotency.Safe, Level: level, Echo: idempotency.EchoOf(req)} // Z085 to Z087
	if d.Key != nil {
		in.PartitionKey = d.Key(req)
	} else {
		in.PartitionKey = strings.TrimPrefix(req.URL.Path, "/")
	}
	in.Partitioned = in.PartitionKey != ""
	return in
}

// Judge reads the status vocabulary: see Dialect.
func (d *Dialect) Judge(in *middleware.Intent, resp *http.Response, err error) middleware.Outcome {
	if resp == nil {
		return judgeError(err)
	}
	out := middleware.Outcome{Status: resp.StatusCode}
	if resp.StatusCode < 300 {
		out.Cause = middleware.Success
		return out
	}
	s, certain := d.statusOf(resp)
	out.Cause, out.Stale = statuses[s].cause, statuses[s].stale
	out.Wait = retryAfter(resp.Header)
	if s != Other {
		out.Code = strconv.Itoa(resp.StatusCode) + "/" + s.String()
	}
	out.Unapplied = s != Unavailable || certain
	switch s {
	case Other:
		out.Unapplied = false
		switch resp.StatusCode { // not churn, but other layers may have a word (Z018)
		case http.StatusTooManyRequests:
			out.Cause, out.Unapplied = middleware.Throttled, true
		case http.StatusUnauthorized:
			out.Cause, out.Unapplied = middleware.Unauthorized, true
		}
	case NotFound:
		out.Answer = idempotency.Missing
	case Conflict:
		if out.Answer = idempotency.Changed; in != nil && in.Echo == idempotency.Exists {
			out.Answer = idempotency.Exists
		}
	}
	if out.Stale != middleware.Fresh {
		out.Owner, out.Epoch = d.hintOf(resp.Header)
		if out.Owner == "" && resp.StatusCode >= 300 && resp.StatusCode < 400 {
			out.Owner = locationHost(resp)
		}
	}
	return d.obey(out, resp)
}

// statusOf names the answer's status. It is certain when the service itself put
// it in words.
func (d *Dialect) statusOf(resp *http.Response) (s Status, certain bool) {
	if d.Classify != nil {
		if s, ok := d.Classify(resp); ok && int(s) < len(statuses) {
			return s, true
		}
	}
	code := resp.StatusCode
	if code == http.StatusConflict || code == http.StatusPreconditionFailed {
		return Conflict, true
	}
	if s, ok := d.Words.statusOf(resp.Header); ok {
		return s, true
	}
	if s, ok := d.Codes[code]; ok && int(s) < len(statuses) {
		return s, false
	}
	return defaultCode(code), false
}

// obey follows the service's own verdict on sending again.
func (d *Dialect) obey(out middleware.Outcome, resp *http.Response) middleware.Outcome {
	if d.VerdictHeader == "" {
		return out
	}
	verdict, _ := single(resp.Header, d.VerdictHeader)
	switch {
	case strings.EqualFold(verdict, "false"):
		out.Cause, out.Stale = middleware.Final, middleware.Fresh
	case strings.EqualFold(verdict, "true"):
		out.Unapplied = true
		if !out.Cause.Transient() {
			out.Cause = middleware.Unavailable
		}
	}
	return out
}

func locationHost(resp *http.Response) string {
	u, err := url.Parse(resp.Header.Get("Location"))
	if err != nil || !validHost(u.Host) {
		return ""
	}
	return u.Host
}

// judgeError knows the failures that churn causes. What it does not know is no
// churn and comes back untouched (Z027), and so does what no repeat can mend.
func judgeError(err error) middleware.Outcome {
	out := middleware.JudgeError(err)
	if out.Cause == middleware.Broken && !transportFailure(err) {
		out.Cause, out.Code = middleware.Unmendable, "unknown error"
	}
	return out
}

func transportFailure(err error) bool {
	var (
		network net.Error
		errno   syscall.Errno
	)
	switch {
	case errors.As(err, &network), errors.As(err, &errno),
		errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.ErrClosedPipe), errors.Is(err, net.ErrClosed),
		errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded): // of an attempt: the operation's end is judged before
		return true
	}
	// net/http keeps the types of these to itself: a kept-alive connection that
	// the server closed, HTTP/2 streams and connections that ended.
	text := err.Error()
	for _, prefix := range []string{"http: server closed", "net/http: ", "http2: ", "stream error: ", "malformed HTTP "} {
		if strings.HasPrefix(text, prefix) {
			return true
		}
	}
	return false
}

// NewTransport returns the base transport that such a service wants: a node that
// is gone is found out within 2 s, and a few nodes get many connections each.
func (d *Dialect) NewTransport() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DialContext = (&net.Dialer{Timeout: 2 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	t.MaxIdleConnsPerHost = 64
	t.MaxIdleConns = 0
	return t
}
