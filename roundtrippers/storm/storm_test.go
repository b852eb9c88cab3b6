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

func TestStormCosmos(t *testing.T) { storms(t, cosmosStorm) }

func TestStormCluster(t *testing.T) { storms(t, clusterStorm) }


// storms raises one storm after the other.
func storms(t *testing.T, rage func(*storm)) {
	total := tally{}
	started := time.Now()
	for i := range *seeds {
		s := newStorm(t, *firstSeed+uint64(i))
		s.raise(rage)
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
func (s *storm) raise(rage func(*storm)) {
	s.t.Helper()
	defer func() {
		if p := recover(); p != nil { // a bubble in which nothing moves any more
			s.break_("panic: %v", p)
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
		s.schedule()
		watch := time.AfterFunc(s.lasts+2*time.Hour, func() { s.break_("operations go on, long after the storm: %s", s.running()) })
		defer watch.Stop()
		rage(s)
	})
}

// replay is the line that plays this storm again.
func (s *storm) replay() string {
	return fmt.Sprintf("go test ./roundtrippers/storm -run '^%s$' -storm.seed %d -storm.seeds 1 -storm.ops %d -count 20 -failfast",
		s.t.Name(), s.seed, *operations)
}

func (s *storm) tell() string { return strings.Join(s.broken, "\n\n") }
