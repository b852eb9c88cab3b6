package middleware_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/idempotency"
	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/layertest"
)

type badLayer struct{ err error }

func (l badLayer) Wrap(http.RoundTripper) (http.RoundTripper, error) { return nil, l.err }

func TestAStackShowsEveryMistakeAtOnce(t *testing.T) {
	rt, err := middleware.Stack(nil, badLayer{errBoom}, again{}, nil, badLayer{}, middleware.ReplayBody{MaxBytes: -2})
	require.Nil(t, rt)
	require.ErrorIs(t, err, errBoom)
	require.EqualError(t, err, strings.Join([]string{
		"middleware.Stack: layer 0 (middleware_test.badLayer): boom",
		"layer 2 is nil",
		"layer 3 (middleware_test.badLayer): Wrap returned neither a RoundTripper nor an error",
		"layer 4 (middleware.ReplayBody): MaxBytes is -2, want >= -1",
	}, "\n"))
}

func TestLayersAreOutermostFirst(t *testing.T) {
	var order []string
	named := func(name string) middleware.Layer {
		return middleware.LayerFunc(func(next http.RoundTripper) http.RoundTripper {
			return middleware.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
				order = append(order, name)
				return next.RoundTrip(req)
			})
		})
	}
	answered(t, stack(t, layertest.NewScript(t, status(200)...), named("a"), named("b")), get(t.Context()), 200)
	require.Equal(t, []string{"a", "b"}, order)
}

func TestCloseIdleConnectionsReachesTheBase(t *testing.T) { // X14
	script := layertest.NewScript(t)
	inner := stack(t, script, again{})
	for _, rt := range []http.RoundTripper{
		stack(t, script),
		stack(t, script, again{}, middleware.Observer(func(context.Context, middleware.Event) {}), foreignLayer),
		stack(t, inner, again{}),
	} {
		before := script.IdleClosed()
		(&http.Client{Transport: rt}).CloseIdleConnections()
		require.Equal(t, before+1, script.IdleClosed())
	}
	for _, layer := range []middleware.Layer{again{}, middleware.ReplayBody{}} { // alone
		rt, err := layer.Wrap(script)
		require.NoError(t, err)
		before := script.IdleClosed()
		(&http.Client{Transport: rt}).CloseIdleConnections()
		require.Equal(t, before+1, script.IdleClosed())
	}
}

// foreignLayer is a RoundTripper that knows nothing of operations.
var foreignLayer = middleware.LayerFunc(foreign)

func foreign(next http.RoundTripper) http.RoundTripper {
	return middleware.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
		return next.RoundTrip(req.Clone(req.Context()))
	})
}

func TestStacksInStacksCountEachSendOnce(t *testing.T) {
	one := func(name string) again { return again{Budget: &middleware.Budget{Name: name, Retries: 1}} }
	two := func(name string) again { return again{Budget: &middleware.Budget{Name: name, Retries: 2}} }
	for name, build := range map[string]func(base http.RoundTripper) http.RoundTripper{
		"one stack": func(base http.RoundTripper) http.RoundTripper { return stack(t, base, one("a"), two("b")) },
		"a stack in a stack": func(base http.RoundTripper) http.RoundTripper {
			return stack(t, stack(t, base, two("b")), one("a"))
		},
		"a foreign layer on top": func(base http.RoundTripper) http.RoundTripper {
			return stack(t, base, foreignLayer, one("a"), two("b"))
		},
		"a foreign layer in between": func(base http.RoundTripper) http.RoundTripper {
			return stack(t, base, one("a"), foreignLayer, two("b"))
		},
		"a foreign layer at the bottom": func(base http.RoundTripper) http.RoundTripper {
			return stack(t, base, one("a"), two("b"), foreignLayer)
		},
		"a foreign RoundTripper between two stacks": func(base http.RoundTripper) http.RoundTripper {
			return stack(t, foreign(stack(t, base, two("b"))), one("a"))
		},
		"three deep with foreigners": func(base http.RoundTripper) http.RoundTripper {
			return stack(t, foreign(stack(t, foreign(stack(t, base, two("b"))))), one("a"))
		},
		"no stack at all": func(base http.RoundTripper) http.RoundTripper {
			inner, err := two("b").Wrap(base)
			require.NoError(t, err)
			outer, err := one("a").Wrap(inner)
			require.NoError(t, err)
			return outer
		},
		"no stack and a foreigner": func(base http.RoundTripper) http.RoundTripper {
			inner, err := two("b").Wrap(base)
			require.NoError(t, err)
			outer, err := one("a").Wrap(foreign(inner))
			require.NoError(t, err)
			return outer
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, step := range []layertest.Step{status(503)[0], {Err: errBoom}} {
				var seen events
				script := layertest.NewScript(t, step)
				rt := stack(t, build(script), seen.observer())
				resp, err := rt.RoundTrip(request(t.Context(), "POST", strings.NewReader("text")))
				var report middleware.Report
				if err != nil {
					var typed *middleware.Error
					require.ErrorAs(t, err, &typed)
					report = typed.Report
				} else {
					report = middleware.FromResponse(resp).Report()
					require.Equal(t, "body of 503", read(t, resp))
				}
				require.Len(t, script.Sends(), 4)
				require.Equal(t, 4, report.Sends)
				require.Equal(t, middleware.BudgetSpent, report.Stop)
				seen.requirePaired(t, 4)
				for i, a := range report.Attempts {
					require.Equal(t, i+1, a.Number)
				}
			}
		})
	}
}

// requirePaired requires that each attempt started and ended exactly once.
func (e *events) requirePaired(t *testing.T, sends int) {
	t.Helper()
	starts, ends := map[int]int{}, map[int]int{}
	for _, event := range e.list {
		switch event.Kind {
		case middleware.AttemptStarted:
			starts[event.Attempt]++
		case middleware.AttemptEnded:
			ends[event.Attempt]++
			require.Equal(t, 1, starts[event.Attempt])
		}
	}
	require.Equal(t, starts, ends)
	require.Len(t, starts, sends)
	for n := range starts {
		require.Equal(t, 1, starts[n], "attempt %d", n)
	}
}

func TestTheErrorOfALayerThatDoesNotSendIsFinal(t *testing.T) { // DESIGN rule 7: signing errors mark nothing
	unsigned := errors.New("no token")
	for _, layer := range []middleware.Layer{
		middleware.LayerFunc(func(http.RoundTripper) http.RoundTripper {
			return middleware.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
				return middleware.Refuse(req, unsigned)
			})
		}),
		signing{unsigned},
	} {
		script := layertest.NewScript(t, status(200)...)
		body := layertest.NewBody("text")
		err := failed(t, stack(t, script, again{}, layer), streamed(t.Context(), body))
		require.ErrorIs(t, err, unsigned)
		require.Equal(t, middleware.Refused, err.Outcome.Cause)
		require.True(t, err.Outcome.Unapplied)
		require.Zero(t, err.Report.Sends)
		require.False(t, err.Report.InDoubt)
		require.Empty(t, script.Sends())
		require.Equal(t, 1, body.Closes(), "B09")
	}
}

// signing retries a 401 and signs below its own loop, as an own layer might.
type signing struct{ err error }

func (l signing) Wrap(next http.RoundTripper) (http.RoundTripper, error) {
	sign := middleware.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
		return middleware.Refuse(req, l.err)
	})
	return again{}.Wrap(sign)
}

func TestARefusalBelowAForeignRoundTripperIsNoSendEither(t *testing.T) {
	var seen events
	inner := stack(t, layertest.NewScript(t), signing{errBoom})
	err := failed(t, stack(t, foreign(inner), seen.observer(), again{}), get(t.Context()))
	require.Zero(t, err.Report.Sends)
	require.Empty(t, err.Report.Attempts)
	require.Equal(t, middleware.Refused, err.Outcome.Cause)
	require.Equal(t, "attempt started, attempt ended", seen.kinds())
	require.Equal(t, middleware.Refused, seen.list[1].Cause)
}

func TestAForeignRoundTripperMayReplaceTheErrorOfAStackBelow(t *testing.T) {
	replacing := func(next http.RoundTripper) http.RoundTripper {
		return middleware.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
			_, err := next.RoundTrip(req)
			return nil, errors.New("in other words: " + err.Error())
		})
	}
	script := layertest.NewScript(t, layertest.Step{Err: errBoom})
	err := failed(t, stack(t, replacing(stack(t, script)), again{}), get(t.Context()))
	require.Equal(t, middleware.Broken, err.Outcome.Cause)
	require.Len(t, script.Sends(), 3, "it was sent and failed, whatever it is called")
	require.Equal(t, 3, err.Report.Sends)
}

func TestAnOpenCircuitIsNoSendAndAnotherEndpointMayServe(t *testing.T) {
	open := 2
	breaker := middleware.LayerFunc(func(next http.RoundTripper) http.RoundTripper {
		return middleware.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
			if open--; open >= 0 {
				return middleware.Refuse(req, middleware.ErrCircuitOpen)
			}
			return next.RoundTrip(req)
		})
	})
	body := layertest.NewBody("text")
	script := layertest.NewScript(t, status(200)...)
	report := answered(t, stack(t, script, again{On: middleware.CircuitOpen}, breaker), streamed(t.Context(), body), 200)
	require.Equal(t, 1, report.Sends)
	require.Equal(t, "text", script.Sends()[0].Body)
	require.Equal(t, 1, body.Closes())

	open = 99
	err := failed(t, stack(t, script, again{On: middleware.CircuitOpen}, breaker), get(t.Context()))
	require.ErrorIs(t, err, middleware.ErrCircuitOpen)
	require.Equal(t, middleware.CircuitOpen, err.Outcome.Cause)
	require.ErrorIs(t, err, middleware.ErrBudgetSpent)
}

func TestJoinOrStart(t *testing.T) {
	op, req := middleware.Begin(get(t.Context()))
	require.Same(t, op, middleware.FromContext(req.Context()))
	joined, same := middleware.Begin(req)
	require.Same(t, op, joined)
	require.Same(t, req, same)
	require.Nil(t, middleware.FromContext(t.Context()))
	require.Nil(t, middleware.FromResponse(nil))
	require.Nil(t, middleware.FromResponse(&http.Response{}))

	// The outermost RoundTripper ends what Begin has started.
	rt := stack(t, layertest.NewScript(t, status(503)...), again{})
	resp, err := rt.RoundTrip(req)
	require.NoError(t, err)
	read(t, resp)
	require.Same(t, op, middleware.FromResponse(resp))
	require.Equal(t, middleware.BudgetSpent, op.Report().Stop)

	// The context of an operation that is over starts another one.
	resp, err = rt.RoundTrip(req)
	require.NoError(t, err)
	read(t, resp)
	require.NotSame(t, op, middleware.FromResponse(resp))
	require.Equal(t, 3, middleware.FromResponse(resp).Sends())
	require.Equal(t, 3, op.Sends())
}

func TestBeginThenAClientWithATimeout(t *testing.T) {
	bubble(t, func(t *testing.T) {
		op, req := middleware.Begin(get(t.Context()))
		client := &http.Client{Transport: stack(t, layertest.NewScript(t, layertest.Step{Hang: true}), again{}), Timeout: time.Second}
		_, err := client.Do(req)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, middleware.Deadline, op.Report().Stop)
		require.Equal(t, 1, op.Sends())
	})
}

func TestClientTimeoutBoundsTheWholeCall(t *testing.T) { // X21
	bubble(t, func(t *testing.T) {
		start := time.Now()
		script := layertest.NewScript(t, layertest.Step{Status: 503, Body: "body of 503", Delay: 1600 * time.Millisecond})
		endless := again{Wait: 700 * time.Millisecond, Budget: &middleware.Budget{Name: "endless", Retries: 1 << 30}}
		client := &http.Client{Transport: stack(t, script, endless), Timeout: 3 * time.Second}
		_, err := client.Do(get(t.Context()))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 3*time.Second, time.Since(start))
		require.Len(t, script.Sends(), 2)
	})
	bubble(t, func(t *testing.T) { // and where the next wait would not fit, the answer comes back
		script := layertest.NewScript(t, status(503)...)
		client := &http.Client{Transport: stack(t, script, again{Wait: 2 * time.Second}), Timeout: 3 * time.Second}
		resp, err := client.Do(get(t.Context()))
		require.NoError(t, err)
		require.Equal(t, middleware.Deadline, middleware.FromResponse(resp).Report().Stop)
		require.Equal(t, "body of 503", read(t, resp))
	})
}

func TestDetachedRequestsAreOperationsOfTheirOwn(t *testing.T) {
	type key struct{}
	ctx := context.WithValue(t.Context(), key{}, "kept")
	ctx = middleware.WithExcludedRegions(ctx, "west")
	ctx = middleware.WithIdempotency(ctx, idempotency.NonIdempotent)
	tokens := layertest.NewScript(t, layertest.Step{Status: 503})
	var inner *middleware.Operation
	layer := middleware.LayerFunc(func(next http.RoundTripper) http.RoundTripper {
		token := stack(t, tokens, again{})
		return middleware.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
			detached := middleware.Detach(req.Context())
			require.Equal(t, "kept", detached.Value(key{}))
			resp, err := token.RoundTrip(get(detached))
			require.NoError(t, err)
			inner = middleware.FromResponse(resp)
			read(t, resp)
			return next.RoundTrip(req)
		})
	})
	script := layertest.NewScript(t, status(503)...)
	resp, err := stack(t, script, again{}, layer).RoundTrip(get(ctx))
	require.NoError(t, err)
	read(t, resp)
	outer := middleware.FromResponse(resp)
	require.NotSame(t, outer, inner)
	require.Equal(t, 1, outer.Sends(), "guarded")
	require.Equal(t, 3, inner.Sends(), "the caller's wish does not bind it")
	require.Empty(t, inner.ExcludedRegions())
	require.Len(t, outer.ExcludedRegions(), 1)
}

func TestTheErrorOfADetachedRequestIsNotTheOperationsOwn(t *testing.T) {
	tokens := stack(t, layertest.NewScript(t, layertest.Step{Err: errBoom}), again{})
	layer := middleware.LayerFunc(func(next http.RoundTripper) http.RoundTripper {
		return middleware.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
			_, err := tokens.RoundTrip(get(middleware.Detach(req.Context())))
			return middleware.Refuse(req, err)
		})
	})
	err := failed(t, stack(t, layertest.NewScript(t), again{}, layer), get(t.Context()))
	require.Zero(t, err.Report.Sends)
	require.Equal(t, middleware.Refused, err.Outcome.Cause, "the token server's trouble says nothing of ours")
	require.ErrorIs(t, err, errBoom)
}

func TestFromResponseFindsTheOutermostOperation(t *testing.T) {
	for name, base := range map[string]func(*http.Response, *http.Request){
		"a base that leaves Request out": func(resp *http.Response, _ *http.Request) { resp.Request = nil },
		"a base with another request":    func(resp *http.Response, _ *http.Request) { resp.Request = get(context.Background()) },
		"a base that keeps to the rules": func(*http.Response, *http.Request) {},
		"an operation of its own below us": func(resp *http.Response, req *http.Request) {
			_, resp.Request = middleware.Begin(get(context.Background()))
		},
	} {
		t.Run(name, func(t *testing.T) {
			script := layertest.NewScript(t, status(503)...)
			rt := stack(t, middleware.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
				resp, err := script.RoundTrip(req)
				base(resp, req)
				return resp, err
			}), again{})
			resp, err := rt.RoundTrip(get(t.Context()))
			require.NoError(t, err)
			read(t, resp)
			require.Equal(t, 3, middleware.FromResponse(resp).Sends())
			require.Equal(t, "service.test", resp.Request.URL.Host)
		})
	}
}

func TestFromResponseThroughAClientAndARealServer(t *testing.T) {
	var hits atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		switch {
		case req.URL.Path == "/from":
			http.Redirect(w, req, "/to", http.StatusFound)
		case hits.Add(1) < 3:
			w.WriteHeader(503)
		default:
			_, _ = w.Write([]byte("body of 200"))
		}
	}))
	defer server.Close()
	client := &http.Client{Transport: stack(t, &http.Transport{}, again{})}
	defer client.CloseIdleConnections()
	resp, err := client.Get(server.URL + "/from")
	require.NoError(t, err)
	require.Equal(t, "body of 200", read(t, resp))
	report := middleware.FromResponse(resp).Report()
	require.Equal(t, 3, report.Sends, "a redirect's next request is an operation of its own")
	require.Equal(t, middleware.Answered, report.Stop)
}

func TestOneDialectJudgesAndStampsOnce(t *testing.T) {
	d := &stamping{}
	script := layertest.NewScript(t, status(429, 503, 200)...)
	answered(t, stack(t, script, again{Dialect: d}, again{Dialect: d, On: middleware.Throttled}), get(t.Context()), 200)
	require.Equal(t, 1, d.intents)
	require.Equal(t, 1, d.stamps)
}

func TestNestedDialectsEachSpeakForThemselves(t *testing.T) {
	inner, outer := &stamping{}, &naming{}
	script := layertest.NewScript(t, status(503)...)
	rt := stack(t, stack(t, script, again{Dialect: inner, On: middleware.Throttled}), again{Dialect: outer})
	report := answered(t, rt, get(t.Context()), 503)
	require.Equal(t, 3, report.Sends)
	require.Equal(t, "outer", report.Operation)
	require.Equal(t, 1, inner.intents)
	for _, send := range script.Sends() {
		require.Equal(t, "yes", send.Header.Get("Stamp"), "on every attempt")
	}
	require.Equal(t, []string{"outer", "outer", "outer"}, outer.judged)
}

// naming notes whose intent it is shown.
type naming struct {
	dialect
	judged []string
}

func (n *naming) Intent(*http.Request) middleware.Intent { return middleware.Intent{Name: "outer"} }

func (n *naming) Judge(in *middleware.Intent, resp *http.Response, err error) middleware.Outcome {
	n.judged = append(n.judged, in.Name)
	return n.dialect.Judge(in, resp, err)
}

func TestAPanicBelowEndsTheOperationAndUnwinds(t *testing.T) { // X16
	var seen events
	body := layertest.NewBody("text")
	first := true
	script := layertest.NewScript(t, status(200)...)
	base := middleware.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
		if first {
			first = false
			panic("below")
		}
		return script.RoundTrip(req)
	})
	rt := stack(t, base, seen.observer(), again{}, again{})
	op, req := middleware.Begin(streamed(t.Context(), body))
	require.PanicsWithValue(t, "below", func() { _, _ = rt.RoundTrip(req) })
	require.Equal(t, "attempt started, attempt ended", seen.kinds())
	require.Error(t, seen.list[1].Err)
	require.Equal(t, 1, body.Closes())
	require.Equal(t, 1, op.Sends())
	report := answered(t, rt, get(req.Context()), 200) // another operation
	require.Equal(t, 1, report.Sends)
}

func TestABaseThatBreaksTheContractIsMended(t *testing.T) { // X01, B11
	for _, base := range []middleware.RoundTripperFunc{
		func(*http.Request) (*http.Response, error) { return nil, nil },
		func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 200, Body: http.NoBody}, errBoom
		},
	} {
		err := failed(t, stack(t, base, again{}), get(t.Context()))
		require.Equal(t, 3, err.Report.Sends)
		err = failed(t, stack(t, base), get(t.Context()))
		require.Equal(t, 1, err.Report.Sends)
	}
	script := layertest.NewScript(t, status(503)...)
	both := middleware.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
		resp, _ := script.RoundTrip(req)
		return resp, errBoom
	})
	failed(t, stack(t, both, again{}), get(t.Context())) // the script sees to it that no body is left open
	layer := middleware.LayerFunc(func(http.RoundTripper) http.RoundTripper { return both })
	failed(t, stack(t, script, layer), get(t.Context()))

	bodyless := middleware.RoundTripperFunc(func(*http.Request) (*http.Response, error) { return &http.Response{StatusCode: 503}, nil })
	resp, err := stack(t, bodyless, again{}).RoundTrip(get(t.Context()))
	require.NoError(t, err)
	require.Empty(t, read(t, resp))
}

func TestManyGoroutinesShareOneStack(t *testing.T) { // X15, B12
	script := layertest.NewServer(t, func(req *http.Request) layertest.Step {
		if req.Header.Get("Bad") != "" {
			return layertest.Step{Status: 503, Body: "body of 503"}
		}
		return layertest.Step{Status: 200, Body: "body of 200"}
	})
	var seen atomic.Int64
	observer := middleware.Observer(func(context.Context, middleware.Event) { seen.Add(1) })
	rt := stack(t, script, observer, again{}, again{On: middleware.Throttled})
	var wg sync.WaitGroup
	for g := range 64 {
		wg.Go(func() {
			for range 20 {
				req, want, sends := streamed(t.Context(), layertest.NewBody("text")), 200, 1
				if g%2 == 0 {
					req.Header.Set("Bad", "yes")
					want, sends = 503, 3
				}
				resp, err := rt.RoundTrip(req)
				if err != nil || resp.StatusCode != want || middleware.FromResponse(resp).Sends() != sends {
					t.Errorf("%v %v", resp, err)
					return
				}
				_ = resp.Body.Close()
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 32*20*2+32*20*(6+2+1), seen.Load())
}

func TestAnOperationMayBeUsedByManyAtOnce(t *testing.T) {
	budget := &middleware.Budget{Name: "b", Retries: 1}
	hedge := middleware.LayerFunc(func(next http.RoundTripper) http.RoundTripper {
		return middleware.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
			op := middleware.FromContext(req.Context())
			results := make([]*http.Response, 8)
			var wg sync.WaitGroup
			for i := range results {
				wg.Go(func() {
					op.Avoid("west")
					op.Shun("east")
					op.PreferHub(true)
					op.AnotherPool()
					op.SetTarget(middleware.Target{Region: "west"})
					_, _, _, _, _ = op.Avoided(), op.WantsHub(), op.Pool(), op.Target(), op.Report()
					_, _, _ = op.Intent(), op.Spent(budget), op.Sends()
					results[i], _ = next.RoundTrip(req)
				})
			}
			wg.Wait()
			for _, resp := range results[1:] {
				_ = resp.Body.Close()
			}
			return results[0], nil
		})
	})
	var seen events
	script := layertest.NewScript(t, layertest.Step{Body: "body of 200", Delay: time.Millisecond})
	for _, rt := range []http.RoundTripper{
		stack(t, script, seen.observer(), again{}, hedge),
		stack(t, script, seen.observer(), hedge, again{}),
		stack(t, hedge(stack(t, script)), seen.observer(), again{}), // nested: each leg takes over or opens a record
	} {
		seen.list = nil
		before := len(script.Sends())
		report := answered(t, rt, get(t.Context()), 200)
		require.Equal(t, 8, len(script.Sends())-before)
		require.Equal(t, 8, report.Sends)
		seen.requirePaired(t, 8)
	}
}

func TestWishesAndTargets(t *testing.T) {
	op, _ := middleware.Begin(get(t.Context()))
	op.Avoid("west")
	old := op.Avoided()
	op.Avoid("west")
	op.Shun("east")
	require.Equal(t, 1, old[0].Times, "a slice handed out does not change")
	require.Equal(t, 2, op.Avoided()[0].Times)
	require.Equal(t, 2, op.Avoided()[1].Times)
	require.False(t, op.WantsHub())
	op.PreferHub(true)
	require.True(t, op.WantsHub())
	op.AnotherPool()
	require.Equal(t, 1, op.Pool())
	op.SetTarget(middleware.Target{Region: "west", Endpoint: "h", Range: "7"})
	require.Equal(t, "7", op.Target().Range)
}

func TestTheCallersInputsAreRead(t *testing.T) {
	ctx := middleware.WithExcludedRegions(t.Context(), "west", "east")
	ctx = middleware.WithExcludedRegions(ctx, "north")
	ctx = middleware.WithPartitionKey(ctx, `["a"]`)
	ctx = middleware.WithIdempotency(ctx, idempotency.Idempotent)
	req := get(ctx)
	req.Header.Set("Level", "once")
	resp, err := stack(t, layertest.NewScript(t, layertest.Step{}), again{}).RoundTrip(req)
	require.NoError(t, err)
	op := middleware.FromResponse(resp)
	require.Len(t, op.ExcludedRegions(), 1)
	require.Equal(t, `["a"]`, op.Intent().PartitionKey)
	require.Equal(t, idempotency.Idempotent, op.Intent().Level, "over the dialect's own judgement")
	require.NoError(t, resp.Body.Close())
}
