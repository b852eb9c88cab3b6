package rest

import "github.com/reroute-go/reroute/middleware"

// Background is the policy of work that nobody waits for: one send, and none while
// the breaker is open. It is what middleware.Background stands for.
func Background() middleware.Patience { return middleware.Patience{} }

// Essential is the policy of work that somebody waits for: 250 ms doubling to
// 10 s until the context ends, and waiting for the breaker. It is what
// middleware.Essential stands for.
func Essential() middleware.Patience { return middleware.EssentialPatience }

// Bounded is the policy in between: so many retries, 50 ms doubling to 10 s, and
// none while the breaker is open. The seed's client has 4. Change the result's
// fields for another schedule; state it for a call with middleware.WithPatience.
func Bounded(retries int) middleware.Patience { return middleware.Patience{Retries: retries} }
