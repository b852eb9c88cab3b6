package middleware

import (
	"context"
	"net/http/httptrace"

	"github.com/reroute-go/reroute/idempotency"
	"github.com/reroute-go/reroute/regions"
)

// inputs is what a caller asks of the next operation, in one context value so
// that one look-up finds it all. It is immutable once stored.
type inputs struct {
	excluded     []regions.Name
	level        idempotency.Level
	partitionKey string
	priority     Priority
	patience     *Patience // nil = by priority
}

type inputsKey struct{}

var noInputs inputs

func inputsOf(ctx context.Context) *inputs {
	if in, ok := ctx.Value(inputsKey{}).(*inputs); ok {
		return in
	}
	return &noInputs
}

func (in inputs) in(ctx context.Context) context.Context {
	return context.WithValue(ctx, inputsKey{}, &in)
}

// WithExcludedRegions keeps the operations of ctx away from the named regions,
// whatever happens (DESIGN rule 6). It replaces an earlier list in ctx; no names
// lift it. Names compare without case and spaces.
func WithExcludedRegions(ctx context.Context, names ...regions.Name) context.Context {
	in := *inputsOf(ctx)
	in.excluded = append([]regions.Name(nil), names...)
	return in.in(ctx)
}

// WithIdempotency states what a repeat of the operations of ctx does, over the
// dialect's own judgement. NonIdempotent binds with or without a Guard layer.
func WithIdempotency(ctx context.Context, level idempotency.Level) context.Context {
	in := *inputsOf(ctx)
	in.level = level
	return in.in(ctx)
}

// StatedLevel returns what the caller stated WithIdempotency, Unknown if nothing.
func (op *Operation) StatedLevel() idempotency.Level { return op.inputs.level }

// WithPartitionKey states the partition key of the operations of ctx, in the
// form of the dialect's header, for requests that do not carry it.
func WithPartitionKey(ctx context.Context, key string) context.Context {
	in := *inputsOf(ctx)
	in.partitionKey = key
	return in.in(ctx)
}

// Detach returns a context for requests that a layer makes on its own account,
// such as fetching a token: they start an operation of their own, with budgets
// of their own, and inherit none of the caller's wishes, its Priority included, nor
// its httptrace: what happens to them must not count as the operation's sending.
// Cancellation, deadline and all other values stay.
func Detach(ctx context.Context) context.Context { return detached{ctx} }

type detached struct{ context.Context }

func (d detached) Value(key any) any {
	switch key.(type) {
	case operationKey, inputsKey:
		return nil
	}
	v := d.Context.Value(key)
	if _, trace := v.(*httptrace.ClientTrace); trace {
		return nil
	}
	return v
}
