package middleware

import (
	"fmt"
	"time"
)

// Budget limits how often, and for how long in waits, one layer may have an
// operation sent again. What was spent is kept in the Operation, so a layer that
// is entered a second time goes on where it stopped: budgets add, they never
// multiply. A Budget itself is immutable and is told apart by its address.
type Budget struct {
	// Name is shown in reports: "failover".
	Name string
	// Retries is the number of re-sends per operation, the first send not
	// counted. 0 allows none, Unlimited any number.
	Retries int
	// Time limits the sum of the waits per operation; 0 = no limit. A wait that
	// would exceed what is left is refused, not shortened.
	Time time.Duration
}

// Charge is what an operation spent of one budget.
type Charge struct {
	Budget  string        // its Name
	Retries int           // re-sends it paid for
	Waited  time.Duration // sum of the waits before them
}

type charge struct {
	budget  *Budget
	retries int
	waited  time.Duration
}

// String is its name and its limits: "throttle 9/30s".
func (b *Budget) String() string {
	text := fmt.Sprintf("%s %d", b.Name, b.Retries)
	if b.Retries == Unlimited {
		text = b.Name + " unlimited"
	}
	if b.Time > 0 {
		text += "/" + b.Time.String()
	}
	return text
}

// allows reports whether c can take one more re-send after wait.
func (b *Budget) allows(c charge, wait time.Duration) bool {
	return c.retries < b.Retries && (b.Time == 0 || wait <= b.Time-c.waited)
}
