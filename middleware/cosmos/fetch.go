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
