package comparison

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/roundtrippers"
)

// What a breaker takes to open, by its documented defaults, and how often it probes.
const (
	readFailures, writeFailures = 10, 5
	probeEvery                  = 5 * time.Second
	slowestProbeEvery           = probeEvery * 3 / 2
)

// alone is what SDK 1.5.0 does for the dead partition's keys, for ever: whether all operations fail or none does, what one takes, and how
// often it is sent to the dead partition.
var alone = map[[2]string]struct {
	fail  bool
	takes time.Duration
	sends int
}{
	{"503", "read"}:                         {false, near + far, 1},
	{"503", "upsert, multi-write"}:          {false, near + far, 1},
	{"503 after 1s", "read"}:                {false, time.Second + near + far, 1},
	{"503 after 1s", "upsert, multi-write"}: {false, time.Second + near + far, 1},
	{"500", "read"}:                         {false, near + near + far, 2},
	{"500", "upsert, multi-write"}:          {true, near, 1},
	{"hangs", "read"}:                       {true, patience, 1},
	{"hangs", "upsert, multi-write"}:        {true, patience, 1},
	// Three attempts of half a second with the SDK's waits of a second between them, and then the caller's time is over.
	{"hangs, attempts limited to 500ms", "read"}:                {true, patience, 3},
	{"hangs, attempts limited to 500ms", "upsert, multi-write"}: {true, 500 * time.Millisecond, 1},
}

func TestAPartitionThatDiesInOneRegionMovesAloneUnderTheSDK(t *testing.T) { // issue 3, done when 8
	deaths := Deaths
	if testing.Short() {
		deaths = deaths[3:] // those that hang, whose operations are few
	}
	rows := RunPartitions(t, deaths)
	t.Log("\n" + PartitionMarkdown(rows))
	require.Len(t, alone, 2*len(Deaths))
	require.Len(t, rows, 2*len(deaths))
	for _, r := range rows {
		t.Run(r.Death.Name+" "+r.Operation.Name, func(t *testing.T) {
			want, ok := alone[[2]string{r.Death.Name, r.Operation.Name}]
			require.True(t, ok)
			for _, c := range []Casualty{r.SDK, r.Both} { // the others notice nothing
				require.Zero(t, c.Others.Failed, "%v", c.Others.First)
				require.Equal(t, near, c.Others.P99)
				require.Equal(t, near, c.Others.Slowest)
				require.Zero(t, c.OthersAway, "sends of healthy partitions to other regions")
				require.Greater(t, c.Others.Operations, 400)
			}

			sdk := r.SDK.Dead
			require.Equal(t, want.takes, sdk.P50)
			require.Equal(t, want.takes, sdk.P99)
			require.Equal(t, map[bool]int{true: sdk.Operations}[want.fail], sdk.Failed)
			require.InDelta(t, want.sends*sdk.Operations, r.SDK.DeadAtHome, deadKeys*float64(want.sends), "but for the last ones, it never learns")
			require.Zero(t, r.SDK.Opened)

			threshold := readFailures
			if r.Operation.Write {
				threshold = writeFailures
			}
			inFlight, probes := deadKeys-1, int(observedFor/probeEvery)
			both := r.Both.Dead
			require.Equal(t, far, both.P50, "straight to the region that serves")
			require.Equal(t, far, both.P99)
			if !want.fail {
				require.Less(t, both.P99, sdk.P99)
			}
			require.Positive(t, r.Both.Opened)
			require.GreaterOrEqual(t, r.Both.DeadAtHome-r.Both.SinceOpened, threshold)
			require.LessOrEqual(t, r.Both.DeadAtHome-r.Both.SinceOpened, threshold+inFlight)
			require.LessOrEqual(t, r.Both.SinceOpened, probes, "one probe at a time")
			require.Positive(t, r.Both.SinceOpened, "or nobody would see it recover")
			require.LessOrEqual(t, r.Both.Returned, slowestProbeEvery+max(r.Death.AttemptTimeout, patience)+time.Second, "home again")
			if r.Death.Name == "hangs" {
				// Nothing but the caller's own deadline ends these, so what taught the breaker could not be saved.
				require.LessOrEqual(t, both.Failed, r.Both.DeadAtHome)
				return
			}
			require.Zero(t, both.Failed, "%v", both.First)
		})
	}
}

func TestWithoutPartitionsOneDeadPartitionTakesTheWholeRegionWithIt(t *testing.T) {
	without := overStackThrough(func(b *roundtrippers.Builder) { b.Partitions = nil })
	c := survive(t, Deaths[0], Operations[0], without)
	t.Log(c)
	require.Zero(t, c.Opened)
	require.Zero(t, c.Dead.Failed+c.Others.Failed)
	require.Greater(t, c.OthersAway, c.Others.Operations/2, "healthy partitions leave home as well")

	c = survive(t, Deaths[3], Operations[0], without)
	require.Equal(t, c.Dead.Operations, c.Dead.Failed, "and one that hangs is never given up")
	require.Zero(t, c.OthersAway)
}

func TestNoBreakerOpensWhileAllPartitionsAreWell(t *testing.T) {
	c := survive(t, Death{Name: "none"}, Operations[2], overStackThrough(nil))
	require.Zero(t, c.Opened)
	require.Zero(t, c.Dead.Failed+c.Others.Failed)
	require.Equal(t, near, c.Dead.Slowest)
	require.Equal(t, c.Dead.Operations, c.DeadAtHome)
}
