package roundtrippers

import (
	"slices"
	"strings"
)

// EndpointPools is what Pools knows of one endpoint.
type EndpointPools struct {
	Endpoint string      // scheme://host
	Pools    []PoolState // those that get new requests
	InFlight int         // requests over all pools, those being left included
	// Failures, Canceled and Replaced are counts since the endpoint was first
	// used: transport errors, attempts the caller gave up, and pools replaced for
	// failing.
	Failures, Canceled, Replaced int64
}

// PoolState is how one pool is doing.
type PoolState struct {
	InFlight int // requests now
	Failures int // in a row
}

// Stats returns a snapshot for reports, in order of the endpoints' names. While
// requests pass, its numbers are not of one instant.
func (p *Pools) Stats() []EndpointPools {
	t := p.table.Load()
	if t == nil {
		return nil
	}
	stats := make([]EndpointPools, 0, len(t.endpoints))
	for key, e := range t.endpoints {
		s := EndpointPools{
			Endpoint: key.scheme + "://" + key.host,
			Failures: e.failures.Load(), Canceled: e.canceled.Load(), Replaced: e.replaced.Load(),
		}
		set := e.set.Load()
		for _, c := range set.active {
			n := int(c.inFlight.Load())
			s.InFlight += n
			s.Pools = append(s.Pools, PoolState{InFlight: n, Failures: int(c.failures.Load())})
		}
		for _, c := range set.retired {
			s.InFlight += int(c.inFlight.Load())
		}
		stats = append(stats, s)
	}
	slices.SortFunc(stats, func(a, b EndpointPools) int { return strings.Compare(a.Endpoint, b.Endpoint) })
	return stats
}
