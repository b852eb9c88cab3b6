package roundtrippers_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/layertest"
	"github.com/reroute-go/reroute/middleware/ownership"
	"github.com/reroute-go/reroute/middleware/rest"
	"github.com/reroute-go/reroute/roundtrippers"
)

// The tests named TestB.. are the cases of the public bug log, one each, over the
// stacks that users have; testdata/buglog.md lists them.

// ready is one of the three ready-made stacks. Each sends a PUT or GET that is
// answered 503 again, twice at most in all.
type ready struct {
	name    string
	rt      http.RoundTripper
	request func(ctx context.Context, method string, body io.Reader) *http.Request
}

// tuned is what a case wants of all three.
type tuned struct {
	attemptTimeout time.Duration
	maxReplay      int64
	perAttempt     []middleware.Layer
	observe        middleware.Observer
}

var kvDialect = &ownership.Dialect{Key: ownership.PathKey("/kv/")}

// kvRest is the dialect of plain APIs.
var kvRest = rest.Dialect{}

var kinds = []string{"Builder", "APIBuilder", "OwnershipBuilder"}

// makeReady builds the stack of a kind over base. node is where base serves: "" for
// scripts, which serve anywhere.
func makeReady(t *testing.T, kind string, base http.RoundTripper, node string, o tuned) ready {
	t.Helper()
	r := ready{name: kind}
	service := "http://" + orElse(node, "a.test") + "/kv/k"
	var err error
	switch kind {
	case "Builder": // of a service without regions: the same over an Account is makeCosmos
		r.rt, err = roundtrippers.Builder{Dialect: rest.Dialect{}, Base: base, AttemptTimeout: o.attemptTimeout, MaxReplayBytes: o.maxReplay,
			PerAttempt: o.perAttempt, Observe: o.observe, Failover: roundtrippers.Failover{Retries: 2}}.Build()
	case "APIBuilder":
		r.rt, err = roundtrippers.APIBuilder{Dialect: rest.Dialect{}, Base: base, AttemptTimeout: o.attemptTimeout, MaxReplayBytes: o.maxReplay,
			PerAttempt: o.perAttempt, Observe: o.observe, Circuit: &roundtrippers.Circuit{Threshold: 100}}.Build()
	case "OwnershipBuilder":
		owners := ownersOf(t, orElse(node, "a.test"))
		r.rt, err = roundtrippers.OwnershipBuilder{Dialect: kvDialect, Owners: owners, Base: base,
			AttemptTimeout: o.attemptTimeout, MaxReplayBytes: o.maxReplay, PerAttempt: o.perAttempt, Observe: o.observe}.Build()
	}
	require.NoError(t, err)
	r.request = func(ctx context.Context, method string, body io.Reader) *http.Request {
		ctx = patiently(ctx, middleware.Patience{Retries: 2, Base: 100 * time.Millisecond})
		req, err := http.NewRequestWithContext(ctx, method, service, body)
		require.NoError(t, err)
		return req
	}
	return r
}

// ownersOf is a registry whose map has one owner.
func ownersOf(t *testing.T, node string) *ownership.Registry {
	t.Helper()
	owners, err := ownership.New(ownership.Config{Source: ownership.MapSourceFunc(func(context.Context, *ownership.Map) (*ownership.Map, error) {
		return &ownership.Map{Epoch: 1, Segments: []ownership.Segment{{Owner: node}}}, nil
	})})
	require.NoError(t, err)
	t.Cleanup(owners.Close)
	return owners
}

// inReady runs a case over each ready-made stack, in virtual time.
func inReady(t *testing.T, o tuned, base func(t *testing.T) http.RoundTripper, run func(t *testing.T, r ready)) {
	t.Helper()
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { run(t, makeReady(t, kind, base(t), "", o)) })
		})
	}
}

// overScript runs a case over each ready-made stack and a script of its own.
func overScript(t *testing.T, o tuned, steps []layertest.Step, run func(t *testing.T, r ready, script *layertest.Script)) {
	t.Helper()
	var script *layertest.Script
	inReady(t, o, func(t *testing.T) http.RoundTripper {
		script = layertest.NewScript(t, steps...)
		return script
	}, func(t *testing.T, r ready) { run(t, r, script) })
}

// overCosmos runs a case over the Cosmos DB stack, regions a, b and c, of a
// single-write account, or one with three write regions.
func overCosmos(t *testing.T, multiWrite bool, b roundtrippers.Builder, answer func(*http.Request) layertest.Step, run func(t *testing.T, rt http.RoundTripper, sends func() []layertest.Send)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		account, script := openAccount(t, multiWrite, answer)
		b.Dialect, b.Regions, b.Partitions, b.Base = account, account.Regions, account.Partitions, script
		rt, err := b.Build()
		require.NoError(t, err)
		run(t, rt, func() []layertest.Send { return dataSends(script) })
	})
}

// inOrder answers with one step after the other and repeats the last.
func inOrder(steps ...layertest.Step) func(*http.Request) layertest.Step {
	n := 0
	return func(*http.Request) layertest.Step {
		n++
		return steps[min(n, len(steps))-1]
	}
}

func operation(name string) request {
	for _, r := range everyOperation {
		if r.name == name {
			return r
		}
	}
	panic(name)
}

func gapsOf(sends []layertest.Send) (gaps []time.Duration) {
	for i := 1; i < len(sends); i++ {
		gaps = append(gaps, sends[i].After-sends[i-1].After)
	}
	return gaps
}

func orElse(text, other string) string {
	if text == "" {
		return other
	}
	return text
}

var (
	refusedDial = &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	resetConn   = &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}
	errBoom     = errors.New("boom")
)

// oneShot is a body without GetBody, of known length.
func oneShot(req *http.Request, text string) (*http.Request, *layertest.Body) {
	body := layertest.NewBody(text)
	req.Body, req.GetBody, req.ContentLength = body, nil, int64(len(text))
	return req, body
}

// exactlyOne is the contract of RoundTrip: an answer, read and closed, or an error.
func exactlyOne(t *testing.T, rt http.RoundTripper, req *http.Request) (status int, body string, err error) {
	t.Helper()
	resp, err := rt.RoundTrip(req)
	if err != nil {
		require.Nil(t, resp)
		return 0, "", err
	}
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return resp.StatusCode, string(text), nil
}

func permutations(n int) (out [][]int) {
	if n == 0 {
		return [][]int{nil}
	}
	for _, p := range permutations(n - 1) {
		for at := range n {
			out = append(out, append(append(append([]int(nil), p[:at]...), n-1), p[at:]...))
		}
	}
	return out
}

func repeated(text string, n int) string { return strings.Repeat(text, n/len(text)+1)[:n] }

// everyTime is the policy of a layer that sends again as often as its budget allows.
func everyTime(budget *middleware.Budget) middleware.Policy {
	return func(context.Context, *middleware.Operation, middleware.Outcome) middleware.Verdict {
		return middleware.Verdict{Budget: budget}
	}
}
