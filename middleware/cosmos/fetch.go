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
	// patient also retries where nothing could be sent; hasty leaves that to the next endpoint; pages is hasty with large answers.
	patient, hasty, pages http.RoundTripper
}

func newFetcher(base http.RoundTripper, auth Authorizer, limit time.Duration, wait throttle) (*fetcher, error) {
	f := &fetcher{auth: auth}
	for _, s := range []struct {
		rt     *http.RoundTripper
		most   int64
		layers []middleware.Layer
	}{
		{&f.hasty, maxDocument, []middleware.Layer{wait}},
		{&f.patient, maxDocument, []middleware.Layer{reconnect{}, wait}},
		{&f.pages, maxPage, []middleware.Layer{wait}},
	} {
		rt, err := middleware.Stack(whole{next: base, limit: limit, most: s.most}, s.layers...)
		if err != nil {
			return nil, err
		}
		*s.rt = rt
	}
	return f, nil
}

// reply is a good answer, read whole.
type reply struct {
	unchanged bool // 304
	header    http.Header
	body      []byte
}

// get reads u whole, following no redirect: an answer of 200 or 304, or a *FetchError. header is added to the request.
func (f *fetcher) get(ctx context.Context, rt http.RoundTripper, what string, u *url.URL, header http.Header) (reply, *FetchError) {
	failed := func(err error) (reply, *FetchError) {
		return reply{}, &FetchError{What: what, Endpoint: u.Host, Err: err}
	}
	req, err := http.NewRequestWithContext(middleware.Detach(ctx), http.MethodGet, u.String(), nil)
	if err != nil {
		return failed(err)
	}
	for name, values := range header {
		req.Header[name] = values
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
	// Before anything is cut out of it, decoded or not: half of a credential would not be found.
	credential := req.Header.Get("Authorization")
	body = redact(body, credential)
	if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusNotModified {
		return reply{}, &FetchError{
			What: what, Endpoint: u.Host, Status: resp.StatusCode, Substatus: substatus(resp.Header),
			Message: fold(string(redact([]byte(wordsOf(body)), credential)), maxMessage),
		}
	}
	return reply{unchanged: resp.StatusCode == http.StatusNotModified, header: resp.Header, body: body}, nil
}

// redact removes a credential that a talkative answer repeats: whole, or the parts of it that no encoding changes.
func redact(text []byte, credential string) []byte {
	plain, err := url.QueryUnescape(credential)
	if err != nil {
		plain = credential
	}
	secrets := []string{credential, plain}
	if _, sig, ok := strings.Cut(plain, "sig="); ok {
		secrets = append(secrets, sig, url.QueryEscape(sig))
		for _, part := range strings.FieldsFunc(sig, notAlphanumeric) {
			if len(part) >= 8 {
				secrets = append(secrets, part)
			}
		}
	}
	for _, s := range secrets {
		if s != "" && bytes.Contains(text, []byte(s)) {
			text = bytes.ReplaceAll(text, []byte(s), []byte("[redacted]"))
		}
	}
	return text
}

func notAlphanumeric(r rune) bool {
	return !('0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z')
}

// whole makes an attempt end with its answer's last byte: one that stalls in the middle, or never ends, has failed. An
// answer is read up to one byte beyond most.
type whole struct {
	next  http.RoundTripper
	limit time.Duration
	most  int64
}

func (w whole) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(req.Context(), w.limit)
	defer cancel()
	resp, err := w.next.RoundTrip(req.WithContext(ctx))
	if err != nil {
		return nil, err
	}
	most := w.most + 1
	if resp.StatusCode == http.StatusSwitchingProtocols {
		most = 0 // an upgraded connection, which nobody asked for, does not end with the context
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, most))
	_ = resp.Body.Close()
	if err != nil {
		return nil, fmt.Errorf("reading the answer: %w", err)
	}
	answered := *resp
	answered.Body, answered.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return &answered, nil
}
