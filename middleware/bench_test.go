package middleware_test

import (
	"context"
	"net/http"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/middleware"
)

// instant answers without allocating.
type instant struct{ answer http.Response }

func (i *instant) RoundTrip(*http.Request) (*http.Response, error) { return &i.answer, nil }

func healthy() *instant { return &instant{http.Response{StatusCode: 200, Body: http.NoBody}} }

// frugal is a dialect that allocates nothing.
type frugal struct{}

func (frugal) Intent(*http.Request) middleware.Intent { return middleware.Intent{Name: "frugal"} }

func (frugal) Judge(_ *middleware.Intent, resp *http.Response, _ error) middleware.Outcome {
	if resp.StatusCode == 200 {
		return middleware.Outcome{Cause: middleware.Success, Status: 200}
	}
	return middleware.Outcome{Cause: middleware.Unavailable, Status: resp.StatusCode}
}

func fiveLoops(t testing.TB, base http.RoundTripper) http.RoundTripper {
	loop := again{Dialect: frugal{}}
	return stack(t, base, loop, loop, loop, loop, loop)
}

func TestAHealthyOperationCostsOneAllocation(t *testing.T) { // DESIGN 5
	base := healthy()
	req := get(context.Background())
	rt := fiveLoops(t, base)
	send := func() {
		base.answer.Request = nil
		_, _ = rt.RoundTrip(req)
	}
	allocs := testing.AllocsPerRun(100, send)
	require.LessOrEqual(t, allocs, 1.0, "operation and request in one")
	t.Logf("an Operation is %d bytes", unsafe.Sizeof(middleware.Operation{}))
}

func TestARetryCostsAtMostThreeAllocations(t *testing.T) { // DESIGN 5
	base := &failingOnce{ok: healthy().answer, bad: http.Response{StatusCode: 503, Body: http.NoBody}}
	rt := fiveLoops(t, base)
	req := get(context.Background())
	allocs := testing.AllocsPerRun(100, func() {
		base.ok.Request = nil
		base.sent = false
		_, _ = rt.RoundTrip(req)
	})
	require.LessOrEqual(t, allocs, 1.0+3)
}

type failingOnce struct {
	ok, bad http.Response
	sent    bool
}

func (f *failingOnce) RoundTrip(*http.Request) (*http.Response, error) {
	if f.sent {
		return &f.ok, nil
	}
	f.sent = true
	return &f.bad, nil
}

func BenchmarkStack(b *testing.B) {
	for name, build := range map[string]func(http.RoundTripper) http.RoundTripper{
		"bare":       func(base http.RoundTripper) http.RoundTripper { return base },
		"no layer":   func(base http.RoundTripper) http.RoundTripper { return stack(b, base) },
		"one loop":   func(base http.RoundTripper) http.RoundTripper { return stack(b, base, again{Dialect: frugal{}}) },
		"five loops": func(base http.RoundTripper) http.RoundTripper { return fiveLoops(b, base) },
		"observed": func(base http.RoundTripper) http.RoundTripper {
			return stack(b, base, middleware.Observer(func(context.Context, middleware.Event) {}), again{Dialect: frugal{}})
		},
	} {
		b.Run(name, func(b *testing.B) {
			base := healthy()
			rt, req := build(base), get(context.Background())
			b.ReportAllocs()
			for b.Loop() {
				base.answer.Request = nil
				_, _ = rt.RoundTrip(req)
			}
		})
	}
}
