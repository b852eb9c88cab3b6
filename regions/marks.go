package regions

import (
	"fmt"
	"sync/atomic"
	"time"
)

// Verdict is what an attempt showed of the endpoint it was sent to.
type Verdict uint8

const (
	// Neutral shows nothing: the attempt was cancelled, or failed for a reason of its own.
	Neutral Verdict = iota
	// Healthy: the endpoint served the attempt.
	Healthy
	// Failed: the endpoint is in trouble.
	Failed
)

// Reason says why an endpoint is marked.
type Reason uint8

const (
	Unreachable    Reason = iota // the request could not be sent
	ServerError                  // a 5xx
	Timeout                      // no answer in time
	WriteForbidden               // not a write region now: the mark counts for writes only
	RegionGone                   // the account is not in this region (any more)
)

// String is the reason in lower case words.
func (r Reason) String() string {
	switch r {
	case Unreachable:
		return "unreachable"
	case ServerError:
		return "server error"
	case Timeout:
		return "timeout"
	case WriteForbidden:
		return "write forbidden"
	case RegionGone:
		return "region gone"
	}
	return fmt.Sprintf("reason %d", uint8(r))
}

// Mark is a demoted endpoint, for reports.
type Mark struct {
	Endpoint Endpoint  // the one demoted
	Reason   Reason    // why; a failed probe that renews the mark brings its own
	Since    time.Time // when it was marked, or renewed by a failed probe
	Due      time.Time // when one operation may probe it
	Probing  bool      // one operation is at it
}

// mark demotes one endpoint. Only probe changes.
type mark struct {
	endpoint Endpoint
	reason   Reason
	since    time.Time
	seq      uint64 // of the table that brought it
	probe    atomic.Pointer[claim]
}

// claim is held by the one operation that probes a marked endpoint; its identity tells it from earlier ones.
type claim struct{ since time.Time }

// hostMarks are the marks of one endpoint. A read's success says nothing about writes, so the two are apart.
type hostMarks struct{ all, writes *mark }

// slot is where a mark for this reason belongs.
func (m *hostMarks) slot(reason Reason) **mark {
	if reason == WriteForbidden {
		return &m.writes
	}
	return &m.all
}

// each calls f for the marks that count, while f returns true; it reports whether f always did.
func (m hostMarks) each(write bool, f func(*mark) bool) bool {
	return (m.all == nil || f(m.all)) && (!write || m.writes == nil || f(m.writes))
}

// marks is the immutable table of all marks, by candidate.host. Each change makes a new one with a greater seq.
type marks struct {
	seq   uint64
	hosts map[string]hostMarks
}

// state of an endpoint for one operation.
type state uint8

const (
	unmarked state = iota
	due            // marked, and this operation may be the one that probes
	marked
)

func (m hostMarks) state(write bool, now time.Time, markFor time.Duration) state {
	s := unmarked
	m.each(write, func(k *mark) bool {
		s = max(s, due)
		if now.Sub(k.since) < markFor || k.taken(now, markFor) {
			s = marked
		}
		return true
	})
	return s
}

// taken reports whether somebody probes. A probe that never reports holds its claim for markFor.
func (k *mark) taken(now time.Time, markFor time.Duration) bool {
	c := k.probe.Load()
	return c != nil && now.Sub(c.since) < markFor
}

// claim takes the probe of every mark that counts, or of none.
func (m hostMarks) claim(write bool, now time.Time, markFor time.Duration) *claim {
	c := &claim{since: now}
	ok := m.each(write, func(k *mark) bool {
		old := k.probe.Load()
		return (old == nil || now.Sub(old.since) >= markFor) && k.probe.CompareAndSwap(old, c)
	})
	if !ok {
		m.release(c)
		return nil
	}
	return c
}

// release frees the probes that c holds.
func (m hostMarks) release(c *claim) {
	m.each(true, func(k *mark) bool { k.probe.CompareAndSwap(c, nil); return true })
}

func (m hostMarks) heldBy(c *claim) bool {
	return c != nil && !m.each(true, func(k *mark) bool { return k.probe.Load() != c })
}

// Change is what a Report made of an endpoint's marks.
type Change uint8

const (
	// Unchanged: the endpoint is regarded as before.
	Unchanged Change = iota
	// Marked: the endpoint is demoted from now on.
	Marked
	// Restored: the endpoint is in its place again.
	Restored
)

// Report tells how the endpoint of a choice behaved; reason counts for Failed only. Report each choice once.
//
//   - Failed marks the endpoint: it is chosen last from now on, and after Config.MarkFor one operation probes it. A
//     failure of an endpoint that is marked already changes nothing, so that failures cannot put the probe off for ever (B59),
//     except that a probe's own failure renews the mark from now.
//   - Healthy clears the mark if the choice was made after it, as a probe or not. A late success of a request
//     chosen before the mark clears nothing, and neither does a read clear a WriteForbidden mark.
//   - Neutral gives a probe back, so that the next operation may try.
//
// It returns what changed. Without marks, and with a Verdict other than Failed, it costs one atomic load.
func (r *Registry) Report(c Choice, v Verdict, reason Reason) Change {
	if len(r.marks.Load().hosts) == 0 && v != Failed || c.host == "" {
		return Unchanged
	}
	return r.report(&c, v, reason)
}

func (r *Registry) report(c *Choice, v Verdict, reason Reason) Change {
	was, isMarked := r.marks.Load().hosts[c.host]
	if !isMarked && v != Failed || isMarked && v == Failed && c.claim == nil && *was.slot(reason) != nil {
		return Unchanged // no lock, also when a thousand operations fail together
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	table := r.marks.Load()
	was = table.hosts[c.host]
	probe := was.heldBy(c.claim)
	is := was
	switch v {
	case Healthy:
		if is.all != nil && c.seq >= is.all.seq {
			is.all = nil
		}
		if is.writes != nil && c.write && c.seq >= is.writes.seq {
			is.writes = nil
		}
	case Failed:
		if slot := is.slot(reason); *slot == nil || probe {
			*slot = &mark{endpoint: c.Endpoint, reason: reason, since: time.Now(), seq: table.seq + 1}
		}
	}
	if is != was {
		r.replace(table, c.host, is)
	}
	if probe {
		is.release(c.claim)
	}
	switch {
	case v == Failed && *was.slot(reason) == nil:
		return Marked
	case v == Healthy && is != was:
		return Restored
	}
	return Unchanged
}

// replace publishes a table with other marks for one host. Called with mu held.
func (r *Registry) replace(table *marks, host string, m hostMarks) {
	next := &marks{seq: table.seq + 1, hosts: make(map[string]hostMarks, len(table.hosts)+1)}
	for h, old := range table.hosts {
		// Regions come and go while a process lives: marks survive that (R103), until there are very many.
		if len(table.hosts) < maxHosts || r.current(h) {
			next.hosts[h] = old
		}
	}
	if delete(next.hosts, host); m != (hostMarks{}) {
		next.hosts[host] = m
	}
	r.marks.Store(next)
}

// Marks returns the marks there are, in no particular order.
func (r *Registry) Marks() []Mark {
	var out []Mark
	now := time.Now()
	for _, m := range r.marks.Load().hosts {
		m.each(true, func(k *mark) bool {
			out = append(out, Mark{
				Endpoint: k.endpoint, Reason: k.reason,
				Since: k.since, Due: k.since.Add(r.markFor), Probing: k.taken(now, r.markFor),
			})
			return true
		})
	}
	return out
}
