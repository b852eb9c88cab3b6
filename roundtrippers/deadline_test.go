package roundtrippers_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/layertest"
	"github.com/reroute-go/reroute/roundtrippers"
)

func TestADeadlineEndsTheOperationAndSaysSo(t *testing.T) { // R033, X17
	virtually(t, func(t *testing.T) {
		start := time.Now()
		script := layertest.NewScript(t, says(middleware.Unavailable), layertest.Step{Hang: true})
		rt := layered(t, script, roundtrippers.Deadline{After: 3 * time.Second}, roundtrippers.Failover{Dialect: words{}})
		got := tell(t, rt, ask(t.Context(), "GET"))
		require.Equal(t, 3*time.Second, time.Since(start))
		require.Equal(t, middleware.Deadline, got.Stop)
		require.ErrorIs(t, got.err, context.DeadlineExceeded)
		require.NotErrorIs(t, got.err, context.Canceled)
		require.Equal(t, middleware.DeadlineExceeded, got.err.Outcome.Cause)
		require.Equal(t, 500, got.err.LastStatus)
		require.True(t, got.err.Timeout())
		require.Len(t, script.Sends(), 2)
	})
}

func TestAKeptDeadlineIsNoCancellation(t *testing.T) {
	boom := errors.New("boom")
	after := roundtrippers.Deadline{After: time.Hour}
	got := tell(t, layered(t, layertest.NewScript(t, layertest.Step{Err: boom}), after, roundtrippers.Throttle{Dialect: words{}}), ask(t.Context(), "GET"))
	require.Equal(t, middleware.NotRetried, got.Stop)
	require.NotErrorIs(t, got.err, context.Canceled)
	require.Equal(t, middleware.Broken, got.err.Outcome.Cause)

	// Stacked in a loop it limits each round, and an answer that is given up ends
	// nothing.
	script := layertest.NewScript(t, says(middleware.Unavailable), layertest.Step{Err: boom}, fine)
	got = tell(t, layered(t, script, roundtrippers.Failover{Dialect: words{}}, after), ask(t.Context(), "GET"))
	require.Equal(t, "fine", got.body)
	require.Equal(t, 3, got.Sends)
}

func TestADeadlineLimitsTheBodyAnAttemptTimeoutDoesNot(t *testing.T) { // X12, B15
	virtually(t, func(t *testing.T) {
		for _, c := range []struct {
			layer middleware.Layer
			want  error
		}{
			{roundtrippers.Deadline{After: time.Second}, context.DeadlineExceeded},
			{roundtrippers.Deadline{After: time.Minute}, nil},
			{roundtrippers.AttemptTimeout{After: time.Second}, nil},
		} {
			var ctx context.Context
			body := &slowBody{left: 5, each: 500 * time.Millisecond}
			base := middleware.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
				ctx = req.Context()
				body.ctx = ctx
				time.Sleep(100 * time.Millisecond)
				return &http.Response{StatusCode: 200, Body: body}, nil
			})
			resp, err := layered(t, base, c.layer).RoundTrip(ask(t.Context(), "GET"))
			require.NoError(t, err)
			got, err := io.ReadAll(resp.Body)
			require.ErrorIs(t, err, c.want)
			if c.want == nil {
				require.Len(t, got, 5)
			}
			require.Error(t, ctx.Err(), "released at the end of the body")
			require.NoError(t, resp.Body.Close())
			require.True(t, body.closed)

			// A body that is closed unread releases it too.
			body.left = 5
			resp, err = layered(t, base, c.layer).RoundTrip(ask(t.Context(), "GET"))
			require.NoError(t, err)
			require.NoError(t, ctx.Err())
			require.NoError(t, resp.Body.Close())
			require.Error(t, ctx.Err())
		}
	})
}

type slowBody struct {
	ctx    context.Context
	left   int
	each   time.Duration
	closed bool
}

func (b *slowBody) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, io.EOF
	}
	select {
	case <-b.ctx.Done():
		return 0, b.ctx.Err()
	case <-time.After(b.each):
	}
	b.left--
	p[0] = 'x'
	return 1, nil
}

func (b *slowBody) Close() error { b.closed = true; return nil }

func TestAnAttemptTimeoutEndsOneAttempt(t *testing.T) { // R054, X18
	virtually(t, func(t *testing.T) {
		start := time.Now()
		script := layertest.NewScript(t, layertest.Step{Hang: true}, fine)
		var ends []middleware.Event
		observer := middleware.Observer(func(_ context.Context, e middleware.Event) {
			if e.Kind == middleware.AttemptEnded {
				ends = append(ends, e)
			}
		})
		rt := layered(t, script, observer, roundtrippers.Failover{Dialect: words{}}, roundtrippers.AttemptTimeout{After: 2 * time.Second})
		got := tell(t, rt, ask(t.Context(), "POST"))
		require.Equal(t, "fine", got.body)
		require.Equal(t, 2*time.Second, time.Since(start))
		require.Equal(t, middleware.Timeout, got.Attempts[0].Cause)
		require.True(t, got.InDoubt)
		require.Equal(t, middleware.Timeout, ends[0].Cause)
		require.ErrorIs(t, ends[0].Err, middleware.ErrAttemptTimeout)
		require.ErrorIs(t, ends[0].Err, context.Canceled)

		got = tell(t, layered(t, layertest.NewScript(t, layertest.Step{Hang: true}), roundtrippers.AttemptTimeout{After: time.Second}), ask(t.Context(), "GET"))
		require.True(t, got.err.Timeout())
		require.NotErrorIs(t, got.err, context.DeadlineExceeded, "the caller has time left")
		require.NotErrorIs(t, got.err, context.Canceled, "and has not left")
		var over *roundtrippers.AttemptTimeoutError
		require.ErrorAs(t, got.err, &over)
		require.Equal(t, time.Second, over.After)
		require.EqualError(t, over, "no answer within 1s")
	})
}

func TestTheCallersEndIsNotAnAttemptsTimeout(t *testing.T) {
	virtually(t, func(t *testing.T) {
		for _, patience := range []time.Duration{time.Second, 2 * time.Second} { // before, and at the very moment of, the attempt's end
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			script := layertest.NewScript(t, layertest.Step{Hang: true})
			got := tell(t, layered(t, script, roundtrippers.Failover{Dialect: words{}}, roundtrippers.AttemptTimeout{After: 2 * time.Second}), ask(ctx, "GET"))
			require.ErrorIs(t, got.err, context.DeadlineExceeded)
			require.Equal(t, middleware.Deadline, got.Stop)
			require.Len(t, script.Sends(), 1)
		}
	})
}

func TestAnAnswerAtTheVeryMomentOfTheTimeoutIsReadWholeOrNotGiven(t *testing.T) {
	virtually(t, func(t *testing.T) {
		for range 50 {
			base := middleware.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
				time.Sleep(time.Second)
				return &http.Response{StatusCode: 200, Body: &slowBody{ctx: req.Context(), left: 3}}, nil
			})
			resp, err := layered(t, base, roundtrippers.AttemptTimeout{After: time.Second}).RoundTrip(ask(t.Context(), "GET"))
			if err != nil {
				require.ErrorIs(t, err, middleware.ErrAttemptTimeout)
				continue
			}
			got, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.Len(t, got, 3)
			require.NoError(t, resp.Body.Close())
		}
	})
}

func TestAnAttemptThatWaitedTooLongBelowUsIsTimedOutAndMoves(t *testing.T) {
	// The limit is stacked over a waiting layer: no send is under way when it ends.
	virtually(t, func(t *testing.T) {
		script := layertest.NewScript(t, waiting(says(middleware.Throttled), 10*time.Second), fine)
		rt := layered(t, script, roundtrippers.Failover{Dialect: words{}}, roundtrippers.AttemptTimeout{After: 2 * time.Second}, roundtrippers.Throttle{Dialect: words{}})
		start := time.Now()
		got := tell(t, rt, ask(t.Context(), "GET"))
		require.Equal(t, "fine", got.body)
		require.Equal(t, 2*time.Second, time.Since(start))

		got = tell(t, layered(t, layertest.NewScript(t, waiting(says(middleware.Throttled), 10*time.Second)),
			roundtrippers.AttemptTimeout{After: 2 * time.Second}, roundtrippers.Throttle{Dialect: words{}}), ask(t.Context(), "GET"))
		require.NotErrorIs(t, got.err, context.Canceled, "the caller has not left")
		require.Equal(t, middleware.Timeout, got.err.Outcome.Cause)
		require.Equal(t, 500, got.err.LastStatus)
	})
}

func TestRealBodiesOutliveTheAttempt(t *testing.T) { // X12, B15
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for range 64 {
			_, _ = w.Write(bytes.Repeat([]byte("x"), 8<<10))
			w.(http.Flusher).Flush()
		}
	}))
	defer server.Close()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	rt := layered(t, transport, roundtrippers.Deadline{After: time.Hour}, roundtrippers.Failover{Dialect: words{}}, roundtrippers.AttemptTimeout{After: time.Hour})
	req := ask(t.Context(), "GET")
	req.URL.Host, req.Host = strings.TrimPrefix(server.URL, "http://"), ""
	got := tell(t, rt, req)
	require.Len(t, got.body, 512<<10)
}

func TestRealUpgradesStayWritableThroughTheTimeLimits(t *testing.T) { // X13
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, buffer, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = buffer.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		_ = buffer.Flush()
		line, _ := buffer.ReadString('\n')
		_, _ = buffer.WriteString("echo " + line)
		_ = buffer.Flush()
	}))
	defer server.Close()
	rt, err := roundtrippers.Builder{Dialect: words{}, Base: &http.Transport{}, OperationTimeout: time.Hour, AttemptTimeout: time.Hour}.Build()
	require.NoError(t, err)
	req := ask(t.Context(), "GET", "Connection", "Upgrade", "Upgrade", "echo")
	req.URL.Host = strings.TrimPrefix(server.URL, "http://")
	resp, err := rt.RoundTrip(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	_, err = resp.Body.(io.Writer).Write([]byte("hello\n"))
	require.NoError(t, err)
	line, err := bufio.NewReader(resp.Body).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "echo hello\n", line)
}
