package roundtrippers

import (
	"errors"
	"net/http"
	"time"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/partitions"
	"github.com/reroute-go/reroute/regions"
)

// Builder stacks the layers in the standard order, outermost first:
//
//	Observe, Deadline    what is told, and for how long, per operation
//	PerOperation...      your layers, once per operation
//	Guard                marks what must not be repeated
//	Failover             another region
//	Session              a region that has seen the session's writes
//	Partition            finds the partition
//	Breaker              keeps it away from regions where it fails
//	Route                picks the region of this attempt, rewrites the address
//	Throttle             same endpoint, later
//	RetryWith            same endpoint, a little later
//	Shard                same endpoint, another connection pool
//	AttemptTimeout       limits one attempt
//	PerAttempt...        your layers, on every send: signing, tracing
//	Base                 the transport
//
// A layer's zero value has the documented defaults; set a field of it to tune
// it. Dialect and Regions are filled in where a layer leaves them nil.
type Builder struct {
	Dialect middleware.Dialect // required
	// Regions knows where requests can go; nil leaves out Route and Session, and
	// Failover then retries at the same endpoint.
	Regions *regions.Registry
	// Partitions knows the partitions; nil leaves out Partition and Breaker.
	Partitions *partitions.Registry

	// Observe is told what happens; nil = nobody, for free.
	Observe middleware.Observer
	// OperationTimeout limits each operation; 0 = only the caller's context does.
	OperationTimeout time.Duration
	// AttemptTimeout limits each attempt; 0 = only the base does.
	AttemptTimeout time.Duration
	// MaxReplayBytes of a body without GetBody are kept; 0 = 2 MiB, -1 = none.
	MaxReplayBytes int64

	// PerOperation are your layers that see each operation once; nil = none.
	PerOperation []middleware.Layer
	// PerAttempt are your layers that see each send; nil = none.
	PerAttempt []middleware.Layer

	// NoGuard leaves the Guard out: everything is re-sent, as the reference
	// driver does.
	NoGuard bool

	Guard     Guard     // zero = its defaults
	Failover  Failover  // zero = its defaults
	Session   Session   // zero = its defaults
	Partition Partition // zero = its defaults
	Breaker   Breaker   // zero = its defaults
	Route     Route     // zero = its defaults
	Throttle  Throttle  // zero = its defaults
	RetryWith RetryWith // zero = its defaults
	Shard     Shard     // zero = its defaults

	// Base sends; nil = Pools over the dialect's NewTransport, if it has one.
	Base http.RoundTripper
}

// Transporter is a Dialect that knows the base transport its service wants.
type Transporter interface {
	// NewTransport makes a transport; each call makes another one.
	NewTransport() *http.Transport
}

// Layers returns the layers in order, for those who want to change the list and
// call middleware.Stack themselves, over Transport.
func (b Builder) Layers() []middleware.Layer {
	var layers []middleware.Layer
	add := func(stacked bool, l middleware.Layer) {
		if stacked {
			layers = append(layers, l)
		}
	}
	add(b.Observe != nil, b.Observe)
	add(b.MaxReplayBytes != 0, middleware.ReplayBody{MaxBytes: b.MaxReplayBytes})
	add(b.OperationTimeout != 0, Deadline{After: b.OperationTimeout})
	layers = append(layers, b.PerOperation...)

	b.fill()
	routed, placed := b.Regions != nil, b.Partitions != nil
	add(!b.NoGuard, b.Guard)
	add(true, b.Failover)
	add(routed, b.Session)
	add(placed, b.Partition)
	add(placed && routed, b.Breaker)
	add(routed, b.Route)
	add(true, b.Throttle)
	add(true, b.RetryWith)
	add(true, b.Shard)
	add(b.AttemptTimeout != 0, AttemptTimeout{After: b.AttemptTimeout})
	return append(layers, b.PerAttempt...)
}

// fill gives the layers what they have in common.
func (b *Builder) fill() {
	for _, d := range []*middleware.Dialect{
		&b.Guard.Dialect, &b.Failover.Dialect, &b.Session.Dialect, &b.Partition.Dialect, &b.Breaker.Dialect,
		&b.Route.Dialect, &b.Throttle.Dialect, &b.RetryWith.Dialect, &b.Shard.Dialect,
	} {
		if *d == nil {
			*d = b.Dialect
		}
	}
	for _, r := range []**regions.Registry{&b.Failover.Regions, &b.Session.Regions, &b.Breaker.Regions, &b.Route.Regions} {
		if *r == nil {
			*r = b.Regions
		}
	}
	for _, p := range []**partitions.Registry{&b.Partition.Partitions, &b.Breaker.Partitions, &b.Route.Partitions} {
		if *p == nil {
			*p = b.Partitions
		}
	}
}

// Build stacks the layers over the base. Its error names every bad field.
func (b Builder) Build() (http.RoundTripper, error) {
	var m mistakes
	if negative(&m, "OperationTimeout", b.OperationTimeout); b.OperationTimeout < 0 {
		b.OperationTimeout = 0
	}
	m.shared(&b.Dialect, &b.AttemptTimeout, &b.MaxReplayBytes)
	if b.Partitions != nil && b.Regions == nil {
		m.add(errors.New("Partitions is set without Regions: where could a partition go?"))
	}
	rt, err := middleware.Stack(b.Transport(), b.Layers()...)
	return m.stacked("Builder", rt, err)
}

// Transport returns what Build puts at the bottom: Base, or new Pools of what the
// dialect's service wants. It is for those who stack a changed list of Layers: over
// http.DefaultTransport a region that hangs is never left.
func (b Builder) Transport() http.RoundTripper {
	if b.Base != nil {
		return b.Base
	}
	pools := &Pools{}
	if t, ok := b.Dialect.(Transporter); ok {
		pools.New = func() http.RoundTripper { return t.NewTransport() }
	}
	return pools
}
