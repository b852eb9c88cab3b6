package roundtrippers

import (
	"net/http"
	"time"

	"github.com/reroute-go/reroute/middleware"
)

// APIBuilder stacks the layers of an API client in the standard order, outermost
// first:
//
//	Observe, Deadline    what is told, and for how long, per operation
//	RetryBudget          what all operations may send again, together
//	PerOperation...      your layers, once per operation
//	IdempotencyKey       one key per logical write
//	Guard                marks what must not be repeated
//	Retry                sends again, as the operation's Patience says
//	Auth                 replays once with a fresh token
//	Pause                sends nothing while the API has asked for that
//	Circuit              the API's breaker
//	Auth                 puts the token on
//	RateLimit            sends per second
//	Concurrency          requests in flight
//	Pause                learns of it before the next one gets the permit
//	AttemptTimeout       limits one attempt
//	PerAttempt...        your layers, on every send: signing, tracing
//	Base                 the transport
//
// No wait of one of them holds what another one hands out: a permit covers only
// the request, a token is taken when the breaker has let the attempt through, and
// after each wait the breaker and the pause above it are asked once more.
//
// The pointers hold state: keep yours to ask for it, or to share it between the
// clients of one API. Dialect is filled in where a layer leaves it nil.
type APIBuilder struct {
	Dialect middleware.Dialect // required

	// Observe is told what happens; nil = nobody, for free.
	Observe middleware.Observer
	// OperationTimeout limits each operation; 0 = only the caller's context does,
	// and an essential operation without an end in its context has none.
	OperationTimeout time.Duration
	// AttemptTimeout limits each attempt; 0 = only the base does.
	AttemptTimeout time.Duration
	// MaxReplayBytes of a body without GetBody are kept; 0 = 2 MiB, -1 = none.
	MaxReplayBytes int64

	// PerOperation are your layers that see each operation once; nil = none.
	PerOperation []middleware.Layer
	// PerAttempt are your layers that see each send, Auth's token on it; nil = none.
	PerAttempt []middleware.Layer

	// NoGuard leaves the Guard out: also a POST without a key is sent again when it
	// may have been carried out, as the seed's client does.
	NoGuard bool

	RetryBudget    *RetryBudget    // nil = none
	IdempotencyKey *IdempotencyKey // nil = keys are the caller's business
	Guard          Guard           // zero = its defaults
	Retry          Retry           // zero = its defaults
	Auth           *Auth           // nil = none
	Pause          *Pause          // nil = none
	Circuit        *Circuit        // nil = one with the defaults
	RateLimit      *RateLimit      // nil = none
	Concurrency    *Concurrency    // nil = one with the defaults

	// Base sends; nil = http.DefaultTransport.
	Base http.RoundTripper
}

// Layers returns the layers in order, for those who want to change the list and
// call middleware.Stack themselves.
func (b APIBuilder) Layers() []middleware.Layer {
	b.fill()
	var layers []middleware.Layer
	add := func(stacked bool, l middleware.Layer) {
		if stacked {
			layers = append(layers, l)
		}
	}
	add(b.Observe != nil, b.Observe)
	add(b.MaxReplayBytes != 0, middleware.ReplayBody{MaxBytes: b.MaxReplayBytes})
	add(b.OperationTimeout != 0, Deadline{After: b.OperationTimeout})
	add(b.RetryBudget != nil, b.RetryBudget)
	layers = append(layers, b.PerOperation...)
	add(b.IdempotencyKey != nil, b.IdempotencyKey)
	add(!b.NoGuard, b.Guard)
	add(true, b.Retry)
	var replay, attach middleware.Layer
	if b.Auth != nil {
		replay, attach = b.Auth.Split()
	}
	add(b.Auth != nil, replay)
	add(b.Pause != nil, b.Pause)
	add(true, b.Circuit)
	add(b.Auth != nil, attach)
	add(b.RateLimit != nil, b.RateLimit)
	add(true, b.Concurrency)
	add(b.Pause != nil, b.Pause)
	add(b.AttemptTimeout != 0, AttemptTimeout{After: b.AttemptTimeout})
	return append(layers, b.PerAttempt...)
}

// fill gives the layers what they have in common.
func (b *APIBuilder) fill() {
	if b.Circuit == nil {
		b.Circuit = &Circuit{}
	}
	if b.Concurrency == nil {
		b.Concurrency = &Concurrency{}
	}
	for _, d := range b.dialects() {
		if *d == nil {
			*d = b.Dialect
		}
	}
}

// dialects are those of the layers that have one.
func (b *APIBuilder) dialects() []*middleware.Dialect {
	dialects := []*middleware.Dialect{&b.Guard.Dialect, &b.Retry.Dialect}
	if b.Circuit != nil {
		dialects = append(dialects, &b.Circuit.Dialect)
	}
	if b.Pause != nil {
		dialects = append(dialects, &b.Pause.Dialect)
	}
	if b.Auth != nil {
		dialects = append(dialects, &b.Auth.Dialect)
	}
	return dialects
}

// Build stacks the layers over the base. Its error names every bad field.
func (b APIBuilder) Build() (http.RoundTripper, error) {
	var m mistakes
	if negative(&m, "OperationTimeout", b.OperationTimeout); b.OperationTimeout < 0 {
		b.OperationTimeout = 0
	}
	m.shared(&b.Dialect, &b.AttemptTimeout, &b.MaxReplayBytes)
	rt, err := middleware.Stack(b.Base, b.Layers()...)
	for _, d := range b.dialects() {
		if *d == (noDialect{}) {
			*d = nil // the pointers are the caller's, who may build again
		}
	}
	return m.stacked("APIBuilder", rt, err)
}
