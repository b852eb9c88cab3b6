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

func TestAKitThatIsSetUpWronglyFindsNothingKept(t *testing.T) {
	for name, c := range map[string]struct {
		kit  layertest.Kit
		says string
	}{
		"no layer":                  {layertest.Kit{}, "neither Layer nor New"},
		"no layer made":             {layertest.Kit{New: func() middleware.Layer { return nil }}, "neither Layer nor New"},
		"a layer that cannot be":    {layertest.Kit{Layer: layerFunc(func(http.RoundTripper) (http.RoundTripper, error) { return nil, io.EOF })}, "Wrap: EOF"},
		"a Wrap without anything":   {layertest.Kit{Layer: layerFunc(func(http.RoundTripper) (http.RoundTripper, error) { return nil, nil })}, "neither a RoundTripper nor an error"},
		"a layer that refuses":      {layertest.Kit{Layer: refusing}, "closed on Mondays"},
		"one that is said to, only": {layertest.Kit{Layer: passThrough, Refuses: true}, "it sends a request although"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, f := range c.kit.CheckVirtual(t) {
				require.NotEmpty(t, f.Broken, f.Promise.Name)
				require.Contains(t, f.String(), c.says)
				require.False(t, f.Kept())
			}
		})
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
	kit := layertest.Kit{Layer: resend{bug: "the context is dropped"}, Limit: 100 * time.Millisecond}
	for _, p := range layertest.Promises() {
		if p.Name == "cancel while sending" {
			require.Contains(t, p.Check(kit).String(), "RoundTrip did not return within 100ms")
		}
	}
}

// The test binary runs itself, with a layer that breaks promises.
func TestRunFailsTheTestOncePerBrokenPromise(t *testing.T) {
	const name = "LAYERTEST_BUG"
	if bug, inner := os.LookupEnv(name); inner {
		layertest.Run(t, resend{bug: bug})
		return
	}
	for bug, want := range map[string]string{"": "--- PASS", "a header is set": "--- FAIL: " + t.Name() + "/request_unchanged"} {
		run := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
		run.Env = append(os.Environ(), name+"="+bug)
		out, err := run.CombinedOutput()
		require.Equal(t, bug == "", err == nil, "%s", out)
		require.Contains(t, string(out), want)
		if bug != "" {
			require.Equal(t, 2, strings.Count(string(out), "--- FAIL"), "%s", out)
		}
	}
}
