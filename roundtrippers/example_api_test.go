package roundtrippers_test

import (
	"context"
	"fmt"
	"net/http"
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
	rt, err := roundtrippers.APIBuilder{
		Dialect:   rest.Dialect{},
		RateLimit: &roundtrippers.RateLimit{PerSecond: 50},
		Base:      flaky(503, 200),
	}.Build()
	if err != nil {
		fmt.Println(err)
		return
	}
	client := &http.Client{Transport: rt}

	// A user is looking at an empty grid: until they leave.
	ctx, leave := context.WithTimeout(context.Background(), time.Minute)
	defer leave()
	ctx = middleware.WithPriority(ctx, middleware.Essential)
	req, _ := http.NewRequestWithContext(ctx, http.MethodGet, "https://api.example.com/rows", nil)
	resp, err := client.Do(req)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	fmt.Println(resp.StatusCode)
	fmt.Println(middleware.Describe(rt))
	// Output:
	// 200
	// roundtrippers.Guard
	// roundtrippers.Retry [retry unlimited]
	// roundtrippers.Circuit
	// roundtrippers.RateLimit{PerSecond: 50}
	// roundtrippers.Concurrency
	// middleware.RoundTripperFunc
	// no limit of sends but the context's end
}
