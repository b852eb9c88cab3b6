package roundtrippers

import (
	"errors"
	"net/http"
	"time"

	"github.com/reroute-go/reroute/internal/check"
	"github.com/reroute-go/reroute/middleware"
)

// OwnershipBuilder stacks the layers for a service whose keys change owner,
// outermost first:
//
//	Observe, Deadline    what is told, and for how long, per operation
//	PerOperation...      your layers, once per operation
//	Guard                marks what must not be repeated
//	Reroute              reads the map, sends again
//	Route                finds the owner for this attempt, rewrites the address
//	AttemptTimeout       limits one attempt
//	PerAttempt...        your layers, on every send: signing, tracing
//	Base                 the transport
//
// A layer's zero value has the documented defaults; set a field of it to tune
// it. Dialect and Owners are filled in where a layer leaves them nil.
type OwnershipBuilder struct {
	Dialect middleware.Dialect // required
	Owners  Owners             // required
	// Switches are what the operator has set, see SwitchesFromEnv. The fields
	// below win, save that either side can disable retries.
	Switches Switches

	// Observe is told what happens; nil = nobody, for free.
	Observe middleware.Observer
	// OperationTimeout limits each operation; 0 = 60 s, -1 = only the caller's
	// context does.
	OperationTimeout time.Duration
	// AttemptTimeout limits each attempt; 0 = only the base does.
	AttemptTimeout time.Duration
	// MaxReplayBytes of a body without GetBody are kept; 0 = 2 MiB, -1 = none.
	MaxReplayBytes int64

	// PerOperation are your layers that see each operation once; nil = none.
	PerOperation []middleware.Layer
	// PerAttempt are your layers that see each send; nil = none.
	PerAttempt []middleware.Layer

	// NoGuard leaves the Guard out: every write is sent at least once, as the
	// seed's client does, also a POST whose answer was lost.
	NoGuard bool

	Guard   Guard   // zero = its defaults
	Reroute Reroute // zero = its defaults
	Route   Route   // zero = its defaults

	// Base sends; nil = the dialect's NewTransport if it has one, else
	// http.DefaultTransport.
	Base http.RoundTripper
}

// Layers returns the layers in order, for those who want to change the list and
// call middleware.Stack themselves, over Transport.
func (b OwnershipBuilder) Layers() []middleware.Layer {
	var layers []middleware.Layer
	add := func(stacked bool, l middleware.Layer) {
		if stacked {
			layers = append(layers, l)
		}
	}
	b.fill()
	add(b.Observe != nil, b.Observe)
	add(b.MaxReplayBytes != 0, middleware.ReplayBody{MaxBytes: b.MaxReplayBytes})
	add(b.OperationTimeout != -1, Deadline{After: b.OperationTimeout})
	layers = append(layers, b.PerOperation...)
	add(!b.NoGuard, b.Guard)
	add(true, b.Reroute)
	add(true, b.Route)
	add(b.AttemptTimeout != 0, AttemptTimeout{After: b.AttemptTimeout})
	return append(layers, b.PerAttempt...)
}

// fill gives the layers what they have in common, and what the switches say.
func (b *OwnershipBuilder) fill() {
	for _, d := range []*middleware.Dialect{&b.Guard.Dialect, &b.Reroute.Dialect, &b.Route.Dialect} {
		if *d == nil {
			*d = b.Dialect
		}
	}
	for _, o := range []*Owners{&b.Reroute.Owners, &b.Route.Owners} {
		if *o == nil {
			*o = b.Owners
		}
	}
	b.OperationTimeout = orDefault(b.OperationTimeout, orDefault(b.Switches.RequestTimeout, time.Minute))
	b.Reroute.RefreshWait = orDefault(b.Reroute.RefreshWait, b.Switches.RefreshWait)
	if b.Switches.DisableRetries && b.Reroute.Attempts >= 0 { // one that is no count is refused
		b.Reroute.Attempts = 1
	}
}

// Build stacks the layers over the base. Its error names every bad field.
func (b OwnershipBuilder) Build() (http.RoundTripper, error) {
	var m mistakes
	if negativeOrNone(&m, "OperationTimeout", b.OperationTimeout); b.OperationTimeout < -1 {
		b.OperationTimeout = 0
	}
	m.shared(&b.Dialect, &b.AttemptTimeout, &b.MaxReplayBytes)
	b.Switches.validate(&m)
	switch {
	case b.Owners == nil && b.Route.Owners == nil:
		m.add(errors.New("Owners is nil: who knows which node owns what?"))
		b.Owners = noOwners{}
	case check.IsNil(b.Owners) && b.Owners != nil:
		m.owners(b.Owners)
		b.Owners = noOwners{}
	}
	rt, err := middleware.Stack(b.Transport(), b.Layers()...)
	return m.stacked("OwnershipBuilder", rt, err)
}

// Transport returns what Build puts at the bottom: Base, or what the dialect's
// service wants. It is for those who stack a changed list of Layers.
func (b OwnershipBuilder) Transport() http.RoundTripper {
	if b.Base != nil {
		return b.Base
	}
	if t, ok := b.Dialect.(Transporter); ok {
		return t.NewTransport()
	}
	return http.DefaultTransport
}
