package middleware

import (
	"context"
	"net/http"
	"time"
)

// EventKind says what happened.
type EventKind uint8

// The kinds of events.
const (
	// AttemptStarted precedes each send.
	AttemptStarted EventKind = iota
	// AttemptEnded follows each send, exactly once, with its outcome. A layer that
	// refuses for the API's sake, such as an open breaker, tells of a pair whose
	// Elapsed is 0 although nothing was sent.
	AttemptEnded
	// RetryScheduled says that the operation will be sent again after Wait.
	RetryScheduled
	// GaveUp says that a layer would have sent again and may not: see Stop.
	GaveUp
	// TopologyRefreshed says that the topology was read again, or could not be.
	TopologyRefreshed
	// RangesRefreshed says that a partition map was read again, or could not be.
	RangesRefreshed
	// EndpointMarked says that a region's endpoint is to be avoided for a while.
	EndpointMarked
	// EndpointRestored says that a marked endpoint serves again.
	EndpointRestored
	// BreakerOpened says that a breaker gave up on a partition in a region, or on
	// a whole API; a failed probe repeats it. Of an API, Wait is the time to the
	// next probe, longer after each one that failed. Of a partition it is 0: the
	// time is that of partitions.FailoverOptions.UnavailabilityDuration.
	BreakerOpened
	// BreakerClosed says that it serves again.
	BreakerClosed
	// OverrideRecorded says that a partition's writes were found in another region.
	OverrideRecorded
	// PoolReplaced says that a connection pool that kept failing was replaced.
	PoolReplaced
	// RowsPulled says that Rows rows of an answer were read and understood. It comes
	// from those who read answers, never from a layer.
	RowsPulled
	// WritePushed says that a write was acknowledged. It comes from those who write.
	WritePushed
)

var eventNames = [...]string{
	"attempt started", "attempt ended", "retry scheduled", "gave up", "topology refreshed", "ranges refreshed",
	"endpoint marked", "endpoint restored", "breaker opened", "breaker closed", "override recorded", "pool replaced",
	"rows pulled", "write pushed",
}

// String returns the kind in lower case words.
func (k EventKind) String() string {
	if int(k) < len(eventNames) {
		return eventNames[k]
	}
	return "unknown event"
}

// Event is one thing that happened to an operation. Fields that a kind has no
// use for are zero. It holds no credential, header or body.
type Event struct {
	Kind      EventKind // what happened
	Operation string    // dialect's name: "read item"
	Attempt   int       // number of the attempt meant, from 1
	Target
	Cause  Cause         // of the attempt's result; Unjudged before there is one
	Code   string        // dialect's short form: "403/3"; of a mark or a partition's breaker, what happened to it
	Status int           // of the answer, 0 without one
	Budget string        // name of the one that pays, or has no more
	Wait   time.Duration // before the next attempt, or until an API's breaker probes
	// Elapsed is an attempt's round trip: no wait of any layer is in it.
	Elapsed time.Duration
	Bytes   int64 // of the answer's body, as announced; -1 = unknown
	Rows    int   // that were read: RowsPulled
	Stop    Stop  // why nothing is sent again: GaveUp
	Err     error // of the transport, its text without a URL's user and query, or of the refresh; nil = it went well
}

// Observer is told what happens to operations. It is called on the request path
// and never under a lock: it must not block, and may be called from many
// goroutines at once. It is a Layer: stacked outermost it sees all below. An
// operation has one observer, the outermost.
type Observer func(ctx context.Context, e Event)

// Wrap has the operations that pass report to o. A nil Observer is no layer.
func (o Observer) Wrap(next http.RoundTripper) (http.RoundTripper, error) {
	if o == nil {
		return next, nil
	}
	return Relay(next, nil, func(op *Operation, req *http.Request, next http.RoundTripper) (*http.Response, error) {
		op.observer.CompareAndSwap(nil, &o)
		return next.RoundTrip(req)
	}), nil
}

// Emit tells the operation's observer, if there is one, of e. Refreshes are in the
// Report besides.
func (op *Operation) Emit(ctx context.Context, e Event) {
	if e.Kind == TopologyRefreshed || e.Kind == RangesRefreshed {
		op.refreshed(e.Err)
	}
	op.emit(ctx, func() Event { return e })
}

// emit builds the event only where somebody listens.
func (op *Operation) emit(ctx context.Context, build func() Event) {
	observer := op.observer.Load()
	if observer == nil {
		return
	}
	e := build()
	if e.Operation == "" {
		e.Operation = op.Intent().Name
	}
	e.Err = discreet(e.Err)
	(*observer)(ctx, e)
}

// EmitRefused tells of an attempt that a layer refuses to send, as a pair of
// AttemptStarted and AttemptEnded.
func (op *Operation) EmitRefused(ctx context.Context, out Outcome, err error) {
	op.emit(ctx, func() Event { return Event{Kind: AttemptStarted, Attempt: op.Sends() + 1, Target: op.Target()} })
	op.emit(ctx, func() Event {
		return Event{Kind: AttemptEnded, Attempt: op.Sends() + 1, Target: op.Target(), Cause: out.Cause, Code: out.Code, Err: err}
	})
}

// event tells the end of an attempt.
func (a Attempt) event(resp *http.Response) Event {
	e := Event{Kind: AttemptEnded, Attempt: a.Number, Target: a.Target, Cause: a.Cause, Code: a.Code,
		Status: a.Status, Elapsed: a.Elapsed, Err: a.Err}
	if resp != nil {
		e.Bytes = resp.ContentLength
	}
	return e
}
