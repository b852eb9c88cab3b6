// Guard compares what healthy operations allocate with the committed table and
// fails when it is more. It prints how they compare in time too, but never fails
// on that. From the repository's root:
//
//	go run ./benchmarks/guard          # compare
//	go run ./benchmarks/guard -update  # write the table anew
package main

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/reroute-go/reroute/benchmarks/internal/measure"
)

const tablePath = "benchmarks/guard/allocations.tsv"

func main() {
	update := flag.Bool("update", false, "write the table anew")
	flag.Parse()
	if err := run(*update); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(update bool) error {
	subjects, err := paths()
	if err != nil {
		return err
	}
	costs, err := measure.Rounds(subjects, 5, 2*time.Millisecond)
	if err != nil {
		return err
	}
	if update {
		return write(tablePath, subjects, costs)
	}
	held, err := read(tablePath)
	if err != nil {
		return err
	}
	return compare(held, subjects, costs)
}

// compare prints a line a path and returns an error that names those that
// allocate more than what is held.
func compare(held map[string]limit, subjects []measure.Subject, costs [][]measure.Cost) error {
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "path\tallocations\theld\tbytes\theld\ttime, x bare")
	base := measure.MedianOf(costs[0])
	var worse []string
	for i, s := range subjects {
		c := measure.MedianOf(costs[i])
		l, known := held[s.Name]
		if !known || l.exceeded(c) {
			worse = append(worse, s.Name)
		}
		fmt.Fprintf(out, "%s\t%.0f\t%d\t%.0f\t%d\t%.2f\n", s.Name, c.Allocations, l.allocations, c.Bytes, l.bytes, c.Nanoseconds/base.Nanoseconds)
	}
	if err := out.Flush(); err != nil || len(worse) == 0 {
		return err
	}
	return fmt.Errorf("more than %s allows: %s", tablePath, strings.Join(worse, ", "))
}

// limit is what one path may allocate.
type limit struct{ allocations, bytes int }

// exceeded leaves room for what a round's own bookkeeping adds to an operation.
func (l limit) exceeded(c measure.Cost) bool {
	return c.Allocations >= float64(l.allocations)+0.5 || c.Bytes >= float64(l.bytes)*1.02+8
}

func read(path string) (map[string]limit, error) {
	table, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	held := map[string]limit{}
	for line := range strings.Lines(string(table)) {
		fields := strings.Split(strings.TrimSpace(line), "\t")
		if fields[0] == "path" {
			continue
		}
		var l limit
		if len(fields) != 3 {
			return nil, fmt.Errorf("%s: %q has not three fields", path, line)
		}
		if l.allocations, err = strconv.Atoi(fields[1]); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if l.bytes, err = strconv.Atoi(fields[2]); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		held[fields[0]] = l
	}
	return held, nil
}

func write(path string, subjects []measure.Subject, costs [][]measure.Cost) error {
	var b strings.Builder
	b.WriteString("path\tallocations\tbytes\n")
	for i, s := range subjects {
		c := measure.MedianOf(costs[i])
		fmt.Fprintf(&b, "%s\t%.0f\t%.0f\n", s.Name, c.Allocations, c.Bytes)
	}
	return os.WriteFile(path, []byte(b.String()), 0o644)
}
