package roundtrippers

import (
	"context"
	"errors"
	"net/http"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/partitions"
	"github.com/reroute-go/reroute/regions"
)

// Route picks the region of each attempt and is the only layer that rewrites a
// request's address, URL and Host, on a copy. It prefers the registry's order,
// heeds marks, the caller's exclusions and what the other layers wish, and
// tells the registry how the endpoint behaved.
//
// Requests that the dialect calls Foreign, such as those to a host that is none
// of the account's, pass as they are.
//
// In a service whose keys change owner there are no regions to choose from:
// Owners says where each attempt goes.
type Route struct {
	Dialect middleware.Dialect // required
	Regions *regions.Registry  // required, unless there are Owners
	// Owners knows which node owns a request's key, instead of Regions.
	Owners Owners
	// KeepHost leaves the Host header as the caller set it when Owners choose the
	// node; otherwise it names the node. TLS checks the node's own name either
	// way, unless the base transport's TLSClientConfig.ServerName says another.
	KeepHost bool
	// Partitions knows where the writes of single partitions went; nil = they go
	// where the account's do.
	Partitions *partitions.Registry
	// StrictExclusion fails an operation that excludes every region with
	// regions.ErrNoRegion instead of falling back to the hub.
	StrictExclusion bool
}

// Wrap reports missing fields and those that exclude each other.
func (l Route) Wrap(next http.RoundTripper) (http.RoundTripper, error) {
	var m mistakes
	m.dialect(l.Dialect)
	m.owners(l.Owners)
	switch {
	case l.Owners != nil && l.Regions != nil:
		m.add(errors.New("Owners and Regions are both set: who picks the endpoint?"))
	case l.Owners == nil && l.KeepHost:
		m.add(errors.New("KeepHost is true without Owners: a region's endpoint needs its own Host"))
	}
	if l.Owners == nil {
		m.regions(l.Regions)
	}
	switch {
	case len(m) > 0:
		return nil, m.join()
	case l.Owners != nil:
		return middleware.Relay(next, l.Dialect, (&l).toOwner), nil
	}
	return middleware.Relay(next, l.Dialect, (&l).roundTrip), nil
}

func (l *Route) roundTrip(op *middleware.Operation, req *http.Request, next http.RoundTripper) (*http.Response, error) {
	in := op.Intent()
	if in.Scope == middleware.Foreign {
		return next.RoundTrip(req)
	}
	if req.URL == nil {
		return middleware.Refuse(req, errNoURL)
	}
	if in.Scope == middleware.Discovery && op.Sends() == 0 {
		// The global endpoint, if that is what the caller asks, names the topology best.
		op.SetTarget(middleware.Target{Endpoint: req.URL.Host})
		return next.RoundTrip(req)
	}
	placed := op.Placement()
	alone := l.failsOverAlone(in)
	want := l.want(op, in, placed, alone)
	choice, err := l.Regions.Pick(want)
	if err != nil {
		return middleware.Refuse(req, err)
	}
	op.SetTarget(middleware.Target{
		Region: choice.Region, Endpoint: choice.URL.Host, Topology: choice.Topology, Range: placed.Partition.Range,
		Probe:    choice.Probe || placed.Probe != "" && placed.Probe.Equal(choice.Region),
		Override: l.overrides(want, placed.Avoid, choice.Region),
	})
	return l.send(op, in, placed, alone, choice, op.Readdress(req, choice.URL.Scheme, choice.URL.Host), next)
}

// want says what this attempt needs of a region.
func (l *Route) want(op *middleware.Operation, in middleware.Intent, placed middleware.Placement, alone bool) regions.Want {
	want := regions.Want{From: listOf(in), Write: in.Write, Excluded: op.ExcludedRegions(), Strict: l.StrictExclusion, Avoided: op.Avoided()}
	if in.Scope == middleware.Discovery {
		want.Excluded = nil // routing preferences do not blind us to the topology
	}
	if len(placed.Avoid) > 0 {
		want.Avoided = append(want.Avoided[:len(want.Avoided):len(want.Avoided)], shunned(placed.Avoid)...)
	}
	switch {
	case op.WantsHub():
		want.From = regions.Hub
		if region, moved := l.moved(placed); moved {
			// The partition's own hub is where its writes were confirmed.
			want.From, want.Prefer = regions.ReadRegions, region
		}
	case alone:
		// The service may have moved this partition's writes to any region that
		// serves reads: where they were confirmed last, or the hub, then the rest.
		want.From, want.Prefer = regions.ReadRegions, l.writesOf(placed)
	}
	return want
}

// failsOverAlone reports whether single partitions can have their writes in
// another region than the account's (PPAF, DESIGN rule 10). One that is not known
// walks the regions too; where it was found is then not remembered.
func (l *Route) failsOverAlone(in middleware.Intent) bool {
	if !in.Write || !in.Partitioned || l.Partitions == nil {
		return false
	}
	topology := l.Regions.Topology()
	return topology != nil && topology.PartitionFailover && !topology.MultiWrite && len(topology.Reads) > 1
}

func (l *Route) writesOf(placed middleware.Placement) regions.Name {
	if region, moved := l.moved(placed); moved {
		return region
	}
	return l.hub()
}

// moved is where the partition's writes were confirmed away from the hub.
func (l *Route) moved(placed middleware.Placement) (regions.Name, bool) {
	if l.Partitions == nil {
		return "", false
	}
	return l.Partitions.Override(placed.Partition)
}

func (l *Route) hub() regions.Name {
	if names := l.Regions.Names(regions.Hub); len(names) > 0 {
		return names[0]
	}
	return ""
}

// overrides reports whether the partition's own history or health, and not the
// usual order, leads to a region.
func (l *Route) overrides(want regions.Want, avoid []regions.Name, chosen regions.Name) bool {
	if want.Prefer != "" {
		return chosen.Equal(want.Prefer) && !chosen.Equal(l.hub())
	}
	if len(avoid) == 0 {
		return false
	}
	for _, n := range l.Regions.Names(want.From) {
		if n.Equal(chosen) {
			return false
		}
		if contains(avoid, n) {
			return true
		}
	}
	return false
}

// shunned are regions that other ones come before, failed ones of this operation too.
func shunned(names []regions.Name) []regions.Avoided {
	out := make([]regions.Avoided, len(names))
	for i, n := range names {
		out[i] = regions.Avoided{Region: n, Times: 2}
	}
	return out
}

// listOf names the regions that can serve: several write regions take items, but
// only the hub takes changes to what describes them.
func listOf(in middleware.Intent) regions.List {
	switch {
	case !in.Write:
		return regions.ReadRegions
	case in.Scope == middleware.Metadata:
		return regions.Hub
	default:
		return regions.WriteRegions
	}
}

func (l *Route) send(op *middleware.Operation, in middleware.Intent, placed middleware.Placement, alone bool, choice regions.Choice, req *http.Request, next http.RoundTripper) (*http.Response, error) {
	verdict, reason := regions.Neutral, regions.Unreachable
	defer func() { // on a panic too: the probe is given back
		l.tell(req.Context(), op, l.Regions.Report(choice, verdict, reason), reason)
	}()
	resp, err := next.RoundTrip(req)
	out := op.Judge(l.Dialect, resp, err)
	verdict, reason = endpointVerdict(out, in, choice.Probe, resp != nil)
	if (placed.Watched || alone) && resp != nil && verdict == regions.Failed && !choice.Probe {
		verdict = regions.Neutral // it speaks against the partition, which moves alone
	}
	if alone && out.Confirms && l.Partitions.Confirm(placed.Partition, choice.Region, l.hub()) {
		op.Emit(req.Context(), middleware.Event{Kind: middleware.OverrideRecorded, Attempt: op.Sends(), Target: op.Target()})
	}
	return resp, err
}

func (l *Route) tell(ctx context.Context, op *middleware.Operation, change regions.Change, reason regions.Reason) {
	switch change {
	case regions.Marked:
		op.Emit(ctx, middleware.Event{Kind: middleware.EndpointMarked, Attempt: op.Sends(), Target: op.Target(), Code: reason.String()})
	case regions.Restored:
		op.Emit(ctx, middleware.Event{Kind: middleware.EndpointRestored, Attempt: op.Sends(), Target: op.Target()})
	}
}

// endpointVerdict judges the endpoint, not the request (DESIGN rule 7). What was
// certainly not sent, and server failures, speak against it. A connection that
// broke under way shows that the endpoint was there, so it only fails a probe.
func endpointVerdict(out middleware.Outcome, in middleware.Intent, probe, answered bool) (regions.Verdict, regions.Reason) {
	switch out.Cause {
	case middleware.Unreachable:
		return regions.Failed, regions.Unreachable
	case middleware.Removed:
		return regions.Failed, regions.RegionGone
	case middleware.NotPrimary:
		if in.Write {
			return regions.Failed, regions.WriteForbidden
		}
		return regions.Neutral, 0
	case middleware.Split, middleware.Migrating:
		return regions.Neutral, 0 // it says something of the partition only (R008)
	case middleware.Unavailable, middleware.Gone:
		return regions.Failed, regions.ServerError
	case middleware.Timeout:
		if answered || probe {
			return regions.Failed, regions.Timeout
		}
		return regions.Neutral, 0
	case middleware.Broken:
		if probe {
			return regions.Failed, regions.Unreachable
		}
		return regions.Neutral, 0
	}
	if answered {
		return regions.Healthy, 0
	}
	return regions.Neutral, 0
}
