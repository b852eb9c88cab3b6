package middleware

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Sentinels for errors.Is.
var (
	// ErrCircuitOpen says that a breaker let nothing through.
	ErrCircuitOpen = errors.New("reroute: circuit open")
	// ErrNoOwner says that nobody is known to own the partition: nothing was sent.
	ErrNoOwner = errors.New("reroute: the partition has no known owner")
	// ErrAttemptTimeout says that a layer has ended an attempt that took too long.
	// The request may have been carried out; another endpoint may serve.
	ErrAttemptTimeout = errors.New("reroute: the attempt took too long")
	// ErrBudgetSpent says that an operation ended because a retry budget was used up.
	ErrBudgetSpent = errors.New("reroute: retry budget spent")
	// ErrNotRepeatable says that an operation ended because it may have been
	// carried out and must not be carried out twice.
	ErrNotRepeatable = errors.New("reroute: the operation must not be repeated")
	// ErrNoCredential says that nothing was sent because the credential for it
	// could not be had.
	ErrNoCredential = errors.New("reroute: no credential")
)

// WaitError says that a layer refused to send because what it would have had to
// wait for comes after the deadline. It matches context.DeadlineExceeded.
type WaitError struct {
	For  string        // "the breaker's next probe"
	Wait time.Duration // how long that takes at least
}

// Error says what the wait was for and how long it takes.
func (e *WaitError) Error() string {
	return fmt.Sprintf("reroute: waiting %s for %s would outlive the deadline", round(e.Wait), e.For)
}

// Is matches context.DeadlineExceeded.
func (e *WaitError) Is(target error) bool { return target == context.DeadlineExceeded }

// Timeout is always true.
func (e *WaitError) Timeout() bool { return true }

// CheckWait returns a WaitError if a wait of that length, for the thing named,
// would not end before ctx does. Layers ask before they begin to wait.
func CheckWait(ctx context.Context, wait time.Duration, thing string) error {
	if fits(ctx, wait) {
		return nil
	}
	return &WaitError{For: thing, Wait: wait}
}

// Error is the one error type of an operation that ended without an answer. It
// is made once, where the operation began. errors.Is finds the transport's error
// underneath, context.Canceled or context.DeadlineExceeded when the caller's
// time or patience ended it, and the sentinel of its Stop.
//
// Its text holds no URL query, header or body.
type Error struct {
	// Outcome is the dialect's judgement of the end: in Cosmos DB an operation
	// out of time has the Code "408/20008".
	Outcome Outcome
	// Stop says why nothing was sent again.
	Stop Stop
	// LastStatus and LastSubstatus are those of the newest real answer of any
	// attempt; 0 if there was none.
	LastStatus, LastSubstatus int
	// LastHeader is the header of that answer, nil if there was none; its body is
	// gone. It is shared and must not be changed.
	LastHeader http.Header
	// Report is the operation's story.
	Report Report
	// Err is what failed.
	Err error
}

// typed wraps err with what the operation knows.
func (op *Operation) typed(err error) error {
	e := &Error{Err: discreet(err)}
	op.mu.Lock()
	if last := op.lastAnswer(); last != nil {
		e.LastStatus, e.LastSubstatus, e.LastHeader = int(last.answered), last.substatus, last.header
	}
	if op.stop == Deadline {
		e.Outcome = op.ended(op.dialect(), context.DeadlineExceeded)
	} else {
		e.Outcome = op.judge(op.dialect(), nil, err)
		if op.stop == NotRetried && e.Outcome.Cause == DeadlineExceeded {
			op.stop = Deadline // a layer's refusal to wait beyond it
		}
	}
	e.Stop = op.stop
	op.mu.Unlock()
	e.Report = op.Report()
	return e
}

// Error says in one line why the operation ended, after how many sends and with
// which code.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("reroute: ")
	if e.Report.Operation != "" {
		b.WriteString(e.Report.Operation + ": ")
	}
	fmt.Fprintf(&b, "%s after %s", e.Stop, sends(e.Report.Sends))
	if e.Outcome.Code != "" {
		fmt.Fprintf(&b, " (%s)", e.Outcome.Code)
	}
	if e.LastStatus != 0 {
		fmt.Fprintf(&b, ", last answer %d", e.LastStatus)
		if e.LastSubstatus != 0 {
			fmt.Fprintf(&b, "/%d", e.LastSubstatus)
		}
	}
	fmt.Fprintf(&b, ": %v", Redact(e.Err))
	return b.String()
}

func sends(n int) string {
	if n == 1 {
		return "1 send"
	}
	return strconv.Itoa(n) + " sends"
}

// Unwrap returns the transport's error, or the cause of the context's end.
func (e *Error) Unwrap() error { return e.Err }

// Is makes the error match the context errors and the sentinels by its Stop.
func (e *Error) Is(target error) bool {
	switch target {
	case context.DeadlineExceeded:
		return e.Stop == Deadline
	case context.Canceled:
		return e.Stop == CanceledByCaller
	case ErrBudgetSpent:
		return e.Stop == BudgetSpent
	case ErrNotRepeatable:
		return e.Stop == NotRepeatable
	case ErrBodyNotReplayable:
		return e.Stop == NotReplayable
	}
	return false
}

// Timeout reports whether time ran out, which is what http.Client asks.
func (e *Error) Timeout() bool { return e.Stop == Deadline || e.Outcome.Cause == Timeout }
