package cosmos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/middleware/cosmos/cosmostest"
	"github.com/reroute-go/reroute/partitions"
	"github.com/reroute-go/reroute/regions"
)

const (
	goodContainer = `{"id":"c","_rid":"rid==","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2}}`
	goodPage      = `{"_rid":"rid==","PartitionKeyRanges":[{"id":"0","minInclusive":"","maxExclusive":"FF"}],"_count":1}`
	eastUS        = regions.Name("East US")
	westUS        = regions.Name("West US")
)

// inSource runs a test of a source over an account whose reads go to east, then to west.
func inSource(t *testing.T, f func(t *testing.T, service *fake, s *partitionSource)) {
	bubble(t, func(t *testing.T, service *fake) {
		a := opened(t, service, Options{})
		fetcher, err := newFetcher(service, SharedKey(testKey), 10*time.Second, throttle{defaultThrottles, defaultThrottleWait})
		require.NoError(t, err)
		require.Equal(t, eastUS, a.Regions.Names(regions.ReadRegions)[0])
		service.forget()
		f(t, service, &partitionSource{fetcher: fetcher, regions: a.Regions})
	})
}

func kindIn(t *testing.T, err error) partitions.FailureKind {
	t.Helper()
	var told *partitions.SourceError
	require.ErrorAs(t, err, &told)
	return told.Kind
}

func TestAPageIsAskedForAsTheServiceWantsIt(t *testing.T) { // pkrange-gaps.md, R143
	inSource(t, func(t *testing.T, service *fake, s *partitionSource) {
		var asked []*http.Request
		service.on(eastAt, func(req *http.Request) (*http.Response, error) {
			asked = append(asked, req)
			if req.Header.Get("If-None-Match") != "" {
				return says(304, "", "Etag", `"e2"`)(req)
			}
			return says(200, goodPage, "Etag", `"e1"`)(req)
		})
		page, err := s.RangePage(t.Context(), "dbs/d/colls/c", "", "")
		require.NoError(t, err)
		require.Equal(t, `"e1"`, page.Continuation)
		require.Equal(t, eastUS, page.Region)
		require.False(t, page.Unchanged)
		require.Len(t, page.Ranges, 1)

		page, err = s.RangePage(t.Context(), "dbs/d/colls/c", page.Continuation, page.Region)
		require.NoError(t, err)
		require.True(t, page.Unchanged)
		require.Equal(t, `"e2"`, page.Continuation)
		require.Empty(t, page.Ranges)

		require.Len(t, asked, 2)
		for i, etag := range []string{"", `"e1"`} {
			h := asked[i].Header
			require.Equal(t, "/dbs/d/colls/c/pkranges", asked[i].URL.EscapedPath())
			require.Equal(t, "Incremental Feed", h.Get("A-IM"))
			require.Equal(t, "-1", h.Get("X-Ms-Max-Item-Count"))
			require.Equal(t, etag, h.Get("If-None-Match"))
			require.NotEmpty(t, h.Get("Authorization"))
			require.NotEmpty(t, h.Get("X-Ms-Version"))
		}
	})
}

func TestAContainersPropertiesAreRead(t *testing.T) {
	inSource(t, func(t *testing.T, service *fake, s *partitionSource) {
		for body, want := range map[string]partitions.Container{
			goodContainer: {RID: "rid==", Definition: partitions.Definition{Kind: partitions.KindHash, Version: 2, Paths: 1}},
			`{"_rid":"r","partitionKey":{"paths":["/a","/b"],"kind":"MultiHash","version":2}}`: {RID: "r", Definition: partitions.Definition{Kind: partitions.KindMultiHash, Version: 2, Paths: 2}},
			`{"_rid":"r","partitionKey":{"paths":["/a"],"kind":"Hash"}}`:                       {RID: "r", Definition: partitions.Definition{Kind: partitions.KindHash, Paths: 1}},
			`{"_rid":"r"}`: {RID: "r"},
		} {
			service.on(eastAt, says(200, body))
			got, err := s.Container(t.Context(), "dbs/d/colls/c")
			require.NoError(t, err, body)
			require.Equal(t, want, got)
		}
	})
}

func TestJunkIsPassedOverForTheNextRegion(t *testing.T) {
	for name, bad := range map[string]string{
		"html": "<html>", "nothing": "", "null": "null", "a list": "[]", "no rid": `{"partitionKey":{"paths":["/pk"],"kind":"Hash"}}`,
		"a rid of another type": `{"_rid":7}`, "cut off": goodContainer[:40], "too long": `{"_rid":"` + strings.Repeat("x", maxDocument) + `"}`,
	} {
		inSource(t, func(t *testing.T, service *fake, s *partitionSource) {
			service.on(eastAt, says(200, bad))
			_, err := s.Container(t.Context(), "dbs/d/colls/c")
			require.Error(t, err, name)
			require.Equal(t, partitions.Transient, kindIn(t, err))
			var at *FetchError
			require.ErrorAs(t, err, &at)
			require.Equal(t, "container", at.What)
			require.Less(t, len(err.Error()), 1024, "an error is no dump")
			service.on(westAt, says(200, goodContainer))
			got, err := s.Container(t.Context(), "dbs/d/colls/c")
			require.NoError(t, err, name)
			require.Equal(t, "rid==", got.RID)
			require.Empty(t, s.regions.Marks(), "junk judges no endpoint, and west, which refused a connection at first, has answered")
		})
	}
	for name, bad := range map[string]string{
		"html": "<html>", "nothing": "", "null": "null", "no list": `{"_rid":"r"}`, "a list of junk": `{"PartitionKeyRanges":[7]}`,
		"a backward range": `{"PartitionKeyRanges":[{"id":"0","minInclusive":"FF","maxExclusive":""}]}`,
		"an id for tokens": `{"PartitionKeyRanges":[{"id":"0,1:2","minInclusive":"","maxExclusive":"FF"}]}`,
	} {
		inSource(t, func(t *testing.T, service *fake, s *partitionSource) {
			service.on(eastAt, says(200, bad, "Etag", `"bad"`))
			service.on(westAt, says(200, goodPage, "Etag", `"good"`))
			page, err := s.RangePage(t.Context(), "dbs/d/colls/c", "", "")
			require.NoError(t, err, name)
			require.Equal(t, westUS, page.Region)
			require.Equal(t, `"good"`, page.Continuation)
			require.Empty(t, s.regions.Marks())
		})
	}
}

func TestAnAnswerOfAnySizeTakesBoundedMemory(t *testing.T) {
	inSource(t, func(t *testing.T, service *fake, s *partitionSource) {
		var read int
		service.on(eastAt, func(req *http.Request) (*http.Response, error) {
			resp := answered(200)
			resp.Body, resp.Request = io.NopCloser(countingReader{&read}), req
			return resp, nil
		})
		service.on(westAt, says(200, goodPage))
		page, err := s.RangePage(t.Context(), "dbs/d/colls/c", "", "")
		require.NoError(t, err)
		require.Equal(t, westUS, page.Region)
		require.LessOrEqual(t, read, maxPage+1)
	})
}

// countingReader has no end.
type countingReader struct{ n *int }

func (c countingReader) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	*c.n += len(p)
	return len(p), nil
}

func TestAnAnswerThatStallsIsLeftForTheNextRegion(t *testing.T) {
	inSource(t, func(t *testing.T, service *fake, s *partitionSource) {
		service.on(eastAt, func(req *http.Request) (*http.Response, error) {
			resp := answered(200)
			resp.Body, resp.Request = endless{req.Context()}, req
			return resp, nil
		})
		service.on(westAt, says(200, goodPage))
		start := time.Now()
		_, err := s.RangePage(t.Context(), "dbs/d/colls/c", "", "")
		require.NoError(t, err)
		require.Equal(t, 10*time.Second, time.Since(start))
		require.Empty(t, s.regions.Marks())
	})
}

func TestAThrottledPageWaitsInItsRegion(t *testing.T) { // gap 1
	inSource(t, func(t *testing.T, service *fake, s *partitionSource) {
		service.on(eastAt, inTurn(says(429, "", "X-Ms-Retry-After-Ms", "700"), says(429, "", "Retry-After", "2"), says(200, goodPage)))
		start := time.Now()
		page, err := s.RangePage(t.Context(), "dbs/d/colls/c", "", "")
		require.NoError(t, err)
		require.Equal(t, eastUS, page.Region)
		require.Equal(t, 2700*time.Millisecond, time.Since(start))
		require.Equal(t, []string{eastAt, eastAt, eastAt}, service.hosts())
	})
	inSource(t, func(t *testing.T, service *fake, s *partitionSource) { // nine in all, then the next region; and a page that is pinned has none
		service.on(eastAt, says(429, "", "X-Ms-Retry-After-Ms", "100"))
		service.on(westAt, says(200, goodPage))
		page, err := s.RangePage(t.Context(), "dbs/d/colls/c", "", "")
		require.NoError(t, err)
		require.Equal(t, westUS, page.Region)
		require.Len(t, service.hosts(), 11)
		service.forget()
		_, err = s.RangePage(t.Context(), "dbs/d/colls/c", `"e"`, eastUS)
		require.Equal(t, partitions.Transient, kindIn(t, err))
		require.Len(t, service.hosts(), 10)
	})
	inSource(t, func(t *testing.T, service *fake, s *partitionSource) { // a wish beyond 30 s is not begun
		service.on(eastAt, says(429, "", "X-Ms-Retry-After-Ms", "31000"))
		service.on(westAt, says(200, goodPage))
		start := time.Now()
		page, err := s.RangePage(t.Context(), "dbs/d/colls/c", "", "")
		require.NoError(t, err)
		require.Equal(t, westUS, page.Region)
		require.Zero(t, time.Since(start))
	})
}

func TestEachFailureHasItsKind(t *testing.T) { // gaps 3 and 4
	for answer, want := range map[[2]int]struct {
		kind  partitions.FailureKind
		walks bool // another region may answer otherwise
	}{
		{401, 0}: {partitions.Forbidden, false}, {403, 0}: {partitions.Forbidden, false}, {403, 5300}: {partitions.Forbidden, false},
		{403, 3}: {partitions.Transient, true}, {403, 1008}: {partitions.Transient, true},
		{404, 0}: {partitions.Absent, false}, {404, 1003}: {partitions.Absent, false}, {404, 1002}: {partitions.SessionUnavailable, false},
		{408, 0}: {partitions.Transient, true}, {410, 0}: {partitions.Transient, true}, {429, 3092}: {partitions.Transient, true},
		{500, 0}: {partitions.Transient, true}, {503, 0}: {partitions.Transient, true}, {302, 0}: {partitions.Transient, true}, {400, 0}: {partitions.Transient, true},
	} {
		inSource(t, func(t *testing.T, service *fake, s *partitionSource) {
			bad := says(answer[0], `{"message":"no"}`, "X-Ms-Substatus", fmt.Sprint(answer[1]))
			service.on(eastAt, bad)
			service.on(westAt, bad)
			for what, do := range map[string]func() error{
				"container":            func() error { _, err := s.Container(t.Context(), "dbs/d/colls/c"); return err },
				"partition key ranges": func() error { _, err := s.RangePage(t.Context(), "dbs/d/colls/c", "", ""); return err },
			} {
				service.forget()
				err := do()
				require.Equal(t, want.kind, kindIn(t, err), "%v", answer)
				var at *FetchError
				require.ErrorAs(t, err, &at)
				require.Equal(t, what, at.What)
				require.Equal(t, answer, [2]int{at.Status, at.Substatus})
				asked := []string{eastAt}
				if want.walks {
					asked = append(asked, westAt)
					require.ErrorContains(t, err, westAt, "each is told")
				}
				require.Equal(t, asked, service.hosts(), "%v", answer)
				require.ErrorContains(t, err, eastAt)
				require.Empty(t, s.regions.Marks(), "one read judges no endpoint that answers")
			}
		})
	}
}

func TestARegionThatCannotBeReachedIsMarkedAndPassedOver(t *testing.T) {
	inSource(t, func(t *testing.T, service *fake, s *partitionSource) {
		service.on(westAt, says(200, goodContainer))
		_, err := s.Container(t.Context(), "dbs/d/colls/c")
		require.NoError(t, err)
		require.Equal(t, []string{eastAt, westAt}, service.hosts())
		require.Equal(t, eastUS, s.regions.Marks()[0].Endpoint.Region)
		service.forget()
		_, err = s.Container(t.Context(), "dbs/d/colls/c")
		require.NoError(t, err)
		require.Equal(t, []string{westAt}, service.hosts(), "the mark is heeded")

		service.on(westAt, says(503, ""))
		service.forget()
		_, err = s.Container(t.Context(), "dbs/d/colls/c")
		require.Error(t, err)
		require.Equal(t, []string{westAt, eastAt}, service.hosts(), "the marked one before one that was asked already")
	})
}

func TestAFailingAnswerClearsNoMarkAndAGoodOneDoes(t *testing.T) {
	inSource(t, func(t *testing.T, service *fake, s *partitionSource) {
		_, err := s.Container(t.Context(), "dbs/d/colls/c")
		require.Error(t, err)
		require.Len(t, s.regions.Marks(), 2)
		time.Sleep(time.Minute)
		for _, bad := range []int{503, 408, 410, 500} {
			service.on(eastAt, says(bad, ""))
			service.on(westAt, says(bad, ""))
			_, err = s.Container(t.Context(), "dbs/d/colls/c")
			require.Error(t, err)
			require.Len(t, s.regions.Marks(), 2, "what fails others too is no recovery: %d", bad)
			for _, m := range s.regions.Marks() {
				require.False(t, m.Probing, "given back")
			}
		}
		service.on(eastAt, says(404, ""))
		_, err = s.Container(t.Context(), "dbs/d/colls/c")
		require.Equal(t, partitions.Absent, kindIn(t, err))
		require.Len(t, s.regions.Marks(), 1, "an answer that stands is one")
	})
}

func TestAPinnedPageComesFromItsRegionOrNotAtAll(t *testing.T) { // rule 11, G10
	inSource(t, func(t *testing.T, service *fake, s *partitionSource) {
		service.on(eastAt, says(200, goodPage))
		service.on(westAt, says(200, goodPage))
		page, err := s.RangePage(t.Context(), "dbs/d/colls/c", `"e"`, "west us")
		require.NoError(t, err)
		require.Equal(t, westUS, page.Region)
		require.Equal(t, []string{westAt}, service.hosts())

		service.forget()
		service.on(westAt, says(503, ""))
		_, err = s.RangePage(t.Context(), "dbs/d/colls/c", `"e"`, westUS)
		require.Equal(t, partitions.Transient, kindIn(t, err))
		require.Equal(t, []string{westAt}, service.hosts(), "a continuation means nothing elsewhere")

		service.forget()
		_, err = s.RangePage(t.Context(), "dbs/d/colls/c", `"e"`, "Mars")
		require.ErrorContains(t, err, "Mars")
		require.Empty(t, service.hosts())
	})
}

func TestARegionWithoutServiceForItsPinIsNotAsked(t *testing.T) {
	inSource(t, func(t *testing.T, service *fake, s *partitionSource) {
		service.on(westAt, says(200, goodPage))
		_, err := s.RangePage(t.Context(), "dbs/d/colls/c", "", "") // marks east
		require.NoError(t, err)
		service.forget()
		_, err = s.RangePage(t.Context(), "dbs/d/colls/c", `"e"`, eastUS)
		require.Equal(t, partitions.Transient, kindIn(t, err))
		require.Empty(t, service.hosts(), "then everything is read anew, elsewhere")
	})
}

func TestAReadThatIsEndedAsksNobodyElseAndMarksNobody(t *testing.T) {
	inSource(t, func(t *testing.T, service *fake, s *partitionSource) {
		service.on(eastAt, silence)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := s.Container(ctx, "dbs/d/colls/c")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, []string{eastAt}, service.hosts())
		require.Empty(t, s.regions.Marks())
	})
}

func TestAnAuthorizerThatFailsAsksNobody(t *testing.T) {
	inSource(t, func(t *testing.T, service *fake, s *partitionSource) {
		s.fetcher.auth = AADToken(func(context.Context) (string, time.Time, error) { return "", time.Time{}, errors.New("no token today") })
		_, err := s.Container(t.Context(), "dbs/d/colls/c")
		require.Equal(t, partitions.Forbidden, kindIn(t, err))
		require.ErrorContains(t, err, "no token today")
		require.Empty(t, service.hosts())
	})
}

// Names that need escaping, against a service that verifies signatures and reads paths by itself.
func TestContainersOfAnyNameAreRead(t *testing.T) {
	for _, name := range []string{"plain", "with space", "a+b", "100%", "%41", "größe", "日本", "dots..", "docs", "a&b=c;d", "pkranges", "semi;colon", "q'uote\"", "[x]"} {
		bubble(t, func(t *testing.T, _ *fake) {
			sim := cosmostest.Start(t, cosmostest.Config{InMemory: true, Ranges: 4})
			sim.CreateContainer("db "+name, name, cosmostest.Container{})
			sim.SetRangePageSize("db "+name, name, 3)
			a, err := Open(t.Context(), sim.Endpoint(), SharedKey(sim.Key()), Options{Transport: sim.Transport()})
			require.NoError(t, err)
			defer a.Close()
			found, err := a.Partitions.Resolve(t.Context(), "dbs/db "+name+"/colls/"+name, `["k"]`)
			require.NoError(t, err, name)
			require.Equal(t, sim.RangeOf("db "+name, name, `["k"]`), found.Partition.Range)
			require.Zero(t, sim.BadSignatures())
			require.Equal(t, 3, sim.Sends("West US", cosmostest.ReadRanges), "two pages and the end")
			require.Equal(t, 3, sim.Sends("", cosmostest.ReadRanges))
			sim.Transport().CloseIdleConnections()
		})
	}
}

func TestWhatIsNewIsReadFromTheRegionThatToldTheLast(t *testing.T) {
	bubble(t, func(t *testing.T, _ *fake) {
		sim := cosmostest.Start(t, cosmostest.Config{InMemory: true, Ranges: 4})
		sim.CreateContainer("d", "c", cosmostest.Container{})
		a, err := Open(t.Context(), sim.Endpoint(), SharedKey(sim.Key()), Options{Transport: sim.Transport()})
		require.NoError(t, err)
		defer a.Close()
		busy := sim.AddFault(cosmostest.Fault{Match: cosmostest.Match{Region: "West US", Operations: []cosmostest.Operation{cosmostest.ReadRanges}}, Answer: cosmostest.Error(503, 0)})
		seen, err := a.Partitions.Resolve(t.Context(), "dbs/d/colls/c", `["k"]`)
		require.NoError(t, err)
		busy.Remove()
		sim.ResetLog()
		sim.Split("d", "c", seen.Partition.Range)
		require.NoError(t, a.Partitions.Refresh(t.Context(), seen))
		now, err := a.Partitions.Resolve(t.Context(), "dbs/d/colls/c", `["k"]`)
		require.NoError(t, err)
		require.Equal(t, sim.RangeOf("d", "c", `["k"]`), now.Partition.Range)
		require.Equal(t, 2, sim.Sends("East US", cosmostest.ReadRanges), "the children, and the end")
		require.Equal(t, 2, sim.Sends(""))

		sim.SetOffline("East US", cosmostest.Refused)
		sim.ResetLog()
		sim.Split("d", "c", now.Partition.Range)
		require.NoError(t, a.Partitions.Refresh(t.Context(), now))
		require.Equal(t, 2, sim.Sends("West US", cosmostest.ReadRanges), "everything, where it can be had")
		sim.Transport().CloseIdleConnections()
	})
}
