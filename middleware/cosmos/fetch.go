package cosmos

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/reroute-go/reroute/middleware"
)

// apiVersion is the newest REST version whose partition key rules this library follows.
const apiVersion = "2020-07-15"

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
	// Err is what failed: the transport, the authorizer, or the reading of the answer. Nil for an answer of another status than 200.
	Err error
}

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

// authorizerError marks an error of the Authorizer.
type authorizerError struct{ err error }

func (e *authorizerError) Error() string { return "authorizing: " + e.err.Error() }
func (e *authorizerError) Unwrap() error { return e.err }

// fetcher reads metadata with an Account's own credential.
type fetcher struct {
	auth Authorizer
	// patient also retries where nothing could be sent; hasty leaves that to the next endpoint.
	patient, hasty http.RoundTripper
}

func newFetcher(base http.RoundTripper, auth Authorizer, limit time.Duration) (*fetcher, error) {
	hasty, err := middleware.Stack(whole{next: base, limit: limit}, throttle{})
	if err != nil {
		return nil, err
	}
	patient, err := middleware.Stack(whole{next: base, limit: limit}, reconnect{}, throttle{})
	if err != nil {
		return nil, err
	}
	return &fetcher{auth: auth, patient: patient, hasty: hasty}, nil
}

// get reads u whole, following no redirect, with an answer of 200 or a *FetchError.
func (f *fetcher) get(ctx context.Context, rt http.RoundTripper, what string, u *url.URL) ([]byte, *FetchError) {
	failed := func(err error) ([]byte, *FetchError) { return nil, &FetchError{What: what, Endpoint: u.Host, Err: err} }
	req, err := http.NewRequestWithContext(middleware.Detach(ctx), http.MethodGet, u.String(), nil)
	if err != nil {
		return failed(err)
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "reroute-cosmos")
	req.Header.Set(headerVersion, apiVersion)
	if err := f.auth.Authorize(ctx, req); err != nil {
		return failed(&authorizerError{err})
	}
	resp, err := rt.RoundTrip(req)
	if err != nil {
		return failed(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return failed(err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, &FetchError{
			What: what, Endpoint: u.Host, Status: resp.StatusCode, Substatus: substatus(resp.Header),
			Message: redact(messageOf(body), req.Header.Get("Authorization")),
		}
	}
	return body, nil
}

// redact removes a credential that a talkative answer repeats.
func redact(message, credential string) string {
	plain, err := url.QueryUnescape(credential)
	if err != nil {
		plain = credential
	}
	secrets := []string{credential, plain}
	if _, sig, ok := strings.Cut(plain, "sig="); ok {
		secrets = append(secrets, sig, url.QueryEscape(sig))
	}
	for _, s := range secrets {
		if s != "" {
			message = strings.ReplaceAll(message, s, "[redacted]")
		}
	}
	return message
}

// whole makes an attempt end with its answer's last byte: one that stalls in the middle, or never ends, has failed. An
// answer is read up to one byte beyond maxDocument.
type whole struct {
	next  http.RoundTripper
	limit time.Duration
}

func (w whole) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(req.Context(), w.limit)
	defer cancel()
	resp, err := w.next.RoundTrip(req.WithContext(ctx))
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxDocument+1))
	_ = resp.Body.Close()
	if err != nil {
		return nil, fmt.Errorf("reading the answer: %w", err)
	}
	answered := *resp
	answered.Body, answered.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return &answered, nil
}

// throttle waits out 429 on the same endpoint: 9 times, 30 s in all (seed "429"). A wished wait that does not fit is not
// begun (DESIGN rule 2).
type throttle struct{}

func (throttle) Wrap(next http.RoundTripper) (http.RoundTripper, error) {
	budget := &middleware.Budget{Name: "metadata throttle", Retries: 9, Time: 30 * time.Second}
	backoff := middleware.Backoff{Base: 5 * time.Millisecond, Cap: 5 * time.Second, Jitter: 0.25}
	return middleware.Retry(next, dialect{}, func(_ context.Context, op *middleware.Operation, out middleware.Outcome) middleware.Verdict {
		if out.Cause != middleware.Throttled {
			return middleware.Verdict{}
		}
		v := middleware.Verdict{Budget: budget, Wait: out.Wait}
		if v.Wait == 0 {
			v.Wait = backoff.After(op.Spent(budget).Retries)
		}
		return v
	}, budget)
}

// reconnect tries an endpoint twice more that could not be reached, after 100 ms and 200 ms.
type reconnect struct{}

func (reconnect) Wrap(next http.RoundTripper) (http.RoundTripper, error) {
	budget := &middleware.Budget{Name: "metadata connect", Retries: 2}
	return middleware.Retry(next, dialect{}, func(_ context.Context, op *middleware.Operation, out middleware.Outcome) middleware.Verdict {
		if out.Cause != middleware.Unreachable {
			return middleware.Verdict{}
		}
		return middleware.Verdict{Budget: budget, Wait: time.Duration(op.Spent(budget).Retries+1) * 100 * time.Millisecond}
	}, budget)
}
