package cosmos

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/reroute-go/reroute/regions/snapshot"
)

// renewBefore is how long before its end a token is renewed, so that no request carries one that ends on the way.
const renewBefore = 5 * time.Minute

// AADToken signs with Microsoft Entra ID tokens that get returns, with the time each one ends. A token is kept until
// 5 minutes before its end, or until half of a lifetime shorter than 10 minutes is over; one without an end (the zero
// time) is used once. All who need a new one share a single call of get, which has its own context and a limit of 30
// s, so no caller's cancellation ends it for the others. When get fails, a token that has not ended yet is used on.
// It prints as nothing but its name.
func AADToken(get func(ctx context.Context) (token string, expires time.Time, err error)) Authorizer {
	a := &aadToken{missing: get == nil}
	a.tokens.MaxWait = 30 * time.Second
	a.tokens.Fetch = func(ctx context.Context, _ *accessToken) (*accessToken, error) {
		asked := time.Now()
		text, expires, err := get(ctx)
		switch {
		case err != nil:
			return nil, err
		case text == "":
			return nil, errors.New("the token is empty")
		case !expires.IsZero() && !expires.After(time.Now()):
			return nil, fmt.Errorf("the token ended at %s", expires.Format(time.RFC3339))
		}
		token := &accessToken{text: text, expires: expires}
		if !expires.IsZero() {
			token.renew = expires.Add(-min(renewBefore, expires.Sub(asked)/2))
		}
		return token, nil
	}
	return a
}

type aadToken struct {
	missing bool
	tokens  snapshot.Holder[accessToken]
}

type accessToken struct {
	text           string
	expires, renew time.Time
}

func (a *aadToken) validate() error {
	if a.missing {
		return errors.New("cosmos: AADToken got no function")
	}
	return nil
}

// Authorize adds a token that has not ended.
func (a *aadToken) Authorize(ctx context.Context, req *http.Request) error {
	if err := a.validate(); err != nil {
		return err
	}
	now := time.Now()
	token := a.tokens.Load()
	if token == nil || !now.Before(token.renew) {
		fresh, err := a.tokens.Refresh(ctx, token)
		switch {
		case err == nil:
			token = fresh
		case token == nil || !now.Before(token.expires):
			return fmt.Errorf("cosmos: AADToken: %w", err)
		}
	}
	req.Header.Set(headerDate, now.UTC().Format(http.TimeFormat))
	req.Header.Set("Authorization", url.QueryEscape("type=aad&ver=1.0&sig="+token.text))
	return nil
}

// Format prints no token, whatever the verb.
func (a *aadToken) Format(f fmt.State, _ rune) { fmt.Fprint(f, "cosmos.AADToken(redacted)") }
