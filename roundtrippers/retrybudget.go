package roundtrippers

import (
	"fmt"
	"math"
	"net/http"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/reroute-go/reroute/middleware"
)

// RetryBudget limits what all operations together may send again, so that an
// outage is not made worse by those who wait for its end: retries, replays and
// failovers of every layer below may add a share of the operations of the last
// ten seconds, and a floor per second that keeps single callers going (as
// finagle's RetryBudget does). Without it each operation's own budget is the only
// limit.
//
// An operation that is refused ends with the answer in hand and Stop BudgetSpent;
// one that retries without limit, as the essential ones do, asks again after its
// longest wait.
//
// Stack it outside the retrying layers, the same pointer in every client of the
// process; do not copy it.
type RetryBudget struct {
	// Share of re-sends per operation; 0 = 0.2.
	Share float64
	// PerSecond re-sends are allowed whatever the share; 0 = 10.
	PerSecond float64

	once  sync.Once
	inner retryWindow
}

// Wrap reports a Share or PerSecond that is negative or no number.
func (l *RetryBudget) Wrap(next http.RoundTripper) (http.RoundTripper, error) {
	var m mistakes
	if !(l.Share >= 0) || math.IsInf(l.Share, 0) { // also refuses NaN
		m.add(fmt.Errorf("Share is %v, want >= 0", l.Share))
	}
	if !(l.PerSecond >= 0) || math.IsInf(l.PerSecond, 0) {
		m.add(fmt.Errorf("PerSecond is %v, want >= 0", l.PerSecond))
	}
	if len(m) > 0 {
		return nil, m.join()
	}
	l.once.Do(func() {
		perSecond := orDefault(l.PerSecond, 10)
		l.inner.share = orDefault(l.Share, 0.2)
		l.inner.floor = rate.NewLimiter(rate.Limit(perSecond), burstOf(perSecond))
		l.inner.started = time.Now()
	})
	return middleware.Operate(next, nil, func(op *middleware.Operation, req *http.Request, next http.RoundTripper) (*http.Response, error) {
		if op.LimitRetries(&l.inner) {
			l.inner.deposit()
		}
		return next.RoundTrip(req)
	}), nil
}

// windowSeconds is how long an operation's share can be used.
const windowSeconds = 10

// retryWindow counts operations and re-sends by the second.
type retryWindow struct {
	share   float64
	floor   *rate.Limiter
	started time.Time

	mu         sync.Mutex
	second     int64 // the newest
	operations [windowSeconds]int
	resends    [windowSeconds]int // paid by the share
}

func (w *retryWindow) deposit() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.operations[w.advance()]++
}

// AllowRetry takes one re-send from the share, else from the floor.
func (w *retryWindow) AllowRetry() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.advance()
	operations, resends := 0, 0
	for i := range windowSeconds {
		operations += w.operations[i]
		resends += w.resends[i]
	}
	if float64(resends+1) <= w.share*float64(operations) {
		w.resends[now]++
		return true
	}
	return w.floor.Allow()
}

// advance forgets what is too old and returns the place of this second. Called
// with mu held.
func (w *retryWindow) advance() int {
	second := int64(time.Since(w.started) / time.Second)
	for old := max(w.second+1, second-windowSeconds+1); old <= second; old++ {
		w.operations[old%windowSeconds], w.resends[old%windowSeconds] = 0, 0
	}
	w.second = max(w.second, second)
	return int(w.second % windowSeconds)
}
