package roundtrippers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/reroute-go/reroute/middleware"
)

// Deadline limits the whole operation: all attempts, all waits and the reading
// of the answer's body, like http.Client.Timeout. Stack it outermost. When it
// passes, the error is a *middleware.Error that matches
// context.DeadlineExceeded, says so in the dialect's words (Cosmos DB:
// 408/20008) and carries the last real answer.
type Deadline struct {
	After time.Duration // required
}

// Wrap reports an After that is not positive.
func (l Deadline) Wrap(next http.RoundTripper) (http.RoundTripper, error) {
	if l.After <= 0 {
		return nil, fmt.Errorf("After is %v, want > 0", l.After)
	}
	return middleware.Operate(next, nil, func(op *middleware.Operation, req *http.Request, next http.RoundTripper) (*http.Response, error) {
		ctx, cancel := context.WithTimeout(req.Context(), l.After)
		op.Within(ctx)
		resp, err := next.RoundTrip(req.WithContext(ctx))
		if ctx.Err() == nil {
			op.Within(req.Context()) // it was kept: the cancel below is no end of the operation
		}
		if err != nil {
			cancel()
			return nil, err
		}
		release(resp, cancel)
		return resp, nil
	}), nil
}

// AttemptTimeout limits each attempt, from the send to the answer's headers.
// Stack it below the retrying layers. Reading the body is not limited: nobody
// could send again once the answer is in the caller's hands.
type AttemptTimeout struct {
	After time.Duration // required
}

// Wrap reports an After that is not positive.
func (l AttemptTimeout) Wrap(next http.RoundTripper) (http.RoundTripper, error) {
	if l.After <= 0 {
		return nil, fmt.Errorf("After is %v, want > 0", l.After)
	}
	return middleware.Operate(next, nil, func(_ *middleware.Operation, req *http.Request, next http.RoundTripper) (*http.Response, error) {
		ctx, cancel := context.WithCancelCause(req.Context())
		over := &AttemptTimeoutError{After: l.After}
		timer := time.AfterFunc(l.After, func() { cancel(over) })
		resp, err := next.RoundTrip(req.WithContext(ctx))
		late := !timer.Stop()
		switch {
		case late && err == nil: // the body could not be read any more
			_ = resp.Body.Close()
			return nil, over
		case late && req.Context().Err() == nil:
			return nil, &AttemptTimeoutError{After: l.After, Err: err}
		case err != nil:
			cancel(nil)
			return nil, err
		}
		release(resp, func() { cancel(nil) })
		return resp, nil
	}), nil
}

// AttemptTimeoutError says that one attempt took longer than it may. The
// request may have been carried out.
type AttemptTimeoutError struct {
	After time.Duration // the limit that passed
	Err   error         // what the transport said
}

// Error names the limit.
func (e *AttemptTimeoutError) Error() string { return fmt.Sprintf("no answer within %s", e.After) }

// Unwrap returns what the transport said, unless it only said that the attempt's
// context has ended: the caller, whose own has not, must not take that for it.
func (e *AttemptTimeoutError) Unwrap() error {
	if errors.Is(e.Err, context.Canceled) || errors.Is(e.Err, context.DeadlineExceeded) {
		return nil
	}
	return e.Err
}

// Timeout is always true.
func (e *AttemptTimeoutError) Timeout() bool { return true }

// Is makes the error match middleware.ErrAttemptTimeout.
func (e *AttemptTimeoutError) Is(target error) bool { return target == middleware.ErrAttemptTimeout }

// release calls cancel once the answer's body is done with, not earlier: a
// context that ends with RoundTrip would cut the body off. The body of an
// upgraded connection is a writer too and stays as it is; its context then lives
// as long as the caller's.
func release(resp *http.Response, cancel func()) {
	if _, upgraded := resp.Body.(io.Writer); upgraded {
		return
	}
	if resp.Body == http.NoBody {
		cancel()
		return
	}
	resp.Body = &releasingBody{ReadCloser: resp.Body, cancel: cancel}
}

type releasingBody struct {
	io.ReadCloser
	cancel func()
}

func (b *releasingBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.cancel()
	}
	return n, err
}

func (b *releasingBody) Close() error {
	err := b.ReadCloser.Close()
	b.cancel()
	return err
}
