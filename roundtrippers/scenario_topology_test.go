package roundtrippers_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/middleware/cosmos"
	"github.com/reroute-go/reroute/middleware/cosmos/cosmostest"
	"github.com/reroute-go/reroute/regions"
	"github.com/reroute-go/reroute/roundtrippers"
)

// runs keeps the account's background refresh going until the scenario ends.
func (w *world) runs() {
	ctx, stop := context.WithCancel(w.t.Context())
	done := make(chan error, 1)
	go func() { done <- w.account.Run(ctx) }()
	w.t.Cleanup(func() {
		stop()
		require.ErrorIs(w.t, <-done, context.Canceled)
	})
}

func TestAnIdleAccountStaysInformedAndALoadedOneReadsNothingMore(t *testing.T) { // R079
	inWorld(t, setup{}, func(t *testing.T, w *world) {
		id := w.item()
		w.runs()
		time.Sleep(4*300*time.Second + time.Second)
		require.GreaterOrEqual(t, w.accountReads(), 3)
		require.LessOrEqual(t, w.accountReads(), 5)
		w.forget()
		for range 500 {
			require.Equal(t, 200, w.read(t.Context(), id).status)
		}
		require.Zero(t, w.accountReads())
	})
}

func TestSignalsWithinFiveSecondsShareOneAccountRead(t *testing.T) { // R076
	inWorld(t, setup{sim: multiWrite, stack: converging}, func(t *testing.T, w *world) {
		w.forget()
		for range 4 {
			w.once(cosmostest.Error(403, 1008))
			w.read(t.Context(), "none")
			time.Sleep(time.Second)
		}
		require.Equal(t, 1, w.accountReads())
		time.Sleep(2 * time.Second)
		w.once(cosmostest.Error(403, 1008))
		w.read(t.Context(), "none")
		require.Equal(t, 2, w.accountReads())
	})
}

func TestAFailedRefreshKeepsTheTopologyAndDoesNotThrottleTheNext(t *testing.T) { // R077, R078
	inWorld(t, setup{sim: multiWrite, stack: converging}, func(t *testing.T, w *world) {
		w.forget()
		before := w.account.Regions.Topology()
		broken := w.AddFault(cosmostest.Fault{Match: cosmostest.Match{Operations: []cosmostest.Operation{cosmostest.ReadAccount}}, Answer: cosmostest.Error(500, 0)})
		w.once(cosmostest.Error(403, 1008))
		require.Equal(t, "404", w.read(t.Context(), "none").code)
		require.Equal(t, 4, w.accountReads(), "the global endpoint and each region")
		require.Same(t, before, w.account.Regions.Topology())

		broken.Remove()
		w.AddRegion("UK South")
		w.once(cosmostest.Error(403, 1008))
		require.Equal(t, "404", w.read(t.Context(), "none").code)
		require.Len(t, w.account.Regions.Topology().Reads, 4)
	})
}

func TestADrainingRegionThatIsStillListedHoldsNobodyUp(t *testing.T) { // R101
	accounts(t, func(t *testing.T, multi bool) {
		inWorld(t, setup{sim: cosmostest.Config{MultiWrite: multi}, open: cosmos.Options{PreferredRegions: []regions.Name{east}}}, func(t *testing.T, w *world) {
			id := w.item()
			w.Drain(east)
			for range 10 {
				require.Equal(t, 200, w.read(t.Context(), id).status)
				require.Equal(t, 201, w.create(t.Context()).status)
			}
			if !multi {
				require.Equal(t, 1, w.data(east), "one found out for all")
			}
			require.LessOrEqual(t, w.data(east), 2, "at most one read and one write")
			w.SetOnline(east)
			time.Sleep(61 * time.Second)
			w.forget()
			require.Equal(t, 200, w.read(t.Context(), id).status)
			require.Equal(t, []string{east}, w.path())
		})
	})
}

func TestARegionAddedAtRunTimeIsAdoptedWithinFiveMinutes(t *testing.T) { // R102
	inWorld(t, setup{open: cosmos.Options{PreferredRegions: []regions.Name{"UK South"}}}, func(t *testing.T, w *world) {
		id := w.item()
		w.runs()
		require.Equal(t, 200, w.read(t.Context(), id).status)
		w.AddRegion("UK South")
		time.Sleep(301 * time.Second)
		require.Equal(t, 200, w.read(t.Context(), id).status)
		require.Equal(t, []string{west, "UK South"}, w.path())
	})
}

func TestARemovedRegionIsLeftAndTakenBackInOrderOfPreference(t *testing.T) { // R103
	inWorld(t, setup{open: cosmos.Options{PreferredRegions: []regions.Name{north, east}}}, func(t *testing.T, w *world) {
		id := w.item()
		w.RemoveRegion(north)
		require.Equal(t, 200, w.read(t.Context(), id).status)
		require.Equal(t, 200, w.read(t.Context(), id).status)
		require.Equal(t, []string{north, east, east}, w.path())
		require.Len(t, w.account.Regions.Topology().Reads, 2)

		w.AddRegion(north)
		time.Sleep(10 * time.Second)
		_, err := w.account.Regions.Refresh(t.Context(), w.account.Regions.Topology())
		require.NoError(t, err)
		require.Len(t, w.account.Regions.Topology().Reads, 3)
		w.forget()
		require.Equal(t, 200, w.read(t.Context(), id).status)
		require.Equal(t, []string{east}, w.path(), "the mark has outlived the absence")
		time.Sleep(time.Minute)
		require.Equal(t, 200, w.read(t.Context(), id).status)
		require.Equal(t, 200, w.read(t.Context(), id).status)
		require.Equal(t, []string{east, north, north}, w.path())
	})
}

func TestAWriteFollowsTheWriteRole(t *testing.T) { // R104, N045
	for name, stack := range map[string]roundtrippers.Builder{"defaults": {}, "converging": converging} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, setup{stack: stack}, func(t *testing.T, w *world) {
				w.forget()
				w.SetWriteRegion(east)
				r := w.create(t.Context())
				require.Equal(t, 201, r.status)
				require.Zero(t, r.took)
				require.Equal(t, []string{west, east}, w.path())
				require.Equal(t, 1, w.accountReads())
				require.Equal(t, 201, w.create(t.Context()).status)
				require.Equal(t, 1, w.data(west), "learned by all")
			})
		})
	}
}

func TestADocumentThatLagsBehindTheWriteRoleIsWaitedForIfSoConfigured(t *testing.T) { // R104, B61
	for _, lag := range []time.Duration{time.Millisecond, 2 * time.Second, 4900 * time.Millisecond} {
		inWorld(t, setup{stack: converging}, func(t *testing.T, w *world) {
			w.forget()
			w.HoldTopology(lag)
			w.SetWriteRegion(east)
			w.crowd(20, func(ctx context.Context) {
				r := w.create(ctx)
				require.Equal(t, 201, r.status, r.report)
				require.LessOrEqual(t, r.report.Sends, 5)
			})
			require.LessOrEqual(t, w.accountReads(), 2, "spaced, not one an attempt")
			require.Len(t, w.Items("d", "c"), 20)
		})
	}
	inWorld(t, setup{sim: multiWrite}, func(t *testing.T, w *world) { // the long budget outlives any lag
		w.HoldTopology(50 * time.Second)
		for _, region := range w.Regions() {
			w.Drain(region)
		}
		time.AfterFunc(50*time.Second, func() { w.SetOnline(north) })
		w.crowd(20, func(ctx context.Context) { require.Equal(t, 201, w.create(ctx).status) })
	})
	inWorld(t, setup{}, func(t *testing.T, w *world) { // seed: 3 x 0 s out of the plain budget, so a lag is not outlived
		w.HoldTopology(2 * time.Second)
		w.SetWriteRegion(east)
		require.Equal(t, "403/3", w.create(t.Context()).code)
		require.Equal(t, []string{west, west, west, west}, w.path())
		time.Sleep(5 * time.Second)
		require.Equal(t, 201, w.create(t.Context()).status)
	})
}

func TestADocumentThatNeverSettlesEndsWithTheServicesAnswer(t *testing.T) { // R104, B61
	inWorld(t, setup{stack: converging}, func(t *testing.T, w *world) {
		w.forget()
		w.HoldTopology(0)
		w.SetWriteRegion(east)
		r := w.create(t.Context())
		require.Equal(t, "403/3", r.code)
		require.Equal(t, 5, r.report.Sends)
		require.LessOrEqual(t, w.accountReads(), 2)
	})
}

func TestAThousandOperationsMeetingADemotedRegionReadTheAccountOnce(t *testing.T) {
	for name, s := range map[string]setup{
		"single-write":             {},
		"single-write, converging": {stack: converging},
		"multi-write":              {sim: multiWrite},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, s, func(t *testing.T, w *world) {
				w.SetLatency(cosmostest.Global, 100*time.Millisecond) // so that they really wait together
				w.forget()
				if s.sim.MultiWrite {
					w.Drain(west)
				} else {
					w.SetWriteRegion(east)
				}
				var failed atomic.Int64
				w.crowd(1000, func(ctx context.Context) {
					if w.create(ctx).status != 201 {
						failed.Add(1)
					}
				})
				require.Zero(t, failed.Load())
				require.Equal(t, 1, w.accountReads())
				require.Len(t, w.Items("d", "c"), 1000)
			})
		})
	}
}

func TestAnAccountThatGainsMultipleWriteRegionsIsWrittenEverywhere(t *testing.T) {
	inWorld(t, setup{open: cosmos.Options{PreferredRegions: []regions.Name{east}}}, func(t *testing.T, w *world) {
		w.runs()
		require.Equal(t, 201, w.create(t.Context()).status)
		w.SetMultiWrite(true)
		time.Sleep(301 * time.Second)
		require.Equal(t, 201, w.create(t.Context()).status)
		require.Equal(t, []string{west, east}, w.path())

		w.SetMultiWrite(false) // back again: east answers 403/3, once
		r := w.create(t.Context())
		require.Equal(t, 201, r.status)
		require.Equal(t, 201, w.create(t.Context()).status)
		require.Equal(t, []string{west, east, east, west, west}, w.path())
	})
}
