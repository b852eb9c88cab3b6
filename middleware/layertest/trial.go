package layertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing/synctest"
	"time"
)

var errBoom = errors.New("layertest: the base failed")

// trial is one promise being checked.
type trial struct {
	kit     Kit
	virtual bool // in a bubble
	broken  []string
	untried string
	label   string
}

func newTrial(k Kit) *trial {
	return &trial{kit: k, virtual: inBubble(), label: "trial " + strconv.FormatInt(trials.Add(1), 10)}
}

var trials atomic.Int64

// inBubble uses that Wait is for bubbles only.
func inBubble() (in bool) {
	defer func() { in = recover() == nil }()
	synctest.Wait()
	return
}

func (t *trial) breakf(format string, args ...any) {
	if why := fmt.Sprintf(format, args...); !slices.Contains(t.broken, why) {
		t.broken = append(t.broken, why)
	}
}

// breaches returns the first few: more say nothing new.
func (t *trial) breaches() []string {
	const most = 8
	if n := len(t.broken); n > most {
		return append(t.broken[:most:most], fmt.Sprintf("and %d more", n-most))
	}
	return t.broken
}

// limit is how long a request may take.
func (t *trial) limit() time.Duration {
	switch {
	case t.kit.Limit > 0:
		return t.kit.Limit
	case t.virtual:
		return time.Hour
	}
	return 10 * time.Second
}

// atOnce is how long something may take that should take no time.
func (t *trial) atOnce() time.Duration {
	if t.virtual {
		return 0
	}
	return 2 * time.Second // a busy machine may take one
}

// rest lets what goes on in the background come to its end.
func (t *trial) rest() {
	if t.virtual {
		time.Sleep(time.Second)
		synctest.Wait()
		return
	}
	time.Sleep(5 * time.Millisecond)
}

// pause lets a moment pass.
func (t *trial) pause() { time.Sleep(time.Millisecond) }

// calm waits out what a layer holds against the base after failures.
func (t *trial) calm() {
	if t.virtual {
		time.Sleep(24 * time.Hour)
	}
	t.rest()
}

// wrap puts a fresh layer over next; nil = it cannot be made, which is a breach.
func (t *trial) wrap(next http.RoundTripper) http.RoundTripper {
	layer := t.kit.layer()
	if layer == nil {
		t.breakf("%v", errLayerNeeded)
		return nil
	}
	rt, err := layer.Wrap(next)
	if err == nil && rt == nil {
		err = errors.New("neither a RoundTripper nor an error")
	}
	if err != nil {
		t.breakf("Wrap: %v", err)
		return nil
	}
	return rt
}

// asSaid reports whether a plain request passes, or is refused where the layer is
// said to refuse: the wrong one of them would keep nearly every promise.
func (t *trial) asSaid() bool {
	b := t.newBase(Step{})
	c := t.call(t.wrap(b), t.request(context.Background(), nil))
	c.finish()
	passed := c.err == nil && b.count() > 0
	switch {
	case t.kit.Refuses && b.count() > 0:
		t.breakf("it sends a request although it is said to refuse")
	case !t.kit.Refuses && !passed:
		t.breakf("a plain request does not come back answered (%v): set Request to one that does, or Refuses", c.err)
	}
	return passed != t.kit.Refuses
}

// inLabels runs f under a profiler label, which all goroutines that come of it
// inherit.
func (t *trial) inLabels(f func()) {
	pprof.Do(context.Background(), pprof.Labels("layertest", t.label), func(context.Context) { f() })
}

// goroutines counts those that carry the trial's label, this one left out.
func (t *trial) goroutines() int {
	var buf bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&buf, 1); err != nil {
		panic(err) // a Buffer takes everything
	}
	total := 0
	// Records are "2 @ 0x1 0x2\n# labels: {...}\n#\t0x1\tf+0x2\tfile:3\n...\n\n".
	for record := range strings.SplitSeq(buf.String(), "\n\n") {
		if !strings.Contains(record, strconv.Quote(t.label)) {
			continue
		}
		count, _, _ := strings.Cut(record, " @")
		if i := strings.LastIndexByte(count, '\n'); i >= 0 {
			count = count[i+1:]
		}
		n, err := strconv.Atoi(count)
		if err != nil {
			continue
		}
		total += n
	}
	return total - 1
}
