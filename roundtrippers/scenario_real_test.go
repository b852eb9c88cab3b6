package roundtrippers_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/idempotency"
	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/cosmos/cosmostest"
	"github.com/reroute-go/reroute/roundtrippers"
)

// onSockets runs a scenario on loopback sockets, over each protocol.
func onSockets(t *testing.T, s setup, scenario func(t *testing.T, w *world)) {
	for name, cfg := range map[string]cosmostest.Config{"HTTP1": {}, "HTTP1 over TLS": {TLS: true}, "HTTP2": {TLS: true, HTTP2: true}} {
		t.Run(name, func(t *testing.T) {
			s.sim.TLS, s.sim.HTTP2 = cfg.TLS, cfg.HTTP2
			s.open.RefreshInterval = time.Millisecond // nobody waits five seconds here
			scenario(t, newWorld(t, s))
		})
	}
}

func TestRealRegionsGoDownAndComeBack(t *testing.T) { // R084, R088, R074
	s := setup{sim: multiWrite}
	s.open.MarkFor = 50 * time.Millisecond
	onSockets(t, s, func(t *testing.T, w *world) {
		id := w.item()
		require.Equal(t, 200, w.read(t.Context(), id).status)
		w.SetOffline(west, cosmostest.Refused)
		require.Equal(t, 200, w.read(t.Context(), id).status)
		require.Equal(t, 201, w.create(t.Context()).status)
		require.Equal(t, []string{west, east, east}, w.path())
		w.SetOnline(west)
		require.Eventually(t, func() bool {
			return w.read(t.Context(), id).report.Attempts[0].Region == west
		}, 10*time.Second, time.Millisecond)
		require.Equal(t, 200, w.read(t.Context(), id).status)
	})
}

func TestRealWriteRoleMovesUnderLoad(t *testing.T) { // R104
	s := setup{stack: roundtrippers.Builder{Failover: roundtrippers.Failover{Converge: true}}}
	onSockets(t, s, func(t *testing.T, w *world) {
		var mu sync.Mutex
		var failures []string
		var load sync.WaitGroup
		for range 8 {
			load.Go(func() {
				for range 25 {
					if r := w.create(t.Context()); r.status != 201 {
						mu.Lock()
						failures = append(failures, r.report.String())
						mu.Unlock()
					}
				}
			})
		}
		w.SetWriteRegion(east)
		load.Wait()
		require.Empty(t, failures)
		require.Len(t, w.Items("d", "c"), 200)
	})
}

func TestRealLostAcknowledgementsAndTheGuard(t *testing.T) { // B36, DESIGN rule 5
	onSockets(t, setup{sim: multiWrite}, func(t *testing.T, w *world) {
		for name, answer := range lost {
			if answer.Hang {
				continue // in virtual time
			}
			w.loseNext(answer)
			r := w.create(t.Context())
			require.Equal(t, 409, r.status, "%s: %v", name, r.err)
			require.Equal(t, idempotency.Exists, r.report.Echo, name)

			before := w.Executions("d", "c", "s")
			w.loseNext(answer)
			r = deeds[4].do(w, t.Context())
			require.Equal(t, middleware.NotRepeatable, r.report.Stop, "%s: %s", name, r.report)
			require.Equal(t, before+1, w.Executions("d", "c", "s"), name)
		}
	})
}

func TestRealConnectionsThatWereCutWhileIdleRunNothingTwice(t *testing.T) { // DESIGN rule 5
	onSockets(t, setup{sim: multiWrite}, func(t *testing.T, w *world) {
		for n := range 5 {
			require.Equal(t, 200, deeds[4].do(w, t.Context()).status)
			w.SetOffline(west, cosmostest.Refused) // resets what is open
			w.SetOnline(west)
			before := w.Executions("d", "c", "s")
			r := deeds[4].do(w, t.Context())
			ran := w.Executions("d", "c", "s") - before
			if r.err != nil { // the cut was noticed only when the request was under way
				require.ErrorIs(t, r.err, middleware.ErrNotRepeatable, n)
				require.LessOrEqual(t, ran, 1)
				continue
			}
			require.Equal(t, 1, ran)
		}
	})
}

func TestRealExclusionsHoldOnSockets(t *testing.T) { // Done-when 8
	onSockets(t, setup{sim: multiWrite, stack: converging}, func(t *testing.T, w *world) {
		for _, how := range []cosmostest.Outage{cosmostest.Refused, cosmostest.ResetMidAnswer, cosmostest.BlackHole} {
			w.SetOffline(west, how)
			w.SetOffline(north, how)
			for _, d := range deeds {
				ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
				d.do(w, excluding(ctx, east))
				cancel()
			}
		}
		require.Zero(t, w.data(east))
	})
}

func TestRealLargeBodiesAreSentWholeInEachAttempt(t *testing.T) {
	payload := []byte(`["` + strings.Repeat("x", 3<<20) + `"]`)
	onSockets(t, setup{sim: multiWrite}, func(t *testing.T, w *world) {
		var mu sync.Mutex
		var got []int
		w.HandleSproc("d", "c", "s", func(c cosmostest.SprocCall) (any, error) {
			mu.Lock()
			defer mu.Unlock()
			got = append(got, len(c.Parameters[0]))
			return string(c.Parameters[0]), nil
		})
		w.once(cosmostest.Error(410, 0))
		require.Equal(t, 200, w.do(w.request(t.Context(), http.MethodPost, sproc, bytes.NewReader(payload))).status)
		require.Equal(t, []string{west, east}, w.path())
		require.Equal(t, []int{len(payload) - 2}, got)

		body := &stream{Reader: io.MultiReader(bytes.NewReader(payload))}
		r := w.do(w.request(t.Context(), http.MethodPost, sproc, body))
		require.Equal(t, 200, r.status)
		require.Greater(t, len(r.body), len(payload)-2, "and so is the answer")
		require.EqualValues(t, len(payload), body.read)
	})
}
