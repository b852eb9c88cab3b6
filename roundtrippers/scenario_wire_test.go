package roundtrippers_test

import (
	"io"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/reroute-go/reroute/middleware/cosmos/cosmostest"
)

// wire watches what leaves the stack and counts the bodies that are open.
type wire struct {
	t    *testing.T
	next http.RoundTripper
	sim  *cosmostest.Account
	open atomic.Int64
}

func (w *wire) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Host != req.URL.Host {
		w.t.Errorf("Host is %q, the address %q", req.Host, req.URL.Host)
	}
	if w.sim.RegionOf(req.URL.Host) == "" {
		w.t.Errorf("%q is none of the account's hosts", req.URL.Host)
	}
	resp, err := w.next.RoundTrip(req)
	if err == nil {
		w.open.Add(1)
		resp.Body = &watchedBody{ReadCloser: resp.Body, closed: func() { w.open.Add(-1) }}
	}
	return resp, err
}

type watchedBody struct {
	io.ReadCloser
	closed func()
	once   atomic.Bool
}

func (b *watchedBody) Close() error {
	if b.once.CompareAndSwap(false, true) {
		b.closed()
	}
	return b.ReadCloser.Close()
}
