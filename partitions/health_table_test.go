package partitions

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func found(tbl *table[override, *override], p Partition) map[*override]bool {
	out := map[*override]bool{}
	w := tbl.walk(&p)
	for r := w.next(&p); r != nil; r = w.next(&p) {
		out[r] = true
	}
	return out
}

func TestATableHoldsWhatAMapHolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tbl := newTable[override]()
		model := map[Partition]map[*override]bool{}
		var records []*override
		live := 0
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			p := Partition{rapid.SampledFrom([]string{"a", "b"}).Draw(t, "rid"), fmt.Sprint(rapid.IntRange(0, 30).Draw(t, "id"))}
			switch rapid.IntRange(0, 9).Draw(t, "step") {
			default:
				r := &override{partition: p}
				tbl.add(r)
				if model[p] == nil {
					model[p] = map[*override]bool{}
				}
				model[p][r] = true
				records = append(records, r)
				live++
			case 0, 1, 2, 3, 4:
				if len(records) == 0 {
					continue
				}
				r := rapid.SampledFrom(records).Draw(t, "record")
				require.Equal(t, model[r.partition][r], tbl.replace(r, nil))
				if model[r.partition][r] {
					live--
				}
				delete(model[r.partition], r)
			case 5:
				drop := func(r *override) bool { return r.partition == p }
				require.Equal(t, len(model[p]), tbl.removeIf(drop))
				live -= len(model[p])
				delete(model, p)
			}
			require.Equal(t, live, tbl.live)
			filled := 0
			if slots := tbl.slots.Load(); slots != nil {
				for i := range *slots {
					if (*slots)[i].Load() != nil {
						filled++
					}
				}
				require.LessOrEqual(t, 4*filled, 3*len(*slots))
			}
			require.Equal(t, filled, tbl.filled)
			for p, want := range model {
				require.Len(t, found(&tbl, p), len(want))
				for r := range found(&tbl, p) {
					require.True(t, want[r])
				}
			}
		}
		for range 1000 {
			live -= tbl.sweep(func(*override) bool { return true })
		}
		require.Zero(t, live)
		require.Nil(t, tbl.slots.Load(), "an empty table has no memory")
	})
}

func TestAReaderFindsWhatStaysWhileOthersComeAndGo(t *testing.T) {
	tbl := newTable[override]()
	stays := &override{partition: Partition{"rid", "stays"}}
	tbl.add(stays)
	var done atomic.Bool
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for !done.Load() {
				w := tbl.walk(&stays.partition)
				if w.next(&stays.partition) != stays {
					t.Error("lost")
					return
				}
			}
		})
	}
	for i := range 300 {
		var others []*override
		for j := range 100 {
			others = append(others, &override{partition: Partition{"rid", fmt.Sprint(i, j)}})
			tbl.add(others[j])
		}
		for _, r := range others {
			tbl.replace(r, nil)
		}
	}
	done.Store(true)
	wg.Wait()
	require.LessOrEqual(t, len(*tbl.slots.Load()), 512, "the dead take no room for good")
}
