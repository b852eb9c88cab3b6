package middleware

import (
	"math"
	"net/http"
	"time"
)

// attempt is the record of one send. It becomes an Attempt when somebody asks:
// most operations have one, and nobody does.
type attempt struct {
	target    Target
	code      string
	err       error
	header    http.Header   // of the answer, kept after its body is gone
	begun     time.Duration // since the operation began
	elapsed   time.Duration
	wait      time.Duration // before it
	by        *recorder     // nil = not yet sent, ended = no longer under way
	substatus int
	status    int16 // as the dialect has it
	answered  int16 // as the answer has it, 0 without one
	written   uint8
	cause     Cause
	notSent   bool
	passed    bool // on the way to another stack's recorder
}

// ended stands for the recorder of what is no longer under way.
var ended = new(recorder)

func (a *attempt) underWay() bool { return a.by != nil && a.by != ended }

// note keeps what a result means.
func (a *attempt) note(out *Outcome, err error) {
	a.cause, a.code, a.substatus = out.Cause, out.Code, out.Substatus
	a.status = narrow(out.Status)
	a.notSent = err != nil && out.Unapplied
}

// narrow is a status in the room that an attempt has for it: three digits, says
// RFC 9110.
func narrow(status int) int16 { return int16(min(max(status, 0), math.MaxInt16)) }

// The log of attempts is op.now and, once there was another, those before it in
// op.trouble. An attempt's place in it is its number less one. All of what
// follows is called with mu held.

// earlier are the attempts before op.now.
func (op *Operation) earlier() []attempt {
	if t := op.trouble.Load(); t != nil {
		return t.earlier
	}
	return nil
}

// logged is how many attempts there are.
func (op *Operation) logged() int {
	if op.now.by == nil {
		return len(op.earlier())
	}
	return len(op.earlier()) + 1
}

// at returns the attempt at a place in the log, nil if there is none.
func (op *Operation) at(place int) *attempt {
	switch earlier := op.earlier(); {
	case place < 0:
	case place < len(earlier):
		return &earlier[place]
	case place == len(earlier) && op.now.by != nil:
		return &op.now
	}
	return nil
}

// newest is the last attempt of the log, nil before the first.
func (op *Operation) newest() *attempt { return op.at(op.logged() - 1) }

// turn makes room for the next attempt, which goes to where this one went unless
// somebody says otherwise.
func (op *Operation) turn() {
	if op.now.by == nil {
		return
	}
	t := op.troubled()
	t.earlier = append(t.earlier, op.now)
	op.now = attempt{target: op.now.target}
}

// drop takes the last attempt out of the log: it was none.
func (op *Operation) drop() {
	if op.now.by != nil {
		op.now = attempt{target: op.now.target}
		return
	}
	t := op.trouble.Load()
	t.earlier = t.earlier[:len(t.earlier)-1]
}

// told is an attempt as it is shown. Reading the wall clock once an operation, and
// only the monotonic one after that, halves what time costs.
func (op *Operation) told(place int) Attempt {
	a := op.at(place)
	return Attempt{
		Number: place + 1, Target: a.target, Cause: a.cause, Code: a.code, Status: int(a.status), Substatus: a.substatus,
		NotSent: a.notSent, Started: op.started.Add(a.begun), Elapsed: a.elapsed, Wait: a.wait, Err: discreet(a.err), Written: int(a.written),
	}
}

// lastAnswer returns the newest real answer that there was, nil without one.
func (op *Operation) lastAnswer() *attempt {
	for place := op.logged() - 1; place >= 0; place-- {
		if a := op.at(place); a.answered != 0 {
			return a
		}
	}
	return nil
}
