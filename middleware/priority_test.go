package middleware_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/middleware"
)

func TestAPriorityCanBePassedOnAndIsLeftBehindByDetach(t *testing.T) {
	ctx := t.Context()
	require.Equal(t, middleware.Background, middleware.PriorityOf(ctx))
	ctx = middleware.WithPriority(ctx, middleware.Essential)
	require.Equal(t, middleware.Essential, middleware.PriorityOf(ctx))
	require.Equal(t, middleware.Background, middleware.PriorityOf(middleware.WithPriority(ctx, 99)), "an unknown one is nobody's wait")
	require.Equal(t, middleware.Background, middleware.PriorityOf(middleware.Detach(ctx)))
}
