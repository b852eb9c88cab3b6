package partitions

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/reroute-go/reroute/internal/check"
	"github.com/reroute-go/reroute/regions"
)

// Config configures a [Registry]. Zero values are the defaults named at each field; New refuses negative ones.
type Config struct {
	Source   Source          // required; one with a method Validate() error is asked by New
	Failover FailoverOptions // of the breakers; what it leaves open the environment decides, then the defaults

	// LookupEnv is where options that are not set are looked up, once, by New. nil is os.LookupEnv.
	LookupEnv func(name string) (value string, ok bool)

	// MaxContainers bounds the containers that are remembered, missing ones included: 1,000. A map takes about 200 bytes for
	// each range. One more takes the place of one that was not used lately, whose breakers and overrides go too.
	MaxContainers int

	FetchTimeout time.Duration // of reading a container and its ranges, all repetitions included: 90 s
	RefreshWait  time.Duration // an operation waits so long for a read, and goes on without it: 15 s

	// RefreshInterval is the shortest time from one successful read of a container to the next: 100 ms. A refresh that
	// comes earlier waits for it, so it is late but never missed.
	RefreshInterval time.Duration

	// NegativeTTL is how long Absent and Forbidden are remembered: 10 s, allowed are 5 s to 30 s. [Registry.Refresh] asks
	// nevertheless (pkrange-gaps.md, gap 4).
	NegativeTTL time.Duration

	// IncompleteRetries is how often ranges that make no complete map are read again at once: 3 (gap 2).
	IncompleteRetries int
	// IncompleteBackoff is the wait before the first of those reads, doubling: 100 ms, at most 1 min.
	IncompleteBackoff time.Duration
}

// Partition names one partition of an account. Partitions are comparable; the zero Partition is none.
type Partition struct {
	Container string // its RID: names are used again, and every container has a range "0"
	Range     string // id of the range
}

// Registry knows the partitions of one account: which partition a key belongs to, which regions a partition stays away
// from, and where its writes go. One Registry serves every client of an account. All methods may be called
// concurrently; none holds a lock while it waits, and what is known already is read without one.
type Registry struct {
	cache     *cache
	health    *health
	overrides *overrides
}

// New checks cfg and the environment. The Registry knows no container yet; it reads each when an operation first needs it.
func New(cfg Config) (*Registry, error) {
	var errs []error
	if err := check.Part("partitions: Config.Source", cfg.Source); err != nil {
		errs = append(errs, err)
	}
	for _, f := range []struct {
		name           string
		value          *time.Duration
		def, low, high time.Duration
	}{
		{"FetchTimeout", &cfg.FetchTimeout, 90 * time.Second, 1, longest},
		{"RefreshWait", &cfg.RefreshWait, 15 * time.Second, 1, longest},
		{"RefreshInterval", &cfg.RefreshInterval, 100 * time.Millisecond, 1, longest},
		{"NegativeTTL", &cfg.NegativeTTL, 10 * time.Second, 5 * time.Second, 30 * time.Second},
		{"IncompleteBackoff", &cfg.IncompleteBackoff, 100 * time.Millisecond, 1, time.Minute},
	} {
		if *f.value == 0 {
			*f.value = f.def
		}
		if *f.value < f.low || *f.value > f.high {
			errs = append(errs, fmt.Errorf("partitions: Config.%s is %v: must be %v to %v", f.name, *f.value, f.low, f.high))
		}
	}
	for _, f := range []struct {
		name      string
		value     *int
		def, high int
	}{
		{"MaxContainers", &cfg.MaxContainers, 1000, 1 << 20},
		{"IncompleteRetries", &cfg.IncompleteRetries, 3, 20},
	} {
		if *f.value == 0 {
			*f.value = f.def
		}
		if *f.value < 1 || *f.value > f.high {
			errs = append(errs, fmt.Errorf("partitions: Config.%s is %d: must be 1 to %d", f.name, *f.value, f.high))
		}
	}
	if cfg.LookupEnv == nil {
		cfg.LookupEnv = os.LookupEnv
	}
	limits, err := cfg.Failover.decide(cfg.LookupEnv)
	if err := errors.Join(append(errs, err)...); err != nil {
		return nil, err
	}
	r := &Registry{health: newHealth(limits), overrides: newOverrides(limits.maxTracked)}
	r.cache = newCache(cfg, r.moved)
	return r, nil
}

// Close ends reads that are under way and lets no new one start. What is known stays usable.
func (r *Registry) Close() { r.cache.close() }

// Resolved is where an operation belongs, as known when it was resolved: give it back to Refresh, RefreshContainer or
// Served when an answer shows it to be stale. A Resolved that came with an error has no partition but serves for that too.
type Resolved struct {
	// Partition is zero when nothing is known, and has no Range when the key is a prefix that several partitions share.
	Partition Partition

	container *container
	routing   *routing
}

// name is the container's, "" of nothing. It is looked up anew each time: another
// may have taken the container's place meanwhile.
func (r *Resolved) name() string {
	if r.container == nil {
		return ""
	}
	return r.container.name
}

// Resolve finds the partition of a partition key, as in [Definition.Span]. The first operations on a container wait for
// its ranges, for Config.RefreshWait and half of what time ctx has left at most, and share one read; afterwards nothing waits, also while ranges are read anew.
//
// Errors: a [*KeyError] or [*DefinitionError] of the key; what the Source said, where Absent and Forbidden come from
// memory for Config.NegativeTTL; a [*MapError] if the ranges are not complete; the context's; snapshot.ErrMaxWait, ErrTimeout and
// ErrClosed. An operation can go on without its partition after all of them.
func (r *Registry) Resolve(ctx context.Context, container, keyHeader string) (Resolved, error) {
	found := Resolved{container: r.cache.container(container)}
	v, err := found.container.resolve(ctx)
	if err != nil {
		return found, err
	}
	found.routing = v
	span, err := v.definition().Span(keyHeader)
	if err != nil {
		return found, err
	}
	found.Partition.Container = v.rid()
	if first, end := v.ranges.Overlapping(span); end-first == 1 {
		found.Partition.Range = v.ranges.ID(first)
	}
	return found, nil
}

// ErrUnknownRange: the container has no range with this id. It may have been split or merged away, see ErrRangeGone.
var ErrUnknownRange = errors.New("partitions: unknown range")

// ErrRangeGone: the range was split or merged into others. It matches ErrUnknownRange too.
var ErrRangeGone = fmt.Errorf("%w: split or merged into others", ErrUnknownRange)

// ResolveRange finds the partition of an operation that names its range itself. Errors are those of Resolve, ErrRangeGone
// and ErrUnknownRange. A range that is not known makes it read the ranges anew, at most once in 5 s for each container.
func (r *Registry) ResolveRange(ctx context.Context, container, rangeID string) (Resolved, error) {
	found := Resolved{container: r.cache.container(container)}
	v, err := found.container.resolve(ctx)
	if err != nil {
		return found, err
	}
	i, ok := v.ranges.FindID(rangeID)
	if !ok && !v.ranges.Gone(rangeID) {
		if v, err = r.cache.unexpected(ctx, container, v); err != nil {
			return found, err
		}
		i, ok = v.ranges.FindID(rangeID)
	}
	found.routing = v
	switch {
	case ok:
		found.Partition = Partition{Container: v.rid(), Range: v.ranges.ID(i)}
		return found, nil
	case v.ranges.Gone(rangeID):
		return found, fmt.Errorf("%w: %q", ErrRangeGone, clip(rangeID))
	}
	return found, fmt.Errorf("%w: %q", ErrUnknownRange, clip(rangeID))
}

// Refresh makes sure that the container's ranges are newer than those seen came from: at once if they are already, else by
// one read that all callers share and that goes on when they leave (410/1002, 1007 and 1008 of Cosmos DB). It asks also
// when the container is remembered as absent or forbidden. Afterwards resolve again.
//
// Only what is new is read, from the region that told the last, and everything if that does not fit. If the read fails the
// old ranges stay, the next read is a complete one, and the error is one of those of Resolve.
func (r *Registry) Refresh(ctx context.Context, seen Resolved) error {
	if seen.name() == "" {
		return nil
	}
	_, err := r.cache.refresh(ctx, seen.name(), seen.routing)
	return err
}

// RefreshContainer does the same for the container's properties, and for its ranges if it turns out to be another one
// (410/1000, 400/1001, 400/1024, an answer with another RID).
func (r *Registry) RefreshContainer(ctx context.Context, seen Resolved) error {
	if seen.name() == "" {
		return nil
	}
	return r.cache.refreshContainer(ctx, seen.name(), seen.routing)
}

// Served takes note of the range that an answer says it came from. If it is another than the one resolved, the ranges are
// read anew in the background, at most once in 5 s for each container. It never waits.
func (r *Registry) Served(seen Resolved, rangeID string) {
	if rangeID == "" || seen.Partition.Range == "" || rangeID == seen.Partition.Range {
		return
	}
	r.cache.suspect(seen.name(), seen.routing)
}

// Admit says which of the candidate regions partition p stays away from, and whether this operation is the one that
// probes. candidates are the regions that the operation may go to, in the order in which it would. With one
// there is nothing to choose, but what becomes of it counts; with none the operation is not watched. Ask anew for each attempt.
//
// While no partition is in trouble it costs one atomic load, and without anything to avoid it allocates nothing.
func (r *Registry) Admit(p Partition, write bool, candidates ...regions.Name) Admission {
	return r.health.admit(p, write, candidates)
}

// Report tells how region served partition p; a is what Admit said, unchanged. Report each attempt once, on every path.
//
//   - Failed: as many in a row as [FailoverOptions] says, without ResetWindow passing between two, trip the breaker.
//   - Healthy starts the count again.
//   - While tripped only the probe counts: Healthy recovers, Failed waits for the next probe, and Neutral (for whatever region)
//     lets another operation probe at once. So does a report on another region than the probe's, which counts there.
//   - Neutral says nothing of a region: the caller cancelled. Nor does a report without one.
func (r *Registry) Report(p Partition, region regions.Name, write bool, a Admission, v regions.Verdict) Transition {
	return r.health.report(p, region, write, &a, v)
}

// Tracked is the number of breakers: of partitions, regions and directions that failed lately.
func (r *Registry) Tracked() int { return r.health.tracked() }

// Override is the region that confirmed the last write of p away from home, and false when there is none.
// It knows of no exclusions and marks: they come first.
func (r *Registry) Override(p Partition) (regions.Name, bool) {
	if o := r.overrides.find(p); o != nil {
		return o.region, true
	}
	return "", false
}

// Confirm records that a write of p was answered by the region that takes p's writes; home is the account's write region,
// where a partition needs no record. It reports whether that is news. Nothing else changes a record: no failure and no time.
// Without partition failover ([Registry.SetPartitionFailover]) it does nothing.
func (r *Registry) Confirm(p Partition, region, home regions.Name) bool {
	return r.overrides.confirm(p, region, home)
}

// SetPartitionFailover takes over the account's flag enablePerPartitionFailoverBehavior; nil, a document without it, keeps
// the last value. It is false at first. A change forgets all overrides. The flag switches the breakers on as well, unless
// FailoverOptions.EnabledOverride forbids; if that changes them, they are forgotten too.
func (r *Registry) SetPartitionFailover(flag *bool) {
	if flag == nil {
		return
	}
	r.overrides.turn(*flag)
	r.health.turn(r.health.limits.on(*flag))
}

// moved drops what is known of partitions that a change of a container's routing did away with.
func (r *Registry) moved(old, new *routing) {
	if old == nil || r.health.tracked() == 0 && r.overrides.count.Load() == 0 {
		return
	}
	if new == nil || old.rid() != new.rid() {
		lost := func(p Partition) bool { return p.Container == old.rid() }
		r.health.forgetIf(lost)
		r.overrides.forgetIf(lost)
		return
	}
	r.overrides.split(old.rid(), old.ranges, new.ranges)
	for i := range old.ranges.Len() {
		if _, stays := new.ranges.FindID(old.ranges.ID(i)); !stays {
			r.health.forget(Partition{Container: old.rid(), Range: old.ranges.ID(i)})
		}
	}
}
