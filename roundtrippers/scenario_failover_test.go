package roundtrippers_test

import (
	"context"
	"fmt"
	"net/http"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/cosmos"
	"github.com/reroute-go/reroute/middleware/cosmos/cosmostest"
	"github.com/reroute-go/reroute/regions"
	"github.com/reroute-go/reroute/roundtrippers"
)

var (
	multiWrite = cosmostest.Config{MultiWrite: true}
	// converging is the newer driver's budget for changes of the account's shape.
	converging = roundtrippers.Builder{Failover: roundtrippers.Failover{Converge: true}}
)

func TestReadsMoveAwayFromARegionThatRefusesConnections(t *testing.T) { // R084, R091
	accounts(t, func(t *testing.T, multi bool) {
		inWorld(t, setup{sim: cosmostest.Config{MultiWrite: multi}}, func(t *testing.T, w *world) {
			id := w.item()
			w.SetOffline(west, cosmostest.Refused)
			r := w.read(t.Context(), id)
			require.Equal(t, 200, r.status)
			require.Equal(t, []string{east}, w.path())
			require.Equal(t, 3, r.report.Sends, "west twice, as a connection may be to blame, then east")
			require.Zero(t, r.took)
		})
	})
}

func TestARegionThatDiesRightAfterTheStartIsNoHindrance(t *testing.T) { // R091
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{sim: cosmostest.Config{InMemory: true}})
		w.SetOffline(west, cosmostest.Refused)
		require.Equal(t, "404", w.read(t.Context(), "none").code)
		require.Equal(t, []string{east}, w.path())
	})
}

func TestWithEveryRegionDownTheLastErrorComesOut(t *testing.T) { // R086, R006
	inWorld(t, setup{sim: multiWrite}, func(t *testing.T, w *world) {
		for _, region := range w.Regions() {
			w.SetOffline(region, cosmostest.Refused)
		}
		for _, d := range deeds {
			r := d.do(w, t.Context())
			require.ErrorIs(t, r.err, middleware.ErrBudgetSpent, d.name)
			require.ErrorIs(t, r.err, syscall.ECONNREFUSED)
			require.Equal(t, "error: unreachable", r.code)
			require.ElementsMatch(t, []regions.Name{west, east, north}, regionsOf(r.report))
		}
	})
}

// regionsOf lists the regions of a report's attempts, each once.
func regionsOf(r middleware.Report) (names []regions.Name) {
	seen := map[regions.Name]bool{}
	for _, a := range r.Attempts {
		if !seen[a.Region] {
			seen[a.Region] = true
			names = append(names, a.Region)
		}
	}
	return names
}

func TestAWriteLandsInTheNextWriteRegion(t *testing.T) { // R088
	inWorld(t, setup{sim: multiWrite}, func(t *testing.T, w *world) {
		w.SetOffline(west, cosmostest.Refused)
		for _, d := range deeds {
			require.Less(t, d.do(w, t.Context()).status, 405, d.name)
		}
		require.NotContains(t, w.path(), west)
		require.Equal(t, 1, w.Executions("d", "c", "s"), "what was refused was not carried out")
		require.Len(t, w.Items("d", "c"), 2)
	})
}

func TestAnExcludedRegionDoesNotHelpOutWhenTheOnlyOtherIsDown(t *testing.T) { // R087, R089
	inWorld(t, setup{sim: cosmostest.Config{MultiWrite: true, Regions: []string{west, east}}}, func(t *testing.T, w *world) {
		w.SetOffline(west, cosmostest.Refused)
		for _, d := range deeds {
			r := d.do(w, excluding(t.Context(), east))
			require.ErrorIs(t, r.err, syscall.ECONNREFUSED, d.name)
			require.Equal(t, []regions.Name{west}, regionsOf(r.report))
		}
		require.Zero(t, w.data(east))
	})
}

func TestARegionThatLeftTheAccountOnceIsPassedOver(t *testing.T) { // R092, R093, N046, R012, R017
	accounts(t, func(t *testing.T, multi bool) {
		for _, d := range deeds {
			inWorld(t, setup{sim: cosmostest.Config{MultiWrite: multi}, stack: converging}, func(t *testing.T, w *world) {
				w.forget()
				w.once(cosmostest.Error(403, 1008))
				r := d.do(w, t.Context())
				require.Less(t, r.status, 405, d.name)
				require.Equal(t, 1, w.accountReads())
				require.Equal(t, []middleware.Charge{{Budget: "convergence", Retries: 1}}, r.report.Charges, "at once, and at no cost to failover")
				second := east
				if d.write && !multi {
					second = west // there is no other
				}
				require.Equal(t, []string{west, second}, w.path(), d.name)
			})
		}
	})
}

func TestWithEveryRegionGoneTheAnswerComesOutInTheEnd(t *testing.T) { // R094, R096, R013, R014
	for _, row := range []struct {
		code  string
		fault cosmostest.Answer
		do    int // of deeds
	}{
		{"403/1008", cosmostest.Error(403, 1008), 0},
		{"403/3", cosmostest.Error(403, 3), 2},
	} {
		t.Run(row.code, func(t *testing.T) {
			inWorld(t, setup{sim: multiWrite, stack: converging}, func(t *testing.T, w *world) {
				w.fail(row.fault)
				r := deeds[row.do].do(w, t.Context())
				require.Equal(t, row.code, r.code)
				require.Equal(t, 5, r.report.Sends)
				require.InDelta(t, 5*time.Second, r.took, float64(time.Millisecond))
				require.Contains(t, r.body, "Injected", "the answer is whole")
				require.Equal(t, middleware.BudgetSpent, r.report.Stop)
			})
			inWorld(t, setup{sim: multiWrite}, func(t *testing.T, w *world) {
				w.forget()
				w.fail(row.fault)
				r := deeds[row.do].do(w, t.Context())
				require.Equal(t, row.code, r.code)
				require.Equal(t, 121, r.report.Sends)
				require.Equal(t, 2*time.Minute, r.took)
				require.LessOrEqual(t, w.accountReads(), 25, "one in five seconds at most")
				require.GreaterOrEqual(t, w.accountReads(), 20)
			})
		})
	}
}

func TestACreateFindsTheRegionThatTakesIt(t *testing.T) { // R097, R098
	inWorld(t, setup{sim: multiWrite}, func(t *testing.T, w *world) {
		w.fail(cosmostest.Error(403, 3), west)
		require.Equal(t, 201, w.create(t.Context()).status)
		require.Equal(t, []string{west, east}, w.path())
		w.forget()
		require.Equal(t, "403/3", w.create(excluding(t.Context(), east, north)).code)
		require.Equal(t, 121, w.data(west))
		require.Zero(t, w.data(east)+w.data(north))
	})
}

func TestTheTopologyIsReadWhereTheCallerDoesNotGo(t *testing.T) { // R099, R083
	inWorld(t, setup{}, func(t *testing.T, w *world) {
		w.forget()
		w.fail(cosmostest.Error(403, 1008), east)
		require.Equal(t, "404", w.read(excluding(t.Context(), west), "none").code)
		require.Equal(t, 1, w.Sends(cosmostest.Global, cosmostest.ReadAccount), "the global endpoint, though west serves it")
		require.Zero(t, w.data(west))

		// R083: the global endpoint and the hub do not tell, so an excluded region does.
		time.Sleep(10 * time.Second)
		w.forget()
		for _, mute := range []string{cosmostest.Global, west} {
			w.AddFault(cosmostest.Fault{Match: cosmostest.Match{Region: mute}, Answer: cosmostest.Error(503, 0)})
		}
		w.AddRegion("UK South")
		w.fail(cosmostest.Error(403, 1008), north)
		require.Equal(t, "404", w.read(excluding(t.Context(), west, east), "none").code)
		require.Equal(t, 1, w.Sends(east, cosmostest.ReadAccount))
		require.Zero(t, w.data(west)+w.data(east))
		require.Equal(t, 1, w.data("UK South"), "a region that was not known when the operation began")
	})
}

func TestBudgetsAreIndependentOfOneAnother(t *testing.T) { // R016, R017, R034, B70
	inWorld(t, setup{sim: multiWrite}, func(t *testing.T, w *world) {
		script := []cosmostest.Answer{
			cosmostest.Error(503, 0), cosmostest.Throttled(time.Millisecond), cosmostest.Error(449, 0), cosmostest.Error(410, 0),
			cosmostest.Error(403, 3), cosmostest.Error(404, 1002), cosmostest.Error(500, 0), cosmostest.Throttled(0), cosmostest.Error(403, 1008),
		}
		for _, answer := range script {
			w.once(answer)
		}
		r := w.create(t.Context())
		require.Equal(t, 201, r.status)
		require.Equal(t, len(script)+1, r.report.Sends)
		spent := map[string]int{}
		for _, c := range r.report.Charges {
			spent[c.Budget] = c.Retries
		}
		require.Equal(t, map[string]int{"failover": 3, "topology": 2, "session": 1, "throttle": 2, "retry with": 1}, spent)
	})
}

func TestAPlain429WaitsInPlaceAndA3092Moves(t *testing.T) { // B70, R044
	inWorld(t, setup{sim: multiWrite}, func(t *testing.T, w *world) {
		for range 2 {
			w.once(cosmostest.Throttled(100 * time.Millisecond))
		}
		r := w.create(t.Context())
		require.Equal(t, 201, r.status)
		require.Equal(t, 200*time.Millisecond, r.took)
		w.once(cosmostest.Error(429, 3092))
		r = w.create(t.Context())
		require.Equal(t, 201, r.status)
		require.Zero(t, r.took, "no waiting in the region that cannot help it")
		require.Equal(t, []string{west, west, west, west, east}, w.path())
	})
}

func TestABlackHoleIsLeftAfterTheAttemptsTime(t *testing.T) { // R032, R054
	accounts(t, func(t *testing.T, multi bool) {
		stack := roundtrippers.Builder{AttemptTimeout: 2 * time.Second}
		inWorld(t, setup{sim: cosmostest.Config{MultiWrite: multi}, stack: stack}, func(t *testing.T, w *world) {
			id := w.item()
			w.SetOffline(west, cosmostest.BlackHole)
			r := w.read(t.Context(), id)
			require.Equal(t, 200, r.status)
			require.Equal(t, 2*time.Second, r.took)
			require.Empty(t, w.marked(), "B60: a timeout moves the request, not the region")
			r = w.create(t.Context())
			if multi {
				require.Equal(t, 201, r.status)
				require.Equal(t, 2*time.Second, r.took)
				return
			}
			require.Equal(t, "error: timeout", r.code, "there is one write region")
			require.Equal(t, 8*time.Second, r.took)
		})
		inWorld(t, setup{sim: cosmostest.Config{MultiWrite: multi}}, func(t *testing.T, w *world) { // defaults: the transport's 65 s
			id := w.item()
			w.SetOffline(west, cosmostest.BlackHole)
			r := w.read(t.Context(), id)
			require.Equal(t, 200, r.status)
			require.Equal(t, 65*time.Second, r.took)
		})
	})
}

func TestTheBackupEndpointOpensTheAccountWhenTheFirstIsDead(t *testing.T) { // R081
	synctest.Test(t, func(t *testing.T) {
		sim := cosmostest.Start(t, cosmostest.Config{InMemory: true})
		sim.CreateContainer("d", "c", cosmostest.Container{})
		sim.SetOffline(cosmostest.Global, cosmostest.Refused)
		sim.SetOffline(west, cosmostest.Refused)
		account, err := cosmos.Open(t.Context(), sim.Endpoint(), cosmos.SharedKey(sim.Key()), cosmos.Options{
			Transport: sim.Transport(), BackupEndpoints: []string{sim.RegionEndpoint(east)},
		})
		require.NoError(t, err)
		t.Cleanup(account.Close)
		rt, err := roundtrippers.Builder{Dialect: account, Regions: account.Regions, Base: sim.Transport()}.Build()
		require.NoError(t, err)
		w := &world{t: t, Account: sim, account: account, rt: rt}
		require.Equal(t, "404", w.read(t.Context(), "none").code)
		require.Equal(t, []string{east}, w.path())
		require.Zero(t, sim.BadSignatures())
	})
}

func TestABootstrapThatIsRefusedSaysWith503(t *testing.T) { // R082
	synctest.Test(t, func(t *testing.T) {
		sim := cosmostest.Start(t, cosmostest.Config{InMemory: true})
		sim.AddFault(cosmostest.Fault{Match: cosmostest.Match{Method: http.MethodGet}, Answer: cosmostest.Error(503, 0)})
		_, err := cosmos.Open(context.Background(), sim.Endpoint(), cosmos.SharedKey(sim.Key()), cosmos.Options{Transport: sim.Transport()})
		var failed *cosmos.FetchError
		require.ErrorAs(t, err, &failed)
		require.Equal(t, 503, failed.Status)
		require.Contains(t, fmt.Sprint(err), "503")
	})
}
