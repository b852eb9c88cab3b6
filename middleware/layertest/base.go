package layertest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// base is the transport below the layer under test. It behaves as net/http's
// does: it closes request bodies, heeds contexts, and ends an answer's body with
// its request's context.
type base struct {
	steps   []Step                                             // the last one repeats
	answer  func(n int, s *sent) (*http.Response, error, bool) // instead of steps, where it says true
	most    int                                                // sends; one more gets a 200, so that a loop without bounds ends
	arrived func()                                             // at each send, if set
	hang    time.Duration                                      // a Step that hangs ends after this, so that nothing is left behind
	idle    atomic.Int64
	sends   list[*sent]
	made    list[*answerBody]
}

// sendHeader of an answer tells which send it is for.
const sendHeader = "X-Layertest-Send"

func (t *trial) newBase(steps ...Step) *base {
	return &base{steps: steps, hang: 2 * t.limit(), most: t.kit.maxSends()}
}

func (b *base) count() int { return len(b.sends.all()) }

// live returns the sends whose context had not ended when they arrived.
func (b *base) live() (sends []*sent) {
	for _, s := range b.sends.all() {
		if s.ended == nil {
			sends = append(sends, s)
		}
	}
	return sends
}

// sent is one send.
type sent struct {
	n     int
	at    time.Time
	req   *http.Request // as it arrived
	ctx   context.Context
	ended error // of ctx, on arrival

	body    string
	bodyErr error

	marked bool // its context has the values of the caller's
	open   int  // answers to earlier sends that were not closed on arrival
}

// CloseIdleConnections counts.
func (b *base) CloseIdleConnections() { b.idle.Add(1) }

func (b *base) RoundTrip(req *http.Request) (*http.Response, error) {
	s := &sent{at: time.Now(), req: req, ctx: req.Context(), ended: req.Context().Err()}
	for _, a := range b.made.all() {
		if a.closes.Load() == 0 {
			s.open++
		}
	}
	s.marked = s.ctx.Value(markKey{}) != nil
	s.n = b.sends.add(s)
	if b.arrived != nil {
		b.arrived()
	}
	if s.n >= 2*b.most { // a loop that heeds neither a 200 nor an ended context
		closeBody(req)
		return b.respond(s, Step{}, &answerBody{}), nil
	}
	if s.ended != nil {
		closeBody(req)
		return nil, s.ended
	}
	if b.answer != nil {
		if resp, err, ok := b.answer(s.n, s); ok {
			return resp, err
		}
	}
	if err := s.readBody(); err != nil {
		return nil, err
	}
	return b.play(s)
}

func closeBody(req *http.Request) {
	if req.Body != nil {
		req.Body.Close()
	}
}

// readBody reads and closes.
func (s *sent) readBody() error {
	if s.req.Body == nil {
		return nil
	}
	defer s.req.Body.Close()
	text, err := io.ReadAll(s.req.Body)
	s.body, s.bodyErr = string(text), err
	return err
}

func (b *base) play(s *sent) (*http.Response, error) {
	step := Step{}
	switch {
	case s.n >= b.most:
	case len(b.steps) > 0:
		step = b.steps[min(s.n, len(b.steps)-1)]
	}
	if step.Hang {
		step.Delay, step.Err = b.hang, errors.New("layertest: nobody has ended the request")
	}
	if step.Delay > 0 {
		timer := time.NewTimer(step.Delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-s.ctx.Done():
			return nil, s.ctx.Err()
		}
	}
	switch {
	case step.Answer != nil:
		return step.Answer(s.req)
	case step.Err != nil:
		return nil, step.Err
	}
	return b.respond(s, step, &answerBody{text: step.Body}), nil
}

// reply reads the request's body and answers with step and body, as an answer of
// the base's.
func (b *base) reply(s *sent, step Step, body *answerBody) (*http.Response, error, bool) {
	err := s.readBody()
	if err == nil {
		err = step.Err
	}
	if err != nil {
		return nil, err, true
	}
	return b.respond(s, step, body), nil, true
}

// visits counts how often something was there.
type visits struct {
	mu sync.Mutex
	of map[string]int
}

// before returns how often id was there before.
func (v *visits) before(id string) int {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.of == nil {
		v.of = map[string]int{}
	}
	v.of[id]++
	return v.of[id] - 1
}

// respond makes the answer of step with body.
func (b *base) respond(s *sent, step Step, body *answerBody) *http.Response {
	status := step.Status
	if status == 0 {
		status = http.StatusOK
	}
	header := http.Header{sendHeader: {fmt.Sprint(s.n)}}
	for name, value := range step.Header {
		header.Set(name, value)
	}
	body.ctx, body.done = s.ctx, make(chan struct{})
	b.made.add(body)
	length := int64(len(body.text))
	if body.unsized || body.endless > 0 || body.silent {
		length = -1
	}
	return &http.Response{StatusCode: status, Status: fmt.Sprintf("%d %s", status, http.StatusText(status)),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: header, ContentLength: length, Request: s.req, Body: body}
}

// answerBody is the body of an answer. As with net/http's, Close ends a Read that
// blocks.
type answerBody struct {
	text    string
	tied    bool  // it fails once the context of its request has ended, as net/http's does
	unsized bool  // no ContentLength
	endless int64 // bytes that come on top of text, then it is cut
	silent  bool  // after text nothing comes, not even an end
	cut     error // instead of EOF
	atEnd   func()
	ctx     context.Context
	done    chan struct{}

	mu        sync.Mutex
	read      int64
	eof       bool
	firstRead time.Time
	closedAt  time.Time
	closes    atomic.Int64
}

func (a *answerBody) Read(p []byte) (int, error) {
	a.mu.Lock()
	if a.firstRead.IsZero() {
		a.firstRead = time.Now()
	}
	pos := a.read
	a.mu.Unlock()
	switch {
	case a.closes.Load() > 0:
		return 0, http.ErrBodyReadAfterClose
	case a.tied && a.ctx.Err() != nil:
		return 0, a.ctx.Err()
	case pos < int64(len(a.text)):
		n := copy(p, a.text[pos:])
		a.count(n)
		return n, nil
	case pos < int64(len(a.text))+a.endless:
		a.count(len(p))
		return len(p), nil
	case a.silent:
		select {
		case <-a.done:
			return 0, http.ErrBodyReadAfterClose
		case <-a.ctx.Done():
			return 0, a.ctx.Err()
		}
	case a.endless > 0:
		return 0, errors.New("layertest: an endless body was read on and on")
	case a.cut != nil:
		return 0, a.cut
	}
	a.mu.Lock()
	first := !a.eof
	a.eof = true
	a.mu.Unlock()
	if first && a.atEnd != nil {
		a.atEnd()
	}
	return 0, io.EOF
}

func (a *answerBody) count(n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.read += int64(n)
}

func (a *answerBody) Close() error {
	if a.closes.Add(1) == 1 {
		a.mu.Lock()
		a.closedAt = time.Now()
		a.mu.Unlock()
		close(a.done)
	}
	return nil
}

// touched reports whether somebody has begun to read.
func (a *answerBody) touched() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return !a.firstRead.IsZero()
}

// ended tells what became of the body.
func (a *answerBody) ended() (read int64, eof bool, draining time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.firstRead.IsZero() && !a.closedAt.IsZero() {
		draining = a.closedAt.Sub(a.firstRead)
	}
	return a.read, a.eof, draining
}

// list is a list that grows.
type list[T any] struct {
	mu    sync.Mutex
	items []T
}

// add returns the place of the new item.
func (l *list[T]) add(item T) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.items = append(l.items, item)
	return len(l.items) - 1
}

func (l *list[T]) all() []T {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]T(nil), l.items...)
}
