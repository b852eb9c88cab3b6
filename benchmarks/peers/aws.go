package main

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws/ratelimit"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/reroute-go/reroute/benchmarks/internal/workload"
)

// awsClient is the middleware stack that the AWS SDK builds for each call, with
// its standard retryer and without signing.
func awsClient(base http.RoundTripper, kind workload.Kind) (func() error, error) {
	retryer := retry.NewStandard(func(o *retry.StandardOptions) {
		o.MaxAttempts = retries + 1
		o.RateLimiter = ratelimit.None // a client that does nothing but retry spends its quota at once
		o.Backoff = retry.BackoffDelayerFunc(func(int, error) (time.Duration, error) { return shortestWait, nil })
	})
	handler := smithyhttp.NewClientHandlerWithOptions(doer{base})
	model := workload.Request(kind)
	serialize := middleware.SerializeMiddlewareFunc("serialize", func(ctx context.Context, in middleware.SerializeInput, next middleware.SerializeHandler) (
		middleware.SerializeOutput, middleware.Metadata, error) {
		req, ok := in.Request.(*smithyhttp.Request)
		if !ok {
			return middleware.SerializeOutput{}, middleware.Metadata{}, errors.New("no request to serialize into")
		}
		req.Method = model.Method
		*req.URL = *model.URL
		for name, values := range model.Header {
			req.Header[name] = values
		}
		if kind == workload.Post {
			var err error
			if req, err = req.SetStream(bytes.NewReader(workload.Body)); err != nil {
				return middleware.SerializeOutput{}, middleware.Metadata{}, err
			}
			req.ContentLength = int64(len(workload.Body))
			in.Request = req
		}
		return next.HandleSerialize(ctx, in)
	})
	deserialize := middleware.DeserializeMiddlewareFunc("deserialize", func(ctx context.Context, in middleware.DeserializeInput, next middleware.DeserializeHandler) (
		middleware.DeserializeOutput, middleware.Metadata, error) {
		out, metadata, err := next.HandleDeserialize(ctx, in)
		if resp, ok := out.RawResponse.(*smithyhttp.Response); ok && err == nil && resp.StatusCode >= 500 {
			_ = resp.Body.Close()
			err = &smithyhttp.ResponseError{Response: resp, Err: errors.New(resp.Status)}
		} else {
			out.Result = out.RawResponse
		}
		return out, metadata, err
	})
	return func() error {
		stack := middleware.NewStack("benchmark", smithyhttp.NewStackRequest)
		if err := errors.Join(
			stack.Serialize.Add(serialize, middleware.After),
			stack.Finalize.Add(retry.NewAttemptMiddleware(retryer, smithyhttp.RequestCloner), middleware.After),
			stack.Deserialize.Add(deserialize, middleware.After),
		); err != nil {
			return err
		}
		out, _, err := middleware.DecorateHandler(handler, stack).Handle(context.Background(), nil)
		if err != nil {
			return err
		}
		resp, ok := out.(*smithyhttp.Response)
		if !ok {
			return errors.New("no response")
		}
		return finish(resp.Response, nil)
	}, nil
}
