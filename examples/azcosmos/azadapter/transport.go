package azadapter

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/cosmos"
	"github.com/reroute-go/reroute/roundtrippers"
)

// maxErrorBody bounds what is read of an answer that becomes an error; the service's own are below 64 KiB.
const maxErrorBody = 1 << 20

// attemptTimeout is how long the SDK's own transport gives one attempt, body included.
const attemptTimeout = 65 * time.Second

// Transport is a policy.Transporter over a stack. It follows no redirect, as an http.Client would.
//
// An answer that the stack gave up on becomes an *Error: whatever the dialect calls transient (408, 429, 449, 5xx, 403/3, 403/1008,
// 404/1002), but for 410 and 401, on which the SDK has work of its own. So does an error without an answer, unless the caller's own
// context has ended, and a body that breaks off. All other answers pass.
//
// It is safe for concurrent use. The fields must not be changed after the first request.
type Transport struct {
	// Next is the stack, over a base that is a *Whole. Required.
	Next http.RoundTripper
	// Dialect is the one that the stack was built with: the *cosmos.Account. Required.
	Dialect middleware.Dialect
	// MaxBytes of an answer's body that the SDK may read, and then holds in memory; 0 = DefaultMaxBytes, negative = any number. The read
	// beyond it fails with an *Error whose Cause is a *TooLargeError.
	MaxBytes int64
}

var _ policy.Transporter = (*Transport)(nil)

// New builds b for the SDK: over its base it puts Whole, and its attempts are limited to 65 s, body included, like those of the SDK's own
// transport, unless b.AttemptTimeout says otherwise. Without b.Base the base is roundtrippers.Pools over cosmos.NewTransport.
func New(b roundtrippers.Builder) (*Transport, error) {
	if b.Dialect == nil {
		return nil, errors.New("azadapter: Builder.Dialect is nil: pass the cosmos.Account")
	}
	if b.Base == nil {
		b.Base = &roundtrippers.Pools{New: func() http.RoundTripper { return cosmos.NewTransport() }}
	}
	if b.AttemptTimeout == 0 {
		b.AttemptTimeout = attemptTimeout
	}
	b.Base = &Whole{Next: b.Base}
	rt, err := b.Build()
	if err != nil {
		return nil, err
	}
	return &Transport{Next: rt, Dialect: b.Dialect}, nil
}

// ClientOptions returns the options for a client over t: t as its transport, and azcore's own retries off. PreferredRegions stays empty,
// as the order of regions is the account's (cosmos.Options.PreferredRegions). Add what else the client needs, such as
// EnableContentResponseOnWrite, to the result.
func ClientOptions(t *Transport) *azcosmos.ClientOptions {
	return &azcosmos.ClientOptions{ClientOptions: azcore.ClientOptions{
		Transport: t,
		Retry:     policy.RetryOptions{MaxRetries: -1},
	}}
}

// Do sends req through the stack. It reads the request's body first: the SDK keeps the body in memory, and hands out one reader for all
// sends, which net/http may still be using for the last one when the next begins.
func (t *Transport) Do(req *http.Request) (*http.Response, error) {
	req, err := withOwnBody(req)
	if err != nil {
		return nil, t.hide(req, err)
	}
	resp, err := t.Next.RoundTrip(req)
	if err != nil {
		return nil, t.hide(req, err)
	}
	in, report := t.told(req, middleware.FromResponse(resp))
	out := t.Dialect.Judge(&in, resp, nil)
	if retriedAbove(out.Cause) {
		return nil, &Error{Outcome: out, Report: report, response: responseError(req, resp, out)}
	}
	if resp.Body != nil && resp.Body != http.NoBody {
		resp.Body = &body{ReadCloser: resp.Body, of: t, req: req, limit: limitOf(t.MaxBytes)}
	}
	return resp, nil
}

// CloseIdleConnections passes to the base transport.
func (t *Transport) CloseIdleConnections() {
	if c, ok := t.Next.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// withOwnBody returns a copy of req whose body and every replay of it are readers of their own; req itself where it fails.
func withOwnBody(req *http.Request) (*http.Request, error) {
	if req.Body == nil || req.Body == http.NoBody {
		return req, nil
	}
	kept, err := io.ReadAll(req.Body)
	_ = req.Body.Close()
	if err != nil {
		return req, fmt.Errorf("reading the request's body: %w", err)
	}
	own := *req
	own.ContentLength = int64(len(kept))
	own.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(kept)), nil }
	own.Body, _ = own.GetBody()
	return &own, nil
}

// told is what an operation knows of itself, or without one, what the dialect says of the request.
func (t *Transport) told(req *http.Request, op *middleware.Operation) (middleware.Intent, middleware.Report) {
	if op == nil {
		return t.Dialect.Intent(req), middleware.Report{}
	}
	return op.Intent(), op.Report()
}

// hide keeps the SDK from seeing what it would retry. The end of the caller's own context it heeds by itself.
func (t *Transport) hide(req *http.Request, err error) error {
	if req.Context().Err() != nil {
		return err
	}
	e := &Error{cause: err}
	var typed *middleware.Error
	if errors.As(err, &typed) {
		e.Outcome, e.Report = typed.Outcome, typed.Report
	} else {
		in := t.Dialect.Intent(req)
		e.Outcome = t.Dialect.Judge(&in, nil, err)
	}
	return e
}

// retriedAbove reports whether an answer of this cause could make the SDK, or a user's policy in it, send again. 410 and 401 are left to
// it: the SDK reads the ranges again, or a policy the token, before it does.
func retriedAbove(c middleware.Cause) bool {
	switch c {
	case middleware.Gone, middleware.Split, middleware.Migrating, middleware.Unauthorized:
		return false
	}
	return c.Transient()
}

// responseError is the SDK's error for an answer. A throttled partition key range feed gets none: the SDK recognises 429 there and asks
// again for ever, on a context that no caller can end.
func responseError(req *http.Request, resp *http.Response, out middleware.Outcome) *azcore.ResponseError {
	kept, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody)) // what there is of it
	_ = resp.Body.Close()
	if out.Cause == middleware.Throttled && strings.HasSuffix(strings.TrimRight(req.URL.Path, "/"), "/pkranges") {
		return nil
	}
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(kept)), int64(len(kept))
	var e *azcore.ResponseError
	errors.As(runtime.NewResponseError(resp), &e)
	return e
}

// body is an answer's body as the SDK reads it.
type body struct {
	io.ReadCloser
	of          *Transport
	req         *http.Request
	read, limit int64
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.read += int64(n); b.limit >= 0 && b.read > b.limit {
		return 0, b.of.hide(b.req, &TooLargeError{MaxBytes: b.limit})
	}
	if err != nil && err != io.EOF { //nolint:errorlint // only the bare one is the end of a body, as io.Reader has it
		err = b.of.hide(b.req, err)
	}
	return n, err
}
