package benchmarks

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/benchmarks/internal/workload"
	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/cosmos"
)

func passes(next http.RoundTripper) http.RoundTripper { return next }

func newTerminal() http.RoundTripper { return workload.Terminal{} }

// cosmosStack is the standard stack over base, its partition one of so many.
func cosmosStack(tb testing.TB, ranges int, base http.RoundTripper) http.RoundTripper {
	a, _ := openAccount(tb, ranges, cosmos.Options{})
	rt, err := workload.Cosmos(a, base)
	require.NoError(tb, err)
	resp, err := rt.RoundTrip(workload.Request(workload.Get))
	require.NoError(tb, err)
	require.NoError(tb, resp.Body.Close())
	if op := middleware.FromResponse(resp); resp.StatusCode == http.StatusOK {
		require.NotEmpty(tb, op.Target().Range, "the partition is found")
	}
	return rt
}

// BenchmarkCosmos is the standard stack of an account whose container has 10,000
// ranges.
func BenchmarkCosmos(b *testing.B) {
	rt := cosmosStack(b, 10_000, workload.Terminal{})
	everyWay(b, rt)
	// The header that the dialect adds is there already.
	b.Run("GET stamped", func(b *testing.B) {
		c := workload.NewCaller(rt, workload.Get)
		c.Request.Header = workload.Header(true)
		calls(b, c.Call)
	})
	b.Run("GET 1,024 keys", func(b *testing.B) { calls(b, keys(rt)) })
}

// keys calls for one of 1,024 partition keys after the other.
func keys(rt http.RoundTripper) func() error {
	callers := make([]*workload.Caller, 1024)
	for i := range callers {
		callers[i] = workload.NewCaller(rt, workload.Get)
		callers[i].Request.Header.Set("X-Ms-Documentdb-Partitionkey", fmt.Sprintf(`["tenant-%d"]`, i))
	}
	next := 0
	return func() error {
		next++
		return callers[next%len(callers)].Call()
	}
}

// BenchmarkOwnership is the ready-made stack for keys that change owner, with its
// deadline of a minute.
func BenchmarkOwnership(b *testing.B) {
	rt, err := workload.Ownership(workload.Terminal{})
	require.NoError(b, err)
	everyWay(b, rt)
}

// BenchmarkAPI is the ready-made stack of an API client.
func BenchmarkAPI(b *testing.B) {
	rt, err := workload.API(workload.Terminal{})
	require.NoError(b, err)
	everyWay(b, rt)
}
