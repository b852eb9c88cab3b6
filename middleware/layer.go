// Package middleware is the vocabulary of reroute and its one retry loop.
//
// A Layer wraps an http.RoundTripper. An Operation is one caller-visible
// request: it may be sent several times, and every layer that handles it finds
// the same Operation in the request's context, so what one layer spends, all
// know. A Dialect says what a request is and what a result means; layers switch
// on the Cause it names and never see status numbers. Retry is the only code
// that sends again.
//
//	caller -> Stack -> layer -> layer -> ... -> base
//	            |        |
//	            |        Retry: judge, check budget, wait, send again
//	            Operation begins here and its error is typed here
package middleware

import (
	"net/http"

	"github.com/reroute-go/reroute/internal/check"
)

// Layer wraps next into another http.RoundTripper. A Layer is its own
// configuration: its zero value has the documented defaults.
type Layer interface {
	// Wrap sends nothing and starts nothing, and may be called any number of times.
	// A bad value is an error that names the field.
	Wrap(next http.RoundTripper) (http.RoundTripper, error)
}

// LayerFunc adapts a function that cannot fail to a Layer. CloseIdleConnections
// reaches next also where what the function returns does not have it, such as a
// RoundTripperFunc.
type LayerFunc func(next http.RoundTripper) http.RoundTripper

// Wrap calls f.
func (f LayerFunc) Wrap(next http.RoundTripper) (http.RoundTripper, error) {
	rt := f(next)
	below, ok := next.(idleCloser)
	if _, own := rt.(idleCloser); own || !ok || check.IsNil(rt) {
		return rt, nil
	}
	return &closing{rt, below}, nil
}

type idleCloser interface{ CloseIdleConnections() }

// closing gives a RoundTripper the CloseIdleConnections of what is below it.
type closing struct {
	http.RoundTripper
	idleCloser
}

// RoundTripperFunc adapts a function to an http.RoundTripper.
type RoundTripperFunc func(*http.Request) (*http.Response, error)

// RoundTrip calls f.
func (f RoundTripperFunc) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// Stack joins layers around base, outermost first: Stack(base, a, b) sends
// through a, then b, then base. A nil base is http.DefaultTransport; one with a
// method Validate() error is asked about its fields. The errors are joined, each
// of them a *LayerError that names the layer's position and type, so that every
// mistake shows at once. The result forwards CloseIdleConnections to base.
func Stack(base http.RoundTripper, layers ...Layer) (http.RoundTripper, error) {
	if base == nil {
		base = http.DefaultTransport
	}
	s := &stack{base: base, stages: make([]stage, len(layers))}
	bottom := recordedBy(&recorder{next: base, base: true})
	next := http.RoundTripper(bottom)
	var wrong mistakes
	if mistaken := checkBase(base); mistaken != nil {
		wrong = append(wrong, mistaken)
	} else {
		s.based = bottom.recordsAtBase()
	}
	for i := len(layers) - 1; i >= 0; i-- {
		rt, mistaken := wrapLayer(i, layers[i], next)
		if mistaken != nil {
			if !wrong.tell(mistaken, layers) {
				wrong = append(wrong, mistaken)
			}
			continue
		}
		s.stages[i] = stage{layer: layers[i], rt: rt}
		next = rt
	}
	if len(wrong) > 0 {
		return nil, wrong.join()
	}
	s.next = next
	_, ours := next.(recording)
	s.exposes = !ours
	return s, nil
}

// stack is the outermost RoundTripper of a Stack: the operation starts and ends
// here, and base stays reachable for Describe and CloseIdleConnections whatever
// the layers in between are made of.
type stack struct {
	next  http.RoundTripper
	base  http.RoundTripper
	based bool // attempts are recorded right above base
	// exposes is set where the outermost layer is none of this package's making: all
	// others are below a recorder.
	exposes bool
	stages  []stage
}

type stage struct {
	layer Layer
	rt    http.RoundTripper
}

func (s *stack) RoundTrip(req *http.Request) (*http.Response, error) {
	return operate(req, s)
}

func (s *stack) work(op *Operation, req *http.Request) (*http.Response, error) {
	// What layers build on their way down is no base from here on, and a signing
	// error there is no attempt.
	if s.based && op.set(stacked) {
		op.passing()
	}
	if s.exposes {
		op.expose()
	}
	return s.next.RoundTrip(req)
}

func (s *stack) CloseIdleConnections() { closeIdle(s.base) }

func (s *stack) recordsAtBase() bool { return s.based }

// Operate returns the RoundTripper of a layer that is no retry loop: it joins the
// operation in the request's context, or starts one and ends it, and has f do
// the layer's work. f sends through next, at most once, or refuses: an error of
// its own is final, save ErrCircuitOpen, ErrNoOwner and ErrAttemptTimeout. A nil
// d leaves the request unjudged.
func Operate(next http.RoundTripper, d Dialect, f func(op *Operation, req *http.Request, next http.RoundTripper) (*http.Response, error)) http.RoundTripper {
	return &operated{next: recorded(next), dialect: d, f: f, exposes: true}
}

// Relay is Operate for an f that does not look at req any more, its context
// apart, once it has called next, nor keeps it. Between the operation's begin and
// Route such layers, and loops, cost no copy of the request: Route then changes the
// operation's own, which is an allocation of 450 bytes less.
func Relay(next http.RoundTripper, d Dialect, f func(op *Operation, req *http.Request, next http.RoundTripper) (*http.Response, error)) http.RoundTripper {
	return &operated{next: recorded(next), dialect: d, f: f}
}

type operated struct {
	next    recording
	dialect Dialect
	f       func(*Operation, *http.Request, http.RoundTripper) (*http.Response, error)
	exposes bool // f may keep the request
}

func (o *operated) RoundTrip(req *http.Request) (*http.Response, error) { return operate(req, o) }

func (o *operated) work(op *Operation, req *http.Request) (*http.Response, error) {
	if o.dialect != nil {
		req = op.speak(o.dialect, req)
	}
	if o.exposes {
		op.expose()
	}
	return o.f(op, req, o.next)
}

func (o *operated) CloseIdleConnections() { closeIdle(o.next) }

func (o *operated) recordsAtBase() bool { return o.next.recordsAtBase() }

// recording is a RoundTripper of this package: it has a recorder below it, either
// at the base of a Stack or wherever the first foreign RoundTripper comes.
type recording interface {
	http.RoundTripper
	recordsAtBase() bool
}

// recorded puts a recorder over next unless one is already below. It is for
// layers that are used alone; in a Stack it only passes on.
func recorded(next http.RoundTripper) recording { return recordedBy(&recorder{next: next}) }

func recordedBy(r *recorder) recording {
	if r.next == nil {
		r.next = http.DefaultTransport
	}
	if below, ok := r.next.(recording); ok {
		return below
	}
	return r
}

func closeIdle(rt http.RoundTripper) {
	if c, ok := rt.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// Refuse is how a layer declines to send: it closes the request's body, as a
// RoundTripper must on every path, and returns err.
func Refuse(req *http.Request, err error) (*http.Response, error) {
	if req.Body != nil {
		_ = req.Body.Close()
	}
	return nil, err
}
