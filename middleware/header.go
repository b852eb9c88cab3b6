package middleware

import "strings"

// ValidHeaderName reports whether name can be a header's (RFC 9110, 5.6.2): net/http
// sends no request with one that cannot.
func ValidHeaderName(name string) bool {
	return name != "" && !strings.ContainsFunc(name, func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
	})
}

// ValidHeaderValue reports whether value can be a header's (RFC 9110, 5.5).
func ValidHeaderValue(value string) bool {
	return !strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f })
}
