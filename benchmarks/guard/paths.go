package main

import (
	"context"
	"errors"
	"net/http"

	"github.com/reroute-go/reroute/benchmarks/internal/measure"
	"github.com/reroute-go/reroute/benchmarks/internal/workload"
	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/cosmos"
	"github.com/reroute-go/reroute/middleware/rest"
	"github.com/reroute-go/reroute/partitions"
	"github.com/reroute-go/reroute/regions"
	"github.com/reroute-go/reroute/roundtrippers"
)

// bare is the path that the ratios are of.
const bare = "bare transport"

// paths are what must not allocate more than the table says.
func paths() ([]measure.Subject, error) {
	a, service, err := workload.Open(10_000, cosmos.Options{})
	if err != nil {
		return nil, err
	}
	troubled, _, err := workload.Open(10_000, cosmos.Options{}) // its breakers remember
	if err != nil {
		return nil, err
	}
	stack := func(base http.RoundTripper, layers ...middleware.Layer) http.RoundTripper {
		rt, wrong := middleware.Stack(base, layers...)
		err = errors.Join(err, wrong)
		return rt
	}
	ready := func(rt http.RoundTripper, wrong error) http.RoundTripper {
		err = errors.Join(err, wrong)
		return rt
	}
	flaky := func(statuses ...int) *workload.Flaky { return &workload.Flaky{Statuses: statuses} }
	full := ready(workload.Cosmos(a, workload.Terminal{}))
	owners := ready(workload.Ownership(workload.Terminal{}))
	api := ready(workload.API(workload.Terminal{}))
	ranges, wrong := service.Map()
	err = errors.Join(err, wrong)
	if err != nil {
		return nil, err
	}

	all := []measure.Subject{
		sends(bare, workload.Terminal{}, workload.Get),
		sends("bare transport, POST 1 KiB", workload.Terminal{}, workload.Post),
		sends("hand-written re-hosting", workload.Floor{Next: workload.Terminal{}}, workload.Get),
		sends("one layer", stack(workload.Terminal{}, roundtrippers.Throttle{Dialect: rest.Dialect{}}), workload.Get),
		sends("one layer, POST 1 KiB", stack(workload.Terminal{}, roundtrippers.Throttle{Dialect: rest.Dialect{}}), workload.Post),
		sends("Route", stack(workload.Terminal{}, roundtrippers.Route{Dialect: a, Regions: a.Regions}), workload.Get),
		sends("Cosmos", full, workload.Get),
		stamped("Cosmos, stamped", full),
		sends("Cosmos, POST 1 KiB", full, workload.Post),
		sends("Ownership", owners, workload.Get),
		sends("Ownership, POST 1 KiB", owners, workload.Post),
		sends("API", api, workload.Get),
		sends("API, POST 1 KiB", api, workload.Post),
		sends("one retry", stack(flaky(503), workload.Again{Retries: 1}), workload.Get),
		sends("one retry, POST 1 KiB", stack(flaky(503), workload.Again{Retries: 1}), workload.Post),
		sends("one retry after a wait", stack(flaky(503), workload.Again{Retries: 1, Wait: 1}), workload.Get),
		sends("Cosmos, one failover", ready(workload.Cosmos(troubled, flaky(503))), workload.Get),
		sends("Cosmos, throttled once", ready(workload.Cosmos(troubled, flaky(429))), workload.Get),
	}
	return append(all, lookups(a, ranges)...), err
}

func sends(name string, rt http.RoundTripper, kind workload.Kind) measure.Subject {
	return measure.Subject{Name: name, New: func() (func() error, error) { return workload.NewCaller(rt, kind).Call, nil }}
}

// stamped sends requests with the header that the dialect otherwise adds.
func stamped(name string, rt http.RoundTripper) measure.Subject {
	return measure.Subject{Name: name, New: func() (func() error, error) {
		c := workload.NewCaller(rt, workload.Get)
		c.Request.Header = workload.Header(true)
		return c.Call, nil
	}}
}

// lookups are what an operation asks about its partition.
func lookups(a *cosmos.Account, ranges *partitions.Map) []measure.Subject {
	const header = `["tenant-4711"]`
	one := func(name string, look func() error) measure.Subject {
		return measure.Subject{Name: name, New: func() (func() error, error) { return look, nil }}
	}
	healthy := partitions.Partition{Container: workload.Container, Range: "1"}
	return []measure.Subject{
		one("header to range", func() error {
			span, err := partitions.Definition{Version: 2}.Span(header)
			if _, ok := ranges.Find(span.Min); err != nil || !ok {
				return errors.Join(err, partitions.ErrNoRanges)
			}
			return nil
		}),
		one("Resolve", func() error {
			_, err := a.Partitions.Resolve(context.Background(), workload.Container, header)
			return err
		}),
		one("healthy partition", func() error {
			a.Partitions.Report(healthy, "West US", false, a.Partitions.Admit(healthy, false, "West US", "East US"), regions.Healthy)
			return nil
		}),
	}
}
