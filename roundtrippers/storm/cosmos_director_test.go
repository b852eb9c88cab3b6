package storm

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/reroute-go/reroute/middleware/cosmos/cosmostest"
)

// direct has whole regions, partitions and the account itself suffer, one thing
// after the other, some of them at once.
func (w *cosmosWorld) direct(r *rand.Rand) {
	d := &cosmosDirector{cosmosWorld: w, r: r, hub: w.regions[0]}
	for w.sleep(between(r, time.Second, 15*time.Second)) && w.now() < w.lasts {
		w.tally.events.Add(1)
		d.events()[r.IntN(len(d.events()))]()
	}
}

type cosmosDirector struct {
	*cosmosWorld
	r    *rand.Rand
	hub  string
	cuts int // splits and merges so far
}

func (d *cosmosDirector) events() []func() {
	return []func(){d.outage, d.outage, d.moveHub, d.moveHub, d.hold, d.remove, d.drain, d.lag, d.slow, d.toggleWrites, d.movePartition, d.movePartition, d.cut, d.cut}
}

func (d *cosmosDirector) outage() {
	where := pick(d.r, append(slices.Clone(d.regions), cosmostest.Global)...)
	how := pick(d.r, cosmostest.Refused, cosmostest.BlackHole, cosmostest.ResetMidAnswer)
	d.SetOffline(where, how)
	d.later(d.r, 40*time.Second, where+" is down: "+[]string{"", "refused", "black hole", "reset in the answer"}[how], func() { d.SetOnline(where) })
}

func (d *cosmosDirector) moveHub() {
	there := slices.DeleteFunc(d.Regions(), func(name string) bool { return name == d.hub })
	if len(there) == 0 {
		return
	}
	d.hub = pick(d.r, there...)
	d.note("%s is the write region now", d.hub)
	d.SetWriteRegion(d.hub)
}

func (d *cosmosDirector) hold() {
	d.HoldTopology(0)
	d.later(d.r, 20*time.Second, "the account document is held", d.ReleaseTopology)
}

func (d *cosmosDirector) remove() {
	victim := pick(d.r, d.regions...)
	if victim == d.hub || len(d.Regions()) < len(d.regions) {
		return
	}
	d.RemoveRegion(victim)
	d.later(d.r, 60*time.Second, victim+" has left the account", func() { d.AddRegion(victim) })
}

func (d *cosmosDirector) drain() {
	where := pick(d.r, d.regions...)
	d.Drain(where)
	d.later(d.r, 20*time.Second, where+" is drained", func() { d.SetOnline(where) })
}

func (d *cosmosDirector) lag() {
	where, lag := pick(d.r, d.regions...), between(d.r, 0, 5*time.Second)
	d.SetReplicationLag(where, lag)
	d.later(d.r, 40*time.Second, where+" lags by "+lag.String(), func() { d.SetReplicationLag(where, 0) })
}

func (d *cosmosDirector) slow() {
	where, latency := pick(d.r, d.regions...), between(d.r, 0, 900*time.Millisecond)
	d.SetLatency(where, latency)
	d.later(d.r, 40*time.Second, where+" is slower by "+latency.String(), func() { d.SetLatency(where, 0) })
}

func (d *cosmosDirector) toggleWrites() {
	if !d.lenient {
		return // once several regions take writes the store is no single register any more
	}
	d.SetMultiWrite(false)
	d.later(d.r, 20*time.Second, "one write region only", func() { d.SetMultiWrite(true) })
}

func (d *cosmosDirector) movePartition() {
	if !d.ppaf {
		return
	}
	ranges := d.Ranges("d", "c")
	id, where := pick(d.r, ranges...).ID, pick(d.r, d.regions...)
	d.note("the writes of range %s go to %s", id, where)
	d.FailoverPartition("d", "c", id, where)
}

// cut splits a range, at once or with a while in which it is locked, or merges two.
func (d *cosmosDirector) cut() {
	ranges := d.Ranges("d", "c")
	if d.cuts++; d.cuts > 12 {
		return
	}
	i := d.r.IntN(len(ranges))
	var change *cosmostest.RangeChange
	switch {
	case d.r.IntN(3) == 0 && i+1 < len(ranges):
		d.note("ranges %s and %s merge", ranges[i].ID, ranges[i+1].ID)
		change = d.BeginMerge("d", "c", ranges[i].ID, ranges[i+1].ID)
	case len(ranges) < 8:
		d.note("range %s splits", ranges[i].ID)
		change = d.BeginSplit("d", "c", ranges[i].ID)
	default:
		return
	}
	d.sleep(pick(d.r, 0, 50*time.Millisecond, 3*time.Second))
	if d.r.IntN(2) == 0 {
		change.PublishHalf() // the feed has a hole
		d.sleep(between(d.r, 0, time.Second))
	}
	change.Complete()
}
