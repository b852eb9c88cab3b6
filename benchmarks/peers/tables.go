package main

import (
	"fmt"
	"math"

	"github.com/reroute-go/reroute/benchmarks/internal/measure"
)

// added is what name takes more than the bare transport.
func added(costs map[string][]measure.Cost, name string) measure.Cost {
	return measure.Added(costs[name], costs[bare])
}

// healthyTable is what a healthy operation costs beyond the bare transport.
func (r *results) healthyTable() string {
	rows := [][]string{{"healthy: added to the bare transport", "GET ns", "x bare", "B", "allocations", "GET on all cores ns", "POST 1 KiB ns", "x bare", "B", "allocations"}}
	for _, p := range r.peers {
		get, post := added(r.get, p.name), added(r.post, p.name)
		times := func(c measure.Cost, costs map[string][]measure.Cost) string {
			return fmt.Sprintf("%.1f", 1+c.Nanoseconds/measure.MedianOf(costs[bare]).Nanoseconds)
		}
		row := []string{p.name, number(get.Nanoseconds), times(get, r.get), number(get.Bytes), number(get.Allocations),
			number(added(r.getParallel, p.name).Nanoseconds), number(post.Nanoseconds), times(post, r.post), number(post.Bytes), number(post.Allocations)}
		if p.name == bare {
			get, post, all := measure.MedianOf(r.get[bare]), measure.MedianOf(r.post[bare]), measure.MedianOf(r.getParallel[bare])
			row = []string{bare + " (whole)", number(get.Nanoseconds), "1", number(get.Bytes), number(get.Allocations),
				number(all.Nanoseconds), number(post.Nanoseconds), "1", number(post.Bytes), number(post.Allocations)}
		}
		rows = append(rows, row)
	}
	return measure.Table(rows)
}

// failingTable is what an operation costs that succeeds at the fourth send, and
// what each of its retries adds.
func (r *results) failingTable() string {
	rows := [][]string{{"3 x 503, then 200", "GET ns", "allocations", "per retry", "POST 1 KiB ns", "allocations", "per retry"}}
	perRetry := func(failing, healthy map[string][]measure.Cost, name string) string {
		more := measure.MedianOf(failing[name]).Minus(measure.MedianOf(healthy[name])).Allocations
		terminal := measure.MedianOf(r.get[bare]).Allocations // an answer, whatever was asked
		return fmt.Sprintf("%.1f", more/3-terminal)
	}
	for _, p := range r.peers {
		if !p.retries {
			continue
		}
		get, post := measure.MedianOf(r.failing[p.name]), measure.MedianOf(r.failingPost[p.name])
		rows = append(rows, []string{p.name, number(get.Nanoseconds), number(get.Allocations), perRetry(r.failing, r.get, p.name),
			number(post.Nanoseconds), number(post.Allocations), perRetry(r.failingPost, r.post, p.name)})
	}
	return measure.Table(rows)
}

// claim is that one of reroute's stacks adds at most a share of what a peer adds.
type claim struct {
	own, peer string
	most      float64
}

// claims are the targets of the design, for the whole Cosmos DB stack, and the
// same for the stacks that do what the peer does.
var claims = []claim{
	{ownCosmos, safeBreaker, 1},
	{ownCosmos, retryable, 1},
	{ownCosmos, azure, 1. / 8},
	{ownCosmos, safeFour, 1. / 3},
	{ownRetry, retryable, 1},
	{ownRetry, safeRetry, 1},
	{ownBreaker, safeBreaker, 1},
	{ownFour, safeFour, 1. / 3},
	{ownRetry, azure, 1. / 8},
}

// claimsTable says which claims hold, in time for reads, on all cores, and for
// writes, and in allocations and bytes.
func (r *results) claimsTable() string {
	rows := [][]string{{"share of what the peer adds", "target", "GET ns", "GET on all cores ns", "POST ns", "GET B", "GET allocations", "reached"}}
	for _, c := range claims {
		get, peer := added(r.get, c.own), added(r.get, c.peer)
		shares := []float64{
			get.Nanoseconds / peer.Nanoseconds,
			added(r.getParallel, c.own).Nanoseconds / added(r.getParallel, c.peer).Nanoseconds,
			added(r.post, c.own).Nanoseconds / added(r.post, c.peer).Nanoseconds,
			get.Bytes / peer.Bytes,
			get.Allocations / peer.Allocations,
		}
		row := []string{c.own + " / " + c.peer, fmt.Sprintf("%.2g", c.most)}
		reached := "yes"
		for _, share := range shares {
			row = append(row, fmt.Sprintf("%.2f", share))
			if share > c.most {
				reached = "in part"
			}
		}
		if shares[0] > c.most {
			reached = "**no**"
		}
		rows = append(rows, append(row, reached))
	}
	return measure.Table(rows)
}

// number renders a figure whole, without a sign at 0.
func number(f float64) string { return fmt.Sprintf("%.0f", math.Round(f)+0) }
