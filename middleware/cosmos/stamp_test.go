package cosmos

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/middleware"
)

func TestRequestsAreStampedWhereTheServiceNeedsIt(t *testing.T) {
	read, write := middleware.Intent{}, middleware.Intent{Write: true}
	metaWrite := middleware.Intent{Scope: middleware.Metadata, Write: true}
	for _, c := range []struct {
		name             string
		in               middleware.Intent
		multi            bool
		has              http.Header
		no449, tentative []string
	}{
		{"a read", read, false, nil, yes, nil},
		{"a read with many write regions", read, true, nil, yes, nil},
		{"a write with one write region", write, false, nil, yes, nil},
		{"a write with many write regions", write, true, nil, yes, yes},
		{"a metadata write", metaWrite, true, nil, yes, yes},
		{"the caller's word stands", write, true,
			http.Header{headerNoRetry449: {"False"}, headerAllowTentativeWrites: {"false"}}, []string{"False"}, []string{"false"}},
		{"one of two is there", write, true, http.Header{headerNoRetry449: {"true"}}, yes, yes},
		{"discovery", middleware.Intent{Scope: middleware.Discovery}, true, nil, nil, nil},
		{"foreign", middleware.Intent{Scope: middleware.Foreign, Write: true}, true, nil, nil, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := c.has.Clone()
			if h == nil {
				h = http.Header{}
			}
			h.Set("Authorization", "signed")
			before := h.Clone()
			out := stamp(&c.in, h, c.multi)
			require.Equal(t, before, h, "the caller's headers are the caller's")
			require.Equal(t, c.no449, out[headerNoRetry449])
			require.Equal(t, c.tentative, out[headerAllowTentativeWrites])
			require.Equal(t, "signed", out.Get("Authorization"))
			again := stamp(&c.in, out, c.multi)
			require.Equal(t, out, again)
		})
	}
}

func TestAppendingToAStampedHeaderReachesNobodyElse(t *testing.T) {
	array := []string{"a", "spare"}
	h := http.Header{"X-Own": array[:1]}
	out := stamp(&middleware.Intent{}, h, false)
	out.Add("X-Own", "b")
	out.Add(headerNoRetry449, "again")
	require.Equal(t, []string{"a", "spare"}, array)
	require.Equal(t, []string{"true"}, yes)
	require.Equal(t, []string{"true"}, stamp(&middleware.Intent{}, h, false)[headerNoRetry449])
}

func TestStampingOfNoHeadersAtAll(t *testing.T) {
	require.Equal(t, http.Header{headerNoRetry449: {"true"}}, stamp(&middleware.Intent{}, nil, false))
}

func BenchmarkStamp(b *testing.B) {
	for _, n := range []int{8, 12} {
		b.Run(fmt.Sprint(n, " headers"), func(b *testing.B) {
			h := http.Header{}
			for i := range n {
				h.Set(fmt.Sprint("X-Ms-Header-", i), "v")
			}
			in := &middleware.Intent{Write: true}
			b.ReportAllocs()
			for b.Loop() {
				headerSink = stamp(in, h, true)
			}
		})
	}
}

var headerSink http.Header
