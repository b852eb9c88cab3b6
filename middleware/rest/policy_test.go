package rest_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/rest"
)

func TestThePoliciesAreWhatThePrioritiesStandFor(t *testing.T) {
	require.Equal(t, middleware.Patience{}, rest.Background())
	require.Equal(t, middleware.Patience{Retries: middleware.Unlimited, Base: 250 * time.Millisecond, Max: 10 * time.Second, AwaitCircuit: true}, rest.Essential())
	require.Equal(t, middleware.Patience{Retries: 4}, rest.Bounded(4))
}
