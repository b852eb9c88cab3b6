package layertest

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"time"
)

func (t *trial) noVainWait() {
	again := t.again()
	if len(again) == 0 {
		t.untried = neverAgain
		return
	}
	for _, step := range again {
		for _, deadline := range []time.Duration{0, 20 * time.Millisecond} {
			ctx, cancel, name := context.Background(), context.CancelFunc(func() {}), nameOf(step)+" for ever"
			if deadline > 0 {
				ctx, cancel = context.WithTimeout(ctx, deadline)
				name += ", with a deadline"
			}
			b := t.newBase(step)
			c := t.call(t.wrap(b), t.request(ctx, newBodies()))
			c.finish()
			cancel()
			sends := b.sends.all()
			if len(sends) == 0 || len(sends) > b.most {
				continue
			}
			last := sends[len(sends)-1].at
			if vain := c.begun.Add(c.elapsed).Sub(last); vain > t.atOnce() {
				t.breakf("%s: RoundTrip returned %v after the last of %d attempts", name, vain, len(sends))
			}
		}
	}
}

func (t *trial) sendsBounded() {
	again := t.again()
	scripts := map[string][]Step{"an error": {{Err: errBoom}}}
	for _, step := range again {
		scripts[nameOf(step)] = []Step{step}
	}
	if len(again) > 1 {
		var turns []Step
		for len(turns) < t.kit.maxSends() {
			turns = append(turns, again...)
		}
		scripts["all of them in turns"] = turns
	}
	for _, step := range unusual {
		scripts[nameOf(step)] = []Step{step}
	}
	for _, status := range statuses[slices.Index(statuses, 300):] {
		scripts[nameOf(Step{Status: status})] = []Step{{Status: status}}
	}
	for _, name := range slices.Sorted(maps.Keys(scripts)) {
		if n := t.sendsOf(t.wrap, scripts[name]); n > t.kit.maxSends() {
			t.breakf("%s: sent more than %d times", name, t.kit.maxSends())
		}
	}
}

// sendsOf counts how often one request is sent.
func (t *trial) sendsOf(wrap func(http.RoundTripper) http.RoundTripper, steps []Step) int {
	b := t.newBase(steps...)
	t.call(wrap(b), t.request(context.Background(), newBodies())).finish()
	return b.count()
}

func (t *trial) sendsAddUp() {
	again := t.again()
	if len(again) == 0 {
		t.untried = neverAgain
		return
	}
	twice := func(next http.RoundTripper) http.RoundTripper { return t.wrap(t.wrap(next)) }
	for _, step := range again {
		alone, nested := t.sendsOf(t.wrap, []Step{step}), t.sendsOf(twice, []Step{step})
		// Where a time is what bounds them, jitter moves both numbers a little.
		if most := 2*alone - 1 + alone/4; nested > most && alone <= t.kit.maxSends() {
			t.breakf("%s: sent %d times by one and %d times by two of them", nameOf(step), alone, nested)
		}
	}
}
