package rest_test

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/idempotency"
	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/layertest"
	"github.com/reroute-go/reroute/middleware/rest"
	"github.com/reroute-go/reroute/roundtrippers"
)

type row struct{ Name string }

// over is an API over a stack over a script.
func over(t *testing.T, change func(*roundtrippers.APIBuilder), steps ...layertest.Step) (rest.API, *layertest.Script, *told) {
	t.Helper()
	script, told := layertest.NewScript(t, steps...), &told{}
	b := roundtrippers.APIBuilder{Dialect: rest.Dialect{}, Base: script, Observe: told.observe, Circuit: &roundtrippers.Circuit{Threshold: 100}}
	if change != nil {
		change(&b)
	}
	rt, err := b.Build()
	require.NoError(t, err)
	return rest.API{Transport: rt, BaseURL: "https://api.test/v1"}, script, told
}

// told records the names of events, attempts left out.
type told struct {
	mu   sync.Mutex
	list []string
	rows int
}

func (o *told) observe(_ context.Context, e middleware.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch e.Kind {
	case middleware.AttemptEnded, middleware.RowsPulled, middleware.WritePushed:
		o.list = append(o.list, e.Kind.String())
		o.rows += e.Rows
	}
}

func (o *told) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.Join(o.list, ", ")
}

func failedAs(t *testing.T, err error) *rest.Error {
	t.Helper()
	var failed *rest.Error
	require.ErrorAs(t, err, &failed)
	return failed
}

func bounded(ctx context.Context, n int) context.Context {
	return middleware.WithPatience(ctx, rest.Bounded(n))
}

func essential(ctx context.Context) context.Context {
	return middleware.WithPriority(ctx, middleware.Essential)
}

func status(codes ...int) (steps []layertest.Step) {
	for _, code := range codes {
		steps = append(steps, layertest.Step{Status: code, Body: fmt.Sprint(code)})
	}
	return steps
}

func TestACallIsOneRoundTripV018(t *testing.T) {
	for _, code := range []int{200, 204, 302, 401, 404, 429, 503} {
		trips := 0
		base := layertest.NewScript(t, status(code)...)
		api := rest.API{BaseURL: "https://api.test", Transport: middleware.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
			trips++
			return base.RoundTrip(req)
		})}
		ctx := essential(t.Context())
		_ = api.Get(ctx, "/", nil)
		_ = api.Send(ctx, http.MethodPost, "/", nil, nil, nil)
		_ = api.GraphQL(ctx, rest.Document{Query: "{a}"}, nil)
		req, _ := http.NewRequestWithContext(ctx, http.MethodGet, "https://api.test/", nil)
		if resp, err := api.Do(req); err == nil {
			_ = resp.Body.Close()
		}
		require.Equal(t, 4, trips)
	}
}

func TestErrorsOfCalls(t *testing.T) {
	second := time.Second
	for _, s := range []struct {
		name  string
		steps []layertest.Step
		run   func(t *testing.T, api rest.API, script *layertest.Script)
	}{
		{"V116 X02 a status as an error", status(503), func(t *testing.T, api rest.API, _ *layertest.Script) {
			err := api.Get(t.Context(), "/rows", nil)
			require.EqualError(t, err, "API request failed: url: https://api.test/v1/rows, attempts: 1, kind: status, status: 503, in doubt: true, body: 503")
			err = api.GraphQL(t.Context(), rest.Document{Query: "{a}"}, nil)
			require.ErrorContains(t, err, "GraphQL request failed: url: https://api.test/v1, attempts: 1, kind: status, status: 503")
			require.Equal(t, rest.Status, failedAs(t, err).Kind)
		}},
		{"V117 attempts", status(503), func(t *testing.T, api rest.API, _ *layertest.Script) {
			failed := failedAs(t, api.Get(bounded(t.Context(), 2), "/", nil))
			require.Equal(t, []int{3, 3}, []int{failed.Attempts, failed.Sends})
			require.ErrorIs(t, failed, middleware.ErrBudgetSpent)
		}},
		{"V118 the server's own message", []layertest.Step{{Status: 422, Body: `{"detail":"bad filter"}`}}, func(t *testing.T, api rest.API, _ *layertest.Script) {
			err := api.Get(t.Context(), "/", nil)
			require.Equal(t, `{"detail":"bad filter"}`, failedAs(t, err).Body)
			require.ErrorContains(t, err, "bad filter")
		}},
		{"V119 500 characters, whole ones", []layertest.Step{
			{Status: 400, Body: strings.Repeat("é", 4000)}, {Status: 400, Body: strings.Repeat("\xff\xfeé", 900)}, {Status: 400, Body: strings.Repeat("\U0001F600", 600)},
		}, func(t *testing.T, api rest.API, _ *layertest.Script) {
			for _, shown := range []string{strings.Repeat("é", 500), strings.Repeat("é", 500), strings.Repeat("\U0001F600", 500)} {
				body := failedAs(t, api.Get(t.Context(), "/", nil)).Body
				require.Equal(t, shown, body)
				require.True(t, utf8.ValidString(body))
			}
		}},
		{"V121 no answer", []layertest.Step{{Err: &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}}}, func(t *testing.T, api rest.API, _ *layertest.Script) {
			failed := failedAs(t, api.Get(t.Context(), "/", nil))
			require.Equal(t, rest.Transport, failed.Kind)
			require.Zero(t, failed.Status)
			require.Contains(t, failed.Detail, "connection refused")
			require.ErrorIs(t, failed, syscall.ECONNREFUSED)
		}},
		{"V021 no answer in time, or no connection that holds", []layertest.Step{
			{Err: handshakeTimeout{}}, {Err: syscall.ECONNRESET}, {Err: io.ErrUnexpectedEOF}, {Hang: true},
		}, func(t *testing.T, api rest.API, _ *layertest.Script) {
			attempts, err := roundtrippers.AttemptTimeout{After: second}.Wrap(api.Transport)
			require.NoError(t, err)
			api.Transport = attempts
			for range 4 {
				failed := failedAs(t, api.Get(t.Context(), "/", nil))
				require.Equal(t, []any{rest.Transport, 0, 1, false}, []any{failed.Kind, failed.Status, failed.Attempts, failed.IsFinal()}, failed)
			}
		}},
		{"V123 final or not", append(status(404, 401, 503, 429, 408), layertest.Step{Err: io.EOF}), func(t *testing.T, api rest.API, _ *layertest.Script) {
			for _, final := range []bool{true, true, false, false, false, false} {
				failed := failedAs(t, api.Get(t.Context(), "/", nil))
				require.Equal(t, final, failed.IsFinal(), failed)
			}
		}},
		{"V124 R28 an endless error body, and one that never comes", []layertest.Step{
			{Answer: func(*http.Request) (*http.Response, error) { return answerWith(503, &endless{}) }},
			{Answer: func(*http.Request) (*http.Response, error) { return answerWith(503, newStuck()) }},
		}, func(t *testing.T, api rest.API, _ *layertest.Script) {
			failed := failedAs(t, api.Get(t.Context(), "/", nil))
			require.Len(t, failed.Body, 500)
			began := time.Now()
			failedAs(t, api.Get(t.Context(), "/", nil))
			require.Equal(t, 5*second, time.Since(began))
		}},
		{"V126 the body reads again", status(404), func(t *testing.T, api rest.API, _ *layertest.Script) {
			failed := failedAs(t, api.Get(t.Context(), "/", nil))
			text, err := io.ReadAll(failed.Response.Body)
			require.NoError(t, err)
			require.Equal(t, "404", string(text))
		}},
		{"X17 the caller gives up", status(503), func(t *testing.T, api rest.API, _ *layertest.Script) {
			ctx, cancel := context.WithCancel(essential(t.Context()))
			time.AfterFunc(600*time.Millisecond, cancel)
			failed := failedAs(t, api.Get(ctx, "/", nil))
			require.ErrorIs(t, failed, context.Canceled)
			require.Equal(t, rest.Canceled, failed.Kind)
			var typed *middleware.Error
			require.ErrorAs(t, failed, &typed) // P13: the last real failure is underneath
			require.Equal(t, []int{503, 2}, []int{typed.LastStatus, failed.Attempts})
		}},
		{"a success that is no JSON", []layertest.Step{{Body: "<html>"}}, func(t *testing.T, api rest.API, _ *layertest.Script) {
			var rows []row
			failed := failedAs(t, api.Get(essential(t.Context()), "/", &rows))
			require.Equal(t, []any{rest.Decode, 200, 1, "<html>", true}, []any{failed.Kind, failed.Status, failed.Sends, failed.Body, failed.IsFinal()})
			var syntax *json.SyntaxError
			require.ErrorAs(t, failed, &syntax)
		}},
		{"a success that is too long", []layertest.Step{{Body: `"` + strings.Repeat("x", 100) + `"`}}, func(t *testing.T, api rest.API, _ *layertest.Script) {
			api.MaxBytes = 50
			var text string
			require.ErrorContains(t, api.Get(t.Context(), "/", &text), "more than 50 bytes")
		}},
		{"a call that is wrong itself", nil, func(t *testing.T, api rest.API, script *layertest.Script) {
			for _, err := range []error{
				api.Send(t.Context(), "B AD", "/", nil, nil, nil),
				api.Send(t.Context(), http.MethodPost, "/", nil, make(chan int), nil),
				rest.API{Transport: api.Transport}.Get(t.Context(), "/", nil),
				rest.API{Transport: api.Transport, BaseURL: "https://user:secret@%zz"}.Get(t.Context(), "/", nil),
			} {
				require.Equal(t, rest.Invalid, failedAs(t, err).Kind)
				require.NotContains(t, err.Error(), "secret")
			}
			require.Empty(t, script.Sends())
		}},
	} {
		t.Run(s.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api, script, _ := over(t, nil, s.steps...)
				s.run(t, api, script)
			})
		})
	}
}

// handshakeTimeout is what net/http returns when TLS takes too long.
type handshakeTimeout struct{}

func (handshakeTimeout) Error() string   { return "net/http: TLS handshake timeout" }
func (handshakeTimeout) Timeout() bool   { return true }
func (handshakeTimeout) Temporary() bool { return true }

// A token that cannot be had is final: the same call would fail again (V123).
func TestACallWithoutATokenIsFinalV123(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, script, _ := over(t, func(b *roundtrippers.APIBuilder) {
			b.Auth = &roundtrippers.Auth{Origins: []string{"https://api.test"}, Source: func(context.Context) (roundtrippers.Token, error) {
				return roundtrippers.Token{}, io.ErrUnexpectedEOF
			}}
		})
		failed := failedAs(t, api.Get(essential(t.Context()), "/", nil))
		require.Equal(t, []any{rest.Auth, 0, 0, true}, []any{failed.Kind, failed.Attempts, failed.Status, failed.IsFinal()})
		require.ErrorIs(t, failed, middleware.ErrNoCredential)
		require.ErrorIs(t, failed, io.ErrUnexpectedEOF)
		require.Empty(t, script.Sends())
	})
}

func TestOnlyWritesArePushedV130(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for method, pushed := range map[string]bool{
			http.MethodGet: false, http.MethodHead: false, http.MethodOptions: false, http.MethodTrace: false,
			http.MethodPost: true, http.MethodPut: true, http.MethodPatch: true, http.MethodDelete: true,
		} {
			api, _, told := over(t, nil)
			require.NoError(t, api.Send(t.Context(), method, "/rows", nil, nil, nil))
			require.Equal(t, pushed, strings.Contains(told.String(), "write pushed"), method)
		}
	})
}

func answerWith(code int, body io.ReadCloser) (*http.Response, error) {
	return &http.Response{StatusCode: code, Header: http.Header{}, Body: body, ContentLength: -1}, nil
}

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}
func (endless) Close() error { return nil }

// stuck is a body that never comes; Close ends the wait, as in net/http.
type stuck struct{ closed chan struct{} }

func newStuck() *stuck { return &stuck{closed: make(chan struct{})} }

func (s *stuck) Read([]byte) (int, error) {
	<-s.closed
	return 0, io.ErrClosedPipe
}

func (s *stuck) Close() error {
	select {
	case <-s.closed:
	default:
		close(s.closed)
	}
	return nil
}

func TestTheBreakersErrorOfACallV122V052(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, _, _ := over(t, func(b *roundtrippers.APIBuilder) { b.Circuit = &roundtrippers.Circuit{Threshold: 2} }, status(503)...)
		failed := failedAs(t, api.Get(bounded(t.Context(), 4), "/", nil))
		require.Equal(t, []any{rest.BreakerOpen, 2, 0, false}, []any{failed.Kind, failed.Attempts, failed.Status, failed.IsFinal()})
		failed = failedAs(t, api.Get(t.Context(), "/", nil))
		require.Equal(t, []any{rest.BreakerOpen, 0, 0}, []any{failed.Kind, failed.Attempts, failed.Status})
		require.ErrorIs(t, failed, middleware.ErrCircuitOpen)
		require.NotContains(t, failed.Error(), "status")
	})
}

func TestACallThatCannotEndWellIsNotSent(t *testing.T) {
	api, script, _ := over(t, nil, status(200)...)
	var rows []row
	var none *[]row
	for _, into := range []any{rows, none, "text"} {
		for _, err := range []error{
			api.Get(t.Context(), "/", into), api.Send(t.Context(), http.MethodPost, "/", nil, row{"a"}, into),
			api.GraphQL(t.Context(), rest.Document{Query: "{a}"}, into),
		} {
			failed := failedAs(t, err)
			require.Equal(t, []any{rest.Invalid, 0, true}, []any{failed.Kind, failed.Sends, failed.IsFinal()})
			var wrong *json.InvalidUnmarshalError
			require.ErrorAs(t, failed, &wrong)
		}
	}
	failed := failedAs(t, api.GraphQL(t.Context(), rest.Document{Query: " \n"}, nil))
	require.Equal(t, rest.Invalid, failed.Kind)
	require.ErrorContains(t, failed, "Document.Query is empty")
	require.Empty(t, script.Sends())
}

func TestWhatItsCallerEndedIsNotFinalAndWhatCannotBeSentIs(t *testing.T) { // V123: an outbox drops what is final
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(middleware.WithPriority(t.Context(), middleware.Essential), time.Second)
		defer cancel()
		hangs := layertest.Step{Hang: true}
		api, _, _ := over(t, nil, hangs)
		failed := failedAs(t, api.Send(ctx, http.MethodPost, "/rows", nil, row{"a"}, nil))
		require.Equal(t, []any{rest.Canceled, true, false}, []any{failed.Kind, failed.InDoubt, failed.IsFinal()})

		leaving, leave := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, leave)
		api, _, _ = over(t, nil, hangs)
		failed = failedAs(t, api.Send(leaving, http.MethodPost, "/rows", nil, row{"a"}, nil))
		require.Equal(t, []any{rest.Canceled, true, false}, []any{failed.Kind, failed.InDoubt, failed.IsFinal()})

		for _, unsendable := range []error{&url.Error{Op: "Post", URL: "ftp://api.test", Err: errors.New("unsupported protocol scheme \"ftp\"")}} {
			api, _, _ = over(t, nil, layertest.Step{Err: unsendable})
			failed = failedAs(t, api.Get(t.Context(), "/", nil))
			require.Equal(t, []any{rest.Transport, true}, []any{failed.Kind, failed.IsFinal()}, failed)
		}
		api, _, _ = over(t, nil, layertest.Step{Err: x509.HostnameError{Certificate: &x509.Certificate{}, Host: "api.test"}})
		require.False(t, failedAs(t, api.Get(t.Context(), "/", nil)).IsFinal(), "who answers today need not tomorrow")
	})
}

func TestAWaitThatIsRefusedEndsForTheSameReasonEverywhere(t *testing.T) { // X19, P14, X20
	synctest.Test(t, func(t *testing.T) {
		api, _, _ := over(t, func(b *roundtrippers.APIBuilder) { b.Circuit = &roundtrippers.Circuit{Threshold: 1} }, status(503)...)
		_ = api.Get(t.Context(), "/", nil)
		ctx, cancel := context.WithTimeout(middleware.WithPriority(t.Context(), middleware.Essential), time.Second)
		defer cancel()
		failed := failedAs(t, api.Get(ctx, "/", nil))
		var typed *middleware.Error
		require.ErrorAs(t, failed, &typed)
		require.Equal(t, []middleware.Stop{middleware.Deadline, middleware.Deadline, middleware.Deadline},
			[]middleware.Stop{failed.Stop, typed.Stop, typed.Report.Stop})
		require.True(t, failed.Timeout())
		require.True(t, typed.Timeout())
		require.Equal(t, rest.Canceled, failed.Kind)
		require.ErrorIs(t, failed, context.DeadlineExceeded)
		require.False(t, failed.IsFinal())
	})
}

func TestURLsAreRedactedV125(t *testing.T) {
	api := rest.API{BaseURL: "https://user:secret@api.test/v1?token=secret", Transport: layertest.NewScript(t, status(404)...)}
	err := api.Get(t.Context(), "rows?page=2&key=secret&secret", nil)
	require.ErrorContains(t, err, "url: https://api.test/v1/rows?token=...&page=...&key=...&...")
	require.NotContains(t, fmt.Sprintf("%v %+v %q", err, err, err), "secret")
}

// The URL, and whatever hides in the errors of a base that is a client of clients,
// show no credential; nor does the API itself.
func TestNoCredentialShowsV079(t *testing.T) {
	inner := &url.Error{Op: "Get", URL: "https://proxy.test/?secret=s3cr3t", Err: io.EOF}
	outer := &url.Error{Op: "Get", URL: "https://api.test/?token=s3cr3t", Err: fmt.Errorf("proxy: %w", inner)}
	api := rest.API{Transport: layertest.NewScript(t, layertest.Step{Err: outer}), BaseURL: "https://user:s3cr3t@api.test/v1?token=s3cr3t",
		Header: http.Header{"Authorization": {"Bearer s3cr3t"}}}
	failed := failedAs(t, api.Get(t.Context(), "/", nil))
	require.NotContains(t, fmt.Sprintf("%v %+v %q %s", failed, failed, failed, failed.Detail), "s3cr3t")
	require.Contains(t, failed.Detail, "proxy.test")
	logged, err := json.Marshal([]any{api, &api})
	require.NoError(t, err)
	text := fmt.Sprintf("%v %+v %#v %s %v %s", api, api, api, &api, struct{ A rest.API }{api}, logged)
	require.NotContains(t, text, "s3cr3t")
	require.Contains(t, text, "API{https://api.test/v1?token=...}")
}

// A path that is none must not address what it was to be joined to.
func TestABadPathIsNoCallToTheBase(t *testing.T) {
	api := rest.API{Transport: layertest.NewScript(t), BaseURL: "https://api.test/v1"}
	for _, path := range []string{"/rows/100%", "/rows/%zz", "%"} {
		failed := failedAs(t, api.Send(t.Context(), http.MethodDelete, path, nil, nil, nil))
		require.Equal(t, rest.Invalid, failed.Kind, path)
		require.ErrorContains(t, failed, "invalid URL escape", path)
	}
	_, err := api.Do(&http.Request{})
	require.Equal(t, rest.Invalid, failedAs(t, err).Kind)
}

func TestReadsAndWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, script, told := over(t, nil,
			layertest.Step{Body: `[{"Name":"a"},{"Name":"b"}]`}, layertest.Step{Status: 204}, layertest.Step{Status: 503}, layertest.Step{Status: 201, Body: `{"Name":"c"}`},
			layertest.Step{Status: 422}, layertest.Step{Body: "[]"})
		api.Header = http.Header{"X-Api-Key": {"configured"}, "Accept-Language": {"de"}}

		var rows []row
		require.NoError(t, api.Get(t.Context(), "rows?page=1", &rows))
		require.Equal(t, []row{{"a"}, {"b"}}, rows)
		require.Equal(t, "https://api.test/v1/rows?page=1", urlOf(script.Sends()[0]))
		require.NoError(t, api.Send(t.Context(), http.MethodDelete, "/rows/1", nil, nil, nil))

		var made row
		header := http.Header{"X-Api-Key": {"the call's"}, idempotency.Key: {"stored-7"}}
		require.NoError(t, api.Send(essential(t.Context()), http.MethodPost, "/rows", header, row{"c"}, &made))
		require.Equal(t, row{"c"}, made)
		for _, send := range script.Sends()[2:4] {
			require.Equal(t, []string{"the call's"}, send.Header["X-Api-Key"])
			require.Equal(t, "de", send.Header.Get("Accept-Language"))
			require.Equal(t, "stored-7", send.Header.Get(idempotency.Key))
			require.Equal(t, `{"Name":"c"}`, send.Body)
			require.Equal(t, "application/json", send.Header.Get("Content-Type"))
		}
		require.Error(t, api.Send(t.Context(), http.MethodPatch, "/rows/1", nil, row{}, nil))
		require.NoError(t, api.Get(t.Context(), "/rows", &rows))
		// V130: once per acknowledged write, after its end; none for reads and refusals.
		require.Equal(t, "attempt ended, rows pulled, attempt ended, write pushed, attempt ended, attempt ended, write pushed, attempt ended, attempt ended, rows pulled", told.String())
		require.Equal(t, 2, told.rows)
	})
}

func urlOf(s layertest.Send) string { return s.URL.String() }

func TestRawCallsShareWhatTheOthersShareV135(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, script, told := over(t, func(b *roundtrippers.APIBuilder) { b.Circuit = &roundtrippers.Circuit{Threshold: 1} }, status(201, 503)...)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://api.test/v1/upload", strings.NewReader("x"))
		require.NoError(t, err)
		api.Header = http.Header{"X-Api-Key": {"k"}}
		resp, err := api.Do(req)
		require.NoError(t, err)
		require.Equal(t, "201", readAll(t, resp))
		require.Equal(t, "k", script.Sends()[0].Header.Get("X-Api-Key"))
		require.Empty(t, req.Header.Get("X-Api-Key")) // X03
		require.Error(t, api.Get(t.Context(), "/", nil))
		resp, err = api.Do(req)
		require.Nil(t, resp)
		require.Equal(t, rest.BreakerOpen, failedAs(t, err).Kind)
		require.Equal(t, "attempt ended, write pushed, attempt ended, attempt ended", told.String())
	})
}

func readAll(t *testing.T, resp *http.Response) string {
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return string(text)
}

func TestGraphQL(t *testing.T) {
	query, mutation := rest.Document{Query: "query Q { users { name } }"}, rest.Document{Query: "mutation { add }"}
	type users struct{ Users []row }
	body := func(text string) layertest.Step { return layertest.Step{Body: text} }
	for _, s := range []struct {
		name  string
		steps []layertest.Step
		run   func(t *testing.T, api rest.API, script *layertest.Script, told *told)
	}{
		{"V137 no errors, however said", []layertest.Step{body(`{"data":{"users":[{"name":"a"},{"name":"b"}]},"errors":[]}`), body(`{"data":{},"errors":null}`), body(`{"data":{}}`), body(`{"data":null}`)}, func(t *testing.T, api rest.API, script *layertest.Script, told *told) {
			var into users
			require.NoError(t, api.GraphQL(t.Context(), query, &into))
			require.Equal(t, users{[]row{{"a"}, {"b"}}}, into)
			require.Equal(t, 2, told.rows)
			for range 3 {
				require.NoError(t, api.GraphQL(t.Context(), query, nil))
			}
			require.Equal(t, `{"query":"query Q { users { name } }"}`, script.Sends()[0].Body)
		}},
		{"V138 errors under a 400", []layertest.Step{{Status: 400, Body: `{"errors":[{"message":"syntax"}]}`}}, func(t *testing.T, api rest.API, script *layertest.Script, _ *told) {
			failed := failedAs(t, api.GraphQL(essential(t.Context()), query, nil))
			require.Equal(t, []any{rest.Status, 400, 1}, []any{failed.Kind, failed.Status, failed.Sends})
			require.Contains(t, failed.Body, "syntax")
		}},
		{"V139 retried like any other", append(status(502, 502), body(`{"data":{"users":[]}}`)), func(t *testing.T, api rest.API, script *layertest.Script, _ *told) {
			require.NoError(t, api.GraphQL(essential(t.Context()), query, nil))
			require.Len(t, script.Sends(), 3)
		}},
		{"V140 V142 errors in a 200, data all the same, never sent again", []layertest.Step{body(`{"data":{"users":[{"name":"a"}]},"errors":[{"message":"rate limited","path":["users",1]}]}`)}, func(t *testing.T, api rest.API, script *layertest.Script, told *told) {
			var into users
			failed := failedAs(t, api.GraphQL(essential(t.Context()), query, &into))
			require.Equal(t, []any{rest.GraphQL, 200, 1, "rate limited"}, []any{failed.Kind, failed.Status, failed.Sends, failed.Messages[0].Message})
			require.JSONEq(t, `{"users":[{"name":"a"}]}`, string(failed.Data))
			require.Equal(t, users{[]row{{"a"}}}, into)
			require.ErrorContains(t, failed, "message: rate limited")
			require.True(t, failed.IsFinal())
			require.Len(t, script.Sends(), 1)
			require.Equal(t, "attempt ended", told.String())
		}},
		{"V141 a 200 that is no answer", []layertest.Step{body("<html>"), body("{}"), body(`{"data":{"users":7}}`), body("null")}, func(t *testing.T, api rest.API, script *layertest.Script, _ *told) {
			for range 4 {
				var into users
				require.Equal(t, rest.Decode, failedAs(t, api.GraphQL(essential(t.Context()), query, &into)).Kind)
			}
			require.Len(t, script.Sends(), 4)
		}},
		{"V143 a query is a read", []layertest.Step{{Err: io.EOF}, body(`{"data":{}}`)}, func(t *testing.T, api rest.API, script *layertest.Script, told *told) {
			require.NoError(t, api.GraphQL(essential(t.Context()), query, nil))
			require.Equal(t, []string{"", ""}, []string{script.Sends()[0].Header.Get(idempotency.Key), script.Sends()[1].Header.Get(idempotency.Key)})
			require.NotContains(t, told.String(), "write pushed")
		}},
		{"V143 a mutation is a write", []layertest.Step{{Status: 503}, body(`{"data":{"add":1}}`), body(`{"data":null,"errors":[{"message":"no"}]}`)}, func(t *testing.T, api rest.API, script *layertest.Script, told *told) {
			require.NoError(t, api.GraphQL(essential(t.Context()), mutation, nil))
			require.NotEmpty(t, script.Sends()[0].Header.Get(idempotency.Key))
			require.Equal(t, script.Sends()[0].Header, script.Sends()[1].Header)
			require.Equal(t, "attempt ended, attempt ended, write pushed", told.String())
			require.Error(t, api.GraphQL(t.Context(), mutation, nil))
			require.Equal(t, "attempt ended, attempt ended, write pushed, attempt ended", told.String())
		}},
	} {
		t.Run(s.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api, script, told := over(t, func(b *roundtrippers.APIBuilder) { b.IdempotencyKey = &roundtrippers.IdempotencyKey{} }, s.steps...)
				s.run(t, api, script, told)
			})
		})
	}
	t.Run("V141 V142 neither is a failure to the breaker", func(t *testing.T) {
		circuit := &roundtrippers.Circuit{Threshold: 1}
		api, _, _ := over(t, func(b *roundtrippers.APIBuilder) { b.Circuit = circuit }, body("<html>"), body(`{"errors":[{"message":"x"}]}`))
		for range 2 {
			require.Error(t, api.GraphQL(t.Context(), query, nil))
		}
		state, _ := circuit.State()
		require.Equal(t, "closed", state.String())
	})
}

// Errors are errors, whatever a service makes of the specification's form.
func TestGraphQLErrorsOfOddShape(t *testing.T) {
	for text, want := range map[string]string{
		`["boom"]`:                       "boom",
		`[null]`:                         "",
		`[7]`:                            "7",
		`[["a"]]`:                        `["a"]`,
		`[{"message":{"text":"boom"}}]`:  `{"message":{"text":"boom"}}`,
		`[{"path":"a.b","message":"x"}]`: "x",
		`[{"message":"x","path":{},"extensions":"e"},{"message":"y"}]`: "x",
	} {
		api, script, _ := over(t, nil, layertest.Step{Body: `{"data":{"a":1},"errors":` + text + `}`})
		var into map[string]int
		failed := failedAs(t, api.GraphQL(t.Context(), rest.Document{Query: "mutation {a}"}, &into))
		require.Equal(t, rest.GraphQL, failed.Kind, text)
		require.Equal(t, want, failed.Messages[0].Message, text)
		require.Equal(t, map[string]int{"a": 1}, into)
		require.True(t, failed.IsFinal())
		require.Len(t, script.Sends(), 1)
	}
}

func TestCallsWithoutAnyLayerHaveErrorsToo(t *testing.T) {
	api := rest.API{BaseURL: "https://api.test", Transport: layertest.NewScript(t, layertest.Step{Err: io.EOF}, layertest.Step{Hang: true})}
	failed := failedAs(t, api.Get(t.Context(), "/", nil))
	require.Equal(t, []any{rest.Transport, 1}, []any{failed.Kind, failed.Attempts})
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(time.Millisecond, cancel)
	failed = failedAs(t, api.Get(ctx, "/", nil))
	require.Equal(t, rest.Canceled, failed.Kind)
	require.True(t, errors.Is(failed, context.Canceled))
}

type counted struct{ n int }

func (c counted) Rows() int { return c.n }

func TestRowsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for text, want := range map[string]struct {
			into any
			rows int
		}{
			`[1,2,3]`: {new([]int), 3},
			`{"Items":[1,2],"Next":"x"}`: {new(struct {
				Items []int
				Next  string
			}), 2},
			`{"A":[1],"B":[1,2]}`:       {new(map[string][]int), 3},
			`{"Name":"one"}`:            {new(row), 1},
			`{"a":[1,2],"b":{"c":[3]}}`: {new(any), 2},
			`"bytes"`:                   {new(json.RawMessage), 1},
			`{}`:                        {&counted{n: 42}, 42},
			`null`:                      {new(*row), 0},
		} {
			api, _, told := over(t, nil, layertest.Step{Body: text})
			require.NoError(t, api.Get(t.Context(), "/", want.into), text)
			require.Equal(t, want.rows, told.rows, text)
		}
	})
	require.Equal(t, reflect.Int, reflect.TypeOf(counted{}.Rows()).Kind())
}
