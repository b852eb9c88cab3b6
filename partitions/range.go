package partitions

import (
	"errors"
	"fmt"
)

// Range is one physical partition: an id and the keys from Min to just before Max.
type Range struct {
	ID      string   // the service's name for it, never reused for other boundaries
	Min     Key      // inclusive
	Max     Key      // exclusive
	Parents []string // ids of the ranges that it came from by split or merge, possibly over several generations
	Status  Status   // as the service said; "" when it said nothing
}

// Status is what a service says of the condition of a range. A range of any status owns its keys: a [Map] keeps it.
// Values that are not listed here are kept as they came.
type Status string

// The statuses of Cosmos DB.
const (
	StatusOnline    Status = "online"    // it serves
	StatusSplitting Status = "splitting" // it is being split, its children are not there yet
	StatusOffline   Status = "offline"   // it does not serve now
	StatusSplit     Status = "split"     // its children have taken over
)

// String is `"id" [min, max)`.
func (r Range) String() string {
	return fmt.Sprintf("%q [%s, %s)", r.ID, r.Min, r.Max)
}

// check refuses what cannot be a range whatever stands beside it.
func (r *Range) check() error {
	if r.ID == "" || !r.Min.less(&r.Max) || r.Max.Compare(MaxKey()) > 0 {
		return &MapError{Err: ErrMalformedRange, Range: *r}
	}
	for _, parent := range r.Parents {
		if parent == r.ID {
			return &MapError{Err: ErrMalformedRange, Range: *r, Other: *r}
		}
	}
	return nil
}

// What can be wrong with a set of ranges. They come inside a [*MapError] that names the ranges; test with errors.Is.
var (
	// ErrNoRanges: the set is empty, or every range in it is a parent of another.
	ErrNoRanges = errors.New("no ranges")
	// ErrGap: keys that no range owns. A set that was read in the middle of a split looks like this.
	ErrGap = errors.New("gap")
	// ErrOverlap: keys that two ranges own.
	ErrOverlap = errors.New("overlap")
	// ErrDuplicateRange: one id with two different boundaries. The same range twice is no error: the later copy is the newer one.
	ErrDuplicateRange = errors.New("duplicate id")
	// ErrMalformedRange: no id, an end that is not after its start or is beyond MaxKey, or a range that is its own parent.
	ErrMalformedRange = errors.New("malformed range")
	// ErrUnknownParent: a delta does not fit the map, and one of its ranges has only parents that the map has never seen.
	ErrUnknownParent = errors.New("unknown parent")
)

// MapError says why ranges make no [Map]. Unwrap gives one of the Err values of this package.
type MapError struct {
	Err   error // what is wrong
	Range Range // the range at fault; of two neighbours the lower one. Without an id: the start of the line
	Other Range // its upper neighbour, the other copy, or the parent (only the id). Without an id: there is none
}

// Error names what is wrong and the ranges.
func (e *MapError) Error() string {
	text := "partitions: " + e.Err.Error()
	switch {
	case e.Err == ErrNoRanges:
		return text
	case e.Err == ErrMalformedRange && e.Other.ID != "":
		return text + ": " + e.Range.String() + " is its own parent"
	case e.Err == ErrMalformedRange:
		return text + ": " + e.Range.String()
	case e.Err == ErrUnknownParent:
		return fmt.Sprintf("%s %q of range %s", text, e.Other.ID, e.Range)
	case e.Range.ID == "":
		return text + " before range " + e.Other.String()
	case e.Other.ID == "":
		return text + " after range " + e.Range.String()
	}
	return text + " between ranges " + e.Range.String() + " and " + e.Other.String()
}

// Unwrap returns what is wrong.
func (e *MapError) Unwrap() error { return e.Err }
