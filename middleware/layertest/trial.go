package layertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing/synctest"
	"time"

	"github.com/reroute-go/reroute/internal/check"
)

var (
	errBoom = errors.New("layertest: the base failed")
	// What a base panics with is read by those whose test binary it ends.
	errPanic = errors.New("layertest: the base panics on purpose, to see what the layer leaves behind: " +
		"a goroutine in which a layer sends has to recover and pass the panic on")
)

// trial is one promise being checked.
type trial struct {
	kit     Kit
	virtual bool // in a bubble
	broken  []string
	reading list[chan struct{}] // closed when a base has read a body, and closed it, after its answer
	untried string
	label   string
}

func newTrial(k Kit) *trial {
	if k.known == nil {
		k.known = new(known)
	}
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
	for _, read := range t.reading.all() {
		select {
		case <-read:
		case <-time.After(t.limit()): // it is the layer that holds it up
		}
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
	rt, err := t.wrapped(next)
	if err != nil {
		t.breakf("%v", err)
	}
	return rt
}

func (t *trial) wrapped(next http.RoundTripper) (rt http.RoundTripper, err error) {
	defer func() {
		if why := recover(); why != nil {
			rt, err = nil, fmt.Errorf("New or Wrap panics: %v\n%s", why, debug.Stack())
		}
	}()
	layer, err := t.kit.layer()
	if err != nil {
		return nil, err
	}
	switch rt, err = layer.Wrap(next); {
	case err != nil:
		return nil, fmt.Errorf("Wrap fails: %w", err)
	case check.IsNil(rt):
		return nil, errors.New("Wrap returns neither a RoundTripper nor an error")
	}
	return rt, nil
}

// isSetUp reports whether the layer can be made and a plain request passes, or is
// refused where the layer is said to refuse: the wrong one of them would keep
// nearly every promise.
func (t *trial) isSetUp() bool {
	why := t.unfit("a plain request", nil)
	switch known := t.kit.known; {
	case why != "" && known.fit && t.kit.New == nil:
		why = "the layer keeps something from one scenario to the next, where " + why + ". Set New to make it anew for each"
	case why == "" && !known.fit:
		why = t.unfit("a request with a body", newBodies())
		known.fit = why == ""
	}
	if why != "" {
		t.breakf("%s", why)
	}
	return why == ""
}

// unfit says what is wrong with a kit whose request comes to nothing; "" = it is
// answered, or refused, as it is to be.
func (t *trial) unfit(request string, body *bodies) (why string) {
	if made := t.kit.Request; made != nil {
		switch req := made(context.WithValue(context.Background(), markKey{}, true)); {
		case req == nil:
			return "Request returns nil"
		case req.Context().Value(markKey{}) == nil:
			return "Request makes a request without the context that it is given"
		}
	}
	b := t.newBase(Step{})
	rt, err := t.wrapped(b)
	if err != nil {
		return err.Error()
	}
	c := t.newCall(rt, t.request(context.Background(), body)).start().wait()
	c.finish()
	sent := b.count() > 0
	switch {
	case c.hung:
		why = fmt.Sprintf("does not return within %v: set Limit if it takes longer", t.limit())
	case c.panicked != nil:
		why = fmt.Sprintf("ends in a panic: %v\n%s", c.panicked, c.stack)
	case c.resp != nil && c.err != nil:
		why = fmt.Sprintf("gets both a response (%s) and an error (%v): RoundTrip must return one of them", c.resp.Status, c.err)
	case c.resp == nil && c.err == nil:
		why = "gets neither a response nor an error: RoundTrip must return one of them"
	case t.kit.Refuses && sent:
		why = "is not refused: it sends a request although it is said to refuse"
	case t.kit.Refuses:
	case c.err != nil:
		why = fmt.Sprintf("comes back as the error %v: set Request to one that is answered, or Refuses", c.err)
	case !sent:
		why = fmt.Sprintf("is answered (%s) and not sent: set Request to one that is sent", c.resp.Status)
	}
	if why != "" {
		why = request + " " + why
	}
	return why
}

// tooLong is what is said of a call that hangs.
func (t *trial) tooLong() string {
	return fmt.Sprintf("RoundTrip did not return within %v (Kit.Limit)", t.limit())
}

// inLabels runs f under a profiler label, which all goroutines that come of it
// inherit.
func (t *trial) inLabels(f func()) {
	pprof.Do(context.Background(), pprof.Labels("layertest", t.label), func(context.Context) { f() })
}

// goroutines counts those that carry the trial's label, this one left out, and
// names the function that one of them began with.
func (t *trial) goroutines() (n int, one string) {
	var buf bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&buf, 1); err != nil {
		panic(err) // a Buffer takes everything
	}
	// Records are "2 @ 0x1 0x2\n# labels: {...}\n#\t0x1\tf+0x2\tfile:3\n...\n\n".
	for record := range strings.SplitSeq(buf.String(), "\n\n") {
		if !strings.Contains(record, strconv.Quote(t.label)) {
			continue
		}
		count, _, _ := strings.Cut(record, " @")
		if i := strings.LastIndexByte(count, '\n'); i >= 0 {
			count = count[i+1:]
		}
		same, err := strconv.Atoi(count)
		if err != nil {
			continue
		}
		n += same
		if began := record[strings.LastIndexByte(record, '\n')+1:]; !strings.Contains(record, ".goroutines+0x") {
			if frame := strings.Fields(began); len(frame) > 2 {
				name, _, _ := strings.Cut(frame[2], "+0x")
				one = name + " (" + frame[len(frame)-1] + ")"
			}
		}
	}
	return n - 1, one
}
