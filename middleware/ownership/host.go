package ownership

import (
	"net"
	"net/url"
	"strconv"
	"strings"
)

// maxHost bounds host[:port]: a DNS name of 253 octets and a port.
const maxHost = 260

// validHost reports whether text is host[:port] and nothing else: no scheme,
// path, user, space or junk that a URL would make something else of.
func validHost(text string) bool {
	if text == "" || len(text) > maxHost || strings.ContainsAny(text, `/?#@\%`) || strings.ContainsFunc(text, notVisible) {
		return false
	}
	u, err := url.Parse("http://" + text)
	if err != nil || u.Host != text || u.Hostname() == "" {
		return false
	}
	port := u.Port()
	if port == "" {
		return !strings.HasSuffix(text, ":")
	}
	n, err := strconv.ParseUint(port, 10, 16)
	return err == nil && n > 0
}

// notVisible: names of other scripts come in their ASCII form, xn--.
func notVisible(r rune) bool { return r <= ' ' || r > '~' }

// allows reports whether an answer may send credentials to host: it is named by
// pattern, which is a host, a host:port, or a suffix that starts with a dot.
func allows(pattern, host string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	if strings.HasPrefix(pattern, ".") {
		return len(name) > len(pattern) && strings.EqualFold(name[len(name)-len(pattern):], pattern)
	}
	return strings.EqualFold(pattern, host) || strings.EqualFold(pattern, name)
}
