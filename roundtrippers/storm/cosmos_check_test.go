package storm

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/cosmos/cosmostest"
	"github.com/reroute-go/reroute/regions"
)

func excluding(ctx context.Context, names []string) context.Context {
	if len(names) == 0 {
		return ctx
	}
	list := make([]regions.Name, len(names))
	for i, n := range names {
		list[i] = regions.Name(n)
	}
	return middleware.WithExcludedRegions(ctx, list...)
}

// heal ends everything that is wrong, and lets the time pass after which traffic
// is to be home again: 5 minutes for the topology, of which marks and breakers
// need but one.
func (w *cosmosWorld) heal() {
	w.sleepUntil(w.lasts)
	w.ClearFaults()
	w.ReleaseTopology()
	for _, region := range append([]string{cosmostest.Global}, w.regions...) {
		if region != cosmostest.Global {
			w.AddRegion(region)
			w.SetReplicationLag(region, 0)
		}
		w.SetOnline(region)
		w.SetLatency(region, 0)
	}
	w.FailoverPartition("d", "c", "", "")
	w.SetMultiWrite(w.lenient)
	w.note("all is well again")
	w.sleep(5*time.Minute + 10*time.Second)
}

// check holds the healed world against what was promised.
func (w *cosmosWorld) check() {
	w.checkStore()
	w.checkHome()
	if n := w.BadSignatures(); n > 0 {
		w.break_("%d requests had a bad signature", n)
	}
	if n := w.Sends(cosmostest.Global, cosmostest.Data()...); n > 0 {
		w.break_("the global endpoint got %d data requests", n)
	}
	if n := w.wire.open.Load(); n != 0 {
		w.break_("%d answers were not closed", n)
	}
}

// stored is an item as it is in the end.
type stored struct {
	Log  []uint64
	Sum  int
	body map[string]json.RawMessage
}

// checkStore: what was acknowledged is there, what was refused is not, and
// nothing is there twice.
func (w *cosmosWorld) checkStore() {
	items := map[string]*stored{}
	for _, item := range w.Items("d", "c") {
		s := &stored{}
		w.must(json.Unmarshal(item.Body, s))
		w.must(json.Unmarshal(item.Body, &s.body))
		if items[item.ID] != nil {
			w.break_("there are two items %s", item.ID)
		}
		items[item.ID] = s
	}
	sums := sums{}
	for _, c := range w.claims {
		item := items[c.id]
		n := 0
		switch number := c.op.number / 16; {
		case c.kind == "run":
			n = w.runs[c.id]
		case item == nil:
		case c.kind == "property":
			if _, ok := item.body[fmt.Sprintf("n%d", number)]; ok {
				n = 1
			}
		case c.kind == "entry":
			for _, entry := range item.Log {
				if entry == number {
					n++
				}
			}
		case c.kind == "sum":
			sums.add(c)
			continue
		default:
			n = 1
		}
		if w.lenient && (c.kind == "property" || c.kind == "entry") {
			continue // regions that both take writes overwrite each other's
		}
		w.settle(c, n)
	}
	for id := range sums {
		if !w.lenient {
			sums.check(w.storm, id, items[id].Sum)
		}
	}
}

// checkHome: each partition's first operation may be the one that looks whether
// all is well, the second one goes home at once.
func (w *cosmosWorld) checkHome() {
	for key := range keys {
		for try := range 2 {
			read := &operation{name: "read at home", most: w.most}
			r := w.send(w.rt, read, func(ctx context.Context) *http.Request {
				return w.request(ctx, read, key, http.MethodGet, fmt.Sprintf("%s/base-%d", items, key), "", false)
			})
			w.home(read, r, http.StatusOK, w.first(regions.ReadRegions), try > 0)
			write := &operation{name: "write at home", write: true, most: w.most}
			r = w.send(w.rt, write, func(ctx context.Context) *http.Request {
				return w.request(ctx, write, key, http.MethodPost, items, document(fmt.Sprintf("home-%d-%d", key, try), key, ""), false)
			})
			w.home(write, r, http.StatusCreated, w.first(regions.WriteRegions), try > 0)
		}
	}
}

func (w *cosmosWorld) first(of regions.List) string { return string(w.account.Regions.Names(of)[0]) }

func (w *cosmosWorld) home(op *operation, r *result, want int, region string, settled bool) {
	switch last := len(r.report.Attempts) - 1; {
	case r.status != want:
		w.breakIn(op, "no %d after the storm", want)
	case settled && (last != 0 || string(r.report.Attempts[0].Region) != region):
		w.breakIn(op, "not at home in %s", region)
	}
}
