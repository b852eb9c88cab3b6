// Package storm holds the storm: a simulated account, cluster and API in virtual
// time, under a random schedule of everything that can go wrong in them, and
// thousands of operations of every kind that all must keep their promises.
//
//	go test ./roundtrippers/storm                                   a few short storms in each world
//	go test ./roundtrippers/storm -storm.seeds 1000 -storm.ops 10000 -timeout 0 -v
//	go test ./roundtrippers/storm -run TestStormCosmos -storm.seed 17 -storm.seeds 1 -storm.ops 10000
//
// The schedule follows from the seed and the number of operations alone. What
// the scheduler of the runtime and the jitter of waits add is not repeated, so a
// replay that passes is worth another one: -count 20.
package storm

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

var (
	firstSeed  = flag.Uint64("storm.seed", 1, "first `seed` of the storms")
	seeds      = flag.Int("storm.seeds", 4, "`number` of storms in each world")
	operations = flag.Int("storm.ops", 400, "`number` of operations in each storm")
)

func TestStormCosmos(t *testing.T) { storms(t, cosmosStorm, 9) }

func TestStormCluster(t *testing.T) { storms(t, clusterStorm, 9) }

func TestStormAPI(t *testing.T) { storms(t, apiStorm, 10) }

// storms raises one storm after the other. tenths are how many clients it takes
// for ten operations, as some make several.
func storms(t *testing.T, rage func(*storm), tenths int) {
	total := tally{}
	started := time.Now()
	for i := range *seeds {
		s := newStorm(t, *firstSeed+uint64(i))
		s.raise(rage, *operations*tenths/10)
		total.add(&s.tally)
		if t.Failed() {
			break
		}
		if (i+1)%50 == 0 {
			fmt.Fprintf(os.Stderr, "%s: %d seeds in %s: %s\n", t.Name(), i+1, time.Since(started).Round(time.Second), &total)
		}
	}
	t.Logf("%d seeds of %d operations in %s: %s", *seeds, *operations, time.Since(started).Round(10*time.Millisecond), &total)
}

// raise plays one storm in a bubble of its own and tells of what broke in it.
func (s *storm) raise(rage func(*storm), clients int) {
	s.t.Helper()
	defer func() {
		if p := recover(); p != nil { // a bubble in which nothing moves any more
			s.broken = append(s.broken, fmt.Sprintf("panic: %v\nunder way: %s\n%s", p, s.running(), inBubble()))
		}
		if len(s.broken) > 0 {
			s.t.Errorf("replay: %s\n\n%s", s.replay(), s.tell())
		}
	}()
	synctest.Test(s.t, func(*testing.T) {
		s.started = time.Now()
		ctx, stop := context.WithCancelCause(context.Background())
		defer stop(nil)
		s.ctx, s.stop = ctx, stop
		s.schedule(clients)
		watch := time.AfterFunc(s.lasts+2*time.Hour, func() { s.break_("operations go on, long after the storm: %s", s.running()) })
		defer watch.Stop()
		rage(s)
	})
}

// inBubble tells what the goroutines do that are left in a bubble.
func inBubble() string {
	all := make([]byte, 1<<20)
	var left []string
	for text := range strings.SplitSeq(string(all[:runtime.Stack(all, true)]), "\n\n") {
		if head, _, _ := strings.Cut(text, "\n"); strings.Contains(head, "synctest bubble") {
			left = append(left, text)
		}
	}
	return strings.Join(left[:min(5, len(left))], "\n\n")
}

// replay is the line that plays this storm again.
func (s *storm) replay() string {
	return fmt.Sprintf("go test ./roundtrippers/storm -run '^%s$' -storm.seed %d -storm.seeds 1 -storm.ops %d -count 20 -failfast",
		s.t.Name(), s.seed, *operations)
}

func (s *storm) tell() string { return strings.Join(s.broken, "\n\n") }
