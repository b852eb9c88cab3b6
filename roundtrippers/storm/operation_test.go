package storm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/reroute-go/reroute/middleware"
)

// operation is one call of the stack, and what was promised to its caller.
type operation struct {
	number   uint64
	name     string
	write    bool
	excluded []string
	within   time.Duration // deadline, 0 = none
	cancel   time.Duration // when the caller leaves, 0 = never
	most     int           // sends, 0 = no bound

	started  time.Duration
	sends    atomic.Int64
	key      atomic.Pointer[string] // Idempotency-Key of the first send
	answered atomic.Bool            // the answer is in the caller's hands
	result   result
}

func (op *operation) String() string {
	how := fmt.Sprintf("operation %d, %s, from %s", op.number, op.name, op.started)
	if op.within > 0 {
		how += fmt.Sprintf(", within %s", op.within)
	}
	if op.cancel > 0 {
		how += fmt.Sprintf(", cancelled after %s", op.cancel)
	}
	if len(op.excluded) > 0 {
		how += fmt.Sprintf(", not to %q", op.excluded)
	}
	return fmt.Sprintf("%s: %s\n%s", how, &op.result, op.result.report)
}

// limits draws a deadline and the moment the caller leaves.
func (op *operation) limits(r *rand.Rand) *operation {
	op.within = pick(r, 0, 300*time.Millisecond, 2*time.Second, 5*time.Second, 10*time.Second, 10*time.Second, 40*time.Second)
	if r.IntN(12) == 0 {
		op.cancel = between(r, 0, 3*time.Second)
	}
	return op
}

type operationKey struct{}

func operationOf(ctx context.Context) *operation {
	op, _ := ctx.Value(operationKey{}).(*operation)
	return op
}

// result is how an operation ended, its answer read and closed.
type result struct {
	status int
	header http.Header
	body   []byte
	err    error // of the operation
	cut    error // of reading the answer's body
	report middleware.Report
	took   time.Duration
}

func (r *result) String() string {
	switch {
	case r.err != nil:
		return fmt.Sprintf("%v, after %s", r.err, r.took)
	case r.cut != nil:
		return fmt.Sprintf("%d, cut off (%v), after %s", r.status, r.cut, r.took)
	}
	return fmt.Sprintf("%d, after %s", r.status, r.took)
}

func (r *result) succeeded() bool { return r.status/100 == 2 }

// refused reports that nothing can have been carried out. A server error that the
// dialect takes for a real answer tells so by its status alone.
func (r *result) refused() bool { return !r.succeeded() && !r.report.InDoubt && r.status < 500 }

// send sends req as op through the stack and holds the result against what
// every operation is promised.
func (s *storm) send(rt http.RoundTripper, op *operation, req func(ctx context.Context) *http.Request) *result {
	return s.call(op, func(ctx context.Context) {
		resp, err := rt.RoundTrip(req(ctx))
		op.answered.Store(true)
		r := &op.result
		if r.err = err; err != nil {
			var typed *middleware.Error
			if errors.As(err, &typed) {
				r.report = typed.Report
			} else {
				s.breakIn(op, "an error of type %T", err)
			}
			if resp != nil {
				s.breakIn(op, "both an answer and an error")
			}
			return
		}
		r.status, r.header = resp.StatusCode, resp.Header
		r.report = middleware.FromResponse(resp).Report()
		if op.within == 0 { // nothing but the caller limits a body that stalls
			stalled := time.AfterFunc(30*time.Second, func() { _ = resp.Body.Close() })
			defer stalled.Stop()
		}
		r.body, r.cut = io.ReadAll(resp.Body)
		_ = resp.Body.Close()
	})
}

// call runs one operation within its limits.
func (s *storm) call(op *operation, act func(ctx context.Context)) *result {
	ctx, cancel := context.WithCancel(context.WithValue(s.ctx, operationKey{}, op))
	defer cancel()
	limit := op.within
	if op.within > 0 {
		var end context.CancelFunc
		ctx, end = context.WithTimeout(ctx, op.within)
		defer end()
	}
	if op.cancel > 0 {
		timer := time.AfterFunc(op.cancel, cancel)
		defer timer.Stop()
		if limit == 0 || op.cancel < limit {
			limit = op.cancel
		}
	}
	op.started = s.now()
	s.begin(op)
	act(ctx)
	s.end(op)
	r := &op.result
	r.took = s.now() - op.started
	s.tally.operations.Add(1)
	if r.err != nil {
		s.tally.unanswered.Add(1)
	}
	if s.ctx.Err() != nil {
		return r // it was cut off by the end of a broken storm
	}
	if limit > 0 && r.took > limit {
		s.breakIn(op, "it outlived its limit of %s by %s", limit, r.took-limit)
	}
	if op.most > 0 && r.report.Sends > op.most {
		s.breakIn(op, "%d sends are told, at most %d were promised", r.report.Sends, op.most)
	}
	if told := int64(r.report.Sends); r.err == nil && told != op.sends.Load() {
		s.breakIn(op, "%d sends are told, %d were made", told, op.sends.Load())
	}
	for _, a := range r.report.Attempts {
		if bodyLost(a.Err) {
			s.breakIn(op, "attempt %d was sent without its own body: %v", a.Number, a.Err)
		}
	}
	if limit == 0 && (errors.Is(r.err, context.Canceled) || errors.Is(r.err, context.DeadlineExceeded)) {
		s.breakIn(op, "a context that has no end is said to have ended")
	}
	return r
}

// onlyOf is an io.Reader that is nothing more, so that http.NewRequest can
// neither see how long it is nor read it twice.
func onlyOf(text string) io.Reader { return struct{ io.Reader }{strings.NewReader(text)} }

// bodyLost reports the errors of an attempt that was sent without its own body.
func bodyLost(err error) bool {
	var length *middleware.BodyLengthError
	return err != nil && (errors.As(err, &length) || errors.Is(err, http.ErrBodyReadAfterClose) || strings.Contains(err.Error(), "with Body length"))
}
