package roundtrippers

import (
	"net/http"
	"time"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/partitions"
	"github.com/reroute-go/reroute/regions"
)

// Breaker watches each partition in each region and keeps operations away from
// a region where their partition keeps failing, while all other partitions stay
// (seed "Per-Partition Circuit Breaker", DESIGN rule 9). It needs Partition
// above it, to know the partition, and Route below, to pick another region. It
// refuses nothing: with every region in trouble the usual order holds.
//
// Reads are watched on every account, writes where several regions take them.
type Breaker struct {
	Dialect    middleware.Dialect   // required
	Regions    *regions.Registry    // required
	Partitions *partitions.Registry // required
	// MinAttempt is how long an attempt that the caller's deadline cut off must
	// have had to count as a failure; 0 = 1 s.
	MinAttempt time.Duration
}

// Wrap reports missing and negative fields.
func (l Breaker) Wrap(next http.RoundTripper) (http.RoundTripper, error) {
	var m mistakes
	m.dialect(l.Dialect)
	m.regions(l.Regions)
	m.partitions(l.Partitions)
	negative(&m, "MinAttempt", l.MinAttempt)
	if len(m) > 0 {
		return nil, m.join()
	}
	l.MinAttempt = orDefault(l.MinAttempt, time.Second)
	return middleware.Relay(next, l.Dialect, (&l).roundTrip), nil
}

func (l *Breaker) roundTrip(op *middleware.Operation, req *http.Request, next http.RoundTripper) (*http.Response, error) {
	in, placed := op.Intent(), op.Placement()
	names := l.Regions.Names(listOf(in))
	if placed.Partition.Range == "" || len(names) < 2 || !l.watches(in) {
		return next.RoundTrip(req) // without another region a breaker is of no use
	}
	partition := placed.Partition
	admission := l.Partitions.Admit(partition, in.Write, allowed(names, op.ExcludedRegions())...)
	placed.Avoid, placed.Probe, placed.Watched = admission.Avoid, admission.Probe, admission.Watched()
	op.Place(placed)

	verdict := regions.Neutral
	defer func() { // on a panic too: the probe is given back
		if verdict == regions.Healthy && admission.Probe == "" && l.Partitions.Tracked() == 0 {
			return // no partition has failures that a success could take back
		}
		change := l.Partitions.Report(partition, op.Target().Region, in.Write, admission, verdict)
		if change != partitions.Unchanged {
			op.Emit(req.Context(), breakerEvent(op, change))
		}
	}()
	resp, err := next.RoundTrip(req)
	verdict = l.verdict(op, op.Judge(l.Dialect, resp, err))
	return resp, err
}

// watches reports whether operations of this kind can go elsewhere at all. The
// writes of an account with one write region are PPAF's concern.
func (l *Breaker) watches(in middleware.Intent) bool {
	if !in.Write {
		return true
	}
	topology := l.Regions.Topology()
	return topology != nil && topology.MultiWrite
}

func allowed(names, excluded []regions.Name) []regions.Name {
	if len(excluded) == 0 {
		return names
	}
	var out []regions.Name
	for _, n := range names {
		if !contains(excluded, n) {
			out = append(out, n)
		}
	}
	return out
}

func contains(names []regions.Name, name regions.Name) bool {
	for _, n := range names {
		if n.Equal(name) {
			return true
		}
	}
	return false
}

// verdict judges the partition. A split or a move is no failure of the region: it
// takes place in all of them (R008). All server errors count (pkrange-gaps.md, gap 5),
// and so does what broke under way, since only this partition may be to blame.
// A caller that leaves says nothing; one whose deadline passes says something
// once the attempt had time enough.
func (l *Breaker) verdict(op *middleware.Operation, out middleware.Outcome) regions.Verdict {
	switch out.Cause {
	case middleware.Unavailable, middleware.Timeout, middleware.Gone, middleware.Unreachable, middleware.Broken:
		return regions.Failed
	case middleware.DeadlineExceeded:
		// In an attempt, not in a wait after one.
		if last := op.LastAttempt(); last.Cause == middleware.DeadlineExceeded && last.Elapsed >= l.MinAttempt {
			return regions.Failed
		}
	case middleware.Success, middleware.Final, middleware.Throttled, middleware.Contended, middleware.SessionLag:
		return regions.Healthy
	}
	return regions.Neutral
}

func breakerEvent(op *middleware.Operation, change partitions.Transition) middleware.Event {
	e := middleware.Event{Kind: middleware.BreakerOpened, Attempt: op.Sends(), Target: op.Target(), Code: change.String()}
	if change == partitions.Recovered {
		e.Kind = middleware.BreakerClosed
	}
	return e
}
