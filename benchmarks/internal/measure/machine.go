package measure

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"
)

// Machine says on what, and when, the figures are taken, and how busy it is with
// other things: call it before measuring.
func Machine() string {
	return fmt.Sprintf("%s, %s, %d cores (%s), %s/%s, load before the run %s",
		time.Now().Format(time.DateOnly), runtime.Version(), runtime.NumCPU(), processor(), runtime.GOOS, runtime.GOARCH, load())
}

// load is the load average of the last minute where the system tells it.
func load() string {
	averages, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	last, _, _ := strings.Cut(string(averages), " ")
	return last
}

// processor is the CPU's model where the system tells it.
func processor() string {
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "unknown CPU"
	}
	for line := range strings.Lines(string(info)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown CPU"
}
