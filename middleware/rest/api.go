package rest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"strings"

	"github.com/reroute-go/reroute/internal/check"
	"github.com/reroute-go/reroute/middleware"
)

// API calls one REST or GraphQL API. Each call is exactly one RoundTrip of
// Transport: what is sent again, and when, is for its layers to say, by the
// context's priority. A call returns what the API answered, or an *Error.
//
// Calls that read a page report RowsPulled, acknowledged writes WritePushed, to
// the Observer of Transport's stack. An API is safe for concurrent use.
type API struct {
	// Transport sends; nil = http.DefaultTransport. A redirect is an answer like
	// any other: give Transport a client if it is to be followed.
	Transport http.RoundTripper
	// BaseURL is what paths are joined to; a GraphQL endpoint. Required.
	BaseURL string
	// Header is sent with each request; a call's own header of the same name
	// replaces it.
	Header http.Header
	// MaxBytes of an answer are decoded; 0 = 64 MiB.
	MaxBytes int64
	// Dialect says which failures are final: give it what the stack was given.
	Dialect Dialect
}

// Format prints where the API is, whatever the verb: the URL's query and the
// headers may be credentials.
func (a API) Format(f fmt.State, _ rune) {
	shown := "..."
	if u, err := url.Parse(a.BaseURL); err == nil {
		shown = redacted(u)
	}
	_, _ = fmt.Fprintf(f, "API{%s}", shown)
}

// MarshalText writes what Format prints, for loggers that marshal.
func (a API) MarshalText() ([]byte, error) { return fmt.Append(nil, a), nil }

// Get reads path and decodes its JSON into what into points to. path may have a
// query.
func (a API) Get(ctx context.Context, path string, into any) error {
	return a.Send(ctx, http.MethodGet, path, nil, nil, into)
}

// Send sends any method: body, unless nil, as JSON, and decodes the answer's JSON
// into what into points to, unless that is nil or the answer is empty.
//
// A write that must not be carried out twice needs an Idempotency-Key: in header,
// if it is to outlive the process, or from the IdempotencyKey layer.
func (a API) Send(ctx context.Context, method, path string, header http.Header, body, into any) error {
	c := call{api: a, write: isWrite(method)}
	if err := c.prepare(ctx, method, path, header, body, into); err != nil {
		return err
	}
	resp, err := c.roundTrip()
	if err != nil {
		return err
	}
	data, err := c.read(resp)
	if err != nil {
		return err
	}
	if into != nil && len(bytes.TrimSpace(data)) > 0 {
		if err := json.Unmarshal(data, into); err != nil {
			return c.undecoded(resp, data, err)
		}
	}
	c.done(resp, into)
	return nil
}

// Do sends a request of the caller's making, with the API's headers where it has
// none of its own, and returns a 2xx answer with its body unread: close it. For
// any other it returns an *Error.
func (a API) Do(req *http.Request) (*http.Response, error) {
	c := call{api: a, write: isWrite(req.Method), req: req}
	if req.URL == nil {
		if req.Body != nil {
			_ = req.Body.Close()
		}
		return nil, c.invalid(req.Method, errors.New("the request has no URL"))
	}
	c.addHeaders()
	resp, err := c.roundTrip()
	if err != nil {
		return nil, err
	}
	if c.write {
		c.emit(resp, middleware.Event{Kind: middleware.WritePushed, Status: resp.StatusCode})
	}
	return resp, nil
}

func isWrite(method string) bool {
	switch method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return false
	}
	return true
}

// call is one call under way.
type call struct {
	api     API
	req     *http.Request
	write   bool
	graphQL bool
}

// prepare makes the request. What could not take the answer is refused now: a write
// would be carried out for nothing.
func (c *call) prepare(ctx context.Context, method, path string, header http.Header, body, into any) error {
	if v := reflect.ValueOf(into); into != nil && (v.Kind() != reflect.Pointer || v.IsNil()) {
		return c.invalid(method, &json.InvalidUnmarshalError{Type: v.Type()})
	}
	target, err := c.api.join(path)
	if err != nil {
		return c.invalid(method, err)
	}
	var reader io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return c.invalid(method, err)
		}
		reader = bytes.NewReader(text)
	}
	if c.req, err = http.NewRequestWithContext(ctx, method, target.String(), reader); err != nil {
		return c.invalid(method, withoutURL(err))
	}
	for name, values := range header {
		c.req.Header[http.CanonicalHeaderKey(name)] = append([]string(nil), values...)
	}
	if body != nil && c.req.Header.Get("Content-Type") == "" {
		c.req.Header.Set("Content-Type", "application/json")
	}
	if c.req.Header.Get("Accept") == "" && c.api.Header.Get("Accept") == "" {
		c.req.Header.Set("Accept", "application/json")
	}
	c.addHeaders()
	return nil
}

func (a API) join(path string) (*url.URL, error) {
	base, err := url.Parse(a.BaseURL)
	if err != nil || base.Scheme == "" || base.Host == "" {
		return nil, fmt.Errorf("BaseURL is %q, want an absolute URL", check.Shown(a.BaseURL))
	}
	path, query, _ := strings.Cut(path, "?")
	if path != "" {
		if _, err := url.PathUnescape(path); err != nil {
			return nil, fmt.Errorf("path: %w", err) // JoinPath would leave it out and address the base
		}
		base = base.JoinPath(path)
	}
	switch {
	case base.RawQuery == "":
		base.RawQuery = query
	case query != "":
		base.RawQuery += "&" + query
	}
	return base, nil
}

// addHeaders adds the API's headers to a copy of the request.
func (c *call) addHeaders() {
	if len(c.api.Header) == 0 {
		return
	}
	copied := *c.req
	copied.Header = c.req.Header.Clone()
	if copied.Header == nil {
		copied.Header = http.Header{}
	}
	for name, values := range c.api.Header {
		name = http.CanonicalHeaderKey(name)
		if _, own := copied.Header[name]; !own {
			copied.Header[name] = append([]string(nil), values...)
		}
	}
	c.req = &copied
}

// roundTrip sends, once, and returns a 2xx answer or an *Error.
func (c *call) roundTrip() (*http.Response, error) {
	transport := c.api.Transport
	switch {
	case transport == nil:
		transport = http.DefaultTransport
	case check.IsNil(transport):
		_, err := middleware.Refuse(c.req, fmt.Errorf("Transport is a nil %T", transport)) //nolint:bodyclose // there is none
		return nil, c.invalid(c.req.Method, err)
	}
	resp, err := transport.RoundTrip(c.req)
	if err != nil {
		return nil, c.unanswered(err)
	}
	if resp.StatusCode >= 200 && resp.StatusCode < 300 {
		return resp, nil
	}
	e := c.failed(Status, resp)
	e.Body = shown(keep(resp))
	out := c.api.Dialect.Judge(&middleware.Intent{}, resp, nil)
	e.RetryAfter = out.Wait
	e.final = !out.Cause.Transient() || out.NoRetry || out.Cause == middleware.Unauthorized || out.Cause == middleware.Gone
	if e.Stop == middleware.NotPrepared && out.Cause == middleware.Unauthorized {
		e.Kind = Auth // a fresh token was asked for and could not be had
	}
	return nil, e
}

// read reads a 2xx answer's body whole.
func (c *call) read(resp *http.Response) ([]byte, error) {
	limit := c.api.MaxBytes
	if limit <= 0 {
		limit = 64 << 20
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	_ = resp.Body.Close()
	switch {
	case err != nil && c.req.Context().Err() != nil:
		e := c.failed(Canceled, resp)
		e.Err, e.Detail = err, "the answer's body: "+err.Error()
		replace(resp, data)
		return nil, e
	case err != nil:
		return nil, c.undecoded(resp, data, fmt.Errorf("the answer's body: %w", err))
	case int64(len(data)) > limit:
		return nil, c.undecoded(resp, data, fmt.Errorf("the answer has more than %d bytes", limit))
	}
	return data, nil
}

// done tells the observer what was achieved.
func (c *call) done(resp *http.Response, into any) {
	switch {
	case c.write:
		c.emit(resp, middleware.Event{Kind: middleware.WritePushed, Status: resp.StatusCode})
	case into != nil:
		c.emit(resp, middleware.Event{Kind: middleware.RowsPulled, Status: resp.StatusCode, Rows: rowsOf(into)})
	}
}

func (c *call) emit(resp *http.Response, e middleware.Event) {
	if op := middleware.FromResponse(resp); op != nil {
		e.Attempt = op.Sends()
		op.Emit(c.req.Context(), e)
	}
}

// failed begins the Error of a call that has an answer.
func (c *call) failed(kind Kind, resp *http.Response) *Error {
	e := c.begin(kind)
	e.Attempts, e.Sends = 1, 1
	e.Status, e.Response = resp.StatusCode, resp
	if op := middleware.FromResponse(resp); op != nil {
		e.tell(op.Report())
	}
	return e
}

func (e *Error) tell(r middleware.Report) {
	e.Attempts, e.Sends, e.InDoubt, e.Stop = r.Sends-r.Replays, r.Sends, r.InDoubt, r.Stop
}

func (c *call) begin(kind Kind) *Error {
	e := &Error{Kind: kind, graphQL: c.graphQL}
	if c.req != nil {
		e.Method, e.URL = c.req.Method, redacted(c.req.URL)
	}
	return e
}

func (c *call) unanswered(err error) *Error {
	e := c.begin(Transport)
	e.Attempts, e.Sends = 1, 1
	cause := middleware.JudgeError(err).Cause
	var typed *middleware.Error
	if errors.As(err, &typed) {
		e.tell(typed.Report)
		cause = typed.Outcome.Cause
	}
	e.Kind = kindOf(c.req.Context(), err, e.Stop)
	e.Err, e.Detail = err, middleware.Redact(withoutURL(err)).Error() // there may be more of them underneath
	e.final = e.Kind == Auth || cause == middleware.Unmendable && !middleware.Untrusted(err)
	return e
}

// undecoded is the Error of a success that cannot be understood. The write behind
// it, if it was one, was acknowledged.
func (c *call) undecoded(resp *http.Response, data []byte, err error) *Error {
	e := c.failed(Decode, resp)
	e.Body, e.Detail, e.Err, e.final = shown(data), shown([]byte(err.Error())), err, true // JSON's errors repeat numbers whole
	replace(resp, data)
	if c.write {
		e.InDoubt = true
	}
	return e
}

func (c *call) invalid(method string, err error) *Error {
	e := c.begin(Invalid)
	e.Method, e.Err, e.Detail, e.final = method, err, err.Error(), true
	return e
}

// withoutURL takes out the URL that net/url and http.Client quote: its query may
// be a credential, and Error has the URL already.
func withoutURL(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}
