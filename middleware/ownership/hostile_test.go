package ownership_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/layertest"
	"github.com/reroute-go/reroute/middleware/ownership"
	"github.com/reroute-go/reroute/regions/snapshot"
	"github.com/reroute-go/reroute/roundtrippers"
)

// A service that does not number its maps may tag them as it likes: a number that
// the registry has made up must not be taken for the tag of another map.
func TestAnUnnumberedMapIsNotAskedForByANumber(t *testing.T) {
	version, conditional := 0, 0
	service := http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
		tag := fmt.Sprintf(`"%d"`, version)
		if req.Header.Get("If-None-Match") != "" {
			conditional++
		}
		if req.Header.Get("If-None-Match") == tag {
			rw.WriteHeader(http.StatusNotModified)
			return
		}
		rw.Header().Set("ETag", tag)
		_, _ = fmt.Fprintf(rw, `{"segments":[{"owner":"n%d"}]}`, version)
	})
	r, err := ownership.New(ownership.Config{Source: &ownership.HTTPSource{URL: "http://map.test/", Client: handled(service)}})
	require.NoError(t, err)
	defer r.Close()
	for version = range 3 {
		m, err := r.Force(t.Context())
		require.NoError(t, err)
		require.Equal(t, fmt.Sprint("n", version), m.Segments[0].Owner)
	}
	require.Zero(t, conditional)
}

// Three bytes of text can be 32 in memory: a map is counted before it is decoded.
func TestAMapOfTooManyValuesIsNotDecoded(t *testing.T) {
	body := `{"epoch":1,"segments":[` + strings.Repeat(`{},`, 4<<20) + `{}]}`
	source := &ownership.HTTPSource{URL: "http://map.test/", Client: handled(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		_, _ = rw.Write([]byte(body))
	}))}
	_, err := source.Fetch(t.Context(), nil)
	require.ErrorContains(t, err, "map of 4194305 values, want at most 3145728")
}

// Where the map comes from, and with what credential, is printed by nothing (V079).
func TestTheMapsSourceShowsNoCredentialV079(t *testing.T) {
	const secret = "s3cr3t"
	for _, url := range []string{
		"http://user:" + secret + "@127.0.0.1:1/map?token=" + secret, "http://" + secret + "@%zz/?token=" + secret, "http://user:" + secret, ":" + secret,
	} {
		source := &ownership.HTTPSource{URL: url, Header: http.Header{"Authorization": {"Bearer " + secret}},
			Client: &http.Client{Transport: layertest.NewServer(t, func(*http.Request) layertest.Step { return layertest.Step{Err: resetRead} })}}
		cfg := ownership.Config{Source: source}
		r, ownerErr := ownership.New(cfg)
		_, fetchErr := source.Fetch(t.Context(), nil)
		require.Error(t, fetchErr)
		if ownerErr == nil {
			defer r.Close()
			_, ownerErr = r.Owner(t.Context(), "k")
			require.ErrorIs(t, ownerErr, middleware.ErrNoOwner)
		}
		logged, err := json.Marshal([]any{source, fetchErr, middleware.Event{Err: fetchErr}})
		require.NoError(t, err)
		text := fmt.Sprintf("%v %+v %#v %+v %v %+v %v %s", source, source, source, cfg, fetchErr, middleware.Event{Err: fetchErr}, ownerErr, logged)
		require.NotContains(t, text, secret)
	}
}

// A first map that does not come ends in the registry's time, which is not the
// operation's.
func TestAMissingFirstMapIsNoDeadlineOfTheCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := ownership.New(ownership.Config{Source: ownership.MapSourceFunc(func(ctx context.Context, _ *ownership.Map) (*ownership.Map, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})})
		require.NoError(t, err)
		defer r.Close()
		start := time.Now()
		_, err = r.Owner(t.Context(), "k")
		require.ErrorIs(t, err, middleware.ErrNoOwner)
		require.ErrorIs(t, err, snapshot.ErrMaxWait)
		require.NotErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 15*time.Second, time.Since(start))

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = r.Owner(ctx, "k")
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

// A map that is read through the stack which it routes is a mistake; it must not
// wait for itself until all its time is gone (R38).
func TestAMapReadThroughItsOwnStackDoesNotWaitForItselfR38(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var rt http.RoundTripper
		var fetches atomic.Int64
		s := newShards(t, map[string][]layertest.Step{"a": says("421")})
		s.fetch = func(ctx context.Context, _ int64) (*ownership.Map, error) {
			fetches.Add(1)
			resp, err := rt.RoundTrip(request(ctx, "GET", ""))
			if err != nil {
				return nil, err
			}
			defer resp.Body.Close()
			return nil, &ownership.FetchError{Status: resp.StatusCode}
		}
		rt = s.build(roundtrippers.OwnershipBuilder{})
		start := time.Now()
		resp, err := rt.RoundTrip(request(t.Context(), "GET", ""))
		require.NoError(t, err)
		require.Equal(t, 421, resp.StatusCode)
		require.NoError(t, resp.Body.Close())
		require.Less(t, time.Since(start), 5*time.Second)
		require.Positive(t, fetches.Load())
		s.registry.Close()
		synctest.Wait() // for the fetch that is left behind: it has an answer in hand
	})
}

func TestTheLongestWaitOfARejectionIsNotNegative(t *testing.T) {
	rec := httptest.NewRecorder()
	ownership.Reject(rec, ownership.Migrating, ownership.Hint{RetryAfter: math.MaxInt64})
	require.Equal(t, "9223372037", rec.Header().Get("Retry-After"))
}

func TestARequestWithoutAURLIsNoPanic(t *testing.T) {
	for _, d := range []*ownership.Dialect{{}, {Service: "kv.test"}, {Key: ownership.PathKey("/kv/")}} {
		r, err := ownership.New(ownership.Config{Source: ownership.MapSourceFunc(func(context.Context, *ownership.Map) (*ownership.Map, error) { return owned(1, "a"), nil })})
		require.NoError(t, err)
		rt, err := roundtrippers.OwnershipBuilder{Dialect: d, Owners: r, Base: http.DefaultTransport}.Build()
		require.NoError(t, err)
		_, err = rt.RoundTrip((&http.Request{}).WithContext(t.Context()))
		require.ErrorContains(t, err, "nil Request.URL")
	}
}
