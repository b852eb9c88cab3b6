package roundtrippers_test

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/cosmos/cosmostest"
	"github.com/reroute-go/reroute/roundtrippers"
)

func TestPersistentThrottlingCostsTheBudgetAndThenComesOut(t *testing.T) { // R047, R049
	for _, retries := range []int{0, 1, 2, 3, 5} {
		stack := roundtrippers.Builder{Throttle: roundtrippers.Throttle{Retries: retries}}
		if retries == 0 {
			retries = 9 // the default
		}
		inWorld(t, setup{sim: multiWrite, stack: stack}, func(t *testing.T, w *world) {
			w.fail(cosmostest.Throttled(100 * time.Millisecond))
			for _, d := range deeds {
				w.forget()
				r := d.do(w, t.Context())
				require.Equal(t, "429/3200", r.code, d.name)
				require.Equal(t, retries+1, w.data(west))
				require.Equal(t, retries+1, w.data(""), "and nowhere else")
				require.Equal(t, time.Duration(retries)*100*time.Millisecond, r.took)
				require.Contains(t, r.body, "Injected")
				require.Equal(t, []middleware.Charge{{Budget: "throttle", Retries: retries, Waited: r.took}}, r.report.Charges)
			}
			require.Empty(t, w.marked())
		})
	}
}

func TestAWaitThatDoesNotFitIsNotBegun(t *testing.T) { // R051, R052, N071; DESIGN rule 2 wins over the forced last try
	for wish, want := range map[time.Duration]struct {
		sends int
		took  time.Duration
	}{
		31 * time.Second: {1, 0},
		20 * time.Second: {2, 20 * time.Second},
		10 * time.Second: {4, 30 * time.Second},
	} {
		inWorld(t, setup{}, func(t *testing.T, w *world) {
			w.fail(cosmostest.Throttled(wish))
			r := w.read(t.Context(), "some")
			require.Equal(t, "429/3200", r.code)
			require.Equal(t, want.sends, r.report.Sends, wish)
			require.Equal(t, want.took, r.took)
		})
	}
}

func TestThrottlingThatEndsIsNotSeenByTheCaller(t *testing.T) { // R044, R169
	for _, d := range deeds {
		inWorld(t, setup{}, func(t *testing.T, w *world) {
			for range 3 {
				w.once(cosmostest.Throttled(100 * time.Millisecond))
			}
			w.once(cosmostest.Throttled(0)) // no wish: 5 ms doubling from the fourth on
			r := d.do(w, t.Context())
			require.Less(t, r.status, 405, d.name)
			require.Equal(t, 5, w.data(west))
			require.GreaterOrEqual(t, r.took, 330*time.Millisecond)
			require.LessOrEqual(t, r.took, 350*time.Millisecond)
			require.LessOrEqual(t, w.Executions("d", "c", "s"), 1)
			require.LessOrEqual(t, len(w.Items("d", "c")), 1)
		})
	}
}

func TestContentionOfAWriteIsWaitedOutInItsRegion(t *testing.T) { // R034, R036, N075, N078
	inWorld(t, setup{sim: multiWrite}, func(t *testing.T, w *world) {
		for range 3 {
			w.once(cosmostest.Error(449, 0))
		}
		r := w.create(t.Context())
		require.Equal(t, 201, r.status)
		require.Equal(t, []string{west, west, west, west}, w.path())
		for i, base := range []time.Duration{0, 10 * time.Millisecond, 20 * time.Millisecond, 40 * time.Millisecond} {
			require.GreaterOrEqual(t, r.report.Attempts[i].Wait, base)
			require.LessOrEqual(t, r.report.Attempts[i].Wait, base+5*time.Millisecond)
		}
		w.forget()
		w.fail(cosmostest.Error(449, 0))
		r = w.create(t.Context())
		require.Equal(t, "449", r.code)
		require.LessOrEqual(t, r.took, 30*time.Second)
		require.Equal(t, w.data(""), w.data(west))
	})
}

func TestAWriteOfASingleWriteAccountIsTriedAgainWhereItWas(t *testing.T) { // N049, N013, seed "Single-Write Accounts"
	for name, answer := range map[string]cosmostest.Answer{
		"reset": {Reset: true}, "503": cosmostest.Error(503, 0), "408": cosmostest.Error(408, 0), "410": cosmostest.Error(410, 1000),
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, setup{open: preferEast}, func(t *testing.T, w *world) {
				w.once(answer)
				require.Equal(t, 201, w.create(t.Context()).status)
				require.Equal(t, []string{west, west}, w.path())
			})
		})
	}
}

func TestAWriteStaysOutOfAnExcludedHub(t *testing.T) { // N053 says otherwise; DESIGN rule 6 wins
	inWorld(t, setup{}, func(t *testing.T, w *world) {
		require.Equal(t, "403/3", w.create(excluding(t.Context(), west)).code)
		require.Zero(t, w.data(west))
		require.Empty(t, w.Items("d", "c"))
		require.Equal(t, 201, w.create(t.Context()).status)
	})
}

func TestAMetadataWriteThatIsRefusedGoesToTheHubAgain(t *testing.T) { // N001, N002
	inWorld(t, setup{sim: multiWrite, open: preferEast}, func(t *testing.T, w *world) {
		w.forget()
		w.AddFault(cosmostest.Fault{Match: cosmostest.Match{Operations: []cosmostest.Operation{cosmostest.CreateDatabase}}, Count: 2, Answer: cosmostest.Error(403, 3)})
		r := w.send(t.Context(), http.MethodPost, "/dbs", `{"id":"other"}`)
		require.Equal(t, 201, r.status)
		require.Equal(t, 3, w.Sends(west, cosmostest.CreateDatabase))
		require.Equal(t, 1, w.accountReads(), "two within five seconds")
	})
}

// signing signs each attempt, as a layer of the user's own would.
type signing struct{ sign func(*http.Request) error }

func (l signing) Wrap(next http.RoundTripper) (http.RoundTripper, error) {
	return middleware.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
		req = req.Clone(req.Context())
		if err := l.sign(req); err != nil {
			return middleware.Refuse(req, err)
		}
		return next.RoundTrip(req)
	}), nil
}

func TestALayerThatSignsSeesEachAttemptsAddress(t *testing.T) { // R057
	var hosts []string
	var sim *cosmostest.Account
	stack := roundtrippers.Builder{PerAttempt: []middleware.Layer{signing{func(req *http.Request) error {
		hosts = append(hosts, sim.RegionOf(req.URL.Host))
		req.Header.Del("X-Ms-Date")
		sim.Sign(req)
		return nil
	}}}}
	inWorld(t, setup{sim: multiWrite, stack: stack}, func(t *testing.T, w *world) {
		sim = w.Account
		w.once(cosmostest.Error(503, 0))
		w.once(cosmostest.Throttled(time.Hour / 200)) // 18 s: the second signature is a newer one
		require.Equal(t, 201, w.create(t.Context()).status)
		require.Equal(t, []string{west, east, east}, hosts)
	})
}

func TestAFailureToSignIsFinalAndBlamesNoRegion(t *testing.T) { // R057, DESIGN rule 7
	errKey := errors.New("the vault is closed")
	stack := roundtrippers.Builder{PerAttempt: []middleware.Layer{signing{func(*http.Request) error { return errKey }}}}
	inWorld(t, setup{sim: multiWrite, stack: stack}, func(t *testing.T, w *world) {
		for _, d := range deeds {
			r := d.do(w, t.Context())
			require.ErrorIs(t, r.err, errKey, d.name)
			require.Zero(t, r.report.Sends)
			require.Zero(t, r.took)
		}
		require.Zero(t, w.data(""))
		require.Empty(t, w.marked())
	})
}
