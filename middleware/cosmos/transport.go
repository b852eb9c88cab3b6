package cosmos

import (
	"net"
	"net/http"
	"time"
)

// NewTransport returns a base transport with the limits that azcosmos gives its own, and that it loses when it is
// handed another one: 5 s to connect and 5 s for the TLS handshake, 65 s from a sent request to the answer's headers,
// 1000 idle connections and 100 for each host, kept for 5 min, and HTTP/2 with a ping after 2 s of silence that must
// be answered within 1 s. The proxy comes from the environment. The body of an answer has no limit but the request's
// context.
//
// Each call returns a transport with connections of its own, whose fields may be changed before its first use.
func NewTransport() *http.Transport {
	dialer := &net.Dialer{Timeout: 5 * time.Second, KeepAlive: 30 * time.Second}
	return &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           dialer.DialContext,
		ForceAttemptHTTP2:     true, // a DialContext of one's own would switch HTTP/2 off
		MaxIdleConns:          1000,
		MaxIdleConnsPerHost:   100,
		IdleConnTimeout:       5 * time.Minute,
		TLSHandshakeTimeout:   5 * time.Second,
		ResponseHeaderTimeout: 65 * time.Second,
		ExpectContinueTimeout: time.Second,
		HTTP2:                 &http.HTTP2Config{SendPingTimeout: 2 * time.Second, PingTimeout: time.Second},
	}
}
