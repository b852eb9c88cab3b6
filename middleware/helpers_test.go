package middleware_test

import (
	"context"
	"errors"
	"io"
	"log"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/idempotency"
	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/layertest"
)

// dialect takes its judgement from headers: the request's Level, and the
// answer's Cause, Unapplied and Wait.
type dialect struct{}

func (dialect) Intent(req *http.Request) middleware.Intent {
	in := middleware.Intent{Name: "test", Write: req.Method != http.MethodGet, Echo: idempotency.Exists}
	if req.Header.Get("Level") == "once" {
		in.Level = idempotency.NonIdempotent
	}
	if req.Header.Get("Scope") == "foreign" {
		in.Scope = middleware.Foreign
	}
	return in
}

func (dialect) Judge(_ *middleware.Intent, resp *http.Response, err error) middleware.Outcome {
	if resp == nil {
		return middleware.JudgeError(err)
	}
	out := middleware.Outcome{Status: resp.StatusCode, Code: strconv.Itoa(resp.StatusCode)}
	if cause := resp.Header.Get("Cause"); cause != "" {
		n, _ := strconv.Atoi(cause)
		out.Cause = middleware.Cause(n)
	} else {
		switch {
		case resp.StatusCode < 300:
			out.Cause = middleware.Success
		case resp.StatusCode == 429:
			out.Cause, out.Unapplied = middleware.Throttled, true
		case resp.StatusCode == 409:
			out.Cause, out.Answer = middleware.Final, idempotency.Exists
		case resp.StatusCode >= 500:
			out.Cause = middleware.Unavailable
		default:
			out.Cause = middleware.Final
		}
	}
	if resp.Header.Get("Unapplied") != "" {
		out.Unapplied = true
	}
	out.Wait, _ = time.ParseDuration(resp.Header.Get("Wait"))
	return out
}

// again is a layer that sends again on one cause; nil budget: two retries.
type again struct {
	On      middleware.Cause // 0 = any transient one
	Budget  *middleware.Budget
	Wait    time.Duration
	Prepare func(context.Context) error
	Dialect middleware.Dialect
}

func (l again) Wrap(next http.RoundTripper) (http.RoundTripper, error) {
	budget := l.Budget
	if budget == nil {
		budget = &middleware.Budget{Name: "again", Retries: 2}
	}
	d := l.Dialect
	if d == nil {
		d = dialect{}
	}
	return middleware.Retry(next, d, func(_ context.Context, _ *middleware.Operation, out middleware.Outcome) middleware.Verdict {
		if l.On != 0 && out.Cause != l.On {
			return middleware.Verdict{}
		}
		return middleware.Verdict{Budget: budget, Wait: max(l.Wait, out.Wait), Prepare: l.Prepare}
	}, budget)
}

func stack(t testing.TB, base http.RoundTripper, layers ...middleware.Layer) http.RoundTripper {
	t.Helper()
	rt, err := middleware.Stack(base, layers...)
	require.NoError(t, err)
	return rt
}

func get(ctx context.Context) *http.Request { return request(ctx, http.MethodGet, nil) }

func request(ctx context.Context, method string, body io.Reader) *http.Request {
	req, err := http.NewRequestWithContext(ctx, method, "http://service.test/path?secret=query", body)
	if err != nil {
		panic(err)
	}
	return req
}

// streamed has a body without GetBody.
func streamed(ctx context.Context, body io.ReadCloser) *http.Request {
	req := request(ctx, http.MethodPost, nil)
	req.Body, req.ContentLength = body, -1
	return req
}

func status(codes ...int) []layertest.Step {
	var steps []layertest.Step
	for _, code := range codes {
		steps = append(steps, layertest.Step{Status: code, Body: "body of " + strconv.Itoa(code)})
	}
	return steps
}

// read returns the answer's body and closes it.
func read(t testing.TB, resp *http.Response) string {
	t.Helper()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return string(text)
}

// answered sends and requires an answer with this status and its body intact.
func answered(t testing.TB, rt http.RoundTripper, req *http.Request, want int) middleware.Report {
	t.Helper()
	resp, err := rt.RoundTrip(req)
	require.NoError(t, err)
	require.Equal(t, want, resp.StatusCode)
	require.Equal(t, "body of "+strconv.Itoa(want), read(t, resp))
	return middleware.FromResponse(resp).Report()
}

// failed sends and requires the one typed error.
func failed(t testing.TB, rt http.RoundTripper, req *http.Request) *middleware.Error {
	t.Helper()
	resp, err := rt.RoundTrip(req)
	require.Nil(t, resp)
	var typed *middleware.Error
	require.ErrorAs(t, err, &typed)
	return typed
}

// bubble runs f in virtual time.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

// events records what an Observer is told.
type events struct {
	mu   sync.Mutex
	list []middleware.Event
}

func (e *events) observer() middleware.Observer {
	return func(_ context.Context, event middleware.Event) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.list = append(e.list, event)
	}
}

func (e *events) kinds() string {
	var kinds []string
	for _, event := range e.list {
		kinds = append(kinds, event.Kind.String())
	}
	return strings.Join(kinds, ", ")
}

var errBoom = errors.New("boom")

// stamping is a dialect whose requests carry a header of its own.
type stamping struct {
	dialect
	mu      sync.Mutex
	intents int
	stamps  int
}

func (s *stamping) Intent(req *http.Request) middleware.Intent {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.intents++
	return s.dialect.Intent(req)
}

func (s *stamping) Stamp(_ *middleware.Intent, h http.Header) http.Header {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stamps++
	if h.Get("Stamp") != "" {
		return h
	}
	h = h.Clone()
	h.Set("Stamp", "yes")
	return h
}

func parse(text string) *url.URL {
	u, err := url.Parse(text)
	if err != nil {
		panic(err)
	}
	return u
}

// quiet is for servers whose complaints are expected.
var quiet = log.New(io.Discard, "", 0)
