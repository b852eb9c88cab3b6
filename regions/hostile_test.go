package regions_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/regions"
)

// Everything at once, with a callback that uses the registry it is called by.
func TestRealGoroutinesAndACallbackThatReenters(t *testing.T) {
	var r *regions.Registry
	var ready atomic.Bool
	var fetches, changes atomic.Int64
	var asking sync.Mutex // OnChange has a probe in its hands
	cfg := regions.Config{
		Source: regions.SourceFunc(func(ctx context.Context, old *regions.Topology) (*regions.Topology, error) {
			n := fetches.Add(1)
			switch rand.N(5) {
			case 0:
				return nil, context.DeadlineExceeded
			case 1:
				if n > 1 {
					panic("source")
				}
			}
			t := &regions.Topology{MultiWrite: n%2 == 0}
			for i := range 3 {
				e := regions.Endpoint{Region: regions.Name(fmt.Sprint("r", i)), URL: &url.URL{Scheme: "https", Host: fmt.Sprintf("h%d.test", (int64(i)+n)%5)}}
				t.Reads, t.Writes = append(t.Reads, e), append(t.Writes, e)
			}
			return t, nil
		}),
		RefreshInterval: time.Microsecond, MarkFor: time.Millisecond,
		OnChange: func(old, new *regions.Topology) {
			changes.Add(1)
			if ready.Load() {
				asking.Lock()
				c, err := r.Pick(regions.Want{Excluded: []regions.Name{"r1"}})
				if err == nil {
					r.Report(c, regions.Failed, regions.ServerError)
				}
				asking.Unlock()
				_, _ = r.Refresh(context.Background(), old)
				_ = r.Marks()
			}
		},
	}
	var err error
	r, err = regions.New(cfg)
	require.NoError(t, err)
	ready.Store(true)
	for r.Topology() == nil {
		_, _ = r.Refresh(t.Context(), nil)
	}
	var load sync.WaitGroup
	for range 64 {
		load.Go(func() {
			for range 300 {
				want := regions.Want{From: regions.List(rand.N(3)), Write: rand.N(2) == 0, Excluded: []regions.Name{regions.Name(fmt.Sprint("R ", rand.N(3)))}}
				c, err := r.Pick(want)
				if err != nil || c.Region.Equal(want.Excluded[0]) {
					t.Error(c.Region, err)
				}
				switch rand.N(4) {
				case 0:
					ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rand.N(1000))*time.Microsecond)
					_, _ = r.Refresh(ctx, c.Topology)
					cancel()
					fallthrough
				default:
					r.Report(c, regions.Verdict(rand.N(3)), regions.Reason(rand.N(5)))
				}
			}
		})
	}
	load.Wait()
	asking.Lock() // who has left may have had a topology read that is not over
	marks := r.Marks()
	asking.Unlock()
	for _, m := range marks {
		require.False(t, m.Probing, "every probe was given back")
	}
	r.Close()
	require.Positive(t, changes.Load())
}
