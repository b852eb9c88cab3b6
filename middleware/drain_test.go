package middleware_test

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// drained is an answer's body that counts what is read of it.
type drained struct {
	size   int64 // -1 = endless
	slow   time.Duration
	hang   bool
	once   sync.Once
	closed chan struct{}

	mu    sync.Mutex
	bytes int64
}

func (d *drained) Read(p []byte) (int, error) {
	if d.hang {
		<-d.closed
		return 0, http.ErrBodyReadAfterClose
	}
	if d.slow > 0 {
		select {
		case <-d.closed:
			return 0, http.ErrBodyReadAfterClose
		case <-time.After(d.slow):
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	n := int64(len(p))
	if d.slow > 0 {
		n = 1
	}
	if d.size >= 0 {
		n = min(n, d.size-d.bytes)
		if n == 0 {
			return 0, io.EOF
		}
	}
	d.bytes += n
	return int(n), nil
}

func (d *drained) Close() error { d.once.Do(func() { close(d.closed) }); return nil }

func TestADiscardedAnswerIsDrainedWithinBoundsAndClosed(t *testing.T) { // X06, B07
	const limit = 64<<10 + 1
	for name, c := range map[string]struct {
		body   *drained
		length int64
		proto  int
		bytes  int64
		takes  time.Duration
	}{
		"a short body is read to its end":            {body: &drained{size: 1000}, length: 1000, proto: 1, bytes: 1000},
		"also without a length":                      {body: &drained{size: 1000}, length: -1, proto: 1, bytes: 1000},
		"one of 64 KiB too":                          {body: &drained{size: 64 << 10}, length: -1, proto: 1, bytes: 64 << 10},
		"a long one is not begun":                    {body: &drained{size: 1 << 30}, length: 1 << 30, proto: 1},
		"an endless one is cut off":                  {body: &drained{size: -1}, length: -1, proto: 1, bytes: limit},
		"an HTTP/2 stream is reset":                  {body: &drained{size: 1000}, length: 1000, proto: 2},
		"an empty one is not read":                   {body: &drained{}, length: 0, proto: 1},
		"a slow one is cut off in time":              {body: &drained{size: -1, slow: 10 * time.Millisecond}, length: -1, proto: 1, bytes: 4, takes: 50 * time.Millisecond},
		"one that never comes is cut off in time":    {body: &drained{hang: true}, length: 1000, proto: 1, takes: 50 * time.Millisecond},
		"and so is one that stops after its headers": {body: &drained{hang: true}, length: -1, proto: 1, takes: 50 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				body := c.body
				body.closed = make(chan struct{})
				start := time.Now()
				var closedBefore bool
				first := true
				base := roundTripper(func(*http.Request) (*http.Response, error) {
					if first {
						first = false
						return &http.Response{StatusCode: 503, ProtoMajor: c.proto, ContentLength: c.length, Body: body}, nil
					}
					select {
					case <-body.closed:
						closedBefore = true
					default:
					}
					return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader("body of 200"))}, nil
				})
				answered(t, stack(t, base, again{}), get(t.Context()), 200)
				require.True(t, closedBefore, "closed before the next attempt starts")
				require.InDelta(t, c.bytes, body.bytes, 1)
				require.Equal(t, c.takes, time.Since(start))
			})
		})
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }
