package layertest_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/reroute-go/reroute/middleware"
)

// mistakes are layers that do one small thing each, as one would write them, and
// one of those wrong. Those of a layer that sends again are in resend.
var mistakes = map[string]func(next http.RoundTripper) middleware.RoundTripperFunc{
	"a header is taken away": func(next http.RoundTripper) middleware.RoundTripperFunc {
		return func(req *http.Request) (*http.Response, error) {
			if r2 := *req; hasBody(req) { // see resender.RoundTrip
				r2.Header.Del("Cookie") // the caller's own map
				req = &r2
			}
			return next.RoundTrip(req)
		}
	},
	"the upload ends with RoundTrip": func(next http.RoundTripper) middleware.RoundTripperFunc {
		return func(req *http.Request) (*http.Response, error) {
			if !hasBody(req) {
				return next.RoundTrip(req)
			}
			r2 := *req
			r2.Body = &closedOnce{ReadCloser: req.Body}
			defer r2.Body.Close()
			return next.RoundTrip(&r2)
		}
	},
	"a 418 comes with an error": func(next http.RoundTripper) middleware.RoundTripperFunc {
		return func(req *http.Request) (*http.Response, error) {
			resp, err := next.RoundTrip(req)
			if err == nil && resp.StatusCode == http.StatusTeapot {
				err = errors.New("a teapot")
			}
			return resp, err
		}
	},
	"timeouts are flattened": func(next http.RoundTripper) middleware.RoundTripperFunc {
		return func(req *http.Request) (*http.Response, error) {
			resp, err := next.RoundTrip(req)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				err = fmt.Errorf("too slow: %v", err)
			}
			return resp, err
		}
	},
	"a reset is tried again with the same body": func(next http.RoundTripper) middleware.RoundTripperFunc {
		return func(req *http.Request) (*http.Response, error) {
			resp, err := next.RoundTrip(req)
			if errors.Is(err, syscall.ECONNRESET) && hasBody(req) {
				r2 := *req
				r2.Body = http.NoBody // as good as read to its end
				return next.RoundTrip(&r2)
			}
			return resp, err
		}
	},
	"sends after a 425 are not bounded": func(next http.RoundTripper) middleware.RoundTripperFunc {
		return func(req *http.Request) (*http.Response, error) {
			for {
				resp, err := next.RoundTrip(req)
				if err != nil || resp.StatusCode != http.StatusTooEarly || hasBody(req) && req.GetBody == nil {
					return resp, err
				}
				resp.Body.Close()
				again := *req
				if hasBody(req) {
					again.Body, _ = req.GetBody()
				}
				req = &again
			}
		}
	},
	"answers are read ahead": func(next http.RoundTripper) middleware.RoundTripperFunc {
		return func(req *http.Request) (*http.Response, error) {
			resp, err := next.RoundTrip(req)
			if err == nil && resp.StatusCode == http.StatusOK {
				var text bytes.Buffer
				_, err := text.ReadFrom(resp.Body)
				resp.Body = &closedWith{Reader: io.MultiReader(&text, failing{err}), Closer: resp.Body}
			}
			return resp, err
		}
	},
	"a cut answer becomes an error": func(next http.RoundTripper) middleware.RoundTripperFunc {
		return func(req *http.Request) (*http.Response, error) {
			resp, err := next.RoundTrip(req)
			if err == nil && resp.StatusCode == http.StatusOK && resp.ContentLength > 0 { // a stream is not read ahead
				text, err := io.ReadAll(resp.Body)
				if err != nil {
					resp.Body.Close()
					return nil, err
				}
				resp.Body = &closedWith{Reader: bytes.NewReader(text), Closer: resp.Body}
			}
			return resp, err
		}
	},
	"big answers are cut": func(next http.RoundTripper) middleware.RoundTripperFunc {
		return func(req *http.Request) (*http.Response, error) {
			resp, err := next.RoundTrip(req)
			if err == nil && resp.StatusCode == http.StatusOK {
				resp.Body = &closedWith{Reader: io.LimitReader(resp.Body, 1<<20), Closer: resp.Body}
			}
			return resp, err
		}
	},
	"a second Close hangs": func(next http.RoundTripper) middleware.RoundTripperFunc {
		slots := make(chan struct{}, 1000)
		return func(req *http.Request) (*http.Response, error) {
			resp, err := next.RoundTrip(req)
			if err == nil && resp.StatusCode == http.StatusOK {
				slots <- struct{}{}
				resp.Body = &onClose{ReadCloser: resp.Body, do: func() { <-slots }}
			}
			return resp, err
		}
	},
	"trailers without an announcement are lost": func(next http.RoundTripper) middleware.RoundTripperFunc {
		return func(req *http.Request) (*http.Response, error) {
			resp, err := next.RoundTrip(req)
			if err != nil {
				return nil, err
			}
			r2 := *resp
			return &r2, nil
		}
	},
	"the attempt's context is not released": func(next http.RoundTripper) middleware.RoundTripperFunc {
		return func(req *http.Request) (*http.Response, error) {
			ctx, cancel := context.WithCancel(req.Context())
			context.AfterFunc(req.Context(), cancel)
			return next.RoundTrip(req.WithContext(ctx))
		}
	},
	"the context's values are lost": func(next http.RoundTripper) middleware.RoundTripperFunc {
		return func(req *http.Request) (*http.Response, error) {
			if req.Context().Err() != nil {
				return next.RoundTrip(req)
			}
			return next.RoundTrip(req.WithContext(nameless{req.Context()}))
		}
	},
	"a cancellation after RoundTrip is not passed on": func(next http.RoundTripper) middleware.RoundTripperFunc {
		return func(req *http.Request) (*http.Response, error) {
			ctx, cancel := context.WithCancelCause(context.WithoutCancel(req.Context()))
			stop := context.AfterFunc(req.Context(), func() { cancel(req.Context().Err()) })
			defer stop()
			if err := req.Context().Err(); err != nil {
				cancel(err)
			}
			resp, err := next.RoundTrip(req.WithContext(ctx))
			if err != nil {
				cancel(nil)
				return nil, cmp.Or(req.Context().Err(), err)
			}
			body := &onClose{ReadCloser: resp.Body, do: func() { cancel(nil) }}
			if w, ok := resp.Body.(io.Writer); ok { // of a 101
				resp.Body = struct {
					*onClose
					io.Writer
				}{body, w}
				return resp, nil
			}
			resp.Body = body
			return resp, nil
		}
	},
	"an answer that comes too late is left open": func(next http.RoundTripper) middleware.RoundTripperFunc {
		return func(req *http.Request) (*http.Response, error) {
			type result struct {
				resp     *http.Response
				err      error
				panicked any
			}
			results := make(chan result, 1)
			go func() {
				var r result
				defer func() {
					r.panicked = recover()
					results <- r
				}()
				r.resp, r.err = next.RoundTrip(req)
			}()
			if req.Context().Err() != nil { // it returns at once
				r := <-results
				return r.resp, r.err
			}
			select {
			case r := <-results:
				if r.panicked != nil {
					panic(r.panicked)
				}
				return r.resp, r.err
			case <-req.Context().Done():
				return nil, req.Context().Err()
			}
		}
	},
	"a permit is lost in an error": losesPermits(8),
	"a permit is lost in a cancellation": func(next http.RoundTripper) middleware.RoundTripperFunc {
		slots := make(chan struct{}, 8)
		return func(req *http.Request) (*http.Response, error) {
			if err := acquire(req, slots); err != nil {
				return middleware.Refuse(req, err)
			}
			defer func() {
				if req.Context().Err() == nil {
					<-slots
				}
			}()
			return next.RoundTrip(req)
		}
	},
	"a permit is held until the answer's end": func(next http.RoundTripper) middleware.RoundTripperFunc {
		slots := make(chan struct{}, 8)
		return func(req *http.Request) (*http.Response, error) {
			if err := acquire(req, slots); err != nil {
				return middleware.Refuse(req, err)
			}
			held := false
			defer func() {
				if !held {
					<-slots
				}
			}()
			resp, err := next.RoundTrip(req)
			if err == nil && resp.StatusCode == http.StatusOK && resp.ContentLength == int64(len("fine")) {
				held = true
				resp.Body = &atEnd{ReadCloser: resp.Body, do: func() { <-slots }}
			}
			return resp, err
		}
	},
	"who is cancelled in the queue leaves the body open": func(next http.RoundTripper) middleware.RoundTripperFunc {
		slots := make(chan struct{}, 8)
		return func(req *http.Request) (*http.Response, error) {
			if err := req.Context().Err(); err != nil {
				return middleware.Refuse(req, err)
			}
			if err := acquire(req, slots); err != nil {
				return nil, err
			}
			defer func() { <-slots }()
			return next.RoundTrip(req)
		}
	},
	"a breaker that is open leaves the body open": func(next http.RoundTripper) middleware.RoundTripperFunc {
		var mu sync.Mutex
		var failures int
		var last time.Time
		return func(req *http.Request) (*http.Response, error) {
			mu.Lock()
			open := failures >= 5 && time.Since(last) < time.Minute
			mu.Unlock()
			if open {
				return nil, errors.New("the breaker is open")
			}
			resp, err := next.RoundTrip(req)
			mu.Lock()
			defer mu.Unlock()
			if last = time.Now(); err != nil {
				failures++
			} else {
				failures = 0
			}
			return resp, err
		}
	},
}

// losesPermits keeps a permit for good where the base fails.
func losesPermits(n int) func(http.RoundTripper) middleware.RoundTripperFunc {
	return func(next http.RoundTripper) middleware.RoundTripperFunc {
		slots := make(chan struct{}, n)
		return func(req *http.Request) (*http.Response, error) {
			if err := acquire(req, slots); err != nil {
				return middleware.Refuse(req, err)
			}
			lost := false
			defer func() {
				if !lost {
					<-slots
				}
			}()
			resp, err := next.RoundTrip(req)
			lost = err != nil && req.Context().Err() == nil
			return resp, err
		}
	}
}

// acquire waits for a permit.
func acquire(req *http.Request, slots chan struct{}) error {
	select {
	case slots <- struct{}{}:
		return nil
	case <-req.Context().Done():
		return req.Context().Err()
	}
}

// nameless is a context without values.
type nameless struct{ context.Context }

func (nameless) Value(any) any { return nil }

// failing is a reader that fails.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) {
	if f.err == nil {
		return 0, io.EOF
	}
	return 0, f.err
}

type closedWith struct {
	io.Reader
	io.Closer
}

// closedOnce passes on one Close.
type closedOnce struct {
	io.ReadCloser
	once sync.Once
}

func (c *closedOnce) Close() (err error) {
	c.once.Do(func() { err = c.ReadCloser.Close() })
	return err
}

// onClose does something at each Close.
type onClose struct {
	io.ReadCloser
	do func()
}

func (c *onClose) Close() error {
	defer c.do()
	return c.ReadCloser.Close()
}

// atEnd does something at the end of what it reads.
type atEnd struct {
	io.ReadCloser
	once sync.Once
	do   func()
}

func (a *atEnd) Read(p []byte) (int, error) {
	n, err := a.ReadCloser.Read(p)
	if err != nil {
		a.once.Do(a.do)
	}
	return n, err
}
