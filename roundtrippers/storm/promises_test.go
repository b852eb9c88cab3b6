package storm

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

var errBroken = errors.New("a promise was broken")

const keptBroken = 3

// break_ tells of a broken promise and ends the storm.
func (s *storm) break_(format string, args ...any) {
	s.tellBroken(fmt.Sprintf(format, args...), s.now()-time.Minute)
}

// breakIn is break_ for a promise to one operation.
func (s *storm) breakIn(op *operation, format string, args ...any) {
	s.tellBroken(fmt.Sprintf(format, args...)+"\n"+op.String(), op.started-10*time.Second)
}

func (s *storm) tellBroken(text string, since time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.broken) >= keptBroken || s.ctx != nil && s.ctx.Err() != nil && len(s.broken) > 0 {
		return // what follows is the noise of the end
	}
	s.broken = append(s.broken, fmt.Sprintf("BROKEN at %s: %s\n%s", s.now(), text, s.timeline.between(since, s.now(), 60)))
	if s.stop != nil {
		s.stop(errBroken)
	}
}

func (s *storm) intact() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.broken) == 0
}

func (s *storm) begin(op *operation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.under[op] = struct{}{}
}

func (s *storm) end(op *operation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.under, op)
}

func (s *storm) underWay() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return int64(len(s.under))
}

// running lists the operations under way, the oldest first.
func (s *storm) running() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var texts []string
	for op := range s.under {
		texts = append(texts, fmt.Sprintf("\n%12s %s", op.started, op.name))
	}
	slices.Sort(texts)
	return strings.Join(texts[:min(10, len(texts))], "")
}
