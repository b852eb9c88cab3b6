// Package check asks of a configuration what every package of this module asks of
// its own, so that a mistake shows when a thing is built and not in its first
// request. It imports none of them.
package check

import (
	"errors"
	"fmt"
	"reflect"
)

// IsNil reports whether v is nil or an interface around a nil pointer or function,
// which compares unequal to nil and panics in its first request.
func IsNil(v any) bool {
	if v == nil {
		return true
	}
	switch r := reflect.ValueOf(v); r.Kind() {
	case reflect.Pointer, reflect.Func:
		return r.IsNil()
	}
	return false
}

// Part reports a part that cannot do its work: one that IsNil, or whose method
// Validate() error objects. The errors name field ("regions: Config.Source").
func Part(field string, part any) error {
	switch {
	case part == nil:
		return errors.New(field + " is nil: it is required")
	case IsNil(part):
		return fmt.Errorf("%s is a nil %T", field, part)
	}
	if err := Validate(part); err != nil {
		return fmt.Errorf("%s: %w", field, err)
	}
	return nil
}

// Validate returns what the part's method Validate() error says, nil if it has none.
func Validate(part any) error {
	if v, ok := part.(interface{ Validate() error }); ok {
		return v.Validate()
	}
	return nil
}
