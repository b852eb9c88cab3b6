// Package workload is what every benchmark does and measures against: the same
// requests, the same terminal transport, the same ready-made stacks. The peers
// are measured with it too.
package workload

import (
	"io"
	"net/http"
	"strings"
)

const answer = `{"id":"a","pk":"p1","value":12345678}`

// Terminal is the base of every stack: it consumes the body and answers 200 with
// 37 bytes, without a network.
type Terminal struct{}

// RoundTrip answers.
func (Terminal) RoundTrip(req *http.Request) (*http.Response, error) {
	consume(req)
	return respond(req, http.StatusOK, http.Header{}, answer), nil
}

// Spy is a Terminal that tells where the last request went. It is for one
// goroutine.
type Spy struct{ Host *string }

// RoundTrip answers.
func (s Spy) RoundTrip(req *http.Request) (*http.Response, error) {
	*s.Host = req.URL.Host
	return Terminal{}.RoundTrip(req)
}

// Flaky is a Terminal whose answers are so many Statuses first, for each
// operation anew. It serves one operation after the other.
type Flaky struct {
	Statuses []int
	Header   http.Header // of those answers
	sent     int
}

// RoundTrip answers.
func (f *Flaky) RoundTrip(req *http.Request) (*http.Response, error) {
	n := f.sent % (len(f.Statuses) + 1)
	f.sent++
	if n == len(f.Statuses) {
		return Terminal{}.RoundTrip(req)
	}
	consume(req)
	header := f.Header
	if header == nil {
		header = http.Header{}
	}
	return respond(req, f.Statuses[n], header, answer), nil
}

// Sends returns how many requests arrived.
func (f *Flaky) Sends() int { return f.sent }

// Floor is what any re-hosting RoundTripper must do, written by hand: a shallow
// copy of the request and one of its URL.
type Floor struct{ Next http.RoundTripper }

// RoundTrip sends a copy to another host.
func (f Floor) RoundTrip(req *http.Request) (*http.Response, error) {
	r := *req
	u := *req.URL
	u.Host = "account-westus.documents.example"
	r.URL, r.Host = &u, u.Host
	return f.Next.RoundTrip(&r)
}

func consume(req *http.Request) {
	if req.Body != nil {
		_, _ = io.Copy(io.Discard, req.Body)
		_ = req.Body.Close()
	}
}

func respond(req *http.Request, status int, header http.Header, body string) *http.Response {
	return &http.Response{StatusCode: status, Header: header, Body: io.NopCloser(strings.NewReader(body)),
		ContentLength: int64(len(body)), Request: req, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1}
}
