package snapshot

import (
	"errors"
	"fmt"
	"reflect"
)

// CheckSource reports a source that cannot tell anything, before the first operation waits for it in vain: nil, an
// interface around a nil pointer or function, and one with a method Validate() error that objects. The errors name
// field ("regions: Config.Source").
func CheckSource(field string, source any) error {
	if source == nil {
		return errors.New(field + " is nil: it is required")
	}
	switch v := reflect.ValueOf(source); v.Kind() {
	case reflect.Pointer, reflect.Func:
		if v.IsNil() {
			return fmt.Errorf("%s is a nil %T: it is required", field, source)
		}
	}
	if v, ok := source.(interface{ Validate() error }); ok {
		if err := v.Validate(); err != nil {
			return fmt.Errorf("%s: %w", field, err)
		}
	}
	return nil
}
