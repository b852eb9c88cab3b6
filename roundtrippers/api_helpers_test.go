package roundtrippers_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/layertest"
	"github.com/reroute-go/reroute/middleware/rest"
	"github.com/reroute-go/reroute/roundtrippers"
)

// apiClient is an API stack over a script, with no jitter so that waits are exact.
type apiClient struct {
	t       *testing.T
	builder roundtrippers.APIBuilder
	script  *layertest.Script
	rt      http.RoundTripper
	tags    *apiTags
}

// apiOver stacks the API client over steps; change may alter the builder.
func apiOver(t *testing.T, change func(*roundtrippers.APIBuilder), steps ...layertest.Step) *apiClient {
	t.Helper()
	return apiBase(t, layertest.NewScript(t, steps...), change)
}

func apiBase(t *testing.T, script *layertest.Script, change func(*roundtrippers.APIBuilder)) *apiClient {
	t.Helper()
	c := &apiClient{t: t, script: script, tags: &apiTags{}}
	c.builder = roundtrippers.APIBuilder{
		Dialect: rest.Dialect{}, Observe: c.tags.observe, Base: script,
		Circuit: &roundtrippers.Circuit{}, Concurrency: &roundtrippers.Concurrency{},
	}
	c.builder.Retry.Rand = func() float64 { return 0 }
	if change != nil {
		change(&c.builder)
	}
	rt, err := c.builder.Build()
	require.NoError(t, err)
	c.rt = rt
	return c
}

// do sends a GET and returns the status, 0 with an error.
func (c *apiClient) do(ctx context.Context) (int, error) {
	resp, err := c.rt.RoundTrip(get(ctx, "https://api.test/rows"))
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	return resp.StatusCode, err
}

// report sends a GET and returns its story.
func (c *apiClient) report(ctx context.Context) middleware.Report {
	resp, err := c.rt.RoundTrip(get(ctx, "https://api.test/rows"))
	if err != nil {
		var typed *middleware.Error
		require.ErrorAs(c.t, err, &typed)
		return typed.Report
	}
	_ = resp.Body.Close()
	return middleware.FromResponse(resp).Report()
}

// sends returns how many requests arrived.
func (c *apiClient) sends() int { return len(c.script.Sends()) }

// gaps returns the times between the sends.
func (c *apiClient) gaps() (gaps []time.Duration) {
	times := c.script.Times()
	for i := 1; i < len(times); i++ {
		gaps = append(gaps, times[i]-times[i-1])
	}
	return gaps
}

func essentially(ctx context.Context) context.Context {
	return middleware.WithPriority(ctx, middleware.Essential)
}

func patiently(ctx context.Context, p middleware.Patience) context.Context {
	return middleware.WithPatience(ctx, p)
}

func apiSteps(codes ...int) (steps []layertest.Step) {
	for _, code := range codes {
		steps = append(steps, layertest.Step{Status: code, Body: fmt.Sprint("body of ", code)})
	}
	return steps
}

func repeatStep(n int, step layertest.Step) []layertest.Step {
	steps := make([]layertest.Step, n)
	for i := range steps {
		steps[i] = step
	}
	return steps
}

// apiTags writes events in the short form of the reference, section 4.8. What an
// operation gave up, GaveUp, is not part of that vocabulary.
type apiTags struct {
	mu     sync.Mutex
	list   []string
	events []middleware.Event
}

func (a *apiTags) observe(_ context.Context, e middleware.Event) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.events = append(a.events, e)
	if tag := apiTag(e); tag != "" {
		a.list = append(a.list, tag)
	}
}

func apiTag(e middleware.Event) string {
	switch e.Kind {
	case middleware.AttemptStarted:
		return "started"
	case middleware.AttemptEnded:
		switch {
		case e.Cause == middleware.Canceled, e.Cause == middleware.DeadlineExceeded:
			return "cancelled"
		case e.Cause == middleware.CircuitOpen:
			return "failed:breaker_open"
		case errors.Is(e.Err, middleware.ErrNoCredential):
			return "failed:auth"
		case e.Err != nil:
			return "failed:transport"
		case e.Status < 400:
			return fmt.Sprintf("ok:%d", e.Status)
		}
		return "failed:status"
	case middleware.RetryScheduled:
		return fmt.Sprintf("retry:%d", e.Attempt)
	case middleware.BreakerOpened:
		return "opened"
	case middleware.BreakerClosed:
		return "closed"
	}
	return ""
}

func (a *apiTags) String() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return strings.Join(a.list, ", ")
}

// kinds returns the events of a kind.
func (a *apiTags) kinds(kind middleware.EventKind) (events []middleware.Event) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, e := range a.events {
		if e.Kind == kind {
			events = append(events, e)
		}
	}
	return events
}

// scenario is one row of a table: it runs in a bubble of its own.
type scenario struct {
	name   string
	change func(*roundtrippers.APIBuilder)
	steps  []layertest.Step
	run    func(t *testing.T, c *apiClient)
}

func playAll(t *testing.T, scenarios []scenario) {
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { s.run(t, apiOver(t, s.change, s.steps...)) })
		})
	}
}

// threshold sets that of the breaker.
func threshold(n int) func(*roundtrippers.APIBuilder) {
	return func(b *roundtrippers.APIBuilder) { b.Circuit.Threshold = n }
}

func want(t *testing.T, c *apiClient, ctx context.Context, status int) {
	t.Helper()
	got, err := c.do(ctx)
	require.NoError(t, err)
	require.Equal(t, status, got)
}

func wantOpen(t *testing.T, c *apiClient) {
	t.Helper()
	before, began := c.sends(), time.Now()
	_, err := c.do(t.Context())
	require.ErrorIs(t, err, middleware.ErrCircuitOpen)
	require.Equal(t, before, c.sends())
	require.Zero(t, time.Since(began))
}
