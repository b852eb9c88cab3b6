package middleware

import (
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"time"
)

// Describe prints a stack for logs and bug reports: a line a layer, outermost
// first, with the budgets each may spend and every field of plain type that is
// not zero, then the base and the most sends an operation can cost. Funcs,
// pointers and interfaces are left out, so no credential can show.
func Describe(rt http.RoundTripper) string {
	var b strings.Builder
	bound := describe(&b, rt)
	if bound >= Unlimited-1 {
		b.WriteString("no limit of sends but the context's end")
	} else {
		b.WriteString("at most " + sends(1+bound))
	}
	return b.String()
}

// describe writes rt and what is below and returns the sum of its budgets.
func describe(b *strings.Builder, rt http.RoundTripper) int {
	switch rt := rt.(type) {
	case *stack:
		sum := 0
		for i, s := range rt.stages {
			if i+1 < len(rt.stages) && same(s.rt, rt.stages[i+1].rt) {
				continue // a layer that is switched off has returned the next one
			}
			spent, label := budgetsOf(s.rt)
			sum = plus(sum, spent)
			fmt.Fprintf(b, "%s%s%s\n", typeName(s.layer), fieldsOf(s.layer), label)
		}
		return plus(sum, describe(b, rt.base))
	case *retrier:
		spent, label := budgetsOf(rt)
		fmt.Fprintf(b, "middleware.Retry%s\n", label)
		return plus(spent, describe(b, rt.next))
	case *recorder:
		return describe(b, rt.next)
	case *closing:
		return describe(b, rt.RoundTripper)
	default:
		fmt.Fprintf(b, "%T\n", rt)
		return 0
	}
}

// plus adds what may be Unlimited.
func plus(a, b int) int {
	if a > Unlimited-b {
		return Unlimited
	}
	return a + b
}

// Budgeted is implemented by a RoundTripper that wraps a Retry without being
// one, so that Describe can count its budgets.
type Budgeted interface {
	// Budgets lists what the loop may spend. It must not be changed.
	Budgets() []*Budget
}

// Budgets returns the budgets that the loop may spend.
func (r *retrier) Budgets() []*Budget { return r.budgets }

func budgetsOf(rt http.RoundTripper) (sum int, label string) {
	if c, ok := rt.(*closing); ok {
		rt = c.RoundTripper
	}
	budgeted, ok := rt.(Budgeted)
	if !ok {
		return 0, ""
	}
	var parts []string
	for _, b := range budgeted.Budgets() {
		sum = plus(sum, b.Retries)
		parts = append(parts, b.String())
	}
	return sum, " [" + strings.Join(parts, ", ") + "]"
}

func typeName(l Layer) string { return strings.TrimPrefix(fmt.Sprintf("%T", l), "*") }

// fieldsOf prints the plain, non-zero, exported fields of a layer's literal.
func fieldsOf(l Layer) string {
	v := reflect.Indirect(reflect.ValueOf(l))
	if v.Kind() != reflect.Struct {
		return ""
	}
	var parts []string
	for i := range v.NumField() {
		field, value := v.Type().Field(i), v.Field(i)
		if !field.IsExported() || value.IsZero() {
			continue
		}
		switch value.Kind() {
		case reflect.Bool, reflect.Int, reflect.Int64, reflect.Float64, reflect.Uint8:
			parts = append(parts, fmt.Sprintf("%s: %v", field.Name, value.Interface()))
		case reflect.Struct:
			if b, ok := value.Interface().(Backoff); ok {
				parts = append(parts, fmt.Sprintf("%s: %s", field.Name, b))
			}
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

// String prints the schedule: "5ms doubling, cap 5s, +-25%".
func (b Backoff) String() string {
	s := fmt.Sprintf("%s doubling", b.Base)
	if b.Cap > 0 {
		s += fmt.Sprintf(", cap %s", b.Cap)
	}
	if b.Jitter > 0 {
		s += fmt.Sprintf(", +-%.0f%%", 100*b.Jitter)
	}
	if b.Salt > time.Duration(0) {
		s += fmt.Sprintf(", +0..%s", b.Salt)
	}
	return s
}
