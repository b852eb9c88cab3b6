package layertest

import (
	"context"
	"errors"
	"net/http"
	"time"
)

func (t *trial) cancelBefore() {
	past := time.Now().Add(-time.Second)
	for _, end := range []func() (context.Context, context.CancelFunc){
		func() (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			return ctx, cancel
		},
		func() (context.Context, context.CancelFunc) { return context.WithDeadline(context.Background(), past) },
	} {
		ctx, cancel := end()
		b := t.newBase(Step{})
		c := t.newCall(t.wrap(b), t.request(ctx, newBodies())).start().wait()
		c.finish()
		cancel()
		t.checkEnded("ended before it was sent", c, b, 0, ctx.Err())
		if n := len(b.live()); n > 0 {
			t.breakf("it is sent %d times with a context that has not ended", n)
		} else if n := b.count(); n > 1 {
			t.breakf("it is tried %d times", n)
		}
	}
}

// checkEnded checks a call whose context ended after it had gone on for a time.
func (t *trial) checkEnded(name string, c *call, b *base, after time.Duration, want error) {
	switch {
	case c.hung:
		t.breakf("%s: RoundTrip did not return within %v", name, t.limit())
	case c.elapsed > after+t.atOnce():
		t.breakf("%s: RoundTrip returned %v after the context's end", name, c.elapsed-after)
	case c.resp == nil && c.err != nil && !errors.Is(c.err, want) && !t.refused(b):
		t.breakf("%s: the error is %q, which is not %q", name, c.err, want)
	}
}

// refused reports whether a layer that has been set up to refuse has done so.
func (t *trial) refused(b *base) bool { return t.kit.Refuses && b.count() == 0 }

func (t *trial) cancelSending() {
	b := t.newBase(Step{Hang: true})
	c := t.newCall(t.wrap(b), t.request(context.Background(), newBodies())).start()
	after := t.cancelSoon(c)
	sending := b.count() > 0
	c.wait().finish()
	if !sending {
		t.untried = "nothing was sent within a millisecond"
		return
	}
	t.checkEnded("cancelled while it was sent", c, b, after, context.Canceled)
	if n := len(b.live()); n > 1 {
		t.breakf("it was sent again, with a context that has not ended")
	}
}

// cancelSoon cancels a call that has been going on for a moment, and returns how
// long that was.
func (t *trial) cancelSoon(c *call) time.Duration {
	c.within(time.Millisecond)
	defer c.cancel()
	return time.Since(c.begun)
}

func (t *trial) cancelWaiting() {
	for _, step := range t.again() {
		for _, wish := range []string{"", "30"} {
			step, name := step, "cancelled after "+nameOf(step)
			if wish != "" {
				if step.Err != nil || step.Header != nil {
					continue
				}
				step.Header = map[string]string{"Retry-After": wish}
				name += " with Retry-After " + wish
			}
			b := t.newBase(step, Step{Hang: true})
			c := t.newCall(t.wrap(b), t.request(context.Background(), newBodies())).start()
			after := t.cancelSoon(c)
			before := len(b.live())
			c.wait().finish()
			t.checkEnded(name, c, b, after, context.Canceled)
			if len(b.live()) > before {
				t.breakf("%s: it was sent again", name)
			}
		}
	}
	t.cancelUnsent()
	if !t.kit.Refuses {
		t.cancelQueued()
	}
}

// cancelUnsent cancels a request that the layer has not sent yet, because it waits
// for something else.
func (t *trial) cancelUnsent() {
	b := t.newBase(Step{Hang: true})
	c := t.newCall(t.wrap(b), t.request(context.Background(), newBodies())).start()
	after := t.cancelSoon(c)
	if c.over() || b.count() > 0 {
		c.wait().finish()
		return
	}
	c.wait().finish()
	t.checkEnded("cancelled before it was sent", c, b, after, context.Canceled)
	if n := len(b.live()); n > 0 {
		t.breakf("cancelled before it was sent: it was sent")
	}
}

// cancelQueued has the base busy with many requests: another may have to wait, and
// is cancelled.
func (t *trial) cancelQueued() {
	const many = 64
	b := t.newBase(Step{Hang: true})
	b.answer = func(_ int, s *sent) (*http.Response, error, bool) {
		if s.req.Header.Get(idHeader) == "" {
			return nil, nil, false
		}
		closeBody(s.req)
		return b.respond(s, Step{}, &answerBody{}), nil, true // it did not have to wait
	}
	rt := t.wrap(b)
	var busy []*call
	for range many {
		busy = append(busy, t.newCall(rt, t.request(context.Background(), nil)).start())
	}
	t.pause()
	req := t.request(context.Background(), newBodies())
	req.Header.Set(idHeader, "last")
	c := t.newCall(rt, req).start()
	after := t.cancelSoon(c)
	c.wait().finish()
	switch {
	case c.hung:
		t.breakf("behind %d others: RoundTrip did not return within %v", many, t.limit())
	case c.elapsed > after+t.atOnce():
		t.breakf("behind %d others: RoundTrip returned %v after the context's end", many, c.elapsed-after)
	}
	for _, c := range busy {
		c.cancel()
	}
	for _, c := range busy {
		c.wait().finish()
	}
}

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
			b.most = t.kit.maxSends()
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
	for name, steps := range scripts {
		if n := t.sendsOf(t.wrap, steps); n > t.kit.maxSends() {
			t.breakf("%s: sent more than %d times", name, t.kit.maxSends())
		}
	}
}

// sendsOf counts how often one request is sent.
func (t *trial) sendsOf(wrap func(http.RoundTripper) http.RoundTripper, steps []Step) int {
	b := t.newBase(steps...)
	b.most = t.kit.maxSends()
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
