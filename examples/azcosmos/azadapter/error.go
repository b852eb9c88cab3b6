package azadapter

import (
	"errors"
	"fmt"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/regions"
)

// Error is what the stack gave up on. The SDK hands it to the caller without a retry, in its own wrapping, so find it with errors.As.
//
// errors.As also finds an *azcore.ResponseError where there was an answer, as with the SDK alone, and a *middleware.Error where there was
// none. errors.Is finds middleware.ErrBudgetSpent, ErrNotRepeatable, ErrBodyNotReplayable and ErrCircuitOpen, and regions.ErrNoRegion. It
// does not find what the SDK would retry: io.EOF, errors of package net and syscall, and the context.DeadlineExceeded of a limit other
// than the caller's own context. Those are in Cause.
type Error struct {
	// Outcome is the dialect's judgement of the end.
	Outcome middleware.Outcome
	// Report is the operation's story; empty if no operation passed through the stack.
	Report middleware.Report

	response *azcore.ResponseError
	cause    error
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("azadapter: ")
	if e.Report.Operation != "" {
		b.WriteString(e.Report.Operation + ": ")
	}
	if e.Outcome.Status != 0 {
		fmt.Fprintf(&b, "%s %s", e.Outcome.Code, e.Outcome.Cause)
		if e.response != nil && e.response.ErrorCode != "" {
			fmt.Fprintf(&b, " (%s)", e.response.ErrorCode)
		}
	}
	if e.cause != nil {
		b.WriteString(e.cause.Error())
	}
	if e.Outcome.Status != 0 && e.Report.Sends > 0 {
		fmt.Fprintf(&b, ", %s after %d send", e.Report.Stop, e.Report.Sends)
		if e.Report.Sends != 1 {
			b.WriteString("s")
		}
	}
	return b.String()
}

// NonRetriable marks the error for azcore, which then does not retry it.
func (e *Error) NonRetriable() {}

// Cause is what failed, nil where there was an answer. It is no Unwrap: the SDK would find network errors in it and send again.
func (e *Error) Cause() error { return e.cause }

// As finds the answer, or the stack's own error.
func (e *Error) As(target any) bool {
	switch target := target.(type) {
	case **azcore.ResponseError:
		if e.response != nil {
			*target = e.response
			return true
		}
	case **middleware.Error:
		return e.cause != nil && errors.As(e.cause, target)
	}
	return false
}

// Is matches the sentinels that cannot make the SDK send again.
func (e *Error) Is(target error) bool {
	switch target {
	case middleware.ErrBudgetSpent:
		return e.Report.Stop == middleware.BudgetSpent
	case middleware.ErrNotRepeatable:
		return e.Report.Stop == middleware.NotRepeatable
	case middleware.ErrBodyNotReplayable, middleware.ErrCircuitOpen, regions.ErrNoRegion:
		return e.cause != nil && errors.Is(e.cause, target)
	}
	return false
}

// TooLargeError is the Cause of an Error: a body was longer than Transport.MaxBytes.
type TooLargeError struct{ MaxBytes int64 }

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("the answer is longer than %d bytes", e.MaxBytes)
}
