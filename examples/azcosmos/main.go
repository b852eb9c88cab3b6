// Command azcosmos shows the official SDK over reroute. It prints what the SDK sends against a simulated account's faults, alone and over
// a stack, in virtual time, and how both fare when one partition of one region dies; then it has both work on live accounts that go through
// an outage, throttling, broken answers and a move of the write region. It ends with a status other than 0 if anything failed over reroute that should not have.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/lmittmann/tint"

	"github.com/reroute-go/reroute/examples/azcosmos/comparison"
	"github.com/reroute-go/reroute/examples/azcosmos/live"
	"github.com/reroute-go/reroute/middleware/cosmos/cosmostest"
)

// phase is how long each phase of the live part lasts.
const phase = 2 * time.Second

func main() {
	// Virtual time is to be had in a test only, so the program is one, by hand.
	testing.Main(func(string, string) (bool, error) { return true, nil }, []testing.InternalTest{
		{Name: "comparison", F: compare},
		{Name: "partition", F: losePartition},
		{Name: "live", F: keepWorking},
	}, nil, nil)
}

func compare(t *testing.T) {
	start := time.Now()
	rows := comparison.Run(t, nil)
	fmt.Printf("# One operation against one fault\n\nSends (in each region), time, outcome; %d rows in %s.\n\n%s\n",
		len(rows), time.Since(start).Round(time.Millisecond), comparison.Markdown(rows))
	for _, r := range rows {
		if r.Both.Sends > r.Stack.Sends {
			t.Errorf("%s, %s: SDK + reroute sent %d times, reroute alone %d", r.Fault.Name, r.Operation.Name, r.Both.Sends, r.Stack.Sends)
		}
		if r.SDK.Outcome == "ok" && r.Both.Outcome != "ok" {
			t.Errorf("%s, %s: works with the SDK alone and ends with %s over reroute", r.Fault.Name, r.Operation.Name, r.Both.Outcome)
		}
	}
}

func losePartition(t *testing.T) {
	start := time.Now()
	rows := comparison.RunPartitions(t, comparison.Deaths)
	fmt.Printf("# One partition of the home region dies for a minute\n\n%d rows in %s.\n\n%s\n",
		len(rows), time.Since(start).Round(time.Millisecond), comparison.PartitionMarkdown(rows))
	for _, r := range rows {
		if r.Both.Dead.Failed > r.SDK.Dead.Failed {
			t.Errorf("%s, %s: %d operations failed over reroute and %d with the SDK alone, the first with %v",
				r.Death.Name, r.Operation.Name, r.Both.Dead.Failed, r.SDK.Dead.Failed, r.Both.Dead.First)
		}
		if o := r.Both.Others; o.Failed > 0 || r.Both.OthersAway > 0 {
			t.Errorf("%s, %s: of the healthy partitions' operations %d failed, the first with %v, and %d sends left home",
				r.Death.Name, r.Operation.Name, o.Failed, o.First, r.Both.OthersAway)
		}
	}
}

func keepWorking(t *testing.T) {
	log := logger()

	account := func() *cosmostest.Account {
		a, err := live.Start()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(a.Close)
		return a
	}
	first, second := account(), account()
	alone, err := live.Alone(first)
	if err != nil {
		t.Fatal(err)
	}
	defer alone.Close()
	over, done, err := live.OverReroute(context.Background(), second, log)
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	defer over.Close()

	var sdk, both []live.Figures
	var failed [2]error
	var running sync.WaitGroup
	running.Go(func() { sdk, failed[0] = live.Run(alone, first, phase, func(live.Phase) {}) })
	running.Go(func() {
		both, failed[1] = live.Run(over, second, phase, func(p live.Phase) { log.Info("phase", "name", p.Name) })
	})
	running.Wait()
	for _, err := range failed {
		if err != nil {
			t.Fatal(err)
		}
	}
	fmt.Printf("# Four workers through six phases of %s\n\n%s\n", phase, live.Markdown(sdk, both))
	var lost, lostAlone, all int
	for i, f := range both {
		lost, lostAlone, all = lost+f.Failed, lostAlone+sdk[i].Failed, all+f.Operations
		if f.Failed > 0 {
			t.Errorf("%s: %d operations failed over reroute, the first with %v", f.Phase, f.Failed, f.First)
		}
	}
	fmt.Printf("SDK + reroute: %d of %d operations failed. SDK alone: %d.\n", lost, all, lostAlone)
}

// logger writes to standard error, in colour where somebody looks at it.
func logger() *slog.Logger {
	info, err := os.Stderr.Stat()
	plain := err != nil || info.Mode()&os.ModeCharDevice == 0 || os.Getenv("NO_COLOR") != ""
	return slog.New(tint.NewTextHandler(os.Stderr, &tint.Options{TimeFormat: "15:04:05.000", NoColor: plain}))
}
