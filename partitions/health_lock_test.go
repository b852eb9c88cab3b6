package partitions

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/regions"
)

// Whoever holds every lock of the registry holds up no healthy operation.
func TestHealthyOperationsTakeNoLock(t *testing.T) {
	flag := true
	r := newRegistry(t, newService("0:-30", "1:30-FF"))
	r.SetPartitionFailover(&flag)
	first := resolve(t, r)
	sick := Partition{Container: first.Partition.Container, Range: "another"}
	for range 10 {
		r.Report(sick, east, false, r.Admit(sick, false, all...), regions.Failed)
	}
	require.True(t, r.Confirm(sick, mid, east))
	require.NotNil(t, r.Admit(sick, false, all...).Avoid, "trouble elsewhere changes nothing")

	for _, lock := range []interface{ Lock() }{&r.health.mu, &r.overrides.mu, &r.cache.mu} {
		lock.Lock()
	}
	for _, write := range []bool{false, true} { // would hang for ever
		found := resolve(t, r)
		require.Equal(t, first, found)
		a := r.Admit(found.Partition, write, all...)
		require.True(t, a.Watched())
		require.Equal(t, Unchanged, r.Report(found.Partition, east, write, a, regions.Healthy))
		_, moved := r.Override(found.Partition)
		require.False(t, moved || r.Confirm(found.Partition, east, east))
		r.Served(found, found.Partition.Range)
	}
	avoided := r.Admit(sick, false, all...).Avoid
	require.Equal(t, []regions.Name{east}, avoided, "nor does one that stays away")
	for _, lock := range []interface{ Unlock() }{&r.health.mu, &r.overrides.mu, &r.cache.mu} {
		lock.Unlock()
	}
}
