package cosmos

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/reroute-go/reroute/partitions"
	"github.com/reroute-go/reroute/regions"
)

// maxPage bounds an answer of the range feed; the service ends its pages at 4 MiB.
const maxPage = 16 << 20

// partitionSource reads containers and their ranges: in the region that serves reads best, else in the next. A 429 is
// waited out in its region, 9 times and 30 s in all, before another one is asked (pkrange-gaps.md, gap 1).
type partitionSource struct {
	fetcher *fetcher
	regions *regions.Registry
}

// Container reads the container's properties.
func (s *partitionSource) Container(ctx context.Context, name string) (partitions.Container, error) {
	var c partitions.Container
	_, err := s.walk(ctx, "container", pathOf(name), nil, "", func(got reply) (err error) {
		c, err = containerOf(got.body)
		return err
	})
	return c, err
}

// RangePage reads one page of the feed of ranges, from the region that pin names if it names one.
func (s *partitionSource) RangePage(ctx context.Context, name, continuation string, pin regions.Name) (partitions.Page, error) {
	header := http.Header{headerChangeFeed: {"Incremental Feed"}, headerMaxItems: {"-1"}}
	if continuation != "" {
		header[headerIfNoneMatch] = []string{continuation}
	}
	var page partitions.Page
	region, err := s.walk(ctx, "partition key ranges", pathOf(name)+"/pkranges", header, pin, func(got reply) (err error) {
		page = partitions.Page{Continuation: got.header.Get(headerETag), Unchanged: got.unchanged}
		if !got.unchanged {
			page.Ranges, err = partitions.DecodeRanges(bytes.NewReader(got.body))
		}
		return err
	})
	page.Region = region
	return page, err
}

// walk asks one region after the other, each once, until one gives what take accepts. What another region would not
// answer otherwise ends it: a missing container, a refused credential, a session that the region has not caught up with.
func (s *partitionSource) walk(ctx context.Context, what, path string, header http.Header, pin regions.Name, take func(reply) error) (regions.Name, error) {
	var asked []regions.Avoided
	var errs []error
	for range s.regions.Candidates(regions.ReadRegions, nil) {
		choice, err := s.pick(pin, asked)
		if err != nil {
			errs = append(errs, err)
			break
		}
		u := *choice.URL
		u.RawPath = path
		u.Path, _ = url.PathUnescape(path)
		got, failed := s.fetcher.get(ctx, s.fetcher.pages, what, &u, header)
		if failed == nil {
			if err := take(got); err != nil {
				failed = &FetchError{What: what, Endpoint: u.Host, Err: err}
			}
		}
		if failed == nil {
			s.regions.Report(choice, regions.Healthy, 0)
			return choice.Region, nil
		}
		s.regions.Report(choice, verdictOn(ctx, failed), regions.Unreachable)
		errs = append(errs, failed)
		if kind := kindOf(failed); kind != partitions.Transient {
			return "", &partitions.SourceError{Kind: kind, Err: failed}
		}
		if ctx.Err() != nil || pin != "" {
			break
		}
		asked = append(asked, regions.Avoided{Region: choice.Region, Times: 2}) // a marked region before one asked already
	}
	return "", &partitions.SourceError{Kind: partitions.Transient, Err: errors.Join(errs...)}
}

// pick chooses like an operation without exclusions: routing preferences do not blind us to the partitions.
func (s *partitionSource) pick(pin regions.Name, asked []regions.Avoided) (regions.Choice, error) {
	choice, err := s.regions.Pick(regions.Want{Avoided: asked, Prefer: pin})
	if err == nil && pin != "" && !choice.Region.Equal(pin) {
		s.regions.Report(choice, regions.Neutral, 0)
		return choice, fmt.Errorf("cosmos: region %q does not serve now", pin)
	}
	return choice, err
}

// verdictOn judges the endpoint: only one that could not be reached is marked here, as answers are the operation's to judge.
// An answer that another region may better clears no mark.
func verdictOn(ctx context.Context, e *FetchError) regions.Verdict {
	switch {
	case e.Status != 0 && kindOf(e) != partitions.Transient:
		return regions.Healthy
	case ctx.Err() == nil && e.unreachable():
		return regions.Failed
	}
	return regions.Neutral
}

// kindOf says what another region or another try could change.
func kindOf(e *FetchError) partitions.FailureKind {
	switch {
	case e.hopeless():
		return partitions.Forbidden
	case e.Status == http.StatusNotFound && e.Substatus == readSessionNotAvailable:
		return partitions.SessionUnavailable
	case e.Status == http.StatusNotFound:
		return partitions.Absent
	}
	return partitions.Transient
}

// pathOf escapes a container's name ("dbs/d/colls/c") for a URL.
func pathOf(name string) string {
	segments := strings.Split(name, "/")
	for i, s := range segments {
		segments[i] = url.PathEscape(s)
	}
	return "/" + strings.Join(segments, "/")
}

// containerOf reads what routing needs of a container document.
func containerOf(body []byte) (partitions.Container, error) {
	var doc struct {
		RID          string `json:"_rid"`
		PartitionKey *struct {
			Paths   []string        `json:"paths"`
			Kind    partitions.Kind `json:"kind"`
			Version int             `json:"version"`
		} `json:"partitionKey"`
	}
	if len(body) > maxDocument {
		return partitions.Container{}, refuse("", "longer than %d bytes", maxDocument)
	}
	if err := json.Unmarshal(body, &doc); err != nil {
		return partitions.Container{}, refuse("", "no container document: %v", err)
	}
	if doc.RID == "" {
		return partitions.Container{}, refuse("", "the container document has no _rid")
	}
	c := partitions.Container{RID: doc.RID}
	if doc.PartitionKey != nil {
		c.Definition = partitions.Definition{Kind: doc.PartitionKey.Kind, Version: doc.PartitionKey.Version, Paths: len(doc.PartitionKey.Paths)}
	}
	return c, nil
}
