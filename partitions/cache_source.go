package partitions

import (
	"context"
	"errors"

	"github.com/reroute-go/reroute/regions"
)

// Source reads what the service knows of its containers. It chooses the region of a read, waits out throttling in that
// region and fails over by itself; a [Registry] only repeats a read whose answer makes no complete map. The contexts it
// gets are never an operation's: they end with Config.FetchTimeout or Close.
//
// Errors should be a [*SourceError] that says what the failure means. Any other error counts as [Transient].
type Source interface {
	// Container returns the properties of the container with this name.
	Container(ctx context.Context, container string) (Container, error)

	// RangePage returns one page of the container's feed of ranges, with what is new since continuation; "" starts at the
	// beginning. With a pin the page must come from that region, because a continuation means nothing elsewhere.
	RangePage(ctx context.Context, container, continuation string, pin regions.Name) (Page, error)
}

// Container is what routing needs of a container's properties.
type Container struct {
	RID        string     // its identity: a container that was deleted and made again has the same name and another RID. Required
	Definition Definition // how it hashes partition keys; one that no container can have is refused when it is read
}

// Page is one page of a feed of ranges.
type Page struct {
	Ranges       []Range      // in any order; a child may come before its parent
	Continuation string       // where the next page begins (the ETag); "" leaves it where it was
	Unchanged    bool         // the end of the feed (304): whatever Ranges holds does not count
	Region       regions.Name // who answered; "" means unknown, and then nothing is pinned
}

// FailureKind says what the failure of a Source means.
type FailureKind uint8

const (
	// Transient: asking again may help.
	Transient FailureKind = iota
	// Absent: there is no such container (404). Remembered for Config.NegativeTTL.
	Absent
	// Forbidden: the credential may not read it (401, 403). Remembered for Config.NegativeTTL.
	Forbidden
	// SessionUnavailable: the region has not caught up with the session yet (404/1002). Never remembered.
	SessionUnavailable
)

// String is the kind in lower case words.
func (k FailureKind) String() string {
	switch k {
	case Transient:
		return "transient"
	case Absent:
		return "absent"
	case Forbidden:
		return "forbidden"
	case SessionUnavailable:
		return "session unavailable"
	}
	return "unknown kind"
}

// SourceError is a failure of a [Source].
type SourceError struct {
	Kind FailureKind // what it means; the zero value is Transient
	Err  error       // what happened; may be nil
}

// Error is the kind and what happened.
func (e *SourceError) Error() string {
	text := "partitions: " + e.Kind.String()
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap returns what happened.
func (e *SourceError) Unwrap() error { return e.Err }

// kindOf is the kind of any error.
func kindOf(err error) FailureKind {
	var failure *SourceError
	if errors.As(err, &failure) {
		return failure.Kind
	}
	return Transient
}
