package roundtrippers_test

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/reroute-go/reroute/middleware/cosmos/cosmostest"
)

// befall plays the blows of a storm, each from its time for as long as it lasts.
func (s storm) befall(w *world) {
	hub := &writeRole{region: west}
	var all sync.WaitGroup
	for _, b := range slices.SortedFunc(slices.Values(s.blows), func(a, b blow) int { return cmp.Compare(a.at, b.at) }) {
		all.Go(func() {
			time.Sleep(b.at)
			undo := b.strike(w, hub)
			time.Sleep(b.lasts)
			undo()
		})
	}
	all.Wait()
}

// writeRole keeps the region that has it from being removed.
type writeRole struct {
	mu      sync.Mutex
	region  string
	removed map[string]bool
}

func (b blow) strike(w *world, hub *writeRole) (undo func()) {
	fault := func(f cosmostest.Fault) func() {
		f.Match.Region, f.Probability, f.Seed = b.region, b.share, b.seed
		if f.Match.Operations == nil {
			f.Match.Operations = cosmostest.Data()
		}
		return w.AddFault(f).Remove
	}
	outage := func(how cosmostest.Outage) func() {
		w.SetOffline(b.region, how)
		return func() { w.SetOnline(b.region) }
	}
	switch b.kind {
	case "answers", "lost acknowledgements":
		var status, substatus int
		_, _ = fmt.Sscanf(b.code, "%d/%d", &status, &substatus)
		if b.kind == "answers" {
			return fault(cosmostest.Fault{Answer: cosmostest.Error(status, substatus)})
		}
		return fault(cosmostest.Fault{AfterApply: true, Answer: lostAnswers[b.seed%uint64(len(lostAnswers))]})
	case "resets":
		return fault(cosmostest.Fault{Answer: cosmostest.Answer{Reset: true}})
	case "cut answers":
		return fault(cosmostest.Fault{Answer: cosmostest.Answer{CutAfter: 5, Reset: true}})
	case "account reads fail":
		return fault(cosmostest.Fault{Match: cosmostest.Match{Operations: []cosmostest.Operation{cosmostest.ReadAccount}}, Answer: cosmostest.Error(503, 0)})
	case "refused":
		return outage(cosmostest.Refused)
	case "black hole":
		return outage(cosmostest.BlackHole)
	case "drained":
		w.Drain(b.region)
		return func() { w.SetOnline(b.region) }
	case "held document":
		w.HoldTopology(b.lasts)
	case "lag":
		w.SetReplicationLag(b.region, b.lasts)
		return func() { w.SetReplicationLag(b.region, 0) }
	case "slow":
		w.SetLatency(b.region, b.lasts/10)
		return func() { w.SetLatency(b.region, 0) }
	case "multi-write toggled":
		w.SetMultiWrite(b.seed%2 == 0)
	case "demotion", "removed":
		return hub.change(w, b)
	}
	return func() {}
}

// lostAnswers do not name a cause that promises that nothing was done.
var lostAnswers = []cosmostest.Answer{
	cosmostest.Error(408, 0), cosmostest.Error(500, 0), cosmostest.Error(503, 0), cosmostest.Error(504, 0), {Reset: true}, {Refuse: true}, {CutHeader: true}, {Hang: true},
}

func (h *writeRole) change(w *world, b blow) (undo func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if b.kind == "demotion" {
		if !h.removed[b.region] {
			h.region = b.region
			w.SetWriteRegion(b.region)
		}
		return func() {}
	}
	if h.region == b.region {
		return func() {}
	}
	if h.removed == nil {
		h.removed = map[string]bool{}
	}
	h.removed[b.region] = true
	w.RemoveRegion(b.region)
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.removed[b.region] = false
		w.AddRegion(b.region)
	}
}

// heal ends every trouble and lets the marks run out and the document be read.
func heal(w *world) {
	w.ClearFaults()
	w.ReleaseTopology()
	for _, region := range []string{west, east, north} {
		w.AddRegion(region)
		w.SetOnline(region)
		w.SetReplicationLag(region, 0)
		w.SetLatency(region, 0)
	}
	time.Sleep(6 * time.Minute)
}
