package layertest_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/layertest"
)

// broken says which promise each of the mistakes, and each bug of resend, breaks:
// that one and no other.
var broken = map[string][]string{
	"request unchanged":         {"a header is set", "a header is set and taken back", "the URL is changed", "the body is replaced", "a header is taken away"},
	"request body closed":       {"an early return leaves the body open", "the body is closed twice", "the upload ends with RoundTrip"},
	"body replayed":             {"the second body is short", "a body of length 0 is taken for none", "a reset is tried again with the same body"},
	"readers apart":             {"all attempts share a reader"},
	"GetBody kept":              {"GetBody is dropped", "ContentLength is dropped", "GetBody is dropped on the second attempt"},
	"body error final":          {"a body that fails is tried again"},
	"expect continue":           {"the body is read ahead"},
	"context kept":              {"the attempt's context is not released", "the context's values are lost"},
	"request trailers":          {"the request's trailers are copied"},
	"answer xor error":          {"an answer and an error", "neither an answer nor an error", "no body", "an error is not looked at", "a 418 comes with an error"},
	"answers pass":              {"a final answer becomes an error", "404 becomes an error", "a redirect is followed"},
	"errors kept":               {"errors are flattened", "timeouts are flattened"},
	"discarded answers closed":  {"discarded answers are left open", "the returned body's Close goes nowhere"},
	"discarded answers drained": {"discarded answers are only closed"},
	"drain bounded":             {"a drain without bounds", "a drain without a bound in time", "a drain in the background"},
	"body readable":             {"the attempt's context ends with RoundTrip", "a cut answer is sent again", "a cut answer looks whole", "answers are read ahead", "a cut answer becomes an error", "big answers are cut", "a second Close hangs"},
	"trailers":                  {"trailers are copied too early", "trailers without an announcement are lost"},
	"upgrade writable":          {"the writer is hidden"},
	"cancel before sending":     {"an ended context gives another error", "an ended context is shaken off"},
	"cancel while sending":      {"the context is dropped"},
	"cancel while reading":      {"a cancellation after RoundTrip is not passed on", "an answer that comes too late is left open"},
	"cancel while waiting":      {"a wait before the first attempt does not heed the context", "a wait that does not heed the context", "the queue does not heed the context", "the second wait does not heed the context", "a date is waited for in any case"},
	"no vain wait":              {"a wait after the last attempt", "a wait into the deadline"},
	"sends bounded":             {"sends are not bounded", "sends after a 425 are not bounded"},
	"sends add up":              {"attempts multiply"},
	"panic releases":            {"a permit is lost in a panic"},
	"failures release": {
		"a permit is lost in an error", "a permit is lost in a cancellation", "a permit is held until the answer's end",
		"who is cancelled in the queue leaves the body open", "a breaker that is open leaves the body open",
	},
	"concurrent use":          {"answers are mixed up"},
	"idle connections closed": {"CloseIdleConnections is hidden"},
	"no goroutine left":       {"a goroutine is left", "a goroutine is left for good"},
}

func TestEachBugIsFoundByThePromiseItBreaksAndByNoOther(t *testing.T) {
	for promise, bugs := range broken {
		for _, bug := range bugs {
			t.Run(bug, func(t *testing.T) {
				var found []string
				for _, f := range (layertest.Kit{Layer: withBug(bug)}).CheckVirtual(t) {
					if len(f.Broken) > 0 {
						found = append(found, f.Promise.Name)
						t.Log(f)
					}
				}
				require.Equal(t, []string{promise}, found)
			})
		}
	}
}

func withBug(bug string) middleware.Layer {
	if mistaken, ok := mistakes[bug]; ok {
		return middleware.LayerFunc(func(next http.RoundTripper) http.RoundTripper { return mistaken(next) })
	}
	return resend{bug: bug}
}

func TestEachPromiseHasALayerThatBreaksIt(t *testing.T) {
	for _, p := range layertest.Promises() {
		require.NotEmpty(t, broken[p.Name], p.Name)
	}
	require.Len(t, broken, len(layertest.Promises()))
}
