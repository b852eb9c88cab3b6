package cosmostest

import (
	"encoding/json"
	"strings"
)

// query is a parsed SQL statement of the subset the account knows:
//
//	SELECT [TOP n] * | VALUE COUNT(1) | VALUE path | path [AS name], ... FROM c [WHERE condition]
//
// A condition joins comparisons, IN lists, IS_DEFINED and boolean paths with AND, OR, NOT and parentheses.
type query struct {
	top     int // -1 = all
	count   bool
	value   *path
	columns []column
	where   predicate
}

type column struct {
	name string
	path path
}

// path is a property path below the item.
type path []string

// expression yields a value of a document; ok is false where it is undefined.
type expression func(doc map[string]any) (value any, ok bool)

// predicate is a condition on a document.
type predicate func(doc map[string]any) bool

func (q *query) holds(doc map[string]any) bool { return q.where == nil || q.where(doc) }

// project makes the row of a document; ok is false when it has none.
func (q *query) project(v *version) (json.RawMessage, bool) {
	switch {
	case q.value != nil:
		value, ok := q.value.of(v.doc)
		if !ok {
			return nil, false
		}
		return encode(value), true
	case q.columns != nil:
		row := map[string]any{}
		for _, c := range q.columns {
			if value, ok := c.path.of(v.doc); ok {
				row[c.name] = value
			}
		}
		return encode(row), true
	}
	return v.body, true
}

func (p path) of(doc map[string]any) (any, bool) { return lookup(doc, p) }

// compare compares two values; values of different types differ, and only numbers and strings have an order.
func compare(op string, a, b any) bool {
	order, equal, ordered := 0, false, false
	switch x := a.(type) {
	case json.Number:
		if y, ok := b.(json.Number); ok {
			f, _ := x.Float64()
			g, _ := y.Float64()
			ordered = true
			switch {
			case f < g:
				order = -1
			case f > g:
				order = 1
			}
			equal = order == 0
		}
	case string:
		if y, ok := b.(string); ok {
			order, ordered = strings.Compare(x, y), true
			equal = order == 0
		}
	default:
		equal = string(encode(a)) == string(encode(b))
	}
	switch op {
	case "=":
		return equal
	case "!=", "<>":
		return !equal
	case "<":
		return ordered && order < 0
	case "<=":
		return ordered && order <= 0
	case ">":
		return ordered && order > 0
	}
	return ordered && order >= 0
}
