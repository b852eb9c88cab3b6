package roundtrippers

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/middleware"
)

// The context ends first and the slot is handed over before the waiter knows: the
// one order in which the slot could be lost (R01, R04).
func TestASlotHandedToOneWhoHasJustLeftGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &circuit{threshold: 1, base: time.Second, limit: time.Minute, probeLimit: time.Minute}
		c.start()
		ctx, cancel := context.WithCancel(middleware.WithPriority(t.Context(), middleware.Essential))
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://api.test/", nil)
		require.NoError(t, err)
		op, _ := middleware.Begin(req)
		_, _, opened := c.report(pass, failing)
		require.True(t, opened)

		left := make(chan error)
		go func() { _, err := c.enter(ctx, op); left <- err }()
		time.Sleep(100 * time.Millisecond) // it waits
		synctest.Wait()
		c.mu.Lock()
		cancel() // decides its select
		c.until = time.Now()
		c.handOver(c.waiting.next())
		require.NotNil(t, c.probe)
		c.mu.Unlock()
		require.ErrorIs(t, <-left, context.Canceled)

		began := time.Now()
		g, err := c.enter(t.Context(), op)
		require.NoError(t, err)
		require.Zero(t, time.Since(began), "not when the lost probe's time is over")
		require.NotSame(t, pass, g, "it is a probe")
		c.report(g, healthy)
	})
}
