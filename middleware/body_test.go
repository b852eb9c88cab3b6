package middleware_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/layertest"
)

func TestAKeptBodyIsReplayedByteExact(t *testing.T) { // B01, X05
	text := strings.Repeat("0123456789", 5690)
	for name, layers := range map[string][]middleware.Layer{
		"one loop":                      {again{}},
		"loops in loops":                {again{On: middleware.Unavailable}, again{On: middleware.Throttled}},
		"a foreign layer in between":    {again{}, foreignLayer},
		"a limit of exactly its size":   {middleware.ReplayBody{MaxBytes: int64(len(text))}, again{}},
		"a limit set by an inner layer": {again{}, middleware.ReplayBody{MaxBytes: 1 << 30}},
	} {
		t.Run(name, func(t *testing.T) {
			body := layertest.NewBody(text)
			script := layertest.NewScript(t, status(503, 429, 200)...)
			req := streamed(t.Context(), body)
			report := answered(t, stack(t, script, layers...), req, 200)
			require.Equal(t, 3, report.Sends)
			for _, send := range script.Sends() {
				require.Equal(t, text, send.Body)
			}
			require.Equal(t, 1, body.Closes(), "X04")
		})
	}
}

func TestABodyBeyondTheLimitIsStreamedOnceAndTheAnswerReturned(t *testing.T) { // B01, B05, X05
	for name, c := range map[string]struct {
		length int64
		limit  middleware.ReplayBody
	}{
		"of unknown length":        {-1, middleware.ReplayBody{MaxBytes: 9}},
		"of known length":          {10, middleware.ReplayBody{MaxBytes: 9}},
		"where nothing is kept":    {10, middleware.ReplayBody{MaxBytes: -1}},
		"nothing kept, no length":  {-1, middleware.ReplayBody{MaxBytes: -1}},
		"beyond the default limit": {-1, middleware.ReplayBody{}},
	} {
		t.Run(name, func(t *testing.T) {
			text := "0123456789"
			if c.limit.MaxBytes == 0 {
				text = strings.Repeat("x", 2<<20+1)
			}
			body := layertest.NewBody(text)
			req := streamed(t.Context(), body)
			req.ContentLength = c.length
			script := layertest.NewScript(t, status(503, 200)...)
			report := answered(t, stack(t, script, c.limit, again{}), req, 503)
			require.Equal(t, middleware.NotReplayable, report.Stop)
			require.Equal(t, text, script.Sends()[0].Body)
			require.Len(t, script.Sends(), 1)
			require.Equal(t, 1, body.Closes())
		})
	}
}

func TestKeptBodiesOfAnySizeAndChunking(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		text := rapid.SliceOfN(rapid.Byte(), 1, 4000).Draw(rt, "text")
		limit := rapid.Int64Range(1, 4000).Draw(rt, "limit")
		chunk := rapid.IntRange(1, 700).Draw(rt, "chunk")
		announced := rapid.Bool().Draw(rt, "announced")
		stops := rapid.SliceOfN(rapid.IntRange(0, 4000), 2, 2).Draw(rt, "stops") // how much each failed attempt reads
		var sent [][]byte
		base := middleware.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
			defer req.Body.Close()
			code := 503
			source := io.Reader(req.Body)
			if n := len(sent); n < len(stops) {
				source = io.LimitReader(req.Body, int64(stops[n]))
			} else {
				code = 200
			}
			got, err := io.ReadAll(struct{ io.Reader }{source})
			if err != nil {
				return nil, err
			}
			sent = append(sent, got)
			return &http.Response{StatusCode: code, Body: http.NoBody}, nil
		})
		body := &chunked{text: text, size: chunk}
		req := streamed(context.Background(), body)
		if announced {
			req.ContentLength = int64(len(text))
		}
		resp, err := stack(t, base, middleware.ReplayBody{MaxBytes: limit}, again{}).RoundTrip(req)
		require.NoError(rt, err)
		if resp.StatusCode == 200 {
			require.Equal(rt, text, sent[len(sent)-1])
		}
		if int64(len(text)) <= limit {
			require.Equal(rt, 200, resp.StatusCode)
		}
		for i, got := range sent {
			require.True(rt, bytes.HasPrefix(text, got), "attempt %d", i+1)
		}
		require.EqualValues(rt, 1, body.closes.Load())
	})
}

type chunked struct {
	text   []byte
	size   int
	closes atomic.Int64
}

func (c *chunked) Read(p []byte) (int, error) {
	if len(c.text) == 0 {
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), c.size)], c.text)
	c.text = c.text[n:]
	return n, nil
}

func (c *chunked) Close() error { c.closes.Add(1); return nil }

func TestGetBodyIsUsedWherePresent(t *testing.T) { // B02, B05c, B06
	var mu sync.Mutex
	var bodies []*layertest.Body
	open := func() (io.ReadCloser, error) {
		mu.Lock()
		defer mu.Unlock()
		b := layertest.NewBody("text")
		bodies = append(bodies, b)
		return b, nil
	}
	for _, layers := range [][]middleware.Layer{{again{}}, {again{}, foreignLayer, again{}}, {middleware.ReplayBody{MaxBytes: -1}, again{}}} {
		bodies = nil
		script := layertest.NewServer(t, func(req *http.Request) layertest.Step {
			require.NotNil(t, req.GetBody)
			require.EqualValues(t, 4, req.ContentLength)
			return status(503)[0]
		})
		req := streamed(t.Context(), nil)
		req.Body, _ = open()
		req.GetBody, req.ContentLength = open, 4
		resp, err := stack(t, script, layers...).RoundTrip(req)
		require.NoError(t, err)
		read(t, resp)
		for _, send := range script.Sends() {
			require.Equal(t, "text", send.Body)
		}
		require.Len(t, bodies, len(script.Sends()))
		for i, body := range bodies {
			require.Equal(t, 1, body.Closes(), "body %d", i)
		}
	}
}

func TestAGetBodyThatFailsLeavesTheAnswerInHand(t *testing.T) {
	body := layertest.NewBody("text")
	req := streamed(t.Context(), body)
	req.GetBody = func() (io.ReadCloser, error) { return nil, errBoom }
	var seen events
	script := layertest.NewScript(t, status(503)...)
	report := answered(t, stack(t, script, seen.observer(), again{}), req, 503)
	require.Equal(t, middleware.NotReplayable, report.Stop)
	require.Empty(t, report.Charges)
	require.ErrorIs(t, seen.list[len(seen.list)-1].Err, errBoom)
	require.Equal(t, 1, body.Closes())
}

func TestRequestsWithoutABodyStaySo(t *testing.T) { // go-peers 6.4
	for _, body := range []io.ReadCloser{nil, http.NoBody} {
		req := get(t.Context())
		req.Body = body
		script := layertest.NewServer(t, func(req *http.Request) layertest.Step {
			require.Equal(t, body, req.Body)
			require.Nil(t, req.GetBody)
			return status(503)[0]
		})
		require.Equal(t, 3, answered(t, stack(t, script, again{}), req, 503).Sends)
	}
}

// late is a base that answers at once, while a goroutine of its own still reads
// the body, as net/http does.
type late struct {
	answers []int
	hold    chan struct{} // readers go on when closed
	sent    [4]bytes.Buffer
	n       atomic.Int64
	done    sync.WaitGroup
	failed  atomic.Int64
}

func (l *late) RoundTrip(req *http.Request) (*http.Response, error) {
	n := int(l.n.Add(1)) - 1
	answer := l.answers[min(n, len(l.answers)-1)]
	if n == 0 {
		var first [2]byte
		k, _ := io.ReadFull(req.Body, first[:])
		l.sent[n].Write(first[:k])
	}
	upload := func() {
		defer req.Body.Close()
		if n == 0 {
			<-l.hold
		}
		if _, err := io.Copy(&l.sent[n], req.Body); err != nil {
			l.failed.Add(1)
		}
	}
	if n < len(l.answers)-1 {
		l.done.Go(upload)
	} else {
		upload() // the last attempt is read whole before its answer
		close(l.hold)
	}
	return &http.Response{StatusCode: answer, Body: io.NopCloser(strings.NewReader("body of " + fmt.Sprint(answer)))}, nil
}

func TestAnAnswerThatIsThereBeforeTheBodyWasSent(t *testing.T) {
	const text = "0123456789abcdef"
	t.Run("kept", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			base := &late{answers: []int{429, 200}, hold: make(chan struct{})}
			body := layertest.NewBody(text)
			answered(t, stack(t, base, again{}), streamed(t.Context(), body), 200)
			base.done.Wait()
			require.Equal(t, text, base.sent[1].String())
			require.EqualValues(t, 1, base.failed.Load(), "the first attempt's reader is cut off")
			require.Equal(t, 1, body.Closes())
		})
	})
	t.Run("a GetBody that hands out one shared seeker", func(t *testing.T) { // azcore
		bubble(t, func(t *testing.T) {
			base := &late{answers: []int{429, 200}, hold: make(chan struct{})}
			seeker := strings.NewReader(text)
			req := streamed(t.Context(), io.NopCloser(seeker))
			req.ContentLength = int64(len(text))
			req.GetBody = func() (io.ReadCloser, error) {
				_, err := seeker.Seek(0, io.SeekStart)
				return io.NopCloser(seeker), err
			}
			answered(t, stack(t, base, again{}), req, 200)
			base.done.Wait()
			require.Equal(t, text, base.sent[1].String())
			require.Equal(t, text[:2], base.sent[0].String(), "it steals nothing from the second")
		})
	})
	t.Run("an answer that is final, while the source is still read", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			source, writer := io.Pipe()
			counted := &countingCloser{ReadCloser: source}
			var upload sync.WaitGroup
			base := middleware.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
				upload.Go(func() { _, _ = io.Copy(io.Discard, req.Body); _ = req.Body.Close() })
				return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader("body of 200"))}, nil
			})
			answered(t, stack(t, base, again{}), streamed(t.Context(), counted), 200)
			require.Zero(t, counted.closes.Load(), "the transport still reads it")
			_, err := writer.Write([]byte("more"))
			require.NoError(t, err)
			require.NoError(t, writer.Close())
			upload.Wait()
			require.EqualValues(t, 1, counted.closes.Load())
		})
	})
}

type countingCloser struct {
	io.ReadCloser
	closes atomic.Int64
}

func (c *countingCloser) Close() error { c.closes.Add(1); return c.ReadCloser.Close() }

// trickle gives "te", then blocks until more comes or it is closed.
type trickle struct {
	*io.PipeReader
	more    *io.PipeWriter
	reading atomic.Bool
	closes  atomic.Int64
}

func newTrickle() *trickle {
	s := &trickle{}
	s.PipeReader, s.more = io.Pipe()
	go func() { _, _ = s.more.Write([]byte("te")) }()
	return s
}

func (s *trickle) Read(p []byte) (int, error) {
	s.reading.Store(true)
	defer s.reading.Store(false)
	return s.PipeReader.Read(p)
}

func (s *trickle) Close() error { s.closes.Add(1); return s.PipeReader.Close() }

// early answers each attempt after a second, whatever was uploaded by then.
type early struct {
	answers []int
	sent    [3]bytes.Buffer
	n       int
	uploads sync.WaitGroup
}

func (e *early) RoundTrip(req *http.Request) (*http.Response, error) {
	into, code := &e.sent[e.n], e.answers[e.n]
	e.n++
	e.uploads.Go(func() { _, _ = io.Copy(into, req.Body); _ = req.Body.Close() })
	time.Sleep(time.Second)
	return &http.Response{StatusCode: code, Body: io.NopCloser(strings.NewReader("body of " + fmt.Sprint(code)))}, nil
}

func TestABlockedSourceIsWaitedForByTheNextReader(t *testing.T) {
	for _, limit := range []int64{4, 3} { // with 3 the Read that nobody waits for any more ends beyond it
		bubble(t, func(t *testing.T) {
			source, base := newTrickle(), &early{answers: []int{503, 503, 200}}
			answered(t, stack(t, base, middleware.ReplayBody{MaxBytes: limit}, again{}), streamed(t.Context(), source), 200)
			_, err := source.more.Write([]byte("xt"))
			require.NoError(t, err)
			require.NoError(t, source.more.Close())
			base.uploads.Wait()
			require.Equal(t, "text", base.sent[2].String())
			require.EqualValues(t, 1, source.closes.Load())
		})
	}
}

func TestABlockedSourceIsGivenUpWhereGetBodyHasAnother(t *testing.T) {
	bubble(t, func(t *testing.T) {
		base := &early{answers: []int{503, 503, 200}}
		sources := []*trickle{newTrickle()}
		req := streamed(t.Context(), sources[0])
		req.GetBody = func() (io.ReadCloser, error) {
			for _, s := range sources {
				if s.reading.Load() {
					t.Error("GetBody is called while a body is read")
				}
			}
			if len(sources) == 2 {
				return io.NopCloser(strings.NewReader("text")), nil
			}
			sources = append(sources, newTrickle())
			return sources[len(sources)-1], nil
		}
		answered(t, stack(t, base, again{}), req, 200)
		base.uploads.Wait()
		require.Equal(t, "text", base.sent[2].String())
		for _, s := range sources {
			require.EqualValues(t, 1, s.closes.Load())
		}
	})
}

func TestCancellationEndsABlockedSource(t *testing.T) {
	bubble(t, func(t *testing.T) {
		source, _ := io.Pipe()
		counted := &countingCloser{ReadCloser: source}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var upload sync.WaitGroup
		base := middleware.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
			upload.Go(func() { _, _ = io.Copy(io.Discard, req.Body); _ = req.Body.Close() })
			<-req.Context().Done()
			return nil, req.Context().Err()
		})
		err := failed(t, stack(t, base, again{}), streamed(ctx, counted))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		upload.Wait() // the close has unblocked the Read
		require.EqualValues(t, 1, counted.closes.Load())
	})
}

func TestTheBodyIsClosedOnceWhereverItEnds(t *testing.T) { // X04, B09
	panics := middleware.RoundTripperFunc(func(*http.Request) (*http.Response, error) { panic("below") })
	refuses := middleware.RoundTripperFunc(func(req *http.Request) (*http.Response, error) { return middleware.Refuse(req, errBoom) })
	forgets := middleware.RoundTripperFunc(func(*http.Request) (*http.Response, error) { return nil, errBoom })
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	script := layertest.NewScript(t, layertest.Step{Status: 503})
	for name, c := range map[string]struct {
		base http.RoundTripper
		ctx  context.Context
	}{
		"an answer":              {script, t.Context()},
		"a failure":              {layertest.NewScript(t, layertest.Step{Err: errBoom}), t.Context()},
		"a refusal":              {refuses, t.Context()},
		"a base that forgets it": {forgets, t.Context()},
		"a cancelled context":    {script, canceled},
		"a panic":                {panics, t.Context()},
	} {
		for _, withGetBody := range []bool{false, true} {
			t.Run(fmt.Sprint(name, withGetBody), func(t *testing.T) {
				bodies := []*layertest.Body{layertest.NewBody("text")}
				req := streamed(c.ctx, bodies[0])
				if withGetBody {
					req.GetBody = func() (io.ReadCloser, error) {
						bodies = append(bodies, layertest.NewBody("text"))
						return bodies[len(bodies)-1], nil
					}
				}
				func() {
					defer func() { _ = recover() }()
					resp, err := stack(t, c.base, again{}).RoundTrip(req)
					if err == nil {
						_ = resp.Body.Close()
					}
				}()
				for i, body := range bodies {
					require.Equal(t, 1, body.Closes(), "body %d of %d", i, len(bodies))
				}
			})
		}
	}
	t.Run("a wait that is cancelled", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Second, cancel)
			body := layertest.NewBody("text")
			failed(t, stack(t, layertest.NewScript(t, status(503)...), again{Wait: time.Minute}), streamed(ctx, body))
			require.Equal(t, 1, body.Closes())
			second := layertest.NewBody("text")
			ctx, cancel = context.WithCancel(t.Context())
			time.AfterFunc(time.Second, cancel)
			req := streamed(ctx, layertest.NewBody("text"))
			req.GetBody = func() (io.ReadCloser, error) { return second, nil }
			failed(t, stack(t, layertest.NewScript(t, status(503)...), again{Wait: time.Minute}), req)
			require.Equal(t, 1, second.Closes(), "opened for an attempt that never came")
		})
	})
}

func TestASourceThatFailsIsFinal(t *testing.T) { // B04
	for _, withGetBody := range []bool{false, true} {
		script := layertest.NewScript(t, status(200)...)
		body := &failing{after: "te"}
		req := streamed(t.Context(), body)
		if withGetBody {
			req.GetBody = func() (io.ReadCloser, error) { return body, nil }
		}
		err := failed(t, stack(t, script, again{}), req)
		require.ErrorIs(t, err, errBoom)
		require.Equal(t, 1, err.Report.Sends)
		require.Equal(t, middleware.Unmendable, err.Outcome.Cause, "not the server's failure")
		require.Equal(t, "request body", err.Outcome.Code)
	}
}

type failing struct{ after string }

func (f *failing) Read(p []byte) (int, error) {
	n := copy(p, f.after)
	f.after = f.after[n:]
	if n == 0 {
		return 0, errBoom
	}
	return n, nil
}

func (f *failing) Close() error { return nil }

func TestASourceThatPanicsUnwinds(t *testing.T) {
	body := layertest.NewBody("text")
	source := struct {
		io.Reader
		io.Closer
	}{readerFunc(func([]byte) (int, error) { panic("source") }), body}
	require.PanicsWithValue(t, "source", func() {
		_, _ = stack(t, layertest.NewScript(t), again{}).RoundTrip(streamed(t.Context(), source))
	})
	require.Equal(t, 1, body.Closes())
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestADetachedReaderReadsNothing(t *testing.T) {
	var readers []io.ReadCloser
	base := middleware.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
		readers = append(readers, req.Body)
		var first [1]byte
		_, err := req.Body.Read(first[:])
		return &http.Response{StatusCode: 503, Body: http.NoBody}, err
	})
	resp, err := stack(t, base, again{}).RoundTrip(streamed(t.Context(), layertest.NewBody("text")))
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Len(t, readers, 3)
	for _, old := range readers[:2] {
		_, err := old.Read(make([]byte, 1))
		require.ErrorIs(t, err, http.ErrBodyReadAfterClose)
		require.NoError(t, old.Close())
	}
	rest, err := io.ReadAll(readers[2])
	require.NoError(t, err)
	require.Equal(t, "ext", string(rest), "the live one is not harmed")
}

func TestAnUnreadBodyCanBeSentAgainWhateverItsSize(t *testing.T) { // Expect: 100-continue, refused
	base := middleware.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
		return middleware.Refuse(req, errBoom)
	})
	body := layertest.NewBody(strings.Repeat("x", 100))
	req := streamed(t.Context(), body)
	req.ContentLength = 100
	err := failed(t, stack(t, base, middleware.ReplayBody{MaxBytes: 10}, again{}), req)
	require.Equal(t, 3, err.Report.Sends)
	require.Equal(t, 1, body.Closes())
}

func TestOnlyTheWireLosesGetBody(t *testing.T) { // X08
	layer := middleware.LayerFunc(func(next http.RoundTripper) http.RoundTripper {
		return middleware.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
			middleware.FromContext(req.Context()).ForbidTransportReplay()
			require.NotNil(t, req.GetBody)
			return next.RoundTrip(req)
		})
	})
	script := layertest.NewServer(t, func(req *http.Request) layertest.Step {
		require.Nil(t, req.GetBody)
		return status(503)[0]
	})
	report := answered(t, stack(t, script, again{}, layer), request(t.Context(), "POST", strings.NewReader("text")), 503)
	require.Equal(t, 3, report.Sends, "our own loop still replays")
	require.Equal(t, "text", script.Sends()[2].Body)
}

func TestTheBodyOfAnEndlessSourceIsBounded(t *testing.T) { // B05a
	body := layertest.NewBody("")
	left := 64 << 20
	source := struct {
		io.Reader
		io.Closer
	}{readerFunc(func(p []byte) (int, error) {
		if left == 0 {
			return 0, io.EOF
		}
		n := min(len(p), left)
		left -= n
		return n, nil
	}), body}
	base := middleware.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
		n, err := io.Copy(io.Discard, req.Body)
		_ = req.Body.Close()
		require.EqualValues(t, 64<<20, n)
		return &http.Response{StatusCode: 503, Body: http.NoBody}, err
	})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	resp, err := stack(t, base, middleware.ReplayBody{MaxBytes: 1 << 20}, again{}).RoundTrip(streamed(t.Context(), source))
	runtime.ReadMemStats(&after)
	require.NoError(t, err)
	require.Equal(t, 503, resp.StatusCode)
	require.Equal(t, 1, middleware.FromResponse(resp).Sends())
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(16<<20))
	require.Equal(t, 1, body.Closes())
}

func TestABodyOfAnotherLengthThanAnnouncedEndsTheOperationWhateverTheTransportMakesOfIt(t *testing.T) { // R32
	for name, c := range map[string]struct {
		text, again string // of the body, and of GetBody's
		sends       int
		want        string
	}{
		"short":                 {"short", "short", 1, "reroute: the request body has 5 bytes, not the 8 of its ContentLength"},
		"long":                  {"much too long", "much too long", 1, "reroute: the request body has more bytes than the 8 of its ContentLength"},
		"short the second time": {"the body", "the", 2, "reroute: the request body has 3 bytes, not the 8 of its ContentLength"},
	} {
		for _, kept := range []bool{false, true} {
			if kept && c.text != c.again {
				continue
			}
			t.Run(fmt.Sprint(name, ", kept: ", kept), func(t *testing.T) {
				sends := 0
				var told error
				base := middleware.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
					sends++
					_, told = io.Copy(io.Discard, req.Body)
					_ = req.Body.Close()
					if told != nil {
						return nil, io.EOF // the connection went first
					}
					return &http.Response{StatusCode: 503, Body: http.NoBody, Request: req}, nil
				})
				req := to(t.Context(), "http://a.test", "PUT", io.NopCloser(strings.NewReader(c.text)))
				req.ContentLength = 8
				if !kept {
					req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(c.again)), nil }
				}
				err := failed(t, stack(t, base, again{}), req)
				require.Equal(t, middleware.Unmendable, err.Outcome.Cause)
				require.Equal(t, c.sends, sends)
				require.EqualError(t, told, c.want)
			})
		}
	}
}
