package roundtrippers_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/cosmos/cosmostest"
	"github.com/reroute-go/reroute/roundtrippers"
)

// waits are the places where an operation can be when its time ends. Each makes
// a create spend the fourth second in it.
var waits = []struct {
	name  string
	stack roundtrippers.Builder
	begin func(w *world)
	// answered: a wait that would not end in time is not begun, so that at a
	// deadline the caller has the answer in hand.
	answered string
	reached  time.Duration // when the deadline shows
}{
	{"a throttle's wait", roundtrippers.Builder{}, func(w *world) { w.fail(cosmostest.Throttled(10 * time.Second)) }, "429/3200", 0},
	{"a throttle's second wait", roundtrippers.Builder{}, func(w *world) { w.fail(cosmostest.Throttled(2 * time.Second)) }, "429/3200", 2 * time.Second},
	{"the wait for a topology to settle", roundtrippers.Builder{}, func(w *world) {
		w.once(cosmostest.Answer{Delay: 2500 * time.Millisecond, Status: 403, Substatus: 1008})
		w.fail(cosmostest.Error(403, 1008))
	}, "403/1008", 2500 * time.Millisecond},
	{"the wait of a convergence", converging, func(w *world) { w.fail(cosmostest.Error(403, 1008)) }, "403/1008", sometime},
	{"the wait of contention", roundtrippers.Builder{}, func(w *world) { w.fail(cosmostest.Error(449, 0)) }, "449", sometime},
	{"a failover's own wait", roundtrippers.Builder{Failover: roundtrippers.Failover{Wait: 10 * time.Second}}, func(w *world) {
		w.fail(cosmostest.Error(503, 0))
	}, "503", 0},
	{"the account read of a refresh", roundtrippers.Builder{Failover: roundtrippers.Failover{TopologyWait: time.Millisecond}}, func(w *world) {
		for _, region := range append(w.Regions(), cosmostest.Global) {
			w.AddFault(cosmostest.Fault{Match: cosmostest.Match{Region: region, Operations: []cosmostest.Operation{cosmostest.ReadAccount}}, Answer: cosmostest.Answer{Hang: true}})
		}
		w.fail(cosmostest.Error(403, 1008))
	}, "403/1008", 3500 * time.Millisecond},
	{"an attempt", roundtrippers.Builder{}, func(w *world) { w.fail(cosmostest.Answer{Hang: true}) }, "", 3500 * time.Millisecond},
	{"an attempt after an answer", roundtrippers.Builder{}, func(w *world) {
		w.once(cosmostest.Error(503, 0))
		w.fail(cosmostest.Answer{Hang: true})
	}, "", 3500 * time.Millisecond},
}

const (
	ends     = 3500 * time.Millisecond
	sometime = -1 // before that: the waits are jittered
)

func TestACancelledOperationEndsAtOnceWhereverItWaits(t *testing.T) { // R061, X18
	const leaves = ends - time.Millisecond // no wait ends in the same instant, after which it would be in an attempt
	for _, wait := range waits {
		t.Run(wait.name, func(t *testing.T) {
			inWorld(t, setup{sim: multiWrite, stack: wait.stack}, func(t *testing.T, w *world) {
				wait.begin(w)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				time.AfterFunc(leaves, cancel)
				r := w.create(ctx)
				require.Equal(t, leaves, r.took)
				if wait.name == "the account read of a refresh" {
					require.Equal(t, "403/1008", r.code, "the answer in hand is still there")
					require.Equal(t, middleware.CanceledByCaller, r.report.Stop)
					return
				}
				require.ErrorIs(t, r.err, context.Canceled)
				require.Equal(t, "error: canceled", r.code)
				require.NotErrorIs(t, r.err, context.DeadlineExceeded)
			})
		})
	}
}

func TestADeadlineEndsAnOperationInTimeWithTheAnswerInHand(t *testing.T) { // R033, R053, R054
	for _, wait := range waits {
		for _, how := range []string{"the caller's", "the stack's"} {
			t.Run(wait.name+", "+how, func(t *testing.T) {
				stack := wait.stack
				if how == "the stack's" {
					stack.OperationTimeout = ends
				}
				inWorld(t, setup{sim: multiWrite, stack: stack}, func(t *testing.T, w *world) {
					wait.begin(w)
					ctx, cancel := t.Context(), context.CancelFunc(func() {})
					if how == "the caller's" {
						ctx, cancel = context.WithTimeout(ctx, ends)
					}
					defer cancel()
					r := w.create(ctx)
					require.Equal(t, middleware.Deadline, r.report.Stop, r.report)
					if wait.reached == sometime {
						require.Less(t, r.took, ends)
					} else {
						require.Equal(t, wait.reached, r.took)
					}
					if wait.answered != "" {
						require.Equal(t, wait.answered, r.code)
						require.Contains(t, r.body, "Injected")
						return
					}
					require.ErrorIs(t, r.err, context.DeadlineExceeded)
					require.Equal(t, "error: 408/20008", r.code)
					var typed *middleware.Error
					require.ErrorAs(t, r.err, &typed)
					if wait.name == "an attempt after an answer" {
						require.Equal(t, 503, typed.LastStatus)
					}
					require.Empty(t, w.notMarkedBy503(), "a caller's deadline marks nothing")
				})
			})
		}
	}
}

// notMarkedBy503 lists the marks that no answer has made.
func (w *world) notMarkedBy503() (reasons []string) {
	for _, m := range w.account.Regions.Marks() {
		if m.Reason.String() != "server error" {
			reasons = append(reasons, m.Reason.String())
		}
	}
	return reasons
}

func TestADeadlineCoversTheBodyOfTheAnswer(t *testing.T) {
	inWorld(t, setup{stack: roundtrippers.Builder{OperationTimeout: ends}}, func(t *testing.T, w *world) {
		id := w.item()
		w.fail(cosmostest.Answer{CutAfter: 5, Hang: true})
		began := time.Now()
		r := w.read(t.Context(), id)
		require.Equal(t, 200, r.status)
		require.ErrorIs(t, r.broken, context.DeadlineExceeded)
		require.Equal(t, ends, time.Since(began))
	})
}

func TestAnOperationThatIsOverBeforeItBeginsSendsNothing(t *testing.T) {
	inWorld(t, setup{}, func(t *testing.T, w *world) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, w.create(ctx).err, context.Canceled)
		ctx, cancel = context.WithTimeout(t.Context(), -time.Second)
		defer cancel()
		require.ErrorIs(t, w.create(ctx).err, context.DeadlineExceeded)
		require.Zero(t, w.data(""))
	})
}

// stream is a body that cannot be had twice.
type stream struct {
	io.Reader
	read int64
}

func (s *stream) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	s.read += int64(n)
	return n, err
}

func TestABodyTooLargeToKeepIsStreamedOnce(t *testing.T) {
	const size = 3 << 20
	large := func() *stream {
		return &stream{Reader: io.MultiReader(strings.NewReader(`["`), strings.NewReader(strings.Repeat("x", size)), strings.NewReader(`"]`))}
	}
	inWorld(t, setup{sim: multiWrite}, func(t *testing.T, w *world) {
		body := large()
		r := w.do(w.request(t.Context(), http.MethodPost, sproc, body))
		require.Equal(t, 200, r.status)
		require.EqualValues(t, size+4, body.read, "once, and whole")

		for _, answer := range []cosmostest.Answer{cosmostest.Error(410, 0), cosmostest.Throttled(0), cosmostest.Error(403, 3)} {
			w.once(answer)
			w.forget()
			body = large()
			r = w.do(w.request(t.Context(), http.MethodPost, sproc, body))
			require.Equal(t, answer.Status, r.status, "what it got is what the caller gets")
			require.Equal(t, middleware.NotReplayable, r.report.Stop)
			require.Len(t, w.path(), 1)
			require.EqualValues(t, size+4, body.read)
		}
		require.Equal(t, 1, w.Executions("d", "c", "s"))
	})
}

func TestABodyThatCanBeHadAgainIsSentAgainWhateverItsSize(t *testing.T) {
	payload := []byte(`["` + strings.Repeat("x", 3<<20) + `"]`)
	for name, body := range map[string]func() io.Reader{
		"large, with GetBody": func() io.Reader { return bytes.NewReader(payload) },
		"small, without":      func() io.Reader { return &stream{Reader: strings.NewReader(`["x"]`)} },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, setup{sim: multiWrite}, func(t *testing.T, w *world) {
				var got []int
				w.HandleSproc("d", "c", "s", func(c cosmostest.SprocCall) (any, error) {
					got = append(got, len(c.Parameters[0]))
					return "ran", nil
				})
				for range 3 {
					w.once(cosmostest.Error(410, 0))
				}
				require.Equal(t, 200, w.do(w.request(t.Context(), http.MethodPost, sproc, body())).status)
				require.Equal(t, []string{west, east, north, west}, w.path())
				require.Len(t, got, 1)
				if name == "small, without" {
					require.Equal(t, []int{3}, got)
				} else {
					require.Equal(t, []int{len(payload) - 2}, got)
				}
			})
		})
	}
}
