package roundtrippers_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/idempotency"
	"github.com/reroute-go/reroute/middleware/cosmos/cosmostest"
	"github.com/reroute-go/reroute/roundtrippers"
)

// loseNext has the next write carried out and its acknowledgement lost.
func (w *world) loseNext(answer cosmostest.Answer) {
	w.AddFault(cosmostest.Fault{Match: cosmostest.Match{Operations: cosmostest.DataWrites()}, Count: 1, AfterApply: true, Answer: answer})
}

// The repeat of a write that had worked is answered with a failure. The report
// says that it may be the echo of the operation's own work (seed "Idempotency
// Requirements").
func TestTheRepeatOfALostWriteIsReportedAsAnEcho(t *testing.T) {
	for name, answer := range lost {
		t.Run(name, func(t *testing.T) {
			accounts(t, func(t *testing.T, multi bool) {
				stack := roundtrippers.Builder{AttemptTimeout: time.Second}
				inWorld(t, setup{sim: cosmostest.Config{MultiWrite: multi}, stack: stack}, func(t *testing.T, w *world) {
					w.loseNext(answer)
					r := w.create(t.Context())
					require.Equal(t, 409, r.status)
					require.Equal(t, idempotency.Exists, r.report.Echo)
					require.True(t, r.report.InDoubt)
					require.Len(t, w.Items("d", "c"), 1)

					id := w.item()
					w.loseNext(answer)
					r = w.send(t.Context(), http.MethodDelete, items+"/"+id, "")
					require.Equal(t, 404, r.status)
					require.Equal(t, idempotency.Missing, r.report.Echo)
					require.Len(t, w.Items("d", "c"), 1)

					id = w.item()
					etag := w.read(t.Context(), id).etag
					require.NotEmpty(t, etag)
					w.loseNext(answer)
					r = w.send(t.Context(), http.MethodPut, items+"/"+id, `{"id":"`+id+`","pk":"p","n":1}`, "If-Match", etag)
					require.Equal(t, 412, r.status)
					require.Equal(t, idempotency.Changed, r.report.Echo)
					require.Contains(t, w.read(t.Context(), id).body, `"n":1`)

					w.loseNext(answer)
					r = w.send(t.Context(), http.MethodPut, items+"/"+id, `{"id":"`+id+`","pk":"p","n":2}`)
					require.Equal(t, 200, r.status, "without a tag the repeat overwrites")
					require.Equal(t, idempotency.NoEcho, r.report.Echo)
				})
			})
		})
	}
}

func TestAGenuineConflictIsNoEcho(t *testing.T) {
	inWorld(t, setup{sim: multiWrite}, func(t *testing.T, w *world) {
		id := w.item()
		genuine := func(r result, status int) {
			require.Equal(t, status, r.status)
			require.Equal(t, idempotency.NoEcho, r.report.Echo)
			require.False(t, r.report.InDoubt)
		}
		conflict := func() result { return w.send(t.Context(), http.MethodPost, items, document(id)) }
		genuine(conflict(), 409)
		genuine(w.send(t.Context(), http.MethodDelete, items+"/none", ""), 404)
		genuine(w.send(t.Context(), http.MethodPut, items+"/"+id, document(id), "If-Match", `"other"`), 412)

		// Sent again, but after answers that cannot have done anything.
		for _, answer := range []cosmostest.Answer{
			cosmostest.Throttled(0), cosmostest.Error(449, 0), cosmostest.Error(410, 0), cosmostest.Error(403, 3),
			cosmostest.Error(403, 1008), cosmostest.Error(404, 1002), cosmostest.Error(429, 3092),
		} {
			w.once(answer)
			genuine(conflict(), 409)
		}
		w.SetOffline(west, cosmostest.Refused)
		genuine(conflict(), 409)
		w.SetOnline(west)

		// And after one that may have: the report cannot tell, and says so.
		w.once(cosmostest.Error(503, 0))
		r := conflict()
		require.Equal(t, 409, r.status)
		require.Equal(t, idempotency.Exists, r.report.Echo)
	})
}

func TestADifferentFailureAfterALostWriteIsNoEcho(t *testing.T) {
	inWorld(t, setup{}, func(t *testing.T, w *world) {
		w.loseNext(cosmostest.Error(503, 0))
		w.once(cosmostest.Error(400, 0))
		r := w.create(t.Context())
		require.Equal(t, 400, r.status)
		require.Equal(t, idempotency.NoEcho, r.report.Echo)
		require.True(t, r.report.InDoubt)
	})
}

// A write whose answer breaks off in its body is in the caller's hands already:
// the caller knows the status, and nobody sends again.
func TestAnAnswerCutInItsBodyIsNotRepeated(t *testing.T) {
	inWorld(t, setup{sim: multiWrite}, func(t *testing.T, w *world) {
		w.SetOffline(west, cosmostest.ResetMidAnswer)
		for _, d := range deeds {
			w.forget()
			r := d.do(w, t.Context())
			require.NoError(t, r.err, d.name)
			require.Less(t, r.status, 405)
			require.Error(t, r.broken, d.name)
			require.Equal(t, []string{west}, w.path(), d.name)
		}
		require.Equal(t, 1, w.Executions("d", "c", "s"))
	})
}
