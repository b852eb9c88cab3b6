package layertest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reroute-go/reroute/internal/check"
	"github.com/reroute-go/reroute/middleware"
)

// Run checks that layer keeps every Promise and fails t once for each that it
// does not, in a subtest named after it; a layer that cannot be tested at all,
// because Wrap fails or a plain request is not answered, ends t with one message.
// See Kit for layers that need more than their own value.
func Run(t *testing.T, layer middleware.Layer) {
	t.Helper()
	Kit{Layer: layer}.Run(t)
}

// Kit is a layer under test and what it takes to put it to the test. Only one of
// Layer and New is required. A function from RoundTripper to RoundTripper, of
// whatever project, is tested as a middleware.LayerFunc, which lends what it returns
// a CloseIdleConnections.
//
// The layer is tried as it is, alone over a base transport: a middleware.Stack
// around it would mend some of its faults. To test a stack, make it the layer.
//
// A layer that holds a mutex while it sends or waits stops virtual time, and the
// test hangs until go test ends it: that is a finding too, which is told after a
// minute. Channels of a layer must be made in Wrap or New, so that they belong to
// the bubble.
//
// Two kinds of layers break promises by what they are for: one that has two sends
// of a request under way at once (their attempts have no order), and one that sends
// another body than the caller's, compressed for instance. What that finds is to be
// read with it in mind. A mistake that shows only with bodies beyond 64 KiB, or
// minutes after, is not looked for.
type Kit struct {
	// Layer under test. It is wrapped anew for each of many scenarios.
	Layer middleware.Layer
	// New makes the layer anew for each scenario; nil = Layer each time. Set it
	// where a layer holds state beyond Wrap, such as a breaker, a cache or a limit.
	New func() middleware.Layer
	// Request makes the request that is sent, with the context that it is given. The
	// kit takes a copy, and gives that the body, GetBody and ContentLength that a
	// scenario needs. nil = a PUT, or a GET where the layer sends no PUT again.
	Request func(ctx context.Context) *http.Request
	// Again are results after which the layer sends again: at least one of them
	// must show that it does. The kit tries the usual ones on its own (408, 410, 421,
	// 429, 449, 5xx, a refused dial, a connection that was cut); nil = no others.
	Again []Step
	// Refuses is set where the layer has been set up to refuse every request: it is
	// checked that nothing is sent and that the refusal leaves nothing behind.
	Refuses bool
	// MaxSends is the most that one request may be sent; 0 = 200.
	MaxSends int
	// Limit is how long one request may take; 0 = an hour in a bubble of
	// testing/synctest, 10 s on the wall clock.
	Limit time.Duration

	known *known
}

// known is what the promises of one run have found out for each other.
type known struct {
	again []Step // results after which the layer sends again
	get   bool   // it does so with a GET only
	fit   bool   // it could be tested when it was new
}

// Promise is one thing that every layer has to keep.
type Promise struct {
	Name string // short, unique, never changed
	Text string // what is promised, in a sentence
	Mend string // how a layer that breaks it is mended
	Own  bool   // reroute's own promise; false = the contract of http.RoundTripper or good manners under net/http

	answered bool         // it is about answers, and nothing to a layer that refuses
	check    func(*trial) // tells the trial of breaches
}

// Finding is what was found about one promise.
type Finding struct {
	Promise Promise
	// Broken tells each breach once; empty = kept.
	Broken []string
	// Untried says why there was nothing to check, such as a layer that never sends
	// again; "" = it was checked. What was not tried is not broken.
	Untried string

	unfit bool // the layer could not be tested
}

// Kept reports whether the promise was put to the test and kept.
func (f Finding) Kept() bool { return len(f.Broken) == 0 && f.Untried == "" }

// String is the promise, the verdict, why, and how to mend it.
func (f Finding) String() string {
	switch {
	case len(f.Broken) > 0:
		return fmt.Sprintf("%s: broken: %s. To mend it: %s", f.Promise.Name, strings.Join(f.Broken, "; "), f.Promise.Mend)
	case f.Untried != "":
		return fmt.Sprintf("%s: not tried: %s", f.Promise.Name, f.Untried)
	}
	return f.Promise.Name + ": kept"
}

// Check checks layer and returns one Finding for each of Promises, in their
// order; one alone, of a promise "set up", where the layer cannot be tested at all.
// It needs no test, and then runs on the wall clock; see Kit.Check.
func Check(layer middleware.Layer) []Finding { return Kit{Layer: layer}.Check() }

// Check is Run without a test: the verdicts are left to the caller. On the wall
// clock a layer's waits are waited for, and returning late is told from returning
// at once only by two seconds; CheckVirtual has neither flaw.
func (k Kit) Check() []Finding {
	return k.checkAll(Promise.Check)
}

func (k Kit) checkAll(checked func(Promise, Kit) Finding) []Finding {
	k.known = new(known)
	if f := checked(setUp, k); !f.Kept() {
		return []Finding{f}
	}
	findings := make([]Finding, 0, len(promises))
	for _, p := range promises {
		f := checked(p, k)
		if f.unfit {
			f.Promise = setUp
			return []Finding{f}
		}
		findings = append(findings, f)
	}
	return findings
}

// CheckVirtual is Check with each promise in a testing/synctest bubble of its
// own: waits cost nothing and are exact. It does not fail t, which must not be in
// a bubble.
func (k Kit) CheckVirtual(t *testing.T) []Finding {
	return k.checkAll(func(p Promise, k Kit) Finding { return p.virtual(t, k) })
}

// Run is the Run of this kit.
func (k Kit) Run(t *testing.T) {
	t.Helper()
	k.known = new(known)
	untestable := setUp.virtual(t, k).Broken
	for _, p := range promises {
		if len(untestable) > 0 {
			break
		}
		t.Run(p.Name, func(t *testing.T) {
			switch f := p.virtual(t, k); {
			case f.unfit:
				untestable = f.Broken
			case len(f.Broken) > 0:
				t.Errorf("%s\n  - %s\nTo mend it: %s", p.Text, strings.Join(f.Broken, "\n  - "), p.Mend)
			case f.Untried != "":
				t.Log(f.Untried)
			}
		})
	}
	if len(untestable) > 0 {
		t.Fatalf("the layer cannot be tested: %s", strings.Join(untestable, "; "))
	}
}

// Promises returns all that is checked, in the order of Check.
func Promises() []Promise { return append([]Promise(nil), promises...) }

// Check checks this promise alone. In a testing/synctest bubble it is exact.
func (p Promise) Check(k Kit) (f Finding) {
	f.Promise = p
	t := newTrial(k)
	switch {
	case !t.isSetUp():
		f.unfit = true
	case k.Refuses && p.answered:
		t.untried = "the layer refuses every request"
	default:
		t.inLabels(func() { p.check(t) })
	}
	f.Broken, f.Untried = t.breaches(), t.untried
	if len(f.Broken) > 0 {
		f.Untried = ""
	}
	return f
}

// virtual is Check in a bubble, which panics when goroutines are left that are
// blocked for good.
func (p Promise) virtual(t *testing.T, k Kit) (f Finding) {
	checked := false
	defer func() {
		if why := recover(); why != nil && (!checked || p.Name == goroutineLeft) {
			f.Promise, f.Broken = p, append(f.Broken, fmt.Sprint(why))
		}
	}()
	// Made outside of the bubble, whose time may be what stands still.
	watch := time.AfterFunc(standstill, func() {
		fmt.Fprintf(os.Stderr, "layertest: %q has taken %v of the wall's clock. Where it never ends, the bubble's time stands still "+
			"because a goroutine waits for what is not the bubble's: a mutex that another one holds while it sends, waits or reads, or a channel "+
			"or WaitGroup made before Run (make it in Wrap, or set Kit.New). Kit.Check, on the wall's clock, shows which.\n", p.Name, standstill)
	})
	defer watch.Stop()
	synctest.Test(t, func(*testing.T) { f, checked = p.Check(k), true })
	return f
}

// standstill is longer than any promise takes to check, on a busy machine too.
const standstill = time.Minute

// layer returns the layer to test, or says why there is none.
func (k Kit) layer() (layer middleware.Layer, err error) {
	layer, missing := k.Layer, "Layer is nil and New is not set"
	if k.New != nil {
		layer, missing = k.New(), "New returned nil"
	}
	switch _, silent := layer.(middleware.Observer); {
	case layer == nil:
		return nil, errors.New("no layer to test: " + missing)
	case check.IsNil(layer) && !silent: // a nil Observer is one that nobody listens to
		return nil, fmt.Errorf("no layer to test: it is a nil %T", layer)
	}
	return layer, nil
}

func (k Kit) maxSends() int {
	if k.MaxSends > 0 {
		return k.MaxSends
	}
	return 200
}
