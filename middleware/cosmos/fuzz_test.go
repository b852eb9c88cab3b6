package cosmos

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/cosmos/cosmostest"
)

// Whatever the wait headers say: no wait is negative or endless, the finer header wins, what is no plain positive number
// leaves the word to the next one, and no answer becomes one to retry by them (B23, B25).
func FuzzRetryAfter(f *testing.F) {
	for _, s := range [][3]string{
		{"20", "30", "1"}, {"", "30", ""}, {"", "abc", "1"}, {"0", "0", "0"}, {"-5", "1e3", "Wed, 21 Oct 2015 07:28:00 GMT"},
		{"", "", "Fri, 31 Dec 9999 23:59:59 GMT"}, {"9223372036855", "", ""}, {"", "99999999999999999999", ""}, {"NaN", "Inf", "0x10"},
		{"0.0000001", "1.2.3", "9223372037"}, {" 7 ", "\x007", "٣"},
	} {
		f.Add(429, s[0], s[1], s[2])
	}
	f.Add(201, "20", "30", "1")
	f.Fuzz(func(t *testing.T, status int, ms, msOfService, seconds string) {
		h := http.Header{headerRetryMS: {ms}, headerRetryAfterMS: {msOfService}, headerRetryAfter: {seconds}}
		out := dialect{}.Judge(nil, &http.Response{StatusCode: status, Header: h}, nil)
		bare := dialect{}.Judge(nil, &http.Response{StatusCode: status, Header: http.Header{}}, nil)
		require.Equal(t, bare.Cause, out.Cause)
		require.GreaterOrEqual(t, out.Wait, time.Duration(0))
		require.LessOrEqual(t, out.Wait, longestWait)
		if !out.Cause.Transient() {
			require.Zero(t, out.Wait)
			return
		}
		for _, line := range []struct {
			text string
			unit time.Duration
		}{{ms, time.Millisecond}, {msOfService, time.Millisecond}, {seconds, time.Second}} {
			n, err := strconv.ParseUint(line.text, 10, 40)
			if err == nil && n > 0 && len(line.text) < 20 {
				require.Equal(t, time.Duration(min(n, uint64(longestWait/line.unit)))*line.unit, out.Wait, "%q", line.text)
				return
			}
			if strings.Trim(strings.TrimSpace(line.text), "0123456789.") == "" && strings.Trim(line.text, "0. ") != "" {
				return // a fraction, or spaces around: judged by the table of TestTheServersWishIsReadFromThreeHeaders
			}
		}
		if _, err := http.ParseTime(strings.TrimSpace(seconds)); err != nil {
			require.Zero(t, out.Wait)
		}
	})
}

// A container and an item may be called anything that the service allows. However the path is escaped, it is one
// container to us, our signature is the one that the service computes, and the address we read it at is the same.
func FuzzEscapedPath(f *testing.F) {
	for _, name := range []string{"c", "a b", "a+b", "100%", "%41", "%2F", "é", "docs", "a:b;c=d@e&f", "..", "~", "\u202e", "日本", "a%zz", `"`} {
		f.Add(name, name, byte(0))
		f.Add(name, "x", byte(0xff))
	}
	sim := cosmostest.Start(f, cosmostest.Config{InMemory: true})
	client := sim.Transport()
	key := SharedKey(sim.Key())
	f.Fuzz(func(t *testing.T, coll, id string, over byte) {
		if coll == "" || id == "" || strings.ContainsAny(coll+id, "/\\?#\x00") || len(coll)+len(id) > 500 {
			return
		}
		path := "/dbs/d/colls/" + escape(coll, over) + "/docs/" + escape(id, over>>1)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, sim.Endpoint()+path, nil)
		require.NoError(t, err)
		before := *req.URL
		in := dialect{}.Intent(req)
		require.Equal(t, "read item", in.Name)
		require.Equal(t, middleware.Data, in.Scope)
		require.Equal(t, "dbs/d/colls/"+coll, in.Container)
		require.Equal(t, before, *req.URL)
		back, err := url.PathUnescape(pathOf(in.Container))
		require.NoError(t, err)
		require.Equal(t, "/dbs/d/colls/"+coll, back)

		if coll == "." || coll == ".." || id == "." || id == ".." {
			return // a client may clean them away
		}
		require.NoError(t, key.Authorize(t.Context(), req))
		resp, err := client.RoundTrip(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, http.StatusNotFound, resp.StatusCode, "%s: the signature holds, and there is no such item", path)
	})
}

// escape escapes what must be, and by the bits of over some of what need not be.
func escape(s string, over byte) string {
	var b strings.Builder
	for i := range len(s) {
		if over>>(i%8)&1 == 1 {
			b.WriteString("%" + strings.ToUpper(strconv.FormatUint(uint64(s[i])+0x100, 16)[1:]))
		} else {
			b.WriteString(url.PathEscape(s[i : i+1]))
		}
	}
	return b.String()
}
