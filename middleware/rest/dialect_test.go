package rest_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/idempotency"
	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/rest"
)

func judge(code int, header ...string) middleware.Outcome {
	h := http.Header{}
	for i := 0; i+1 < len(header); i += 2 {
		h.Add(header[i], header[i+1])
	}
	return rest.Dialect{}.Judge(&middleware.Intent{}, &http.Response{StatusCode: code, Header: h}, nil)
}

func TestEveryStatusHasItsCause(t *testing.T) {
	special := map[int]middleware.Cause{401: middleware.Unauthorized, 408: middleware.Timeout, 421: middleware.Gone, 429: middleware.Throttled}
	for code := 100; code < 600; code++ {
		want, ok := special[code]
		switch {
		case ok:
		case code >= 200 && code < 300:
			want = middleware.Success
		case code < 500:
			want = middleware.Final
		default:
			want = middleware.Unavailable
		}
		out := judge(code)
		require.Equal(t, want, out.Cause, "%d", code)
		require.Equal(t, code == 401 || code == 421 || code == 429, out.Unapplied, "%d", code)
		require.Equal(t, code, out.Status)
		require.Zero(t, out.Wait)
	}
	require.Equal(t, middleware.Final, judge(304).Cause)
}

func TestAnswersThatMayBeAnEchoSaySo(t *testing.T) {
	require.Equal(t, idempotency.Exists, judge(409).Answer)
	require.Equal(t, idempotency.Missing, judge(404).Answer)
	require.Equal(t, idempotency.Missing, judge(410).Answer)
	require.Equal(t, idempotency.Changed, judge(412).Answer)
	require.Equal(t, idempotency.NoEcho, judge(400).Answer)
}

func TestRetryAfterIsWholeSecondsOrNothing(t *testing.T) { // B22, B23, B24
	for text, want := range map[string]time.Duration{
		"":                              0,
		"0":                             0,
		"000":                           0,
		"1":                             time.Second,
		" 7 ":                           7 * time.Second,
		"3600":                          time.Hour,
		"-5":                            0,
		"+5":                            0,
		"1.5":                           0,
		"1e3":                           0,
		"soon":                          0,
		"Fri, 31 Dec 9999 23:59:59 GMT": 0,
		"86400":                         24 * time.Hour,
		"9223372037":                    24 * time.Hour,
		"9223372036854775807":           24 * time.Hour,
		"99999999999999999999":          24 * time.Hour,
	} {
		require.Equal(t, want, judge(503, "Retry-After", text).Wait, "%q", text)
	}
	require.Equal(t, 2*time.Second, judge(429, "Retry-After", "2", "Retry-After", "9").Wait, "the first line")
}

func FuzzRetryAfterIsNeverNegativeNorEndless(f *testing.F) {
	for _, seed := range []string{"", "1", "-1", "99999999999999999999", "1e9", "\x00", "٣"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		wait := judge(429, "Retry-After", text).Wait
		require.GreaterOrEqual(t, wait, time.Duration(0))
		require.LessOrEqual(t, wait, 24*time.Hour)
	})
}

func TestErrorsAreJudgedByTheirKind(t *testing.T) {
	out := rest.Dialect{}.Judge(&middleware.Intent{}, nil, context.DeadlineExceeded)
	require.Equal(t, middleware.Timeout, out.Cause)
	out = rest.Dialect{}.Judge(&middleware.Intent{}, nil, errors.New("reset"))
	require.Equal(t, middleware.Broken, out.Cause)
}

func TestTheMethodSaysWhatARequestIs(t *testing.T) {
	for method, want := range map[string]middleware.Intent{
		"":       {Name: "GET", Level: idempotency.Safe},
		"GET":    {Name: "GET", Level: idempotency.Safe},
		"PUT":    {Name: "PUT", Write: true, Level: idempotency.Idempotent},
		"DELETE": {Name: "DELETE", Write: true, Level: idempotency.Idempotent, Echo: idempotency.Missing},
		"POST":   {Name: "POST", Write: true, Level: idempotency.NonIdempotent, Echo: idempotency.Exists},
		"PATCH":  {Name: "PATCH", Write: true, Level: idempotency.NonIdempotent},
	} {
		got := rest.Dialect{}.Intent(&http.Request{Method: method, Header: http.Header{}})
		require.Equal(t, want, got, method)
	}
	keyed := &http.Request{Method: "POST", Header: http.Header{"Idempotency-Key": {"7"}}}
	require.Equal(t, idempotency.Idempotent, rest.Dialect{}.Intent(keyed).Level)
}
