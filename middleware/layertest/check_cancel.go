package layertest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
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

// checkEnded checks a call whose context ended after it had gone on for a time. Its
// error has to be want, nil = any.
func (t *trial) checkEnded(name string, c *call, b *base, after time.Duration, want error) {
	switch {
	case c.hung:
		t.breakf("%s: %s", name, t.tooLong())
	case c.elapsed > after+t.atOnce():
		t.breakf("%s: RoundTrip returned %v after the context's end", name, c.elapsed-after)
	case want != nil && c.resp == nil && c.err != nil && !errors.Is(c.err, want) && !t.refused(b):
		t.breakf("%s: the error is %q, which is not %q", name, c.err, want)
	}
}

// refused reports whether a layer that has been set up to refuse has done so.
func (t *trial) refused(b *base) bool { return t.kit.Refuses && b.count() == 0 }

func (t *trial) cancelSending() {
	b := t.newBase(Step{Hang: true})
	c := t.newCall(t.wrap(b), t.request(context.Background(), newBodies())).start()
	after := t.cancelSoon(c)
	sending := len(b.live())
	c.wait().finish()
	if b.count() == 0 || sending == 0 {
		t.untried = "nothing was sent within a millisecond"
		return
	}
	t.checkEnded("cancelled while it was sent", c, b, after, context.Canceled)
	if len(b.live()) > sending {
		t.breakf("it was sent again, with a context that has not ended")
	}
	t.deadlineSending()
}

// deadlineSending has the caller's deadline pass while the request is sent.
func (t *trial) deadlineSending() {
	const deadline = 20*time.Millisecond + soon
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	b := t.newBase(Step{Hang: true})
	c := t.newCall(t.wrap(b), t.request(ctx, newBodies())).start().wait()
	resp := c.resp
	c.finish()
	t.checkEnded("a deadline that passed while it was sent", c, b, deadline, context.DeadlineExceeded)
	if resp != nil && c.err != nil {
		t.breakf("a deadline that passed while it was sent: a response (%s) and an error (%v)", resp.Status, c.err)
	}
}

// cancelReading has an answer come in spite of the cancellation, and then cancels
// while one is read.
func (t *trial) cancelReading() {
	if !t.answerTooLate() {
		return // "cancel while sending" tells
	}
	b := t.newBase()
	b.answer = func(_ int, s *sent) (*http.Response, error, bool) {
		return b.reply(s, Step{}, &answerBody{text: "first", silent: true, tied: true})
	}
	c := t.newCall(t.wrap(b), t.request(context.Background(), newBodies())).start().wait()
	defer c.cancel()
	if !c.answered() {
		return // "body readable" tells
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = io.Copy(io.Discard, c.resp.Body)
	}()
	t.pause()
	c.cancel()
	began := time.Now()
	if !within(read, t.limit()) || time.Since(began) > t.atOnce() {
		t.breakf("cancelled while its answer was read: the Read went on for %v", time.Since(began))
	}
	closeWithin(c.resp.Body, t.limit())
}

// answerTooLate answers when the request has been cancelled, as a transport may in
// the last moment. It reports whether the cancellation reached that.
func (t *trial) answerTooLate() (heard bool) {
	b := t.newBase(Step{})
	answered := make(chan struct{})
	b.answer = func(n int, s *sent) (*http.Response, error, bool) {
		if n > 0 {
			return nil, nil, false
		}
		defer close(answered)
		_ = s.readBody()
		heard = within(s.ctx.Done(), t.limit())
		time.Sleep(10 * time.Millisecond)
		return b.respond(s, Step{}, &answerBody{text: "late"}), nil, true
	}
	c := t.newCall(t.wrap(b), t.request(context.Background(), newBodies())).start()
	t.cancelSoon(c)
	if b.count() == 0 {
		c.wait().finish()
		return true
	}
	c.wait().finish()
	<-answered
	t.rest()
	for _, a := range b.made.all() {
		if c.resp == nil && a.closes.Load() == 0 {
			t.breakf("an answer that came after the cancellation was never closed")
		}
	}
	return heard
}

// soon is an odd time, so that no wait of a layer ends in the same instant.
const soon = 997_003 * time.Nanosecond

// cancelSoon cancels a call that has been going on for a moment, and returns how
// long that was.
func (t *trial) cancelSoon(c *call) time.Duration {
	c.within(soon)
	defer c.cancel()
	return time.Since(c.begun)
}

func (t *trial) cancelWaiting() {
	inHalfAMinute := time.Now().Add(30 * time.Second).UTC().Format(http.TimeFormat)
	for _, step := range t.again() {
		for _, wish := range []string{"", "30", inHalfAMinute} {
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
	t.cancelLater()
	t.cancelUnsent()
	if !t.kit.Refuses {
		t.cancelQueued()
	}
}

// cancelLater cancels in the wait after the second and after the third attempt.
func (t *trial) cancelLater() {
	for _, step := range t.again() {
		for _, attempt := range []int{2, 3} {
			name := fmt.Sprintf("cancelled after attempt %d, %s", attempt, nameOf(step))
			b, arrived := t.newBase(step), make(chan struct{})
			arrive := sync.OnceFunc(func() { close(arrived) })
			b.arrived = func() {
				if b.count() >= attempt {
					arrive()
				}
			}
			c := t.newCall(t.wrap(b), t.request(context.Background(), newBodies())).start()
			select {
			case <-arrived:
				c.within(soon)
			case <-c.done:
			}
			if c.over() {
				c.finish()
				continue
			}
			c.cancel()
			after, before := time.Since(c.begun), len(b.live())
			c.wait().finish()
			t.checkEnded(name, c, b, after, nil) // it may have been the last one
			if len(b.live()) > before {
				t.breakf("%s: it was sent again", name)
			}
		}
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
		t.breakf("behind %d others: %s", many, t.tooLong())
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
