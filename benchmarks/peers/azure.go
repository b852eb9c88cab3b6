package main

import (
	"bytes"
	"context"
	"net/http"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"

	"github.com/reroute-go/reroute/benchmarks/internal/workload"
)

// azcoreClient is the pipeline that the Azure SDKs are built on. It makes its
// request anew for each call, as they do.
func azcoreClient(base http.RoundTripper, kind workload.Kind) (func() error, error) {
	pipeline := runtime.NewPipeline("benchmarks", "v1.0.0", runtime.PipelineOptions{}, &policy.ClientOptions{
		Transport: doer{base},
		Retry:     policy.RetryOptions{MaxRetries: retries, RetryDelay: shortestWait, MaxRetryDelay: shortestWait},
	})
	model := workload.Request(kind)
	url := model.URL.String()
	return func() error {
		req, err := runtime.NewRequest(context.Background(), model.Method, url)
		if err != nil {
			return err
		}
		for name, values := range model.Header {
			req.Raw().Header[name] = values
		}
		if kind == workload.Post {
			if err := req.SetBody(streaming.NopCloser(bytes.NewReader(workload.Body)), "application/json"); err != nil {
				return err
			}
		}
		return finish(pipeline.Do(req))
	}, nil
}

// doer is a RoundTripper where a client is asked for.
type doer struct{ http.RoundTripper }

func (d doer) Do(req *http.Request) (*http.Response, error) { return d.RoundTrip(req) }
