package cosmostest

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// clockSkew is how far x-ms-date may be from the account's clock.
const clockSkew = 15 * time.Minute

// Sign puts x-ms-date (now, when missing) and a master key signature on a request of the account, as a REST client would.
// The signature covers method, resource type, resource link and date, so it stays good when the host changes.
func (a *Account) Sign(r *http.Request) {
	if r.Header.Get(headerDate) == "" {
		r.Header.Set(headerDate, time.Now().UTC().Format(http.TimeFormat))
	}
	c := parseCall(r, nil)
	sig := signature(a.masterKey(), c.method, c.resourceType, c.links[len(c.links)-1], r.Header.Get(headerDate))
	r.Header.Set("Authorization", url.QueryEscape("type=master&ver=1.0&sig="+sig))
}

func (a *Account) masterKey() []byte {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.key
}

// signature is the base64 HMAC-SHA256 of the string the REST reference defines. The link keeps its case, the rest is lower case.
func signature(key []byte, method, resourceType, link, date string) string {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(strings.ToLower(method) + "\n" + strings.ToLower(resourceType) + "\n" + link + "\n" + strings.ToLower(date) + "\n\n"))
	return base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// authorize checks the Authorization header of a call.
func (a *Account) authorize(c *call) error {
	if a.cfg.IgnoreSignatures {
		return nil
	}
	raw, err := url.QueryUnescape(c.header.Get("Authorization"))
	if err != nil || raw == "" {
		return unauthorized("Required Header authorization is missing. Ensure a valid Authorization token is passed.")
	}
	fields := map[string]string{}
	for pair := range strings.SplitSeq(raw, "&") {
		name, value, _ := strings.Cut(pair, "=")
		fields[name] = value
	}
	a.mu.Lock()
	key, token := a.key, a.token
	a.mu.Unlock()
	switch fields["type"] {
	case "aad":
		if subtle.ConstantTimeCompare([]byte(fields["sig"]), []byte(token)) != 1 {
			return &apiError{status: http.StatusUnauthorized, substatus: 5013, message: "The access token is not the one this account expects."}
		}
		return nil
	case "master":
		date, err := http.ParseTime(c.header.Get(headerDate))
		if err != nil {
			return unauthorized("The x-ms-date header is missing or no RFC 1123 date.")
		}
		if skew := time.Since(date).Abs(); skew > clockSkew {
			return &apiError{status: http.StatusForbidden, message: "The authorization token is not valid at the current time. Its date is " + skew.String() + " away."}
		}
		for _, link := range c.links {
			want := signature(key, c.method, c.resourceType, link, c.header.Get(headerDate))
			if subtle.ConstantTimeCompare([]byte(want), []byte(fields["sig"])) == 1 {
				return nil
			}
		}
		return unauthorized("The input authorization token can't serve the request. The expected payload is: '" +
			strings.ToLower(c.method) + "\n" + c.resourceType + "\n" + c.links[0] + "\n" + strings.ToLower(c.header.Get(headerDate)) + "\n\n'.")
	}
	return unauthorized("The authorization token has an unknown type.")
}

func unauthorized(message string) error {
	return &apiError{status: http.StatusUnauthorized, message: message}
}

// redact names the kind of a credential and hides the rest.
func redact(authorization string) string {
	raw, err := url.QueryUnescape(authorization)
	if err != nil {
		return "redacted"
	}
	kind, _, ok := strings.Cut(raw, "&")
	if !ok || !strings.HasPrefix(kind, "type=") || len(kind) > 20 {
		return "redacted"
	}
	return kind + "&sig=redacted"
}
