package live

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRealSocketsNothingFailsOverReroute(t *testing.T) {
	a, err := Start()
	require.NoError(t, err)
	t.Cleanup(a.Close)
	c, done, err := OverReroute(context.Background(), a, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	t.Cleanup(done)
	t.Cleanup(c.Close)
	phases, err := Run(c, a, 1200*time.Millisecond, func(Phase) {})
	require.NoError(t, err)
	require.Len(t, phases, len(Phases))
	for _, f := range phases {
		require.Positive(t, f.Operations, f.Phase)
		require.Zero(t, f.Failed, "%s: %v", f.Phase, f.First)
	}
	require.Zero(t, a.BadSignatures())
}
