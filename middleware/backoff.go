package middleware

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// Backoff is an exponential schedule. The zero value waits not at all.
type Backoff struct {
	// Base is the first wait; 0 leaves only Salt.
	Base time.Duration
	// Cap limits a single wait, jitter included; 0 = no limit.
	Cap time.Duration
	// Jitter spreads each wait evenly over +- that share of it: 0.25 = +-25 %.
	Jitter float64
	// Salt adds a random 0..Salt to each wait.
	Salt time.Duration
}

// Validate reports negative fields and a jitter outside 0..1, all at once.
func (b Backoff) Validate() error {
	var errs []error
	for _, f := range []struct {
		name  string
		value time.Duration
	}{{"Base", b.Base}, {"Cap", b.Cap}, {"Salt", b.Salt}} {
		if f.value < 0 {
			errs = append(errs, fmt.Errorf("Backoff.%s is %v, want >= 0", f.name, f.value))
		}
	}
	if !(b.Jitter >= 0 && b.Jitter <= 1) { // also refuses NaN
		errs = append(errs, fmt.Errorf("Backoff.Jitter is %v, want 0..1", b.Jitter))
	}
	return errors.Join(errs...)
}

// forever stands in for "no cap": far beyond any deadline, yet it can be jittered
// without overflow.
const forever = time.Duration(math.MaxInt64 / 4)

// After returns the wait before retry n, counted from 0. It is never negative and
// never over Cap, however large n is.
func (b Backoff) After(n int) time.Duration {
	limit := forever
	if b.Cap > 0 {
		limit = min(b.Cap, forever)
	}
	n = max(n, 0)
	wait := max(b.Base, 0)
	switch {
	case wait == 0:
	case n < 62 && wait <= limit>>n:
		wait <<= n
	default:
		wait = limit
	}
	if b.Jitter > 0 {
		wait = min(limit, time.Duration(float64(wait)*(1-b.Jitter+2*b.Jitter*rand.Float64())))
	}
	if b.Salt > 0 {
		wait += min(rand.N(b.Salt), limit-wait)
	}
	return wait
}
