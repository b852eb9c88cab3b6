package ownership_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/layertest"
	"github.com/reroute-go/reroute/middleware/ownership"
)

// handled answers requests by a handler, without sockets.
func handled(h http.Handler) *http.Client {
	return &http.Client{Transport: middleware.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, req)
		return rec.Result(), nil
	})}
}

func TestTheMapTravelsOverHTTP(t *testing.T) {
	want := &ownership.Map{Epoch: 8, Segments: []ownership.Segment{{Owner: "a:80", Replica: "b:80"}, {Owner: "b:80"}}, Nodes: []string{"c:80"}}
	var credential string
	h := ownership.MapHandler(func() *ownership.Map { return want })
	source := &ownership.HTTPSource{URL: "http://map.test/map", Header: http.Header{"authorization": {"Bearer x"}},
		Client: handled(http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
			credential = req.Header.Get("Authorization")
			h.ServeHTTP(rw, req)
		}))}
	got, err := source.Fetch(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, want, got)
	require.Equal(t, "Bearer x", credential)

	again, err := source.Fetch(t.Context(), got)
	require.NoError(t, err)
	require.Same(t, got, again, "304")
	want = &ownership.Map{Epoch: 9, Segments: want.Segments}
	again, err = source.Fetch(t.Context(), got)
	require.NoError(t, err)
	require.EqualValues(t, 9, again.Epoch)
}

func TestAMapServiceThatFailsSaysSo(t *testing.T) {
	for name, tc := range map[string]struct {
		handler   http.HandlerFunc
		status    int
		permanent bool
	}{
		"no map yet":                   {ownership.MapHandler(func() *ownership.Map { return nil }).ServeHTTP, 503, false},
		"forbidden":                    {func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(403) }, 403, true},
		"not found":                    {func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(404) }, 404, true},
		"unmodified, but we have none": {func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(304) }, 304, false},
		"no JSON":                      {func(rw http.ResponseWriter, _ *http.Request) { fmt.Fprint(rw, "<html>") }, 200, false},
		"too large":                    {func(rw http.ResponseWriter, _ *http.Request) { fmt.Fprint(rw, strings.Repeat(" ", 2000)) }, 200, false},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := (&ownership.HTTPSource{URL: "http://map.test/", Client: handled(tc.handler), MaxBytes: 1000}).Fetch(t.Context(), nil)
			var failed *ownership.FetchError
			require.ErrorAs(t, err, &failed)
			require.Equal(t, tc.status, failed.Status)
			require.Equal(t, tc.permanent, failed.Permanent())
		})
	}
	_, err := (&ownership.HTTPSource{URL: "http://bad url/"}).Fetch(t.Context(), nil)
	require.ErrorContains(t, err, "map not read")
}

func TestRealMapSourceFollowsNoRedirect(t *testing.T) {
	var strangers atomic.Int64
	stranger := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { strangers.Add(1) }))
	defer stranger.Close()
	server := httptest.NewServer(http.RedirectHandler(stranger.URL, http.StatusTemporaryRedirect))
	defer server.Close()
	for _, client := range []*http.Client{nil, {}, {Timeout: time.Minute}} {
		_, err := (&ownership.HTTPSource{URL: server.URL, Client: client, Header: http.Header{"X-Api-Key": {"secret"}}}).Fetch(t.Context(), nil)
		require.ErrorContains(t, err, "307")
	}
	require.Zero(t, strangers.Load())
	follows := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return nil }}
	_, err := (&ownership.HTTPSource{URL: server.URL, Client: follows}).Fetch(t.Context(), nil)
	require.Error(t, err)
	require.EqualValues(t, 1, strangers.Load(), "unless the client says so itself")
}

func TestAMapOfJunkGivesAShortError(t *testing.T) {
	for _, body := range []string{`{"epoch":` + strings.Repeat("9", 1<<20) + `}`, `{"segments":"` + strings.Repeat("x", 1<<20) + `"}`, strings.Repeat("[", 20000)} {
		script := layertest.NewScript(t, layertest.Step{Body: body})
		_, err := (&ownership.HTTPSource{URL: "http://map.test", Client: &http.Client{Transport: script}}).Fetch(t.Context(), nil)
		require.Error(t, err)
		require.Less(t, len(err.Error()), 600)
	}
}

// Whatever a map service says, what is accepted can be routed by.
func FuzzMap(f *testing.F) {
	f.Add([]byte(`{"epoch":8,"segments":[{"owner":"a:80","replica":"b:80"}],"nodes":["c:80"]}`))
	f.Add([]byte(`{"segments":[{"owner":"a/b"}]}`))
	f.Add([]byte(`{"segments":[{"owner":""}]}`))
	f.Add([]byte(`{"epoch":-1}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := ownership.New(ownership.Config{Source: ownership.MapSourceFunc(func(context.Context, *ownership.Map) (*ownership.Map, error) {
			m := new(ownership.Map)
			return m, json.Unmarshal(body, m)
		})})
		require.NoError(t, err)
		defer r.Close()
		m, err := r.Force(context.Background())
		if err != nil {
			require.Nil(t, m)
			return
		}
		target, err := r.Owner(context.Background(), "k")
		if err != nil {
			require.ErrorIs(t, err, middleware.ErrNoOwner)
			return
		}
		req, err := http.NewRequest("GET", "http://"+target.Endpoint+"/", nil)
		require.NoError(t, err)
		require.Equal(t, target.Endpoint, req.URL.Host)
	})
}

func TestASourceThatCanTellNothingIsRefusedAtOnce(t *testing.T) {
	for want, source := range map[string]ownership.MapSource{
		"ownership: Config.Source is nil: it is required":                                                             nil,
		"ownership: Config.Source is a nil *ownership.HTTPSource":                                                     (*ownership.HTTPSource)(nil),
		"ownership: Config.Source is a nil ownership.MapSourceFunc":                                                   ownership.MapSourceFunc(nil),
		`ownership: Config.Source: HTTPSource.URL is "", want http or https, a host and a path`:                       &ownership.HTTPSource{},
		`ownership: Config.Source: HTTPSource.URL is "map.internal/map", want http or https, a host and a path`:       &ownership.HTTPSource{URL: "map.internal/map"},
		`ownership: Config.Source: HTTPSource.URL is "ftp://map.internal/map", want http or https, a host and a path`: &ownership.HTTPSource{URL: "ftp://map.internal/map"},
		`ownership: Config.Source: HTTPSource.URL is "https://:443/map", want http or https, a host and a path`:       &ownership.HTTPSource{URL: "https://:443/map"},
		`ownership: Config.Source: HTTPSource.URL is "http://...@map...", want http or https, a host and a path`:      &ownership.HTTPSource{URL: "http://me:secret@map:port?sig=secret"},
		"ownership: Config.Source: HTTPSource.MaxBytes is -1, want >= 0":                                              &ownership.HTTPSource{URL: "HTTP://me:secret@map.internal", MaxBytes: -1},
		"ownership: Config.Source: HTTPSource.Header has \"Authorization...\", want the name of a header\nHTTPSource.Header[\"X\"] holds a control character": &ownership.HTTPSource{
			URL: "https://map.internal", Header: http.Header{"Authorization: Bearer secret": {"x"}, "X": {"good", "secret\n"}, "Y": nil},
		},
	} {
		_, err := ownership.New(ownership.Config{Source: source})
		require.EqualError(t, err, want)
	}
}

func TestAStampNamesTheHeadersThatCanBeNone(t *testing.T) {
	_, err := ownership.Stamp{Words: ownership.Words{EpochHeader: "a b", RemainingHeader: "c:"}}.Wrap(nil)
	require.EqualError(t, err, "EpochHeader is \"a...\", want the name of a header\nRemainingHeader is \"c...\", want the name of a header")
}
