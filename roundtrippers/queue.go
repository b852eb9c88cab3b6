package roundtrippers

import (
	"container/list"
	"context"

	"github.com/reroute-go/reroute/middleware"
)

// queue holds those who wait for something of a layer's: the essential ones
// first, in order of arrival within each class. The layer's lock guards it.
type queue struct {
	classes [2]list.List
	wakes   int // how many were woken: each waiter once
}

type waiter struct {
	ready chan struct{}
	class middleware.Priority
	place *list.Element // nil once out of the queue
	grant *grant        // what a Circuit hands over
}

func (q *queue) push(class middleware.Priority) *waiter {
	w := &waiter{ready: make(chan struct{}), class: class}
	w.place = q.classes[class].PushBack(w)
	return w
}

// pushFront puts back a waiter whose turn came too early.
func (q *queue) pushFront(w *waiter) {
	w.ready = make(chan struct{})
	w.place = q.classes[w.class].PushFront(w)
}

// first returns whose turn it is among a class, nil if nobody waits.
func (q *queue) first(class middleware.Priority) *waiter {
	if front := q.classes[class].Front(); front != nil {
		return front.Value.(*waiter)
	}
	return nil
}

// next returns whose turn it is, nil if nobody waits.
func (q *queue) next() *waiter {
	if w := q.first(middleware.Essential); w != nil {
		return w
	}
	return q.first(middleware.Background)
}

// wake takes w out and lets it go on.
func (q *queue) wake(w *waiter) {
	if q.remove(w) {
		q.wakes++
		close(w.ready)
	}
}

// remove takes w out and reports whether it still waited.
func (q *queue) remove(w *waiter) bool {
	if w.place == nil {
		return false
	}
	q.classes[w.class].Remove(w.place)
	w.place = nil
	return true
}

func (q *queue) len() int { return q.classes[0].Len() + q.classes[1].Len() }

// ahead returns how many would be served before a newcomer of that class.
func (q *queue) ahead(class middleware.Priority) int {
	if class == middleware.Essential {
		return q.classes[middleware.Essential].Len()
	}
	return q.len()
}

// wait returns nil when w was woken, otherwise the end of ctx; in the second case
// w may have been woken all the same, which remove tells.
func (w *waiter) wait(ctx context.Context) error {
	select {
	case <-w.ready:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
