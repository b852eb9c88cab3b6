// Peers measures reroute beside other libraries that retry: the same requests,
// the same terminal transport, one run. From this folder, on a machine that does
// nothing else:
//
//	go run .         # some minutes, rewrites the tables of README.md
//	go run . -short  # a second, prints them
package main

import (
	"fmt"
	"net/http"
	"time"

	"github.com/reroute-go/reroute/benchmarks/internal/measure"
	"github.com/reroute-go/reroute/benchmarks/internal/workload"
)

const document = "README.md"

func main() {
	measure.Command{Document: document, Section: "figures", Rounds: 9, Spell: 100 * time.Millisecond, Tables: tables}.Main()
}

func tables(rounds int, spell time.Duration) (string, error) {
	r, err := measureAll(rounds, spell)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s\n%s\n%s", r.healthyTable(), r.failingTable(), r.claimsTable()), nil
}

// results are the costs of all peers, by name.
type results struct {
	peers []peer

	get, getParallel, post map[string][]measure.Cost
	failing, failingPost   map[string][]measure.Cost // of those that retry
}

// measureAll measures all peers in turn, each kind of work by itself.
func measureAll(rounds int, spell time.Duration) (*results, error) {
	r := &results{peers: peers()}
	healthy := func() http.RoundTripper { return workload.Terminal{} }
	troubled := func() http.RoundTripper { return failing() }
	for _, work := range []struct {
		into     *map[string][]measure.Cost
		base     func() http.RoundTripper
		kind     workload.Kind
		parallel bool
		retries  bool
	}{
		{&r.get, healthy, workload.Get, false, false},
		{&r.getParallel, healthy, workload.Get, true, false},
		{&r.post, healthy, workload.Post, false, false},
		{&r.failing, troubled, workload.Get, false, true},
		{&r.failingPost, troubled, workload.Post, false, true},
	} {
		var subjects []measure.Subject
		for _, p := range r.peers {
			if work.retries && !p.retries {
				continue
			}
			s, err := p.subject(work.base(), work.kind, work.parallel)
			if err != nil {
				return nil, err
			}
			subjects = append(subjects, s)
		}
		costs, err := measure.Rounds(subjects, rounds, spell)
		if err != nil {
			return nil, err
		}
		*work.into = map[string][]measure.Cost{}
		for i, s := range subjects {
			(*work.into)[s.Name] = costs[i]
		}
	}
	return r, nil
}
