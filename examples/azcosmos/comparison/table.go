package comparison

import (
	"fmt"
	"strings"
	"time"
)

// Markdown prints rows as a table: for each way the sends in the three regions, their sum, the time, and the outcome.
func Markdown(rows []Row) string {
	var b strings.Builder
	b.WriteString("| fault in the first region | operation | SDK alone | reroute alone | SDK + reroute |\n|---|---|---|---|---|\n")
	for _, r := range rows {
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", r.Fault.Name, r.Operation.Name, r.SDK, r.Stack, r.Both)
	}
	return b.String()
}

// String prints "4 (3/1/0) 2s ok".
func (r Result) String() string {
	return fmt.Sprintf("%d (%d/%d/%d) %s %s", r.Sends, r.At[0], r.At[1], r.At[2], short(r.Took), r.Outcome)
}

func short(d time.Duration) string {
	if d > time.Second {
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Millisecond).String()
}
