package middleware

import "strings"

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
	eachURL(err, func(whole string) { tells = tells || bareURL(whole) != whole })
	if !tells {
		return err
	}
	return &discreetError{Redact(err).Error(), err}
}

func (e *discreetError) Error() string { return e.text }

func (e *discreetError) MarshalText() ([]byte, error) { return []byte(e.text), nil }

func (e *discreetError) Unwrap() error { return e.err }

// RedactURL returns what an error may show of a text that should be a URL, and may
// be no good one: neither a user nor a password, nor a query, and nothing from the
// first character on that would be no part of a host or a path.
func RedactURL(text string) string {
	scheme, rest, ok := strings.Cut(text, "://")
	switch {
	case !ok:
		scheme, rest = "", text
	case strings.ContainsAny(scheme, "@;?#=, "):
		return hidden
	default:
		scheme += "://"
	}
	before := ""
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		if strings.ContainsAny(rest[:at], "/;?#=, ") { // of a password or of a query: who can tell?
			return scheme + hidden
		}
		before, rest = hidden, rest[at:]
	}
	if end := strings.IndexAny(rest, ";?#=, "); end >= 0 {
		rest = rest[:end] + hidden
	}
	host, _, _ := strings.Cut(rest, "/")
	address := host[strings.LastIndexByte(host, ']')+1:]                                           // an IPv6 host has colons
	if name, port, ok := strings.Cut(address, ":"); ok && strings.Trim(port, "0123456789") != "" { // or a password that lost its host
		rest = host[:len(host)-len(address)] + name + hidden
	}
	if len(rest) > shownURL {
		rest = strings.ToValidUTF8(rest[:shownURL], "") + hidden
	}
	return scheme + before + rest
}

const (
	hidden   = "..."
	shownURL = 200 // bytes
)
