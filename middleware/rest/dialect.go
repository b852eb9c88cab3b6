// Package rest is the dialect of plain HTTP APIs, REST and GraphQL: statuses mean
// what RFC 9110 and RFC 6585 say, and a Retry-After of whole seconds is heeded. Its
// API makes calls through a stack of layers and turns what is no success into one
// typed Error.
package rest

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/reroute-go/reroute/idempotency"
	"github.com/reroute-go/reroute/middleware"
)

// Dialect judges plain HTTP. Its zero value is ready and safe for concurrent use.
type Dialect struct {
	// VerdictHeader of an answer decides over the status whether the request is
	// worth sending again, "true" or "false"; "" = X-Should-Retry. The bounds of a
	// retry stay what they are.
	VerdictHeader string
	// FinalNotImplemented makes 501 and 505, which no repeat mends, final. Without
	// it they are server errors like the others, as in the seed.
	FinalNotImplemented bool
	// RetryConflict takes the 409 to a request with an Idempotency-Key for "the
	// first one is still being carried out" (IETF draft) and has it sent again.
	RetryConflict bool
}

// Intent judges by the method: see idempotency.OfMethod.
func (Dialect) Intent(req *http.Request) middleware.Intent {
	level := idempotency.OfMethod(req)
	name := req.Method
	if name == "" {
		name = http.MethodGet
	}
	in := middleware.Intent{Name: name, Write: level != idempotency.Safe, Level: level, Echo: idempotency.EchoOf(req)}
	if in.Echo == idempotency.NoEcho && req.Method == http.MethodPost {
		in.Echo = idempotency.Exists // what is posted twice is there already
	}
	return in
}

// Judge maps statuses to causes: 2xx Success, 5xx Unavailable, 408 Timeout, 429
// Throttled (and nothing was carried out), 401 Unauthorized, 421 Gone; all other
// answers are Final.
func (d Dialect) Judge(_ *middleware.Intent, resp *http.Response, err error) middleware.Outcome {
	if resp == nil {
		return middleware.JudgeError(err)
	}
	out := middleware.Outcome{Status: resp.StatusCode, Code: codeOf(resp.StatusCode)}
	switch code := resp.StatusCode; {
	case code >= 200 && code < 300:
		out.Cause = middleware.Success
		return out
	case code == http.StatusRequestTimeout:
		out.Cause = middleware.Timeout
	case code == http.StatusTooManyRequests:
		out.Cause, out.Unapplied = middleware.Throttled, true
	case code == http.StatusUnauthorized:
		out.Cause, out.Unapplied = middleware.Unauthorized, true
	case code == http.StatusMisdirectedRequest:
		out.Cause, out.Unapplied = middleware.Gone, true
	case code == http.StatusConflict && d.RetryConflict && keyed(resp):
		out.Cause = middleware.Contended
	case code >= 500:
		out.Cause = middleware.Unavailable
		out.NoRetry = d.FinalNotImplemented && (code == http.StatusNotImplemented || code == http.StatusHTTPVersionNotSupported)
	default:
		out.Cause, out.Answer = middleware.Final, answer(code)
	}
	d.heed(&out, resp.Header)
	if out.Cause.Transient() {
		out.Wait = retryAfter(resp.Header)
	}
	return out
}

// heed applies the server's own verdict.
func (d Dialect) heed(out *middleware.Outcome, h http.Header) {
	name := d.VerdictHeader
	if name == "" {
		name = "X-Should-Retry"
	}
	switch verdict := strings.TrimSpace(h.Get(name)); {
	case strings.EqualFold(verdict, "false"):
		out.NoRetry = true
	case strings.EqualFold(verdict, "true"):
		out.NoRetry = false
		if out.Cause == middleware.Final && out.Status >= 400 {
			out.Cause = middleware.Contended
		}
	}
}

func keyed(resp *http.Response) bool {
	return resp.Request != nil && resp.Request.Header.Get(idempotency.Key) != ""
}

// codes holds the usual statuses as text, so that judging allocates nothing.
var codes = func() (list [600]string) {
	for i := range list {
		list[i] = strconv.Itoa(i)
	}
	return list
}()

func codeOf(status int) string {
	if status >= 0 && status < len(codes) {
		return codes[status]
	}
	return strconv.Itoa(status)
}

func answer(code int) idempotency.Echo {
	switch code {
	case http.StatusConflict:
		return idempotency.Exists
	case http.StatusNotFound, http.StatusGone:
		return idempotency.Missing
	case http.StatusPreconditionFailed:
		return idempotency.Changed
	}
	return idempotency.NoEcho
}

// maxWait saturates a Retry-After of many digits; no layer waits that long.
const maxWait = 24 * time.Hour

// retryAfter reads the first Retry-After line: a positive whole number of
// seconds. A date, zero or anything else is ignored and the layer's own schedule
// applies (seed api-requests: "There is no way for a misconfigured server to
// make the client spin").
func retryAfter(h http.Header) time.Duration {
	text := strings.TrimSpace(h.Get("Retry-After"))
	if text == "" || strings.Trim(text, "0123456789") != "" {
		return 0
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil || seconds > int64(maxWait/time.Second) {
		return maxWait // more digits than an int64 has
	}
	return time.Duration(seconds) * time.Second
}
