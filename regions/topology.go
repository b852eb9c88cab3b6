package regions

import (
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
)

// maxEndpoints is more regions than any account has; a list beyond it is junk, and is not kept.
const maxEndpoints = 512

// Topology is an immutable snapshot of the account, as it was told. Once held by a Registry it must not be changed.
type Topology struct {
	Reads  []Endpoint // account order
	Writes []Endpoint // account order; the first is the hub

	// MultiWrite: every region of Writes takes writes. Else only the first does.
	MultiWrite bool
	// PartitionFailover: the account fails over single partitions (PPAF).
	PartitionFailover bool

	// Generation is set by the Registry: 1 for its first topology, and greater for each one that differs.
	Generation uint64

	plan plan
}

// TopologyError refuses a topology that a Source told. The old one stays.
type TopologyError struct {
	Problem string // what is wrong, and where
	Value   string // the offending value, without credentials
}

// Error names the problem and at most 200 characters of the value.
func (e *TopologyError) Error() string {
	if e.Value == "" {
		return "regions: topology refused: " + e.Problem
	}
	return fmt.Sprintf("regions: topology refused: %s: %.200q", e.Problem, e.Value)
}

// plan is what Pick needs of a topology, computed once when it is accepted.
type plan struct {
	reads, writes, hub []candidate // in order of preference
	all                []candidate // reads, then the write regions that are not among them

	names [Hub + 1][]Name // of each List, in its order
}

// candidate is an endpoint with the key that marks are kept by.
type candidate struct {
	Endpoint
	host string
}

func (t *Topology) list(l List) []candidate {
	switch l {
	case WriteRegions:
		return t.plan.writes
	case Hub:
		return t.plan.hub
	default:
		return t.plan.reads
	}
}

// adopt checks a told topology and returns the registry's own copy of it.
func adopt(told *Topology, preferred []Name) (*Topology, error) {
	if len(told.Reads) == 0 && len(told.Writes) == 0 {
		return nil, &TopologyError{Problem: "neither a read nor a write region"}
	}
	reads, err := candidates("Reads", told.Reads)
	if err != nil {
		return nil, err
	}
	writes, err := candidates("Writes", told.Writes)
	if err != nil {
		return nil, err
	}
	t := &Topology{
		Reads: endpoints(reads), Writes: endpoints(writes),
		MultiWrite: told.MultiWrite, PartitionFailover: told.PartitionFailover,
	}
	if len(writes) > 0 {
		t.plan.hub = writes[:1:1]
	}
	if t.plan.writes = t.plan.hub; t.MultiWrite {
		t.plan.writes = order(writes, preferred)
	}
	if t.plan.reads = order(reads, preferred); len(reads) == 0 {
		t.plan.reads = t.plan.writes
	}
	t.plan.all = slices.Clip(t.plan.reads)
	for _, w := range t.plan.writes {
		if !slices.ContainsFunc(t.plan.all, func(c candidate) bool { return c.host == w.host && c.Region.Equal(w.Region) }) {
			t.plan.all = append(t.plan.all, w)
		}
	}
	for l := range t.plan.names {
		for _, c := range t.list(List(l)) {
			t.plan.names[l] = append(t.plan.names[l], c.Region)
		}
	}
	return t, nil
}

// candidates checks and copies a told list. An endpoint told twice is kept once.
func candidates(field string, told []Endpoint) ([]candidate, error) {
	if len(told) > maxEndpoints {
		return nil, &TopologyError{Problem: field + " is too long", Value: fmt.Sprint(len(told), " endpoints")}
	}
	out := make([]candidate, 0, len(told))
	for i, e := range told {
		bad := func(problem, value string) error {
			return &TopologyError{Problem: fmt.Sprintf("%s[%d] %s", field, i, problem), Value: value}
		}
		switch {
		case e.Region.Key() == "":
			return nil, bad("has no region name", string(e.Region))
		case e.URL == nil:
			return nil, bad("has no URL", string(e.Region))
		case e.URL.Scheme != "https" && e.URL.Scheme != "http":
			return nil, bad("is neither https nor http", e.URL.Scheme)
		case e.URL.Hostname() == "":
			return nil, bad("has no host", string(e.Region))
		}
		c := candidate{host: hostKey(e.URL), Endpoint: Endpoint{
			Region: e.Region,
			URL:    &url.URL{Scheme: e.URL.Scheme, Host: strings.ToLower(e.URL.Host)},
		}}
		if !slices.ContainsFunc(out, func(o candidate) bool { return o.host == c.host && o.Region.Equal(c.Region) }) {
			out = append(out, c)
		}
	}
	return out, nil
}

// order puts the preferred regions first, in order of preference.
func order(list []candidate, preferred []Name) []candidate {
	out := make([]candidate, 0, len(list))
	for _, p := range preferred {
		for _, c := range list {
			if c.Region.Equal(p) {
				out = append(out, c)
			}
		}
	}
	for _, c := range list {
		if !contains(preferred, c.Region) {
			out = append(out, c)
		}
	}
	return out
}

func endpoints(list []candidate) []Endpoint {
	out := make([]Endpoint, len(list))
	for i, c := range list {
		out[i] = c.Endpoint
	}
	return out
}

// same reports whether two topologies tell the same.
func (t *Topology) same(o *Topology) bool {
	eq := func(a, b Endpoint) bool { return a.Region == b.Region && *a.URL == *b.URL }
	return t.MultiWrite == o.MultiWrite && t.PartitionFailover == o.PartitionFailover &&
		slices.EqualFunc(t.Reads, o.Reads, eq) && slices.EqualFunc(t.Writes, o.Writes, eq)
}

// hostKey is host:port in lower case, with the scheme's own port when none is given.
func hostKey(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = defaultPort(u.Scheme)
	}
	return net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}

func defaultPort(scheme string) string {
	if scheme == "http" {
		return "80"
	}
	return "443"
}
