package storm

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/rest"
	"github.com/reroute-go/reroute/roundtrippers"
)

const origin = "http://api.test"

// apiWorld is what a user of an API that throttles and breaks has: the ready-made
// stack, everything in it switched on at times, over real net/http.
type apiWorld struct {
	*storm
	server *apiServer
	rt     http.RoundTripper
	api    rest.API
	wire   *wire
	source *tokenSource
	keyed  bool // jobs carry an Idempotency-Key

	circuit   *roundtrippers.Circuit
	pause     *roundtrippers.Pause // nil = none
	asked     pauses
	perSecond float64 // the rate limit, 0 = none
	inFlight  atomic.Int64
	most      int64    // in flight
	resends   *resends // nil = they share no budget

	second atomic.Int64 // of the storm
	sent   atomic.Int64 // in it
}

func apiStorm(s *storm) {
	w := &apiWorld{storm: s}
	defer w.open()()
	var aside sync.WaitGroup
	aside.Go(func() { w.direct(s.rand(directorsChance, 0)) })
	w.load(w.act)
	aside.Wait()
	if w.intact() {
		w.heal()
		w.check()
	}
	s.tally.virtual = s.now()
}

func (w *apiWorld) open() (close func()) {
	r := w.rand(worldsChance, 0)
	w.server = newAPIServer(w.storm)
	w.weather(20*time.Second, func(r *rand.Rand, f *front) { f.fault = pick(r, apiFaults...) })
	transport := &http.Transport{DialContext: w.server.dial, MaxIdleConnsPerHost: 64}
	w.source = &tokenSource{apiWorld: w, fetches: &flights{storm: w.storm, what: "the token"}, r: w.rand(worldsChance, 1)}
	w.keyed = r.IntN(2) == 0
	w.circuit = &roundtrippers.Circuit{ResetRunOnClose: r.IntN(2) == 0}
	w.most = pick[int64](r, 4, 12, unhindered)
	w.wire = &wire{storm: w.storm, next: transport, place: w.placeOf, inflict: inflict, probe: w.probeOf}
	b := roundtrippers.APIBuilder{
		Dialect: rest.Dialect{},
		Observe: func(ctx context.Context, e middleware.Event) {
			if e.Kind == middleware.BreakerOpened || e.Kind == middleware.BreakerClosed {
				w.note("(operation %d) %s, next probe in %s", operationOf(ctx).number, e.Kind, e.Wait)
			}
		},
		AttemptTimeout: 3100 * time.Millisecond,
		Auth:           &roundtrippers.Auth{Source: w.source.fetch, Origins: []string{origin}},
		Circuit:        w.circuit,
		Concurrency:    &roundtrippers.Concurrency{Limit: int(w.most), ReserveEssential: pick(r, 0, 1)},
		Base:           counted{w},
	}
	if w.keyed {
		b.IdempotencyKey = &roundtrippers.IdempotencyKey{}
	}
	if r.IntN(2) == 0 {
		w.perSecond = pick(r, 30.0, 100)
		b.RateLimit = &roundtrippers.RateLimit{PerSecond: w.perSecond}
	}
	if r.IntN(2) == 0 {
		b.RetryBudget = &roundtrippers.RetryBudget{}
		w.resends = &resends{storm: w.storm}
	}
	if r.IntN(2) == 0 {
		w.pause = &roundtrippers.Pause{}
		b.Pause = w.pause
	}
	var err error
	w.rt, err = b.Build()
	w.must(err)
	w.api = rest.API{Transport: w.rt, BaseURL: origin}
	w.note("keys %t, %d in flight, rate limit %t, retry budget %t, pause %t",
		w.keyed, w.most, w.perSecond > 0, b.RetryBudget != nil, w.pause != nil)
	return func() {
		transport.CloseIdleConnections()
		_ = w.server.server.Close()
		time.Sleep(31 * time.Second) // a fetch of a token may be under way, for 30 s at most
	}
}

func (w *apiWorld) placeOf(*http.Request, middleware.Target) (place, part string) { return "api", "" }

// probeOf holds the breaker to its word: nothing is sent while it is open, and
// one probe at a time when it is half open.
func (w *apiWorld) probeOf(_ *middleware.Operation, _ middleware.Target, _ bool) string {
	switch state, until := w.circuit.State(); state {
	case gobreaker.StateHalfOpen:
		return "the API"
	case gobreaker.StateOpen:
		opened := time.Duration(0)
		for cooldown := 5 * time.Second; cooldown <= 80*time.Second; cooldown *= 2 {
			if left := time.Until(until); left == min(cooldown, time.Minute) {
				opened = left // at this very moment: the attempt was on its way
			}
		}
		if opened == 0 {
			w.break_("a request is sent while the breaker is open, until %s", until.Sub(w.started))
		}
	}
	return ""
}

// unhindered requests in flight are more than ever meet: none that has its token
// then waits for another one's end, to be sent with others in a crowd.
const unhindered = 1000

// counted counts what is in flight, above the wire.
type counted struct{ *apiWorld }

func (c counted) RoundTrip(req *http.Request) (*http.Response, error) {
	if n := c.inFlight.Add(1); n > c.most {
		c.break_("%d requests in flight, %d are allowed", n, c.most)
	}
	defer c.inFlight.Add(-1)
	if second := int64(c.now() / time.Second); c.second.Swap(second) != second {
		c.sent.Store(0)
	}
	if n := float64(c.sent.Add(1)); c.perSecond > 0 && c.most == unhindered && n > 2*c.perSecond+1 { // a second's tokens and those saved before
		c.break_("%.0f sends in a second, with a limit of %.0f", n, c.perSecond)
	}
	if op := operationOf(req.Context()); op != nil && c.resends != nil {
		c.resends.sent(op.sends.Load() > 0)
	}
	if c.pause == nil {
		return c.wire.RoundTrip(req)
	}
	if until := c.asked.at(c.now()); until > 0 {
		c.break_("a request is sent, though the API has asked for a pause until %s", until)
	}
	resp, err := c.wire.RoundTrip(req)
	if err == nil && resp.StatusCode == http.StatusTooManyRequests {
		if seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After")); seconds > 0 {
			c.asked.add(c.now(), time.Duration(seconds)*time.Second)
		}
	}
	return resp, err
}

// pauses are those that the API has asked for, by the times of the storm.
type pauses struct {
	mu   sync.Mutex
	list []pause
}

type pause struct{ from, until time.Duration }

func (p *pauses) add(from, takes time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.list = append(p.list, pause{from, from + takes})
}

// at returns the end of a pause that is on, 0 if there is none. One that was asked
// for at this very moment may not be known yet to what is on its way.
func (p *pauses) at(now time.Duration) (until time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.list = slices.DeleteFunc(p.list, func(s pause) bool { return s.until <= now })
	for _, s := range p.list {
		if s.from < now {
			until = max(until, s.until)
		}
	}
	return until
}

// resends holds the shared budget of re-sends to its word, by spans of 10 s: a
// fifth of the operations of this span and the one before, and 10 a second. An
// operation that is under way when a span begins may have its leave for one more
// send from before: it is held up by a token, a permit or the breaker.
type resends struct {
	*storm
	mu    sync.Mutex
	span  time.Duration
	begun [2]int64 // operations by the start of the span before, and of this one
	held  int64    // of them under way at the start of this one
	again int64    // in this span
}

func (b *resends) sent(again bool) {
	ended, under := b.tally.operations.Load(), b.underWay()
	b.mu.Lock()
	defer b.mu.Unlock()
	if span := b.now() / (10 * time.Second); span != b.span {
		b.begun[0], b.begun[1] = b.begun[1], ended+under
		if span != b.span+1 {
			b.begun[0] = b.begun[1]
		}
		b.again, b.held, b.span = 0, under, span
	}
	if !again {
		return
	}
	b.again++
	if most := (ended+under-b.begun[0])/5 + b.held + 10*10 + 10; b.again > most {
		b.tellBroken("more re-sends than the shared budget has", b.now()-10*time.Second)
	}
}

// tokenSource hands out the server's token, slowly at times, or not at all.
type tokenSource struct {
	*apiWorld
	fetches *flights

	mu      sync.Mutex
	r       *rand.Rand
	failing bool
	takes   time.Duration
	life    time.Duration // of the tokens, 0 = they do not end
	last    roundtrippers.Token
}

func (s *tokenSource) fetch(ctx context.Context) (roundtrippers.Token, error) {
	land := s.fetches.take()
	defer land(false)
	s.server.mu.Lock()
	good := s.server.token
	s.server.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last.Value == good && (s.last.Expires.IsZero() || time.Until(s.last.Expires) > 30*time.Second) {
		s.break_("a token is fetched, though the one at hand is good")
	}
	failing, takes, life := s.failing, s.takes, s.life
	s.mu.Unlock()
	rested := lasts(ctx, takes+time.Millisecond)
	s.mu.Lock()
	if failing || !rested {
		return roundtrippers.Token{}, errors.New("no token today")
	}
	s.last = roundtrippers.Token{Value: good}
	if life > 0 {
		s.last.Expires = time.Now().Add(life)
	}
	return s.last, nil
}

func (s *tokenSource) set(change func(s *tokenSource)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

// direct has the token change and its source fail, and the API go down.
func (w *apiWorld) direct(r *rand.Rand) {
	rotate := func() {
		w.server.mu.Lock()
		defer w.server.mu.Unlock()
		w.server.token = "Bearer " + pick(r, "a", "b", "c") + w.now().String()
		w.tally.events.Add(1)
		w.note("another token")
	}
	events := []func(){
		rotate, rotate, rotate,
		func() { w.source.set(func(s *tokenSource) { s.life = pick(r, 0, time.Minute, 2*time.Minute) }) },
		func() {
			w.source.set(func(s *tokenSource) { s.failing = true })
			w.later(r, 10*time.Second, "no tokens", func() { w.source.set(func(s *tokenSource) { s.failing = false }) })
		},
		func() {
			takes := between(r, 0, 5*time.Second)
			w.source.set(func(s *tokenSource) { s.takes = takes })
			w.later(r, 10*time.Second, "tokens take "+takes.String(), func() { w.source.set(func(s *tokenSource) { s.takes = 0 }) })
		},
		func() {
			w.server.down.Store(true)
			w.later(r, 10*time.Second, "no connections", func() { w.server.down.Store(false) })
		},
	}
	for w.sleep(between(r, time.Second, 15*time.Second)) && w.now() < w.lasts {
		events[r.IntN(len(events))]()
	}
}
