package partitions

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/regions"
)

const (
	coll = "dbs/shop/colls/orders"
	east = regions.Name("East US")
	west = regions.Name("West US")
	mid  = regions.Name("Central US")
)

func noEnv(string) (string, bool) { return "", false }

// read is what a Source was asked for.
type read struct {
	container, continuation string
	pin                     regions.Name
}

// service is a Source with one feed for each container. Its continuation is "e" and the number of ranges delivered.
type service struct {
	takes time.Duration // of each call
	page  int           // ranges on a page, 0 = all

	mu         sync.Mutex
	rid        map[string]string
	definition Definition
	feeds      map[string][]Range           // by RID
	script     []func() (Page, error)       // answers of RangePage that come first
	containers []string                     // names asked for
	reads      []read                       // pages asked for
	fault      func(container string) error // of every call
}

// newService has one container, with these ranges.
func newService(specs ...string) *service {
	return &service{
		rid: map[string]string{coll: "rid1"}, definition: Definition{Version: 2},
		feeds: map[string][]Range{"rid1": ranges(specs...)},
	}
}

func (s *service) wait(ctx context.Context) error {
	s.mu.Lock()
	takes := s.takes
	s.mu.Unlock()
	if takes == 0 {
		return nil
	}
	timer := time.NewTimer(takes)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *service) Container(ctx context.Context, name string) (Container, error) {
	s.mu.Lock()
	s.containers = append(s.containers, name)
	fault := s.fault
	s.mu.Unlock()
	if err := s.wait(ctx); err != nil {
		return Container{}, err
	}
	if fault != nil {
		if err := fault(name); err != nil {
			return Container{}, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	rid, ok := s.rid[name]
	if !ok {
		return Container{}, &SourceError{Kind: Absent, Err: errors.New("404")}
	}
	return Container{RID: rid, Definition: s.definition}, nil
}

func (s *service) RangePage(ctx context.Context, name, continuation string, pin regions.Name) (Page, error) {
	s.mu.Lock()
	s.reads = append(s.reads, read{name, continuation, pin})
	var scripted func() (Page, error)
	if len(s.script) > 0 {
		scripted, s.script = s.script[0], s.script[1:]
	}
	fault := s.fault
	s.mu.Unlock()
	if err := s.wait(ctx); err != nil {
		return Page{}, err
	}
	if scripted != nil {
		return scripted()
	}
	if fault != nil {
		if err := fault(name); err != nil {
			return Page{}, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	from, _ := strconv.Atoi(strings.TrimPrefix(continuation, "e"))
	feed := s.feeds[s.rid[name]]
	if from >= len(feed) {
		return Page{Unchanged: true, Region: east}, nil
	}
	to := len(feed)
	if s.page > 0 {
		to = min(to, from+s.page)
	}
	return Page{Ranges: feed[from:to], Continuation: fmt.Sprintf("e%d", to), Region: east}, nil
}

// deliver appends to the feed of the first container.
func (s *service) deliver(specs ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.feeds["rid1"] = append(s.feeds["rid1"], ranges(specs...)...)
}

// answer scripts the next pages.
func (s *service) answer(pages ...func() (Page, error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.script = append(s.script, pages...)
}

func (s *service) continuations() (out []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.reads {
		out = append(out, r.continuation)
	}
	return out
}

func (s *service) pages() []read {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.reads)
}

func (s *service) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads, s.containers = nil, nil
}

func (s *service) slow(takes time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.takes = takes
}

func (s *service) setFault(f func(container string) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = f
}

func gives(p Page) func() (Page, error)    { return func() (Page, error) { return p, nil } }
func fails(err error) func() (Page, error) { return func() (Page, error) { return Page{}, err } }
func always(err error) func(string) error  { return func(string) error { return err } }
func kind(k FailureKind) error             { return &SourceError{Kind: k, Err: errors.New("the service said so")} }
func data(etag string, specs ...string) Page {
	return Page{Ranges: ranges(specs...), Continuation: etag, Region: east}
}

func newRegistry(t testing.TB, source Source, change ...func(*Config)) *Registry {
	t.Helper()
	cfg := Config{Source: source, LookupEnv: noEnv}
	for _, f := range change {
		f(&cfg)
	}
	r, err := New(cfg)
	require.NoError(t, err)
	t.Cleanup(r.Close)
	return r
}

// held is the ids of the ranges that the registry has for the first container.
func held(r *Registry) []string {
	c := (*r.cache.containers.Load())[coll]
	if c == nil || c.held.Load() == nil {
		return nil
	}
	return ids(c.held.Load().ranges)
}
