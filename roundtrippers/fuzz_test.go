package roundtrippers_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/layertest"
	"github.com/reroute-go/reroute/roundtrippers"
)

// dice reads decisions off a fuzzer's bytes; beyond their end all are 0.
type dice struct{ left []byte }

func (d *dice) roll(sides int) int {
	if len(d.left) == 0 {
		return 0
	}
	n := int(d.left[0]) % sides
	d.left = d.left[1:]
	return n
}

var (
	fuzzFine     = layertest.Step{Body: "{}"}
	fuzzPatience = []time.Duration{time.Minute, time.Millisecond, 300 * time.Millisecond, 2 * time.Second, 5 * time.Minute}
	fuzzDelays   = []time.Duration{0, time.Millisecond, 700 * time.Millisecond, 3 * time.Second, time.Minute}
)

// fuzzCall is one operation of a script.
type fuzzCall struct {
	request            request
	body               string
	after, patience    time.Duration
	leaves             time.Duration // 0 = the caller stays
	excluded           string
	steps              []layertest.Step
	unapplied          []bool // of each step: nothing was carried out
	source             *layertest.Body
	req                *http.Request
	before             http.Request
	headers, urlBefore string
}

// drawCall reads: operation, body, when it starts, patience, whether the caller leaves, excluded region, steps.
func drawCall(d *dice) *fuzzCall {
	c := &fuzzCall{request: everyOperation[d.roll(len(everyOperation))], body: []string{"as it is", "kept", "streamed", "GetBody"}[d.roll(4)]}
	c.after, c.patience = fuzzDelays[d.roll(4)], fuzzPatience[d.roll(len(fuzzPatience))]
	if d.roll(3) == 2 {
		c.leaves = c.patience / 2
	}
	c.excluded = []string{"", "", "b", "c", "a"}[d.roll(5)]
	for range 1 + d.roll(6) {
		step, unapplied := fuzzFine, false
		if n := d.roll(2 * len(faults)); n < len(faults) {
			step = faults[n].step
			switch {
			case step.Status == 408, step.Status >= 500, step.Hang, strings.HasPrefix(faults[n].row, "transport, maybe"):
			default:
				unapplied = true
			}
		}
		step.Delay = fuzzDelays[d.roll(len(fuzzDelays))]
		c.steps, c.unapplied = append(c.steps, step), append(c.unapplied, unapplied)
	}
	return c
}

func (c *fuzzCall) prepare(t *testing.T, number int) (cancel context.CancelFunc) {
	ctx, cancel := context.WithTimeout(t.Context(), c.patience)
	if c.leaves > 0 {
		time.AfterFunc(c.leaves, cancel)
	}
	if c.excluded != "" {
		ctx = excluding(ctx, c.excluded)
	}
	c.req = c.request.to(ctx)
	c.req.Header.Set("X-Op", strconv.Itoa(number))
	if c.req.Body != nil && c.body != "as it is" {
		c.source = layertest.NewBody(c.request.body)
		c.req.Body, c.req.ContentLength = c.source, -1
		if c.body != "GetBody" {
			c.req.GetBody = nil
		}
	}
	c.before, c.headers, c.urlBefore = *c.req, fmt.Sprint(c.req.Header), c.req.URL.String()
	return cancel
}

// end is when the caller is gone, counted from the script's beginning.
func (c *fuzzCall) end() time.Duration {
	if c.leaves > 0 {
		return c.after + c.leaves
	}
	return c.after + c.patience
}

func (c *fuzzCall) unchanged(t *testing.T) {
	require.Equal(t, c.headers, fmt.Sprint(c.req.Header))
	require.Equal(t, c.urlBefore, c.req.URL.String())
	require.Equal(t, c.before.Method, c.req.Method)
	require.Equal(t, c.before.Host, c.req.Host)
	require.Equal(t, c.before.ContentLength, c.req.ContentLength)
	require.True(t, c.before.Body == c.req.Body, "the body in its place")
	require.Equal(t, c.before.GetBody == nil, c.req.GetBody == nil)
}

// A whole Cosmos DB stack, driven by a script of operations, answers, waits and
// cancellations that is read off the fuzzer's bytes. What must hold whatever
// happens: exactly one of answer and error; no more sends than Describe says, none
// after the caller's end, none in an excluded region; a stored procedure is sent
// again only where nothing can have run; the caller's request is untouched; each
// send has the whole body; all bodies are closed; and nobody is kept beyond the
// deadline.
func FuzzStack(f *testing.F) {
	f.Add([]byte{})
	for n := range faults { // each fault once, twice, and for ever, under each operation
		f.Add([]byte{byte(n), byte(n), byte(n), 0, 0, 0, 0, 0, 2, byte(n), 0, byte(n), 0, byte(2 * len(faults)), 0})
		f.Add([]byte{byte(n), 0, 8, 1, 0, 4, 0, 2, 0, byte(n), 1})
	}
	f.Fuzz(func(t *testing.T, script []byte) {
		synctest.Test(t, func(t *testing.T) { playScript(t, &dice{left: script}) })
	})
}

func playScript(t *testing.T, d *dice) {
	multiWrite, partitioned, limited := d.roll(2) == 1, d.roll(2) == 1, d.roll(4) == 3
	calls := make([]*fuzzCall, 1+d.roll(3))
	for i := range calls {
		calls[i] = drawCall(d)
	}
	var mu sync.Mutex
	asked := make([]int, len(calls))
	account, script := openAccount(t, multiWrite, func(req *http.Request) layertest.Step {
		n, _ := strconv.Atoi(req.Header.Get("X-Op"))
		mu.Lock()
		defer mu.Unlock()
		at := min(asked[n], len(calls[n].steps)-1)
		asked[n]++
		return calls[n].steps[at]
	})
	b := roundtrippers.Builder{Dialect: account, Regions: account.Regions, Base: script}
	if partitioned {
		b.Partitions = account.Partitions
	}
	if limited {
		b.AttemptTimeout, b.MaxReplayBytes = time.Second, 4
	}
	var log lockedBuffer
	b.Observe = middleware.LogTo(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	rt, err := b.Build()
	require.NoError(t, err)
	bound := boundOf(t, rt)
	started := time.Now()
	var all sync.WaitGroup
	for n, c := range calls {
		all.Go(func() {
			time.Sleep(c.after)
			defer c.prepare(t, n)()
			began := time.Now()
			got := tell(t, rt, c.req)
			took := time.Since(began)
			require.LessOrEqual(t, c.after+took, c.end(), "%s", got.Report)
			c.unchanged(t)
			if c.source != nil {
				require.Equal(t, 1, c.source.Closes())
			}
			require.NotEqual(t, middleware.NotStopped, got.Stop)
			require.LessOrEqual(t, got.Sends, bound)
		})
	}
	all.Wait()
	synctest.Wait() // a shared refresh may be closing its answer at this very instant
	require.Less(t, time.Since(started), time.Hour)
	for n, c := range calls {
		sends := slices.DeleteFunc(dataSends(script), func(s layertest.Send) bool { return s.Header.Get("X-Op") != strconv.Itoa(n) })
		require.LessOrEqual(t, len(sends), bound)
		for i, s := range sends {
			if s.Ended != nil { // both fell due at the same instant
				require.Equal(t, c.end(), s.After, "sent after the caller's end")
			}
			require.Equal(t, c.request.body, s.Body)
			require.NotEqual(t, accountHost, s.URL.Host, "the global endpoint")
			require.Equal(t, s.URL.Host, s.Host)
			if c.excluded != "" {
				require.NotEqual(t, regionHost(c.excluded), s.URL.Host)
			}
			if c.request.name == "sproc execute" && i < len(sends)-1 {
				at := min(i, len(c.steps)-1)
				cut := limited && c.steps[at].Delay >= b.AttemptTimeout
				require.True(t, c.unapplied[at] && !cut, "send %d may have run, and there is another", i+1)
			}
		}
	}
	require.NotContains(t, log.String(), accountKey)
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// A session token is opaque: whatever it is, it goes with every attempt as it is,
// moves nothing but the session's own retry, and shows in no error, event or log.
func FuzzSessionToken(f *testing.F) {
	for _, token := range []string{"", "0:1#2#3=4", "0:5,1:-1#6", "::", "0:1#2#3=-1,", strings.Repeat("0:1#9,", 2000), "\r\nX-Evil: 1", "\x00", "ü"} {
		f.Add(token, "0:-1#7", true)
		f.Add(token, token, false)
	}
	f.Fuzz(func(t *testing.T, token, answered string, multiWrite bool) {
		synctest.Test(t, func(t *testing.T) {
			const name = "X-Ms-Session-Token"
			account, script := openAccount(t, multiWrite, func(*http.Request) layertest.Step {
				return layertest.Step{Status: 404, Header: map[string]string{"X-Ms-Substatus": "1002", name: answered}}
			})
			var log lockedBuffer
			rt, err := roundtrippers.Builder{Dialect: account, Regions: account.Regions, Partitions: account.Partitions, Base: script,
				Observe: middleware.LogTo(slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))}.Build()
			require.NoError(t, err)
			req := everyOperation[0].to(t.Context())
			req.Header[name] = []string{token}
			resp, err := rt.RoundTrip(req)
			require.NoError(t, err)
			_, err = io.Copy(io.Discard, resp.Body)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			require.Equal(t, 404, resp.StatusCode)
			require.Equal(t, answered, resp.Header.Get(name))
			sends := dataSends(script)
			require.Len(t, sends, 3) // the hub twice more, or each region once
			for _, s := range sends {
				require.Equal(t, []string{token}, s.Header[name])
			}
			require.Equal(t, []string{token}, req.Header[name])
			if len(token) > 20 {
				require.NotContains(t, log.String(), token)
				require.NotContains(t, middleware.FromResponse(resp).Report().String(), token)
			}
		})
	})
}
