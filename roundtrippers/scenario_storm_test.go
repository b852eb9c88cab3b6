package roundtrippers_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/reroute-go/reroute/idempotency"
	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/cosmos/cosmostest"
	"github.com/reroute-go/reroute/roundtrippers"
)

// storm is a drawn script: what befalls the account, and what is asked of it
// meanwhile.
type storm struct {
	multiWrite, converge, partitioned bool
	blows                             []blow
	calls                             []call
}

// blow is one misfortune. Windows overlap as they like.
type blow struct {
	at, lasts time.Duration
	kind      string
	region    string
	code      string
	share     float64
	seed      uint64
}

// call is one operation of the load.
type call struct {
	at, within time.Duration // within 0: no deadline
	kind       string
	excluded   []string
}

var blows = []string{
	"answers", "lost acknowledgements", "resets", "refused", "black hole", "cut answers", "drained", "demotion",
	"held document", "removed", "lag", "slow", "multi-write toggled", "account reads fail",
}

var stormCodes = []string{
	"403/3", "403/1008", "404/1002", "408/0", "410/0", "410/1002", "429/3200", "429/3092", "449/0", "500/0", "502/0", "503/0", "504/0",
}

func drawStorm(rt *rapid.T) storm {
	region := rapid.SampledFrom([]string{west, east, north})
	millis := func(limit int) *rapid.Generator[time.Duration] {
		return rapid.Map(rapid.IntRange(0, limit), func(n int) time.Duration { return time.Duration(n) * time.Millisecond })
	}
	return storm{
		multiWrite:  rapid.Bool().Draw(rt, "multi-write"),
		converge:    rapid.Bool().Draw(rt, "converge"),
		partitioned: rapid.Bool().Draw(rt, "partitioned"),
		blows: rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) blow {
			return blow{
				at: millis(60000).Draw(rt, "at"), lasts: millis(30000).Draw(rt, "lasts"), kind: rapid.SampledFrom(blows).Draw(rt, "kind"),
				region: region.Draw(rt, "region"), code: rapid.SampledFrom(stormCodes).Draw(rt, "code"),
				share: rapid.SampledFrom([]float64{0.2, 0.5, 1}).Draw(rt, "share"), seed: rapid.Uint64().Draw(rt, "seed"),
			}
		}), 1, 12).Draw(rt, "blows"),
		calls: rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) call {
			return call{
				at: millis(90000).Draw(rt, "at"), within: rapid.SampledFrom([]time.Duration{0, 0, 500 * time.Millisecond, 10 * time.Second}).Draw(rt, "within"),
				kind:     rapid.SampledFrom([]string{"read", "query", "create", "upsert", "sproc"}).Draw(rt, "kind"),
				excluded: rapid.SliceOfNDistinct(region, 0, 2, rapid.ID[string]).Draw(rt, "excluded"),
			}
		}), 10, 60).Draw(rt, "calls"),
	}
}

func TestAStormBreaksNoPromise(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := drawStorm(rt)
		var broken []string
		synctest.Test(t, func(t *testing.T) { broken = s.rage(t) })
		if len(broken) > 0 {
			rt.Fatalf("%s\n%+v", strings.Join(broken, "\n"), s)
		}
	})
}

// rage plays the storm and returns the promises that did not hold.
func (s storm) rage(t *testing.T) (broken []string) {
	w := newWorld(t, setup{
		sim: cosmostest.Config{InMemory: true, MultiWrite: s.multiWrite},
		stack: roundtrippers.Builder{
			AttemptTimeout: 3 * time.Second,
			Failover:       roundtrippers.Failover{Converge: s.converge},
			Route:          roundtrippers.Route{StrictExclusion: true}, // regions leave: then all that are left may be excluded
		},
	})
	background, stop := context.WithCancel(t.Context())
	var mu sync.Mutex
	ran := map[string]int{} // executions, by the caller's id
	w.HandleSproc("d", "c", "s", func(c cosmostest.SprocCall) (any, error) {
		var id string
		if err := json.Unmarshal(c.Parameters[0], &id); err != nil {
			return nil, err
		}
		mu.Lock()
		defer mu.Unlock()
		ran[id]++
		return "ran", nil
	})
	results := make([]result, len(s.calls))
	var all sync.WaitGroup
	all.Go(func() { _ = w.account.Run(background) })
	var load sync.WaitGroup
	load.Go(func() { s.befall(w) })
	for i, c := range s.calls {
		load.Go(func() { results[i] = c.make(w, i) })
	}
	load.Wait()
	heal(w)

	stored := map[string]bool{}
	for _, item := range w.Items("d", "c") {
		stored[item.ID] = true
	}
	bound := 0
	described := middleware.Describe(w.rt)
	if _, err := fmt.Sscanf(described[strings.LastIndex(described, "at most"):], "at most %d sends", &bound); err != nil {
		broken = append(broken, "no bound: "+err.Error())
	}
	for i, c := range s.calls {
		for _, problem := range c.judge(w, i, results[i], stored, ran[callID(i)], bound) {
			broken = append(broken, fmt.Sprintf("call %d, %+v: %s\n%s", i, c, problem, results[i].report))
		}
	}
	for _, region := range []string{west, east, north} { // all is well again, everywhere
		others := slices.DeleteFunc([]string{west, east, north}, func(r string) bool { return r == region })
		if r := w.read(excluding(t.Context(), others...), "none"); r.code != "404" {
			broken = append(broken, "after the storm a read in "+region+" ends with "+r.code)
		}
	}
	if r := w.create(t.Context()); r.status != 201 {
		broken = append(broken, "after the storm a create ends with "+r.code)
	}
	stop()
	all.Wait()
	return broken
}

func callID(i int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", i) }

func (c call) make(w *world, i int) result {
	time.Sleep(c.at)
	ctx := excluding(w.t.Context(), c.excluded...)
	if c.within > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.within)
		defer cancel()
	}
	id := callID(i)
	mark := []string{"X-Ms-Activity-Id", id}
	switch c.kind {
	case "query":
		return w.send(ctx, http.MethodPost, items, `{"query":"SELECT * FROM c"}`, append(mark, "Content-Type", "application/query+json", "X-Ms-Documentdb-Isquery", "True")...)
	case "create":
		return w.send(ctx, http.MethodPost, items, document(id), mark...)
	case "upsert":
		return w.send(ctx, http.MethodPost, items, document(id), append(mark, "X-Ms-Documentdb-Is-Upsert", "True")...)
	case "sproc":
		return w.send(ctx, http.MethodPost, sproc, `["`+id+`"]`, mark...)
	default:
		return w.send(ctx, http.MethodGet, items+"/none", "", mark...)
	}
}

// judge lists the promises that one operation saw broken.
func (c call) judge(w *world, i int, r result, stored map[string]bool, ran, bound int) (broken []string) {
	promise := func(holds bool, what string, args ...any) {
		if !holds {
			broken = append(broken, fmt.Sprintf(what, args...))
		}
	}
	sent := w.Requests(cosmostest.Match{Header: map[string]string{"X-Ms-Activity-Id": callID(i)}})
	// net/http itself repeats a GET on a kept connection that turns out dead, below everything that counts.
	promise(c.kind == "read" || len(sent) <= r.report.Sends, "%d arrived of %d sends", len(sent), r.report.Sends)
	promise(r.report.Sends <= bound, "%d sends, at most %d were promised", r.report.Sends, bound)
	for _, s := range sent {
		promise(!slices.Contains(c.excluded, s.Region), "sent to %s, which is excluded", s.Region)
	}
	if c.within > 0 {
		promise(r.took <= c.within, "took %s", r.took)
	}
	acknowledged := r.status/100 == 2
	switch c.kind {
	case "sproc":
		promise(ran <= 1, "ran %d times", ran)
		promise(!acknowledged || ran == 1, "acknowledged, ran %d times", ran)
	case "create":
		promise(r.status != 409 || r.report.Echo == idempotency.Exists, "409, though nobody else creates this")
		promise(!acknowledged && r.status != 409 || stored[callID(i)], "acknowledged and lost")
	case "upsert":
		promise(!acknowledged || stored[callID(i)], "acknowledged and lost")
	}
	promise(r.err != nil || r.status != 0, "neither an answer nor an error")
	return broken
}
