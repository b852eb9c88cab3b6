package roundtrippers_test

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/middleware/layertest"
	"github.com/reroute-go/reroute/roundtrippers"
)

// The stack with its defaults, and a RetryBudget: 1,000 essential callers meet an
// outage of a minute. While it lasts they cost the API no more than the probes;
// when it is over all of them go on at once. Most were never sent before: they
// waited for a permit when the breaker opened, and the budget of re-sends is not
// for them (P03, R07).
func TestAnOutageCostsTheProbesAndItsEndServesAllP03(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const callers, outage = 1000, time.Minute
		began := time.Now()
		script := layertest.NewServer(t, func(*http.Request) layertest.Step {
			step := layertest.Step{Delay: 10 * time.Millisecond}
			if time.Since(began) < outage {
				step.Status = 503
			}
			return step
		})
		c := apiBase(t, script, func(b *roundtrippers.APIBuilder) {
			b.RetryBudget = &roundtrippers.RetryBudget{}
			b.Retry.Rand, b.Observe = nil, nil
		})
		ctx, cancel := context.WithTimeout(essentially(t.Context()), 10*time.Minute)
		defer cancel()
		var all sync.WaitGroup
		for range callers {
			all.Go(func() { want(t, c, ctx, 200) })
		}
		time.Sleep(outage)
		during := c.sends()
		all.Wait()
		over := time.Since(began) - outage
		t.Logf("%d callers: %d sends in %v of outage; all answered %v after it, %d sends in all", callers, during, outage, over.Round(time.Millisecond), c.sends())
		require.LessOrEqual(t, during, 15)
		require.Equal(t, callers+during, c.sends())
		// The breaker opens at once, then at 5, 15 and 35 s for 40 s: it closes at 75 s,
		// and 4 permits of 10 ms each serve the rest. Only the 15 that were sent in vain
		// may be further on in their back-off, or waiting for the budget's floor.
		require.LessOrEqual(t, over, 15*time.Second+callers/4*10*time.Millisecond+10*time.Second)
	})
}
