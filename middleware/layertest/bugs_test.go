package layertest_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
)

// What the bugs of resend are made of.

type keepsOpen struct{ io.ReadCloser }

func (keepsOpen) Close() error { return nil }

type readsOn struct {
	io.ReadCloser
	again func()
}

func (b readsOn) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		b.again()
	}
	return n, err
}

type hidesCut struct{ io.ReadCloser }

func (b hidesCut) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = io.EOF
	}
	return n, err
}

// shared reads the answer that came last, whoever's it was.
type shared struct {
	io.Closer
	r   *resender
	pos int
}

func (b *shared) Read(p []byte) (int, error) {
	b.r.mu.Lock()
	defer b.r.mu.Unlock()
	if b.pos >= len(b.r.last) {
		return 0, io.EOF
	}
	n := copy(p, b.r.last[b.pos:])
	b.pos += n
	return n, nil
}

// spoil has bugs of the returned answer.
func (r *resender) spoil(req *http.Request, resp *http.Response) {
	switch r.bug {
	case "the returned body's Close goes nowhere":
		if resp.StatusCode == 200 && resp.Body != nil {
			resp.Body = keepsOpen{resp.Body}
		}
	case "the writer is hidden":
		resp.Body = struct{ io.ReadCloser }{resp.Body}
	case "trailers are copied too early":
		resp.Trailer = resp.Trailer.Clone()
	case "a cut answer is sent again":
		if resp.StatusCode != 200 {
			return
		}
		resp.Body = readsOn{resp.Body, func() {
			again := req.Clone(context.Background())
			again.Body = nil
			if resp, err := r.next.RoundTrip(again); err == nil {
				resp.Body.Close()
			}
		}}
	case "a cut answer looks whole":
		if resp.StatusCode == 200 {
			resp.Body = hidesCut{resp.Body}
		}
	case "answers are mixed up":
		if resp.StatusCode == 200 && resp.ContentLength > 0 && resp.ContentLength < 100 {
			text, _ := io.ReadAll(resp.Body)
			r.mu.Lock()
			r.last = text
			r.mu.Unlock()
			resp.Body = &shared{Closer: resp.Body, r: r}
		}
	}
}

// rewindable keeps what it reads and can be read again, all of it by whoever has
// it.
type rewindable struct {
	from io.ReadCloser
	mu   sync.Mutex
	once sync.Once
	text []byte
	err  error
	pos  int
}

func (t *rewindable) Read(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.from != nil {
		t.once.Do(func() { t.text, t.err = io.ReadAll(t.from) })
	}
	if t.pos >= len(t.text) {
		if t.err != nil {
			return 0, t.err
		}
		return 0, io.EOF
	}
	n := copy(p, t.text[t.pos:])
	t.pos += n
	return n, nil
}

// Close closes the source the first time.
func (t *rewindable) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.from != nil {
		t.from.Close()
		t.from = nil
	}
	return nil
}

func (t *rewindable) rewind() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pos = 0
}
