package workload

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/reroute-go/reroute/partitions"
)

// Service answers what an account reads for itself: its document, a container,
// the container's ranges. Two regions, the first one takes the writes.
type Service struct {
	ranges  string
	split   string // what has changed since
	fetches atomic.Int64
	stale   atomic.Bool
	hang    atomic.Pointer[chan struct{}]
}

// NewService returns a Service whose containers have so many ranges, with
// boundaries near the even ones, as splits leave them.
func NewService(ranges int) *Service {
	random := rand.New(rand.NewPCG(1, uint64(ranges)))
	step := uint64(1<<62) / uint64(ranges) // hashes of version 2 have 126 bits
	bounds := make([]string, ranges+1)
	for i := 1; i < ranges; i++ {
		bounds[i] = fmt.Sprintf("%016X%016X", uint64(i)*step+random.Uint64N(step/2)-step/4, random.Uint64())
	}
	bounds[ranges] = "FF"
	entries := make([]string, ranges)
	for i := range entries {
		entries[i] = entry(fmt.Sprint(i), bounds[i], bounds[i+1])
	}
	middle := fmt.Sprintf("%016X%016X", step/4, 0)
	return &Service{
		ranges: page(entries...),
		split:  page(entry("left", "", middle, "0"), entry("right", middle, bounds[1], "0")),
	}
}

func page(entries ...string) string {
	return `{"PartitionKeyRanges":[` + strings.Join(entries, ",") + `]}`
}

func entry(id, from, to string, parents ...string) string {
	list := ""
	if len(parents) > 0 {
		list = `"` + strings.Join(parents, `","`) + `"`
	}
	return fmt.Sprintf(`{"id":%q,"minInclusive":%q,"maxExclusive":%q,"parents":[%s]}`, id, from, to, list)
}

// Map returns the map of the ranges.
func (s *Service) Map() (*partitions.Map, error) {
	ranges, err := partitions.DecodeRanges(strings.NewReader(s.ranges))
	if err != nil {
		return nil, err
	}
	return partitions.NewMap(ranges)
}

// Split splits the first range. Ranges read before are stale from then on.
func (s *Service) Split() { s.stale.Store(true) }

// Hang keeps all further reads of ranges waiting until release is called.
func (s *Service) Hang() (release func()) {
	gate := make(chan struct{})
	s.hang.Store(&gate)
	return func() {
		s.hang.Store(nil)
		close(gate)
	}
}

// RangeFetches returns how often the ranges were read, not counting the request
// after the last page, which says that there is no more.
func (s *Service) RangeFetches() int { return int(s.fetches.Load()) }

// RoundTrip answers.
func (s *Service) RoundTrip(req *http.Request) (*http.Response, error) {
	consume(req)
	switch {
	case req.URL.Path == "/":
		return respond(req, http.StatusOK, http.Header{}, document), nil
	case strings.HasSuffix(req.URL.Path, "/colls/c"):
		return respond(req, http.StatusOK, http.Header{}, `{"_rid":"OVJwAOcMtA0=","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2}}`), nil
	case strings.HasSuffix(req.URL.Path, "/pkranges"):
		return s.feed(req)
	}
	return respond(req, http.StatusNotFound, http.Header{}, ""), nil
}

const document = `{"id":"acct","writableLocations":[{"name":"West US","databaseAccountEndpoint":"https://account-westus.documents.example/"}],` +
	`"readableLocations":[{"name":"West US","databaseAccountEndpoint":"https://account-westus.documents.example/"},` +
	`{"name":"East US","databaseAccountEndpoint":"https://account-eastus.documents.example/"}]}`

// feed is the change feed of the ranges: all of them, then the split.
func (s *Service) feed(req *http.Request) (*http.Response, error) {
	if gate := s.hang.Load(); gate != nil {
		select {
		case <-*gate:
		case <-req.Context().Done():
			return nil, req.Context().Err()
		}
	}
	known := req.Header.Get("If-None-Match")
	switch {
	case known == "":
		s.fetches.Add(1)
		return respond(req, http.StatusOK, http.Header{"Etag": {`"1"`}}, s.ranges), nil
	case known == `"1"` && s.stale.Load():
		s.fetches.Add(1)
		return respond(req, http.StatusOK, http.Header{"Etag": {`"2"`}}, s.split), nil
	}
	return respond(req, http.StatusNotModified, http.Header{"Etag": {known}}, ""), nil
}
