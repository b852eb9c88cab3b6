package ownership

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/reroute-go/reroute/internal/check"
	"github.com/reroute-go/reroute/middleware"
)

// HTTPSource reads the map as JSON with one GET: MapHandler serves it. Maps that
// have an epoch are asked for with If-None-Match, so that an unchanged one costs
// a 304. Use it by pointer; it is safe for concurrent use.
//
//	{"epoch": 8, "segments": [{"owner": "a:80", "replica": "b:80"}, ...], "nodes": ["c:80"]}
type HTTPSource struct {
	URL string // http or https; required
	// Client sends; nil = one of its own. Redirects are followed only if its
	// CheckRedirect says so: Header would go along. Do not give the client whose
	// requests the map routes: it would wait for itself.
	Client *http.Client
	Header http.Header // added to each request, such as a credential
	// MaxBytes bounds the answer's body; 0 = 64 MiB.
	MaxBytes int64

	once sync.Once
	own  *http.Client
}

// FetchError says why a map could not be read over HTTP.
type FetchError struct {
	Status int   // of the answer; 0 = there was none
	Err    error // of the transport or of the map; nil for an answer of another status than 200
}

// Error is the status or what failed.
func (e *FetchError) Error() string {
	if e.Status != 0 && e.Err == nil {
		return fmt.Sprintf("ownership: map service answered %d", e.Status)
	}
	text := middleware.Redact(e.Err).Error()
	if len(text) > maxText { // JSON's errors repeat numbers whole
		text = strings.ToValidUTF8(text[:maxText], "") + "..."
	}
	return "ownership: map not read: " + text
}

// maxText bounds what an error says.
const maxText = 500

// MarshalText gives loggers that marshal what Error shows.
func (e *FetchError) MarshalText() ([]byte, error) { return []byte(e.Error()), nil }

// Unwrap returns what failed.
func (e *FetchError) Unwrap() error { return e.Err }

// Permanent reports whether asking again soon is useless: 401, 403 and 404.
func (e *FetchError) Permanent() bool {
	return e.Status == http.StatusUnauthorized || e.Status == http.StatusForbidden || e.Status == http.StatusNotFound
}

// maxValues bounds what a map's text may hold: two nodes a segment, and as many
// that own nothing.
const maxValues = 3 * maxSegments

// Format prints no more than the type, whatever the verb: the URL and the headers
// may be credentials.
func (s *HTTPSource) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "ownership.HTTPSource") }

// MarshalText writes what Format prints, for loggers that marshal.
func (s *HTTPSource) MarshalText() ([]byte, error) { return fmt.Append(nil, s), nil }

// Validate reports bad fields, all at once, and shows no credential. New asks it,
// and every Fetch.
func (s *HTTPSource) Validate() error {
	var errs []error
	u, err := url.Parse(s.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		errs = append(errs, fmt.Errorf("HTTPSource.URL is %q, want http or https, a host and a path", check.Shown(s.URL)))
	}
	for _, name := range slices.Sorted(maps.Keys(s.Header)) {
		switch {
		case !check.HeaderName(name):
			errs = append(errs, fmt.Errorf("HTTPSource.Header has %q, want the name of a header", check.Shown(name)))
		case slices.ContainsFunc(s.Header[name], func(value string) bool { return !check.HeaderValue(value) }):
			errs = append(errs, fmt.Errorf("HTTPSource.Header[%q] holds a control character", name))
		}
	}
	if s.MaxBytes < 0 {
		errs = append(errs, fmt.Errorf("HTTPSource.MaxBytes is %d, want >= 0", s.MaxBytes))
	}
	return errors.Join(errs...)
}

// Fetch reads the map. Every error is a *FetchError.
func (s *HTTPSource) Fetch(ctx context.Context, old *Map) (*Map, error) {
	err := s.Validate()
	if err != nil {
		return nil, &FetchError{Err: err}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL, nil)
	if err != nil {
		return nil, &FetchError{Err: err}
	}
	for name, values := range s.Header {
		req.Header[http.CanonicalHeaderKey(name)] = append([]string(nil), values...)
	}
	if old != nil && old.Epoch != 0 {
		req.Header.Set("If-None-Match", tagOf(old))
	}
	resp, err := s.client().Do(req)
	if err != nil {
		return nil, &FetchError{Err: err}
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusNotModified && old != nil:
		return old, nil
	case resp.StatusCode != http.StatusOK:
		if resp.StatusCode != http.StatusSwitchingProtocols { // an upgraded connection does not end with ctx
			_, _ = io.CopyN(io.Discard, resp.Body, 64<<10)
		}
		return nil, &FetchError{Status: resp.StatusCode}
	}
	limit := orDefault(s.MaxBytes, 64<<20)
	body, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	switch {
	case err != nil:
		return nil, &FetchError{Status: resp.StatusCode, Err: err}
	case int64(len(body)) > limit:
		return nil, &FetchError{Status: resp.StatusCode, Err: fmt.Errorf("map of more than %d bytes", limit)}
	}
	if n := bytes.Count(body, []byte(",")); n > maxValues {
		// Decoded, "{}," takes ten times as much memory, before anyone can count.
		return nil, &FetchError{Status: resp.StatusCode, Err: fmt.Errorf("map of %d values, want at most %d", n, maxValues)}
	}
	m := new(Map)
	if err := json.Unmarshal(body, m); err != nil {
		return nil, &FetchError{Status: resp.StatusCode, Err: err}
	}
	return m, nil
}

func (s *HTTPSource) client() *http.Client {
	s.once.Do(func() {
		s.own = &http.Client{}
		if s.Client != nil {
			*s.own = *s.Client
		} else {
			s.own.Transport = http.DefaultTransport.(*http.Transport).Clone()
		}
		if s.own.CheckRedirect == nil {
			s.own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		}
	})
	return s.own
}

func tagOf(m *Map) string { return strconv.Quote(strconv.FormatUint(m.Epoch, 10)) }

// MapHandler serves the map that current returns, in the form HTTPSource reads;
// nil answers 503.
func MapHandler(current func() *Map) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
		m := current()
		if m == nil {
			http.Error(rw, "no map yet", http.StatusServiceUnavailable)
			return
		}
		if m.Epoch != 0 {
			rw.Header().Set("ETag", tagOf(m))
			if req.Header.Get("If-None-Match") == tagOf(m) {
				rw.WriteHeader(http.StatusNotModified)
				return
			}
		}
		body, err := json.Marshal(m)
		if err != nil {
			http.Error(rw, "map cannot be encoded", http.StatusInternalServerError)
			return
		}
		rw.Header().Set("Content-Type", "application/json")
		_, _ = rw.Write(body)
	})
}
