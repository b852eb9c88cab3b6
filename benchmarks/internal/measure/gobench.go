package measure

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Metrics are what one run of a benchmark reported, by unit: "ns/op".
type Metrics map[string]float64

// GoBench runs the benchmarks of a package that match pattern, so many times one
// after the other, and returns what each run of each reported, by name without
// "Benchmark" and the number of cores.
func GoBench(ctx context.Context, pkg, pattern string, rounds int, spell time.Duration) (map[string][]Metrics, error) {
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	binary := filepath.Join(dir, "bench.test")
	if out, err := exec.CommandContext(ctx, "go", "test", "-c", "-o", binary, pkg).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("go test -c %s: %w\n%s", pkg, err, out)
	}
	found := map[string][]Metrics{}
	for range rounds {
		out, err := exec.CommandContext(ctx, binary, "-test.run", "^$", "-test.bench", pattern, "-test.benchmem", "-test.benchtime", spell.String()).CombinedOutput()
		if err != nil {
			return nil, fmt.Errorf("%s: %w\n%s", pattern, err, out)
		}
		for line := range strings.Lines(string(out)) {
			if name, metrics, ok := parse(line); ok {
				found[name] = append(found[name], metrics)
			}
		}
	}
	return found, nil
}

// parse reads a line such as "BenchmarkFind/100-2   9135   12.5 ns/op   0 B/op".
func parse(line string) (name string, m Metrics, ok bool) {
	fields := strings.Fields(line)
	if len(fields) < 4 || !strings.HasPrefix(fields[0], "Benchmark") {
		return "", nil, false
	}
	name = strings.TrimPrefix(fields[0], "Benchmark")
	if dash := strings.LastIndexByte(name, '-'); dash > 0 {
		if _, err := strconv.Atoi(name[dash+1:]); err == nil {
			name = name[:dash]
		}
	}
	m = Metrics{}
	for i := 2; i+1 < len(fields); i += 2 {
		value, err := strconv.ParseFloat(fields[i], 64)
		if err != nil {
			return "", nil, false
		}
		m[fields[i+1]] = value
	}
	return name, m, true
}
