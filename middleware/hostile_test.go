package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/idempotency"
	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/layertest"
)

func TestAPanicOfAnObserverLeavesNoBodyOpenWithoutADialect(t *testing.T) {
	observer := middleware.Observer(func(_ context.Context, e middleware.Event) {
		if e.Kind == middleware.AttemptEnded {
			panic(errBoom)
		}
	})
	rt := stack(t, layertest.NewScript(t, status(200)...), observer)
	require.PanicsWithValue(t, errBoom, func() { _, _ = rt.RoundTrip(get(t.Context())) })
}

// panicking is a dialect that cannot bear an answer.
type panicking struct{ dialect }

func (panicking) Judge(*middleware.Intent, *http.Response, error) middleware.Outcome { panic(errBoom) }

func TestAPanicOfTheDialectLeavesNoBodyOpen(t *testing.T) {
	rt := stack(t, layertest.NewScript(t, status(200)...), again{Dialect: panicking{}})
	require.PanicsWithValue(t, errBoom, func() { _, _ = rt.RoundTrip(get(t.Context())) })
}

func TestAPanicOfALayerLeavesNoBodyOpen(t *testing.T) {
	rt := stack(t, layertest.NewScript(t, status(200)...), middleware.LayerFunc(func(next http.RoundTripper) http.RoundTripper {
		return middleware.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
			_, _ = next.RoundTrip(req)
			panic(errBoom)
		})
	}))
	require.PanicsWithValue(t, errBoom, func() { _, _ = rt.RoundTrip(get(t.Context())) })
}

// curious is a dialect that asks the operation of the answer it judges.
type curious struct{ dialect }

func (d curious) Judge(in *middleware.Intent, resp *http.Response, err error) middleware.Outcome {
	if op := middleware.FromResponse(resp); op != nil {
		op.Sends()
	}
	return d.dialect.Judge(in, resp, err)
}

func TestADialectMayAskTheOperation(t *testing.T) {
	base := middleware.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 503, Header: http.Header{}, Body: http.NoBody, Request: req}, nil
	})
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = stack(t, base, again{Dialect: curious{}}).RoundTrip(get(context.Background()))
	}()
	select {
	case <-done:
	case <-time.After(5 * time.Second):
		t.Fatal("deadlock")
	}
}

type closing struct {
	io.Reader
	closed *atomic.Int32
}

func (c closing) Close() error { c.closed.Add(1); return nil }

func TestASourceOpenedForAReaderThatWasClosedMeanwhileIsClosed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var closed, opened atomic.Int32
		blocked := make(chan struct{})
		attempt := 0
		base := middleware.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
			attempt++
			body := req.Body
			if attempt == 1 {
				go func() { _, _ = body.Read(make([]byte, 1)) }() // stays busy until released
				time.Sleep(time.Millisecond)
				return &http.Response{StatusCode: 503, Header: http.Header{}, Body: http.NoBody, Request: req}, nil
			}
			go func() { _, _ = body.Read(make([]byte, 1)) }()
			time.Sleep(time.Millisecond)
			close(blocked) // ends the Read of the first source; GetBody then takes its time
			time.Sleep(time.Millisecond)
			_ = body.Close()
			return &http.Response{StatusCode: 200, Header: http.Header{}, Body: http.NoBody, Request: req}, nil
		})
		req := request(t.Context(), http.MethodPut, nil)
		req.ContentLength = 3
		req.Body = closing{readerFunc(func([]byte) (int, error) { <-blocked; return 0, io.EOF }), new(atomic.Int32)}
		req.GetBody = func() (io.ReadCloser, error) {
			opened.Add(1)
			time.Sleep(time.Second)
			return closing{strings.NewReader("abc"), &closed}, nil
		}
		resp, err := stack(t, base, again{}).RoundTrip(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		time.Sleep(time.Hour)
		require.EqualValues(t, 1, opened.Load())
		require.EqualValues(t, 1, closed.Load())
	})
}

func TestAGetBodyThatGivesNothingIsAFailure(t *testing.T) {
	req := request(t.Context(), http.MethodPut, strings.NewReader("abc"))
	req.GetBody = func() (io.ReadCloser, error) { return nil, nil }
	report := answered(t, stack(t, layertest.NewScript(t, status(503)...), again{}), req, 503)
	require.Equal(t, middleware.NotReplayable, report.Stop)
}

func TestNoSpellingOfAQueryIsShown(t *testing.T) {
	for _, query := range []string{`sig="secret"`, `sig=\secret`, "sig=ä-secret", "sig=secret"} {
		for _, err := range []error{
			&url.Error{Op: "Get", URL: "https://h/p?" + query, Err: errBoom},
			errors.Join(&url.Error{Op: "Get", URL: "https://h/p?a=1", Err: errBoom}, &url.Error{Op: "Get", URL: "https://h/p?" + query, Err: errBoom}),
			&url.Error{Op: "Get", URL: "https://h/p", Err: &url.Error{Op: "Get", URL: "https://h/q?" + query, Err: errBoom}},
			&url.Error{Op: "Get", URL: "https://h/p?" + query, Err: uncomparable{errBoom}},
			fmt.Errorf("a: %w", &url.Error{Op: "Get", URL: "https://h/p?" + query, Err: errBoom}),
		} {
			got := failed(t, stack(t, layertest.NewScript(t, layertest.Step{Err: err})), get(t.Context()))
			require.NotContains(t, got.Error(), "secret")
			require.Contains(t, got.Error(), "boom")
		}
	}
}

func TestPrintingTheContextShowsNoCredential(t *testing.T) {
	req := get(t.Context())
	req.Header.Set("Authorization", "secret")
	base := middleware.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
			require.NotContains(t, fmt.Sprintf(verb, req.Context()), "secret", verb)
		}
		return nil, errBoom
	})
	failed(t, stack(t, base, again{}), req)
}

func TestACutAttemptThatHadAConnectionMayHaveBeenSent(t *testing.T) {
	// HTTP/2 tells of the headers after they are on the wire: an attempt that is cut off in between has been sent.
	bubble(t, func(t *testing.T) {
		sends := 0
		base := middleware.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
			sends++
			trace := httptrace.ContextClientTrace(req.Context())
			trace.GetConn("h:443")
			if trace.GotConn != nil {
				trace.GotConn(httptrace.GotConnInfo{})
			}
			<-req.Context().Done()
			return nil, req.Context().Err()
		})
		cut := middleware.LayerFunc(func(next http.RoundTripper) http.RoundTripper {
			return middleware.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
				ctx, cancel := context.WithTimeoutCause(req.Context(), time.Second, middleware.ErrAttemptTimeout)
				defer cancel()
				return next.RoundTrip(req.WithContext(ctx))
			})
		})
		traced := middleware.LayerFunc(func(next http.RoundTripper) http.RoundTripper {
			return middleware.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
				op, req := middleware.Begin(req)
				return next.RoundTrip(op.Trace(req))
			})
		})
		ctx := middleware.WithIdempotency(t.Context(), idempotency.NonIdempotent)
		err := failed(t, stack(t, base, again{}, traced, cut), get(ctx))
		require.Equal(t, 1, sends)
		require.Equal(t, middleware.NotRepeatable, err.Stop)
	})
}

// uncomparable is an error that == panics on.
type uncomparable []error

func (e uncomparable) Error() string { return errors.Join(e...).Error() }

func TestADialThatFailsAfterNetHTTPHasSentSaysNothingOfThatSend(t *testing.T) {
	// A request with an Idempotency-Key is sent again by net/http itself when its connection dies, and then the dial may
	// fail: the storm has found a write that was carried out and not told to be in doubt.
	for _, sent := range []bool{false, true} {
		base := middleware.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
			trace := httptrace.ContextClientTrace(req.Context())
			trace.GetConn("h:443")
			if sent {
				trace.WroteHeaders()
			}
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: errBoom}
		})
		traced := middleware.LayerFunc(func(next http.RoundTripper) http.RoundTripper {
			return middleware.Operate(next, dialect{}, func(op *middleware.Operation, req *http.Request, next http.RoundTripper) (*http.Response, error) {
				return next.RoundTrip(op.Trace(req))
			})
		})
		err := failed(t, stack(t, base, traced), request(t.Context(), http.MethodPost, nil))
		require.Equal(t, middleware.Unreachable, err.Outcome.Cause)
		require.Equal(t, sent, err.Report.InDoubt)
		require.Equal(t, !sent, err.Report.Attempts[0].NotSent)
	}
}
