package cosmos

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Authorizer signs the requests that an Account makes on its own behalf, such as reading the account document. The
// caller's requests come signed and are never touched. Implementations are safe for concurrent use.
type Authorizer interface {
	// Authorize adds what the service asks for to req, which is the Account's own and may be changed. ctx ends with the
	// request. An error ends the read at once: another endpoint would not help.
	Authorize(ctx context.Context, req *http.Request) error
}

// AuthorizerFunc is a function that is an Authorizer.
type AuthorizerFunc func(ctx context.Context, req *http.Request) error

// Authorize calls f.
func (f AuthorizerFunc) Authorize(ctx context.Context, req *http.Request) error { return f(ctx, req) }

// ErrBadKey says that the text given to SharedKey is not an account key. It never holds the text.
var ErrBadKey = errors.New("cosmos: the account key is empty or not base64")

// SharedKey signs with an account key, read-only or not, given in base64 as the portal shows it. A text that is no
// key is reported by Open and by each Authorize, as ErrBadKey. It prints as nothing but its name.
func SharedKey(key string) Authorizer {
	secret, err := base64.StdEncoding.DecodeString(strings.TrimSpace(key))
	if err != nil || len(secret) == 0 {
		secret = nil
	}
	return &sharedKey{secret: secret}
}

type sharedKey struct{ secret []byte }

func (k *sharedKey) validate() error {
	if k.secret == nil {
		return ErrBadKey
	}
	return nil
}

// Authorize signs method, resource and date; the service's rule leaves out the host.
func (k *sharedKey) Authorize(_ context.Context, req *http.Request) error {
	if err := k.validate(); err != nil {
		return err
	}
	p := placeOf(req.URL)
	date := time.Now().UTC().Format(http.TimeFormat)
	req.Header.Set(headerDate, date)
	req.Header.Set("Authorization", k.token(req.Method, resources[p.kind].word, signedLink(p), date))
	return nil
}

// token computes the value of the Authorization header from the text that the service computes too: four lines, all in
// lower case but the link, and an empty fifth.
func (k *sharedKey) token(method, word, link, date string) string {
	mac := hmac.New(sha256.New, k.secret)
	fmt.Fprintf(mac, "%s\n%s\n%s\n%s\n\n", strings.ToLower(method), word, link, strings.ToLower(date))
	return url.QueryEscape("type=master&ver=1.0&sig=" + base64.StdEncoding.EncodeToString(mac.Sum(nil)))
}

// signedLink is the place's link as it is signed: unescaped, and for an offer its rid alone in lower case.
func signedLink(p place) string {
	switch {
	case p.kind == offer && !p.feed:
		return strings.ToLower(p.id)
	case p.escaped:
		return unescape(p.link, true)
	}
	return p.link
}

// Format prints no key, whatever the verb.
func (k *sharedKey) Format(f fmt.State, _ rune) { fmt.Fprint(f, "cosmos.SharedKey(redacted)") }
