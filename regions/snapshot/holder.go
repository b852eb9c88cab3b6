// Package snapshot keeps one immutable value fresh: readers load it without a lock, and everybody who finds it stale
// shares a single fetch that no caller's cancellation can end. Topologies, partition maps and ownership maps are all
// kept this way.
package snapshot

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

const (
	defaultTimeout = 30 * time.Second
	defaultMaxWait = 15 * time.Second
)

var (
	// ErrClosed is returned by a refresh of a closed Holder, and to those who were waiting when it was closed.
	ErrClosed = errors.New("snapshot: closed")
	// ErrMaxWait is returned to a caller that waited MaxWait for a fetch that is still running.
	ErrMaxWait = errors.New("snapshot: refresh still running after the maximum wait")
	// ErrTimeout is the failure of a fetch that took longer than Timeout. It is no context error on purpose: the deadline
	// that passed was the fetch's, not the caller's.
	ErrTimeout = errors.New("snapshot: fetch took longer than its timeout")
	// ErrNoValue is the failure of a fetch that returned neither a value nor an error.
	ErrNoValue = errors.New("snapshot: fetch returned no value")
)

// PanicError is the failure of a fetch that panicked, or that ended its goroutine.
type PanicError struct {
	Value any    // what was panicked with; nil if the goroutine was ended
	Stack []byte // where it happened
}

// Error shows the panic's value, not the stack.
func (e *PanicError) Error() string {
	if e.Value == nil {
		return "snapshot: fetch ended its goroutine"
	}
	return fmt.Sprintf("snapshot: fetch panicked: %v", e.Value)
}

// Holder keeps the newest *T and fetches the next one when asked. The value must not change once it is held.
//
// Fill the fields in before the first call; do not copy a Holder. All methods may be called concurrently, and none
// holds a lock while it waits or while it calls one of the functions below. The only goroutine is the running fetch.
type Holder[T any] struct {
	// Fetch gets the next value; old is the one held now, nil at first. Returning old means "unchanged" and counts as
	// a success. Its context belongs to the Holder: it has no caller's values, deadline or cancellation, and ends after
	// Timeout or at Close. Required.
	Fetch func(ctx context.Context, old *T) (*T, error)

	// OnChange, if set, is told of every value that a fetch brought, after it can be loaded and before those waiting
	// for it go on. It may use the Holder. Calls can overlap when fetches follow each other closely.
	OnChange func(old, new *T)

	// Newer, if set, judges a fetched value when another was stored (or fetched by a later flight) while its fetch ran.
	// It may be called more than once. Nil: what was stored meanwhile stays.
	Newer func(fetched, current *T) bool

	// Interval is the time from the end of a successful fetch to the start of the next. Zero: none.
	// Failures do not count for it (R077).
	Interval time.Duration

	// Delay says what a Refresh inside Interval, or inside the spacing after failures, does. False: it returns the value
	// held at once, and the error of the last fetch if that failed. True: it waits for the end and then fetches, so that
	// a change inside the interval is learned late but never missed.
	Delay bool

	// Timeout is the limit of one fetch, 0 = 30 s. A fetch that ignores its context is left behind: it can overlap the
	// next, and a value that it still brings is taken only if nothing newer is held.
	Timeout time.Duration

	// MaxWait is how long one Refresh waits in all, 0 = 15 s. The fetch goes on without the caller.
	MaxWait time.Duration

	// FailureDelay is the pause after a failed fetch. It doubles with every further failure in a row. Zero: no pause.
	FailureDelay time.Duration
	// MaxFailureDelay bounds that pause, 0 = 24 h.
	MaxFailureDelay time.Duration

	// FailureGrace is how many failures in a row are followed by no pause. Zero: the first one is.
	FailureGrace int

	value atomic.Pointer[T]

	mu       sync.Mutex // guards the rest; only for moments
	flight   *flight[T]
	flights  uint64 // number of the newest flight
	accepted uint64 // newest flight whose answer was taken
	stores   uint64 // number of Store calls
	failures int    // in a row
	lastErr  error  // of the last fetch, nil after a success
	notUntil time.Time
	closed   bool
	life     context.Context // ends at Close
	end      context.CancelCauseFunc
}

// flight is one fetch, from the moment somebody asked for it.
type flight[T any] struct {
	done   chan struct{} // closed when err is set and OnChange has returned
	hurry  chan struct{} // closed to end the pause before the fetch
	number uint64
	err    error

	// Guarded by Holder.mu.
	hurried, begun, ended bool
	stores                uint64 // Holder.stores when the fetch began
}

// Load returns the value held, nil before the first. It never blocks.
func (h *Holder[T]) Load() *T { return h.value.Load() }

// Err returns the failure of the last fetch, nil after a success and before the first.
func (h *Holder[T]) Err() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lastErr
}

// Store replaces the value held, for instance by one derived from it. A fetch that runs meanwhile does not overwrite it,
// unless Newer says so.
func (h *Holder[T]) Store(v *T) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stores++
	h.value.Store(v)
}

// Refresh returns a value other than seen, the one the caller found stale: at once if such a value is held already, else
// after one fetch shared by all callers. seen is nil for "I have none".
//
// A failure returns the value held and the error: that of the fetch, which everybody waiting shares; the context's own;
// ErrMaxWait; or ErrClosed. A fetch that had begun before the caller asked and brought no change may have read too
// early, so the caller asks once more, by the same rules.
func (h *Holder[T]) Refresh(ctx context.Context, seen *T) (*T, error) {
	if v := h.Load(); v != nil && v != seen {
		return v, nil
	}
	return h.ride(ctx, seen, false)
}

// Force is a Refresh of whatever is held that passes over Interval and the pause after failures. It still shares a fetch
// that is running.
func (h *Holder[T]) Force(ctx context.Context) (*T, error) {
	return h.ride(ctx, h.Load(), true)
}

// Trigger asks for the same fetch as Refresh does and does not wait for it.
func (h *Holder[T]) Trigger(seen *T) {
	if v := h.Load(); v == nil || v == seen {
		_, _, _ = h.board(seen, false)
	}
}

// Close ends a running fetch and releases those waiting for it. The value held stays readable.
// A later refresh fetches nothing: it returns the value held, with ErrClosed if that is the value the caller found stale.
func (h *Holder[T]) Close() {
	h.mu.Lock()
	h.closed = true
	end := h.end
	h.mu.Unlock()
	if end != nil {
		end(ErrClosed)
	}
}

// Validate reports fields that make no sense, each by name and value. A Holder that fails it refuses to fetch.
func (h *Holder[T]) Validate() error {
	var errs []error
	if h.Fetch == nil {
		errs = append(errs, errors.New("snapshot: Holder.Fetch is nil: it is required"))
	}
	for _, f := range []struct {
		name  string
		value time.Duration
	}{
		{"Interval", h.Interval}, {"Timeout", h.Timeout}, {"MaxWait", h.MaxWait},
		{"FailureDelay", h.FailureDelay}, {"MaxFailureDelay", h.MaxFailureDelay},
	} {
		if f.value < 0 {
			errs = append(errs, fmt.Errorf("snapshot: Holder.%s is %v: must not be negative", f.name, f.value))
		}
	}
	if h.FailureGrace < 0 {
		errs = append(errs, fmt.Errorf("snapshot: Holder.FailureGrace is %d: must not be negative", h.FailureGrace))
	}
	return errors.Join(errs...)
}

// ride waits for a flight, within the caller's context and MaxWait.
func (h *Holder[T]) ride(ctx context.Context, seen *T, force bool) (*T, error) {
	if err := ctx.Err(); err != nil {
		return h.Load(), err
	}
	var limit *time.Timer
	for first := true; ; first = false {
		f, begun, err := h.board(seen, force)
		if f == nil {
			return h.Load(), err
		}
		if limit == nil {
			limit = time.NewTimer(orDefault(h.MaxWait, defaultMaxWait))
			defer limit.Stop()
		}
		select {
		case <-f.done:
		case <-ctx.Done():
			return h.Load(), ctx.Err()
		case <-limit.C:
			return h.Load(), ErrMaxWait
		}
		if f.err != nil || !begun || !first || h.Load() != seen {
			return h.Load(), f.err
		}
	}
}

func orDefault(d, def time.Duration) time.Duration {
	if d == 0 {
		return def
	}
	return d
}
