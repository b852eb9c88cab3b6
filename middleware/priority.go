package middleware

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"
)

// Priority says who waits for an operation. It is set once, by the owner of the
// wait, and inherited by everything below through the context; layers only read
// it (seed api-requests, "Priority decides the policy").
type Priority uint8

const (
	// Background, the default, is work that nobody looks at: a refresh by timer.
	// It is sent once, and not at all while a breaker is open or the API paused.
	Background Priority = iota
	// Essential is work that somebody waits for: it is sent until it is answered
	// or its context ends. Bound it: a context without an end waits for ever.
	Essential
)

// String returns the priority in lower case.
func (p Priority) String() string {
	if p == Essential {
		return "essential"
	}
	return "background"
}

// WithPriority sets the priority of the operations of ctx; the innermost wins and
// an unknown value is Background. An operation reads it once, when it begins.
// Contexts derived by context.WithoutCancel keep it, and then have no end: use
// Detach to leave it behind.
func WithPriority(ctx context.Context, p Priority) context.Context {
	in := *inputsOf(ctx)
	in.priority = Background
	if p == Essential {
		in.priority = p
	}
	return in.in(ctx)
}

// PriorityOf returns the priority that an operation of ctx would have. It is for
// those who start work of their own and pass the priority on.
func PriorityOf(ctx context.Context) Priority { return inputsOf(ctx).priority }

// Priority returns what the caller set: see WithPriority.
func (op *Operation) Priority() Priority { return op.inputs.priority }

// Unlimited, as the Retries of a Budget or a Patience, sets no limit.
const Unlimited = math.MaxInt

// Patience says how long an operation is kept alive by the Retry layer of
// roundtrippers: which priority has which is the layer's to say, and a caller
// may state one with WithPatience. Its zero value is that of Background: one
// send.
type Patience struct {
	// Retries after the first send; Unlimited = until the context ends.
	Retries int
	// Base is the wait before the first retry; it doubles. 0 = 50 ms.
	Base time.Duration
	// Max limits a wait, before jitter, and what a server's Retry-After is heeded
	// up to. 0 = 10 s.
	Max time.Duration
	// AwaitCircuit waits for an open breaker, or the end of a Pause, instead of failing
	// at once.
	AwaitCircuit bool
}

// Validate reports negative fields, all at once.
func (p Patience) Validate() error {
	var errs []error
	if p.Retries < 0 {
		errs = append(errs, fmt.Errorf("Patience.Retries is %d, want >= 0", p.Retries))
	}
	if p.Base < 0 {
		errs = append(errs, fmt.Errorf("Patience.Base is %v, want >= 0", p.Base))
	}
	if p.Max < 0 {
		errs = append(errs, fmt.Errorf("Patience.Max is %v, want >= 0", p.Max))
	}
	return errors.Join(errs...)
}

// EssentialPatience is what Essential operations have unless a layer says
// otherwise: 250 ms doubling to 10 s until the context ends, and waiting for an
// open breaker.
var EssentialPatience = Patience{Retries: Unlimited, Base: 250 * time.Millisecond, Max: 10 * time.Second, AwaitCircuit: true}

// WithPatience states the patience of the operations of ctx, whatever their
// priority. Negative fields count as 0.
func WithPatience(ctx context.Context, p Patience) context.Context {
	in := *inputsOf(ctx)
	p.Retries, p.Base, p.Max = max(p.Retries, 0), max(p.Base, 0), max(p.Max, 0)
	in.patience = &p
	return in.in(ctx)
}

// Patience returns the operation's patience: what the caller stated, else what a
// layer set, else that of the priority.
func (op *Operation) Patience() Patience {
	if p := op.inputs.patience; p != nil {
		return *p
	}
	if n := op.notes.Load(); n != nil {
		op.mu.Lock()
		defer op.mu.Unlock()
		if n.patience != nil {
			return *n.patience
		}
	}
	if op.inputs.priority == Essential {
		return EssentialPatience
	}
	return Patience{}
}

// SetPatience sets the patience of an operation whose caller stated none. p must
// not be changed afterwards.
func (op *Operation) SetPatience(p *Patience) {
	op.mu.Lock()
	defer op.mu.Unlock()
	op.note().patience = p
}
