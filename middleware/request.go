package middleware

import (
	"net/http"
	"net/url"
	"sync/atomic"
)

// ownRequest is a request that the operation has made: the first copy of the
// caller's, or that of a re-send. Until it is seen by somebody who may keep it, it
// can still be changed, which spares a routed attempt a copy of 450 bytes.
type ownRequest struct {
	req  http.Request
	url  url.URL // its own, once it is addressed
	seen atomic.Bool
}

// owns reports whether req may be changed: it is the newest that the operation
// made, and only loops and Relay layers have it.
func (op *Operation) owns(req *http.Request) bool {
	own := op.own.Load()
	return req == &own.req && !own.seen.Load()
}

// expose says that the operation's request is about to be seen by others, who may
// keep it, read it at any time and send it twice at once.
func (op *Operation) expose() {
	if own := op.own.Load(); !own.seen.Load() {
		own.seen.Store(true)
	}
}

// Readdress returns req, which belongs to the operation, for another host: URL
// and Host say so. It is a copy, or the operation's own request if only Relay
// layers have seen it.
func (op *Operation) Readdress(req *http.Request, scheme, host string) *http.Request {
	own := op.own.Load()
	if op.owns(req) {
		own.seen.Store(true) // by the transport, soon
	} else {
		own = &ownRequest{req: *req}
	}
	own.url = *req.URL
	own.url.Scheme, own.url.Host = scheme, host
	own.req.URL, own.req.Host = &own.url, host
	return &own.req
}

// again returns a copy of req, with its first address and a body of its own.
// net/http may still be reading the last attempt's body and request after
// RoundTrip has returned, so neither is used twice.
func (op *Operation) again(req *http.Request, to address) (*http.Request, error) {
	body := req.Body
	if hasBody(req) {
		var err error
		if body, err = req.GetBody(); err != nil {
			return nil, err
		}
	}
	own := op.spare()
	own.req = *req
	own.req.Body, own.req.URL, own.req.Host = body, to.url, to.host
	op.own.Store(own)
	return &own.req, nil
}

// address is where a request went before it was routed.
type address struct {
	url  *url.URL
	host string
}
