package storm

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// timeline is what happened when.
type timeline struct {
	mu    sync.Mutex
	notes []note
	next  int // overwritten next, once there are keptNotes
}

type note struct {
	at   time.Duration
	text string
}

const keptNotes = 20_000

// plan notes what will happen at a time.
func (l *timeline) plan(at time.Duration, format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := note{at, fmt.Sprintf(format, args...)}
	if len(l.notes) < keptNotes {
		l.notes = append(l.notes, n)
		return
	}
	l.notes[l.next] = n
	l.next = (l.next + 1) % keptNotes
}

// between lists the notes of a time, in order, at most so many.
func (l *timeline) between(from, until time.Duration, most int) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var found []note
	for _, n := range l.notes {
		if n.at >= from && n.at <= until {
			found = append(found, n)
		}
	}
	slices.SortStableFunc(found, func(a, b note) int { return cmp.Compare(a.at, b.at) })
	var b strings.Builder
	if skipped := len(found) - most; skipped > 0 {
		fmt.Fprintf(&b, "  ... and %d before\n", skipped)
		found = found[skipped:]
	}
	for _, n := range found {
		fmt.Fprintf(&b, "  %12s  %s\n", n.at.Round(time.Microsecond), n.text)
	}
	return b.String()
}

func (s *storm) note(format string, args ...any) { s.timeline.plan(s.now(), format, args...) }

// tally counts what a storm was made of.
type tally struct {
	operations, sends, faults, events, unanswered atomic.Int64
	virtual                                       time.Duration
}

func (t *tally) add(o *tally) {
	for _, p := range [][2]*atomic.Int64{
		{&t.operations, &o.operations}, {&t.sends, &o.sends}, {&t.faults, &o.faults}, {&t.events, &o.events}, {&t.unanswered, &o.unanswered},
	} {
		p[0].Add(p[1].Load())
	}
	t.virtual += o.virtual
}

func (t *tally) String() string {
	return fmt.Sprintf("%d operations (%d without an answer), %d sends, %d requests struck, %d events, %s of virtual time",
		t.operations.Load(), t.unanswered.Load(), t.sends.Load(), t.faults.Load(), t.events.Load(), t.virtual.Round(time.Second))
}
