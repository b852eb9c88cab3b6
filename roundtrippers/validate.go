package roundtrippers

import (
	"errors"
	"fmt"
	"reflect"
	"time"

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

func (m *mistakes) dialect(d middleware.Dialect) {
	v := reflect.ValueOf(d)
	switch {
	case d == nil:
		m.add(errors.New("Dialect is nil: which service is this?"))
	case v.Kind() == reflect.Pointer && v.IsNil():
		m.add(fmt.Errorf("Dialect is a nil %T: has it been opened?", d))
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

// negative objects to a count or a duration below zero.
func negative[T int | time.Duration](m *mistakes, field string, value T) {
	if value < 0 {
		m.add(fmt.Errorf("%s is %v, want >= 0", field, value))
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
