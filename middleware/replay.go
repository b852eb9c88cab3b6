package middleware

import (
	"fmt"
	"io"
	"net/http"
	"sync"
)

// replay hands out the body of one operation as often as it is sent. Each
// attempt gets a reader of its own and only the newest is live: an answer may be
// there while net/http still sends the body, and a GetBody may return the same
// seeker each time (azcore's does), so that a late Read of the last attempt would
// steal from the next one.
//
// With the caller's GetBody each reader has a source of its own; without it all
// share one, and what was read is kept.
type replay struct {
	getBody func() (io.ReadCloser, error) // nil = keep
	length  int64                         // as announced; 0 or -1 = not
	first   replayReader

	mu       sync.Mutex
	free     sync.Cond // busy has ended, or a reader
	busy     bool      // a Read, or a change of the source, is under way
	live     *replayReader
	started  bool  // the first source has been read from
	failed   bool  // a source has: no repeat can mend that
	finished bool  // the operation is over: no reader follows
	limit    int64 // of kept
	kept     []byte
	end      error // of the shared source, once seen
	overflow bool  // grew beyond limit: the live reader is the only one ever
}

// newReplay takes over the body of req.
func newReplay(req *http.Request, limit int64) *replay {
	b := &replay{getBody: req.GetBody, length: req.ContentLength, limit: limit}
	b.free.L = &b.mu
	b.first = replayReader{of: b, src: &source{body: req.Body}}
	b.live = &b.first
	return b
}

// source is closed once, whoever asks.
type source struct {
	body  io.ReadCloser
	close sync.Once
}

func (s *source) Close() {
	if s != nil {
		s.close.Do(func() { _ = s.body.Close() })
	}
}

func (b *replay) setLimit(limit int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.limit = limit
	if b.started && b.getBody == nil && int64(len(b.kept)) > limit {
		b.overflow, b.kept = true, nil
	}
}

// broken reports whether the caller's own reader has failed.
func (b *replay) broken() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.failed
}

// ready reports whether another reader could be handed out now.
func (b *replay) ready() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.available()
}

func (b *replay) available() bool {
	return !b.failed && !b.finished && (b.getBody != nil || !b.started || !b.overflow && b.length <= b.limit)
}

// again is the GetBody of the operation's request.
func (b *replay) again() (io.ReadCloser, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.available() {
		return nil, ErrBodyNotReplayable
	}
	old, r := b.live, &replayReader{of: b}
	old.detached, b.live = true, r
	b.free.Broadcast()
	if b.getBody == nil {
		r.src = old.src
		return r, nil
	}
	b.mu.Unlock()
	old.src.Close() // ends a Read that blocks
	b.mu.Lock()
	if !b.busy {
		// The transport is done with the old source, as it mostly is: a GetBody that
		// fails is known before the answer in hand is given up.
		if err := b.open(r); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// open has the caller open another source for r. Called with mu held.
func (b *replay) open(r *replayReader) error {
	var body io.ReadCloser
	var err error
	b.callOut(func() { body, err = b.getBody() })
	switch {
	case err != nil:
	case body == nil:
		err = ErrBodyNotReplayable // a GetBody that gives neither
	case r.detached || r.closed: // meanwhile, and nobody else knows of it
		b.callOut(func() { _ = body.Close() })
		return nil
	}
	if err != nil {
		b.failed = true
		return err
	}
	r.src = &source{body: body}
	return nil
}

// callOut runs f, which may block or panic, with mu free. Called with mu held and
// nothing under way.
func (b *replay) callOut(f func()) {
	b.busy = true
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		b.busy = false
		b.free.Broadcast()
	}()
	f()
}

// finish ends the operation. With an answer in hand the transport may still be
// reading, and then its own Close will close the source; after a failure the
// source is closed as net/http would.
func (b *replay) finish(answered bool) {
	b.mu.Lock()
	b.finished = true
	var src *source
	if !answered || b.live.closed {
		src = b.live.src
	}
	b.mu.Unlock()
	src.Close()
}

// BodyLengthError says that a request body is not as long as its ContentLength, so
// that the request cannot be sent. It is the caller's mistake or its GetBody's: the
// operation ends with it (R32). net/http tells of it too, but not always: the
// connection that it then closes may be the first to fail.
type BodyLengthError struct {
	Announced int64 // ContentLength
	Read      int64 // bytes so far: all of them, or one read too many
}

// Error names both lengths.
func (e *BodyLengthError) Error() string {
	if e.Read > e.Announced {
		return fmt.Sprintf("reroute: the request body has more bytes than the %d of its ContentLength", e.Announced)
	}
	return fmt.Sprintf("reroute: the request body has %d bytes, not the %d of its ContentLength", e.Read, e.Announced)
}

type replayReader struct {
	of   *replay
	src  *source // nil until opened, when no Read of the one before is under way
	pos  int     // in kept
	read int64   // kept bytes included

	detached, closed bool
}

func (r *replayReader) Read(p []byte) (int, error) {
	b := r.of
	b.mu.Lock()
	defer b.mu.Unlock()
	for {
		switch {
		case r.detached || r.closed:
			return 0, http.ErrBodyReadAfterClose
		case r.pos < len(b.kept):
			n := copy(p, b.kept[r.pos:])
			r.pos += n
			r.read += int64(n)
			return n, nil
		case b.end != nil:
			return 0, b.end
		case b.busy:
			b.free.Wait()
			continue
		case r.src == nil:
			if err := b.open(r); err != nil {
				return 0, err
			}
			continue
		}
		return r.readSource(p)
	}
}

// readSource reads on. Called with mu held.
func (r *replayReader) readSource(p []byte) (n int, err error) {
	b, body := r.of, r.src.body
	b.started = true
	b.callOut(func() { n, err = body.Read(p) })
	if r.read += int64(n); b.length > 0 && (r.read > b.length || err == io.EOF && r.read < b.length) {
		err = &BodyLengthError{Announced: b.length, Read: r.read}
	}
	shared := b.getBody == nil
	if err != nil && err != io.EOF && !r.closed && !b.finished && (shared || !r.detached) {
		b.failed = true
	}
	if shared {
		b.end = err
		b.keep(r, p[:n])
	}
	if r.detached {
		return 0, http.ErrBodyReadAfterClose
	}
	return n, err
}

// keep keeps what r has read. A reader that was detached meanwhile does not
// overflow: the live one depends on these bytes, and p bounds them.
func (b *replay) keep(r *replayReader, p []byte) {
	if !r.detached && (b.length > b.limit || int64(len(b.kept)+len(p)) > b.limit) {
		b.overflow, b.kept = true, nil
	}
	if !b.overflow {
		b.kept = append(b.kept, p...)
		r.pos += len(p)
	}
}

// Close closes the source, unless another reader may need it.
func (r *replayReader) Close() error {
	b := r.of
	b.mu.Lock()
	r.closed = true
	b.free.Broadcast()
	src := r.src
	if shared := b.getBody == nil; shared && (r.detached || !b.finished) {
		src = nil
	}
	b.mu.Unlock()
	src.Close()
	return nil
}
