package main

import (
	"bytes"
	"context"
	"net/http"
	"time"

	"github.com/PuerkitoBio/rehttp"
	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/circuitbreaker"
	"github.com/failsafe-go/failsafe-go/failsafehttp"
	"github.com/failsafe-go/failsafe-go/hedgepolicy"
	"github.com/failsafe-go/failsafe-go/ratelimiter"
	"github.com/failsafe-go/failsafe-go/retrypolicy"
	"github.com/failsafe-go/failsafe-go/timeout"
	"github.com/go-resty/resty/v2"
	"github.com/gojek/heimdall/v7"
	"github.com/gojek/heimdall/v7/httpclient"
	"github.com/hashicorp/go-retryablehttp"
	"github.com/sony/gobreaker/v2"

	"github.com/reroute-go/reroute/benchmarks/internal/workload"
)

// Names that the claims are about.
const (
	retryable    = "go-retryablehttp"
	safeRetry    = "failsafe-go: retry"
	safeBreaker  = "failsafe-go: retry, breaker"
	safeFour     = "failsafe-go: retry, breaker, rate limit, timeout"
	azure        = "azcore: default pipeline"
	shortestWait = time.Nanosecond
)

// others are the peers.
func others() []peer {
	return []peer{
		transport("gobreaker alone", false, breakerTransport),
		transport("rehttp", true, rehttpTransport),
		transport(retryable, true, retryableTransport),
		transport("heimdall", true, heimdallTransport),
		transport(safeRetry, true, failsafeTransport()),
		transport(safeBreaker, true, failsafeTransport(breakerPolicy)),
		transport(safeFour, true, failsafeTransport(breakerPolicy, ratePolicy, timeoutPolicy)),
		transport("failsafe-go: hedge", false, func(base http.RoundTripper) (http.RoundTripper, error) {
			return failsafehttp.NewRoundTripper(base, hedgepolicy.NewWithDelay[*http.Response](time.Hour)), nil
		}),
		client(azure, azcoreClient),
		client("aws-sdk-go-v2: standard retryer", awsClient),
		client("resty", restyClient),
	}
}

func breakerTransport(base http.RoundTripper) (http.RoundTripper, error) {
	breaker := gobreaker.NewCircuitBreaker[*http.Response](gobreaker.Settings{})
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		return breaker.Execute(func() (*http.Response, error) { return base.RoundTrip(req) })
	}), nil
}

func rehttpTransport(base http.RoundTripper) (http.RoundTripper, error) {
	return rehttp.NewTransport(base, rehttp.RetryAll(rehttp.RetryMaxRetries(retries), rehttp.RetryStatusInterval(500, 600)), rehttp.ConstDelay(shortestWait)), nil
}

func retryableTransport(base http.RoundTripper) (http.RoundTripper, error) {
	return &retryablehttp.RoundTripper{Client: &retryablehttp.Client{
		HTTPClient: &http.Client{Transport: base}, RetryMax: retries, RetryWaitMin: shortestWait, RetryWaitMax: shortestWait,
		CheckRetry: retryablehttp.DefaultRetryPolicy, Backoff: retryablehttp.DefaultBackoff,
	}}, nil
}

func heimdallTransport(base http.RoundTripper) (http.RoundTripper, error) {
	c := httpclient.NewClient(httpclient.WithHTTPClient(&http.Client{Transport: base}), httpclient.WithRetryCount(retries),
		httpclient.WithRetrier(heimdall.NewRetrierFunc(func(int) time.Duration { return shortestWait })))
	return roundTripper(c.Do), nil
}

type safePolicy = failsafe.Policy[*http.Response]

func failsafeTransport(more ...func() safePolicy) func(http.RoundTripper) (http.RoundTripper, error) {
	return func(base http.RoundTripper) (http.RoundTripper, error) {
		policies := []safePolicy{retryPolicy()}
		for _, policy := range more {
			policies = append(policies, policy())
		}
		return failsafehttp.NewRoundTripper(base, policies...), nil
	}
}

func retryPolicy() retrypolicy.RetryPolicy[*http.Response] {
	return failsafehttp.NewRetryPolicyBuilder().WithMaxRetries(retries).WithDelay(shortestWait).Build()
}

func breakerPolicy() safePolicy {
	return circuitbreaker.NewBuilder[*http.Response]().WithFailureThreshold(5).
		HandleIf(func(resp *http.Response, err error) bool { return err != nil || resp != nil && resp.StatusCode >= 500 }).Build()
}

func ratePolicy() safePolicy {
	return ratelimiter.NewSmoothWithMaxRate[*http.Response](shortestWait)
}

func timeoutPolicy() safePolicy { return timeout.New[*http.Response](time.Minute) }

// restyClient builds its request anew for each call, as resty is used.
func restyClient(base http.RoundTripper, kind workload.Kind) (func() error, error) {
	c := resty.New().SetTransport(base).SetRetryCount(retries).SetRetryWaitTime(shortestWait).SetRetryMaxWaitTime(shortestWait).
		AddRetryCondition(func(resp *resty.Response, err error) bool { return err != nil || resp.StatusCode() >= 500 })
	model := workload.Request(kind)
	url := model.URL.String()
	for name, values := range model.Header {
		c.SetHeader(name, values[0])
	}
	return func() error {
		req := c.R().SetContext(context.Background())
		if kind == workload.Post {
			req.SetBody(bytes.NewReader(workload.Body))
		}
		resp, err := req.Execute(model.Method, url)
		if err != nil {
			return err
		}
		return finish(resp.RawResponse, nil)
	}, nil
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }
