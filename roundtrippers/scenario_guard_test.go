package roundtrippers_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/idempotency"
	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/cosmos/cosmostest"
	"github.com/reroute-go/reroute/roundtrippers"
)

// onceOnly are the operations that must not run twice (DESIGN rule 4).
var onceOnly = []struct {
	name string
	do   func(w *world, ctx context.Context) result
}{
	{"sproc", deeds[4].do},
	{"create with a trigger", func(w *world, ctx context.Context) result {
		return w.send(ctx, http.MethodPost, items, document(w.id()), "X-Ms-Documentdb-Pre-Trigger-Include", "t")
	}},
	{"upsert with a trigger", func(w *world, ctx context.Context) result {
		return w.send(ctx, http.MethodPost, items, document("some"), "X-Ms-Documentdb-Is-Upsert", "True", "X-Ms-Documentdb-Post-Trigger-Include", "t")
	}},
	{"delete by partition key", func(w *world, ctx context.Context) result {
		return w.send(ctx, http.MethodPost, "/dbs/d/colls/c/operations/partitionkeydelete", "")
	}},
}

// lost are ways to lose the acknowledgement of what was, or may have been, done.
var lost = map[string]cosmostest.Answer{
	"408": cosmostest.Error(408, 0), "500": cosmostest.Error(500, 0), "502": cosmostest.Error(502, 0),
	"503": cosmostest.Error(503, 0), "504": cosmostest.Error(504, 0), "598": cosmostest.Error(598, 0),
	"reset": {Reset: true}, "closed unanswered": {Refuse: true}, "cut in the header": {CutHeader: true}, "never answered": {Hang: true},
}

func TestWhatMustNotRunTwiceIsSentOnceWhenItsAnswerIsLost(t *testing.T) { // B36, DESIGN rules 4 and 5, seed 408/5xx rows
	for name, answer := range lost {
		for _, applied := range []bool{true, false} {
			t.Run(name+map[bool]string{true: " after it ran", false: " before it ran"}[applied], func(t *testing.T) {
				accounts(t, func(t *testing.T, multi bool) {
					stack := roundtrippers.Builder{AttemptTimeout: time.Second}
					inWorld(t, setup{sim: cosmostest.Config{MultiWrite: multi}, stack: stack}, func(t *testing.T, w *world) {
						w.AddFault(cosmostest.Fault{Match: cosmostest.Match{Operations: cosmostest.DataWrites()}, AfterApply: applied, Answer: answer})
						for _, op := range onceOnly {
							w.forget()
							r := op.do(w, t.Context())
							require.Equal(t, 1, w.data(""), op.name)
							require.Equal(t, middleware.NotRepeatable, r.report.Stop, op.name)
							require.Equal(t, idempotency.NonIdempotent, r.report.Level)
							require.True(t, r.report.InDoubt)
							if answer.Status != 0 {
								require.Equal(t, answer.Status, r.status, "the answer comes as it is")
								continue
							}
							require.ErrorIs(t, r.err, middleware.ErrNotRepeatable, op.name)
						}
						if applied {
							require.Equal(t, 1, w.Executions("d", "c", "s"))
						}
					})
				})
			})
		}
	}
}

func TestWhatMustNotRunTwiceIsSentAgainWhereItCannotHaveRun(t *testing.T) { // B36, DESIGN rule 4
	for name, answer := range map[string]cosmostest.Answer{
		"429": cosmostest.Throttled(5 * time.Millisecond), "429/3092": cosmostest.Error(429, 3092), "449": cosmostest.Error(449, 0),
		"403/3": cosmostest.Error(403, 3), "403/1008": cosmostest.Error(403, 1008), "404/1002": cosmostest.Error(404, 1002),
		"410": cosmostest.Error(410, 0), "410/1002": cosmostest.Error(410, 1002), "410/1007": cosmostest.Error(410, 1007),
		"410/1008": cosmostest.Error(410, 1008),
	} {
		t.Run(name, func(t *testing.T) {
			accounts(t, func(t *testing.T, multi bool) {
				inWorld(t, setup{sim: cosmostest.Config{MultiWrite: multi}}, func(t *testing.T, w *world) {
					for _, op := range onceOnly {
						w.forget()
						w.once(answer)
						r := op.do(w, t.Context())
						require.Less(t, r.status, 300, op.name)
						require.NoError(t, r.err)
						require.Equal(t, 2, w.data(""), op.name)
						require.False(t, r.report.InDoubt)
					}
					require.Equal(t, 1, w.Executions("d", "c", "s"))
				})
			})
		})
	}
}

func TestARefusedConnectionHasRunNothing(t *testing.T) { // B36, DESIGN rule 5
	inWorld(t, setup{sim: multiWrite}, func(t *testing.T, w *world) {
		w.SetOffline(west, cosmostest.Refused)
		for _, op := range onceOnly {
			require.Less(t, op.do(w, t.Context()).status, 300, op.name)
		}
		require.Equal(t, 1, w.Executions("d", "c", "s"))
		require.Equal(t, len(onceOnly), w.data(east))
	})
	inWorld(t, setup{}, func(t *testing.T, w *world) { // one write region, back in time for the third try
		w.SetOffline(west, cosmostest.Refused)
		for _, op := range onceOnly {
			r := op.do(w, t.Context())
			require.ErrorIs(t, r.err, middleware.ErrBudgetSpent, op.name)
			require.Equal(t, 5, r.report.Sends, "failover's three, and one over another connection")
			require.False(t, r.report.InDoubt)
		}
	})
}

// The service may answer before, and the connection break after, several things
// that cannot have run it: then the first thing that may have ends it.
func TestTheGuardHoldsInTheMiddleOfAnOperation(t *testing.T) { // B36: under every nesting
	inWorld(t, setup{sim: multiWrite}, func(t *testing.T, w *world) {
		for _, answer := range []cosmostest.Answer{cosmostest.Throttled(0), cosmostest.Error(449, 0), cosmostest.Error(410, 0), cosmostest.Error(403, 3)} {
			w.once(answer)
		}
		w.AddFault(cosmostest.Fault{Match: cosmostest.Match{Operations: cosmostest.DataWrites()}, AfterApply: true, Answer: cosmostest.Error(503, 0)})
		r := deeds[4].do(w, t.Context())
		require.Equal(t, 503, r.status)
		require.Equal(t, 5, r.report.Sends)
		require.Equal(t, 1, w.Executions("d", "c", "s"))
	})
}

func TestWithoutTheGuardEverythingIsSentAgain(t *testing.T) { // DESIGN rule 4: the driver's "always retry"
	for _, name := range []string{"408", "503", "reset", "closed unanswered", "never answered"} {
		t.Run(name, func(t *testing.T) {
			stack := roundtrippers.Builder{NoGuard: true, AttemptTimeout: time.Second}
			inWorld(t, setup{sim: multiWrite, stack: stack}, func(t *testing.T, w *world) {
				w.AddFault(cosmostest.Fault{Match: cosmostest.Match{Operations: cosmostest.DataWrites()}, Count: 1, AfterApply: true, Answer: lost[name]})
				require.Equal(t, 200, deeds[4].do(w, t.Context()).status)
				require.Equal(t, 2, w.Executions("d", "c", "s"), "it ran twice")

				w.AddFault(cosmostest.Fault{Match: cosmostest.Match{Operations: cosmostest.DataWrites()}, Count: 1, AfterApply: true, Answer: lost[name]})
				r := deeds[4].do(w, middleware.WithIdempotency(t.Context(), idempotency.NonIdempotent))
				require.Equal(t, middleware.NotRepeatable, r.report.Stop, "what the caller says binds without a guard")
				require.Equal(t, 3, w.Executions("d", "c", "s"))
			})
		})
	}
}

func TestACallerCanVouchForItsStoredProcedure(t *testing.T) {
	inWorld(t, setup{sim: multiWrite}, func(t *testing.T, w *world) {
		w.once(cosmostest.Error(503, 0))
		require.Equal(t, 200, deeds[4].do(w, middleware.WithIdempotency(t.Context(), idempotency.Idempotent)).status)
		require.Equal(t, []string{west, east}, w.path())
	})
}
