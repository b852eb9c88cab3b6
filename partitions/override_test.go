package partitions

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/regions"
)

func overrideOf(r *Registry, p Partition) regions.Name {
	region, ok := r.Override(p)
	if !ok {
		return ""
	}
	return region
}

func TestTheRegionThatConfirmedIsRecorded(t *testing.T) { // R121, R122, G20, N101
	inHealth(t, func(t *testing.T, r *Registry, p Partition) {
		require.False(t, r.Confirm(p, west, east), "without the account's flag there is nothing to record")
		require.Empty(t, overrideOf(r, p))
		r.SetPartitionFailover(new(true))
		require.False(t, r.Confirm(p, east, east), "home needs no record")
		require.False(t, r.Confirm(p, "", east))
		require.False(t, r.Confirm(Partition{Container: "rid1"}, west, east))

		require.True(t, r.Confirm(p, mid, east))
		require.Equal(t, mid, overrideOf(r, p), "the region that took it, whichever would be next")
		require.False(t, r.Confirm(p, "centralus", east))
		require.True(t, r.Confirm(p, west, east))
		require.Equal(t, west, overrideOf(r, p))
		require.Empty(t, overrideOf(r, Partition{"rid2", "0"}))
		require.Empty(t, overrideOf(r, Partition{"rid1", "1"}))

		time.Sleep(1000 * time.Hour)
		for range 100 {
			a := r.Admit(p, true, all...)
			r.Report(p, west, true, a, regions.Failed)
		}
		require.Equal(t, west, overrideOf(r, p), "no failure and no time changes it")
		require.True(t, r.Confirm(p, "eastus", east))
		require.Empty(t, overrideOf(r, p), "home again")
		require.Zero(t, r.overrides.count.Load())
		require.Nil(t, r.overrides.table.slots.Load(), "and no memory")
	})
}

func TestAFlipOfTheFlagForgetsTheOverrides(t *testing.T) { // 3.6
	inHealth(t, func(t *testing.T, r *Registry, p Partition) {
		for range 3 {
			r.SetPartitionFailover(new(true))
			require.True(t, r.Confirm(p, west, east))
			r.SetPartitionFailover(new(true))
			r.SetPartitionFailover(nil)
			require.Equal(t, west, overrideOf(r, p))
			r.SetPartitionFailover(new(false))
			require.Empty(t, overrideOf(r, p))
			require.False(t, r.Confirm(p, west, east))
		}
	})
}

func TestFiftyConfirmationsAtOnceAreOneRecord(t *testing.T) { // N098, R041: what has moved already is not moved again
	inHealth(t, func(t *testing.T, r *Registry, p Partition) {
		r.SetPartitionFailover(new(true))
		var wg sync.WaitGroup
		news := make(chan bool, 50)
		for range 50 {
			wg.Go(func() { news <- r.Confirm(p, west, east) })
		}
		wg.Wait()
		n := 0
		for range 50 {
			if <-news {
				n++
			}
		}
		require.Equal(t, 1, n)
		require.Equal(t, 1, r.overrides.table.live)
	})
}

func TestChildrenInheritTheOverride(t *testing.T) { // rule 10: dropped when the range splits away
	synctest.Test(t, func(t *testing.T) {
		s := newService("0:-30", "1:30-60", "2:60-FF")
		r := newRegistry(t, s)
		found := resolve(t, r)
		r.SetPartitionFailover(new(true))
		at := func(id string) regions.Name { return overrideOf(r, Partition{"rid1", id}) }
		r.Confirm(Partition{"rid1", "0"}, west, east)
		r.Confirm(Partition{"rid1", "1"}, mid, east)

		s.deliver("3:-10<0", "4:10-20<0", "5:20-30<0")
		require.NoError(t, r.Refresh(t.Context(), found))
		require.Equal(t, []regions.Name{"", west, west, west, mid}, []regions.Name{at("0"), at("3"), at("4"), at("5"), at("1")})

		s.deliver("6:10-30<0,4,5", "7:30-FF<1,2")
		require.NoError(t, r.Refresh(t.Context(), resolve(t, r)))
		require.Equal(t, []regions.Name{west, west}, []regions.Name{at("3"), at("6")}, "all its parents were there")
		require.Empty(t, at("7"), "one of its parents was at home")
		require.Equal(t, 2, r.overrides.table.live)

		r.Confirm(Partition{"rid1", "7"}, mid, east)
		s.deliver("8:10-FF<6,7")
		require.NoError(t, r.Refresh(t.Context(), resolve(t, r)))
		require.Empty(t, at("8"), "its parents were in different regions")
		require.Equal(t, west, at("3"), "who is not concerned stays")
	})
}

func TestTheNumberOfOverridesIsBounded(t *testing.T) {
	inHealth(t, func(t *testing.T, r *Registry, _ Partition) {
		r.SetPartitionFailover(new(true))
		for i := range 100 {
			require.Equal(t, i < 50, r.Confirm(Partition{"rid1", fmt.Sprint(i)}, west, east))
		}
		require.True(t, r.Confirm(Partition{"rid1", "7"}, mid, east), "those that are there may change")
	}, func(c *Config) { c.Failover.MaxTracked = 50 })
}
