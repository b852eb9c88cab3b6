// Api lets a user's grid, a background poller and an outbox of writes share one
// client of an API that throttles, goes down, revokes tokens and answers slowly.
// It prints a line a second and a table at the end.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/lmittmann/tint"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/rest"
	"github.com/reroute-go/reroute/roundtrippers"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "api:", err)
		os.Exit(1)
	}
}

func run() error {
	service := newFlaky()
	server := httptest.NewUnstartedServer(service)
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	server.Start()
	defer server.Close()

	log := slog.New(tint.NewTextHandler(os.Stdout, &tint.Options{TimeFormat: "05.000"}))
	seen := &counts{}
	client, err := connect(server.URL, seen)
	if err != nil {
		return err
	}
	fmt.Println(middleware.Describe(client.rt))

	ctx, stop := context.WithTimeout(context.Background(), dayEnds)
	defer stop()
	callers := []*caller{
		{name: "grid (essential)", every: 100 * time.Millisecond, call: client.grid},
		{name: "poller (background)", every: 50 * time.Millisecond, call: client.poll},
		{name: "outbox (essential)", every: 200 * time.Millisecond, call: client.push},
	}
	var all sync.WaitGroup
	for _, c := range callers {
		all.Go(func() { c.work(ctx) })
	}
	watch(ctx, log, service, client, seen)
	all.Wait()
	return table(os.Stdout, service, callers, seen)
}

// client is the one client they all share.
type client struct {
	api         rest.API
	graphQL     rest.API // the same client, another endpoint
	rt          http.RoundTripper
	circuit     *roundtrippers.Circuit
	concurrency *roundtrippers.Concurrency
	rate        *roundtrippers.RateLimit
}

func connect(url string, seen *counts) (*client, error) {
	c := &client{
		circuit:     &roundtrippers.Circuit{Cooldown: time.Second, MaxCooldown: 2 * time.Second},
		concurrency: &roundtrippers.Concurrency{Limit: 4, ReserveEssential: 1},
		rate:        &roundtrippers.RateLimit{PerSecond: 60},
	}
	var err error
	c.rt, err = roundtrippers.APIBuilder{
		Dialect:        rest.Dialect{},
		Observe:        seen.observe,
		AttemptTimeout: time.Second,
		RetryBudget:    &roundtrippers.RetryBudget{},
		IdempotencyKey: &roundtrippers.IdempotencyKey{},
		Auth:           &roundtrippers.Auth{Origins: []string{url}, Source: tokensFrom(url + "/token")},
		Circuit:        c.circuit,
		Concurrency:    c.concurrency,
		RateLimit:      c.rate,
	}.Build()
	c.api = rest.API{Transport: c.rt, BaseURL: url}
	c.graphQL = rest.API{Transport: c.rt, BaseURL: url + "/graphql"}
	return c, err
}

// tokensFrom fetches tokens with a client of its own.
func tokensFrom(url string) func(context.Context) (roundtrippers.Token, error) {
	return func(ctx context.Context) (roundtrippers.Token, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return roundtrippers.Token{}, err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return roundtrippers.Token{}, err
		}
		defer resp.Body.Close()
		value, err := io.ReadAll(resp.Body)
		return roundtrippers.Token{Value: string(value)}, err
	}
}

// grid is a user who looks at an empty page: until it is there.
func (c *client) grid(ctx context.Context) error {
	ctx = middleware.WithPriority(ctx, middleware.Essential)
	var rows []string
	if err := c.api.Get(ctx, "/rows?page=1", &rows); err != nil {
		return err
	}
	var data struct{ Orders []int }
	return c.graphQL.GraphQL(ctx, rest.Document{Query: "{ orders }"}, &data)
}

// poll refreshes what is shown already: once, and the next tick is soon enough.
func (c *client) poll(ctx context.Context) error {
	var rows []string
	return c.api.Get(ctx, "/rows?since=yesterday", &rows)
}

// push writes, exactly once: the key stays the same on every send.
func (c *client) push(ctx context.Context) error {
	ctx = middleware.WithPriority(ctx, middleware.Essential)
	return c.api.Send(ctx, http.MethodPost, "/rows", nil, map[string]int{"amount": 7}, nil)
}

// caller repeats a call.
type caller struct {
	name    string
	every   time.Duration
	call    func(context.Context) error
	calls   int
	failed  map[rest.Kind]int
	longest time.Duration
}

// work calls until ctx ends; then the last call may still take its time.
func (c *caller) work(ctx context.Context) {
	c.failed = map[rest.Kind]int{}
	tick := time.NewTicker(c.every)
	defer tick.Stop()
	for ctx.Err() == nil {
		began := time.Now()
		callCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 15*time.Second)
		err := c.call(callCtx)
		cancel()
		c.calls++
		c.longest = max(c.longest, time.Since(began))
		var failed *rest.Error
		if errors.As(err, &failed) {
			c.failed[failed.Kind]++
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// watch prints a line a second.
func watch(ctx context.Context, log *slog.Logger, service *flaky, c *client, seen *counts) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		state, _ := c.circuit.State()
		last := seen.sinceLast()
		log.Info(service.now().name, "breaker", state.String(), "in flight", c.concurrency.InFlight(),
			"waiting for breaker", c.circuit.Waiting(), "rate", c.rate.Waiting(), "permit", c.concurrency.Waiting(),
			"sent", last.sent, "ok", last.ok, "failed", last.failed, "refused", last.refused, "retries", last.retries)
	}
}

// counts are fed by events alone.
type counts struct {
	mu          sync.Mutex
	total, last tally
	opened      []time.Duration
}

type tally struct{ sent, ok, failed, refused, retries, rows, writes int }

func (c *counts) observe(_ context.Context, e middleware.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch e.Kind {
	case middleware.AttemptEnded:
		switch {
		case e.Cause == middleware.CircuitOpen:
			c.total.refused++
			return
		case e.Cause == middleware.Success:
			c.total.ok++
		default:
			c.total.failed++
		}
		c.total.sent++
	case middleware.RetryScheduled:
		c.total.retries++
	case middleware.BreakerOpened:
		c.opened = append(c.opened, e.Wait)
	case middleware.RowsPulled:
		c.total.rows += e.Rows
	case middleware.WritePushed:
		c.total.writes++
	}
}

func (c *counts) sinceLast() tally {
	c.mu.Lock()
	defer c.mu.Unlock()
	d := c.total
	d.sent -= c.last.sent
	d.ok -= c.last.ok
	d.failed -= c.last.failed
	d.refused -= c.last.refused
	d.retries -= c.last.retries
	c.last = c.total
	return d
}

// table prints how the day went, and fails if anybody lost something.
func table(w io.Writer, service *flaky, callers []*caller, seen *counts) error {
	fmt.Fprintf(w, "\n%-22s %6s %6s %10s  %s\n", "caller", "calls", "failed", "longest", "failures by kind")
	lost := 0
	for _, c := range callers {
		failed := 0
		for _, n := range c.failed {
			failed += n
		}
		if c.name != "poller (background)" {
			lost += failed
		}
		fmt.Fprintf(w, "%-22s %6d %6d %10s  %v\n", c.name, c.calls, failed, c.longest.Round(time.Millisecond), c.failed)
	}
	service.mu.Lock()
	defer service.mu.Unlock()
	var statuses []int
	for status := range service.answered {
		statuses = append(statuses, status)
	}
	slices.Sort(statuses)
	fmt.Fprintf(w, "\nthe service answered")
	for _, status := range statuses {
		fmt.Fprintf(w, "  %d x%d", status, service.answered[status])
	}
	fmt.Fprintf(w, "\nthe client sent %d, of these %d again; the breaker opened for %v and refused %d\n",
		seen.total.sent, seen.total.retries, seen.opened, seen.total.refused)
	fmt.Fprintf(w, "rows read %d; writes acknowledged %d, stored %d, received twice and stored once %d\n",
		seen.total.rows, seen.total.writes, len(service.stored), service.repeats)
	if lost > 0 || seen.total.writes != len(service.stored) {
		return fmt.Errorf("%d essential calls failed; %d writes acknowledged, %d stored", lost, seen.total.writes, len(service.stored))
	}
	return nil
}
