package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/reroute-go/reroute/idempotency"
)

// flaky is an API that has a bad day, the same one each time it is run.
type flaky struct {
	mu       sync.Mutex
	started  time.Time
	token    int // the one that is accepted
	answered map[int]int
	stored   map[string]bool // writes by key
	repeats  int             // writes that came twice
}

// phase is a part of the day.
type phase struct {
	from time.Duration
	name string
	act  func(f *flaky, w http.ResponseWriter) bool // true = answered
}

// day is what happens when, by the second.
var day = []phase{
	{0, "healthy", nil},
	{2 * time.Second, "throttles: 429, Retry-After 1", func(f *flaky, w http.ResponseWriter) bool {
		if rand.IntN(2) == 0 {
			return false
		}
		w.Header().Set("Retry-After", "1")
		return f.answer(w, http.StatusTooManyRequests, map[string]string{"error": "too many requests"})
	}},
	{4500 * time.Millisecond, "healthy", nil},
	{5500 * time.Millisecond, "down: 503", func(f *flaky, w http.ResponseWriter) bool {
		return f.answer(w, http.StatusServiceUnavailable, map[string]string{"error": "down for the moment"})
	}},
	{8500 * time.Millisecond, "healthy again", nil},
	{10 * time.Second, "revokes the token", func(f *flaky, _ http.ResponseWriter) bool {
		f.rotate(2)
		return false
	}},
	{11 * time.Second, "slow, and cuts connections", func(_ *flaky, _ http.ResponseWriter) bool {
		switch rand.IntN(4) {
		case 0:
			time.Sleep(1500 * time.Millisecond) // beyond the client's AttemptTimeout
		case 1:
			panic(http.ErrAbortHandler)
		}
		return false
	}},
	{13 * time.Second, "healthy", nil},
}

const dayEnds = 14500 * time.Millisecond

func newFlaky() *flaky {
	return &flaky{started: time.Now(), token: 1, answered: map[int]int{}, stored: map[string]bool{}}
}

func (f *flaky) now() phase {
	current := day[0]
	for _, p := range day {
		if time.Since(f.started) >= p.from {
			current = p
		}
	}
	return current
}

func (f *flaky) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if req.URL.Path == "/token" {
		f.mu.Lock()
		defer f.mu.Unlock()
		_, _ = fmt.Fprint(w, "Bearer token-", f.token)
		return
	}
	time.Sleep(time.Duration(5+rand.IntN(20)) * time.Millisecond)
	if act := f.now().act; act != nil && act(f, w) {
		return
	}
	switch {
	case !f.accepts(req.Header.Get("Authorization")):
		f.answer(w, http.StatusUnauthorized, map[string]string{"error": "token expired"})
	case req.URL.Path == "/graphql":
		f.answer(w, http.StatusOK, map[string]any{"data": map[string]any{"orders": []int{1, 2, 3}}})
	case req.Method == http.MethodPost:
		f.store(w, req.Header.Get(idempotency.Key))
	default:
		f.answer(w, http.StatusOK, []string{"apples", "pears", "plums", "quinces"})
	}
}

func (f *flaky) accepts(header string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return header == fmt.Sprint("Bearer token-", f.token)
}

func (f *flaky) rotate(to int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.token = to
}

// store carries out a write once, however often its key arrives. One in ten is
// carried out and not acknowledged.
func (f *flaky) store(w http.ResponseWriter, key string) {
	f.mu.Lock()
	repeated := f.stored[key]
	f.stored[key] = true
	if repeated {
		f.repeats++
	}
	f.mu.Unlock()
	if !repeated && rand.IntN(10) == 0 {
		panic(http.ErrAbortHandler)
	}
	f.answer(w, http.StatusCreated, map[string]string{"key": key})
}

func (f *flaky) answer(w http.ResponseWriter, status int, body any) bool {
	f.mu.Lock()
	f.answered[status]++
	f.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
	return true
}
