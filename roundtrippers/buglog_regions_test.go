package roundtrippers_test

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/middleware/cosmos/cosmostest"
	"github.com/reroute-go/reroute/middleware/layertest"
	"github.com/reroute-go/reroute/roundtrippers"
)

// K19, region failover.

func TestB59SelfMadeMarksExpire(t *testing.T) {
	const every = time.Second
	for _, again := range []time.Duration{0, 4 * time.Minute} {
		s := setup{}
		s.open.MarkFor = 5 * time.Minute
		inWorld(t, s, func(t *testing.T, w *world) {
			id := w.item()
			w.SetOffline(west, cosmostest.Refused)
			began := time.Now()
			back := time.Duration(0)
			for n := 0; time.Since(began) < 10*time.Minute; n++ {
				if n == 10 {
					w.SetOnline(west)
				}
				if again > 0 && n == int(again/every) { // a failure of somebody else's there, while it is marked
					sick := w.AddFault(cosmostest.Fault{Match: cosmostest.Match{Region: west}, Answer: cosmostest.Error(503, 0)})
					require.Equal(t, "503", w.read(excluding(t.Context(), east, north), id).code)
					sick.Remove()
				}
				before := w.data(west)
				require.Equal(t, 200, w.read(t.Context(), id).status)
				if n > 10 && w.data(west) > before && back == 0 {
					back = time.Since(began)
				}
				time.Sleep(every)
			}
			require.Positive(t, back, "never tried again")
			require.LessOrEqual(t, back, 5*time.Minute+2*every)
		})
	}
}

func TestB60ATimeoutMovesTheRequestNotTheRegion(t *testing.T) {
	s := sixteen
	s.stack.AttemptTimeout = time.Second
	inPartitions(t, s, func(t *testing.T, w *placed) {
		slow, other := w.key("1"), w.key("2")
		w.warm(slow, other)
		w.sick(cosmostest.Answer{Hang: true}, "1", west)
		require.Equal(t, []string{west, east}, w.must(w.get(t.Context(), slow)))
		require.Equal(t, []string{west}, w.must(w.get(t.Context(), other)))
		require.Empty(t, w.marked())
	})
	for _, marks := range []layertest.Step{{Err: refusedDial}, answerOf(403, "1008"), answerOf(403, "3")} { // these name the endpoint
		answer := func(req *http.Request) layertest.Step {
			if req.URL.Host == regionHost("a") {
				return marks
			}
			return layertest.Step{Body: "{}"}
		}
		overCosmos(t, true, roundtrippers.Builder{}, answer, func(t *testing.T, rt http.RoundTripper, sends func() []layertest.Send) {
			for range 2 {
				require.Equal(t, "{}", tell(t, rt, operation("create").to(t.Context())).body)
			}
			list := sends()
			require.Equal(t, regionHost("b"), list[len(list)-1].URL.Host)
			if marks.Err != nil {
				require.Len(t, list, 4, "with one more try on another connection; the second operation goes to b at once")
			}
		})
	}
}

func TestB61WriteForbiddenRefreshesWaitsAndIsBounded(t *testing.T) {
	inWorld(t, setup{stack: converging}, func(t *testing.T, w *world) {
		w.forget()
		w.HoldTopology(2 * time.Second)
		w.SetWriteRegion(east)
		w.crowd(20, func(ctx context.Context) {
			r := w.create(ctx)
			require.Equal(t, 201, r.status, r.report)
			require.LessOrEqual(t, r.took, 5*time.Second)
			require.LessOrEqual(t, r.report.Sends, 11)
		})
		require.LessOrEqual(t, w.accountReads(), 2, "spaced, not one an attempt")
		w.forget()
		w.HoldTopology(0) // it never settles
		w.SetWriteRegion(west)
		r := w.create(t.Context())
		require.Equal(t, "403/3", r.code)
		require.LessOrEqual(t, r.report.Sends, 11)
		require.Greater(t, r.took, time.Second, "no loop without delay")
	})
}

// K20, when everything is marked.

func TestB63AllMarkedMeansTryAnyway(t *testing.T) {
	inWorld(t, setup{}, func(t *testing.T, w *world) {
		id := w.item()
		for _, r := range w.Regions() {
			w.SetOffline(r, cosmostest.Refused)
		}
		require.Error(t, w.read(t.Context(), id).err)
		require.Len(t, w.marked(), 3)
		for _, r := range w.Regions() {
			w.SetOnline(r)
		}
		r := w.read(t.Context(), id)
		require.Equal(t, 200, r.status)
		require.Equal(t, 1, r.report.Sends)
		w.forget()
		for _, r := range w.Regions() {
			w.SetOffline(r, cosmostest.Refused)
		}
		time.Sleep(time.Second)
		require.Error(t, w.read(t.Context(), id).err)
		for _, r := range w.Regions() {
			w.SetOnline(r)
		}
		require.Equal(t, 200, w.read(excluding(t.Context(), west), id).status)
		require.Zero(t, w.data(west), "an excluded region stays excluded")
	})
}

// K21, per-partition scope. A 403/3 says who takes the partition's writes: Failover moves the request, and the breaker,
// which counts what fails, leaves it out (DESIGN rule 9). A region that refuses the writes of one partition for good is
// moved away from by the endpoint's mark where the account has several write regions, and where it has one by the
// partition's own override.
func TestB65APartitionsSignalMovesThatPartition(t *testing.T) {
	s := failingOver(2)
	inPartitions(t, s, func(t *testing.T, w *placed) {
		ids := w.Ranges("d", "c")
		one, two := w.key(ids[0].ID), w.key(ids[1].ID)
		w.warm(one, two)
		w.FailoverPartition("d", "c", ids[0].ID, east)
		for n := range 20 {
			path := w.must(w.upsert(t.Context(), one))
			if n > 0 {
				require.Equal(t, []string{east}, path, "and it stays there")
			}
			require.Equal(t, []string{west}, w.must(w.upsert(t.Context(), two)), "the other never leaves")
		}
	})
	multi := sixteen
	multi.sim.MultiWrite = true
	inPartitions(t, multi, func(t *testing.T, w *placed) {
		one, two := w.key("1"), w.key("2")
		w.warm(one, two)
		w.sick(cosmostest.Error(503, 0), "1", west)
		for n := range 20 {
			path := w.must(w.upsert(t.Context(), one))
			if n >= 5 {
				require.Equal(t, []string{east}, path, "after its threshold")
			}
			require.Equal(t, []string{west}, w.must(w.upsert(t.Context(), two)))
		}
	})
}

// K22, session retry.

func TestB67EachRegionOnce(t *testing.T) {
	overCosmos(t, true, roundtrippers.Builder{}, inOrder(answerOf(404, "1002")), func(t *testing.T, rt http.RoundTripper, sends func() []layertest.Send) {
		resp, err := rt.RoundTrip(operation("read").to(t.Context()))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, "404/1002", ending(resp, nil))
		require.Equal(t, "a b c", itinerary(sends()))
	})
}

// DESIGN rule 1 gives the session two re-sends on a single-write account, so there are three sends where the case has two.
func TestB69BoundedTokenPreservedPlain404Final(t *testing.T) {
	const token = "0:1#7"
	for code, want := range map[string]string{"1002": "a a a", "0": "a"} {
		overCosmos(t, false, roundtrippers.Builder{}, inOrder(answerOf(404, code)), func(t *testing.T, rt http.RoundTripper, sends func() []layertest.Send) {
			req := operation("read").to(t.Context())
			req.Header.Set("X-Ms-Session-Token", token)
			resp, err := rt.RoundTrip(req)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			require.Equal(t, 404, resp.StatusCode)
			require.Equal(t, want, itinerary(sends()))
			for _, s := range sends() {
				require.Equal(t, token, s.Header.Get("X-Ms-Session-Token"))
			}
		})
	}
}

// K23, throttle against region. A quota per endpoint has no setting of its own: a dialect that judges 429 as Unavailable
// instead of Throttled is that setting.
func TestB70APlain429WaitsInPlaceAndCostsNoFailoverBudget(t *testing.T) {
	throttled := answerOf(429, "3200", "X-Ms-Retry-After-Ms", "100")
	overCosmos(t, true, roundtrippers.Builder{}, inOrder(throttled, throttled, layertest.Step{Body: "{}"}, answerOf(429, "3092"), layertest.Step{Body: "{}"}),
		func(t *testing.T, rt http.RoundTripper, sends func() []layertest.Send) {
			began := time.Now()
			got := tell(t, rt, operation("read").to(t.Context()))
			require.Equal(t, "{}", got.body)
			require.Equal(t, 200*time.Millisecond, time.Since(began))
			require.Equal(t, "a a a", itinerary(sends()))
			require.Len(t, got.Charges, 1)
			require.Equal(t, "throttle", got.Charges[0].Budget)
			began = time.Now()
			require.Equal(t, "{}", tell(t, rt, operation("read").to(t.Context())).body)
			require.Zero(t, time.Since(began), "handed on at once")
			require.Equal(t, "a a a a b", itinerary(sends()))
		})
}

// K24 to K26 for the account's ranges and regions; for the ownership map see buglog_owners_test.go.

func TestB77OnlyThoseWhoNeedTheNewMapWait(t *testing.T) {
	inPartitions(t, setup{sim: cosmostest.Config{Ranges: 100}}, func(t *testing.T, w *placed) {
		split := w.Ranges("d", "c")[0]
		hurt := w.key(split.ID)
		var others []string
		for _, r := range w.Ranges("d", "c")[1:40] {
			others = append(others, w.key(r.ID))
		}
		w.warm(append(others, hurt)...)
		w.AddFault(cosmostest.Fault{Match: cosmostest.Match{Operations: rangeFeed}, Answer: cosmostest.Answer{Delay: time.Second}})
		w.AddFault(cosmostest.Fault{Match: cosmostest.Match{Operations: cosmostest.Data(), Range: split.ID}, Count: 1, Answer: cosmostest.Error(410, 1002)})
		var all sync.WaitGroup
		all.Go(func() {
			r := w.get(t.Context(), hurt)
			w.must(r)
			require.GreaterOrEqual(t, r.took, time.Second)
		})
		time.Sleep(100 * time.Millisecond)
		for _, key := range others {
			all.Go(func() {
				r := w.get(t.Context(), key)
				w.must(r)
				require.Zero(t, r.took)
			})
		}
		all.Wait()
	})
}
