package cosmostest

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
)

// send writes an answer, whole or spoilt. It runs without locks.
func (a *Account) send(w http.ResponseWriter, r *http.Request, rep *reply, plan Answer) {
	switch {
	case plan.silent() && plan.Hang:
		a.hang(r.Context(), nil)
	case plan.silent():
		abort(w, plan.Reset)
	case plan.cuts():
		a.sendPart(w, r, rep, plan)
	default:
		rep.writeTo(w, len(rep.body))
		if hasBody(r, rep.status) {
			_, _ = w.Write(rep.body) // the client may have left
		}
	}
}

// writeTo sends the head of an answer.
func (r *reply) writeTo(w http.ResponseWriter, length int) {
	r.completeHeader(length)
	for name, values := range r.header {
		w.Header()[name] = values
	}
	w.WriteHeader(r.status)
}

func (r *reply) completeHeader(length int) {
	if r.substatus != 0 {
		r.set(headerSubstatus, strconv.Itoa(r.substatus))
	}
	r.set("x-ms-version", "2020-11-05")
	if r.status == http.StatusNoContent || r.status == http.StatusNotModified {
		return
	}
	if r.header.Get("Content-Type") == "" {
		r.set("Content-Type", "application/json")
	}
	r.set("Content-Length", strconv.Itoa(length))
}

func hasBody(r *http.Request, status int) bool {
	return r.Method != http.MethodHead && status != http.StatusNoContent && status != http.StatusNotModified
}

// sendPart writes the start of an answer and then closes, resets or hangs.
func (a *Account) sendPart(w http.ResponseWriter, r *http.Request, rep *reply, plan Answer) {
	part := min(max(plan.CutAfter, 0), max(len(rep.body)-1, 0))
	cutHeader := plan.CutHeader || !hasBody(r, rep.status) // without a body only the head can be cut
	length := max(len(rep.body), part+1)                   // promises more than comes, also for an empty body
	if !cutHeader {
		rep.writeTo(w, length)
		_, _ = w.Write(rep.body[:part])
		_ = http.NewResponseController(w).Flush()
		if plan.Hang {
			a.hang(r.Context(), nil)
		}
		abort(w, plan.Reset)
	}
	wire, c := hijack(w) // half a header cannot be written in any other way
	rep.completeHeader(length)
	var raw bytes.Buffer
	fmt.Fprintf(&raw, "HTTP/1.1 %d %s\r\n", rep.status, http.StatusText(rep.status))
	_ = rep.header.Write(&raw)
	_, _ = wire.Write(raw.Bytes()[:raw.Len()/2+1])
	if plan.Hang {
		_, _ = io.Copy(io.Discard, wire) // until the client leaves or Close shuts the gate
	}
	if plan.Reset {
		c.reset()
	}
	_ = wire.Close()
}

// abort ends the connection (HTTP/2: the stream): with a reset, or with an end of file.
func abort(w http.ResponseWriter, reset bool) {
	if reset {
		_, c := hijack(w)
		c.reset()
	}
	panic(http.ErrAbortHandler)
}

// hijack takes the connection over and returns it as HTTP sees it and as the gate made it, which TLS may wrap. HTTP/2 does not allow it;
// there the stream is aborted.
func hijack(w http.ResponseWriter) (wire net.Conn, c *conn) {
	wire, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	inner := wire
	if secure, ok := wire.(*tls.Conn); ok {
		inner = secure.NetConn()
	}
	return wire, inner.(*conn)
}
