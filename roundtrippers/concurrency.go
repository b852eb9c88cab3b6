package roundtrippers

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"

	"github.com/reroute-go/reroute/middleware"
)

// Concurrency limits how many requests are in flight at once. A request holds
// its permit from the send to the answer's headers, and none while it waits for
// anything else: stack it below Retry, Circuit and RateLimit.
//
// Who finds no permit free waits in order of arrival, essential operations
// before the others. Share the pointer to share the limit; do not copy it.
type Concurrency struct {
	// Limit of requests in flight; 0 = 4 (seed api-requests, "max_parallel").
	Limit int
	// ReserveEssential permits are for essential operations only; 0 = none. At
	// least one must be left for the others.
	ReserveEssential int
	// HoldUntilBodyClose keeps the permit until the answer's body is read to its
	// end or closed, or the request's context ends.
	HoldUntilBodyClose bool

	mu         sync.Mutex
	inFlight   int
	background int // of those
	waiting    queue
}

// Wrap reports a limit below 1 and a reserve that leaves nothing.
func (l *Concurrency) Wrap(next http.RoundTripper) (http.RoundTripper, error) {
	var m mistakes
	negative(&m, "Limit", l.Limit)
	if l.ReserveEssential < 0 || l.Limit >= 0 && l.ReserveEssential >= l.limit() {
		m.add(fmt.Errorf("ReserveEssential is %d, want 0..%d", l.ReserveEssential, max(0, l.limit()-1)))
	}
	if len(m) > 0 {
		return nil, m.join()
	}
	return middleware.Operate(next, nil, l.roundTrip), nil
}

func (l *Concurrency) limit() int { return orDefault(l.Limit, 4) }

// InFlight returns how many permits are taken.
func (l *Concurrency) InFlight() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.inFlight
}

// Waiting returns how many wait for a permit.
func (l *Concurrency) Waiting() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.waiting.len()
}

func (l *Concurrency) roundTrip(op *middleware.Operation, req *http.Request, next http.RoundTripper) (*http.Response, error) {
	if op.Value(l) != nil {
		return next.RoundTrip(req) // a stack within a stack: one send, one permit
	}
	class := op.Priority()
	if err := l.acquire(req.Context(), op, class); err != nil {
		return middleware.Refuse(req, err)
	}
	op.SetValue(l, true)
	held := true
	defer func() { // on a panic too
		op.SetValue(l, nil)
		if held {
			l.release(class)
		}
	}()
	resp, err := next.RoundTrip(req)
	if err == nil && l.HoldUntilBodyClose {
		held = !l.holdUntilClose(req.Context(), resp, class)
	}
	return resp, err
}

// acquire returns with a permit, or with an error and none.
func (l *Concurrency) acquire(ctx context.Context, op *middleware.Operation, class middleware.Priority) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	l.mu.Lock()
	if l.waiting.first(class) == nil && l.fits(class) {
		l.take(class)
		l.mu.Unlock()
		return nil
	}
	w := l.waiting.push(class)
	l.mu.Unlock()

	err := w.wait(ctx)
	if err == nil {
		err = op.Recheck()
	}
	if err == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.waiting.remove(w) {
		l.give(class) // handed over already
	}
	return err
}

func (l *Concurrency) fits(class middleware.Priority) bool {
	if l.inFlight >= l.limit() {
		return false
	}
	return class == middleware.Essential || l.background < l.limit()-l.ReserveEssential
}

func (l *Concurrency) take(class middleware.Priority) {
	l.inFlight++
	if class == middleware.Background {
		l.background++
	}
}

func (l *Concurrency) release(class middleware.Priority) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.give(class)
}

// give frees a permit and hands out what fits. Called with mu held.
func (l *Concurrency) give(class middleware.Priority) {
	l.inFlight--
	if class == middleware.Background {
		l.background--
	}
	for _, class := range []middleware.Priority{middleware.Essential, middleware.Background} {
		for w := l.waiting.first(class); w != nil && l.fits(class); w = l.waiting.first(class) {
			l.take(class)
			l.waiting.wake(w)
		}
	}
}

// holdUntilClose passes the permit on to resp's body and reports whether it did.
// The end of the request's context frees it as well, for those who forget Close.
func (l *Concurrency) holdUntilClose(ctx context.Context, resp *http.Response, class middleware.Priority) bool {
	if _, upgraded := resp.Body.(io.Writer); upgraded {
		return false
	}
	var once sync.Once
	free := func() { once.Do(func() { l.release(class) }) }
	stop := context.AfterFunc(ctx, free)
	release(resp, func() { stop(); free() })
	return true
}
