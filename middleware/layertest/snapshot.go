package layertest

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"
)

// snapshot is all of a request that a RoundTripper must leave alone, one level
// below each pointer included.
type snapshot struct {
	req     http.Request // a shallow copy
	url     url.URL
	header  http.Header
	trailer http.Header
	coding  []string
}

func snapshotOf(req *http.Request) snapshot {
	s := snapshot{req: *req, header: req.Header.Clone(), trailer: req.Trailer.Clone(), coding: slices.Clone(req.TransferEncoding)}
	if req.URL != nil {
		s.url = *req.URL
	}
	return s
}

// changes tells what is not as it was.
func (s snapshot) changes(req *http.Request) (changed []string) {
	was, is := reflect.ValueOf(&s.req).Elem(), reflect.ValueOf(req).Elem()
	for i := range was.NumField() {
		field := was.Type().Field(i)
		if a, b := was.Field(i), is.Field(i); !same(a, b) {
			changed = append(changed, field.Name)
		}
	}
	if req.URL != nil && s.req.URL == req.URL && *req.URL != s.url {
		changed = append(changed, fmt.Sprintf("URL (%v is now %v)", &s.url, req.URL))
	}
	if !maps.EqualFunc(s.header, req.Header, slices.Equal) {
		changed = append(changed, "Header")
	}
	if !maps.EqualFunc(s.trailer, req.Trailer, slices.Equal) {
		changed = append(changed, "Trailer")
	}
	if !slices.Equal(s.coding, req.TransferEncoding) {
		changed = append(changed, "TransferEncoding")
	}
	return changed
}

// same compares by identity where there is one, and by value elsewhere.
func same(a, b reflect.Value) bool {
	switch a.Kind() {
	case reflect.Map, reflect.Slice, reflect.Func, reflect.Pointer, reflect.Chan:
		return a.Pointer() == b.Pointer()
	case reflect.Interface:
		return a.IsNil() == b.IsNil() && (a.IsNil() || a.Elem().Type() == b.Elem().Type() && same(a.Elem(), b.Elem()))
	case reflect.Struct:
		for i := range a.NumField() {
			if !same(a.Field(i), b.Field(i)) {
				return false
			}
		}
		return true
	}
	return a.Equal(b)
}
