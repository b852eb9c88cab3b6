package roundtrippers_test

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/cosmos"
	"github.com/reroute-go/reroute/middleware/cosmos/cosmostest"
	"github.com/reroute-go/reroute/regions"
	"github.com/reroute-go/reroute/roundtrippers"
)

func TestReadsFollowThePreferenceAndThenTheAccountsOrder(t *testing.T) { // R063
	open := cosmos.Options{PreferredRegions: []regions.Name{"northeurope", "Mars"}}
	inWorld(t, setup{open: open}, func(t *testing.T, w *world) {
		w.fail(cosmostest.Error(503, 0))
		require.Equal(t, "503", w.read(t.Context(), "some").code)
		require.Equal(t, []string{north, west, east, north}, w.path(), "once round, and the budget is spent")
	})
	inWorld(t, setup{}, func(t *testing.T, w *world) {
		w.fail(cosmostest.Error(503, 0))
		require.Equal(t, "503", w.read(t.Context(), "some").code)
		require.Equal(t, []string{west, east, north, west}, w.path())
	})
}

func TestAMarkedRegionIsAvoidedByTheNextOperation(t *testing.T) { // R064
	inWorld(t, setup{}, func(t *testing.T, w *world) {
		id := w.item()
		w.SetOffline(west, cosmostest.Refused)
		require.Equal(t, 200, w.read(t.Context(), id).status)
		require.Equal(t, []string{west}, w.marked())
		w.SetOnline(west)
		require.Equal(t, 1, w.read(t.Context(), id).report.Sends, "straight to the next region")
		require.Equal(t, []string{east, east}, w.path())
	})
}

func TestWhenEveryRegionIsMarkedAllAreStillTried(t *testing.T) { // R066, B63
	inWorld(t, setup{}, func(t *testing.T, w *world) {
		id := w.item()
		for _, r := range w.Regions() {
			w.SetOffline(r, cosmostest.Refused)
		}
		require.Error(t, w.read(t.Context(), id).err)
		require.ElementsMatch(t, []string{west, east, north}, w.marked())
		for _, r := range w.Regions() {
			w.SetOnline(r)
		}
		require.Equal(t, 200, w.read(t.Context(), id).status)
		require.Equal(t, []string{west}, w.path(), "demoted, not removed: the first of them serves")
		require.ElementsMatch(t, []string{east, north}, w.marked(), "and is back in its place")
	})
}

func TestOnlyUnsentAndAnsweredFailuresMarkARegion(t *testing.T) { // R004, R029, R031, R032, B60, DESIGN rule 7
	for name, row := range map[string]struct {
		answer cosmostest.Answer
		marks  bool
	}{
		"503":               {cosmostest.Error(503, 0), true},
		"500":               {cosmostest.Error(500, 0), true},
		"408":               {cosmostest.Error(408, 0), true},
		"410":               {cosmostest.Error(410, 0), true},
		"403/1008":          {cosmostest.Error(403, 1008), true},
		"429/3092":          {cosmostest.Error(429, 3092), true},
		"a plain 429":       {cosmostest.Throttled(time.Millisecond), false},
		"449":               {cosmostest.Error(449, 0), false},
		"404/1002":          {cosmostest.Error(404, 1002), false},
		"403/3 to a read":   {cosmostest.Error(403, 3), false},
		"a reset":           {cosmostest.Answer{Reset: true}, false},
		"a slow read":       {cosmostest.Answer{Hang: true}, false},
		"400":               {cosmostest.Error(400, 0), false},
		"an answer cut off": {cosmostest.Answer{CutAfter: -1}, false},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, setup{stack: roundtrippers.Builder{AttemptTimeout: time.Second}}, func(t *testing.T, w *world) {
				id := w.item()
				w.fail(row.answer, west)
				w.read(t.Context(), id)
				require.Equal(t, row.marks, slices.Contains(w.marked(), west), w.marked())
				w.ClearFaults()
				require.Equal(t, 200, w.read(t.Context(), id).status)
			})
		})
	}
}

func TestARegionThatRefusesWritesStillServesReads(t *testing.T) { // DESIGN rule 7
	inWorld(t, setup{sim: cosmostest.Config{MultiWrite: true}}, func(t *testing.T, w *world) {
		id := w.item()
		w.once(cosmostest.Error(403, 3))
		require.Equal(t, 201, w.create(t.Context()).status)
		require.Equal(t, []string{west}, w.marked())
		w.forget()
		require.Equal(t, 200, w.read(t.Context(), id).status)
		require.Equal(t, 201, w.create(t.Context()).status)
		require.Equal(t, []string{west, east}, w.path())
	})
}

func TestAfterAMinuteOneOperationProbesWhileTheOthersStayAway(t *testing.T) { // R074, B59
	inWorld(t, setup{}, func(t *testing.T, w *world) {
		id := w.item()
		w.SetOffline(west, cosmostest.Refused)
		require.Equal(t, 200, w.read(t.Context(), id).status)

		// The endpoint takes connections again, but answers 503: the probe fails, and the mark is renewed.
		w.SetOnline(west)
		sick := w.AddFault(cosmostest.Fault{Match: cosmostest.Match{Region: west}, Answer: cosmostest.Error(503, 0)})
		time.Sleep(59 * time.Second)
		require.Equal(t, 200, w.read(t.Context(), id).status)
		require.Zero(t, w.data(west))
		time.Sleep(2 * time.Second)
		w.crowd(20, func(ctx context.Context) { require.Equal(t, 200, w.read(ctx, id).status) })
		require.Equal(t, 1, w.data(west), "one probe, not twenty")
		sick.Remove()

		time.Sleep(59 * time.Second)
		require.Equal(t, 200, w.read(t.Context(), id).status)
		require.Equal(t, 1, w.data(west), "the failed probe has renewed the mark")
		time.Sleep(2 * time.Second)
		w.forget()
		probe := w.read(t.Context(), id)
		require.True(t, probe.report.Attempts[0].Probe)
		w.crowd(20, func(ctx context.Context) { require.Equal(t, 200, w.read(ctx, id).status) })
		require.Equal(t, 21, w.data(west), "restored for all")
		require.Empty(t, w.marked())
	})
}

func TestAFailureEveryFewSecondsDoesNotPutTheProbeOffForEver(t *testing.T) { // B59
	inWorld(t, setup{}, func(t *testing.T, w *world) {
		id := w.item()
		w.SetOffline(west, cosmostest.Refused)
		for range 10 { // writes have nowhere else to go and fail there again and again
			require.Error(t, w.create(t.Context()).err)
			time.Sleep(6 * time.Second)
		}
		w.SetOnline(west)
		time.Sleep(time.Second)
		require.Equal(t, 200, w.read(t.Context(), id).status)
		require.Equal(t, []string{west}, w.path())
	})
}

func TestACancelledOrSlowProbeIsGivenBack(t *testing.T) {
	inWorld(t, setup{}, func(t *testing.T, w *world) {
		id := w.item()
		w.SetOffline(west, cosmostest.Refused)
		require.Equal(t, 200, w.read(t.Context(), id).status)
		w.SetOnline(west)
		time.Sleep(61 * time.Second)

		w.once(cosmostest.Answer{Hang: true})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, w.read(ctx, id).err, context.DeadlineExceeded)
		w.forget()
		require.Equal(t, 200, w.read(t.Context(), id).status)
		require.Equal(t, []string{west}, w.path(), "the next operation probes at once")
	})
}

func TestWriteFailuresRotateThroughTheWriteRegions(t *testing.T) { // R072, R088
	inWorld(t, setup{sim: cosmostest.Config{MultiWrite: true}}, func(t *testing.T, w *world) {
		w.fail(cosmostest.Error(500, 0), west, east)
		require.Equal(t, 201, w.create(t.Context()).status)
		require.Equal(t, []string{west, east, north}, w.path())
	})
	inWorld(t, setup{}, func(t *testing.T, w *world) { // seed: one write endpoint, so the same again
		w.fail(cosmostest.Error(500, 0), west)
		require.Equal(t, "500", w.create(t.Context()).code)
		require.Equal(t, []string{west, west, west, west}, w.path())
	})
}

func TestWhatTheRegionsWentThroughIsTold(t *testing.T) {
	var mu sync.Mutex
	var told []middleware.EventKind
	stack := roundtrippers.Builder{Observe: func(_ context.Context, e middleware.Event) {
		mu.Lock()
		defer mu.Unlock()
		if e.Kind == middleware.EndpointMarked || e.Kind == middleware.EndpointRestored || e.Kind == middleware.TopologyRefreshed {
			told = append(told, e.Kind)
		}
	}}
	inWorld(t, setup{stack: stack}, func(t *testing.T, w *world) {
		w.once(cosmostest.Error(403, 1008))
		w.read(t.Context(), "some")
		time.Sleep(61 * time.Second)
		w.read(t.Context(), "some")
		require.Equal(t, []middleware.EventKind{middleware.EndpointMarked, middleware.TopologyRefreshed, middleware.EndpointRestored}, told)
	})
}

func TestAMetadataWriteGoesToTheHubAlone(t *testing.T) {
	inWorld(t, setup{sim: cosmostest.Config{MultiWrite: true}, open: cosmos.Options{PreferredRegions: []regions.Name{north}}}, func(t *testing.T, w *world) {
		w.forget()
		require.Equal(t, 201, w.send(t.Context(), http.MethodPost, "/dbs", `{"id":"other"}`).status)
		require.Equal(t, 1, w.Sends(west, cosmostest.CreateDatabase))
		require.Equal(t, 1, w.Sends(""))
	})
}
