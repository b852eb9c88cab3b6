package layertest_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/layertest"
)

// passThrough is the simplest layer there is.
var passThrough = middleware.LayerFunc(func(next http.RoundTripper) http.RoundTripper { return next })

// layerFunc is a layer that may fail.
type layerFunc func(http.RoundTripper) (http.RoundTripper, error)

func (f layerFunc) Wrap(next http.RoundTripper) (http.RoundTripper, error) { return f(next) }

// refusing refuses every request.
var refusing = middleware.LayerFunc(func(http.RoundTripper) http.RoundTripper {
	return middleware.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
		return middleware.Refuse(req, errors.New("closed on Mondays"))
	})
})

func TestALayerThatDoesNothingKeepsEveryPromise(t *testing.T) {
	layertest.Run(t, passThrough)
}

func TestTheExamplesLayerKeepsEveryPromise(t *testing.T) { testTenant(t) }

func TestACorrectRetryingLayerKeepsEveryPromise(t *testing.T) {
	layertest.Run(t, resend{})
	for _, f := range (layertest.Kit{Layer: resend{}}).CheckVirtual(t) {
		require.True(t, f.Kept(), f.String())
	}
}

func TestALayerThatRefusesKeepsWhatARefusalCanKeep(t *testing.T) {
	kit := layertest.Kit{New: func() middleware.Layer { return refusing }, Refuses: true}
	kit.Run(t)
	var tried []string
	for _, f := range kit.CheckVirtual(t) {
		if f.Kept() {
			tried = append(tried, f.Promise.Name)
		}
	}
	require.Equal(t, []string{"request unchanged", "request body closed", "answer xor error", "cancel before sending", "cancel while waiting", "sends bounded", "no goroutine left"}, tried)
}

func TestARefusalThatLeavesTheBodyOpenIsFound(t *testing.T) { // B09
	kit := layertest.Kit{Refuses: true, Layer: middleware.LayerFunc(func(http.RoundTripper) http.RoundTripper {
		return middleware.RoundTripperFunc(func(*http.Request) (*http.Response, error) { return nil, errors.New("no") })
	})}
	var broken []string
	for _, f := range kit.CheckVirtual(t) {
		if len(f.Broken) > 0 {
			broken = append(broken, f.Promise.Name)
		}
	}
	require.Equal(t, []string{"request body closed"}, broken)
}

func TestWhatNeverSendsAgainIsNotTriedForReplay(t *testing.T) {
	var untried []string
	for _, f := range (layertest.Kit{Layer: passThrough}).CheckVirtual(t) {
		require.Empty(t, f.Broken, f.String())
		if f.Untried != "" {
			require.False(t, f.Kept())
			require.Contains(t, f.String(), "not tried: the layer never")
			untried = append(untried, f.Promise.Name)
		}
	}
	slices.Sort(untried)
	require.Equal(t, []string{"body replayed", "discarded answers drained", "drain bounded", "no vain wait", "readers apart", "sends add up"}, untried)
}

// answering is a layer that answers every request with resp and err, and sends none.
func answering(resp *http.Response, err error) middleware.Layer {
	return middleware.LayerFunc(func(http.RoundTripper) http.RoundTripper {
		return middleware.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
			if req.Body != nil {
				req.Body.Close()
			}
			return resp, err
		})
	})
}

// careless reads an answer before it looks at the error.
type careless struct{ next http.RoundTripper }

func (c *careless) Wrap(next http.RoundTripper) (http.RoundTripper, error) {
	return &careless{next}, nil
}

func (c *careless) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := c.next.RoundTrip(req)
	if resp.StatusCode == http.StatusTooManyRequests {
		return resp, err
	}
	return resp, err
}

// misfits cannot be put to the test, and what is to be said about them.
var misfits = map[string]struct {
	kit  layertest.Kit
	says string
}{
	"no layer":                 {layertest.Kit{}, "no layer to test: Layer is nil and New is not set"},
	"no layer made":            {layertest.Kit{New: func() middleware.Layer { return nil }}, "no layer to test: New returned nil"},
	"a nil pointer":            {layertest.Kit{Layer: (*careless)(nil)}, "no layer to test: it is a nil *layertest_test.careless"},
	"a layer that cannot be":   {layertest.Kit{Layer: layerFunc(func(http.RoundTripper) (http.RoundTripper, error) { return nil, io.EOF })}, "Wrap fails: EOF"},
	"a Wrap without anything":  {layertest.Kit{Layer: layerFunc(func(http.RoundTripper) (http.RoundTripper, error) { return nil, nil })}, "Wrap returns neither a RoundTripper nor an error"},
	"neither answer nor error": {layertest.Kit{Layer: answering(nil, nil)}, "a plain request gets neither a response nor an error: RoundTrip must return one of them"},
	"both answer and error":    {layertest.Kit{Layer: answering(&http.Response{Status: "200 OK", StatusCode: 200, Body: http.NoBody}, io.EOF)}, "a plain request gets both a response (200 OK) and an error (EOF): RoundTrip must return one of them"},
	"an answer of its own":     {layertest.Kit{Layer: answering(&http.Response{Status: "200 OK", StatusCode: 200, Body: http.NoBody}, nil)}, "a plain request is answered (200 OK) and not sent: set Request to one that is sent"},
	"a panic":                  {layertest.Kit{Layer: middleware.LayerFunc(func(http.RoundTripper) http.RoundTripper { return &careless{refusal{}} })}, "a plain request ends in a panic: runtime error: invalid memory address"},
	"a layer that hangs":       {layertest.Kit{Limit: 50 * time.Millisecond, Layer: middleware.LayerFunc(func(http.RoundTripper) http.RoundTripper { return hanging{} })}, "a plain request does not return within 50ms"},
	"a layer that refuses":     {layertest.Kit{Layer: refusing}, "a plain request comes back as the error closed on Mondays: set Request to one that is answered, or Refuses"},
	"a layer without bodies": {layertest.Kit{Layer: middleware.LayerFunc(func(next http.RoundTripper) http.RoundTripper {
		return middleware.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
			if hasBody(req) {
				return middleware.Refuse(req, errors.New("no uploads"))
			}
			return next.RoundTrip(req)
		})
	})}, "a request with a body comes back as the error no uploads: set Request to one that is answered"},
	"a Wrap that panics":        {layertest.Kit{Layer: layerFunc(func(http.RoundTripper) (http.RoundTripper, error) { panic("not yet") })}, "New or Wrap panics: not yet"},
	"no request":                {layertest.Kit{Layer: passThrough, Request: func(context.Context) *http.Request { return nil }}, "Request returns nil"},
	"a request of another time": {layertest.Kit{Layer: passThrough, Request: func(context.Context) *http.Request { return &http.Request{} }}, "Request makes a request without the context that it is given"},
	"one that is said to, only": {layertest.Kit{Layer: passThrough, Refuses: true}, "it sends a request although it is said to refuse"},
}

type refusal struct{}

func (refusal) RoundTrip(req *http.Request) (*http.Response, error) {
	return middleware.Refuse(req, io.EOF)
}

type hanging struct{}

func (hanging) RoundTrip(req *http.Request) (*http.Response, error) {
	<-req.Context().Done()
	return middleware.Refuse(req, req.Context().Err())
}

func TestAKitThatIsSetUpWronglyIsToldOnce(t *testing.T) {
	for name, c := range misfits {
		t.Run(name, func(t *testing.T) {
			for _, findings := range [][]layertest.Finding{c.kit.CheckVirtual(t), c.kit.Check()} {
				require.Len(t, findings, 1)
				f := findings[0]
				require.Equal(t, "set up", f.Promise.Name)
				require.Len(t, f.Broken, 1)
				require.Contains(t, f.String(), c.says)
				require.False(t, f.Kept())
			}
		})
	}
}

// getsAgain sends a GET again after a 503 or an error, on and on and badly.
var getsAgain = middleware.LayerFunc(func(next http.RoundTripper) http.RoundTripper {
	return middleware.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
		for {
			resp, err := next.RoundTrip(req)
			if req.Method != http.MethodGet || err == nil && resp.StatusCode != http.StatusServiceUnavailable {
				return resp, err
			}
			if resp != nil {
				resp.Body.Close()
			}
		}
	})
})

func TestALayerThatSendsOnlyGETsAgainIsTriedWithThoseAndStoppedWhereItSendsOnAndOn(t *testing.T) {
	for _, f := range (layertest.Kit{Layer: getsAgain}).CheckVirtual(t) {
		require.NotContains(t, f.Untried, "never sent a request again")
		if f.Promise.Name == "sends bounded" {
			require.Contains(t, f.String(), "503 Service Unavailable: sent more than 200 times")
		}
	}
}

// resendIf sends a request once more after answers that ask for it.
func resendIf(again func(*http.Response) bool) middleware.Layer {
	return middleware.LayerFunc(func(next http.RoundTripper) http.RoundTripper {
		return middleware.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
			resp, err := next.RoundTrip(req)
			if err != nil || !again(resp) || hasBody(req) && req.GetBody == nil {
				return resp, err
			}
			r2 := *req
			if hasBody(req) {
				if r2.Body, err = req.GetBody(); err != nil {
					return resp, nil //nolint:nilerr // the answer is in hand
				}
			}
			(&resender{}).discard(resp)
			return next.RoundTrip(&r2)
		})
	})
}

// Each of the requests that fail is sent three times.
func TestWhatFailuresKeepIsFoundBelowALayerThatSendsOften(t *testing.T) {
	layer := middleware.LayerFunc(func(next http.RoundTripper) http.RoundTripper {
		return losesPermits(80)(middleware.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
			resp, err := next.RoundTrip(req)
			for sends := 1; sends < 3 && err != nil && req.Context().Err() == nil && req.GetBody != nil; sends++ {
				again := *req
				again.Body, _ = req.GetBody()
				resp, err = next.RoundTrip(&again)
			}
			return resp, err
		}))
	})
	for _, f := range (layertest.Kit{Layer: layer}).CheckVirtual(t) {
		if f.Promise.Name == "failures release" {
			require.Contains(t, f.String(), "after 80 times an error")
		}
	}
}

// What comes back in place of a discarded answer is the layer's choice.
func TestALayerThatReturnsWhatItMightHaveDiscardedIsNotReadOnAndOn(t *testing.T) {
	for name, kit := range map[string]layertest.Kit{
		"an answer of Again's own": {
			Layer: resendIf(func(resp *http.Response) bool { return resp.Header.Get("X-Again") != "" }),
			Again: []layertest.Step{{Answer: func(req *http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: 418, Header: http.Header{"X-Again": {"1"}}, Body: http.NoBody, Request: req}, nil
			}}},
		},
		"an answer of known length": {Layer: resendIf(func(resp *http.Response) bool { return resp.StatusCode == 503 && resp.ContentLength >= 0 })},
		"a 200 in Again": {
			Layer: resendIf(func(resp *http.Response) bool { return resp.Header.Get("X-Again") != "" }),
			Again: []layertest.Step{{Header: map[string]string{"X-Again": "1"}}},
		},
	} {
		for _, f := range kit.CheckVirtual(t) {
			if f.Promise.Name == "sends add up" {
				continue // it does not count in itself
			}
			require.Empty(t, f.Broken, "%s: %s", name, f)
			if f.Promise.Name == "drain bounded" && name == "an answer of Again's own" {
				require.Contains(t, f.Untried, "never discarded an answer", "the kit makes none that is discarded")
			}
		}
	}
}

// Layers that hold state in themselves, not in what Wrap returns.
func TestALayerThatKeepsStateFromOneScenarioToTheNextIsToldOnce(t *testing.T) {
	kept := func(f func(sends int, wraps int) error) middleware.Layer {
		var sends, wraps atomic.Int64
		return layerFunc(func(next http.RoundTripper) (http.RoundTripper, error) {
			wraps.Add(1)
			if err := f(0, int(wraps.Load())); err != nil {
				return nil, err
			}
			return middleware.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
				if err := f(int(sends.Add(1)), 0); err != nil {
					return middleware.Refuse(req, err)
				}
				return next.RoundTrip(req)
			}), nil
		})
	}
	for want, layer := range map[string]middleware.Layer{
		"the layer keeps something from one scenario to the next, where a plain request comes back as the error spent": kept(func(sends, _ int) error {
			if sends > 60 {
				return errors.New("spent")
			}
			return nil
		}),
		"the layer keeps something from one scenario to the next, where Wrap fails: wrapped before": kept(func(_, wraps int) error {
			if wraps > 2 {
				return errors.New("wrapped before")
			}
			return nil
		}),
	} {
		findings := layertest.Kit{Layer: layer}.CheckVirtual(t)
		require.Len(t, findings, 1)
		require.Contains(t, findings[0].String(), want)
		require.Contains(t, findings[0].String(), "Set New to make it anew for each")
	}
}

func TestAPromiseAloneOfAKitThatIsSetUpWronglyIsNotKept(t *testing.T) {
	for name, c := range misfits {
		for _, p := range layertest.Promises() {
			f := p.Check(c.kit)
			require.Equal(t, p.Name, f.Promise.Name, name)
			require.Len(t, f.Broken, 1, name)
			require.Contains(t, f.String(), c.says)
		}
	}
}

func TestAgainMustShowThatItIsFollowedByAnotherSend(t *testing.T) {
	again := []layertest.Step{{Status: 418}}
	for _, p := range layertest.Promises() {
		if p.Name != "sends bounded" {
			continue
		}
		require.Contains(t, p.Check(layertest.Kit{Layer: passThrough, Again: again}).String(), "sends again after none")
		require.True(t, p.Check(layertest.Kit{Layer: layerFunc(func(next http.RoundTripper) (http.RoundTripper, error) {
			return middleware.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
				resp, err := next.RoundTrip(req)
				if resp != nil && resp.StatusCode == 418 {
					resp.Body.Close()
					again := *req
					if req.GetBody != nil {
						again.Body, _ = req.GetBody()
					}
					return next.RoundTrip(&again)
				}
				return resp, err
			}), nil
		}), Again: again}).Kept())
	}
}

func TestTheRequestIsTheKitsOwnerToMake(t *testing.T) {
	var methods []string
	layer := middleware.LayerFunc(func(next http.RoundTripper) http.RoundTripper {
		return middleware.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
			methods = append(methods, req.Method+" "+req.URL.Path)
			return next.RoundTrip(req)
		})
	})
	for _, p := range layertest.Promises() {
		if p.Name == "answers pass" {
			require.True(t, p.Check(layertest.Kit{Layer: layer, Request: func(ctx context.Context) *http.Request {
				req, _ := http.NewRequestWithContext(ctx, http.MethodPatch, "http://own.test/p", strings.NewReader("not sent"))
				return req
			}}).Kept())
		}
	}
	require.Equal(t, []string{"PATCH /p"}, slices.Compact(methods))
}

func TestALayerIsMadeAnewForEachScenario(t *testing.T) {
	made := 0
	synctest.Test(t, func(t *testing.T) {
		for _, f := range (layertest.Kit{New: func() middleware.Layer { made++; return passThrough }}).Check() {
			require.Empty(t, f.Broken, f.String())
		}
	})
	require.Greater(t, made, len(layertest.Promises()))
}

func TestWithoutATestTheClockIsTheWallsAndBugsAreFoundAllTheSame(t *testing.T) {
	for _, f := range layertest.Check(passThrough) {
		require.Empty(t, f.Broken, f.String())
	}
	kit := layertest.Kit{Layer: resend{bug: "the context is dropped"}, Limit: time.Second}
	for _, p := range layertest.Promises() {
		if p.Name != "cancel while sending" {
			continue
		}
		found := p.Check(kit)
		for range 9 {
			if found.Untried == "" {
				break // else the machine was too busy to send within a millisecond of the wall's clock
			}
			found = p.Check(kit)
		}
		require.Contains(t, found.String(), "RoundTrip did not return within 1s")
	}
}

// The test binary runs itself, with a layer that breaks promises or cannot be
// tested.
func TestRunFailsTheTestOncePerBrokenPromise(t *testing.T) {
	const bugName, misfitName = "LAYERTEST_BUG", "LAYERTEST_MISFIT"
	if misfit, inner := os.LookupEnv(misfitName); inner {
		misfits[misfit].kit.Run(t)
		return
	}
	if bug, inner := os.LookupEnv(bugName); inner {
		layertest.Run(t, resend{bug: bug})
		return
	}
	run := func(variable, value string) (string, error) {
		run := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
		run.Env = append(os.Environ(), variable+"="+value)
		out, err := run.CombinedOutput()
		return string(out), err
	}
	for bug, want := range map[string]string{"": "--- PASS", "a header is set": "--- FAIL: " + t.Name() + "/request_unchanged"} {
		out, err := run(bugName, bug)
		require.Equal(t, bug == "", err == nil, out)
		require.Contains(t, out, want)
		if bug != "" {
			require.Equal(t, 2, strings.Count(out, "--- FAIL"), out)
			require.Contains(t, out, "an answer: changed: Header")
			require.Contains(t, out, layertest.Promises()[0].Mend)
		}
	}
	for misfit, c := range misfits {
		out, err := run(misfitName, misfit)
		require.Error(t, err, misfit)
		require.Equal(t, 1, strings.Count(out, c.says), out)
		require.Equal(t, 1, strings.Count(out, "--- FAIL"), out)
		require.NotContains(t, out, t.Name()+"/", misfit)
	}
}

func TestEveryPromiseSaysHowToMendWhatBreaksIt(t *testing.T) {
	for _, p := range layertest.Promises() {
		require.NotEmpty(t, p.Mend, p.Name)
		f := layertest.Finding{Promise: p, Broken: []string{"one thing", "another"}}
		require.Equal(t, p.Name+": broken: one thing; another. To mend it: "+p.Mend, f.String())
	}
}

func findingOf(t *testing.T, promise, bug string) string {
	for _, f := range (layertest.Kit{Layer: resend{bug: bug}}).CheckVirtual(t) {
		if f.Promise.Name == promise {
			return f.String()
		}
	}
	return ""
}

func TestMessagesNameWhatIsWrong(t *testing.T) {
	for _, c := range []struct{ promise, bug, says string }{
		{"request trailers", "the request's trailers are copied", "http.Request.Clone makes a copy of Trailer"},
		{"request trailers", "the request's trailers are copied", "a shallow copy (r2 := *req) keeps it"},
		{"idle connections closed", "CloseIdleConnections is hidden", "a CloseIdleConnections that calls next's"},
		{"answer xor error", "an error is not looked at", "an error of the base: RoundTrip panicked: runtime error: invalid memory address"},
		{"no goroutine left", "a goroutine is left for good", "goroutines go on, such as github.com/reroute-go/reroute/middleware/layertest_test.(*resender).RoundTrip.func"},
		{"sends add up", "attempts multiply", "429 Too Many Requests: sent 3 times by one and 9 times by two of them"},
	} {
		require.Contains(t, findingOf(t, c.promise, c.bug), c.says)
	}
}
