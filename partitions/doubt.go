package partitions

import "context"

// Doubt has the ranges that seen came from read anew in the background, at most once in 5 s for each container. It never
// waits: it is for answers that prove a map stale and are final all the same. Where nothing was known there is nothing to doubt.
func (r *Registry) Doubt(seen Resolved) {
	if seen.routing != nil {
		r.cache.suspect(seen.name(), seen.routing)
	}
}

// DoubtContainer does the same for the container's properties, and for its ranges if it turns out to be another one.
func (r *Registry) DoubtContainer(seen Resolved) {
	if seen.routing == nil {
		return
	}
	one := r.cache.container(seen.name())
	if one.held.Load() != seen.routing || !one.mayDoubt() {
		return
	}
	// Detached from the operation; the fetch has its own time limit, and Close ends it.
	go func() { _ = one.refresh(context.Background(), seen.routing) }()
}
