package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/benchmarks/internal/workload"
)

// Figures of peers that do not do the same work would mean nothing.
func TestAllPeersDoTheWork(t *testing.T) {
	for _, p := range peers() {
		for _, kind := range []workload.Kind{workload.Get, workload.Post} {
			t.Run(p.name+"/"+kind.String(), func(t *testing.T) {
				healthy := &workload.Flaky{}
				calls, err := p.open(healthy, kind)
				require.NoError(t, err)
				call, err := calls()
				require.NoError(t, err)
				require.NoError(t, call())
				require.Equal(t, 1, healthy.Sends())
				if p.retries {
					n, err := p.sends(kind)
					require.NoError(t, err)
					require.Equal(t, 4, n, "three failures and a success")
				}
			})
		}
	}
}
