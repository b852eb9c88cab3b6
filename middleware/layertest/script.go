// Package layertest helps to test layers, the library's and your own. Run holds
// any layer against the contract of http.RoundTripper and reroute's own promises,
// in virtual time; Script is a base transport for tests of what a layer does.
package layertest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Step is one scripted answer.
type Step struct {
	Status int               // 0 = 200 unless Err is set
	Header map[string]string // of the answer
	Body   string            // of the answer
	Err    error             // instead of an answer
	// Delay comes before the answer; the request's context cuts it short.
	Delay time.Duration
	// Hang answers only when the request's context ends.
	Hang bool
	// Answer, if set, makes the answer instead of the fields above.
	Answer func(*http.Request) (*http.Response, error)
}

// Send is one request that reached a Script.
type Send struct {
	After  time.Duration // since the Script was made
	Method string        // as sent
	URL    url.URL       // as sent
	Host   string        // req.Host, "" where the URL's counts
	Header http.Header   // a copy
	Body   string        // read whole
	// Ended is the context's state when the request arrived.
	Ended error
}

// Script is a base transport that plays steps, one a send, and repeats the last.
// It keeps to the contract of http.RoundTripper: it reads and closes request
// bodies and heeds contexts. It works in testing/synctest bubbles and is safe
// for concurrent use.
type Script struct {
	t       testing.TB
	steps   []Step
	pick    func(*http.Request) Step
	started time.Time
	open    atomic.Int64
	idle    atomic.Int64

	mu    sync.Mutex
	sends []Send
}

// NewScript plays steps and repeats the last one. When the test ends it fails it
// if an answer's body was left open.
func NewScript(t testing.TB, steps ...Step) *Script {
	s := &Script{t: t, steps: steps, started: time.Now()}
	t.Cleanup(s.checkClosed)
	return s
}

// NewServer answers each request with the step that pick chooses.
func NewServer(t testing.TB, pick func(*http.Request) Step) *Script {
	s := NewScript(t)
	s.pick = pick
	return s
}

func (s *Script) checkClosed() {
	if n := s.open.Load(); n != 0 {
		s.t.Errorf("%d response bodies were left open", n)
	}
}

// Sends returns what arrived so far, in order.
func (s *Script) Sends() []Send {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Send(nil), s.sends...)
}

// Hosts returns the hosts that were sent to, in order.
func (s *Script) Hosts() []string {
	var hosts []string
	for _, send := range s.Sends() {
		hosts = append(hosts, send.URL.Host)
	}
	return hosts
}

// Times returns when the sends arrived, since the Script was made.
func (s *Script) Times() []time.Duration {
	var times []time.Duration
	for _, send := range s.Sends() {
		times = append(times, send.After)
	}
	return times
}

// IdleClosed returns how often CloseIdleConnections reached the Script.
func (s *Script) IdleClosed() int { return int(s.idle.Load()) }

// CloseIdleConnections counts.
func (s *Script) CloseIdleConnections() { s.idle.Add(1) }

// RoundTrip plays the next step.
func (s *Script) RoundTrip(req *http.Request) (*http.Response, error) {
	send := Send{After: time.Since(s.started), Method: req.Method, URL: *req.URL, Host: req.Host,
		Header: req.Header.Clone(), Ended: req.Context().Err()}
	var readErr error
	if req.Body != nil {
		var body []byte
		body, readErr = io.ReadAll(req.Body)
		_ = req.Body.Close()
		send.Body = string(body)
	}
	s.mu.Lock()
	n := len(s.sends)
	s.sends = append(s.sends, send)
	s.mu.Unlock()
	if readErr != nil {
		return nil, readErr
	}

	var step Step
	switch {
	case s.pick != nil:
		step = s.pick(req)
	case len(s.steps) > 0:
		step = s.steps[min(n, len(s.steps)-1)]
	}
	return s.play(req, step)
}

func (s *Script) play(req *http.Request, step Step) (*http.Response, error) {
	trace(req, step.Err)
	if step.Answer != nil {
		return step.Answer(req)
	}
	ctx := req.Context()
	if step.Hang {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if step.Delay > 0 {
		timer := time.NewTimer(step.Delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if step.Err != nil {
		return nil, step.Err
	}
	status := step.Status
	if status == 0 {
		status = http.StatusOK
	}
	header := http.Header{}
	for name, value := range step.Header {
		header.Set(name, value)
	}
	s.open.Add(1)
	return &http.Response{
		StatusCode: status, Status: fmt.Sprintf("%d %s", status, http.StatusText(status)), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: header, ContentLength: int64(len(step.Body)), Request: req,
		Body: &scriptBody{Reader: strings.NewReader(step.Body), script: s},
	}, nil
}

// trace tells an attached httptrace what net/http would: that the headers were
// written, unless the script has the dial fail.
func trace(req *http.Request, err error) {
	hooks := httptrace.ContextClientTrace(req.Context())
	if hooks == nil {
		return
	}
	if hooks.GetConn != nil {
		hooks.GetConn(req.URL.Host)
	}
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return
	}
	if hooks.WroteHeaders != nil {
		hooks.WroteHeaders()
	}
}

type scriptBody struct {
	io.Reader
	script *Script
	closed atomic.Bool
}

func (b *scriptBody) Read(p []byte) (int, error) {
	if b.closed.Load() {
		return 0, http.ErrBodyReadAfterClose
	}
	return b.Reader.Read(p)
}

func (b *scriptBody) Close() error {
	if !b.closed.Swap(true) {
		b.script.open.Add(-1)
	}
	return nil
}

// Body is a request body that counts its closes and remembers whether it was
// read after the first.
type Body struct {
	reader *bytes.Reader
	closes atomic.Int64
}

// NewBody returns a Body of text that brings no GetBody along.
func NewBody(text string) *Body { return &Body{reader: bytes.NewReader([]byte(text))} }

// Read reads; after Close it fails.
func (b *Body) Read(p []byte) (int, error) {
	if b.closes.Load() > 0 {
		return 0, errors.New("layertest: request body read after Close")
	}
	return b.reader.Read(p)
}

// Close counts.
func (b *Body) Close() error {
	b.closes.Add(1)
	return nil
}

// Closes returns how often the body was closed.
func (b *Body) Closes() int { return int(b.closes.Load()) }
