package layertest_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/layertest"
)

// Tenant is a layer of one's own: it tells the service for whom a request is.
type Tenant struct {
	Name string // required
}

// Wrap checks the fields and sends nothing.
func (l Tenant) Wrap(next http.RoundTripper) (http.RoundTripper, error) {
	if l.Name == "" {
		return nil, errors.New("Tenant: Name is empty")
	}
	return middleware.Operate(next, nil, func(_ *middleware.Operation, req *http.Request, next http.RoundTripper) (*http.Response, error) {
		named := *req // the caller's request is not ours to change
		named.Header = req.Header.Clone()
		named.Header.Set("X-Tenant", l.Name)
		return next.RoundTrip(&named)
	}), nil
}

// testTenant is the layer's test. Yours has a big T.
func testTenant(t *testing.T) {
	layertest.Run(t, Tenant{Name: "acme"})
}

// A layer of one's own from beginning to end: the layer, the stack it is part of,
// and its test.
func Example() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("X-Served", req.Header.Get("X-Tenant"))
	}))
	defer server.Close()

	rt, err := middleware.Stack(nil, Tenant{Name: "acme"}) // nil = http.DefaultTransport
	if err != nil {
		fmt.Println(err)
		return
	}
	client := &http.Client{Transport: rt}
	defer client.CloseIdleConnections()
	resp, err := client.Get(server.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	fmt.Println(resp.Status, "for", resp.Header.Get("X-Served"))

	_, err = middleware.Stack(nil, Tenant{})
	fmt.Println(err)
	// Output:
	// 200 OK for acme
	// middleware.Stack: layer 0 (layertest_test.Tenant): Tenant: Name is empty
}
