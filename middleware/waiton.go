package middleware

import "context"

// WaitOn returns the policy of a layer that stays at the endpoint and waits when
// an outcome has cause: as long as the server wishes, otherwise by backoff.
func WaitOn(cause Cause, budget *Budget, backoff Backoff) Policy {
	return func(_ context.Context, op *Operation, out Outcome) Verdict {
		if out.Cause != cause {
			return Verdict{}
		}
		wait := out.Wait
		if wait <= 0 {
			wait = backoff.After(op.Spent(budget).Retries)
		}
		return Verdict{Budget: budget, Wait: wait}
	}
}
