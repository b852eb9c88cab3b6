package rest

import "reflect"

// Counted is implemented by a decoded page that knows how many rows it holds.
type Counted interface {
	// Rows is how many there are.
	Rows() int
}

// rowsOf counts the rows of a decoded page: what it says itself, else the
// elements of a list, else those of the lists directly in an object, else 1.
func rowsOf(page any) int {
	if c, ok := page.(Counted); ok {
		return c.Rows()
	}
	v := reflect.ValueOf(page)
	for v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface {
		if v.IsNil() {
			return 0
		}
		v = v.Elem()
	}
	if !v.IsValid() {
		return 0
	}
	if isList(v) {
		return v.Len()
	}
	rows, lists := 0, 0
	each(v, func(field reflect.Value) {
		for field.Kind() == reflect.Pointer || field.Kind() == reflect.Interface {
			field = field.Elem()
		}
		if field.IsValid() && isList(field) {
			rows, lists = rows+field.Len(), lists+1
		}
	})
	if lists == 0 {
		return 1
	}
	return rows
}

// isList tells lists from strings of bytes, such as json.RawMessage.
func isList(v reflect.Value) bool {
	return v.Kind() == reflect.Array || v.Kind() == reflect.Slice && v.Type().Elem().Kind() != reflect.Uint8
}

func each(v reflect.Value, f func(reflect.Value)) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			f(v.Field(i))
		}
	case reflect.Map:
		for it := v.MapRange(); it.Next(); {
			f(it.Value())
		}
	}
}
