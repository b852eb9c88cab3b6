package layertest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/middleware/layertest"
)

func get(ctx context.Context) *http.Request {
	req, err := http.NewRequestWithContext(ctx, "GET", "http://a.test/x?q=1", nil)
	if err != nil {
		panic(err)
	}
	return req
}

func TestAScriptPlaysItsStepsAndRepeatsTheLast(t *testing.T) {
	boom := errors.New("boom")
	s := layertest.NewScript(t, layertest.Step{Err: boom}, layertest.Step{Status: 503, Header: map[string]string{"name": "value"}, Body: "busy"}, layertest.Step{})
	_, err := s.RoundTrip(get(t.Context()))
	require.ErrorIs(t, err, boom)
	resp, err := s.RoundTrip(get(t.Context()))
	require.NoError(t, err)
	require.Equal(t, 503, resp.StatusCode)
	require.Equal(t, "value", resp.Header.Get("Name"))
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, "busy", string(body))
	require.NoError(t, resp.Body.Close())
	_, err = resp.Body.Read(make([]byte, 1))
	require.ErrorIs(t, err, http.ErrBodyReadAfterClose)
	for range 2 {
		resp, err = s.RoundTrip(get(t.Context()))
		require.NoError(t, err)
		require.Equal(t, 200, resp.StatusCode)
		require.NoError(t, resp.Body.Close())
	}
	require.Equal(t, []string{"a.test", "a.test", "a.test", "a.test"}, s.Hosts())
	require.Equal(t, "q=1", s.Sends()[0].URL.RawQuery)
}

func TestAScriptHeedsTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := layertest.NewScript(t, layertest.Step{Hang: true}, layertest.Step{Delay: time.Minute}, layertest.Step{Delay: time.Second})
		for range 2 {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			_, err := s.RoundTrip(get(ctx))
			require.ErrorIs(t, err, context.DeadlineExceeded)
			cancel()
		}
		resp, err := s.RoundTrip(get(t.Context()))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = layertest.NewScript(t).RoundTrip(get(ctx))
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, []time.Duration{0, 2 * time.Second, 4 * time.Second}, s.Times())
	})
}

func TestAServerPicksByTheRequest(t *testing.T) {
	s := layertest.NewServer(t, func(req *http.Request) layertest.Step {
		return layertest.Step{Answer: func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 299, Body: io.NopCloser(strings.NewReader(req.Host))}, nil
		}}
	})
	resp, err := s.RoundTrip(get(t.Context()))
	require.NoError(t, err)
	require.Equal(t, 299, resp.StatusCode)
	s.CloseIdleConnections()
	require.Equal(t, 1, s.IdleClosed())
}

func TestABodyThatFailsFailsTheSendAndIsRecordedAsFarAsItCame(t *testing.T) {
	s := layertest.NewScript(t)
	body := layertest.NewBody("text")
	req := get(t.Context())
	req.Body = body
	require.NoError(t, body.Close())
	_, err := s.RoundTrip(req)
	require.ErrorContains(t, err, "read after Close")
	require.Equal(t, 2, body.Closes())
	require.Len(t, s.Sends(), 1)
}

// An answer that is left open fails the test, which this one looks at from
// outside.
func TestAScriptNoticesABodyThatWasLeftOpen(t *testing.T) {
	outside := &watchedTest{TB: t}
	s := layertest.NewScript(outside, layertest.Step{})
	resp, err := s.RoundTrip(get(t.Context()))
	require.NoError(t, err)
	outside.end()
	require.Equal(t, []string{"1 response bodies were left open"}, outside.errors)
	require.NoError(t, resp.Body.Close())
	outside.end()
	require.Len(t, outside.errors, 1)
}

type watchedTest struct {
	testing.TB
	cleanups []func()
	errors   []string
}

func (w *watchedTest) Cleanup(f func()) { w.cleanups = append(w.cleanups, f) }

func (w *watchedTest) Errorf(format string, args ...any) {
	w.errors = append(w.errors, fmt.Sprintf(format, args...))
}

func (w *watchedTest) end() {
	for _, f := range w.cleanups {
		f()
	}
}
