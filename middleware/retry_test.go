package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/idempotency"
	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/layertest"
)

func TestTheLastAnswerComesBackWithoutAnErrorAndUnread(t *testing.T) { // X01, B11
	for _, codes := range [][]int{{503}, {404}, {503, 404}, {503, 200}, {503, 503, 503, 200}} {
		t.Run(fmt.Sprint(codes), func(t *testing.T) {
			script := layertest.NewScript(t, status(codes...)...)
			sends := min(len(codes), 3)
			report := answered(t, stack(t, script, again{}), get(t.Context()), codes[sends-1])
			if codes[0] == 503 && len(codes) == 1 {
				sends = 3 // the last step repeats
			}
			require.Equal(t, sends, report.Sends)
			require.Len(t, script.Sends(), sends)
		})
	}
}

func TestTheRequestIsNeverMutated(t *testing.T) { // X03
	script := layertest.NewScript(t, status(503, 503, 200)...)
	body := layertest.NewBody("text")
	req := streamed(t.Context(), body)
	req.Header.Set("Name", "value")
	before, url, header := *req, *req.URL, req.Header.Clone()
	answered(t, stack(t, script, again{Dialect: &stamping{}}), req, 200)
	require.Equal(t, url, *req.URL)
	require.Equal(t, header, req.Header)
	require.Same(t, body, req.Body)
	require.Nil(t, req.GetBody)
	require.Equal(t, before.Host, req.Host)
	require.Equal(t, before.ContentLength, req.ContentLength)
	require.Equal(t, before.Context(), req.Context())
	for _, send := range script.Sends() {
		require.Equal(t, "yes", send.Header.Get("Stamp"))
		require.Equal(t, "text", send.Body)
	}
}

// The loop's four checks: what each refuses alone, and which speaks first when
// several would.
func TestTheFourChecksSpeakInTheirOrder(t *testing.T) {
	none := &middleware.Budget{Name: "none"}
	for _, c := range []struct {
		name string
		may  bool // be repeated
		paid bool
		time bool
		body bool // can be replayed
		want middleware.Stop
	}{
		{"all pass", true, true, true, true, middleware.BudgetSpent}, // in the end
		{"only the first fails", false, true, true, true, middleware.NotRepeatable},
		{"only the second fails", true, false, true, true, middleware.BudgetSpent},
		{"only the third fails", true, true, false, true, middleware.Deadline},
		{"only the fourth fails", true, true, true, false, middleware.NotReplayable},
		{"the first speaks before all", false, false, false, false, middleware.NotRepeatable},
		{"the second before the rest", true, false, false, false, middleware.BudgetSpent},
		{"the third before the last", true, true, false, false, middleware.Deadline},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				layer := again{Wait: time.Second}
				if !c.paid {
					layer.Budget = none
				}
				if !c.time {
					layer.Wait = time.Minute
				}
				if !c.may {
					ctx = middleware.WithIdempotency(ctx, idempotency.NonIdempotent)
				}
				limit := middleware.ReplayBody{}
				if !c.body {
					limit.MaxBytes = -1
				}
				var seen events
				start := time.Now()
				script := layertest.NewScript(t, status(503)...)
				report := answered(t, stack(t, script, seen.observer(), limit, layer), streamed(ctx, layertest.NewBody("text")), 503)
				require.Equal(t, c.want, report.Stop)
				last := seen.list[len(seen.list)-1]
				require.Equal(t, middleware.GaveUp, last.Kind)
				require.Equal(t, c.want, last.Stop)
				if c.name == "all pass" {
					require.Equal(t, 3, report.Sends)
					require.Equal(t, 2*time.Second, time.Since(start), "no sleep after the last attempt (B20)")
				} else {
					require.Equal(t, 1, report.Sends)
					require.Zero(t, time.Since(start), "refused at once")
				}
			})
		})
	}
}

func TestWhatIsCertainlyUnappliedMayBeRepeatedThoughGuarded(t *testing.T) { // B36
	ctx := middleware.WithIdempotency(t.Context(), idempotency.NonIdempotent)
	script := layertest.NewScript(t, status(429, 503, 200)...)
	report := answered(t, stack(t, script, again{}), request(ctx, "POST", nil), 503)
	require.Equal(t, 2, report.Sends)
	require.Equal(t, middleware.NotRepeatable, report.Stop)
	require.True(t, report.InDoubt)
	require.Equal(t, idempotency.NonIdempotent, report.Level)
}

func TestAFinalAnswerIsNeverSentAgain(t *testing.T) {
	for _, cause := range []middleware.Cause{middleware.Success, middleware.Final, middleware.Unmendable, middleware.Refused} {
		step := layertest.Step{Status: 418, Body: "body of 418", Header: map[string]string{"Cause": fmt.Sprint(int(cause))}}
		report := answered(t, stack(t, layertest.NewScript(t, step), again{}), get(t.Context()), 418)
		require.Equal(t, 1, report.Sends)
		require.Equal(t, middleware.Answered, report.Stop)
		require.Equal(t, cause, report.Attempts[0].Cause)
	}
}

func TestForeignRequestsPassUnjudged(t *testing.T) {
	req := get(t.Context())
	req.Header.Set("Scope", "foreign")
	report := answered(t, stack(t, layertest.NewScript(t, status(503)...), again{}), req, 503)
	require.Equal(t, 1, report.Sends)
}

func TestAWaitThatDoesNotEndInTimeIsNotBegun(t *testing.T) { // X19, B18
	bubble(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()

		// With an answer in hand: that answer.
		report := answered(t, stack(t, layertest.NewScript(t, status(503)...), again{Wait: 10 * time.Second}), get(ctx), 503)
		require.Equal(t, middleware.Deadline, report.Stop)

		// Without: a deadline error with the failure attached, and equal is too late.
		err := failed(t, stack(t, layertest.NewScript(t, layertest.Step{Err: errBoom}), again{Wait: time.Second}), get(ctx))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, errBoom)
		require.True(t, err.Timeout())
		require.Equal(t, middleware.DeadlineExceeded, err.Outcome.Cause)
		require.Zero(t, time.Since(start))
	})
}

func TestCancellingAWaitReturnsAtOnceWithTheLastFailure(t *testing.T) { // X09, X17, B19, B20
	for name, end := range map[string]struct {
		set  func(context.Context) (context.Context, context.CancelFunc)
		want error
		stop middleware.Stop
	}{
		"canceled": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(1500*time.Millisecond, cancel)
			return ctx, cancel
		}, context.Canceled, middleware.CanceledByCaller},
		"canceled with a cause": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancelCause(ctx)
			time.AfterFunc(1500*time.Millisecond, func() { cancel(errBoom) })
			return ctx, func() { cancel(nil) }
		}, errBoom, middleware.CanceledByCaller},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				ctx, cancel := end.set(t.Context())
				defer cancel()
				start := time.Now()
				script := layertest.NewScript(t, status(503)...)
				err := failed(t, stack(t, script, again{Wait: time.Second}), get(ctx))
				require.Equal(t, 1500*time.Millisecond, time.Since(start))
				require.ErrorIs(t, err, end.want)
				require.ErrorIs(t, err, ctx.Err())
				require.Equal(t, end.stop, err.Stop)
				require.Equal(t, 503, err.LastStatus)
				require.NotNil(t, err.LastHeader)
				require.Equal(t, 2, err.Report.Sends)
				require.Len(t, script.Sends(), 2)
			})
		})
	}
}

func TestNothingIsSentOnceTheContextHasEnded(t *testing.T) { // B20c
	bubble(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		script := layertest.NewScript(t, layertest.Step{Hang: true})
		err := failed(t, stack(t, script, again{Budget: &middleware.Budget{Name: "nine", Retries: 9}}), get(ctx))
		require.Len(t, script.Sends(), 1)
		require.Equal(t, middleware.Deadline, err.Stop)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, middleware.DeadlineExceeded, err.Report.Attempts[0].Cause)
		require.True(t, err.Report.InDoubt)

		body := layertest.NewBody("never sent")
		err = failed(t, stack(t, script, again{}), streamed(ctx, body))
		require.Len(t, script.Sends(), 1)
		require.Equal(t, 1, body.Closes(), "X04")
		require.Zero(t, err.Report.Sends)
		require.Equal(t, middleware.Deadline, err.Stop)
	})
}

func TestWhetherTheCallerLeftIsAskedOfTheContext(t *testing.T) { // X18
	// A per-try limit below us ends with the same error as the caller's deadline.
	steps := []layertest.Step{{Err: fmt.Errorf("dial: %w", context.DeadlineExceeded)}, {Err: context.Canceled}, {Status: 200, Body: "body of 200"}}
	report := answered(t, stack(t, layertest.NewScript(t, steps...), again{}), get(t.Context()), 200)
	require.Equal(t, middleware.Timeout, report.Attempts[0].Cause)
	require.Equal(t, middleware.Broken, report.Attempts[1].Cause)

	ctx, cancel := context.WithCancel(t.Context())
	base := middleware.RoundTripperFunc(func(*http.Request) (*http.Response, error) { cancel(); return nil, errBoom })
	err := failed(t, stack(t, base, again{}), get(ctx))
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, errBoom)
	require.Equal(t, 1, err.Report.Sends)
	require.Equal(t, middleware.Canceled, err.Outcome.Cause)
}

func TestPrepareRunsOnceTheChecksHavePassed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		runs := 0
		layer := again{Wait: time.Second, Prepare: func(context.Context) error { runs++; return nil }}
		answered(t, stack(t, layertest.NewScript(t, status(503)...), layer), get(t.Context()), 503)
		require.Equal(t, 2, runs, "not before the attempt that is refused")

		layer.Prepare = func(context.Context) error { return errBoom }
		var seen events
		report := answered(t, stack(t, layertest.NewScript(t, status(503)...), seen.observer(), layer), get(t.Context()), 503)
		require.Equal(t, middleware.NotPrepared, report.Stop)
		require.Equal(t, 1, report.Sends)
		require.Empty(t, report.Charges, "nothing was sent, nothing is charged")
		require.ErrorIs(t, seen.list[2].Err, errBoom)

		// It takes time of its own: the deadline is asked again after it.
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		layer.Prepare = func(context.Context) error { time.Sleep(4500 * time.Millisecond); return nil }
		report = answered(t, stack(t, layertest.NewScript(t, status(503)...), layer), get(ctx), 503)
		require.Equal(t, middleware.Deadline, report.Stop)

		layer.Prepare = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		report = answered(t, stack(t, layertest.NewScript(t, status(503)...), layer), get(ctx), 503)
		require.Equal(t, middleware.Deadline, report.Stop)
	})
}

func TestBudgetsAddAndNeverMultiply(t *testing.T) { // X07
	three := again{Budget: &middleware.Budget{Name: "three", Retries: 3}}
	four := again{Budget: &middleware.Budget{Name: "four", Retries: 4}}
	for _, layers := range [][]middleware.Layer{{three, four}, {four, three}} {
		script := layertest.NewScript(t, status(503)...)
		report := answered(t, stack(t, script, layers...), get(t.Context()), 503)
		require.Len(t, script.Sends(), 8)
		require.Equal(t, 8, report.Sends)
		require.Len(t, report.Charges, 2)
	}
	// Causes that alternate do not renew what an inner layer has spent.
	script := layertest.NewScript(t, status(429, 503, 429, 503, 429, 503)...)
	answered(t, stack(t, script,
		again{On: middleware.Unavailable, Budget: &middleware.Budget{Name: "outer", Retries: 9}},
		again{On: middleware.Throttled, Budget: &middleware.Budget{Name: "inner", Retries: 1}},
	), get(t.Context()), 429)
	require.Len(t, script.Sends(), 3)
	// A budget that two layers share is one budget.
	shared := &middleware.Budget{Name: "shared", Retries: 2}
	script = layertest.NewScript(t, status(503)...)
	answered(t, stack(t, script, again{Budget: shared}, again{Budget: shared}), get(t.Context()), 503)
	require.Len(t, script.Sends(), 3)
}

func TestABudgetsTimeCountsTheWaits(t *testing.T) { // B28
	bubble(t, func(t *testing.T) {
		start := time.Now()
		script := layertest.NewScript(t, status(503)...)
		report := answered(t, stack(t, script, again{Wait: 5 * time.Second, Budget: &middleware.Budget{Name: "b", Retries: 9, Time: 30 * time.Second}}), get(t.Context()), 503)
		require.Equal(t, 30*time.Second, time.Since(start))
		require.Equal(t, 7, report.Sends)
		require.Equal(t, []middleware.Charge{{Budget: "b", Retries: 6, Waited: 30 * time.Second}}, report.Charges)
		require.Equal(t, 5*time.Second, report.Attempts[6].Wait)
		require.Zero(t, report.Attempts[0].Wait)
	})
}

func TestAWaitBeyondAllMeasureIsRefused(t *testing.T) { // B23
	for _, wait := range []time.Duration{math.MaxInt64, math.MaxInt64 - 1} {
		report := answered(t, stack(t, layertest.NewScript(t, status(503)...),
			again{Wait: wait, Budget: &middleware.Budget{Name: "b", Retries: 9, Time: time.Minute}}), get(t.Context()), 503)
		require.Equal(t, middleware.BudgetSpent, report.Stop)
	}
	bubble(t, func(t *testing.T) { // charged once, the sum must not overflow
		script := layertest.NewScript(t, status(503)...)
		waits := []time.Duration{time.Second, math.MaxInt64}
		budget := &middleware.Budget{Name: "b", Retries: 9, Time: math.MaxInt64}
		rt, err := middleware.Retry(script, dialect{}, func(_ context.Context, op *middleware.Operation, _ middleware.Outcome) middleware.Verdict {
			return middleware.Verdict{Budget: budget, Wait: waits[op.Sends()-1]}
		}, budget)
		require.NoError(t, err)
		report := answered(t, rt, get(t.Context()), 503)
		require.Equal(t, 2, report.Sends)
		require.Equal(t, middleware.BudgetSpent, report.Stop)
	})
}

func TestANegativeWaitGivesNoTimeBack(t *testing.T) {
	budget := &middleware.Budget{Name: "b", Retries: 2, Time: time.Second}
	rt, err := middleware.Retry(layertest.NewScript(t, status(503)...), dialect{}, func(context.Context, *middleware.Operation, middleware.Outcome) middleware.Verdict {
		return middleware.Verdict{Budget: budget, Wait: -time.Hour}
	}, budget)
	require.NoError(t, err)
	report := answered(t, rt, get(t.Context()), 503)
	require.Equal(t, []middleware.Charge{{Budget: "b", Retries: 2}}, report.Charges)
}

func TestABudgetThatTheLoopWasNotGivenCountsAsSpent(t *testing.T) {
	// A new address each time would be a budget without end.
	script := layertest.NewScript(t, status(503)...)
	rt, err := middleware.Retry(script, dialect{}, func(context.Context, *middleware.Operation, middleware.Outcome) middleware.Verdict {
		return middleware.Verdict{Budget: &middleware.Budget{Name: "new", Retries: 1}}
	})
	require.NoError(t, err)
	report := answered(t, rt, get(t.Context()), 503)
	require.Equal(t, 1, report.Sends)
	require.Equal(t, middleware.BudgetSpent, report.Stop)
}

func TestRetryRefusesWhatItCannotWorkWith(t *testing.T) {
	policy := func(context.Context, *middleware.Operation, middleware.Outcome) middleware.Verdict {
		return middleware.Verdict{}
	}
	for want, try := range map[string]func() (http.RoundTripper, error){
		"Dialect is nil": func() (http.RoundTripper, error) { return middleware.Retry(nil, nil, policy) },
		"Policy is nil":  func() (http.RoundTripper, error) { return middleware.Retry(nil, dialect{}, nil) },
		"budget 1 is nil": func() (http.RoundTripper, error) {
			return middleware.Retry(nil, dialect{}, policy, &middleware.Budget{}, nil)
		},
		`budget "b" allows -1 retries`: func() (http.RoundTripper, error) {
			return middleware.Retry(nil, dialect{}, policy, &middleware.Budget{Name: "b", Retries: -1})
		},
		"Dialect is a nil *middleware_test.dialect: has it been opened?\nPolicy is nil\nbudget 0 is nil\nbudget \"b\" allows -1": func() (http.RoundTripper, error) {
			return middleware.Retry(nil, (*dialect)(nil), nil, nil, &middleware.Budget{Name: "b", Retries: -1})
		},
		"in -1s": func() (http.RoundTripper, error) {
			return middleware.Retry(nil, dialect{}, policy, &middleware.Budget{Name: "b", Time: -time.Second})
		},
	} {
		rt, err := try()
		require.ErrorContains(t, err, want)
		require.Nil(t, rt)
	}
}

func TestAttemptFactsDoNotOutliveTheAttempt(t *testing.T) { // B14
	script := layertest.NewScript(t, layertest.Step{Err: errBoom}, layertest.Step{Status: 503}, layertest.Step{Err: errBoom})
	err := failed(t, stack(t, script, again{}), get(t.Context()))
	require.Equal(t, []int{0, 503, 0}, []int{err.Report.Attempts[0].Status, err.Report.Attempts[1].Status, err.Report.Attempts[2].Status})
	require.NoError(t, err.Report.Attempts[1].Err)
	require.Equal(t, 503, err.LastStatus)
	require.Equal(t, middleware.BudgetSpent, err.Stop)
	require.ErrorIs(t, err, middleware.ErrBudgetSpent)
}

func TestTheReportIsConsistent(t *testing.T) { // X20
	script := layertest.NewScript(t, layertest.Step{Err: errBoom}, layertest.Step{Status: 429}, layertest.Step{Status: 409, Body: "body of 409"})
	rt := stack(t, script, again{On: middleware.Broken}, again{On: middleware.Throttled, Budget: &middleware.Budget{Name: "throttle", Retries: 1}})
	report := answered(t, rt, request(t.Context(), "POST", nil), 409)
	require.Equal(t, "test", report.Operation)
	require.Equal(t, 3, report.Sends)
	require.Len(t, report.Attempts, 3)
	require.Equal(t, middleware.Answered, report.Stop)
	require.Equal(t, []middleware.Charge{{Budget: "again", Retries: 1}, {Budget: "throttle", Retries: 1}}, report.Charges)
	require.True(t, report.InDoubt)
	require.Equal(t, idempotency.Exists, report.Echo, "B32: the 409 is shown, with the mark that it may be our own")
	for i, a := range report.Attempts {
		require.Equal(t, i+1, a.Number)
	}
	// Without doubt a 409 is somebody else's.
	report = answered(t, stack(t, layertest.NewScript(t, status(429, 409)...), again{}), request(t.Context(), "POST", nil), 409)
	require.False(t, report.InDoubt)
	require.Equal(t, idempotency.NoEcho, report.Echo)
}

func TestTheReportCountsRefreshesAndKeepsTheLastError(t *testing.T) { // X20, Z057
	secret := &url.Error{Op: "Get", URL: "https://user:pass@maps.example/?sig=secret", Err: errBoom}
	results := []error{secret, nil, secret}
	refresher := middleware.LayerFunc(func(next http.RoundTripper) http.RoundTripper {
		return middleware.Operate(next, nil, func(op *middleware.Operation, req *http.Request, next http.RoundTripper) (*http.Response, error) {
			for i, err := range results {
				op.Emit(req.Context(), middleware.Event{Kind: middleware.EventKind(int(middleware.TopologyRefreshed) + i%2), Err: err})
				report := op.Report()
				require.Equal(t, i+1, report.Refreshes)
				require.Equal(t, err == nil, report.RefreshErr == nil)
			}
			op.Emit(req.Context(), middleware.Event{Kind: middleware.EndpointMarked, Err: errBoom})
			return next.RoundTrip(req)
		})
	})
	report := answered(t, stack(t, layertest.NewScript(t, status(200)...), refresher), get(t.Context()), 200)
	require.Equal(t, 3, report.Refreshes)
	require.ErrorIs(t, report.RefreshErr, errBoom)
	require.Contains(t, report.String(), "maps refreshed x3 (the last: ")
	require.NotContains(t, report.String(), "secret")
	require.NotContains(t, report.String(), "pass")
}

func TestTheReportStopsItsClockWhenTheOperationEnds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		rt := stack(t, layertest.NewScript(t, layertest.Step{Delay: time.Second}))
		resp, err := rt.RoundTrip(get(t.Context()))
		require.NoError(t, err)
		time.Sleep(time.Hour) // the caller reads slowly
		require.Equal(t, time.Second, middleware.FromResponse(resp).Report().Elapsed)
		read(t, resp)
	})
}

func TestErrorsThatNoRepeatCanMendAreSentOnce(t *testing.T) { // B35
	for _, err := range unmendable() {
		script := layertest.NewScript(t, layertest.Step{Err: err})
		got := failed(t, stack(t, script, again{}), get(t.Context()))
		require.Len(t, script.Sends(), 1, "%v", err)
		require.ErrorIs(t, got, err)
		require.Equal(t, middleware.Unmendable, got.Outcome.Cause, "%v", err)
	}
}

func TestAnErrorOfAnUncomparableTypeIsAnErrorLikeAnyOther(t *testing.T) {
	for _, boom := range []error{manyErrors{errBoom}, boxed{[]int{1}}} {
		script := layertest.NewScript(t, layertest.Step{Err: boom})
		err := failed(t, stack(t, script, again{}, again{On: middleware.Throttled}), get(t.Context()))
		require.Len(t, script.Sends(), 3)
		require.Equal(t, middleware.Broken, err.Outcome.Cause)
		switch boom.(type) {
		case manyErrors:
			var many manyErrors
			require.True(t, errors.As(err, &many))
			require.ErrorIs(t, err, errBoom)
		case boxed:
			var b boxed
			require.True(t, errors.As(err, &b))
		}
	}
}

type manyErrors []error

func (e manyErrors) Error() string   { return fmt.Sprint([]error(e)) }
func (e manyErrors) Unwrap() []error { return e }

type boxed struct{ any }

func (boxed) Error() string { return "boxed" }

func TestADialectOfAnUncomparableTypeWorks(t *testing.T) {
	d := uncomparableDialect{table: map[int]int{1: 1}}
	report := answered(t, stack(t, layertest.NewScript(t, status(503)...), again{Dialect: d}), get(t.Context()), 503)
	require.Equal(t, 3, report.Sends)
}

type uncomparableDialect struct {
	dialect
	table map[int]int
}
