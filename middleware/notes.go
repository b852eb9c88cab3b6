package middleware

import (
	"context"
	"slices"
)

// notes is what layers keep on an operation. Most operations have none.
type notes struct {
	values   []noted
	gates    []Gate
	limiter  RetryLimiter
	patience *Patience
	within   context.Context // governs the operation, if not the caller's

	firstValues [4]noted // back the slices, as a whole API stack needs them
	firstGate   [1]Gate
}

type noted struct{ key, value any }

// note returns the notes. Called with mu held.
func (op *Operation) note() *notes {
	n := op.notes.Load()
	if n == nil {
		n = new(notes)
		n.values, n.gates = n.firstValues[:0], n.firstGate[:0]
		op.notes.Store(n)
	}
	return n
}

// SetValue keeps value under key for the rest of the operation, all attempts of
// it. Like a context's, a key is of the layer's own type or its own pointer. A nil
// value takes the key out.
func (op *Operation) SetValue(key, value any) {
	op.mu.Lock()
	defer op.mu.Unlock()
	n := op.note()
	for i := range n.values {
		if n.values[i].key == key {
			n.values[i].value = value
			return
		}
	}
	n.values = append(n.values, noted{key, value})
}

// Value returns what SetValue keeps under key, nil if nothing.
func (op *Operation) Value(key any) any {
	n := op.notes.Load()
	if n == nil {
		return nil
	}
	op.mu.Lock()
	defer op.mu.Unlock()
	for _, v := range n.values {
		if v.key == key {
			return v.value
		}
	}
	return nil
}

// Gate lets attempts through, and may close while one that has passed still
// waits for something further down.
type Gate interface {
	// Admits returns nil while the attempt of op may go on. It must not block.
	Admits(op *Operation) error
}

// Passed says that the operation's attempt was let through by g. When it is back,
// the layer calls Left.
func (op *Operation) Passed(g Gate) {
	op.mu.Lock()
	defer op.mu.Unlock()
	n := op.note()
	for _, known := range n.gates {
		if known == g {
			return
		}
	}
	n.gates = append(n.gates, g)
}

// Left says that the attempt is back above g, which has no say in the next one
// before that has passed it too: it may go another way.
func (op *Operation) Left(g Gate) {
	op.mu.Lock()
	defer op.mu.Unlock()
	n := op.note()
	if i := slices.Index(n.gates, g); i >= 0 {
		n.gates = n.gates[:i:i] // whoever still reads the rest does not see it change
	}
}

// Recheck asks the gates above once more. A layer that has made an attempt wait
// calls it before it sends, and refuses with its error.
func (op *Operation) Recheck() error {
	n := op.notes.Load()
	if n == nil {
		return nil
	}
	op.mu.Lock()
	gates := n.gates
	op.mu.Unlock()
	for _, g := range gates { // grows only before the attempt comes here
		if err := g.Admits(op); err != nil {
			return err
		}
	}
	return nil
}

// RetryLimiter has a say in every re-send of many operations, on top of each
// one's own budgets.
type RetryLimiter interface {
	// AllowRetry takes one re-send out of what is left, or refuses. It must not
	// block.
	AllowRetry() bool
}

// LimitRetries has the loop ask l before it sends the operation again, whatever
// layer wants that. The outermost limiter counts; the result says whether that
// is l.
func (op *Operation) LimitRetries(l RetryLimiter) bool {
	op.mu.Lock()
	defer op.mu.Unlock()
	n := op.note()
	if n.limiter != nil {
		return false
	}
	n.limiter = l
	return true
}

func (op *Operation) retryLimiter() RetryLimiter {
	n := op.notes.Load()
	if n == nil {
		return nil
	}
	op.mu.Lock()
	defer op.mu.Unlock()
	return n.limiter
}
