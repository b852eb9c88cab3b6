package layertest

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
)

const payload = "0123456789abcdef the body of a request"

// markKey is a value that the caller has in the request's context.
type markKey struct{}

// request makes a request; a nil body is none.
func (t *trial) request(ctx context.Context, body *bodies) *http.Request {
	ctx = context.WithValue(ctx, markKey{}, true)
	var req *http.Request
	if t.kit.Request != nil {
		own := *t.kit.Request(ctx)
		if req = &own; own.Header == nil {
			own.Header = http.Header{}
		}
		own.Header = own.Header.Clone() // it may be the same each time
		own.Body, own.GetBody, own.ContentLength = nil, nil, 0
	} else {
		method := http.MethodPut
		if t.kit.known.get {
			method = http.MethodGet
		}
		var err error
		if req, err = http.NewRequestWithContext(ctx, method, "http://layer.test/a/b?c=d", nil); err != nil {
			panic(err) // a constant URL
		}
		// For a layer to take away. Authorization is left for it to put on.
		for _, name := range []string{"Accept", "Content-Type", "Cookie", "Proxy-Authorization", "Traceparent", "User-Agent"} {
			req.Header.Set(name, "layertest")
		}
	}
	body.attach(req)
	return req
}

// bodies is a request body and all that its GetBody has handed out.
type bodies struct {
	text     string
	oneShot  bool  // no GetBody
	chunked  bool  // ContentLength -1
	unsized  bool  // ContentLength 0, which besides a body is unknown as well
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
	switch {
	case b.chunked:
		req.ContentLength = -1
	case b.unsized:
		req.ContentLength = 0
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
