package roundtrippers_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/rest"
	"github.com/reroute-go/reroute/roundtrippers"
)

// flaky answers with one status after the other.
func flaky(codes ...int) http.RoundTripper {
	return middleware.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
		code := codes[0]
		if len(codes) > 1 {
			codes = codes[1:]
		}
		return &http.Response{StatusCode: code, Body: http.NoBody, Request: req}, nil
	})
}

// A CheckRetry and a Backoff that were written for go-retryablehttp drop in
// unchanged.
func ExampleRetry() {
	rt, err := middleware.Stack(flaky(503, 502, 200), roundtrippers.Retry{
		Dialect:    rest.Dialect{},
		CheckRetry: retryablehttp.DefaultRetryPolicy,
		Backoff:    retryablehttp.DefaultBackoff,
		// What were RetryMax, RetryWaitMin and RetryWaitMax of its client.
		Background: middleware.Patience{Retries: 4, Base: time.Millisecond, Max: 30 * time.Second},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	resp, err := (&http.Client{Transport: rt}).Get("https://api.example.com/rows")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	fmt.Println(resp.StatusCode, "after", middleware.FromResponse(resp).Report().Sends, "sends")
	// Output: 200 after 3 sends
}

// One client for all who call an API; who waits for a call says so in its context.
func ExampleAPIBuilder() {
	var calls atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if calls.Add(1) == 1 {
			w.WriteHeader(http.StatusServiceUnavailable) // it is down, for a moment
			return
		}
		fmt.Fprint(w, "[]")
	}))
	defer server.Close()

	rt, err := roundtrippers.APIBuilder{
		Dialect:   rest.Dialect{},
		RateLimit: &roundtrippers.RateLimit{PerSecond: 50},
	}.Build()
	if err != nil {
		fmt.Println(err)
		return
	}
	client := &http.Client{Transport: rt}
	defer client.CloseIdleConnections()

	// A user is looking at an empty grid: until they leave.
	ctx, leave := context.WithTimeout(context.Background(), time.Minute)
	defer leave()
	ctx = middleware.WithPriority(ctx, middleware.Essential)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/rows", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	resp, err := client.Do(req)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	report := middleware.FromResponse(resp).Report()
	fmt.Println(resp.StatusCode, "after", report.Sends, "sends:")
	for _, a := range report.Attempts {
		fmt.Println("-", a.Number, a.Cause, a.Code)
	}
	fmt.Println(middleware.Describe(rt))
	// Output:
	// 200 after 2 sends:
	// - 1 unavailable 503
	// - 2 success 200
	// roundtrippers.Guard
	// roundtrippers.Retry [retry unlimited]
	// roundtrippers.Circuit
	// roundtrippers.RateLimit{PerSecond: 50}
	// roundtrippers.Concurrency
	// *http.Transport
	// no limit of sends but the context's end
}
