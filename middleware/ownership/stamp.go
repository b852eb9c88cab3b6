package ownership

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/reroute-go/reroute/internal/check"
	"github.com/reroute-go/reroute/middleware"
)

// Stamp is a Layer, to be stacked below Route (OwnershipBuilder.PerAttempt), that
// tells the node what it may want to know of each attempt: by which epoch of the
// map it was chosen, so that it can answer Moved to a client whose map is old,
// and how many milliseconds the caller will wait yet, so that it need not work
// for nobody. On the node, Words.Epoch and Words.Remaining read them. It is for
// services that number their maps: the epochs of others are the registry's own.
type Stamp struct {
	Words // zero = the recommended headers
}

// Wrap reports the names of its two headers that can be none.
func (l Stamp) Wrap(next http.RoundTripper) (http.RoundTripper, error) {
	var errs []error
	for _, f := range []struct{ field, name string }{{"EpochHeader", l.epoch()}, {"RemainingHeader", l.remaining()}} {
		if !check.HeaderName(f.name) {
			errs = append(errs, fmt.Errorf("%s is %q, want the name of a header", f.field, check.Shown(f.name)))
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return middleware.Operate(next, nil, func(op *middleware.Operation, req *http.Request, next http.RoundTripper) (*http.Response, error) {
		deadline, limited := req.Context().Deadline()
		epoch := op.Target().Epoch
		if !limited && epoch == 0 {
			return next.RoundTrip(req)
		}
		copied := *req
		copied.Header = req.Header.Clone()
		if copied.Header == nil {
			copied.Header = http.Header{}
		}
		if epoch != 0 {
			copied.Header.Set(l.epoch(), strconv.FormatUint(epoch, 10))
		}
		if limited {
			left := max(time.Until(deadline), 0)
			copied.Header.Set(l.remaining(), strconv.FormatInt(left.Milliseconds(), 10))
		}
		return next.RoundTrip(&copied)
	}), nil
}
