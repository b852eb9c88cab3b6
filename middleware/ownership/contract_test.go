package ownership_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/layertest"
	"github.com/reroute-go/reroute/middleware/ownership"
	"github.com/reroute-go/reroute/roundtrippers"
)

// The rules of the contract (X) that the core's own tests hold for every layer,
// once more with this stack.

func TestTheCallersRequestIsNeverTouched(t *testing.T) { // X03, X04, X20
	synctest.Test(t, func(t *testing.T) {
		s := newShards(t, map[string][]layertest.Step{"a": says("503/migrating", "421"), "b": says("200")})
		s.moved(8, "b")
		req := request(t.Context(), "PUT", "", "If-Match", `"8"`)
		body := layertest.NewBody("the body")
		req.Body, req.ContentLength = body, 8
		before, url, header := *req, *req.URL, req.Header.Clone()
		resp, err := s.build(roundtrippers.OwnershipBuilder{PerAttempt: []middleware.Layer{ownership.Stamp{}}}).RoundTrip(req)
		require.NoError(t, err)
		require.Equal(t, "200", text(t, resp))
		require.Equal(t, url, *req.URL)
		require.Equal(t, header, req.Header)
		require.True(t, reflect.DeepEqual(before.Host, req.Host) && before.Body == req.Body && before.GetBody == nil && req.GetBody == nil)
		require.Equal(t, 1, body.Closes())
		for _, send := range s.script.Sends() {
			require.Equal(t, "the body", send.Body)
		}
		report := reportOf(t, resp, nil)
		require.Equal(t, 3, report.Sends)
		require.Equal(t, middleware.Answered, report.Stop)
		require.Equal(t, []middleware.Charge{{Budget: "reroute", Retries: 2, Waited: time.Second}}, report.Charges)
	})
}

func TestABodyThatCannotBeReplayedIsSentOnce(t *testing.T) { // X05, R29
	synctest.Test(t, func(t *testing.T) {
		s := moving(t)
		req := request(t.Context(), "PUT", "")
		req.Body, req.ContentLength = io.NopCloser(strings.NewReader("streamed")), -1
		resp, err := s.build(roundtrippers.OwnershipBuilder{MaxReplayBytes: -1}).RoundTrip(req)
		require.NoError(t, err)
		require.Equal(t, middleware.NotReplayable, reportOf(t, resp, nil).Stop)
		require.Equal(t, "421", text(t, resp))
		require.Equal(t, "a", s.hosts())

		s.serves("a", says("421")...)
		_, err = s.registry.Force(t.Context())
		require.NoError(t, err)
		s.serves("b", says("421")...)
		req = request(t.Context(), "PUT", "twice")
		req.GetBody = func() (io.ReadCloser, error) { return nil, errors.New("gone") }
		resp, err = s.build(roundtrippers.OwnershipBuilder{}).RoundTrip(req)
		require.NoError(t, err)
		require.Equal(t, middleware.NotReplayable, reportOf(t, resp, nil).Stop)
		require.Equal(t, "421", text(t, resp), "the answer in hand")
	})
}

func TestBudgetsOfNestedLayersAdd(t *testing.T) { // X07, R37
	synctest.Test(t, func(t *testing.T) {
		s := newShards(t, map[string][]layertest.Step{"a": says("503", "429", "503", "429", "503", "429", "503", "429")})
		d := &ownership.Dialect{Key: ownership.PathKey("/kv/")}
		throttle := roundtrippers.Throttle{Dialect: d, Retries: 2}
		again := roundtrippers.Reroute{Dialect: d}
		rt := s.build(roundtrippers.OwnershipBuilder{Dialect: d, PerOperation: []middleware.Layer{throttle, again}, PerAttempt: []middleware.Layer{throttle, again}})
		resp, err := rt.RoundTrip(request(t.Context(), "GET", ""))
		require.NoError(t, err)
		_ = resp.Body.Close()
		require.Equal(t, len(s.script.Sends()), reportOf(t, resp, nil).Sends)
		require.LessOrEqual(t, len(s.script.Sends()), 1+2+2+2+2+2)
		require.Contains(t, middleware.Describe(rt), "at most 11 sends")
	})
}

func TestCancelEndsEveryWaitAtOnceAndLeavesNothing(t *testing.T) { // X09, X10, X17; the bubble fails if a goroutine is left
	synctest.Test(t, func(t *testing.T) {
		s := moving(t)
		s.fetch = s.after(time.Second)
		rt := s.build(roundtrippers.OwnershipBuilder{})
		for _, at := range []time.Duration{1, 500 * time.Millisecond, time.Second, 1050 * time.Millisecond} { // in the fetch, at its end, in the wait
			s.serves("b", layertest.Step{Hang: true})
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(at, cancel)
			start := time.Now()
			resp, err := rt.RoundTrip(request(ctx, "GET", ""))
			require.Equal(t, at, time.Since(start))
			if err != nil {
				require.ErrorIs(t, err, context.Canceled)
				var failed *middleware.Error
				require.ErrorAs(t, err, &failed)
				require.Equal(t, 421, failed.LastStatus)
			} else { // the answer in hand when the caller left
				require.Equal(t, 421, resp.StatusCode)
				require.Equal(t, middleware.CanceledByCaller, reportOf(t, resp, nil).Stop)
				_ = resp.Body.Close()
			}
			time.Sleep(time.Minute)
			s.moved(s.current().Epoch+1, "a") // back to where it rejects
			_, err = s.registry.Force(t.Context())
			require.NoError(t, err)
			s.moved(s.current().Epoch+1, "b")
			time.Sleep(time.Minute)
		}
	})
}

func TestTheAttemptsTimeEndsWithItsHead(t *testing.T) { // X12
	synctest.Test(t, func(t *testing.T) {
		s := newShards(t, nil)
		var governs context.Context
		slow := layertest.Step{Answer: func(req *http.Request) (*http.Response, error) {
			governs = req.Context()
			time.Sleep(100 * time.Millisecond)
			return &http.Response{StatusCode: 200, Header: http.Header{}, Request: req, Body: io.NopCloser(readerFunc(func(p []byte) (int, error) {
				time.Sleep(500 * time.Millisecond)
				if err := governs.Err(); err != nil {
					return 0, err
				}
				return copy(p, "whole"), io.EOF
			}))}, nil
		}}
		s.serves("a", slow)
		resp, err := s.build(roundtrippers.OwnershipBuilder{AttemptTimeout: 200 * time.Millisecond}).RoundTrip(request(t.Context(), "GET", ""))
		require.NoError(t, err)
		require.Equal(t, "whole", text(t, resp))
		require.Error(t, governs.Err(), "released")
	})
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// X11, a wall clock that jumps, cannot be shown: no test can set Go's clock back, in or out of a bubble. It holds because
// nothing here compares times that have lost their monotonic part.
func TestManyCallersShareOneStack(t *testing.T) { // X15
	synctest.Test(t, func(t *testing.T) {
		s := moving(t)
		rt := s.build(roundtrippers.OwnershipBuilder{})
		var ok atomic.Int64
		var wg sync.WaitGroup
		for range 64 {
			wg.Go(func() {
				for range 50 {
					if status, err := send(t.Context(), rt); err == nil && status == 200 {
						ok.Add(1)
					}
				}
			})
		}
		wg.Wait()
		require.EqualValues(t, 64*50, ok.Load())
	})
}

func TestAPanicBelowLeavesTheMapUsable(t *testing.T) { // X16, R28
	synctest.Test(t, func(t *testing.T) {
		s := newShards(t, nil)
		panics := layertest.Step{Answer: func(*http.Request) (*http.Response, error) { panic("boom") }}
		s.serves("a", panics, layertest.Step{})
		rt := s.build(roundtrippers.OwnershipBuilder{})
		require.PanicsWithValue(t, "boom", func() { _, _ = rt.RoundTrip(request(t.Context(), "GET", "")) })
		status, err := send(t.Context(), rt)
		require.NoError(t, err)
		require.Equal(t, 200, status)
	})
}

func TestIdleConnectionsCanBeClosedThroughTheStack(t *testing.T) { // X14
	synctest.Test(t, func(t *testing.T) {
		s := newShards(t, nil)
		(&http.Client{Transport: s.build(roundtrippers.OwnershipBuilder{})}).CloseIdleConnections()
		require.Equal(t, 1, s.script.IdleClosed())
	})
}

// A storm of callers who leave costs no goroutine.
func TestACancelStormLeavesNoGoroutine(t *testing.T) { // X10, R11, R13
	others := goleak.IgnoreCurrent() // runtime.NumGoroutine is out by some while goroutines end
	synctest.Test(t, func(t *testing.T) {
		s := moving(t)
		s.fetch = s.after(300 * time.Millisecond)
		rt := s.build(roundtrippers.OwnershipBuilder{})
		var wg sync.WaitGroup
		for i := range 500 {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*time.Millisecond)
				defer cancel()
				_, _ = send(ctx, rt)
			})
		}
		wg.Wait()
		require.LessOrEqual(t, s.fetches.Load(), int64(2))
	})
	goleak.VerifyNone(t, others)
}

func TestRealTLSNameFollowsItsPolicy(t *testing.T) { // Z092
	var names []string
	node := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) { names = append(names, req.TLS.ServerName+" "+req.Host) }))
	node.StartTLS() // its certificate is for example.com and 127.0.0.1
	defer node.Close()
	address := strings.TrimPrefix(node.URL, "https://")
	for _, tc := range []struct {
		keep       bool
		serverName string
		want       string
	}{{false, "", " " + address}, {true, "example.com", "example.com example.com"}} {
		registry, err := ownership.New(ownership.Config{Source: ownership.MapSourceFunc(func(context.Context, *ownership.Map) (*ownership.Map, error) {
			return owned(1, address), nil
		})})
		require.NoError(t, err)
		defer registry.Close()
		base := node.Client().Transport.(*http.Transport).Clone()
		base.TLSClientConfig = &tls.Config{RootCAs: base.TLSClientConfig.RootCAs, ServerName: tc.serverName, MinVersion: tls.VersionTLS12}
		rt, err := roundtrippers.OwnershipBuilder{Dialect: &ownership.Dialect{}, Owners: registry, Base: base, Route: roundtrippers.Route{KeepHost: tc.keep}}.Build()
		require.NoError(t, err)
		resp, err := (&http.Client{Transport: rt}).Get("https://example.com/k")
		require.NoError(t, err)
		_ = resp.Body.Close()
		require.Equal(t, tc.want, names[len(names)-1])
		base.CloseIdleConnections()
	}
}

func TestRealExpectContinueIsNotSentToTheWrongNode(t *testing.T) { // R31
	var right, wrong atomic.Int64
	owner := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		right.Store(int64(len(body)))
	}))
	defer owner.Close()
	stale := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
		ownership.Reject(rw, ownership.Moved, ownership.Hint{Owner: strings.TrimPrefix(owner.URL, "http://"), Epoch: 2})
		wrong.Add(1)
	}))
	defer stale.Close()
	registry, err := ownership.New(ownership.Config{Source: ownership.MapSourceFunc(func(context.Context, *ownership.Map) (*ownership.Map, error) {
		m := owned(1, strings.TrimPrefix(stale.URL, "http://"))
		m.Nodes = []string{strings.TrimPrefix(owner.URL, "http://")}
		return m, nil
	})})
	require.NoError(t, err)
	defer registry.Close()
	base := http.DefaultTransport.(*http.Transport).Clone()
	base.ExpectContinueTimeout = 10 * time.Second
	defer base.CloseIdleConnections()
	rt, err := roundtrippers.OwnershipBuilder{Dialect: &ownership.Dialect{}, Owners: registry, Base: base}.Build()
	require.NoError(t, err)
	req, err := http.NewRequestWithContext(t.Context(), "PUT", "http://kv.test/k", strings.NewReader(strings.Repeat("x", 100_000)))
	require.NoError(t, err)
	req.Header.Set("Expect", "100-continue")
	resp, err := (&http.Client{Transport: rt}).Do(req)
	require.NoError(t, err)
	_ = resp.Body.Close()
	require.EqualValues(t, 100_000, right.Load())
	require.EqualValues(t, 1, wrong.Load())
}

func TestRealDiscardedAnswersKeepTheirConnection(t *testing.T) { // X06
	var mu sync.Mutex
	var from []string
	answers := []int{503, 503, 200}
	node := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		rw.WriteHeader(answers[len(from)])
		from = append(from, req.RemoteAddr)
		_, _ = io.WriteString(rw, "small")
	}))
	defer node.Close()
	registry, err := ownership.New(ownership.Config{Source: ownership.MapSourceFunc(func(context.Context, *ownership.Map) (*ownership.Map, error) {
		return owned(1, strings.TrimPrefix(node.URL, "http://")), nil
	})})
	require.NoError(t, err)
	defer registry.Close()
	d := &ownership.Dialect{}
	rt, err := roundtrippers.OwnershipBuilder{Dialect: d, Owners: registry, Reroute: roundtrippers.Reroute{Base: 1}}.Build()
	require.NoError(t, err)
	client := &http.Client{Transport: rt}
	defer client.CloseIdleConnections()
	resp, err := client.Get("http://kv.test/k")
	require.NoError(t, err)
	require.Equal(t, "small", text(t, resp))
	mu.Lock()
	defer mu.Unlock()
	require.Len(t, from, 3)
	require.Equal(t, []string{from[0], from[0], from[0]}, from, "one connection")
}

// Healthy operations cost little over the bare base.
func BenchmarkStack(b *testing.B) {
	base := middleware.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 200, Header: http.Header{}, Body: http.NoBody, Request: req}, nil
	})
	m := &ownership.Map{Epoch: 1, Segments: make([]ownership.Segment, 16384)}
	for i := range m.Segments {
		m.Segments[i].Owner = "node.test:80"
	}
	registry, err := ownership.New(ownership.Config{Source: ownership.MapSourceFunc(func(context.Context, *ownership.Map) (*ownership.Map, error) { return m, nil })})
	require.NoError(b, err)
	defer registry.Close()
	_, err = registry.Force(context.Background())
	require.NoError(b, err)
	run := func(rt http.RoundTripper) func(*testing.B) {
		return func(b *testing.B) {
			req := request(context.Background(), "GET", "")
			b.ReportAllocs()
			for b.Loop() {
				if _, err := rt.RoundTrip(req); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
	b.Run("bare", run(base))
	for name, timeout := range map[string]time.Duration{"stack": 0, "stack without deadline": -1} {
		rt, err := roundtrippers.OwnershipBuilder{
			Dialect: &ownership.Dialect{Key: ownership.PathKey("/kv/")}, Owners: registry, Base: base, OperationTimeout: timeout,
		}.Build()
		require.NoError(b, err)
		b.Run(name, run(rt))
	}
	b.Run("lookup", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if _, err := registry.Owner(context.Background(), "some key of a user"); err != nil {
					b.Fatal(err)
				}
			}
		})
	})
}

// Whoever panics, the next operation works and no answer stays open: the script fails the test if one does.
func TestAPanicOfTheUsersFunctionsLeavesNothingOpen(t *testing.T) { // R28
	armed := false
	boom := func() {
		if armed {
			panic("boom")
		}
	}
	for name, b := range map[string]roundtrippers.OwnershipBuilder{
		"classifier": {Dialect: &ownership.Dialect{Key: ownership.PathKey("/kv/"), Classify: func(*http.Response) (ownership.Status, bool) { boom(); return 0, false }}},
		"key":        {Dialect: &ownership.Dialect{Key: func(*http.Request) string { boom(); return "k" }}},
		"observer": {Observe: func(_ context.Context, e middleware.Event) {
			if e.Kind == middleware.AttemptEnded {
				boom()
			}
		}},
		"observer of the refresh": {Observe: func(_ context.Context, e middleware.Event) {
			if e.Kind == middleware.RangesRefreshed {
				boom()
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := moving(t)
				rt := s.build(b)
				armed = true
				req := request(t.Context(), "PUT", "")
				body := layertest.NewBody("the body")
				req.Body = body
				require.PanicsWithValue(t, "boom", func() { _, _ = rt.RoundTrip(req) })
				require.Equal(t, 1, body.Closes(), "X04")
				armed = false
				status, err := send(t.Context(), rt)
				require.NoError(t, err)
				require.Equal(t, 200, status)
			})
		})
	}
	t.Run("segment function", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newShards(t, map[string][]layertest.Step{"a": says("200")})
			var err error
			s.registry, err = ownership.New(ownership.Config{Source: ownership.MapSourceFunc(s.read), Segment: func(string, int) int { boom(); return 0 }})
			require.NoError(t, err)
			rt := s.build(roundtrippers.OwnershipBuilder{})
			armed = true
			require.PanicsWithValue(t, "boom", func() { _, _ = send(t.Context(), rt) })
			armed = false
			status, err := send(t.Context(), rt)
			require.NoError(t, err)
			require.Equal(t, 200, status)
		})
	})
}

func TestTheEndOfABodyEndsTheOperationsContextOnce(t *testing.T) { // R33
	synctest.Test(t, func(t *testing.T) {
		var governs context.Context
		answer := layertest.Step{Answer: func(req *http.Request) (*http.Response, error) {
			governs = req.Context()
			return &http.Response{StatusCode: 200, Header: http.Header{}, Request: req, Body: io.NopCloser(readerFunc(func(p []byte) (int, error) {
				if err := governs.Err(); err != nil {
					return 0, err
				}
				return copy(p, "v"), nil
			}))}, nil
		}}
		s := newShards(t, map[string][]layertest.Step{"a": {answer}})
		rt := s.build(roundtrippers.OwnershipBuilder{OperationTimeout: time.Minute, AttemptTimeout: time.Second})
		closed, err := rt.RoundTrip(request(t.Context(), "GET", ""))
		require.NoError(t, err)
		require.NoError(t, governs.Err())
		require.NoError(t, closed.Body.Close())
		require.NoError(t, closed.Body.Close(), "twice")
		require.Error(t, governs.Err())

		ctx, cancel := context.WithCancel(t.Context())
		left, err := rt.RoundTrip(request(ctx, "GET", ""))
		require.NoError(t, err)
		cancel()
		_, err = left.Body.Read(make([]byte, 1))
		require.ErrorIs(t, err, context.Canceled, "read after the caller has left")
		require.NoError(t, left.Body.Close())

		_, err = rt.RoundTrip(request(t.Context(), "GET", "")) // never closed
		require.NoError(t, err)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.ErrorIs(t, governs.Err(), context.DeadlineExceeded)
	})
}

func TestRealShortBodyOfTheSecondSendIsAnErrorAtOnce(t *testing.T) { // R32
	var sends atomic.Int64
	node := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body)
		sends.Add(1)
		ownership.Reject(rw, ownership.Unavailable, ownership.Hint{})
	}))
	defer node.Close()
	registry, err := ownership.New(ownership.Config{Source: ownership.MapSourceFunc(func(context.Context, *ownership.Map) (*ownership.Map, error) {
		return owned(1, strings.TrimPrefix(node.URL, "http://")), nil
	})})
	require.NoError(t, err)
	defer registry.Close()
	rt, err := roundtrippers.OwnershipBuilder{Dialect: &ownership.Dialect{}, Owners: registry, Base: node.Client().Transport,
		Reroute: roundtrippers.Reroute{Attempts: 10, Base: 1}}.Build()
	require.NoError(t, err)
	req, err := http.NewRequestWithContext(t.Context(), "PUT", "http://kv.test/k", strings.NewReader("the body"))
	require.NoError(t, err)
	req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("the")), nil }
	_, err = rt.RoundTrip(req)
	var length *middleware.BodyLengthError
	require.ErrorAs(t, err, &length)
	require.Equal(t, middleware.BodyLengthError{Announced: 8, Read: 3}, *length)
	require.Equal(t, 2, reportOf(t, nil, err).Sends)
	require.LessOrEqual(t, sends.Load(), int64(2))
}
