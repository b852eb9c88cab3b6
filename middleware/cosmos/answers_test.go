package cosmos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/idempotency"
	"github.com/reroute-go/reroute/middleware"
)

func answered(status int, headers ...string) *http.Response {
	h := http.Header{}
	for i := 0; i < len(headers); i += 2 {
		h.Set(headers[i], headers[i+1])
	}
	return &http.Response{StatusCode: status, Header: h, Body: http.NoBody}
}

func judge(status, sub int) middleware.Outcome {
	if sub == 0 {
		return dialect{}.Judge(&middleware.Intent{}, answered(status), nil)
	}
	return dialect{}.Judge(&middleware.Intent{}, answered(status, "x-ms-substatus", strconv.Itoa(sub)), nil)
}

// Each row of the seed's "Status Code Handling", and the substatuses of the references that a router must act on
// (R007-R009, R029, R031, R032, R034).
func TestEveryAnswerOfTheSeedHasItsMeaning(t *testing.T) {
	const unapplied, open = true, false
	const final, unavailable = middleware.Final, middleware.Unavailable
	for _, c := range []struct {
		status, sub int
		cause       middleware.Cause
		unapplied   bool
		stale       middleware.Stale
		answer      idempotency.Echo
		code        string
	}{
		{200, 0, middleware.Success, open, 0, 0, "200"},
		{201, 0, middleware.Success, open, 0, 0, "201"},
		{204, 0, middleware.Success, open, 0, 0, "204"},
		{207, 0, middleware.Success, open, 0, 0, "207"},
		{304, 0, middleware.Success, open, 0, 0, "304"},
		{100, 0, final, open, 0, 0, "100"},
		{307, 0, final, open, 0, 0, "307"},
		{400, 0, final, open, 0, 0, "400"},
		{400, 1001, final, open, middleware.StaleContainer, 0, "400/1001"},
		{400, 1004, final, open, 0, 0, "400/1004"},
		{400, 1024, final, open, middleware.StaleContainer, 0, "400/1024"},
		{401, 0, middleware.Unauthorized, unapplied, 0, 0, "401"},
		{401, 5013, middleware.Unauthorized, unapplied, 0, 0, "401/5013"},
		{403, 0, final, open, 0, 0, "403"},
		{403, 3, middleware.NotPrimary, unapplied, middleware.StaleTopology, 0, "403/3"},
		{403, 1008, middleware.Removed, unapplied, middleware.StaleTopology, 0, "403/1008"},
		{403, 1014, final, open, 0, 0, "403/1014"},
		{403, 5300, final, open, 0, 0, "403/5300"},
		{404, 0, final, open, 0, idempotency.Missing, "404"}, // R007
		{404, 1002, middleware.SessionLag, unapplied, 0, 0, "404/1002"},
		{404, 1003, final, open, middleware.StaleContainer, 0, "404/1003"},
		{404, 1013, final, open, 0, idempotency.Missing, "404/1013"},
		{404, 1023, unavailable, unapplied, 0, 0, "404/1023"},
		{405, 0, final, open, 0, 0, "405"},
		{408, 0, middleware.Timeout, open, 0, 0, "408"}, // R032
		{408, 21013, middleware.Timeout, open, 0, 0, "408/21013"},
		{409, 0, final, open, 0, idempotency.Exists, "409"},
		{410, 0, middleware.Gone, unapplied, 0, 0, "410"},                                   // R009
		{410, 1000, middleware.Gone, unapplied, middleware.StaleContainer, 0, "410/1000"},   // R009
		{410, 1022, middleware.Gone, unapplied, 0, 0, "410/1022"},                           // R009
		{410, 1002, middleware.Split, unapplied, middleware.StaleRanges, 0, "410/1002"},     // R008
		{410, 1007, middleware.Migrating, unapplied, middleware.StaleRanges, 0, "410/1007"}, // R008
		{410, 1008, middleware.Migrating, unapplied, middleware.StaleRanges, 0, "410/1008"}, // R008
		{412, 0, final, open, 0, idempotency.Changed, "412"},
		{413, 3402, final, open, 0, 0, "413/3402"},
		{429, 0, middleware.Throttled, unapplied, 0, 0, "429"},
		{429, 3200, middleware.Throttled, unapplied, 0, 0, "429/3200"},
		{429, 3088, middleware.Throttled, unapplied, 0, 0, "429/3088"},
		{429, 3084, middleware.Throttled, unapplied, 0, 0, "429/3084"},
		{429, 3092, unavailable, unapplied, 0, 0, "429/3092"},
		{449, 0, middleware.Contended, unapplied, 0, 0, "449"}, // R034
		{449, 5352, middleware.Contended, unapplied, 0, 0, "449/5352"},
		{500, 0, unavailable, open, 0, 0, "500"}, // R031
		{501, 0, unavailable, open, 0, 0, "501"},
		{502, 0, unavailable, open, 0, 0, "502"},
		{503, 0, unavailable, open, 0, 0, "503"}, // R029; rule 4: open also for 503
		{503, 21008, unavailable, open, 0, 0, "503/21008"},
		{504, 0, unavailable, open, 0, 0, "504"},
		{599, 0, unavailable, open, 0, 0, "599"},
		{900, 0, final, open, 0, 0, "900"},
	} {
		t.Run(c.code, func(t *testing.T) {
			// Rule 10: 2xx, 404/0, 409, 412 and 413 can only come from a partition's write region.
			confirms := c.cause == middleware.Success || slices.Contains([]string{"404", "409", "412", "413/3402"}, c.code)
			require.Equal(t, middleware.Outcome{
				Cause: c.cause, Unapplied: c.unapplied, Stale: c.stale, Answer: c.answer, Code: c.code, Status: c.status, Substatus: c.sub,
				Confirms: confirms, NoRetry: c.status == 401, // the caller's credential: final
			}, judge(c.status, c.sub))
		})
	}
}

// Substatuses belong to their status: the same number elsewhere means nothing of the kind.
func TestASubstatusCountsOnlyUnderItsOwnStatus(t *testing.T) {
	for key := range answers {
		if key.substatus == anySub {
			continue
		}
		for status := 300; status < 600; status++ {
			if _, own := answers[answer{status, key.substatus}]; own || status == 304 {
				continue
			}
			got, plain := judge(status, key.substatus), judge(status, 0)
			require.Equal(t, plain.Cause, got.Cause, "%d/%d", status, key.substatus)
			require.Equal(t, plain.Stale, got.Stale)
		}
	}
}

func TestJudgingTheUsualAnswersAllocatesNothing(t *testing.T) {
	for _, status := range []int{200, 201, 204, 304, 404, 409, 412} {
		resp := answered(status)
		require.Zero(t, testing.AllocsPerRun(100, func() { outcomeSink = dialect{}.Judge(&middleware.Intent{}, resp, nil) }), status)
	}
}

var outcomeSink middleware.Outcome

func TestAForeignAnswerIsNotJudged(t *testing.T) {
	out := dialect{}.Judge(&middleware.Intent{Scope: middleware.Foreign}, answered(503), nil)
	require.Equal(t, middleware.Outcome{Status: 503}, out)
}

func TestErrorsAreJudgedByTheirKind(t *testing.T) {
	d := dialect{}
	// R033: the operation's own end is 408/20008.
	require.Equal(t, middleware.Outcome{Cause: middleware.Timeout, Code: "408/20008"}, d.Judge(nil, nil, context.DeadlineExceeded))
	dial := &net.OpError{Op: "dial", Err: context.DeadlineExceeded}
	require.Equal(t, middleware.Unreachable, d.Judge(nil, nil, dial).Cause, "a dial that took too long was not sent")
	require.True(t, d.Judge(nil, nil, dial).Unapplied)
	require.Equal(t, middleware.Broken, d.Judge(nil, nil, io.ErrUnexpectedEOF).Cause)
	require.False(t, d.Judge(nil, nil, io.ErrUnexpectedEOF).Unapplied)
}

func TestTheOperationsDeadlineReads408_20008(t *testing.T) { // R033
	synctest.Test(t, func(t *testing.T) {
		silent := middleware.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
			<-req.Context().Done()
			return nil, req.Context().Err()
		})
		rt, err := middleware.Stack(silent, throttle{defaultThrottles, defaultThrottleWait})
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = rt.RoundTrip(request(t, "GET", "/dbs/d/colls/c/docs/i").WithContext(ctx))
		var e *middleware.Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, "408/20008", e.Outcome.Code)
		require.Equal(t, middleware.DeadlineExceeded, e.Outcome.Cause)
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

func TestGarbageInTheSubstatusIsZero(t *testing.T) {
	for _, v := range []string{"", " ", "x", "-3", "+3", "3x", "3.0", "1e3", "9999999999", "٣", "3, 4"} {
		require.Zero(t, substatus(http.Header{headerSubstatus: {v}}), v)
	}
	require.Equal(t, 1002, substatus(http.Header{headerSubstatus: {"1002"}}))
	require.Equal(t, 3, substatus(http.Header{headerSubstatus: {"0003"}}))
}

func TestTheServersWishIsReadFromThreeHeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // a date is relative to now
		ms, after := "x-ms-retry-after-ms", "Retry-After"
		in := func(d time.Duration) string { return time.Now().Add(d).UTC().Format(http.TimeFormat) }
		for _, c := range []struct {
			headers []string
			want    time.Duration
		}{
			{nil, 0},
			{[]string{ms, "100"}, 100 * time.Millisecond}, // R044
			{[]string{ms, " 24 "}, 24 * time.Millisecond},
			{[]string{ms, "10.5"}, 10500 * time.Microsecond},
			{[]string{ms, "100", after, "7"}, 100 * time.Millisecond},
			{[]string{ms, "0", after, "7"}, 7 * time.Second},
			{[]string{ms, "-5", after, "7"}, 7 * time.Second},
			{[]string{ms, "soon"}, 0},
			{[]string{ms, "1e9"}, 0},
			{[]string{ms, "Inf"}, 0},
			{[]string{ms, "NaN"}, 0},
			{[]string{ms, "0x10"}, 0},
			{[]string{ms, "1.2.3"}, 0},
			{[]string{ms, "99999999999999999999"}, longestWait}, // B23
			{[]string{ms, "9223372036854"}, longestWait},
			{[]string{ms, "9223372036855"}, longestWait}, // beyond a Duration
			{[]string{after, "9223372037"}, longestWait},
			{[]string{after, "5"}, 5 * time.Second},
			{[]string{after, "0"}, 0},
			{[]string{after, "-1"}, 0},
			{[]string{after, "999999999"}, longestWait},
			{[]string{after, in(3 * time.Second)}, 3 * time.Second},
			{[]string{after, in(-time.Hour)}, 0},
			{[]string{after, in(1000 * time.Hour)}, longestWait},
			{[]string{after, "Fri, 99 Feb 2000 00:00:00 GMT"}, 0},
		} {
			require.Equal(t, c.want, dialect{}.Judge(nil, answered(429, c.headers...), nil).Wait, c.headers)
		}
		require.Zero(t, dialect{}.Judge(nil, answered(200, ms, "100"), nil).Wait)
		require.Zero(t, dialect{}.Judge(nil, answered(404, ms, "100"), nil).Wait)
		require.Equal(t, 100*time.Millisecond, dialect{}.Judge(nil, answered(503, ms, "100"), nil).Wait)
	})
}

func FuzzJudge(f *testing.F) {
	f.Add(429, "3200", "100", "5")
	f.Add(403, "-3", "1e400", "Wed, 21 Oct 2015 07:28:00 GMT")
	f.Add(614, "1", "", "")
	f.Fuzz(func(t *testing.T, status int, sub, ms, after string) {
		resp := &http.Response{StatusCode: status, Header: http.Header{headerSubstatus: {sub}, headerRetryAfterMS: {ms}, headerRetryAfter: {after}}}
		out := dialect{}.Judge(nil, resp, nil)
		require.NotEqual(t, middleware.Unjudged, out.Cause)
		require.GreaterOrEqual(t, out.Wait, time.Duration(0))
		require.LessOrEqual(t, out.Wait, longestWait)
		require.True(t, 0 <= out.Substatus && out.Substatus < 1e9)
		if out.Substatus != 0 && out.Cause != middleware.Success {
			require.Equal(t, fmt.Sprintf("%d/%d", status, out.Substatus), out.Code)
		}
	})
}

// R043
func TestAServiceMessageIsFoldedToOneBoundedLine(t *testing.T) {
	require.Equal(t, "Unauthorized: wrong key", messageOf([]byte(`{"code":"Unauthorized","message":"wrong\r\n\tkey"}`)))
	require.Equal(t, "BadRequest: one; two",
		messageOf([]byte(`{"code":"BadRequest","message":"Message: {\"Errors\":[\"one\",\"two\"]}\r\nActivityId: 1"}`)))
	require.Equal(t, "<html> oops </html>", messageOf([]byte("<html>\n oops\x00\x1b\n</html>\n")))
	require.Equal(t, "", messageOf(nil))
	long := make([]byte, 0, 4096)
	for len(long) < 4096 {
		long = append(long, "aé"...)
	}
	got := messageOf(long)
	require.LessOrEqual(t, len(got), maxMessage)
	require.Greater(t, len(got), maxMessage-3)
	require.NotContains(t, got, "�", "cut between runes")
	require.Equal(t, "�a", messageOf([]byte{0xff, 'a'}))
	require.Equal(t, "a b", fold("a\u2028\u202e b", 10), "no line ends, no text direction tricks")
}

func FuzzMessage(f *testing.F) {
	f.Add([]byte(`{"code":"a","message":"{\"Errors\":[\"x\"]}"}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		got := messageOf(body)
		require.LessOrEqual(t, len(got), maxMessage)
		for _, r := range got {
			require.True(t, strconv.IsPrint(r), "%q", got)
		}
	})
}

var errTest = errors.New("test")
