package roundtrippers_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/cosmos"
	"github.com/reroute-go/reroute/partitions"
	"github.com/reroute-go/reroute/regions"
	"github.com/reroute-go/reroute/roundtrippers"
)

// Whoever waits for a server that never ends here waits until the test's own limit.

// hostility is what a server says instead of an answer, for as long as it can.
type hostility struct {
	name string
	say  func(w io.Writer) error
}

func forever(w io.Writer, text string, every time.Duration) error {
	for {
		if _, err := io.WriteString(w, text); err != nil {
			return err
		}
		time.Sleep(every)
	}
}

func once(text string) func(io.Writer) error {
	return func(w io.Writer) error { _, err := io.WriteString(w, text); return err }
}

func then(head string, tail func(io.Writer) error) func(io.Writer) error {
	return func(w io.Writer) error {
		if _, err := io.WriteString(w, head); err != nil {
			return err
		}
		return tail(w)
	}
}

var bomb = func() string {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write(make([]byte, 64<<20))
	_ = z.Close()
	return b.String()
}()

var hostilities = []hostility{
	{"says nothing and closes", func(io.Writer) error { return io.EOF }},
	{"says nothing", func(w io.Writer) error { _, err := w.(net.Conn).Read(make([]byte, 1)); return err }},
	{"garbage", once("\x00\xff\x16\x03\x01 garbage\r\n\r\n")},
	{"a status beyond all", once("HTTP/1.1 99999 Oh\r\n\r\n")},
	{"status 000", once("HTTP/1.1 000 Oh\r\nContent-Length: 0\r\n\r\n")},
	{"status 999", once("HTTP/1.1 999 Oh\r\nContent-Length: 0\r\n\r\n")},
	{"endless status line", func(w io.Writer) error { return forever(w, "HTTP/1.1 200 "+strings.Repeat("x", 4096), 0) }},
	{"endless headers", then("HTTP/1.1 503 No\r\n", func(w io.Writer) error { return forever(w, "X-A: "+strings.Repeat("b", 4096)+"\r\n", 0) })},
	{"trickling headers", then("HTTP/1.1 503 No\r\n", func(w io.Writer) error { return forever(w, "X: y\r\n", 20*time.Millisecond) })},
	{"flood of 1xx", func(w io.Writer) error { return forever(w, "HTTP/1.1 103 Early\r\nLink: x\r\n\r\n", 0) }},
	{"flood of 100", func(w io.Writer) error { return forever(w, "HTTP/1.1 100 Continue\r\n\r\n", 0) }},
	{"1 GiB of error", then("HTTP/1.1 503 No\r\nContent-Length: 1073741824\r\n\r\n", func(w io.Writer) error { return forever(w, strings.Repeat("e", 64<<10), 0) })},
	{"endless error", then("HTTP/1.1 503 No\r\nTransfer-Encoding: chunked\r\n\r\n", func(w io.Writer) error {
		return forever(w, "10000\r\n"+strings.Repeat("e", 1<<16)+"\r\n", 0)
	})},
	{"trickling error", then("HTTP/1.1 503 No\r\nTransfer-Encoding: chunked\r\n\r\n", func(w io.Writer) error { return forever(w, "1\r\ne\r\n", 20*time.Millisecond) })},
	{"bomb", once("HTTP/1.1 503 No\r\nContent-Encoding: gzip\r\nContent-Length: " + strconv.Itoa(len(bomb)) + "\r\n\r\n" + bomb)},
	{"cut error", once("HTTP/1.1 503 No\r\nContent-Length: 10\r\n\r\nabc")},
	{"two lengths", once("HTTP/1.1 503 No\r\nContent-Length: 10\r\nContent-Length: 3\r\n\r\nabc")},
	{"a negative length", once("HTTP/1.1 503 No\r\nContent-Length: -10\r\n\r\nabc")},
	{"a negative wish", once("HTTP/1.1 503 No\r\nRetry-After: -10\r\nContent-Length: 0\r\n\r\n")},
	{"a wish without end", once("HTTP/1.1 429 No\r\nX-Ms-Retry-After-Ms: 9000000000000000000\r\nContent-Length: 0\r\n\r\n")},
	{"a wish for NaN", once("HTTP/1.1 449 No\r\nX-Ms-Retry-After-Ms: NaN\r\nRetry-After: Infinity\r\nContent-Length: 0\r\n\r\n")},
	{"junk substatus", once("HTTP/1.1 410 Gone\r\nX-Ms-Substatus: 99999999999999999999\r\nContent-Length: 0\r\n\r\n")},
	{"stale for ever", once("HTTP/1.1 410 Gone\r\nX-Ms-Substatus: 1002\r\nContent-Length: 0\r\n\r\n")},
	{"an upgrade that nobody asked for", then("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n", func(w io.Writer) error { return forever(w, "body", 20*time.Millisecond) })},
}

// hostileAccount has two regions: in the first, whatever say says; in the second, a good service.
type hostileAccount struct {
	rt    http.RoundTripper
	pools *roundtrippers.Pools
	url   string
	say   atomic.Pointer[func(io.Writer) error]
}

func newHostileAccount(t *testing.T, b roundtrippers.Builder) *hostileAccount {
	t.Helper()
	a := &hostileAccount{}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer conn.Close()
				if req, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
					_, _ = io.Copy(io.Discard, req.Body)
					_ = (*a.say.Load())(conn)
				}
			})
		}
	})
	var good *httptest.Server
	good = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		host := strings.TrimPrefix(good.URL, "http://")
		switch path := req.URL.Path; {
		case path == "/":
			fmt.Fprintf(w, `{"writableLocations":[{"name":"bad","databaseAccountEndpoint":"http://%s"},{"name":"good","databaseAccountEndpoint":"http://%s"}],"enableMultipleWriteLocations":true}`, listener.Addr(), host)
		case strings.HasSuffix(path, "/colls/c"):
			fmt.Fprint(w, `{"_rid":"r","partitionKey":{"paths":["/p"],"kind":"Hash","version":2}}`)
		case strings.HasSuffix(path, "/pkranges"):
			if w.Header().Set("Etag", "e"); req.Header.Get("If-None-Match") != "" {
				w.WriteHeader(304)
				return
			}
			fmt.Fprint(w, `{"PartitionKeyRanges":[{"id":"0","minInclusive":"","maxExclusive":"FF"}]}`)
		default:
			body, _ := io.ReadAll(req.Body)
			_, _ = w.Write(append([]byte("good "), body...))
		}
	}))
	account, err := cosmos.Open(t.Context(), good.URL, cosmos.SharedKey(base64.StdEncoding.EncodeToString([]byte("key"))),
		cosmos.Options{PreferredRegions: []regions.Name{"bad", "good"}, MarkFor: time.Millisecond, RequestTimeout: 5 * time.Second, Partitions: partitions.Config{RefreshWait: 50 * time.Millisecond, Failover: partitions.FailoverOptions{ReadFailures: 1 << 20, WriteFailures: 1 << 20}}})
	require.NoError(t, err)
	a.pools, a.url = &roundtrippers.Pools{}, good.URL+"/dbs/d/colls/c/docs"
	b.Dialect, b.Regions, b.Partitions, b.Base = account, account.Regions, account.Partitions, a.pools
	a.rt, err = b.Build()
	require.NoError(t, err)
	t.Cleanup(func() {
		account.Close()
		a.pools.CloseIdleConnections()
		_ = listener.Close()
		good.Close()
		serving.Wait() // every connection is given up
	})
	return a
}

func (a *hostileAccount) request(ctx context.Context, method string) *http.Request {
	url := a.url
	if method == http.MethodGet {
		url += "/x"
	}
	req, _ := http.NewRequestWithContext(ctx, method, url, strings.NewReader(strings.Repeat("b", 3000)))
	if method == http.MethodGet {
		req.Body, req.GetBody, req.ContentLength = nil, nil, 0
	}
	req.Header.Set("X-Ms-Documentdb-Partitionkey", `["a"]`)
	return req
}

func TestRealHostileServersAreLeftInTimeAndMemory(t *testing.T) {
	for i, h := range hostilities {
		method := []string{"GET", "POST"}[i%2]
		t.Run(h.name+" "+method, func(t *testing.T) {
			a := newHostileAccount(t, roundtrippers.Builder{AttemptTimeout: 300 * time.Millisecond, OperationTimeout: 5 * time.Second,
				Throttle: roundtrippers.Throttle{Retries: 2, MaxWait: time.Second}, RetryWith: roundtrippers.RetryWith{Retries: 2}, Partition: roundtrippers.Partition{Retries: 1}})
			a.say.Store(&h.say)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			resp, err := a.rt.RoundTrip(a.request(t.Context(), method))
			runtime.ReadMemStats(&after)
			require.Less(t, int64(after.HeapInuse)-int64(before.HeapInuse), int64(256<<20))
			require.NoError(t, err)
			report := middleware.FromResponse(resp).Report()
			require.LessOrEqual(t, report.Sends, sends(t, middleware.Describe(a.rt)))
			require.Equal(t, "bad", string(report.Attempts[0].Region))
			t.Log(report)
			require.NoError(t, resp.Body.Close())
		})
	}
}

func sends(t *testing.T, described string) int {
	t.Helper()
	n, err := strconv.Atoi(regexp.MustCompile(`at most (\d+) sends`).FindStringSubmatch(described)[1])
	require.NoError(t, err)
	return n
}

func TestRealHostileServersUnderLoadLeakNothing(t *testing.T) {
	before := runtime.NumGoroutine()
	t.Run("load", func(t *testing.T) {
		a := newHostileAccount(t, roundtrippers.Builder{AttemptTimeout: 100 * time.Millisecond, OperationTimeout: 2 * time.Second,
			Throttle: roundtrippers.Throttle{Retries: 2, MaxWait: time.Second}, RetryWith: roundtrippers.RetryWith{Retries: 2}, Partition: roundtrippers.Partition{Retries: 1}})
		limit := sends(t, middleware.Describe(a.rt))
		a.say.Store(new(func(w io.Writer) error { return hostilities[rand.N(len(hostilities))].say(w) }))
		shared := a.request(t.Context(), "GET")
		shared.Header.Set("Authorization", "secret")
		shape := fmt.Sprintf("%v", *shared)
		var load sync.WaitGroup
		for range 64 {
			load.Go(func() {
				for range 4 {
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rand.N(int64(2*time.Second))))
					if rand.N(2) == 0 {
						ctx, cancel = context.WithCancel(t.Context())
						time.AfterFunc(rand.N(time.Second), cancel)
					}
					req := a.request(ctx, []string{"GET", "POST"}[rand.N(2)])
					if rand.N(4) == 0 {
						req = shared
					}
					resp, err := a.rt.RoundTrip(req)
					if err == nil {
						if n := middleware.FromResponse(resp).Report().Sends; n > limit {
							t.Errorf("%d sends", n)
						}
						if resp.StatusCode != 101 {
							_, _ = io.CopyN(io.Discard, resp.Body, 1000)
						}
						_ = resp.Body.Close()
					} else if strings.Contains(err.Error(), "secret") {
						t.Error(err)
					}
					cancel()
				}
			})
		}
		load.Wait()
		require.Equal(t, shape, fmt.Sprintf("%v", *shared), "the caller's request stays as it was")
		for _, e := range a.pools.Stats() {
			require.Zero(t, e.InFlight, e.Endpoint)
		}
	})
	require.Eventually(t, func() bool { return runtime.NumGoroutine() <= before+2 }, 10*time.Second, 10*time.Millisecond)
}

func TestARequestWithoutAnAddressIsRefused(t *testing.T) {
	inWorld(t, setup{partitioned: true}, func(t *testing.T, w *world) {
		for _, req := range []*http.Request{{}, {Method: "GET"}, {Method: "POST", Header: http.Header{}, Body: http.NoBody}} {
			resp, err := w.rt.RoundTrip(req)
			require.Nil(t, resp)
			require.ErrorContains(t, err, "URL")
		}
	})
}
