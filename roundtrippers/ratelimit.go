package roundtrippers

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/reroute-go/reroute/middleware"
)

// RateLimit limits how many requests are sent per second, retries and replays
// included: a token bucket, filled at that rate. Who finds it empty waits in
// order of arrival, essential operations before the others; a wait that would
// outlive the deadline is refused at once, with a *middleware.WaitError. The
// token is taken when the wait is over and the gates above were asked once more,
// so what is cancelled or refused takes none.
//
// Share the pointer to share the bucket; do not copy it.
type RateLimit struct {
	PerSecond float64 // required, finite and positive
	// Burst is how many may be sent at once after a pause; 0 = PerSecond rounded
	// up, at least 1 (seed api-requests, "rate_limit").
	Burst int

	mu      sync.Mutex
	bucket  *rate.Limiter
	waiting queue
	turn    *waiter     // woken, and yet to take its token
	timer   *time.Timer // for the next turn, if one is due
}

// Wrap reports a PerSecond that is not positive and finite, and a negative Burst.
func (l *RateLimit) Wrap(next http.RoundTripper) (http.RoundTripper, error) {
	var m mistakes
	if !(l.PerSecond > 0) || math.IsInf(l.PerSecond, 0) { // also refuses NaN
		m.add(fmt.Errorf("PerSecond is %v, want > 0 (for no limit, leave the layer out)", l.PerSecond))
	}
	negative(&m, "Burst", l.Burst)
	if len(m) > 0 {
		return nil, m.join()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.bucket == nil {
		l.bucket = rate.NewLimiter(rate.Limit(l.PerSecond), orDefault(l.Burst, burstOf(l.PerSecond)))
	}
	return middleware.Operate(next, nil, l.roundTrip), nil
}

func burstOf(perSecond float64) int {
	return int(math.Min(math.MaxInt32, math.Max(1, math.Ceil(perSecond))))
}

// Waiting returns how many wait for their turn.
func (l *RateLimit) Waiting() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.waiting.len()
}

func (l *RateLimit) roundTrip(op *middleware.Operation, req *http.Request, next http.RoundTripper) (*http.Response, error) {
	if op.Value(l) != nil {
		return next.RoundTrip(req) // a stack within a stack: one send, one token
	}
	if err := l.acquire(req.Context(), op); err != nil {
		return middleware.Refuse(req, err)
	}
	op.SetValue(l, true)
	defer op.SetValue(l, nil)
	return next.RoundTrip(req)
}

func (l *RateLimit) acquire(ctx context.Context, op *middleware.Operation) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	l.mu.Lock()
	if l.turn == nil && l.waiting.len() == 0 && l.bucket.Allow() {
		l.mu.Unlock()
		return nil
	}
	if err := middleware.CheckWait(ctx, l.due(op.Priority()), "the rate limit"); err != nil {
		l.mu.Unlock()
		return err
	}
	w := l.waiting.push(op.Priority())
	l.schedule()
	l.mu.Unlock()
	for {
		err := w.wait(ctx)
		switch {
		case ctx.Err() != nil: // in the moment of its turn: the next one's token
			err = context.Cause(ctx)
		case err == nil:
			err = op.Recheck()
		}
		if taken := l.settle(w, err); taken || err != nil {
			return err
		}
	}
}

// settle ends w's turn, or its wait, and reports whether it has taken a token.
func (l *RateLimit) settle(w *waiter, err error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.turn == w {
		l.turn = nil
	}
	taken := false
	switch {
	case err != nil:
		l.waiting.remove(w)
	case l.bucket.Allow():
		taken = true
	default:
		l.waiting.pushFront(w) // rounded up: a moment too early
	}
	l.schedule()
	return taken
}

// due estimates the wait of a newcomer. Called with mu held.
func (l *RateLimit) due(class middleware.Priority) time.Duration {
	needed := float64(l.waiting.ahead(class)+1) - l.bucket.Tokens()
	if l.turn != nil {
		needed++
	}
	return l.filling(needed)
}

// filling is how long it takes until so many tokens have come in.
func (l *RateLimit) filling(tokens float64) time.Duration {
	wait := math.Ceil(tokens / l.PerSecond * float64(time.Second))
	if wait > math.MaxInt64/2 {
		return math.MaxInt64 / 2
	}
	return max(0, time.Duration(wait))
}

// schedule sees to it that the next in the queue gets its turn when there is a
// token. Called with mu held.
func (l *RateLimit) schedule() {
	if l.timer != nil {
		l.timer.Stop()
		l.timer = nil
	}
	if l.turn != nil || l.waiting.len() == 0 {
		return
	}
	wait := l.filling(1 - l.bucket.Tokens())
	if wait == 0 {
		l.call()
		return
	}
	var timer *time.Timer
	timer = time.AfterFunc(wait, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.timer == timer { // not stopped too late
			l.timer = nil
			l.call()
		}
	})
	l.timer = timer
}

// call gives the next in the queue its turn. Called with mu held.
func (l *RateLimit) call() {
	if w := l.waiting.next(); w != nil {
		l.turn = w
		l.waiting.wake(w)
	}
}
