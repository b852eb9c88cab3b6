package middleware_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/rest"
)

// Reauth is a layer of one's own: it signs each send and, after a 401, renews
// the credential and has the request sent once more.
type Reauth struct {
	Token func(ctx context.Context, renew bool) (string, error)
}

func (l Reauth) Wrap(next http.RoundTripper) (http.RoundTripper, error) {
	sign := middleware.Operate(next, nil, func(_ *middleware.Operation, req *http.Request, next http.RoundTripper) (*http.Response, error) {
		token, err := l.Token(req.Context(), false)
		if err != nil {
			return middleware.Refuse(req, err)
		}
		signed := *req // not Clone: trailers that are still to come must reach the transport
		signed.Header = req.Header.Clone()
		signed.Header.Set("Authorization", "Bearer "+token)
		return next.RoundTrip(&signed)
	})
	once := &middleware.Budget{Name: "reauth", Retries: 1}
	return middleware.Retry(sign, rest.Dialect{}, func(_ context.Context, _ *middleware.Operation, out middleware.Outcome) middleware.Verdict {
		if out.Cause != middleware.Unauthorized {
			return middleware.Verdict{}
		}
		return middleware.Verdict{Budget: once, Prepare: func(ctx context.Context) error {
			_, err := l.Token(middleware.Detach(ctx), true)
			return err
		}}
	}, once)
}

// A retrying layer is the one loop plus a small policy.
func ExampleRetry() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Header.Get("Authorization") != "Bearer new" {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	defer server.Close()

	token := "old"
	rt, err := middleware.Stack(nil, Reauth{Token: func(_ context.Context, renew bool) (string, error) {
		if renew {
			token = "new"
		}
		return token, nil
	}})
	if err != nil {
		panic(err)
	}
	resp, err := (&http.Client{Transport: rt}).Get(server.URL)
	if err != nil {
		panic(err)
	}
	defer resp.Body.Close()
	report := middleware.FromResponse(resp).Report()
	fmt.Println(resp.Status, "after", report.Sends, "sends:", report.Attempts[0].Cause, "first")
	fmt.Println(middleware.Describe(rt))
	// Output:
	// 200 OK after 2 sends: unauthorized first
	// middleware_test.Reauth [reauth 1]
	// *http.Transport
	// at most 2 sends
}

// A layer that sends at most once, like a plain RoundTripper, needs nothing of
// the loop. Stacked above a retrying layer it runs once an operation, below it
// once an attempt.
func ExampleLayerFunc() {
	timed := middleware.LayerFunc(func(next http.RoundTripper) http.RoundTripper {
		return middleware.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
			started := time.Now()
			resp, err := next.RoundTrip(req)
			_ = time.Since(started) // hand it to your metrics
			return resp, err
		})
	})
	rt, err := middleware.Stack(http.DefaultTransport, timed)
	fmt.Println(rt != nil, err)
	// Output: true <nil>
}
