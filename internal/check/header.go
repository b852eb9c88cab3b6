package check

import "strings"

// HeaderName reports whether name can be a header's (RFC 9110, 5.6.2): net/http
// sends no request with one that cannot.
func HeaderName(name string) bool {
	return name != "" && !strings.ContainsFunc(name, func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
	})
}

// HeaderValue reports whether value can be a header's (RFC 9110, 5.5).
func HeaderValue(value string) bool {
	return !strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f })
}
