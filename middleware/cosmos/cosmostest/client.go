package cosmostest

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"strings"
	"time"
)

// Transport reaches the account. It is one transport with one connection pool; Close closes its idle connections.
func (a *Account) Transport() *http.Transport { return a.transport }

// newTransport makes the transport that reaches the account.
func (a *Account) newTransport() *http.Transport {
	t := &http.Transport{DialContext: a.DialContext, MaxIdleConnsPerHost: 64, IdleConnTimeout: 90 * time.Second, TLSClientConfig: a.TLSClientConfig()}
	t.Protocols = new(http.Protocols)
	t.Protocols.SetHTTP1(!a.cfg.HTTP2)
	t.Protocols.SetHTTP2(a.cfg.HTTP2 && a.cfg.TLS)
	t.Protocols.SetUnencryptedHTTP2(a.cfg.HTTP2 && !a.cfg.TLS)
	return t
}

// TLSClientConfig trusts the account's certificate, for a transport of one's own; nil without Config.TLS.
func (a *Account) TLSClientConfig() *tls.Config {
	if a.identity == nil {
		return nil
	}
	return &tls.Config{RootCAs: a.identity.pool, MinVersion: tls.VersionTLS12}
}

// DialContext connects to an address of the account, for a transport of one's own. In memory it refuses a shut endpoint with
// ECONNREFUSED and does not know any other host; with sockets it is the ordinary dialer.
func (a *Account) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	if !a.cfg.InMemory {
		var d net.Dialer
		return d.DialContext(ctx, network, address)
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = address
	}
	a.mu.Lock()
	endpoints := a.endpoints()
	a.mu.Unlock()
	for _, e := range endpoints {
		if strings.EqualFold(e.gate.address, host) {
			return e.gate.dial(ctx)
		}
	}
	return nil, &net.OpError{Op: "dial", Net: network, Err: &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}}
}

// Client is a plain client of the account: it signs requests that carry no Authorization and sends them where their URL says.
func (a *Account) Client() *http.Client { return &http.Client{Transport: signer{a}} }

type signer struct{ account *Account }

func (s signer) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Header.Get("Authorization") == "" {
		r = r.Clone(r.Context())
		s.account.Sign(r)
	}
	return s.account.transport.RoundTrip(r)
}

// CloseIdleConnections lets http.Client.CloseIdleConnections reach the pool.
func (s signer) CloseIdleConnections() { s.account.transport.CloseIdleConnections() }
