package roundtrippers_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/reroute-go/reroute/"

// The house's arrows: what each package may import of this module, itself and
// its own sub-packages aside.
var mayImport = map[string][]string{
	"internal/check": nil, // every other one may import it
	"idempotency":    nil,
	"regions":        nil,
	"partitions":     {"regions"},
	"middleware":     {"idempotency", "regions", "partitions"},
	// Dialects stand on the middleware, beside the layers.
	"middleware/rest":      {"idempotency", "regions", "partitions", "middleware"},
	"middleware/cosmos":    {"idempotency", "regions", "partitions", "middleware"},
	"middleware/ownership": {"idempotency", "regions", "partitions", "middleware"},
	"middleware/layertest": {"idempotency", "regions", "partitions", "middleware"},
	// Layers know no dialect.
	"roundtrippers": {"idempotency", "regions", "partitions", "middleware"},
	// The simulator speaks the service's side of the wire: it knows how keys are
	// hashed, and nothing of the client.
	"middleware/cosmos/cosmostest": {"partitions", "regions"},
	// This one speaks the words that both ends share, and knows no layer.
	"middleware/ownership/ownershiptest": {"idempotency", "regions", "partitions", "middleware", "middleware/ownership"},
}

func TestImportsRunOneWay(t *testing.T) {
	for pkg, allowed := range mayImport {
		out, err := exec.Command("go", "list", "-deps", module+pkg).CombinedOutput()
		require.NoError(t, err, "%s", out)
		for _, dep := range strings.Fields(string(out)) {
			dep, ours := strings.CutPrefix(dep, module)
			if !ours || dep == "internal/check" || dep == pkg || strings.HasPrefix(dep, pkg+"/") {
				continue
			}
			require.Truef(t, isOneOf(dep, allowed), "%s imports %s", pkg, dep)
		}
	}
}

func isOneOf(dep string, allowed []string) bool {
	for _, a := range allowed {
		if dep == a || dep == a+"/snapshot" && a == "regions" {
			return true
		}
	}
	return false
}
