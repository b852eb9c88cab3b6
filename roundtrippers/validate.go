package roundtrippers

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/reroute-go/reroute/internal/check"
	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/partitions"
	"github.com/reroute-go/reroute/regions"
)

// mistakes are all that is wrong with a layer's fields: every one of them shows
// at once.
type mistakes []error

func (m *mistakes) add(err error) {
	if err != nil {
		*m = append(*m, err)
	}
}

func (m mistakes) join() error { return errors.Join(m...) }

// within adds what is wrong with the fields of a field, each under its name.
func (m *mistakes) within(field string, err error) {
	errs := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok { //nolint:errorlint // it is ours
		errs = joined.Unwrap()
	}
	for _, err := range errs {
		if err != nil {
			m.add(fmt.Errorf("%s: %w", field, err))
		}
	}
}

func (m *mistakes) dialect(d middleware.Dialect) {
	if d == nil {
		m.add(errors.New("Dialect is nil: which service is this?"))
	}
	m.opened("Dialect", d)
}

// owners objects to a nil pointer only: a layer may do without Owners.
func (m *mistakes) owners(o Owners) { m.opened("Owners", o) }

// opened objects to an interface around a nil pointer.
func (m *mistakes) opened(field string, v any) {
	if v != nil && check.IsNil(v) {
		m.add(fmt.Errorf("%s is a nil %T: has it been opened?", field, v))
	}
}

func (m *mistakes) regions(r *regions.Registry) {
	if r == nil {
		m.add(errors.New("Regions is nil: which registry knows the regions?"))
	}
}

func (m *mistakes) partitions(p *partitions.Registry) {
	if p == nil {
		m.add(errors.New("Partitions is nil: which registry knows the partitions?"))
	}
}

// shared checks what every builder hands to layers that would report it many times
// or under another name. What is bad is replaced, so that the layers can be asked
// about their own fields.
func (m *mistakes) shared(d *middleware.Dialect, attempt *time.Duration, replay *int64) {
	before := len(*m)
	if m.dialect(*d); len(*m) > before {
		*d = noDialect{}
	}
	if negative(m, "AttemptTimeout", *attempt); *attempt < 0 {
		*attempt = 0
	}
	if negativeOrNone(m, "MaxReplayBytes", *replay); *replay < -1 {
		*replay = 0
	}
}

// stacked returns what a builder has stacked, or all mistakes: its own and the
// layers'.
func (m mistakes) stacked(builder string, rt http.RoundTripper, err error) (http.RoundTripper, error) {
	if m.add(err); len(m) > 0 {
		return nil, fmt.Errorf("roundtrippers.%s: %w", builder, m.join())
	}
	return rt, nil
}

// noDialect and noOwners stand in for what is missing.
type (
	noDialect struct{ middleware.Dialect }
	noOwners  struct{ Owners }
)

// negative objects to a count or a duration below zero.
func negative[T int | time.Duration](m *mistakes, field string, value T) {
	if value < 0 {
		m.add(fmt.Errorf("%s is %v, want >= 0", field, value))
	}
}

// negativeOrNone is negative for a field in which -1 says that there is none.
func negativeOrNone[T int64 | time.Duration](m *mistakes, field string, value T) {
	if value < -1 {
		m.add(fmt.Errorf("%s is %v, want >= 0, or -1 for none", field, value))
	}
}

func (m *mistakes) jitter(share float64) {
	if !(share >= 0 && share <= 1) { // also refuses NaN
		m.add(fmt.Errorf("Jitter is %v, want 0..1", share))
	}
}

func (m *mistakes) backoff(b middleware.Backoff) { m.add(b.Validate()) }

func orDefault[T comparable](value, standard T) T {
	var zero T
	if value == zero {
		return standard
	}
	return value
}
