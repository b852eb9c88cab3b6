package layertest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reroute-go/reroute/middleware"
)

// resend is a retrying layer out of nothing but the standard library that keeps
// every promise. Its bugs, one by one, are what the kit has to find.
type resend struct {
	bug string
}

const (
	resendSends = 3
	resendWait  = 2 * time.Second
)

func (l resend) Wrap(next http.RoundTripper) (http.RoundTripper, error) {
	return &resender{next: next, bug: l.bug, slots: make(chan struct{}, 8)}, nil
}

type resender struct {
	next  http.RoundTripper
	bug   string
	slots chan struct{} // where a bug has them
	mu    sync.Mutex
	last  []byte
}

func (r *resender) CloseIdleConnections() {
	if c, ok := r.next.(interface{ CloseIdleConnections() }); ok && r.bug != "CloseIdleConnections is hidden" {
		c.CloseIdleConnections()
	}
}

// left is how often an operation may still be sent again, by all layers of this
// kind together.
type left struct{ atomic.Int64 }

type leftKey struct{}

func (r *resender) RoundTrip(req *http.Request) (*http.Response, error) {
	if hasBody(req) { // one without may be sent by several goroutines, and the race detector would be the finder
		switch r.bug {
		case "a header is set":
			req.Header.Set("X-Bug", "yes")
		case "a header is set and taken back":
			req.Header.Set("X-Bug", "yes")
			defer req.Header.Del("X-Bug")
		case "the URL is changed":
			req.URL.Host = "bug.test"
		case "the body is replaced":
			req.Body = struct{ io.ReadCloser }{req.Body}
		}
	}
	switch r.bug {
	case "an early return leaves the body open":
		if req.Context().Err() != nil {
			return nil, req.Context().Err()
		}
	case "the body is closed twice":
		if req.Body != nil {
			defer req.Body.Close()
		}
	case "an ended context gives another error":
		if req.Context().Err() != nil {
			return middleware.Refuse(req, errors.New("no more time"))
		}
	case "an ended context is shaken off":
		if req.Context().Err() != nil {
			req = req.WithContext(context.WithoutCancel(req.Context()))
		}
	case "a wait before the first attempt does not heed the context":
		if req.Context().Err() == nil {
			time.Sleep(time.Second)
		}
	case "a permit is lost in a panic", "the queue does not heed the context":
		if r.bug == "the queue does not heed the context" {
			r.slots <- struct{}{}
			defer func() { <-r.slots }()
			break
		}
		select {
		case r.slots <- struct{}{}:
		case <-req.Context().Done():
			return middleware.Refuse(req, req.Context().Err())
		}
		resp, err := r.loop(req)
		<-r.slots
		return resp, err
	case "a goroutine is left":
		go time.Sleep(1000 * time.Hour)
	case "a goroutine is left for good":
		go func() { select {} }()
	}
	resp, err := r.loop(req)
	if r.bug == "an error is not looked at" && resp.StatusCode == 418 {
		return resp, err
	}
	switch {
	case r.bug == "an answer and an error" && resp != nil && resp.StatusCode >= 500:
		return resp, errors.New("failed")
	case r.bug == "a final answer becomes an error" && resp != nil && resp.StatusCode == 503:
		resp.Body.Close()
		return nil, errors.New("failed")
	case r.bug == "404 becomes an error" && resp != nil && resp.StatusCode == 404:
		resp.Body.Close()
		return nil, errors.New("not found")
	case r.bug == "a redirect is followed" && resp != nil && resp.StatusCode == 307:
		resp.StatusCode = 200
	case r.bug == "neither an answer nor an error" && err != nil:
		return nil, nil
	case r.bug == "no body" && resp != nil && resp.StatusCode == 200 && resp.ContentLength == 4:
		resp.Body.Close()
		resp.Body = nil
	}
	if resp != nil && err == nil {
		r.spoil(req, resp)
	}
	return resp, err
}

// watched knows whether the caller's own reader has failed.
type watched struct {
	io.ReadCloser
	failed *atomic.Bool
}

func (w watched) Read(p []byte) (int, error) {
	n, err := w.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		w.failed.Store(true)
	}
	return n, err
}

func (r *resender) loop(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	allowed, _ := ctx.Value(leftKey{}).(*left)
	if allowed == nil || r.bug == "attempts multiply" {
		allowed = new(left)
		allowed.Store(resendSends - 1)
		ctx = context.WithValue(ctx, leftKey{}, allowed)
	}
	if r.bug == "the attempt's context ends with RoundTrip" {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Minute)
		defer cancel()
	}
	var failed atomic.Bool
	attempt := req.WithContext(ctx)
	if r.bug == "the request's trailers are copied" {
		attempt = req.Clone(ctx)
	}
	if hasBody(req) {
		attempt.Body = watched{req.Body, &failed}
		if r.bug == "the body is read ahead" {
			text, err := io.ReadAll(req.Body)
			req.Body.Close()
			if err != nil {
				return nil, err
			}
			attempt.Body = io.NopCloser(bytes.NewReader(text))
		}
	}
	switch r.bug {
	case "GetBody is dropped":
		attempt.GetBody = nil
	case "ContentLength is dropped":
		attempt.ContentLength = -1
	}
	var whole *rewindable
	if r.bug == "all attempts share a reader" && hasBody(req) && req.GetBody != nil {
		whole = &rewindable{from: req.Body}
		attempt.Body = watched{whole, &failed}
	}
	for {
		if r.bug == "the context is dropped" && ctx.Err() == nil {
			attempt = attempt.WithContext(context.WithoutCancel(ctx))
		}
		resp, err := r.next.RoundTrip(attempt)
		temporary := transient(resp, err) || r.bug == "a body that fails is tried again" && failed.Load()
		if !temporary || failed.Load() && r.bug != "a body that fails is tried again" {
			if r.bug == "errors are flattened" && err != nil && ctx.Err() == nil && !failed.Load() {
				err = fmt.Errorf("failed: %v", err)
			}
			return resp, err
		}
		if hasBody(req) && req.GetBody == nil && (r.bug != "a body of length 0 is taken for none" || req.ContentLength != 0) {
			return resp, err
		}
		switch {
		case r.bug == "a wait after the last attempt" && allowed.Load() == 0:
			_ = sleep(ctx, resendWait)
			fallthrough
		case allowed.Load() <= 0 && r.bug != "sends are not bounded":
			return resp, err
		}
		allowed.Add(-1)
		if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= resendWait && r.bug != "a wait into the deadline" {
			return resp, err
		}
		again := req.WithContext(ctx)
		if hasBody(req) && req.GetBody != nil {
			body, bodyErr := req.GetBody()
			if bodyErr != nil {
				return resp, err
			}
			again.Body = watched{body, &failed}
			switch r.bug {
			case "the second body is short":
				again.Body = struct {
					io.Reader
					io.Closer
				}{io.LimitReader(body, 16), body}
			case "all attempts share a reader":
				body.Close()
				whole.rewind()
				again.Body = watched{whole, &failed}
			}
		}
		if resp != nil {
			r.discard(resp)
		}
		if !r.wait(ctx, resp, int(allowed.Load())) {
			if again.Body != nil {
				again.Body.Close()
			}
			return nil, ctx.Err()
		}
		attempt = again
		if r.bug == "GetBody is dropped on the second attempt" {
			attempt.GetBody = nil
		}
	}
}

func hasBody(req *http.Request) bool { return req.Body != nil && req.Body != http.NoBody }

func transient(resp *http.Response, err error) bool {
	if err != nil {
		var timeout interface{ Timeout() bool }
		return errors.As(err, &timeout) || err == io.EOF
	}
	return resp.StatusCode == 429 || resp.StatusCode == 502 || resp.StatusCode == 503
}

func (r *resender) wait(ctx context.Context, resp *http.Response, left int) bool {
	switch {
	case r.bug == "a wait that does not heed the context",
		r.bug == "the second wait does not heed the context" && left == 0:
		time.Sleep(resendWait)
		return ctx.Err() == nil
	case r.bug == "a date is waited for in any case" && resp != nil:
		if at, err := http.ParseTime(resp.Header.Get("Retry-After")); err == nil {
			time.Sleep(time.Until(at))
			return ctx.Err() == nil
		}
	}
	return sleep(ctx, resendWait)
}

func sleep(ctx context.Context, wait time.Duration) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

func (r *resender) discard(resp *http.Response) {
	switch r.bug {
	case "discarded answers are only closed":
		resp.Body.Close()
		return
	case "a drain without bounds":
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		return
	case "a drain without a bound in time":
		_, _ = io.CopyN(io.Discard, resp.Body, 64<<10)
		resp.Body.Close()
		return
	}
	if r.bug == "a drain in the background" {
		go func() {
			time.AfterFunc(resendWait+time.Second/2, func() { resp.Body.Close() })
			_, _ = io.CopyN(io.Discard, resp.Body, 64<<10)
			resp.Body.Close()
		}()
		time.Sleep(10 * time.Microsecond) // so that a short answer is gone
		return
	}
	timer := time.AfterFunc(time.Second, func() { resp.Body.Close() })
	_, _ = io.CopyN(io.Discard, resp.Body, 64<<10)
	timer.Stop()
	if r.bug != "discarded answers are left open" {
		resp.Body.Close()
	}
}
