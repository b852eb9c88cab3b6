package check

import "strings"

// Shown is what an error may show of a text that should be a URL or a name, and may
// be neither: no user or password, no query, and nothing from the first character
// on that would be no part of a host or a path.
func Shown(text string) string {
	scheme, rest, ok := strings.Cut(text, "://")
	switch {
	case !ok:
		scheme, rest = "", text
	case strings.ContainsFunc(scheme, noScheme):
		return hidden
	default:
		scheme += "://"
	}
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		if strings.Contains(rest[:at], "/") || strings.ContainsFunc(rest[:at], noPath) { // of a password or of a query: who can tell?
			return scheme + hidden
		}
		scheme, rest = scheme+hidden+"@", rest[at+1:]
	}
	if end := strings.IndexFunc(rest, noPath); end >= 0 {
		rest = rest[:end] + hidden
	}
	host := strings.TrimLeft(rest, "/") // where there are too many or too few of them
	slashes := rest[:len(rest)-len(host)]
	host, _, _ = strings.Cut(host, "/")
	if shown := shownHost(host); shown != host {
		rest = slashes + shown
	}
	if len(rest) > shownBytes {
		rest = strings.ToValidUTF8(rest[:shownBytes], "") + hidden
	}
	return scheme + rest
}

// shownHost is host[:port], or what is shown of a user and a password that lost
// their host.
func shownHost(host string) string {
	ip, rest := "", host
	if end := strings.IndexByte(host, ']'); end > 0 && host[0] == '[' && strings.Trim(host[1:end], "0123456789abcdefABCDEF:.") == "" {
		ip, rest = host[:end+1], host[end+1:]
	}
	name, port, ok := strings.Cut(rest, ":")
	switch {
	case strings.Contains(name, "%40") || strings.Contains(strings.ToLower(name), "%3a"): // an @ or a colon
		return ip + hidden
	case ok && (port == "" || len(port) > len("65535") || strings.Trim(port, "0123456789") != ""):
		return ip + name + hidden
	}
	return host
}

// noScheme reports what is no part of a scheme (RFC 3986, 3.1).
func noScheme(r rune) bool {
	return (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && !strings.ContainsRune("+-.", r)
}

// noPath reports what neither a host nor a path is shown with.
func noPath(r rune) bool { return r <= ' ' || r == 0x7f || strings.ContainsRune(`;?#=,&\`, r) }

const (
	hidden     = "..."
	shownBytes = 200
)
