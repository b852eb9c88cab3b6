package roundtrippers_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sort"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sony/gobreaker/v2"
	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/layertest"
	"github.com/reroute-go/reroute/roundtrippers"
)

// modelBreaker is the breaker of the seed, written down as plainly as can be: no
// locks, no timers, no generations but a number. Time is a number of
// milliseconds.
type modelBreaker struct {
	threshold, run int
	base, limit    int
	open           bool
	cooldown       int
	until          int
	probe          int // the call that probes; 0 = none
	log            []string
}

type modelCall struct {
	number  int
	at      int  // when it comes
	takes   int  // until its answer
	verdict byte // h ealthy, r eachable, f ailing, i nconclusive
}

// enter reports whether a call passes.
func (m *modelBreaker) enter(c modelCall, now int) bool {
	switch {
	case !m.open:
		return true
	case now < m.until || m.probe != 0:
		return false
	}
	m.probe = c.number
	return true
}

func (m *modelBreaker) leave(c modelCall, now int) {
	probing := m.probe == c.number
	if probing {
		m.probe = 0
	}
	switch c.verdict {
	case 'h', 'r':
		if c.verdict == 'h' {
			m.run = 0
		}
		if m.open {
			m.open, m.probe, m.cooldown = false, 0, m.base
			m.log = append(m.log, fmt.Sprintf("%d closed", now))
		}
	case 'f':
		switch {
		case probing:
			m.trip(min(2*m.cooldown, m.limit), now)
		case m.open: // sent before the opening
		default:
			if m.run++; m.run >= m.threshold {
				m.trip(m.base, now)
			}
		}
	}
}

func (m *modelBreaker) trip(cooldown, now int) {
	m.open, m.cooldown, m.until = true, cooldown, now+cooldown
	m.log = append(m.log, fmt.Sprintf("%d opened %d", now, cooldown))
}

func (m *modelBreaker) state(now int) gobreaker.State {
	switch {
	case !m.open:
		return gobreaker.StateClosed
	case now < m.until:
		return gobreaker.StateOpen
	}
	return gobreaker.StateHalfOpen
}

// play runs a schedule through the model: arrivals and ends in order of time. No
// two of them share a moment, so that the order is the only one there is.
func (m *modelBreaker) play(calls []modelCall) (passed []bool, states []gobreaker.State) {
	type moment struct {
		at   int
		end  bool
		call modelCall
	}
	var moments []moment
	for _, c := range calls {
		moments = append(moments, moment{c.at, false, c}, moment{c.at + c.takes, true, c})
	}
	sort.Slice(moments, func(i, j int) bool { return moments[i].at < moments[j].at })
	in := map[int]bool{}
	passed, states = make([]bool, len(calls)), make([]gobreaker.State, len(calls))
	for _, now := range moments {
		if !now.end {
			states[now.call.number-1] = m.state(now.at)
			in[now.call.number] = m.enter(now.call, now.at)
			passed[now.call.number-1] = in[now.call.number]
		} else if in[now.call.number] {
			m.leave(now.call, now.at)
		}
	}
	return passed, states
}

// drawSchedule draws calls whose moments differ: each moment has a remainder of
// its own. Cooldowns are multiples of 1000 ms and edges are not hit by chance; the
// scenarios above hit them on purpose.
func drawSchedule(r *rand.Rand) []modelCall {
	calls := make([]modelCall, 3+r.IntN(12))
	busy := r.IntN(3)
	for i := range calls {
		span := 40
		if busy == 0 {
			span = 200
		}
		at := 1000*r.IntN(span) + 2*i + 1
		end := 1000*(at/1000+r.IntN(1+12*busy)) + 2*i + 2
		calls[i] = modelCall{number: i + 1, at: at, takes: end - at, verdict: "hrfffffi"[r.IntN(8)]}
	}
	return calls
}

func TestTheBreakerAgreesWithTheModelOver10000Schedules(t *testing.T) {
	t.Parallel()
	const seed = 20260922
	r := rand.New(rand.NewPCG(seed, 1))
	opened, probed := 0, 0
	for n := range 10_000 {
		calls := drawSchedule(r)
		m := &modelBreaker{threshold: 1 + r.IntN(4), base: 5000, limit: 60_000}
		m.cooldown = m.base
		passed, states := m.play(calls)
		opened += strings.Count(strings.Join(m.log, "\n"), "opened")
		probed += strings.Count(strings.Join(m.log, "\n"), "closed")
		synctest.Test(t, func(t *testing.T) {
			log, realPassed, realStates := playReal(t, calls, m.threshold)
			story := fmt.Sprintf("schedule %d: threshold %d, %+v", n, m.threshold, calls)
			require.Equal(t, m.log, log, story)
			require.Equal(t, passed, realPassed, story)
			require.Equal(t, states, realStates, story)
		})
	}
	t.Logf("%d openings and %d closes in 10,000 schedules", opened, probed)
	require.Greater(t, opened, 5000)
	require.Greater(t, probed, 2000)
}

// playReal runs the schedule through a Circuit.
func playReal(t *testing.T, calls []modelCall, threshold int) (log []string, passed []bool, states []gobreaker.State) {
	status := map[byte]int{'h': 200, 'r': 404, 'f': 503, 'i': 429}
	byPath := map[string]modelCall{}
	for _, c := range calls {
		byPath[fmt.Sprint("/", c.number)] = c
	}
	started := time.Now()
	ms := func() int { return int(time.Since(started) / time.Millisecond) }
	script := layertest.NewServer(t, func(req *http.Request) layertest.Step {
		c := byPath[req.URL.Path]
		return layertest.Step{Status: status[c.verdict], Delay: time.Duration(c.takes) * time.Millisecond}
	})
	c := apiBase(t, script, func(b *roundtrippers.APIBuilder) {
		b.Circuit.Threshold, b.Concurrency.Limit = threshold, 1000
		b.Circuit.ProbeLimit = time.Hour // the model's probes have all the time
		b.Observe = func(_ context.Context, e middleware.Event) {
			switch e.Kind {
			case middleware.BreakerOpened:
				log = append(log, fmt.Sprintf("%d opened %d", ms(), e.Wait/time.Millisecond))
			case middleware.BreakerClosed:
				log = append(log, fmt.Sprintf("%d closed", ms()))
			}
		}
	})
	passed, states = make([]bool, len(calls)), make([]gobreaker.State, len(calls))
	done := make(chan struct{})
	for _, call := range calls {
		go func() {
			time.Sleep(time.Duration(call.at) * time.Millisecond)
			states[call.number-1], _ = c.builder.Circuit.State()
			resp, err := c.rt.RoundTrip(get(t.Context(), fmt.Sprint("https://api.test/", call.number)))
			if err == nil {
				_ = resp.Body.Close()
			}
			passed[call.number-1] = err == nil
			done <- struct{}{}
		}()
	}
	for range calls {
		<-done
	}
	return log, passed, states
}
