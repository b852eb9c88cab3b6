package roundtrippers_test

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/middleware/cosmos"
	"github.com/reroute-go/reroute/middleware/cosmos/cosmostest"
	"github.com/reroute-go/reroute/regions"
)

// preferEast reads in a region that is not the hub.
var preferEast = cosmos.Options{PreferredRegions: []regions.Name{east}}

const sessionToken = "X-Ms-Session-Token"

// tokens lists the session tokens of the requests on items, as they arrived.
func (w *world) tokens() (list []string) {
	for _, r := range w.Requests(cosmostest.Match{Operations: cosmostest.Data()}) {
		list = append(list, r.Header.Get(sessionToken))
	}
	return list
}

func (w *world) readSession(id, token string, excluded ...string) result {
	return w.send(excluding(w.t.Context(), excluded...), http.MethodGet, items+"/"+id, "", sessionToken, token)
}

func TestAReaderFindsItsOwnWriteInTheHub(t *testing.T) { // R018, R071, N041
	inWorld(t, setup{open: preferEast}, func(t *testing.T, w *world) {
		w.SetReplicationLag(east, cosmostest.Paused)
		id := w.id()
		written := w.send(t.Context(), http.MethodPost, items, document(id))
		require.Equal(t, 201, written.status)
		w.forget()
		r := w.readSession(id, written.session)
		require.Equal(t, 200, r.status)
		require.Equal(t, []string{east, west}, w.path())
		require.Equal(t, []string{written.session, written.session}, w.tokens())
		require.Zero(t, r.took)

		w.forget()
		require.Equal(t, "404", w.read(t.Context(), id).code, "R024: the next operation starts in its own region; without a token a stale answer is an answer")
		require.Equal(t, []string{east}, w.path())
	})
}

func TestOnASingleWriteAccountTheHubIsAskedTwiceThenTheAnswerComesOut(t *testing.T) { // R019, N041, B69
	inWorld(t, setup{open: preferEast}, func(t *testing.T, w *world) {
		w.fail(cosmostest.Error(404, 1002))
		r := w.readSession("some", "0:0#1")
		require.Equal(t, "404/1002", r.code)
		require.Equal(t, []string{east, west, west}, w.path())
		require.Equal(t, []string{"0:0#1", "0:0#1", "0:0#1"}, w.tokens(), "never dropped for a stale answer")
		require.Contains(t, r.body, "Injected")
	})
	inWorld(t, setup{open: preferEast}, func(t *testing.T, w *world) {
		require.Equal(t, "404", w.readSession("none", "0:0#0").code)
		require.Equal(t, []string{east}, w.path(), "404/0 is an answer")
	})
}

func TestWithSeveralWriteRegionsEachIsAskedOnce(t *testing.T) { // B67, N042, N043
	for _, d := range deeds {
		t.Run(d.name, func(t *testing.T) {
			inWorld(t, setup{sim: multiWrite, open: preferEast}, func(t *testing.T, w *world) {
				w.fail(cosmostest.Error(404, 1002))
				require.Equal(t, "404/1002", d.do(w, t.Context()).code)
				require.Equal(t, []string{east, west, north}, w.path())
			})
		})
	}
}

func TestASessionRetryPassesOverMarkedRegionsOnlyAtFirst(t *testing.T) { // B67
	inWorld(t, setup{sim: multiWrite}, func(t *testing.T, w *world) {
		once := w.AddFault(cosmostest.Fault{Match: cosmostest.Match{Region: east}, Answer: cosmostest.Error(503, 0), Count: 1})
		require.Equal(t, "404", w.read(excluding(t.Context(), west), "none").code)
		require.Equal(t, 1, once.Hits())
		w.forget()
		w.fail(cosmostest.Error(404, 1002), west, north)
		require.Equal(t, "404", w.read(t.Context(), "none").code)
		require.Equal(t, []string{west, north, east}, w.path(), "the marked one last, but asked")
	})
}

func TestASessionRetryStaysOutOfExcludedRegions(t *testing.T) { // DESIGN rule 6
	accounts(t, func(t *testing.T, multi bool) {
		inWorld(t, setup{sim: cosmostest.Config{MultiWrite: multi}, open: preferEast}, func(t *testing.T, w *world) {
			w.fail(cosmostest.Error(404, 1002), east, north)
			r := w.readSession("some", "0:0#1", west)
			require.Equal(t, "404/1002", r.code, "the hub could have answered")
			require.Zero(t, w.data(west))
			require.Equal(t, east, w.path()[0])
			if multi {
				require.Equal(t, []string{east, north}, w.path())
			}
		})
	})
}

func TestTheTokenSurvivesEveryKindOfRetry(t *testing.T) { // B69
	for name, answer := range map[string]cosmostest.Answer{
		"403/1008": cosmostest.Error(403, 1008), "404/1002": cosmostest.Error(404, 1002), "408": cosmostest.Error(408, 0),
		"410": cosmostest.Error(410, 0), "429": cosmostest.Throttled(time.Millisecond), "429/3092": cosmostest.Error(429, 3092),
		"449": cosmostest.Error(449, 0), "500": cosmostest.Error(500, 0), "503": cosmostest.Error(503, 0),
		"reset": {Reset: true}, "closed": {Refuse: true},
	} {
		t.Run(name, func(t *testing.T) {
			accounts(t, func(t *testing.T, multi bool) {
				inWorld(t, setup{sim: cosmostest.Config{MultiWrite: multi}}, func(t *testing.T, w *world) {
					id := w.item()
					w.once(answer)
					require.Equal(t, 200, w.readSession(id, "0:0#0").status)
					require.Equal(t, []string{"0:0#0", "0:0#0"}, w.tokens())
				})
			})
		})
	}
}

func TestALateReplicaServesOnceItHasCaughtUp(t *testing.T) {
	inWorld(t, setup{open: preferEast}, func(t *testing.T, w *world) {
		w.SetReplicationLag(east, 2*time.Second)
		id := w.id()
		written := w.send(t.Context(), http.MethodPost, items, document(id))
		w.forget()
		require.Equal(t, 200, w.readSession(id, written.session).status)
		time.Sleep(2 * time.Second)
		require.Equal(t, 200, w.readSession(id, written.session).status)
		require.Equal(t, []string{east, west, east}, w.path())
	})
}

func TestTheHubWishOutlivesAFailover(t *testing.T) { // R023, R071
	inWorld(t, setup{open: preferEast}, func(t *testing.T, w *world) {
		w.AddFault(cosmostest.Fault{Match: cosmostest.Match{Region: east, Operations: cosmostest.Data()}, Answer: cosmostest.Error(404, 1002)})
		w.AddFault(cosmostest.Fault{Match: cosmostest.Match{Region: west, Operations: cosmostest.Data()}, Count: 1, Answer: cosmostest.Error(503, 0)})
		id := "none"
		require.Equal(t, "404", w.readSession(id, "0:0#0").code)
		require.Equal(t, []string{east, west, west}, w.path())
	})
}

func TestEveryAttemptLooksTheSameToTheService(t *testing.T) { // R062
	inWorld(t, setup{sim: multiWrite}, func(t *testing.T, w *world) {
		for _, answer := range []cosmostest.Answer{cosmostest.Error(503, 0), cosmostest.Throttled(0), cosmostest.Error(449, 0), {Reset: true}} {
			w.once(answer)
		}
		body := document("same")
		r := w.send(t.Context(), http.MethodPost, items, body, "X-Ms-Client-Id", "me", "X-Ms-Activity-Id", "11111111-2222-4333-8444-555555555555")
		require.Equal(t, 201, r.status)
		sent := w.Requests(cosmostest.Match{Operations: cosmostest.Data()})
		require.Len(t, sent, 5)
		for _, s := range sent {
			require.Equal(t, sent[0].Header, s.Header)
			require.Equal(t, body, string(s.Body))
			require.Equal(t, "true", s.Header.Get("X-Ms-Noretry-449"))
			require.Equal(t, "true", s.Header.Get("X-Ms-Cosmos-Allow-Tentative-Writes"))
		}
		require.True(t, slices.Contains(w.path(), east))
	})
}
