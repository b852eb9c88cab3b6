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

// PartitionMarkdown prints rows as a table, two lines for each: the SDK alone, and over reroute.
func PartitionMarkdown(rows []PartitionRow) string {
	var b strings.Builder
	b.WriteString("| the partition | operation | client | its keys: failed of operations | p50 | p99 | slowest | sends to it | of these, since the breaker opened |" +
		" home again after | other keys: failed of operations | p50 | p99 | slowest | sends elsewhere |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n")
	for _, r := range rows {
		fmt.Fprintf(&b, "| %s | %s | SDK alone | %s |\n| | | SDK + reroute | %s |\n", r.Death.Name, r.Operation.Name, r.SDK, r.Both)
	}
	return b.String()
}

// String prints the cells of a line.
func (c Casualty) String() string {
	since, home := "-", "-"
	if c.Opened != 0 {
		since, home = fmt.Sprintf("%d (after %s)", c.SinceOpened, exact(c.Opened)), exact(c.Returned)
	}
	return fmt.Sprintf("%s | %d | %s | %s | %s | %d", c.Dead, c.DeadAtHome, since, home, c.Others, c.OthersAway)
}

// String prints "1 of 100 | 2ms | 40ms | 3s".
func (l Load) String() string {
	return fmt.Sprintf("%d of %d | %s | %s | %s", l.Failed, l.Operations, exact(l.P50), exact(l.P99), exact(l.Slowest))
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

func exact(d time.Duration) string { return d.Round(time.Millisecond).String() }
