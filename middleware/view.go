package middleware

import "net/http"

// view is what one dialect makes of the operation. It does not change once it is
// there, its next one apart. There are several only where stacks with different
// dialects are nested.
type view struct {
	dialect Dialect
	intent  Intent
	next    *view // guarded by the operation's mu
}

// speak makes d the dialect at work. It returns the request for what is below: one
// that has the dialect's own headers, once d is new to the operation.
func (op *Operation) speak(d Dialect, req *http.Request) *http.Request {
	switch v := op.view.Load(); {
	case v == nil:
	case sameDialect(v.dialect, d):
		return req
	default:
		if v = op.viewOf(d); v != nil {
			op.view.Store(v)
			return op.stamped(d, req)
		}
	}
	in := d.Intent(req)
	if in.PartitionKey == "" {
		in.PartitionKey = op.inputs.partitionKey
	}
	if op.inputs.level != 0 {
		in.Level = op.inputs.level
	}
	op.learn(d, in)
	return op.stamped(d, req)
}

// learn keeps what d makes of the operation.
func (op *Operation) learn(d Dialect, in Intent) {
	op.mu.Lock()
	defer op.mu.Unlock()
	v := &op.first
	if op.view.Load() != nil {
		v = &view{next: op.first.next}
		op.first.next = v
		op.set(severalViews)
	}
	v.dialect, v.intent = d, in
	op.view.Store(v)
}

// viewOf returns d's view, nil if there is none.
func (op *Operation) viewOf(d Dialect) *view {
	if v := op.view.Load(); v == nil || sameDialect(v.dialect, d) {
		return v
	}
	op.mu.Lock()
	defer op.mu.Unlock()
	for v := &op.first; v != nil; v = v.next {
		if sameDialect(v.dialect, d) {
			return v
		}
	}
	return nil
}

// dialect is the one at work, nil if there is none.
func (op *Operation) dialect() Dialect {
	if v := op.view.Load(); v != nil {
		return v.dialect
	}
	return nil
}

// intent is in the words of the dialect at work, empty if there is none.
func (op *Operation) intent() *Intent {
	if v := op.view.Load(); v != nil {
		return &v.intent
	}
	return &Intent{}
}

// stamped gives a request the dialect's own headers. The operation's own request
// is not copied for that, as long as nobody else has it.
func (op *Operation) stamped(d Dialect, req *http.Request) *http.Request {
	s, ok := d.(Stamper)
	if !ok {
		return req
	}
	header := s.Stamp(op.intent(), req.Header)
	if len(header) == len(req.Header) {
		return req // a stamp only adds
	}
	if op.owns(req) {
		req.Header = header
		return req
	}
	copied := *req
	copied.Header = header
	return &copied
}
