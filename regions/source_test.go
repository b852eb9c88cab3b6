package regions_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/regions"
)

func TestASourceThatIsANilFunctionIsRefused(t *testing.T) {
	_, err := regions.New(regions.Config{Source: regions.SourceFunc(nil)})
	require.EqualError(t, err, "regions: Config.Source is a nil regions.SourceFunc")
}
