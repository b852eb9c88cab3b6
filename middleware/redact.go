package middleware

import (
	"errors"
	"net/url"
	"strconv"
	"strings"
)

const hidden = "..." // in place of what may be a credential

// Redact returns err, or what may be shown of it: an http.Client below quotes URLs
// whole, and their user and query can be credentials. What it returns in place of
// err is for showing only.
func Redact(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	shown := text
	eachURL(err, func(u *url.Error) {
		bare := bareURL(u.URL)
		if bare == u.URL {
			return
		}
		shown = strings.ReplaceAll(shown, strconv.Quote(u.URL), strconv.Quote(bare)) // as url.Error has it
		shown = strings.ReplaceAll(shown, u.URL, bare)
		if u.Op == "parse" && u.Err != nil { // net/url quotes a password as a bad port
			if harmless, _, quotes := strings.Cut(u.Err.Error(), `"`); quotes {
				shown = strings.ReplaceAll(shown, u.Err.Error(), harmless+hidden)
			}
		}
	})
	if shown == text {
		return err
	}
	return errors.New(shown)
}

// eachURL calls f for all errors in err's tree that quote a URL: there is one for each
// client that the error came through, and one for each of several joined.
func eachURL(err error, f func(*url.Error)) {
	if u, ok := err.(*url.Error); ok { //nolint:errorlint // each is looked at
		f(u)
	}
	switch e := err.(type) { //nolint:errorlint // each is looked at
	case interface{ Unwrap() error }:
		eachURL(e.Unwrap(), f)
	case interface{ Unwrap() []error }:
		for _, inner := range e.Unwrap() {
			eachURL(inner, f)
		}
	}
}

// bareURL is a URL without user and query.
func bareURL(whole string) string {
	parsed, err := url.Parse(whole)
	switch {
	case err != nil:
		return hidden
	case parsed.User == nil && parsed.RawQuery == "":
		return whole
	}
	parsed.User, parsed.RawQuery = nil, ""
	return parsed.String()
}

// discreetError is an error of a client below whose text quotes a URL that may hold
// a credential: errors.Is and errors.As find the error itself, and whoever prints,
// logs or marshals this one shows none.
type discreetError struct {
	text string
	err  error
}

// discreet is err as it may be handed to observers and kept in reports. It costs
// nothing where no URL is quoted.
func discreet(err error) error {
	if _, ok := err.(*discreetError); ok { //nolint:errorlint // one that is wrapped may have gained a URL
		return err
	}
	tells := false
	eachURL(err, func(u *url.Error) { tells = tells || bareURL(u.URL) != u.URL })
	if !tells {
		return err
	}
	return &discreetError{Redact(err).Error(), err}
}

func (e *discreetError) Error() string { return e.text }

func (e *discreetError) MarshalText() ([]byte, error) { return []byte(e.text), nil }

func (e *discreetError) Unwrap() error { return e.err }
