// Targets runs the benchmarks by which the design's targets are measured and
// writes what they say into benchmarks/README.md. From the repository's root, on
// a machine that does nothing else:
//
//	go run ./benchmarks/targets         # about 2 minutes, rewrites the table
//	go run ./benchmarks/targets -short  # some seconds, prints it
package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/reroute-go/reroute/benchmarks/internal/measure"
)

func main() {
	measure.Command{Document: "benchmarks/README.md", Section: "targets", Rounds: 7, Spell: 300 * time.Millisecond, Tables: table}.Main()
}

func table(rounds int, spell time.Duration) (string, error) {
	found, err := measure.GoBench(context.Background(), "./benchmarks/", pattern(), rounds, spell)
	if err != nil {
		return "", err
	}
	return tableOf(found)
}

// pattern matches the benchmarks that the rows need, and no others.
func pattern() string {
	var list []string
	for _, r := range rows {
		for _, b := range r.benchmarks {
			if exact := "^Benchmark" + strings.ReplaceAll(b, "/", "$/^") + "$"; !slices.Contains(list, exact) {
				list = append(list, exact)
			}
		}
	}
	return strings.Join(list, "|")
}

func tableOf(found map[string][]measure.Metrics) (string, error) {
	lines := [][]string{{"what", "target", "measured", "reached", "benchmark"}}
	for _, r := range rows {
		f := figures{found: found}
		what, names := r.what, "`Benchmark"+strings.Join(r.benchmarks, "`, `Benchmark")+"`"
		for _, limit := range r.limits {
			value := limit.of(&f)
			if f.missing != "" {
				return "", fmt.Errorf("no benchmark %s", f.missing)
			}
			verdict := "yes"
			if value > limit.most {
				verdict = "**no**"
			}
			lines = append(lines, []string{what, limit.target, fmt.Sprintf(limit.format, value), verdict, names})
			what, names = "", ""
		}
	}
	return measure.Table(lines), nil
}
