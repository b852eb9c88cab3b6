package cosmos

import (
	"net/http"

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
	out := make(http.Header, len(h)+2)
	for k, v := range h {
		out[k] = v[:len(v):len(v)] // who appends to the copy must not write into the caller's array
	}
	if !has449 {
		out[headerNoRetry449] = yes
	}
	if needTentative {
		out[headerAllowTentativeWrites] = yes
	}
	return out
}
