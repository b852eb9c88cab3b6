package ownership_test

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/idempotency"
	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/layertest"
	"github.com/reroute-go/reroute/middleware/ownership"
	"github.com/reroute-go/reroute/roundtrippers"
)

// One operation each, on a service where a owns the key and the map would say b.
// The reference names Z024 and Z032 only as what in-doubt outcomes are told by (P04).
func TestAnOperationMeetsChurn(t *testing.T) {
	const ms = time.Millisecond
	failures["untrusted"] = x509.UnknownAuthorityError{}
	failures["cut off"] = io.ErrUnexpectedEOF
	failures["refused stream"] = errors.New("stream error: stream ID 3; REFUSED_STREAM; received from peer")
	failures["bad scheme"] = errors.New("unsupported protocol scheme")
	for id, tc := range map[string]struct {
		method  string // GET
		header  []string
		a, b    []string // steps; none: the node is dead
		after   string   // owner by the map after a refresh; b
		builder roundtrippers.OwnershipBuilder
		want    int   // status; 0: an error
		is      error // the error
		hosts   string
		fetches int64
		slept   time.Duration
		stop    middleware.Stop // answered
		doubt   bool            // some attempt may have been carried out unnoticed
	}{
		"Z001 moved":                               {a: []string{"421"}, b: []string{"200"}, want: 200, hosts: "a b", fetches: 1, slept: 100 * ms},
		"Z002 ownership changing":                  {a: []string{"503/ownership-changing"}, b: []string{"200"}, want: 200, hosts: "a b", fetches: 1, slept: 100 * ms},
		"Z003 replica write rejected":              {method: "PUT", a: []string{"421/replica-write-rejected"}, b: []string{"200"}, want: 200, hosts: "a b", fetches: 1, slept: 100 * ms},
		"Z004 bare 503":                            {a: []string{"503", "200"}, want: 200, hosts: "a a", slept: 100 * ms, doubt: true},
		"Z005 migrating":                           {a: []string{"503/migrating", "200"}, want: 200, hosts: "a a", slept: 800 * ms},
		"Z006 not found":                           {a: []string{"404"}, want: 404, hosts: "a"},
		"Z007 conflict":                            {a: []string{"409"}, want: 409, hosts: "a"},
		"Z009 the header beats the code":           {a: []string{"500/moved"}, b: []string{"200"}, want: 200, hosts: "a b", fetches: 1, slept: 100 * ms},
		"Z010 412 is never overridden":             {a: []string{"412/moved"}, want: 412, hosts: "a"},
		"Z010 409 is never overridden":             {a: []string{"409/moved"}, want: 409, hosts: "a"},
		"Z011 an unknown word leaves it to 421":    {a: []string{"421/banana"}, b: []string{"200"}, want: 200, hosts: "a b", fetches: 1, slept: 100 * ms},
		"Z011 an unknown word leaves it to 500":    {a: []string{"500/banana"}, want: 500, hosts: "a"},
		"Z012 success ignores the header":          {a: []string{"200/moved"}, want: 200, hosts: "a"},
		"Z013 case and space do not matter":        {a: []string{"503/  MoVed "}, b: []string{"200"}, want: 200, hosts: "a b", fetches: 1, slept: 100 * ms},
		"Z018 429 is no churn":                     {a: []string{"429"}, want: 429, hosts: "a", stop: middleware.NotRetried},
		"Z018 401 is no churn":                     {a: []string{"401"}, want: 401, hosts: "a", stop: middleware.NotRetried},
		"Z019 success costs nothing":               {a: []string{"200"}, want: 200, hosts: "a"},
		"Z020 exhausted: the last answer as it is": {a: []string{"421"}, after: "a", want: 421, hosts: "a a a", fetches: 2, slept: 300 * ms, stop: middleware.BudgetSpent},
		"Z021 each wait by its own attempt":        {a: []string{"421"}, b: []string{"503/migrating", "200"}, want: 200, hosts: "a b b", fetches: 1, slept: 1700 * ms},
		"Z022 an answer ends it at any attempt":    {a: []string{"421"}, b: []string{"409"}, want: 409, hosts: "a b", fetches: 1, slept: 100 * ms},
		"Z023 refused":                             {b: []string{"200"}, want: 200, hosts: "a b", fetches: 1, slept: 100 * ms},
		"Z023 reset":                               {a: []string{"reset"}, b: []string{"200"}, want: 200, hosts: "a b", fetches: 1, slept: 100 * ms, doubt: true},
		"Z024 cut off: sent, outcome unknown":      {method: "PUT", a: []string{"cut off"}, b: []string{"200"}, want: 200, hosts: "a b", fetches: 1, slept: 100 * ms, doubt: true},
		"Z024 refused: nothing was sent":           {method: "PUT", b: []string{"200"}, want: 200, hosts: "a b", fetches: 1, slept: 100 * ms},
		"Z027 an unknown error":                    {a: []string{"unknown"}, is: errUnknown, hosts: "a", stop: middleware.NotRetried, doubt: true},
		"Z028 an untrusted certificate":            {a: []string{"untrusted"}, is: failures["untrusted"], hosts: "a", stop: middleware.NotRetried},
		"Z028 an unsupported scheme":               {a: []string{"bad scheme"}, is: failures["bad scheme"], hosts: "a", stop: middleware.NotRetried},
		"Z029 the dial's own timeout":              {a: []string{"dial timeout"}, b: []string{"200"}, want: 200, hosts: "a b", fetches: 1, slept: 100 * ms},
		"Z030 unguarded POST, maybe sent":          {method: "POST", a: []string{"reset"}, b: []string{"201"}, is: middleware.ErrNotRepeatable, hosts: "a", fetches: 1, stop: middleware.NotRepeatable, doubt: true},
		"Z030 unguarded PATCH, bare 503":           {method: "PATCH", a: []string{"503"}, want: 503, hosts: "a", stop: middleware.NotRepeatable, doubt: true},
		"Z030 opted in": {method: "POST", a: []string{"reset"}, b: []string{"201"}, want: 201, hosts: "a b", fetches: 1, slept: 100 * ms, doubt: true,
			builder: roundtrippers.OwnershipBuilder{NoGuard: true}},
		"Z030 guarded by a key":                  {method: "POST", header: []string{"Idempotency-Key", "1"}, a: []string{"reset"}, b: []string{"201"}, want: 201, hosts: "a b", fetches: 1, slept: 100 * ms, doubt: true},
		"Z030 guarded by a precondition":         {method: "PATCH", header: []string{"If-Match", `"8"`}, a: []string{"reset"}, b: []string{"200"}, want: 200, hosts: "a b", fetches: 1, slept: 100 * ms, doubt: true},
		"Z030 POST that was never sent":          {method: "POST", b: []string{"201"}, want: 201, hosts: "a b", fetches: 1, slept: 100 * ms},
		"Z031 a typed rejection: any method":     {method: "POST", a: []string{"421"}, b: []string{"201"}, want: 201, hosts: "a b", fetches: 1, slept: 100 * ms},
		"Z031 unavailable in words":              {method: "POST", a: []string{"503/unavailable", "201"}, want: 201, hosts: "a a", slept: 100 * ms},
		"Z032 a bare 503 leaves a POST in doubt": {method: "POST", a: []string{"503"}, want: 503, hosts: "a", stop: middleware.NotRepeatable, doubt: true},
		"Z032 so does a gateway's 504":           {method: "POST", a: []string{"504"}, want: 504, hosts: "a", stop: middleware.NotRepeatable, doubt: true},
		"Z032 a rejection in words does not":     {method: "POST", a: []string{"503/migrating"}, want: 503, hosts: "a a a", slept: 2400 * ms, stop: middleware.BudgetSpent},
		"Z032 a write of unknown end":            {method: "POST", a: []string{"unknown"}, is: errUnknown, hosts: "a", stop: middleware.NotRetried, doubt: true},
		"R41 a refused stream is sent again":     {method: "POST", a: []string{"refused stream"}, b: []string{"201"}, want: 201, hosts: "a b", fetches: 1, slept: 100 * ms},
		"Z033 attempts bind":                     {a: []string{"421"}, after: "a", want: 421, hosts: "a a a", fetches: 2, slept: 300 * ms, stop: middleware.BudgetSpent, builder: roundtrippers.OwnershipBuilder{OperationTimeout: time.Minute}},
		"Z035 no timeout":                        {a: []string{"503"}, want: 503, hosts: "a a a", slept: 300 * ms, stop: middleware.BudgetSpent, doubt: true, builder: roundtrippers.OwnershipBuilder{OperationTimeout: -1}},
		"Z037 one attempt":                       {a: []string{"503"}, want: 503, hosts: "a", stop: middleware.BudgetSpent, doubt: true, builder: roundtrippers.OwnershipBuilder{Reroute: roundtrippers.Reroute{Attempts: 1}}},
		"Z047 Retry-After lengthens":             {a: []string{"503/migrating/1", "200"}, want: 200, hosts: "a a", slept: time.Second},
		"Z047 within the cap":                    {a: []string{"503/migrating/60", "200"}, want: 200, hosts: "a a", slept: 2 * time.Second},
		"Z047 and never shortens":                {a: []string{"503/migrating/0", "200"}, want: 200, hosts: "a a", slept: 800 * ms},
		"Z084 guard and churn":                   {method: "PUT", header: []string{"If-Match", `"8"`}, a: []string{"421"}, b: []string{"412"}, want: 412, hosts: "a b", fetches: 1, slept: 100 * ms},
		"Z090 428":                               {method: "PUT", a: []string{"428"}, want: 428, hosts: "a"},
		"Z090 423":                               {method: "PUT", a: []string{"423"}, want: 423, hosts: "a"},
		"P16 a wedged owner": {a: []string{"503"}, b: []string{"200"}, want: 200, hosts: "a a b", fetches: 1, slept: 300 * ms, doubt: true,
			builder: roundtrippers.OwnershipBuilder{Reroute: roundtrippers.Reroute{SuspectAfter: 2}}},
	} {
		t.Run(id, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes := map[string][]layertest.Step{}
				for node, steps := range map[string][]string{"a": tc.a, "b": tc.b} {
					if steps != nil {
						nodes[node] = says(steps...)
					}
				}
				s := newShards(t, nodes)
				after := tc.after
				if after == "" {
					after = "b"
				}
				s.moved(8, after)
				method := tc.method
				if method == "" {
					method = http.MethodGet
				}
				body := ""
				if method != http.MethodGet {
					body = "the body"
				}
				start := time.Now()
				resp, err := s.build(tc.builder).RoundTrip(request(t.Context(), method, body, tc.header...))
				require.Equal(t, tc.slept, time.Since(start))
				require.Equal(t, tc.hosts, s.hosts())
				report := reportOf(t, resp, err)
				if tc.want == 0 {
					require.ErrorIs(t, err, tc.is)
				} else {
					require.NoError(t, err)
					require.Equal(t, tc.want, resp.StatusCode)
					steps := append(tc.a, tc.b...)
					require.Equal(t, steps[len(steps)-1], text(t, resp), "the last answer, unread")
				}
				require.Equal(t, len(s.script.Sends()), report.Sends)
				stop := tc.stop
				if stop == middleware.NotStopped {
					stop = middleware.Answered
				}
				require.Equal(t, stop, report.Stop, "X20")
				require.Equal(t, tc.doubt, report.InDoubt)
				for _, send := range s.script.Sends() { // Z003, Z083
					require.Equal(t, body, send.Body)
					require.Equal(t, send.URL.Host, send.Host, "Z092")
					for i := 0; i+1 < len(tc.header); i += 2 {
						require.Equal(t, []string{tc.header[i+1]}, send.Header.Values(tc.header[i]), "Z083")
					}
				}
				synctest.Wait() // for the one that is left behind
				require.Equal(t, tc.fetches, s.fetches.Load())
			})
		})
	}
}

func TestContradictingWordsCountAsNone(t *testing.T) { // Z014
	synctest.Test(t, func(t *testing.T) {
		s := newShards(t, nil)
		s.nodes = map[string][]layertest.Step{"a": {{Answer: func(req *http.Request) (*http.Response, error) {
			h := http.Header{"X-Route-Status": {"moved", "migrating"}}
			return &http.Response{StatusCode: 503, Header: h, Body: http.NoBody, Request: req}, nil
		}}, {}}}
		start := time.Now()
		resp, err := s.build(roundtrippers.OwnershipBuilder{}).RoundTrip(request(t.Context(), "GET", ""))
		require.NoError(t, err)
		require.Equal(t, 200, resp.StatusCode)
		require.Equal(t, 100*time.Millisecond, time.Since(start), "unavailable, by the code")
		require.Zero(t, s.fetches.Load())
		_ = resp.Body.Close()
	})
}

func TestTheMeaningOfAnswersIsConfigurable(t *testing.T) { // Z015, Z017
	for name, tc := range map[string]struct {
		dialect ownership.Dialect
		first   layertest.Step
		hosts   string
		slept   time.Duration
	}{
		"classifier": {
			ownership.Dialect{Classify: func(resp *http.Response) (ownership.Status, bool) {
				return ownership.Moved, resp.StatusCode == 410 && resp.Header.Get("x-ms-substatus") == "1002"
			}},
			layertest.Step{Status: 410, Header: map[string]string{"x-ms-substatus": "1002"}}, "a b", 100 * time.Millisecond,
		},
		"code":   {ownership.Dialect{Codes: map[int]ownership.Status{410: ownership.Moved}}, layertest.Step{Status: 410}, "a b", 100 * time.Millisecond},
		"header": {ownership.Dialect{Words: ownership.Words{StatusHeader: "X-Shard"}}, layertest.Step{Status: 500, Header: map[string]string{"X-Shard": "moved"}}, "a b", 100 * time.Millisecond},
		"307 with its Location as the hint": {ownership.Dialect{Codes: map[int]ownership.Status{307: ownership.Moved}},
			layertest.Step{Status: 307, Header: map[string]string{"Location": "http://b/kv/k"}}, "a b", 0},
		"307 as it is": {ownership.Dialect{}, layertest.Step{Status: 307, Header: map[string]string{"Location": "http://b/kv/k"}}, "a", 0},
		"the service's own no (P09)": {ownership.Dialect{VerdictHeader: "X-Should-Retry"},
			layertest.Step{Status: 503, Header: map[string]string{"X-Should-Retry": "false"}}, "a", 0},
		"the service's own yes (P09)": {ownership.Dialect{VerdictHeader: "X-Should-Retry"},
			layertest.Step{Status: 409, Header: map[string]string{"X-Should-Retry": "true"}}, "a a", 100 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newShards(t, map[string][]layertest.Step{"a": {tc.first, {}}, "b": says("200")})
				s.moved(8, "b")
				tc.dialect.Key = ownership.PathKey("/kv/")
				start := time.Now()
				resp, err := s.build(roundtrippers.OwnershipBuilder{Dialect: &tc.dialect}).RoundTrip(request(t.Context(), "GET", ""))
				require.NoError(t, err)
				_ = resp.Body.Close()
				require.Equal(t, tc.hosts, s.hosts())
				require.Equal(t, tc.slept, time.Since(start))
				time.Sleep(time.Second) // a lazy refresh ends
			})
		})
	}
}

func TestAnAttemptsOwnTimeoutIsATransportFailure(t *testing.T) { // Z025
	synctest.Test(t, func(t *testing.T) {
		s := newShards(t, map[string][]layertest.Step{"a": {{Hang: true}}, "b": says("200")})
		s.moved(8, "b")
		start := time.Now()
		resp, err := s.build(roundtrippers.OwnershipBuilder{AttemptTimeout: 50 * time.Millisecond}).RoundTrip(request(t.Context(), "GET", ""))
		require.NoError(t, err)
		require.Equal(t, "200", text(t, resp))
		require.Equal(t, 150*time.Millisecond, time.Since(start))
		require.EqualValues(t, 1, s.fetches.Load())
	})
}

func TestACallerWhoLeavesCausesNeitherRetryNorRefresh(t *testing.T) { // Z026, X17
	synctest.Test(t, func(t *testing.T) {
		s := newShards(t, map[string][]layertest.Step{"a": {{Hang: true}}})
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		_, err := s.build(roundtrippers.OwnershipBuilder{}).RoundTrip(request(ctx, "GET", ""))
		require.ErrorIs(t, err, context.Canceled)
		time.Sleep(time.Minute)
		require.Equal(t, "a", s.hosts())
		require.Zero(t, s.fetches.Load())
	})
}

func TestTheDeadlineBindsThoughAttemptsRemain(t *testing.T) {
	const ms = time.Millisecond
	for id, tc := range map[string]struct {
		steps    []layertest.Step
		timeout  time.Duration // of the stack
		ctx      time.Duration // of the caller
		attempts int
		maxSends int
		within   time.Duration
		want     int // status; 0: a deadline error
	}{
		"Z034":            {steps: says("503"), timeout: time.Second, attempts: 1000, maxSends: 5, within: time.Second, want: 503},
		"Z036":            {steps: says("503"), ctx: 150 * ms, maxSends: 2, within: 150 * ms, want: 503},
		"Z039":            {steps: []layertest.Step{{Hang: true}}, timeout: time.Second, maxSends: 1, within: time.Second},
		"Z046, X19, P14":  {steps: says("503"), timeout: 80 * ms, maxSends: 1, within: 0, want: 503},
		"Z044 no time":    {steps: says("503"), timeout: 100 * ms, maxSends: 1, within: 0, want: 503},
		"Z047 a wish too": {steps: says("503/unavailable/1"), timeout: 999 * ms, maxSends: 1, within: 0, want: 503},
	} {
		t.Run(id, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newShards(t, map[string][]layertest.Step{"a": tc.steps})
				ctx := t.Context()
				if tc.ctx > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, tc.ctx)
					defer cancel()
				}
				start := time.Now()
				resp, err := s.build(roundtrippers.OwnershipBuilder{
					OperationTimeout: tc.timeout, Reroute: roundtrippers.Reroute{Attempts: tc.attempts},
				}).RoundTrip(request(ctx, "GET", ""))
				require.LessOrEqual(t, time.Since(start), tc.within)
				require.LessOrEqual(t, len(s.script.Sends()), tc.maxSends)
				require.Equal(t, middleware.Deadline, reportOf(t, resp, err).Stop)
				if tc.want == 0 {
					require.ErrorIs(t, err, context.DeadlineExceeded)
					return
				}
				require.NoError(t, err)
				require.Equal(t, tc.want, resp.StatusCode)
				require.NotEmpty(t, text(t, resp), "the answer in hand can be read")
			})
		})
	}
}

func TestAnEndedContextSendsNothing(t *testing.T) { // Z038, X04
	synctest.Test(t, func(t *testing.T) {
		s := newShards(t, map[string][]layertest.Step{"a": says("200")})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		req := request(ctx, "PUT", "")
		body := layertest.NewBody("body")
		req.Body = body
		_, err := s.build(roundtrippers.OwnershipBuilder{}).RoundTrip(req)
		require.ErrorIs(t, err, context.Canceled)
		require.Empty(t, s.script.Sends())
		require.Equal(t, 1, body.Closes())
	})
}

func TestBadFieldsOfRerouteAreNamed(t *testing.T) { // Z037: by the house's rule a negative count is a mistake, not 1
	d, next := &ownership.Dialect{}, http.DefaultTransport
	for want, l := range map[string]roundtrippers.Reroute{
		"Dialect is nil":        {},
		"Attempts is -4":        {Dialect: d, Attempts: -4},
		"Base is -1ns":          {Dialect: d, Base: -1},
		"Cap is -1ns":           {Dialect: d, Cap: -1},
		"MigratingFactor is -8": {Dialect: d, MigratingFactor: -8},
		"Jitter is 1.5":         {Dialect: d, Jitter: 1.5},
		"RefreshWait is -2ns":   {Dialect: d, RefreshWait: -2},
		"SuspectAfter is -1":    {Dialect: d, SuspectAfter: -1},
	} {
		_, err := l.Wrap(next)
		require.ErrorContains(t, err, want)
	}
	_, err := roundtrippers.OwnershipBuilder{Dialect: d}.Build()
	require.ErrorContains(t, err, "Owners is nil")
	registry, err := ownership.New(ownership.Config{Source: &ownership.HTTPSource{URL: "http://map.test/"}})
	require.NoError(t, err)
	_, err = roundtrippers.OwnershipBuilder{Owners: registry, OperationTimeout: -5}.Build()
	require.ErrorContains(t, err, "Dialect is nil")
	require.ErrorContains(t, err, "OperationTimeout is -5ns")
	_, err = roundtrippers.Route{Dialect: d, KeepHost: true}.Wrap(next)
	require.ErrorContains(t, err, "KeepHost")
}

func TestALostAcknowledgementComesBackAsAConflictInDoubt(t *testing.T) {
	for id, tc := range map[string]struct {
		method string
		header []string
		second string
		echo   idempotency.Echo
	}{
		"Z085 compare and swap": {"PUT", []string{"If-Match", `"8"`}, "412", idempotency.Changed},
		"Z086 create":           {"PUT", []string{"If-None-Match", "*"}, "412", idempotency.Exists},
		"Z087 delete":           {"DELETE", nil, "404", idempotency.Missing},
	} {
		t.Run(id, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newShards(t, map[string][]layertest.Step{"a": says("reset", tc.second)})
				resp, err := s.build(roundtrippers.OwnershipBuilder{}).RoundTrip(request(t.Context(), tc.method, "v", tc.header...))
				require.NoError(t, err)
				require.Equal(t, tc.second, fmt.Sprint(resp.StatusCode))
				report := reportOf(t, resp, err)
				require.True(t, report.InDoubt)
				require.Equal(t, tc.echo, report.Echo)
				_ = resp.Body.Close()
			})
		})
	}
	t.Run("a typed rejection leaves no doubt", func(t *testing.T) { // Z084, P04
		synctest.Test(t, func(t *testing.T) {
			s := newShards(t, map[string][]layertest.Step{"a": says("421", "412")})
			resp, err := s.build(roundtrippers.OwnershipBuilder{}).RoundTrip(request(t.Context(), "PUT", "v", "If-Match", `"8"`))
			report := reportOf(t, resp, err)
			require.False(t, report.InDoubt)
			require.Equal(t, idempotency.NoEcho, report.Echo)
			_ = resp.Body.Close()
		})
	})
}

func TestRequestsWithoutAKeyPassAsTheyAre(t *testing.T) { // Z093
	synctest.Test(t, func(t *testing.T) {
		s := newShards(t, map[string][]layertest.Step{"kv.test": says("421"), "other.test": says("503")})
		rt := s.build(roundtrippers.OwnershipBuilder{Dialect: &ownership.Dialect{Key: ownership.PathKey("/kv/"), Service: "kv.test"}})
		for _, url := range []string{"http://kv.test/health", "http://other.test/kv/k"} {
			req, err := http.NewRequestWithContext(t.Context(), "GET", url, nil)
			require.NoError(t, err)
			resp, err := rt.RoundTrip(req)
			require.NoError(t, err)
			_ = resp.Body.Close()
		}
		require.Equal(t, "kv.test other.test", s.hosts())
		require.Zero(t, s.fetches.Load())
	})
}

func TestAKeyWithoutOwnerIsRefreshedAndThenAnErrorOfItsOwn(t *testing.T) { // Z094
	synctest.Test(t, func(t *testing.T) {
		s := newShards(t, map[string][]layertest.Step{"b": says("200")})
		nobody := &ownership.Map{Epoch: 8, Segments: []ownership.Segment{{Owner: ""}, {Owner: "b"}}}
		whole := &ownership.Map{Epoch: 9, Segments: []ownership.Segment{{Owner: "b"}, {Owner: "b"}}}
		var err error
		s.registry, err = ownership.New(ownership.Config{
			Source:  ownership.MapSourceFunc(s.read),
			Segment: func(string, int) int { return 0 },
		})
		require.NoError(t, err)
		s.now = nobody
		start := time.Now()
		_, err = s.build(roundtrippers.OwnershipBuilder{}).RoundTrip(request(t.Context(), "POST", "v"))
		require.ErrorIs(t, err, middleware.ErrNoOwner)
		require.ErrorIs(t, err, middleware.ErrBudgetSpent)
		require.Empty(t, s.script.Sends())
		require.GreaterOrEqual(t, s.fetches.Load(), int64(2))
		require.Less(t, time.Since(start), 2*time.Second)

		time.Sleep(time.Second)
		time.AfterFunc(50*time.Millisecond, func() { s.mu.Lock(); s.now = whole; s.mu.Unlock() })
		resp, err := s.build(roundtrippers.OwnershipBuilder{}).RoundTrip(request(t.Context(), "POST", "v"))
		require.NoError(t, err)
		require.Equal(t, "200", text(t, resp))
		require.Equal(t, "b", s.hosts())
	})
}

func TestTheHostHeaderFollowsItsPolicy(t *testing.T) { // Z092
	synctest.Test(t, func(t *testing.T) {
		for keep, want := range map[bool]string{false: "a", true: "kv.test"} {
			s := newShards(t, map[string][]layertest.Step{"a": says("200")})
			req := request(t.Context(), "GET", "")
			resp, err := s.build(roundtrippers.OwnershipBuilder{Route: roundtrippers.Route{KeepHost: keep}}).RoundTrip(req)
			require.NoError(t, err)
			_ = resp.Body.Close()
			require.Equal(t, "a", s.script.Sends()[0].URL.Host)
			require.Equal(t, want, s.script.Sends()[0].Host)
			require.Equal(t, "kv.test", req.URL.Host, "X03")
		}
	})
}

func TestMovedAndOwnershipChangingAreToldApart(t *testing.T) { // Z095, P05
	synctest.Test(t, func(t *testing.T) {
		s := newShards(t, map[string][]layertest.Step{"a": says("421", "503/ownership-changing", "200")})
		causes, codes := map[middleware.Cause]int{}, map[string]int{}
		refreshed := 0
		resp, err := s.build(roundtrippers.OwnershipBuilder{Observe: func(_ context.Context, e middleware.Event) {
			switch e.Kind {
			case middleware.RetryScheduled:
				causes[e.Cause]++
				codes[e.Code]++
			case middleware.RangesRefreshed:
				refreshed++
			}
		}}).RoundTrip(request(t.Context(), "GET", ""))
		require.NoError(t, err)
		require.Equal(t, map[middleware.Cause]int{middleware.Gone: 1, middleware.Split: 1}, causes)
		require.Equal(t, map[string]int{"421/moved": 1, "503/ownership-changing": 1}, codes)
		require.Equal(t, 2, refreshed)
		attempts := reportOf(t, resp, err).Attempts
		require.Equal(t, 100*time.Millisecond, attempts[1].Wait)
		require.Equal(t, 200*time.Millisecond, attempts[2].Wait)
		_ = resp.Body.Close()
	})
}

func TestDescribeShowsTheStackAndItsBound(t *testing.T) {
	registry, err := ownership.New(ownership.Config{Source: &ownership.HTTPSource{URL: "http://map.test/"}})
	require.NoError(t, err)
	rt, err := roundtrippers.OwnershipBuilder{Dialect: &ownership.Dialect{}, Owners: registry}.Build()
	require.NoError(t, err)
	require.Equal(t, `roundtrippers.Deadline{After: 1m0s}
roundtrippers.Guard
roundtrippers.Reroute [reroute 2]
roundtrippers.Route
*http.Transport
at most 3 sends`, middleware.Describe(rt))
}
