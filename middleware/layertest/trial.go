package layertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing/synctest"
	"time"
)

const payload = "0123456789abcdef the body of a request"

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
	return time.Second
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

// request makes a request; a nil body is none.
func (t *trial) request(ctx context.Context, body *bodies) *http.Request {
	var req *http.Request
	if t.kit.Request != nil {
		req = t.kit.Request(ctx)
		req.Body, req.GetBody, req.ContentLength = nil, nil, 0
	} else {
		var err error
		if req, err = http.NewRequestWithContext(ctx, http.MethodPut, "http://layer.test/a/b?c=d", nil); err != nil {
			panic(err) // a constant URL
		}
		req.Header.Set("Content-Type", "text/plain")
	}
	body.attach(req)
	return req
}

// bodies is a request body and all that its GetBody has handed out.
type bodies struct {
	text     string
	oneShot  bool  // no GetBody
	chunked  bool  // no ContentLength
	getErr   error // of GetBody
	readErr  error // of Read, after half of text
	handed   list[*reader]
	trailing func() // at EOF
}

func newBodies() *bodies { return &bodies{text: payload} }

func (b *bodies) attach(req *http.Request) {
	if b == nil {
		return
	}
	req.Body = b.open()
	req.ContentLength = int64(len(b.text))
	if b.chunked {
		req.ContentLength = -1
	}
	if !b.oneShot {
		req.GetBody = func() (io.ReadCloser, error) {
			if b.getErr != nil {
				return nil, b.getErr
			}
			return b.open(), nil
		}
	}
}

func (b *bodies) open() *reader {
	r := &reader{of: b}
	r.left.Store(int64(len(b.text)))
	b.handed.add(r)
	return r
}

// reader is a request body. It does not mind being read by two goroutines, as
// long as one comes after the other.
type reader struct {
	of     *bodies
	left   atomic.Int64
	reads  atomic.Int64
	closes atomic.Int64
}

func (r *reader) Read(p []byte) (int, error) {
	r.reads.Add(1)
	if r.closes.Load() > 0 {
		return 0, errors.New("layertest: request body read after Close")
	}
	left := int(r.left.Load())
	if err := r.of.readErr; err != nil && left <= len(r.of.text)/2 {
		return 0, err
	}
	if left == 0 {
		if f := r.of.trailing; f != nil {
			f()
		}
		return 0, io.EOF
	}
	// Short reads, so that half-read bodies exist.
	n := copy(p[:min(len(p), 7)], r.of.text[len(r.of.text)-left:])
	r.left.Add(int64(-n))
	return n, nil
}

func (r *reader) Close() error {
	r.closes.Add(1)
	return nil
}

// call is one RoundTrip under way, or over.
type call struct {
	t        *trial
	rt       http.RoundTripper
	req      *http.Request
	done     chan struct{}
	cancel   context.CancelFunc
	begun    time.Time
	elapsed  time.Duration
	resp     *http.Response
	err      error
	panicked any
	body     string // of the answer, once finished
	readErr  error
	hung     bool
}

// newCall readies a call. The request's context is made cancellable.
func (t *trial) newCall(rt http.RoundTripper, req *http.Request) *call {
	ctx, cancel := context.WithCancel(req.Context())
	return &call{t: t, rt: rt, req: req.WithContext(ctx), cancel: cancel, done: make(chan struct{})}
}

// start runs RoundTrip in a goroutine, so that one that hangs can be given up.
func (c *call) start() *call {
	c.begun = time.Now()
	go func() {
		defer close(c.done)
		defer func() {
			c.elapsed = time.Since(c.begun)
			c.panicked = recover()
		}()
		c.resp, c.err = c.rt.RoundTrip(c.req)
	}()
	return c
}

// wait waits for RoundTrip to return. One that does not in time is cancelled;
// one that heeds not even that is given up.
func (c *call) wait() *call {
	if !c.within(c.t.limit()) {
		c.hung = true
		c.cancel()
		c.within(2 * c.t.limit())
	}
	return c
}

func (c *call) within(limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-c.done:
		return true
	case <-timer.C:
		return false
	}
}

// over reports whether RoundTrip has returned.
func (c *call) over() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// call is start and wait. Not returning breaks whatever promise was checked.
func (t *trial) call(rt http.RoundTripper, req *http.Request) *call {
	c := t.newCall(rt, req).start().wait()
	if c.hung {
		t.breakf("RoundTrip did not return within %v", t.limit())
	}
	return c
}

// finish reads the answer to its end and closes it, as a good caller does.
func (c *call) finish() {
	defer c.cancel()
	if !c.over() || c.resp == nil || c.resp.Body == nil {
		return
	}
	defer c.resp.Body.Close()
	var buf bytes.Buffer
	_, c.readErr = buf.ReadFrom(io.LimitReader(c.resp.Body, 8<<20))
	c.body = buf.String()
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
