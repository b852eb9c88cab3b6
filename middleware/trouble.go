package middleware

import (
	"time"

	"github.com/reroute-go/reroute/regions"
)

// trouble is what an operation needs only once something went wrong: what the
// layers wish of the next attempt, what was paid, and the attempts before the last
// one. What the first re-send needs is in the same allocation.
type trouble struct {
	avoided []regions.Avoided
	hub     bool
	pool    int

	charges []charge
	earlier []attempt
	replays int
	wait    time.Duration // before the next attempt, for its record

	refreshes  int
	refreshErr error // of the last one

	// Of the partition, as Place has it.
	shunned []regions.Name
	probe   regions.Name

	firstAvoided [1]regions.Avoided
	firstCharge  [1]charge
	firstEarlier [1]attempt
	firstAgain   ownRequest
	againTaken   bool
	secondJudged bool

	secondJudgement judgement
}

// troubled returns the operation's trouble. Called with mu held.
func (op *Operation) troubled() *trouble {
	t := op.trouble.Load()
	if t == nil {
		t = new(trouble)
		t.avoided, t.charges, t.earlier = t.firstAvoided[:0], t.firstCharge[:0], t.firstEarlier[:0]
		op.trouble.Store(t)
	}
	return t
}

// spare returns the place for another request.
func (op *Operation) spare() *ownRequest {
	op.mu.Lock()
	defer op.mu.Unlock()
	t := op.troubled()
	if t.againTaken {
		return new(ownRequest)
	}
	t.againTaken = true
	return &t.firstAgain
}

// spareJudgement returns the place for another one. Called with mu held.
func (op *Operation) spareJudgement() *judgement {
	t := op.trouble.Load()
	if t == nil || t.secondJudged {
		return new(judgement)
	}
	t.secondJudged = true
	return &t.secondJudgement
}

// Spent returns what the operation has charged to b so far.
func (op *Operation) Spent(b *Budget) Charge {
	op.mu.Lock()
	defer op.mu.Unlock()
	c := op.charge(b)
	return Charge{Budget: b.Name, Retries: c.retries, Waited: c.waited}
}

// refreshed counts a map that was read again, or could not be.
func (op *Operation) refreshed(err error) {
	op.mu.Lock()
	defer op.mu.Unlock()
	t := op.troubled()
	t.refreshes++
	t.refreshErr = discreet(err)
}

func (op *Operation) charges() []charge {
	if t := op.trouble.Load(); t != nil {
		return t.charges
	}
	return nil
}

func (op *Operation) charge(b *Budget) charge {
	for _, c := range op.charges() {
		if c.budget == b {
			return c
		}
	}
	return charge{budget: b}
}

func (op *Operation) affords(v Verdict) bool {
	op.mu.Lock()
	defer op.mu.Unlock()
	return v.Budget.allows(op.charge(v.Budget), v.Wait)
}

// spend charges one re-send.
func (op *Operation) spend(v Verdict) {
	op.mu.Lock()
	defer op.mu.Unlock()
	t := op.troubled()
	t.wait, op.stop = v.Wait, NotStopped
	if v.Replay {
		t.replays++
	}
	for i := range t.charges {
		if t.charges[i].budget == v.Budget {
			t.charges[i].retries++
			t.charges[i].waited += v.Wait
			return
		}
	}
	t.charges = append(t.charges, charge{budget: v.Budget, retries: 1, waited: v.Wait})
}

// prolong charges a further wait to b, if that has the time left.
func (op *Operation) prolong(b *Budget, wait time.Duration) bool {
	op.mu.Lock()
	defer op.mu.Unlock()
	t := op.troubled()
	for i := range t.charges {
		if c := &t.charges[i]; c.budget == b {
			if b.Time > 0 && wait > b.Time-c.waited {
				return false
			}
			c.waited += wait
			t.wait += wait
			return true
		}
	}
	return true
}
