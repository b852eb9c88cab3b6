package roundtrippers

import (
	"context"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/reroute-go/reroute/middleware"
)

// Retry is the retry loop of an API client: the operation's Patience says how
// often, and by default its Priority says which Patience (seed api-requests,
// "Priority decides the policy"): a background operation is sent once, an
// essential one until its context ends.
//
// It sends again after server errors, throttling, timeouts and transport errors.
// The wait is the Retry-After of the answer, up to Patience.Max, else the
// schedule; then jitter is added, so that Max may be exceeded by that share. No
// wait is shorter than 1 ms, and none of an operation that would wait for it ends
// before a Pause below does.
//
// CheckRetry and Backoff take policies that were written for go-retryablehttp
// unchanged; how often is still for the Patience to say.
type Retry struct {
	Dialect middleware.Dialect // required
	// Background is the patience of background operations; zero = one send.
	Background middleware.Patience
	// Essential is that of essential ones; zero = middleware.EssentialPatience.
	Essential middleware.Patience
	// MaxRetries per operation, whatever its patience; 0 = no limit.
	MaxRetries int
	// MaxWait limits the sum of an operation's waits; 0 = no limit.
	MaxWait time.Duration
	// Jitter adds an even 0..that share to each wait; 0 = 0.25.
	Jitter float64
	// Rand is the source of jitter, 0 <= r < 1; nil = math/rand/v2.
	Rand func() float64
	// CheckRetry decides, over the dialect, whether a result is worth a retry. It
	// is asked about every answer and transport error, but not about what a layer
	// refused to send. An error of its own ends the operation and is put before the
	// transport's; an answer is never replaced by it.
	CheckRetry retryablehttp.CheckRetry
	// Backoff decides the wait, Retry-After included; no jitter is added. It is
	// given the patience's Base and Max.
	Backoff retryablehttp.Backoff
}

const minWait = time.Millisecond // V015: no policy makes the client spin

// Wrap reports a missing Dialect and fields out of range.
func (l Retry) Wrap(next http.RoundTripper) (http.RoundTripper, error) {
	var m mistakes
	m.dialect(l.Dialect)
	negative(&m, "MaxRetries", l.MaxRetries)
	negative(&m, "MaxWait", l.MaxWait)
	m.jitter(l.Jitter)
	m.within("Background", l.Background.Validate())
	m.within("Essential", l.Essential.Validate())
	if len(m) > 0 {
		return nil, m.join()
	}
	l.Jitter = orDefault(l.Jitter, 0.25)
	if l.Rand == nil {
		l.Rand = rand.Float64
	}
	r := &patient{
		Retry:  l,
		budget: &middleware.Budget{Name: "retry", Retries: orDefault(l.MaxRetries, middleware.Unlimited), Time: l.MaxWait},
		spent:  &middleware.Budget{Name: "retry"},
	}
	loop := middleware.Retry
	if l.CheckRetry != nil {
		loop = middleware.RetryAny
	}
	rt, err := loop(next, l.Dialect, r.policy, r.budget)
	if err != nil || l.Background == (middleware.Patience{}) && l.Essential == (middleware.Patience{}) {
		return rt, err
	}
	r.RoundTripper = rt
	return r, nil
}

// patient is the layer with its budget. As a RoundTripper it tells the operation
// its patience, so that other layers know it too.
type patient struct {
	Retry
	http.RoundTripper
	budget *middleware.Budget
	spent  *middleware.Budget // of an operation whose patience is at its end
}

func (r *patient) RoundTrip(req *http.Request) (*http.Response, error) {
	op, req := middleware.Begin(req)
	if op.Priority() == middleware.Essential {
		if r.Essential != (middleware.Patience{}) {
			op.SetPatience(&r.Essential)
		}
	} else {
		op.SetPatience(&r.Background)
	}
	return r.RoundTripper.RoundTrip(req)
}

// Budgets is for middleware.Describe.
func (r *patient) Budgets() []*middleware.Budget { return []*middleware.Budget{r.budget} }

func (r *patient) CloseIdleConnections() {
	if c, ok := r.RoundTripper.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

func (r *patient) policy(ctx context.Context, op *middleware.Operation, out middleware.Outcome) middleware.Verdict {
	patience := op.Patience()
	again, err := r.wanted(ctx, op, out, patience)
	switch n := op.Spent(r.budget).Retries; {
	case !again:
		return middleware.Verdict{Err: err}
	case patience.Retries == 0:
		return middleware.Verdict{}
	case n >= patience.Retries:
		return middleware.Verdict{Budget: r.spent}
	default:
		v := middleware.Verdict{Budget: r.budget, Wait: r.wait(op, out, patience, n), Quiet: out.Cause == middleware.CircuitOpen}
		if patience.Retries == middleware.Unlimited {
			v.Postpone = r.jittered(orDefault(patience.Max, maxBackoff))
		}
		if paused, ok := op.Value(pauseMet{}).(*PausedError); ok {
			if left := time.Until(paused.Until); left > v.Wait && patience.AwaitCircuit {
				v.Wait = left
			} else if left > v.Wait {
				v.Prepare = func(context.Context) error { return paused } // it would be refused: the answer in hand is worth more
			}
		}
		return v
	}
}

// wanted reports whether another send could end better.
func (r *patient) wanted(ctx context.Context, op *middleware.Operation, out middleware.Outcome, patience middleware.Patience) (bool, error) {
	if out.Cause == middleware.CircuitOpen {
		// It opened while the attempt waited below; the Circuit lets it wait.
		return patience.AwaitCircuit, nil
	}
	if r.CheckRetry != nil {
		resp, err := op.Result()
		return r.CheckRetry(ctx, resp, err)
	}
	switch out.Cause {
	case middleware.Unavailable, middleware.Timeout, middleware.Throttled, middleware.Contended,
		middleware.Migrating, middleware.Unreachable, middleware.Broken:
		return true, nil
	}
	return false, nil
}

const (
	baseBackoff = 50 * time.Millisecond
	maxBackoff  = 10 * time.Second
)

// wait is the pause before retry n, counted from 0.
func (r *patient) wait(op *middleware.Operation, out middleware.Outcome, patience middleware.Patience, n int) time.Duration {
	base, limit := orDefault(patience.Base, baseBackoff), orDefault(patience.Max, maxBackoff)
	if r.Backoff != nil {
		resp, _ := op.Result()
		return max(r.Backoff(base, limit, n, resp), minWait)
	}
	wait := out.Wait
	if wait <= 0 {
		wait = middleware.Backoff{Base: base, Cap: limit}.After(n)
	}
	return r.jittered(min(wait, limit))
}

// jittered spreads out what would come together.
func (r *patient) jittered(wait time.Duration) time.Duration {
	wait = max(wait, minWait)
	return max(wait, wait+time.Duration(r.Rand()*r.Jitter*float64(wait))) // a sum that overflows is no short wait
}
