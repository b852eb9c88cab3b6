package cosmostest

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// Fault is a rule that spoils the answers of the requests it matches. Of the rules that apply to a request the one added first
// gives the answer. A rule without any effect is a counter: it never stops a later rule.
type Fault struct {
	// Match selects the requests; the zero Match selects all.
	Match Match
	// Skip lets the first matches pass. Default 0.
	Skip int
	// Count ends the rule after so many hits. Default 0: no end.
	Count int
	// Probability is the chance of a hit, in (0,1]. Default 0: always.
	Probability float64
	// Seed makes the draws of Probability repeatable. Default 0, a seed like any other.
	Seed uint64
	// From and Until bound the rule in time, Until excluded. Zero: open.
	From, Until time.Time
	// AfterApply runs the operation and then gives Answer: a lost acknowledgement.
	AfterApply bool
	// Answer is what the client gets.
	Answer Answer
	// Respond, when set, makes the answer for each hit instead of Answer. It runs without locks held and may be called concurrently.
	Respond func(Request) Answer
}

// Answer is what a fault does to a request. The zero Answer changes nothing. Without a Status the operation runs normally and
// the other fields shape its answer; Hang, Refuse and Reset without CutAfter or AfterApply keep the operation from running.
type Answer struct {
	Status    int               // 0 = the operation runs and answers
	Substatus int               // x-ms-substatus, 0 = no header
	Header    map[string]string // added to the answer
	Body      string            // "" = the service's error body for Status
	// Delay passes before anything else happens (with AfterApply: after the operation ran).
	Delay time.Duration
	// Hang never answers: until the client leaves or the account closes.
	Hang bool
	// Refuse closes the connection without an answer. The client sees an end of file.
	Refuse bool
	// Reset closes the connection so that the client sees ECONNRESET.
	Reset bool
	// CutAfter ends the answer after so many bytes of its body, -1 after the headers: with an end of file, with a reset when
	// Reset is set, or never when Hang is set. 0 = whole answer. At most all but one byte of a body are sent.
	CutAfter int
	// CutHeader ends the answer in the middle of its headers.
	CutHeader bool
}

func (a Answer) cuts() bool { return a.CutAfter != 0 || a.CutHeader }

// silent reports an answer that never reaches the client.
func (a Answer) silent() bool { return (a.Hang || a.Refuse || a.Reset) && !a.cuts() }

// changes reports whether the answer has any effect.
func (a Answer) changes() bool {
	return a.Status != 0 || a.Substatus != 0 || len(a.Header) > 0 || a.Body != "" || a.Delay != 0 || a.silent() || a.cuts()
}

// Error is the answer of a status and substatus with the service's error body.
func Error(status, substatus int) Answer { return Answer{Status: status, Substatus: substatus} }

// Throttled is 429/3200, with x-ms-retry-after-ms when retryAfter is above 0.
func Throttled(retryAfter time.Duration) Answer {
	a := Error(http.StatusTooManyRequests, 3200)
	if retryAfter > 0 {
		a.Header = map[string]string{headerRetryAfterMS: strconv.FormatInt(retryAfter.Milliseconds(), 10)}
	}
	return a
}

// FaultHandle watches and ends a rule. It is safe for concurrent use.
type FaultHandle struct {
	rules *ruleBook
	rule  *rule
}

// Hits counts the requests the rule was applied to.
func (h *FaultHandle) Hits() int {
	h.rules.mu.Lock()
	defer h.rules.mu.Unlock()
	return h.rule.hits
}

// Remove ends the rule. Requests it already holds are not released.
func (h *FaultHandle) Remove() {
	h.rules.mu.Lock()
	defer h.rules.mu.Unlock()
	for i, r := range h.rules.rules {
		if r == h.rule {
			h.rules.rules = append(h.rules.rules[:i:i], h.rules.rules[i+1:]...)
			return
		}
	}
}

// AddFault puts a rule in force. It panics on a rule that cannot be: negative numbers, a probability outside [0,1], an unknown region.
func (a *Account) AddFault(f Fault) *FaultHandle {
	if err := f.validate(); err != nil {
		panic("cosmostest: " + err.Error())
	}
	if f.Match.Region != "" {
		a.endpointOf(f.Match.Region)
	}
	r := &rule{Fault: f, draws: rand.New(rand.NewPCG(f.Seed, f.Seed))}
	a.rules.mu.Lock()
	defer a.rules.mu.Unlock()
	a.rules.rules = append(a.rules.rules, r)
	return &FaultHandle{rules: &a.rules, rule: r}
}

// ClearFaults removes every rule.
func (a *Account) ClearFaults() {
	a.rules.mu.Lock()
	defer a.rules.mu.Unlock()
	a.rules.rules = nil
}

func (f Fault) validate() error {
	switch {
	case f.Skip < 0:
		return fmt.Errorf("Fault.Skip is %d, want 0 or more", f.Skip)
	case f.Count < 0:
		return fmt.Errorf("Fault.Count is %d, want 0 or more", f.Count)
	case !(f.Probability >= 0 && f.Probability <= 1):
		return fmt.Errorf("Fault.Probability is %v, want 0 to 1", f.Probability)
	case f.Answer.Status != 0 && (f.Answer.Status < 200 || f.Answer.Status > 999):
		return fmt.Errorf("Fault.Answer.Status is %d, want 200 to 999", f.Answer.Status)
	case f.Answer.Delay < 0:
		return fmt.Errorf("Fault.Answer.Delay is %v, want 0 or more", f.Answer.Delay)
	case f.Answer.CutAfter < -1:
		return fmt.Errorf("Fault.Answer.CutAfter is %d, want -1 or more", f.Answer.CutAfter)
	}
	return nil
}

// ruleBook holds the rules in force, in the order they were added.
type ruleBook struct {
	mu    sync.Mutex
	rules []*rule
}

type rule struct {
	Fault
	seen, hits int
	draws      *rand.Rand
}

// take decides what happens to a request; nil = nothing.
func (b *ruleBook) take(r *Request, now time.Time) *Fault {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, rule := range b.rules {
		if !rule.hit(r, now) {
			continue
		}
		if rule.Respond != nil || rule.AfterApply || rule.Answer.changes() {
			return &rule.Fault
		}
	}
	return nil
}

func (r *rule) hit(request *Request, now time.Time) bool {
	if !r.Match.matches(request) ||
		!r.From.IsZero() && now.Before(r.From) ||
		!r.Until.IsZero() && !now.Before(r.Until) ||
		r.Count > 0 && r.hits >= r.Count {
		return false
	}
	if r.seen++; r.seen <= r.Skip {
		return false
	}
	if r.Probability > 0 && r.draws.Float64() >= r.Probability {
		return false
	}
	r.hits++
	return true
}
