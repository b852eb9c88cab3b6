// Package rest is the dialect of plain HTTP APIs: statuses mean what RFC 9110
// and RFC 6585 say, and Retry-After is heeded.
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
type Dialect struct{}

// Intent judges by the method: see idempotency.OfMethod.
func (Dialect) Intent(req *http.Request) middleware.Intent {
	level := idempotency.OfMethod(req)
	name := req.Method
	if name == "" {
		name = http.MethodGet
	}
	return middleware.Intent{Name: name, Write: level != idempotency.Safe, Level: level}
}

// Judge maps statuses to causes: 5xx Unavailable, 408 Timeout, 429 Throttled (and
// nothing was carried out), 401 Unauthorized, 421 Moved; the rest of 3xx and 4xx
// is Final.
func (Dialect) Judge(_ *middleware.Intent, resp *http.Response, err error) middleware.Outcome {
	if resp == nil {
		return middleware.JudgeError(err)
	}
	out := middleware.Outcome{Status: resp.StatusCode, Code: strconv.Itoa(resp.StatusCode), Wait: retryAfter(resp.Header)}
	switch code := resp.StatusCode; {
	case code < 300:
		out.Cause = middleware.Success
	case code == http.StatusRequestTimeout:
		out.Cause = middleware.Timeout
	case code == http.StatusTooManyRequests:
		out.Cause, out.Unapplied = middleware.Throttled, true
	case code == http.StatusUnauthorized:
		out.Cause, out.Unapplied = middleware.Unauthorized, true
	case code == http.StatusMisdirectedRequest:
		out.Cause, out.Unapplied = middleware.Gone, true
	case code >= 500:
		out.Cause = middleware.Unavailable
	default:
		out.Cause, out.Answer = middleware.Final, answer(code)
	}
	return out
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
