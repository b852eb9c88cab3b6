package layertest_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/middleware/layertest"
)

// broken says which promise each bug of resend breaks: that one and no other.
var broken = map[string][]string{
	"request unchanged":         {"a header is set", "a header is set and taken back", "the URL is changed", "the body is replaced"},
	"request body closed":       {"an early return leaves the body open", "the body is closed twice"},
	"body replayed":             {"the second body is short"},
	"readers apart":             {"all attempts share a reader"},
	"GetBody kept":              {"GetBody is dropped", "ContentLength is dropped", "GetBody is dropped on the second attempt"},
	"body error final":          {"a body that fails is tried again"},
	"expect continue":           {"the body is read ahead"},
	"request trailers":          {"the request's trailers are copied"},
	"answer xor error":          {"an answer and an error", "neither an answer nor an error", "no body", "an error is not looked at"},
	"answers pass":              {"a final answer becomes an error", "404 becomes an error", "a redirect is followed"},
	"errors kept":               {"errors are flattened"},
	"discarded answers closed":  {"discarded answers are left open", "the returned body's Close goes nowhere"},
	"discarded answers drained": {"discarded answers are only closed"},
	"drain bounded":             {"a drain without bounds", "a drain without a bound in time"},
	"body readable":             {"the attempt's context ends with RoundTrip", "a cut answer is sent again", "a cut answer looks whole"},
	"trailers":                  {"trailers are copied too early"},
	"upgrade writable":          {"the writer is hidden"},
	"cancel before sending":     {"an ended context gives another error", "an ended context is shaken off"},
	"cancel while sending":      {"the context is dropped"},
	"cancel while waiting":      {"a wait before the first attempt does not heed the context", "a wait that does not heed the context", "the queue does not heed the context"},
	"no vain wait":              {"a wait after the last attempt", "a wait into the deadline"},
	"sends bounded":             {"sends are not bounded"},
	"sends add up":              {"attempts multiply"},
	"panic releases":            {"a permit is lost in a panic"},
	"concurrent use":            {"answers are mixed up"},
	"idle connections closed":   {"CloseIdleConnections is hidden"},
	"no goroutine left":         {"a goroutine is left", "a goroutine is left for good"},
}

func TestEachBugIsFoundByThePromiseItBreaksAndByNoOther(t *testing.T) {
	for promise, bugs := range broken {
		for _, bug := range bugs {
			t.Run(bug, func(t *testing.T) {
				var found []string
				for _, f := range (layertest.Kit{Layer: resend{bug: bug}}).CheckVirtual(t) {
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

func TestEachPromiseHasALayerThatBreaksIt(t *testing.T) {
	for _, p := range layertest.Promises() {
		require.NotEmpty(t, broken[p.Name], p.Name)
	}
	require.Len(t, broken, len(layertest.Promises()))
}
