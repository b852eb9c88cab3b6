package roundtrippers_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/cosmos"
	"github.com/reroute-go/reroute/regions"
	"github.com/reroute-go/reroute/roundtrippers"
)

// The README's example, to be compiled: see the test below.
func readmeExample(ctx context.Context, key string, req *http.Request) error {
	account, err := cosmos.Open(ctx, "https://acct.documents.azure.com:443/", cosmos.SharedKey(key), cosmos.Options{
		PreferredRegions: []regions.Name{"West US", "East US"},
	})
	if err != nil {
		return err
	}
	defer account.Close()
	go account.Run(ctx) // reads the topology again every five minutes

	rt, err := roundtrippers.Builder{
		Dialect:        account,
		Regions:        account.Regions,
		Partitions:     account.Partitions,
		AttemptTimeout: 5 * time.Second, // or a region that hangs is only left when the base gives up, after 65 s
		Observe:        middleware.LogTo(slog.Default()),
	}.Build()
	if err != nil {
		return err
	}
	resp, err := (&http.Client{Transport: rt}).Do(req) // a signed REST request to any endpoint of the account
	if err != nil {
		return err // *middleware.Error, which has the Report too
	}
	defer resp.Body.Close()
	fmt.Println(middleware.FromResponse(resp).Report()) // which regions, how often, why it stopped
	return nil
}

func TestTheReadmesExampleIsTheOneThatCompiles(t *testing.T) {
	require.ErrorIs(t, readmeExample(t.Context(), "no key!", nil), cosmos.ErrBadKey)

	readme, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	source, err := os.ReadFile("example_builder_test.go")
	require.NoError(t, err)
	_, rest, _ := strings.Cut(string(readme), "## Twenty lines\n\n```go\n")
	shown, _, _ := strings.Cut(rest, "```")
	indented := regexp.MustCompile(`(?m)^(.)`).ReplaceAllString(shown, "\t$1")
	require.Contains(t, string(source), indented)
}
