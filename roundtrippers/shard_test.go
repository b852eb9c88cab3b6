package roundtrippers_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/idempotency"
	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/layertest"
	"github.com/reroute-go/reroute/middleware/rest"
	"github.com/reroute-go/reroute/roundtrippers"
)

var errRefused = &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}

// intends is plain REST, except that every request is the one intended.
type intends struct {
	rest.Dialect
	intent middleware.Intent
}

func (d intends) Intent(*http.Request) middleware.Intent { return d.intent }

var operations = []struct {
	intent middleware.Intent
	// strict operations are repeated although they may have been sent.
	strict bool
}{
	{middleware.Intent{Name: "read", Level: idempotency.Safe}, true},
	{middleware.Intent{Name: "query by POST"}, true},
	{middleware.Intent{Name: "replace", Write: true, Level: idempotency.Idempotent}, true},
	{middleware.Intent{Name: "replace if match", Write: true, Level: idempotency.Idempotent, Echo: idempotency.Changed}, true},
	{middleware.Intent{Name: "delete", Write: true, Level: idempotency.Idempotent, Echo: idempotency.Missing}, true},
	{middleware.Intent{Name: "create", Write: true, Level: idempotency.Idempotent, Echo: idempotency.Exists}, false},
	{middleware.Intent{Name: "patch", Write: true, Level: idempotency.Idempotent, Lenient: true}, false},
	{middleware.Intent{Name: "unjudged write", Write: true}, false},
	{middleware.Intent{Name: "stored procedure", Write: true, Level: idempotency.NonIdempotent}, false},
}

func TestWhatMayHaveBeenSentIsRepeatedOnAnotherPoolOnlyIfStrictlyIdempotent(t *testing.T) { // R056
	for _, o := range operations {
		t.Run(o.intent.Name, func(t *testing.T) {
			script := failingFirst(errReset)
			resp, err := shardOver(t, script, roundtrippers.Shard{Dialect: intends{intent: o.intent}}).RoundTrip(get(t.Context(), endpointA))
			if o.strict {
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
				require.Equal(t, []int{1, 1}, script.sends())
				return
			}
			require.ErrorIs(t, err, errReset)
			require.Equal(t, []int{1}, script.sends())
		})
	}
}

func TestWhatWasCertainlyNotSentIsRepeatedOnAnotherPoolWhateverItIs(t *testing.T) { // 2.2 (b), seed "connection refused"
	for _, o := range operations {
		t.Run(o.intent.Name, func(t *testing.T) {
			script := failingFirst(errRefused)
			d := intends{intent: o.intent}
			rt, err := middleware.Stack(&roundtrippers.Pools{New: script.New}, roundtrippers.Guard{Dialect: d}, roundtrippers.Shard{Dialect: d})
			require.NoError(t, err)
			resp, err := rt.RoundTrip(get(t.Context(), endpointA))
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			require.Equal(t, []int{1, 1}, script.sends())
		})
	}
}

// failingFirst has its first pool fail and the others work.
func failingFirst(err error) *pooled {
	return &pooled{answer: func(pool int, req *http.Request) (*http.Response, error) {
		if pool == 0 {
			return nil, err
		}
		return answer(req, 2, http.StatusOK)
	}}
}

func shardOver(t *testing.T, script *pooled, shard roundtrippers.Shard) http.RoundTripper {
	t.Helper()
	rt, err := middleware.Stack(&roundtrippers.Pools{New: script.New}, shard)
	require.NoError(t, err)
	return rt
}

func TestAnswersAndErrorsThatAreNotTheConnectionsAreNoneOfShardsBusiness(t *testing.T) { // R057
	timeout := &layerTimeout{}
	for name, step := range map[string]func(*http.Request) (*http.Response, error){
		"408":              func(req *http.Request) (*http.Response, error) { return answer(req, 2, http.StatusRequestTimeout) },
		"503":              func(req *http.Request) (*http.Response, error) { return answer(req, 2, http.StatusServiceUnavailable) },
		"429":              func(req *http.Request) (*http.Response, error) { return answer(req, 2, http.StatusTooManyRequests) },
		"unanswered":       func(*http.Request) (*http.Response, error) { return nil, timeout },
		"untrusted scheme": func(*http.Request) (*http.Response, error) { return nil, errors.New(`unsupported protocol scheme "x"`) },
	} {
		script := &pooled{answer: func(_ int, req *http.Request) (*http.Response, error) { return step(req) }}
		shard := roundtrippers.Shard{Dialect: rest.Dialect{}, Timeouts: name != "unanswered"}
		resp, err := shardOver(t, script, shard).RoundTrip(get(t.Context(), endpointA))
		if err == nil {
			require.NoError(t, resp.Body.Close())
		}
		require.Equal(t, []int{1}, script.sends(), name)
	}

	script := failingFirst(errReset)
	unsigned := errors.New("no key to sign with")
	signer := middleware.LayerFunc(func(http.RoundTripper) http.RoundTripper {
		return middleware.RoundTripperFunc(func(req *http.Request) (*http.Response, error) { return middleware.Refuse(req, unsigned) })
	})
	rt, err := middleware.Stack(&roundtrippers.Pools{New: script.New}, roundtrippers.Shard{Dialect: rest.Dialect{}}, signer)
	require.NoError(t, err)
	_, err = rt.RoundTrip(get(t.Context(), endpointA))
	require.ErrorIs(t, err, unsigned)
	require.Empty(t, script.sends())
}

type layerTimeout struct{}

func (*layerTimeout) Error() string { return "no answer in time" }
func (*layerTimeout) Timeout() bool { return true }

func TestABlackHoledPoolIsLeftByTheRetryAndByEverybodyAfterIt(t *testing.T) { // B83
	synctest.Test(t, func(t *testing.T) {
		hole := false
		script := &pooled{answer: func(pool int, req *http.Request) (*http.Response, error) {
			if hole && pool == 0 {
				return blocked(req, nil)
			}
			return answer(req, 2, http.StatusOK)
		}}
		pools := &roundtrippers.Pools{New: script.New}
		rt, err := middleware.Stack(pools,
			roundtrippers.Shard{Dialect: rest.Dialect{}, Timeouts: true},
			roundtrippers.AttemptTimeout{After: 200 * time.Millisecond})
		require.NoError(t, err)
		send(t, rt)
		hole = true
		resp, err := rt.RoundTrip(get(t.Context(), endpointA))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, 200*time.Millisecond, time.Since(start()))
		report := middleware.FromResponse(resp).Report()
		require.Equal(t, []middleware.Charge{{Budget: "shard", Retries: 1}}, report.Charges)
		for range 50 {
			send(t, rt)
		}
		require.Equal(t, []int{2, 51}, script.sends())
		require.Equal(t, 200*time.Millisecond, time.Since(start()))
	})
}

func TestAnotherLayersRetryAfterATimeoutTakesAnotherPoolToo(t *testing.T) { // B83, Shard itself keeps to connectivity errors
	synctest.Test(t, func(t *testing.T) {
		script := &pooled{answer: func(pool int, req *http.Request) (*http.Response, error) {
			if pool == 0 {
				return blocked(req, nil)
			}
			return answer(req, 1, http.StatusOK)
		}}
		rt, err := middleware.Stack(&roundtrippers.Pools{New: script.New},
			roundtrippers.Failover{Dialect: rest.Dialect{}},
			roundtrippers.Shard{Dialect: rest.Dialect{}},
			roundtrippers.AttemptTimeout{After: 200 * time.Millisecond})
		require.NoError(t, err)
		resp, err := rt.RoundTrip(get(t.Context(), endpointA))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, "failover", middleware.FromResponse(resp).Report().Charges[0].Budget)
		require.Equal(t, []int{1, 1}, script.sends())
	})
}

func TestNoRetryOfAnOperationGoesToAPoolItFailedOnWhileThereIsAnother(t *testing.T) { // B83 prop
	var used []int
	script := &pooled{}
	script.answer = func(pool int, req *http.Request) (*http.Response, error) {
		used = append(used, pool)
		return nil, errReset
	}
	// The pools have served before, so it is not known that the endpoint is down.
	warm := true
	inner := script.answer
	script.answer = func(pool int, req *http.Request) (*http.Response, error) {
		if warm || pool > 0 && len(used) == pool+1 {
			return answer(req, 2, http.StatusOK)
		}
		return inner(pool, req)
	}
	rt := shardOver(t, script, roundtrippers.Shard{Dialect: rest.Dialect{}, Retries: 2})
	send(t, rt)
	warm = false
	_, err := rt.RoundTrip(get(t.Context(), endpointA))
	require.ErrorIs(t, err, errReset)
	require.Equal(t, []int{0, 1, 2}, used)
}

func TestAPoolTheOperationFailedOnIsLeftThoughItServesOthers(t *testing.T) { // 2.2: "on a different shard"
	broken := false
	script := &pooled{answer: func(_ int, req *http.Request) (*http.Response, error) {
		if broken {
			broken = false
			return nil, errReset
		}
		return answer(req, 2, http.StatusOK)
	}}
	pools := &roundtrippers.Pools{New: script.New}
	others := middleware.Observer(func(_ context.Context, e middleware.Event) {
		if e.Kind == middleware.RetryScheduled {
			send(t, pools)
			require.Zero(t, pools.Stats()[0].Pools[0].Failures)
		}
	})
	rt, err := middleware.Stack(pools, others, roundtrippers.Shard{Dialect: rest.Dialect{}})
	require.NoError(t, err)
	send(t, rt)
	broken = true
	send(t, rt)
	require.Equal(t, []int{3, 1}, script.sends())
}

func TestAnAttemptThatWasCalledOffAsksForNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		script := &pooled{answer: func(_ int, req *http.Request) (*http.Response, error) { return blocked(req, nil) }}
		asked := -1
		hedge := middleware.LayerFunc(func(next http.RoundTripper) http.RoundTripper {
			return middleware.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
				ctx, cancel := context.WithCancel(req.Context())
				time.AfterFunc(time.Second, cancel)
				_, _ = next.RoundTrip(req.WithContext(ctx)) // the loser
				asked = middleware.FromContext(ctx).Pool()
				return answer(req, 2, http.StatusOK)
			})
		})
		rt, err := middleware.Stack(&roundtrippers.Pools{New: script.New}, hedge, roundtrippers.Shard{Dialect: rest.Dialect{}})
		require.NoError(t, err)
		send(t, rt)
		require.Zero(t, asked)
	})
}

func TestAnEndpointThatIsDownGetsNoMoreThanTwoPoolsInVain(t *testing.T) {
	script := &pooled{answer: func(int, *http.Request) (*http.Response, error) { return nil, errRefused }}
	rt := shardOver(t, script, roundtrippers.Shard{Dialect: rest.Dialect{}})
	for range 100 {
		_, err := rt.RoundTrip(get(t.Context(), endpointA))
		require.ErrorIs(t, err, errRefused)
		var e *middleware.Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, middleware.BudgetSpent, e.Stop)
		require.Equal(t, 2, e.Report.Sends)
	}
	require.Equal(t, []int{100, 100}, script.sends())
}

func TestAFailureAtOneEndpointDoesNotOpenPoolsAtTheNext(t *testing.T) {
	down := false
	script := &pooled{answer: func(_ int, req *http.Request) (*http.Response, error) {
		if down || req.URL.Host == "a.test" {
			return nil, errReset
		}
		return answer(req, 2, http.StatusOK)
	}}
	pools := &roundtrippers.Pools{New: script.New}
	resp, err := pools.RoundTrip(get(t.Context(), "http://b.test"))
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	down = true
	_, err = pools.RoundTrip(get(t.Context(), "http://b.test")) // its one pool has just failed somebody else
	require.ErrorIs(t, err, errReset)
	down = false
	sends := 0
	elsewhere := middleware.LayerFunc(func(next http.RoundTripper) http.RoundTripper {
		return middleware.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
			if sends++; sends > 2 {
				again := *req
				again.URL = &url.URL{Scheme: "http", Host: "b.test"}
				req = &again
			}
			return next.RoundTrip(req)
		})
	})
	rt, err := middleware.Stack(pools, roundtrippers.Failover{Dialect: rest.Dialect{}}, roundtrippers.Shard{Dialect: rest.Dialect{}}, elsewhere)
	require.NoError(t, err)
	send(t, rt) // a, a on another pool, b
	send(t, rt) // b
	stats := pools.Stats()
	require.Equal(t, "http://b.test", stats[1].Endpoint)
	require.Len(t, stats[0].Pools, 2)
	require.Len(t, stats[1].Pools, 1)
}

func TestALayerMayAskForAnotherPoolAfterAnAnswer(t *testing.T) { // 421 of RFC 9110: retry over another connection
	script := &pooled{answer: func(pool int, req *http.Request) (*http.Response, error) {
		if pool == 0 {
			return answer(req, 2, http.StatusMisdirectedRequest)
		}
		return answer(req, 2, http.StatusOK)
	}}
	misdirected := layerFunc(func(next http.RoundTripper) (http.RoundTripper, error) {
		budget := &middleware.Budget{Name: "misdirected", Retries: 1}
		return middleware.Retry(next, rest.Dialect{}, func(_ context.Context, op *middleware.Operation, out middleware.Outcome) middleware.Verdict {
			if out.Status != http.StatusMisdirectedRequest {
				return middleware.Verdict{}
			}
			op.AnotherPool()
			return middleware.Verdict{Budget: budget}
		}, budget)
	})
	rt, err := middleware.Stack(&roundtrippers.Pools{New: script.New}, misdirected)
	require.NoError(t, err)
	resp, err := rt.RoundTrip(get(t.Context(), endpointA))
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusOK, resp.StatusCode)
	require.Equal(t, []int{1, 1}, script.sends())
}

type layerFunc func(next http.RoundTripper) (http.RoundTripper, error)

func (f layerFunc) Wrap(next http.RoundTripper) (http.RoundTripper, error) { return f(next) }

func TestShardRetriesOverAnyBaseAtOnceAndWithTheBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		script := layertest.NewScript(t, layertest.Step{Err: errRefused}, layertest.Step{})
		rt, err := middleware.Stack(script, roundtrippers.Shard{Dialect: rest.Dialect{}})
		require.NoError(t, err)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, endpointA, layertest.NewBody("hello"))
		require.NoError(t, err)
		resp, err := rt.RoundTrip(req)
		require.NoError(t, err)
		_, _ = io.Copy(io.Discard, resp.Body)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, []time.Duration{0, 0}, script.Times())
		require.Equal(t, "hello", script.Sends()[1].Body)
	})
}

func TestShardsRetriesAreBoundedByItsField(t *testing.T) {
	for retries, sends := range map[int]int{0: 2, 1: 2, 4: 5} {
		script := layertest.NewScript(t, layertest.Step{Err: errRefused})
		rt, err := middleware.Stack(script, roundtrippers.Shard{Dialect: rest.Dialect{}, Retries: retries})
		require.NoError(t, err)
		_, err = rt.RoundTrip(get(t.Context(), endpointA))
		require.ErrorIs(t, err, middleware.ErrBudgetSpent)
		require.Len(t, script.Sends(), sends)
		require.Contains(t, middleware.Describe(rt), fmt.Sprintf("at most %d sends", sends))
	}
}

func TestShardNamesItsBadFields(t *testing.T) {
	_, err := middleware.Stack(nil, roundtrippers.Shard{Dialect: rest.Dialect{}, Retries: -3}, roundtrippers.Shard{})
	require.ErrorContains(t, err, "Retries is -3")
	require.ErrorContains(t, err, "Dialect is nil")
}
