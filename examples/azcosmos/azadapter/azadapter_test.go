package azadapter

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/cosmos"
	"github.com/reroute-go/reroute/middleware/cosmos/cosmostest"
	"github.com/reroute-go/reroute/regions"
	"github.com/reroute-go/reroute/roundtrippers"
)

const endpoint = "http://acct.documents.example"

// account opens an account of one write region and one more read region.
func account(t *testing.T) *cosmos.Account {
	t.Helper()
	document := `{"writableLocations":[{"name":"West US","databaseAccountEndpoint":"http://acct-westus.documents.example/"}],
		"readableLocations":[{"name":"West US","databaseAccountEndpoint":"http://acct-westus.documents.example/"},
		{"name":"East US","databaseAccountEndpoint":"http://acct-eastus.documents.example/"}]}`
	a, err := cosmos.Open(context.Background(), endpoint, cosmos.SharedKey(cosmostest.DefaultKey), cosmos.Options{
		Transport: middleware.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
			return answer(req, 200, 0, io.NopCloser(strings.NewReader(document))), nil
		}),
	})
	require.NoError(t, err)
	t.Cleanup(a.Close)
	return a
}

func answer(req *http.Request, status, substatus int, body io.ReadCloser) *http.Response {
	resp := &http.Response{StatusCode: status, Status: fmt.Sprintf("%d %s", status, http.StatusText(status)), Header: http.Header{},
		Body: body, ContentLength: -1, Request: req, ProtoMajor: 1, ProtoMinor: 1}
	if substatus != 0 {
		resp.Header.Set("x-ms-substatus", fmt.Sprint(substatus))
	}
	return resp
}

func text(s string) io.ReadCloser { return io.NopCloser(strings.NewReader(s)) }

func read(ctx context.Context) *http.Request {
	req, _ := http.NewRequestWithContext(ctx, http.MethodGet, endpoint+"/dbs/db/colls/c/docs/1", nil)
	return req
}

func create(ctx context.Context) *http.Request {
	req, _ := http.NewRequestWithContext(ctx, http.MethodPost, endpoint+"/dbs/db/colls/c/docs", strings.NewReader(`{"id":"1"}`))
	return req
}

// over is an adapter without layers over one answer.
func over(t *testing.T, f middleware.RoundTripperFunc) *Transport {
	return &Transport{Next: f, Dialect: account(t)}
}

func TestAnExhaustedAnswerIsAResponseErrorThatTheSDKDoesNotRetry(t *testing.T) {
	for _, a := range []struct{ status, substatus int }{
		{408, 0}, {429, 3200}, {429, 3092}, {449, 0}, {500, 0}, {502, 0}, {503, 0}, {504, 0}, {403, 3}, {403, 1008}, {404, 1002},
	} {
		t.Run(fmt.Sprintf("%d %d", a.status, a.substatus), func(t *testing.T) {
			closed := &closing{Reader: strings.NewReader(`{"code":"Word","message":"m"}`)}
			resp, err := over(t, func(req *http.Request) (*http.Response, error) {
				return answer(req, a.status, a.substatus, closed), nil
			}).Do(read(context.Background()))
			require.Nil(t, resp)
			requireNotRetried(t, err)
			var answered *azcore.ResponseError
			require.ErrorAs(t, err, &answered)
			require.Equal(t, a.status, answered.StatusCode)
			require.Equal(t, "Word", answered.ErrorCode)
			body, _ := io.ReadAll(answered.RawResponse.Body)
			require.Contains(t, string(body), "Word", "the answer stays readable")
			require.True(t, closed.closed)
			require.Contains(t, err.Error(), fmt.Sprint(a.status))
		})
	}
}

func TestAnswersThatNobodyRetriesAndThoseThatAreTheSDKsOwnPass(t *testing.T) {
	for _, a := range []struct{ status, substatus int }{
		{200, 0}, {201, 0}, {304, 0}, {400, 0}, {401, 0}, {403, 0}, {404, 0}, {404, 1003}, {409, 0}, {412, 0}, {413, 0},
		{410, 0}, {410, 1000}, {410, 1002}, {410, 1007}, {410, 1008},
		{302, 0}, // no http.Client: nothing is followed
	} {
		sends := 0
		resp, err := over(t, func(req *http.Request) (*http.Response, error) {
			sends++
			resp := answer(req, a.status, a.substatus, text("body"))
			resp.Header.Set("Location", endpoint+"/elsewhere")
			return resp, nil
		}).Do(read(context.Background()))
		require.NoError(t, err, "%d/%d", a.status, a.substatus)
		require.Equal(t, a.status, resp.StatusCode)
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.Equal(t, "body", string(body))
		require.Equal(t, 1, sends)
	}
}

func TestATransportErrorIsOpaque(t *testing.T) {
	for _, cause := range []error{
		io.EOF, io.ErrUnexpectedEOF, context.DeadlineExceeded, &net.DNSError{Err: "no such host", Name: "x"},
		&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, &net.OpError{Op: "read", Err: syscall.ECONNRESET}, errors.New("unknown"),
	} {
		rt, err := middleware.Stack(middleware.RoundTripperFunc(func(*http.Request) (*http.Response, error) { return nil, cause }))
		require.NoError(t, err)
		_, err = (&Transport{Next: rt, Dialect: account(t)}).Do(read(context.Background()))
		requireNotRetried(t, err)
		var ours *Error
		require.ErrorAs(t, err, &ours)
		require.ErrorIs(t, ours.Cause(), cause)
		var typed *middleware.Error
		require.ErrorAs(t, err, &typed, "the stack's own error is found")
		require.Equal(t, 1, ours.Report.Sends)
		require.Contains(t, err.Error(), cause.Error())
	}
}

func TestAnErrorOfAForeignRoundTripperIsOpaqueToo(t *testing.T) {
	_, err := over(t, func(*http.Request) (*http.Response, error) {
		return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	}).
		Do(read(context.Background()))
	requireNotRetried(t, err)
	var ours *Error
	require.ErrorAs(t, err, &ours)
	require.Equal(t, middleware.Unreachable, ours.Outcome.Cause)
}

func TestTheEndOfTheCallersContextIsUntouched(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	transport, err := New(roundtrippers.Builder{Dialect: account(t), Base: middleware.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
		cancel()
		return nil, req.Context().Err()
	})})
	require.NoError(t, err)
	_, err = transport.Do(read(ctx))
	require.ErrorIs(t, err, context.Canceled)
	var ours *Error
	require.False(t, errors.As(err, &ours))
}

func TestALimitOfTheStacksOwnIsNoDeadlineForTheSDK(t *testing.T) {
	// The SDK takes context.DeadlineExceeded on a living context for a transport's time-out, and a read's is retried four times.
	synctest.Test(t, func(t *testing.T) {
		a := account(t)
		transport, err := New(roundtrippers.Builder{Dialect: a, Regions: a.Regions, OperationTimeout: time.Second,
			Base: middleware.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
				<-req.Context().Done()
				return nil, req.Context().Err()
			})})
		require.NoError(t, err)
		_, err = transport.Do(read(context.Background()))
		requireNotRetried(t, err)
		var typed *middleware.Error
		require.ErrorAs(t, err, &typed)
		require.Equal(t, middleware.Deadline, typed.Stop)
	})
}

func TestTheSentinelsAreFoundAndNothingThatTheSDKRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := account(t)
		transport, err := New(roundtrippers.Builder{Dialect: a, Regions: a.Regions, Base: middleware.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
			return answer(req, 503, 0, text("")), nil
		})})
		require.NoError(t, err)
		_, err = transport.Do(read(context.Background()))
		require.ErrorIs(t, err, middleware.ErrBudgetSpent)
		require.NotErrorIs(t, err, middleware.ErrNotRepeatable)
		require.Contains(t, err.Error(), "read item: 503 unavailable, budget spent after 4 sends")

		excluded := middleware.WithExcludedRegions(context.Background(), "West US", "East US")
		strict, err := New(roundtrippers.Builder{Dialect: a, Regions: a.Regions, Route: roundtrippers.Route{StrictExclusion: true}, Base: transport.Next})
		require.NoError(t, err)
		_, err = strict.Do(read(excluded))
		require.ErrorIs(t, err, regions.ErrNoRegion)
		requireNotRetried(t, err)
	})
}

func TestAThrottledRangeFeedIsNo429(t *testing.T) {
	for _, path := range []string{"/dbs/db/colls/c/pkranges", "/dbs/db/colls/c/pkranges/"} {
		req, _ := http.NewRequest(http.MethodGet, endpoint+path, nil)
		_, err := over(t, func(req *http.Request) (*http.Response, error) { return answer(req, 429, 3200, text("{}")), nil }).Do(req)
		requireNotRetried(t, err)
		var answered *azcore.ResponseError
		require.False(t, errors.As(err, &answered), "the SDK asks again as long as it finds a 429")
		require.Contains(t, err.Error(), "429/3200")
	}
}

func TestABodyThatBreaksOffIsRetriedForReadsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := account(t)
		var hosts []string
		transport, err := New(roundtrippers.Builder{Dialect: a, Regions: a.Regions, Base: middleware.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
			hosts = append(hosts, req.URL.Host)
			return answer(req, 200, 0, io.NopCloser(io.MultiReader(strings.NewReader("half"), failing{io.ErrUnexpectedEOF}))), nil
		})})
		require.NoError(t, err)
		_, err = transport.Do(read(context.Background()))
		requireNotRetried(t, err)
		require.Len(t, hosts, 5, "one on another connection, three in other regions")
		var typed *middleware.Error
		require.ErrorAs(t, err, &typed)
		require.ErrorIs(t, typed.Unwrap(), io.ErrUnexpectedEOF)

		hosts = nil
		resp, err := transport.Do(create(context.Background()))
		require.NoError(t, err, "the write was carried out, and says so")
		body, err := io.ReadAll(resp.Body)
		require.Equal(t, "half", string(body))
		requireNotRetried(t, err)
		require.Len(t, hosts, 1)
	})
}

func TestAnErrorAnswerThatBreaksOffIsStillTheAnswer(t *testing.T) {
	whole := &Whole{Next: middleware.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
		return answer(req, 409, 0, io.NopCloser(io.MultiReader(strings.NewReader("half"), failing{io.ErrUnexpectedEOF}))), nil
	})}
	resp, err := whole.RoundTrip(create(context.Background()))
	require.NoError(t, err)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, "half", string(body))
	require.Equal(t, 409, resp.StatusCode)
}

func TestWithoutAnOperationTheMethodTellsAWrite(t *testing.T) {
	whole := &Whole{Next: middleware.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
		return answer(req, 200, 0, io.NopCloser(failing{io.ErrUnexpectedEOF})), nil
	})}
	_, err := whole.RoundTrip(read(context.Background()))
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	resp, err := whole.RoundTrip(create(context.Background()))
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
}

func TestAnEndlessBodyIsNeitherHeldInMemoryNorLost(t *testing.T) {
	source := &endless{}
	transport := over(t, (&Whole{MaxBytes: 1000, Next: middleware.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
		resp := answer(req, 200, 0, source)
		resp.ContentLength = 1 << 40 // what the server says costs nothing yet
		return resp, nil
	})}).RoundTrip)
	transport.MaxBytes = 5000
	resp, err := transport.Do(read(context.Background()))
	require.NoError(t, err)
	require.LessOrEqual(t, source.read, 1001)
	body, err := io.ReadAll(resp.Body)
	requireNotRetried(t, err)
	var ours *Error
	require.ErrorAs(t, err, &ours)
	require.Equal(t, &TooLargeError{MaxBytes: 5000}, ours.Cause())
	require.LessOrEqual(t, len(body), 5000)
	require.LessOrEqual(t, source.read, 10_000)
	require.NoError(t, resp.Body.Close())
	require.True(t, source.closed)

	transport.MaxBytes = -1
	source.read = 0
	resp, err = transport.Do(read(context.Background()))
	require.NoError(t, err)
	_, err = io.CopyN(io.Discard, resp.Body, 1<<20)
	require.NoError(t, err, "no limit was asked for")
}

func TestAnEndlessErrorIsCutToWhatIsWorthReading(t *testing.T) {
	source := &endless{}
	_, err := over(t, func(req *http.Request) (*http.Response, error) { return answer(req, 503, 0, source), nil }).Do(read(context.Background()))
	requireNotRetried(t, err)
	require.LessOrEqual(t, source.read, maxErrorBody)
	require.True(t, source.closed)
}

func TestEverySendHasABodyReaderOfItsOwn(t *testing.T) {
	// net/http may read a request's body on after it has returned the answer; -race sees a shared reader.
	synctest.Test(t, func(t *testing.T) {
		a := account(t)
		var bodies []string
		transport, err := New(roundtrippers.Builder{Dialect: a, Regions: a.Regions, Base: middleware.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
			b, _ := io.ReadAll(req.Body)
			bodies = append(bodies, string(b))
			go func() { _, _ = req.Body.Read(make([]byte, 1)) }() // is there more than the length says?
			return answer(req, 503, 0, text("")), nil
		})})
		require.NoError(t, err)
		req := create(context.Background())
		shared := bytes.NewReader([]byte(`{"id":"1"}`)) // as azcore does it
		req.Body = io.NopCloser(shared)
		req.GetBody = func() (io.ReadCloser, error) {
			_, err := shared.Seek(0, io.SeekStart)
			return io.NopCloser(shared), err
		}
		_, err = transport.Do(req)
		requireNotRetried(t, err)
		_, _ = req.GetBody() // the SDK rewinds
		synctest.Wait()
		require.Len(t, bodies, 4)
		for _, b := range bodies {
			require.Equal(t, `{"id":"1"}`, b)
		}
	})
}

func TestABodyThatCannotBeReadSendsNothing(t *testing.T) {
	req := create(context.Background())
	req.Body = io.NopCloser(failing{errors.New("disk gone")})
	_, err := over(t, func(*http.Request) (*http.Response, error) {
		t.Error("sent")
		return nil, io.EOF
	}).Do(req)
	requireNotRetried(t, err)
	require.Contains(t, err.Error(), "disk gone")
}

func TestABadBuilderIsAnErrorThatNamesTheField(t *testing.T) {
	_, err := New(roundtrippers.Builder{})
	require.ErrorContains(t, err, "Builder.Dialect")
	_, err = New(roundtrippers.Builder{Dialect: account(t), Failover: roundtrippers.Failover{Retries: -1}})
	require.ErrorContains(t, err, "Retries is -1")
}

func TestTheOptionsTurnAzcoresRetriesOffAndNameNoRegion(t *testing.T) {
	transport, err := New(roundtrippers.Builder{Dialect: account(t)})
	require.NoError(t, err)
	options := ClientOptions(transport)
	require.Same(t, transport, options.Transport)
	require.EqualValues(t, -1, options.Retry.MaxRetries)
	require.Empty(t, options.PreferredRegions)
	transport.CloseIdleConnections()
}

func TestIdleConnectionsAreClosedThroughAllThatIsBetween(t *testing.T) {
	base := &idle{}
	transport, err := New(roundtrippers.Builder{Dialect: account(t), Base: base})
	require.NoError(t, err)
	transport.CloseIdleConnections()
	require.True(t, base.closed)
}

// requireNotRetried checks what azcore and azcosmos look at.
func requireNotRetried(t *testing.T, err error) {
	t.Helper()
	require.Error(t, err)
	var final interface {
		error
		NonRetriable()
	}
	require.ErrorAs(t, err, &final)
	var ours *Error
	require.ErrorAs(t, err, &ours)
	for _, target := range []error{
		io.EOF, io.ErrUnexpectedEOF, context.DeadlineExceeded, context.Canceled, syscall.ECONNREFUSED, syscall.ECONNRESET,
		syscall.EPIPE, syscall.ETIMEDOUT, syscall.EHOSTUNREACH,
	} {
		require.NotErrorIs(t, err, target)
	}
	var dns *net.DNSError
	var op *net.OpError
	var timeout net.Error
	require.False(t, errors.As(err, &dns))
	require.False(t, errors.As(err, &op))
	require.False(t, errors.As(err, &timeout))
}

type closing struct {
	io.Reader
	closed bool
}

func (c *closing) Close() error {
	c.closed = true
	return nil
}

type endless struct {
	read   int
	closed bool
}

func (e *endless) Read(p []byte) (int, error) {
	e.read += len(p)
	return len(p), nil
}

func (e *endless) Close() error {
	e.closed = true
	return nil
}

type idle struct{ closed bool }

func (*idle) RoundTrip(*http.Request) (*http.Response, error) { return nil, io.EOF }
func (i *idle) CloseIdleConnections()                         { i.closed = true }

func TestEveryFieldOfTheBuilderReachesTheStack(t *testing.T) {
	a := account(t)
	transport, err := New(roundtrippers.Builder{Dialect: a, Regions: a.Regions, Partitions: a.Partitions})
	require.NoError(t, err)
	stack := middleware.Describe(transport.Next)
	for _, layer := range []string{"roundtrippers.Failover", "roundtrippers.Partition", "roundtrippers.Breaker", "roundtrippers.Route", "AttemptTimeout"} {
		require.Contains(t, stack, layer)
	}
	transport, err = New(roundtrippers.Builder{Dialect: a, Regions: a.Regions})
	require.NoError(t, err)
	require.NotContains(t, middleware.Describe(transport.Next), "roundtrippers.Breaker")
}
