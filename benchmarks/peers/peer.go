package main

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/reroute-go/reroute/benchmarks/internal/measure"
	"github.com/reroute-go/reroute/benchmarks/internal/workload"
)

// retries are what everybody is allowed, without a wait to speak of.
const retries = 9

// peer is a library, set up to do the work over base. All are set up alike: so
// many retries of 5xx answers, none of them after a wait to speak of.
type peer struct {
	name string
	// open returns the maker of calls for one goroutine each.
	open func(base http.RoundTripper, kind workload.Kind) (func() (func() error, error), error)
	// retries is false for what does not send again.
	retries bool
}

// transport is a peer that is an http.RoundTripper.
func transport(name string, retries bool, wrap func(base http.RoundTripper) (http.RoundTripper, error)) peer {
	return peer{name: name, retries: retries, open: func(base http.RoundTripper, kind workload.Kind) (func() (func() error, error), error) {
		rt, err := wrap(base)
		return func() (func() error, error) { return workload.NewCaller(rt, kind).Call, nil }, err
	}}
}

// client is a peer that makes its own request for each call.
func client(name string, open func(base http.RoundTripper, kind workload.Kind) (func() error, error)) peer {
	return peer{name: name, retries: true, open: func(base http.RoundTripper, kind workload.Kind) (func() (func() error, error), error) {
		call, err := open(base, kind)
		return func() (func() error, error) { return call, nil }, err
	}}
}

// peers are all that is measured, the bare transport first.
func peers() []peer {
	return append(append([]peer{
		transport(bare, false, func(base http.RoundTripper) (http.RoundTripper, error) { return base, nil }),
		transport("hand-written re-hosting", false, func(base http.RoundTripper) (http.RoundTripper, error) { return workload.Floor{Next: base}, nil }),
	}, own()...), others()...)
}

const bare = "bare transport"

// subject measures p with requests of kind over base.
func (p peer) subject(base http.RoundTripper, kind workload.Kind, parallel bool) (measure.Subject, error) {
	calls, err := p.open(base, kind)
	if err != nil {
		return measure.Subject{}, fmt.Errorf("%s: %w", p.name, err)
	}
	return measure.Subject{Name: p.name, New: calls, Parallel: parallel}, nil
}

// failing answers each operation with 503 three times, then with 200.
func failing() *workload.Flaky { return &workload.Flaky{Statuses: []int{503, 503, 503}} }

// sends is how often p sends a request whose first three answers are 503.
func (p peer) sends(kind workload.Kind) (int, error) {
	base := failing()
	calls, err := p.open(base, kind)
	if err != nil {
		return 0, err
	}
	call, err := calls()
	if err != nil {
		return 0, err
	}
	err = call()
	return base.Sends(), err
}

// finish is what a client does with an answer: it must be a 200.
func finish(resp *http.Response, err error) error {
	if err != nil {
		return err
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	return nil
}
