package middleware

import (
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"

	"github.com/reroute-go/reroute/internal/check"
)

// LayerError says what is wrong with one of the layers given to Stack, or with
// the base below them.
type LayerError struct {
	Position int    // of the layer, from 0, outermost first; -1 = the base
	Type     string // of it: "*roundtrippers.Circuit"; "" = the interface itself is nil
	Err      error  // what it said; nil = it is a nil pointer or function
}

// Error names the layer in each of its lines: Err may join several mistakes.
func (e *LayerError) Error() string {
	name := "base"
	if e.Position >= 0 {
		name = fmt.Sprintf("layer %d", e.Position)
	}
	switch {
	case e.Type == "":
		return name + " is nil"
	case e.Err == nil:
		return fmt.Sprintf("%s is a nil %s", name, e.Type)
	}
	name = fmt.Sprintf("%s (%s): ", name, e.Type)
	return name + strings.ReplaceAll(e.Err.Error(), "\n", "\n"+name)
}

// Unwrap returns what the layer said.
func (e *LayerError) Unwrap() error { return e.Err }

// wrapLayer is l.Wrap for a layer that may be none.
func wrapLayer(position int, l Layer, next http.RoundTripper) (http.RoundTripper, *LayerError) {
	mistaken := &LayerError{Position: position}
	if l == nil {
		return nil, mistaken
	}
	mistaken.Type = fmt.Sprintf("%T", l)
	if _, silent := l.(Observer); check.IsNil(l) && !silent { // a nil Observer is one that nobody listens to
		return nil, mistaken
	}
	rt, err := l.Wrap(next)
	switch {
	case err != nil:
		mistaken.Err = err
	case check.IsNil(rt):
		mistaken.Err = errors.New("Wrap returned neither a RoundTripper nor an error")
	default:
		return rt, nil
	}
	return nil, mistaken
}

// checkBase asks a base with a method Validate about its fields.
func checkBase(base http.RoundTripper) *LayerError {
	mistaken := &LayerError{Position: -1, Type: fmt.Sprintf("%T", base)}
	if check.IsNil(base) {
		return mistaken
	}
	if mistaken.Err = check.Validate(base); mistaken.Err != nil {
		return mistaken
	}
	return nil
}

// mistakes are those found in one Stack, the innermost first.
type mistakes []*LayerError

// tell reports whether the same has been said by the same pointer, which is stacked
// in two places, or in two parts.
func (m mistakes) tell(e *LayerError, layers []Layer) bool {
	l := reflect.ValueOf(layers[e.Position])
	for _, told := range m {
		if told.Position < 0 || told.Err == nil || e.Err == nil || told.Err.Error() != e.Err.Error() {
			continue
		}
		other := reflect.ValueOf(layers[told.Position])
		if l.Kind() == reflect.Pointer && other.Kind() == reflect.Pointer && l.Pointer() == other.Pointer() {
			return true
		}
	}
	return false
}

func (m mistakes) join() error {
	errs := make([]error, len(m))
	for i, e := range m {
		errs[len(m)-1-i] = e
	}
	return fmt.Errorf("middleware.Stack: %w", errors.Join(errs...))
}
