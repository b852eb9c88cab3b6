package partitions

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/reroute-go/reroute/regions"
)

// modelBreaker is rule 9 in the plainest way. Times are since the start.
type modelBreaker struct {
	failures    int
	lastFailure time.Duration
	tripped     bool
	since       time.Duration // of the trip, or of the last failed probe
	probing     bool
	leased      time.Duration
	free        bool // a probe was given back: no wait
	probe       int  // number of the newest
	recoveries  int
}

type modelKey struct {
	partition Partition
	region    regions.Name
	write     bool
}

// modelFlight is an attempt under way.
type modelFlight struct {
	admission  Admission
	partition  Partition
	write      bool
	probe      int                  // number, if it is one
	recoveries map[regions.Name]int // at admission
	since      time.Duration
}

func TestHealthFollowsTheRule(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var failed any
		synctest.Test(t, func(t *testing.T) {
			defer func() { failed = recover() }() // rapid's own panics must not cross the bubble
			followTheRule(t, rt)
		})
		if failed != nil {
			panic(failed)
		}
	})
}

func followTheRule(t *testing.T, rt *rapid.T) {
	limits := FailoverOptions{ReadFailures: 3, WriteFailures: 2, ResetWindow: 20 * time.Second, UnavailabilityDuration: 4 * time.Second, ProbeLease: 12 * time.Second}
	r, err := New(Config{Source: newService("0:-FF"), Failover: limits, LookupEnv: noEnv})
	require.NoError(t, err)
	defer r.Close()

	model := map[modelKey]*modelBreaker{}
	at := func(p Partition, region regions.Name, write bool) *modelBreaker {
		k := modelKey{p, region, write}
		if model[k] == nil {
			model[k] = &modelBreaker{}
		}
		return model[k]
	}
	start := time.Now()
	now := func() time.Duration { return time.Since(start) }
	anyPartition := rapid.SampledFrom([]Partition{{"rid1", "0"}, {"rid1", "1"}, {"rid2", "0"}})
	var flights []modelFlight

	for range rapid.IntRange(1, 120).Draw(rt, "steps") {
		switch rapid.IntRange(0, 9).Draw(rt, "step") {
		case 0: // whole steps past the jitter, so that "not yet" and "due" are certain
			time.Sleep(rapid.SampledFrom([]time.Duration{time.Second, 3 * time.Second, 7 * time.Second, 13 * time.Second, 21 * time.Second}).Draw(rt, "wait"))
		case 1, 2, 3, 4:
			p, write := anyPartition.Draw(rt, "partition"), rapid.Bool().Draw(rt, "write")
			a := r.Admit(p, write, all...)
			f := modelFlight{admission: a, partition: p, write: write, recoveries: map[regions.Name]int{}, since: now()}
			// What the rule says of each region: it serves, it is away, or it may be due.
			served, open, probe := false, 0, regions.Name("")
			for _, region := range all {
				b := at(p, region, write)
				f.recoveries[region] = b.recoveries
				if !b.tripped {
					served = true
					require.False(rt, avoids(a, region), "%s serves", region)
					continue
				}
				open++
				wait := now() - b.since
				taken := b.probing && now() < b.leased
				may := !taken && (b.free || b.probing || wait > limits.UnavailabilityDuration)
				must := !taken && (b.free || b.probing || wait > limits.UnavailabilityDuration*3/2)
				first := !served && probe == ""
				if a.Probe == region {
					require.True(rt, may && first, "%s is no probe now", region)
					probe = region
					b.probe++
					b.probing, b.free, b.leased = true, false, now()+limits.ProbeLease
					f.probe = b.probe
					continue
				}
				require.False(rt, must && first, "%s should be probed", region)
			}
			if open == len(all) && probe == "" {
				require.Nil(rt, a.Avoid, "none is left: the usual order")
			} else {
				wantAvoided := open
				if probe != "" {
					wantAvoided--
				}
				require.Len(rt, a.Avoid, wantAvoided)
			}
			flights = append(flights, f)
		default:
			if len(flights) == 0 {
				continue
			}
			i := rapid.IntRange(0, len(flights)-1).Draw(rt, "flight")
			f := flights[i]
			flights = append(flights[:i], flights[i+1:]...)
			if now()-f.since > limits.ProbeLease {
				continue // lost: attempts do not take that long
			}
			region := rapid.SampledFrom(all).Draw(rt, "region")
			if rapid.IntRange(0, 3).Draw(rt, "obedient") > 0 {
				region = pick(f.admission)
			}
			v := rapid.SampledFrom([]regions.Verdict{regions.Healthy, regions.Failed, regions.Failed, regions.Neutral}).Draw(rt, "verdict")
			got := r.Report(f.partition, region, f.write, f.admission, v)
			require.Equal(rt, report(at, f, region, v, limits, now()), got, "%s of %s", v, region)
		}
	}
}

// report is what the rule does with a verdict.
func report(at func(Partition, regions.Name, bool) *modelBreaker, f modelFlight, region regions.Name, v regions.Verdict, limits FailoverOptions, now time.Duration) Transition {
	if probed := f.admission.Probe; probed != "" {
		b := at(f.partition, probed, f.write)
		held, used := b.probing && b.probe == f.probe, region == probed
		if held {
			b.probing, b.free = false, !used || v == regions.Neutral
		}
		switch {
		case !used && v != regions.Neutral: // given back, and it counts where it went
		case !held:
			return Unchanged
		case v == regions.Healthy:
			b.tripped, b.failures, b.recoveries = false, 0, b.recoveries+1
			return Recovered
		case v == regions.Failed:
			b.since = now
			return Rearmed
		default:
			return Unchanged
		}
	}
	b := at(f.partition, region, f.write)
	if b.tripped || v == regions.Neutral {
		return Unchanged
	}
	if v == regions.Healthy {
		b.failures = 0
		return Unchanged
	}
	if f.recoveries[region] < b.recoveries {
		return Unchanged
	}
	if now-b.lastFailure > limits.ResetWindow {
		b.failures = 0
	}
	b.failures++
	b.lastFailure = now
	threshold := limits.ReadFailures
	if f.write {
		threshold = limits.WriteFailures
	}
	if b.failures < threshold {
		return Unchanged
	}
	b.tripped, b.since, b.free, b.probing = true, now, false, false
	return Tripped
}
