package cosmos

import (
	"maps"
	"net/http"
	"slices"

	"github.com/reroute-go/reroute/middleware"
)

// yes is the value of every header that is stamped. It is shared and has no room to append to.
var yes = []string{"true"}

// stamp adds the dialect's own headers, over which the caller's always win.
func stamp(in *middleware.Intent, h http.Header, multiWrite bool) http.Header {
	if in.Scope != middleware.Data && in.Scope != middleware.Metadata {
		return h
	}
	_, has449 := h[headerNoRetry449]
	_, hasTentative := h[headerAllowTentativeWrites]
	needTentative := in.Write && multiWrite && !hasTentative
	if has449 && !needTentative {
		return h
	}
	added := 1
	if !has449 && needTentative {
		added = 2
	}
	out := copyFor(h, added)
	if !has449 {
		out[headerNoRetry449] = yes
	}
	if needTentative {
		out[headerAllowTentativeWrites] = yes
	}
	return out
}

// copyFor returns a copy of h that will hold so many headers more. Go keeps up to 8
// in one group, which makes two allocations (400 B); more make four (792 B). Copying
// the map as a whole is a third faster than filling another, unless it then outgrows
// its group. No value has room to append to: who does must not write into the
// caller's array.
func copyFor(h http.Header, added int) http.Header {
	const group = 8
	if h == nil || len(h) <= group && len(h)+added > group {
		out := make(http.Header, len(h)+added)
		for k, v := range h {
			out[k] = slices.Clip(v)
		}
		return out
	}
	out := maps.Clone(h)
	for k, v := range h {
		if cap(v) > len(v) {
			out[k] = slices.Clip(v)
		}
	}
	return out
}
