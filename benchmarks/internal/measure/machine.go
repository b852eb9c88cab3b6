package measure

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"
)

// Machine says on what, and when, the figures were taken.
func Machine() string {
	return fmt.Sprintf("%s, %s, %d cores (%s), %s/%s", time.Now().Format(time.DateOnly), runtime.Version(), runtime.NumCPU(), processor(), runtime.GOOS, runtime.GOARCH)
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
