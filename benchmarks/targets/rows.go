package main

import "github.com/reroute-go/reroute/benchmarks/internal/measure"

// row is one target and the benchmarks that measure it.
type row struct {
	what       string
	benchmarks []string
	limits     []limit
}

// limit is a figure that must not be exceeded.
type limit struct {
	target string
	most   float64
	format string
	of     func(*figures) float64
}

const (
	bare, floor     = "Bare/GET", "Floor/GET"
	cosmos, stamped = "Cosmos/GET", "Cosmos/GET_stamped"
	healthy         = "Retry/none/GET"
	once, afterWait = "Retry/1/GET", "Retry/1_after_a_wait/GET"
	find, header    = "Find/100000", "HeaderToRange/10000"
	health          = "Health/0_others_away"
	memory          = "TrippedMemory/80000"
	failure, many   = "Failure/1_others_away", "Failure/80000_others_away"
	ranges, owners  = "StaleMap/ranges", "StaleMap/owners"
	calm, hanging   = "ReadersWhileRefreshHangs/no_refresh", "ReadersWhileRefreshHangs/refresh_hangs"
)

// rows are the targets of the design, in its order. How the stacks compare with
// other libraries is measured in benchmarks/peers.
var rows = []row{
	stack("full Cosmos stack, healthy GET, 10,000 ranges", cosmos),
	stack("the same, the dialect's header already there", stamped),
	{"one retry, at once", []string{once, healthy, bare}, []limit{retries(once)}},
	{"one retry, after a wait", []string{afterWait, healthy, bare}, []limit{retries(afterWait)}},
	{"effective partition key to range, 100,000 ranges", []string{find}, []limit{
		{"40 ns", 40, "%.0f ns", func(f *figures) float64 { return f.median(find, "ns/op") }},
		allocations("no allocation", 0, find),
	}},
	{"header to range, 10,000 ranges", []string{header}, []limit{
		{"120 ns", 120, "%.0f ns", func(f *figures) float64 { return f.median(header, "ns/op") }},
		allocations("no allocation", 0, header),
	}},
	{"healthy partition (no lock: `TestHealthyOperationsTakeNoLock` in `partitions`)", []string{health}, []limit{
		{"0 B", 0, "%.0f B", func(f *figures) float64 { return f.median(health, "B/op") }},
	}},
	{"tripped partition, each of 80,000", []string{memory}, []limit{
		{"400 B", 400, "%.0f B", func(f *figures) float64 { return f.median(memory, "B/partition") }},
	}},
	{"recording a failure, 80,000 tripped beside 1", []string{failure, many}, []limit{
		{"same time: x 2 (caches)", 2, "x %.2f", func(f *figures) float64 { return f.ratio(many, failure) }},
		{"same memory: x 1", 1.01, "x %.2f", func(f *figures) float64 { return f.median(many, "B/op") / f.median(failure, "B/op") }},
	}},
	{"1,000 operations meet stale ranges", []string{ranges}, []limit{fetches(ranges)}},
	{"1,000 operations meet a stale map of owners", []string{owners}, []limit{fetches(owners)}},
	{"readers while a refresh hangs, beside none", []string{calm, hanging}, []limit{
		{"never blocked: x 1.5", 1.5, "x %.2f", func(f *figures) float64 { return f.ratio(hanging, calm) }},
	}},
}

// stack are the limits of a whole stack beside the bare transport.
func stack(what, name string) row {
	return row{what, []string{name, floor, bare}, []limit{
		{"added time 2.5 x floor's", 2.5, "x %.1f", func(f *figures) float64 { return f.addedRatio(name, floor, bare) }},
		{"3 more allocations", 3, "%.0f", func(f *figures) float64 { return f.median(name, "allocs/op") - f.median(bare, "allocs/op") }},
		{"1,024 B more", 1024, "%.0f B", func(f *figures) float64 { return f.median(name, "B/op") - f.median(bare, "B/op") }},
	}}
}

// retries is what one retry allocates, without what the terminal does for its own
// second answer.
func retries(name string) limit {
	return limit{"3 more allocations", 3, "%.0f", func(f *figures) float64 {
		return f.median(name, "allocs/op") - f.median(healthy, "allocs/op") - f.median(bare, "allocs/op")
	}}
}

func allocations(target string, most float64, name string) limit {
	return limit{target, most, "%.0f", func(f *figures) float64 { return f.median(name, "allocs/op") }}
}

func fetches(name string) limit {
	return limit{"1 fetch", 1, "%.0f", func(f *figures) float64 { return f.median(name, "fetches/op") }}
}

// figures are what the benchmarks reported. It remembers one that is missing.
type figures struct {
	found   map[string][]measure.Metrics
	missing string
}

func (f *figures) each(name, unit string) []float64 {
	var values []float64
	for _, m := range f.found[name] {
		if v, ok := m[unit]; ok {
			values = append(values, v)
		}
	}
	if values == nil {
		f.missing = name
	}
	return values
}

func (f *figures) median(name, unit string) float64 { return measure.Median(f.each(name, unit)) }

// ratio is the median of the rounds' ratios of time.
func (f *figures) ratio(name, of string) float64 {
	return f.ratios(f.each(name, "ns/op"), f.each(of, "ns/op"))
}

// addedRatio is that of what both add to base.
func (f *figures) addedRatio(name, of, base string) float64 {
	more, floor, bare := f.each(name, "ns/op"), f.each(of, "ns/op"), f.each(base, "ns/op")
	for i := range min(len(more), len(floor), len(bare)) {
		more[i] -= bare[i]
		floor[i] -= bare[i]
	}
	return f.ratios(more, floor)
}

func (f *figures) ratios(of, to []float64) float64 {
	ratios := make([]float64, min(len(of), len(to)))
	for i := range ratios {
		ratios[i] = of[i] / to[i]
	}
	return measure.Median(ratios)
}
