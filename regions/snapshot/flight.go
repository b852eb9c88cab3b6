package snapshot

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"
)

// longestPause bounds the doubling after failures when MaxFailureDelay is not set.
const longestPause = 24 * time.Hour

// board returns the flight to wait for, starting one if none runs, and whether its fetch had begun before.
// No flight and no error: there is nothing to wait for.
func (h *Holder[T]) board(seen *T, force bool) (f *flight[T], begun bool, err error) {
	if err := h.Validate(); err != nil {
		return nil, false, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if v := h.value.Load(); v != nil && v != seen {
		return nil, false, nil // somebody else refreshed in the meantime
	}
	if h.closed {
		return nil, false, ErrClosed
	}
	if f := h.flight; f != nil {
		if force && !f.hurried {
			f.hurried = true
			close(f.hurry)
		}
		return f, f.begun, nil
	}
	pause := time.Until(h.notUntil)
	if force {
		pause = 0
	}
	if pause > 0 && !h.Delay {
		return nil, false, h.lastErr
	}
	if h.life == nil {
		h.life, h.end = context.WithCancelCause(context.Background())
	}
	h.flights++
	f = &flight[T]{done: make(chan struct{}), hurry: make(chan struct{}), number: h.flights}
	h.flight = f
	go h.fly(f, h.life, pause)
	return f, false, nil
}

// fly runs one flight in its own goroutine.
func (h *Holder[T]) fly(f *flight[T], life context.Context, pause time.Duration) {
	defer h.land(f, nil, &PanicError{}) // counts only when Fetch ends this goroutine
	if pause > 0 {
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-f.hurry:
		case <-life.Done():
		}
		timer.Stop()
	}
	if life.Err() != nil {
		h.land(f, nil, ErrClosed)
		return
	}
	h.mu.Lock()
	f.begun, f.stores = true, h.stores
	old := h.value.Load()
	h.mu.Unlock()

	ctx, cancel := context.WithTimeoutCause(life, orDefault(h.Timeout, defaultTimeout), ErrTimeout)
	defer cancel()
	// Who ignores its context must not own the slot for ever.
	stop := context.AfterFunc(ctx, func() { h.land(f, nil, context.Cause(ctx)) })
	defer stop()

	v, err := h.fetch(ctx, old)
	switch {
	case err != nil && ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)):
		err = fmt.Errorf("%w: %s", context.Cause(ctx), err.Error()) // callers must not take it for their own context's end
	case err == nil && v == nil:
		err = ErrNoValue
	}
	if err != nil {
		h.land(f, nil, err)
		return
	}
	if v == old {
		v = nil
	}
	h.land(f, v, nil)
}

// fetch calls Fetch and turns a panic into an error.
func (h *Holder[T]) fetch(ctx context.Context, old *T) (v *T, err error) {
	defer func() {
		if p := recover(); p != nil {
			v, err = nil, &PanicError{Value: p, Stack: debug.Stack()}
		}
	}()
	return h.Fetch(ctx, old)
}

// land ends a flight and frees its slot; v is the changed value, nil if there is none. Only the first landing counts:
// a flight ended by its timeout can land again, with a late value that ends nothing but may still be taken.
func (h *Holder[T]) land(f *flight[T], v *T, err error) {
	// The value is there before the slot is free: who finds the slot empty must not find the old value with it (R14).
	var old *T
	accepted := false
	if v != nil {
		old, accepted = h.accept(f, v)
	}
	h.mu.Lock()
	first := !f.ended
	if first {
		f.ended, f.err = true, err
		h.flight = nil
		h.settle(err)
	}
	h.mu.Unlock()

	// The slot is free before OnChange runs, so OnChange may refresh.
	if accepted && h.OnChange != nil {
		if err := h.tell(old, v); err != nil && first {
			f.err = err
		}
	}
	if first {
		close(f.done)
	}
}

// tell calls OnChange and turns a panic into an error.
func (h *Holder[T]) tell(old, v *T) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &PanicError{Value: p, Stack: debug.Stack()}
		}
	}()
	h.OnChange(old, v)
	return nil
}

// settle decides when the next fetch may start. Called with mu held.
func (h *Holder[T]) settle(err error) {
	h.lastErr = err
	if err == nil {
		h.failures = 0
		h.notUntil = time.Now().Add(h.Interval)
		return
	}
	h.failures++
	h.notUntil = time.Time{}
	if n := h.failures - h.FailureGrace; n > 0 && h.FailureDelay > 0 {
		h.notUntil = time.Now().Add(h.pause(n))
	}
}

// pause is the spacing after the nth spaced failure in a row.
func (h *Holder[T]) pause(n int) time.Duration {
	limit := orDefault(h.MaxFailureDelay, longestPause)
	d := h.FailureDelay
	for ; n > 1 && d < limit; n-- {
		d *= 2
	}
	return min(d, limit)
}

// accept makes v the value held, unless something newer is, and returns the value it replaced.
func (h *Holder[T]) accept(f *flight[T], v *T) (old *T, accepted bool) {
	var judged *T
	for {
		h.mu.Lock()
		current := h.value.Load()
		overtaken := h.stores != f.stores || h.accepted > f.number
		if h.closed || current == v {
			h.mu.Unlock()
			return nil, false
		}
		if !overtaken || (judged != nil && judged == current) {
			h.value.Store(v)
			h.accepted = max(h.accepted, f.number)
			h.mu.Unlock()
			return current, true
		}
		h.mu.Unlock()
		if current == nil || h.Newer == nil || !h.Newer(v, current) {
			return nil, false // a stored nil means that the value shall be forgotten
		}
		judged = current // Newer ran without the lock: take v only if it was judged against what is held now
	}
}
