// Peers measures reroute beside other libraries that retry: the same requests,
// the same terminal transport, one run. From this folder, on a machine that does
// nothing else:
//
//	go run .         # some minutes, rewrites the tables of README.md
//	go run . -short  # a second, prints them
package main

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/reroute-go/reroute/benchmarks/internal/measure"
	"github.com/reroute-go/reroute/benchmarks/internal/workload"
)

const document = "README.md"

func main() {
	short := flag.Bool("short", false, "measure little, and only print")
	flag.Parse()
	if err := run(*short); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(short bool) error {
	machine := measure.Machine()
	rounds, spell := 9, 100*time.Millisecond
	if short {
		rounds, spell = 1, time.Millisecond
	}
	r, err := measureAll(rounds, spell)
	if err != nil {
		return err
	}
	text := fmt.Sprintf("\n%s\n%s\n%s\nMedians of %d rounds of %v. %s.\n\n", r.healthyTable(), r.failingTable(), r.claimsTable(), rounds, spell, machine)
	fmt.Print(text)
	if short {
		return nil
	}
	return measure.Rewrite(document, "figures", text)
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
