package ownership_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/idempotency"
	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/ownership"
)

// Both ends speak the same words: what a handler rejects with is what the client
// understands, by the recommended headers and by others.
func TestBothEndsSpeakTheSameWords(t *testing.T) {
	for _, words := range []ownership.Words{{}, {StatusHeader: "X-Shard-Status", OwnerHeader: "x-shard-owner", EpochHeader: "Shard-Epoch"}} {
		for status, want := range map[ownership.Status]middleware.Outcome{
			ownership.Moved:                {Status: 421, Cause: middleware.Gone, Unapplied: true, Stale: middleware.StaleRanges, Owner: "b:80", Epoch: 8},
			ownership.OwnershipChanging:    {Status: 503, Cause: middleware.Split, Unapplied: true, Stale: middleware.StaleRanges, Owner: "b:80", Epoch: 8},
			ownership.ReplicaWriteRejected: {Status: 421, Cause: middleware.NotPrimary, Unapplied: true, Stale: middleware.StaleRanges, Owner: "b:80", Epoch: 8},
			ownership.Migrating:            {Status: 503, Cause: middleware.Migrating, Unapplied: true},
			ownership.Unavailable:          {Status: 503, Cause: middleware.Unavailable, Unapplied: true},
			ownership.NotFound:             {Status: 404, Cause: middleware.Final, Unapplied: true, Answer: idempotency.Missing},
			ownership.Conflict:             {Status: 412, Cause: middleware.Final, Unapplied: true, Answer: idempotency.Changed},
			ownership.Other:                {Status: 500, Cause: middleware.Final},
		} {
			rec := httptest.NewRecorder()
			words.Reject(rec, status, ownership.Hint{Owner: "b:80", Epoch: 8, RetryAfter: 1500 * time.Millisecond})
			want.Wait = 2 * time.Second // rounded up
			if status != ownership.Other {
				want.Code = fmt.Sprintf("%d/%s", want.Status, status)
			}
			d := &ownership.Dialect{Words: words}
			require.Equal(t, want, d.Judge(&middleware.Intent{}, rec.Result(), nil), "%s", status)
			require.Equal(t, "no-store", rec.Header().Get("Cache-Control"))
		}
	}
	rec := httptest.NewRecorder()
	ownership.Reject(rec, ownership.Moved, ownership.Hint{})
	require.Equal(t, 421, rec.Code)
	require.Equal(t, "moved", rec.Header().Get("X-Route-Status"))
	for _, absent := range []string{"X-Route-Owner", "X-Route-Epoch", "Retry-After"} {
		require.NotContains(t, rec.Header(), absent)
	}
}

func TestABareCodeLeavesDoubtWhereItMust(t *testing.T) { // reference 3.1, last column; P04
	d := &ownership.Dialect{}
	for code, want := range map[int]struct {
		cause     middleware.Cause
		unapplied bool
	}{
		200: {middleware.Success, false}, 204: {middleware.Success, false}, 304: {middleware.Final, false},
		307: {middleware.Final, false}, 400: {middleware.Final, false}, 401: {middleware.Unauthorized, true},
		404: {middleware.Final, true}, 408: {middleware.Final, false}, 409: {middleware.Final, true}, 410: {middleware.Final, false},
		412: {middleware.Final, true}, 421: {middleware.Gone, true}, 423: {middleware.Final, false}, 428: {middleware.Final, false},
		429: {middleware.Throttled, true}, 500: {middleware.Final, false}, 501: {middleware.Final, false},
		502: {middleware.Unavailable, false}, 503: {middleware.Unavailable, false}, 504: {middleware.Unavailable, false}, 510: {middleware.Final, false},
	} {
		out := d.Judge(&middleware.Intent{}, &http.Response{StatusCode: code, Header: http.Header{}}, nil)
		require.Equal(t, want.cause, out.Cause, "%d", code)
		require.Equal(t, want.unapplied, out.Unapplied, "%d", code)
	}
}

func TestStatusesAreWordsBothWays(t *testing.T) {
	for s := ownership.Moved; s <= ownership.Conflict; s++ {
		parsed, ok := ownership.ParseStatus(strings.ToUpper(" " + s.String() + "\t"))
		require.True(t, ok)
		require.Equal(t, s, parsed)
	}
	for _, word := range []string{"", "other", "banana", "moved,migrating", "unknown status"} {
		_, ok := ownership.ParseStatus(word)
		require.False(t, ok, word)
	}
	require.Equal(t, "unknown status", ownership.Status(200).String())
}

func TestIntentKnowsKeyLevelAndEcho(t *testing.T) {
	d := &ownership.Dialect{Key: ownership.PathKey("/kv/")}
	for _, tc := range []struct {
		method, path string
		header       [2]string
		want         middleware.Intent
	}{
		{"", "/kv/k", [2]string{}, middleware.Intent{Name: "GET", Level: idempotency.Safe, PartitionKey: "k", Partitioned: true}},
		{"GET", "/kv/a%2Fb/history", [2]string{}, middleware.Intent{Name: "GET", Level: idempotency.Safe, PartitionKey: "a/b", Partitioned: true}},
		{"GET", "/kv/", [2]string{}, middleware.Intent{Name: "GET", Level: idempotency.Safe}},
		{"GET", "/health", [2]string{}, middleware.Intent{Name: "GET", Level: idempotency.Safe}},
		{"PUT", "/kv/k", [2]string{}, middleware.Intent{Name: "PUT", Write: true, Level: idempotency.Idempotent, PartitionKey: "k", Partitioned: true}},
		{"PUT", "/kv/k", [2]string{"If-Match", `"8"`}, middleware.Intent{Name: "PUT", Write: true, Level: idempotency.Idempotent, PartitionKey: "k", Partitioned: true, Echo: idempotency.Changed}},
		{"POST", "/kv/k", [2]string{"If-None-Match", "*"}, middleware.Intent{Name: "POST", Write: true, Level: idempotency.Idempotent, PartitionKey: "k", Partitioned: true, Echo: idempotency.Exists}},
		{"DELETE", "/kv/k", [2]string{}, middleware.Intent{Name: "DELETE", Write: true, Level: idempotency.Idempotent, PartitionKey: "k", Partitioned: true, Echo: idempotency.Missing}},
		{"POST", "/kv/k", [2]string{}, middleware.Intent{Name: "POST", Write: true, Level: idempotency.NonIdempotent, PartitionKey: "k", Partitioned: true}},
	} {
		req, err := http.NewRequestWithContext(context.Background(), tc.method, "http://kv.test"+tc.path, nil)
		require.NoError(t, err)
		req.Method = tc.method
		if tc.header[0] != "" {
			req.Header.Set(tc.header[0], tc.header[1])
		}
		require.Equal(t, tc.want, d.Intent(req), "%s %s %v", tc.method, tc.path, tc.header)
	}
	req := httptest.NewRequest("GET", "http://kv.test/users/7", nil)
	require.Equal(t, "users/7", (&ownership.Dialect{}).Intent(req).PartitionKey, "by default the path")
	require.Equal(t, middleware.Foreign, (&ownership.Dialect{Service: "kv.other"}).Intent(req).Scope)
}

func TestPreconditionsGuardOneWay(t *testing.T) { // Z081, Z082
	req := httptest.NewRequest("PUT", "http://kv.test/kv/k", nil)
	require.NoError(t, ownership.IfAbsent(req))
	require.Equal(t, []string{"*"}, req.Header["If-None-Match"])
	require.Error(t, ownership.IfVersion(req, "8"))
	require.NotContains(t, req.Header, "If-Match")

	req = httptest.NewRequest("PUT", "http://kv.test/kv/k", nil)
	require.NoError(t, ownership.IfVersion(req, "8"))
	require.Equal(t, []string{`"8"`}, req.Header["If-Match"])
	require.Error(t, ownership.IfAbsent(req))
	require.NotContains(t, req.Header, "If-None-Match")

	for _, junk := range []string{"", `a"b`, "a b", "a\r\nX: y", "ü"} {
		require.Error(t, ownership.IfVersion(httptest.NewRequest("PUT", "http://kv.test/", nil), junk), "%q", junk)
	}
}

func TestTheVersionComesFromAStrongTag(t *testing.T) { // Z089
	for tag, want := range map[string]string{`"8"`: "8", ` "8" `: "8", "": "", `W/"8"`: "", "8": "", `""`: "", `"8`: "", `"`: "", `"8","9"`: ""} {
		version, ok := ownership.Version(&http.Response{Header: http.Header{"Etag": {tag}}})
		require.Equal(t, want != "", ok, tag)
		if ok {
			require.Equal(t, want, version)
		}
	}
}

func TestTransportFailuresAreToldFromUnknownErrors(t *testing.T) { // Z023, Z027, Z028
	d := &ownership.Dialect{}
	for _, tc := range []struct {
		err  error
		want middleware.Cause
	}{
		{refusedDial, middleware.Unreachable},
		{resetRead, middleware.Broken},
		{io.EOF, middleware.Broken},
		{fmt.Errorf("read: %w", io.ErrUnexpectedEOF), middleware.Broken},
		{errors.New("http: server closed idle connection"), middleware.Broken},
		{errors.New("http2: server sent GOAWAY and closed the connection"), middleware.Broken}, // R41
		{errors.New("net/http: HTTP/1.x transport connection broken: x"), middleware.Broken},
		{context.Canceled, middleware.Broken},
		{errors.New("x"), middleware.Unmendable},
		{errors.New("sorry, http2: no"), middleware.Unmendable},
	} {
		require.Equal(t, tc.want, d.Judge(nil, nil, tc.err).Cause, "%v", tc.err)
	}
}

func TestANodeMayAskWhatTheClientKnows(t *testing.T) {
	var words ownership.Words
	req := httptest.NewRequest("GET", "http://kv.test/", nil)
	_, ok := words.Epoch(req)
	require.False(t, ok)
	_, ok = words.Remaining(req)
	require.False(t, ok)
	req.Header.Set("X-Route-Epoch", "18446744073709551615")
	req.Header.Set("X-Route-Remaining", "1500")
	epoch, ok := words.Epoch(req)
	require.True(t, ok)
	require.EqualValues(t, uint64(18446744073709551615), epoch)
	left, ok := words.Remaining(req)
	require.True(t, ok)
	require.Equal(t, 1500*time.Millisecond, left)
	for _, junk := range []string{"-1", "x", "18446744073709551616", "1.5", " "} {
		req.Header.Set("X-Route-Epoch", junk)
		_, ok := words.Epoch(req)
		require.False(t, ok, junk)
	}
	req.Header.Set("X-Route-Remaining", "18446744073709551615")
	left, ok = words.Remaining(req)
	require.True(t, ok)
	require.Equal(t, 24*time.Hour, left)
}

// Whatever a node writes into its headers, the client neither panics nor trusts
// more than it should.
func FuzzJudge(f *testing.F) { // R50
	for _, s := range []string{"moved", " MoVed ", "migrating", "banana", "", "moved, migrating", "\x00"} {
		f.Add(503, s, "b:80", "8", "1")
	}
	f.Add(421, "moved", "http://evil/", "-1", "-1")
	f.Add(307, "", "user@host:99999", "99999999999999999999", "Fri, 31 Dec 1999 23:59:59 GMT")
	f.Fuzz(func(t *testing.T, code int, status, owner, epoch, after string) {
		resp := &http.Response{StatusCode: code, Header: http.Header{
			"X-Route-Status": {status}, "X-Route-Owner": {owner}, "X-Route-Epoch": {epoch}, "Retry-After": {after}, "Location": {owner},
		}}
		d := &ownership.Dialect{Codes: map[int]ownership.Status{307: ownership.Moved}}
		out := d.Judge(&middleware.Intent{}, resp, nil)
		require.GreaterOrEqual(t, out.Wait, time.Duration(0))
		require.LessOrEqual(t, out.Wait, 24*time.Hour)
		if code == 409 || code == 412 {
			require.False(t, out.Cause.Transient())
		}
		if out.Owner != "" {
			req, err := http.NewRequest("GET", "http://"+out.Owner+"/kv/k", nil)
			require.NoError(t, err)
			require.Equal(t, out.Owner, req.URL.Host)
			require.Nil(t, req.URL.User)
			require.Equal(t, "/kv/k", req.URL.Path)
		}
	})
}
