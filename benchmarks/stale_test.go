package benchmarks

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/benchmarks/internal/workload"
	"github.com/reroute-go/reroute/middleware/cosmos"
	"github.com/reroute-go/reroute/middleware/ownership"
	"github.com/reroute-go/reroute/partitions"
	"github.com/reroute-go/reroute/roundtrippers"
)

const crowd = 1000

// eager refreshes at once: a wait of the clock is not what is measured.
var eager = partitions.Config{RefreshInterval: 1}

// meeting answers the first sends of a crowd all at once, when the last has come,
// and those of whoever comes again like a Terminal.
type meeting struct {
	first  func(*http.Request) *http.Response
	missed sync.WaitGroup
	sends  atomic.Int64
}

func newMeeting(first func(*http.Request) *http.Response) *meeting {
	m := &meeting{first: first}
	m.missed.Add(crowd)
	return m
}

func (m *meeting) RoundTrip(req *http.Request) (*http.Response, error) {
	if m.sends.Add(1) > crowd {
		return workload.Terminal{}.RoundTrip(req)
	}
	m.missed.Done()
	m.missed.Wait()
	return m.first(req), nil
}

// together makes one call in each of so many goroutines.
func together(b *testing.B, rt http.RoundTripper) {
	var all sync.WaitGroup
	for range crowd {
		all.Go(func() {
			if err := workload.NewCaller(rt, workload.Get).Call(); err != nil {
				b.Error(err)
			}
		})
	}
	all.Wait()
}

func rejection(status int, name, value string) func(*http.Request) *http.Response {
	return func(req *http.Request) *http.Response {
		return &http.Response{StatusCode: status, Header: http.Header{name: {value}}, Body: http.NoBody, Request: req}
	}
}

// BenchmarkStaleMap has 1,000 operations learn together that their map is stale.
// fetches/op is how often it is read for all of them.
func BenchmarkStaleMap(b *testing.B) {
	b.Run("ranges", func(b *testing.B) {
		fetches := 0
		for b.Loop() {
			b.StopTimer()
			a, service := openAccount(b, 1000, cosmos.Options{Partitions: eager})
			rt, err := workload.Cosmos(a, newMeeting(rejection(410, "X-Ms-Substatus", "1002")))
			require.NoError(b, err)
			service.Split()
			before := service.RangeFetches()
			b.StartTimer()
			together(b, rt)
			fetches += service.RangeFetches() - before
		}
		b.ReportMetric(float64(fetches)/float64(b.N), "fetches/op")
	})
	b.Run("owners", func(b *testing.B) {
		fetches := 0
		for b.Loop() {
			b.StopTimer()
			source := &countingSource{}
			owners, err := ownership.New(ownership.Config{Source: source, Debounce: 1})
			require.NoError(b, err)
			_, err = owners.Force(b.Context())
			require.NoError(b, err)
			rt, err := roundtrippers.OwnershipBuilder{Dialect: &ownership.Dialect{}, Owners: owners,
				Base: newMeeting(rejection(421, "X-Route-Status", "moved")), Reroute: roundtrippers.Reroute{Base: 1}}.Build()
			require.NoError(b, err)
			b.StartTimer()
			together(b, rt)
			fetches += int(source.fetches.Load()) - 1
			owners.Close()
		}
		b.ReportMetric(float64(fetches)/float64(b.N), "fetches/op")
	})
}

// countingSource is a map whose segments have another owner in each epoch.
type countingSource struct{ fetches atomic.Int64 }

func (s *countingSource) Fetch(context.Context, *ownership.Map) (*ownership.Map, error) {
	epoch := uint64(s.fetches.Add(1))
	host := [...]string{"a:80", "b:80"}[epoch%2]
	return &ownership.Map{Epoch: epoch, Segments: []ownership.Segment{{Owner: host}}}, nil
}

// BenchmarkReadersWhileRefreshHangs looks partitions up, without and with a
// refresh of their map that does not come back.
func BenchmarkReadersWhileRefreshHangs(b *testing.B) {
	_, headers := someKeys(b)
	for _, hangs := range []bool{false, true} {
		b.Run(map[bool]string{false: "no refresh", true: "refresh hangs"}[hangs], func(b *testing.B) {
			a, service := openAccount(b, 10_000, cosmos.Options{Partitions: eager})
			seen, err := a.Partitions.Resolve(b.Context(), workload.Container, headers[0])
			require.NoError(b, err)
			if hangs {
				release := service.Hang()
				ended := make(chan error)
				go func() { ended <- a.Partitions.Refresh(context.Background(), seen) }()
				defer func() {
					release()
					<-ended
				}()
			}
			resolve(b, a, headers)
		})
	}
}
