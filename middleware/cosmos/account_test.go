package cosmos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/partitions"
	"github.com/reroute-go/reroute/regions"
	"github.com/reroute-go/reroute/regions/snapshot"
)

const (
	global   = "https://acct.documents.azure.com:443/"
	globalAt = "acct.documents.azure.com:443"
	eastAt   = "acct-eastus.documents.azure.com:443"
	westAt   = "acct-westus.documents.azure.com:443"
)

var errDial = &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}

// fake is a service of many hosts, without sockets. Hosts without an answer refuse the connection.
type fake struct {
	mu      sync.Mutex
	answers map[string]func(*http.Request) (*http.Response, error)
	asked   []string    // hosts, in order
	at      []time.Time // when
	open    int         // bodies not closed
}

func newFake() *fake { return &fake{answers: map[string]func(*http.Request) (*http.Response, error){}} }

func (f *fake) on(host string, answer func(*http.Request) (*http.Response, error)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answers[host] = answer
}

func (f *fake) RoundTrip(req *http.Request) (*http.Response, error) {
	f.mu.Lock()
	f.asked, f.at = append(f.asked, req.URL.Host), append(f.at, time.Now())
	answer := f.answers[req.URL.Host]
	f.mu.Unlock()
	if answer == nil {
		return nil, errDial
	}
	resp, err := answer(req)
	if resp != nil {
		f.mu.Lock()
		f.open++
		f.mu.Unlock()
		resp.Body = &counted{ReadCloser: resp.Body, f: f}
	}
	return resp, err
}

type counted struct {
	io.ReadCloser
	f    *fake
	once sync.Once
}

func (c *counted) Close() error {
	c.once.Do(func() { c.f.mu.Lock(); c.f.open--; c.f.mu.Unlock() })
	return c.ReadCloser.Close()
}

func (f *fake) hosts() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.asked...)
}

func (f *fake) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked, f.at = nil, nil
}

func says(status int, body string, headers ...string) func(*http.Request) (*http.Response, error) {
	return func(req *http.Request) (*http.Response, error) {
		resp := answered(status, headers...)
		resp.Body, resp.Request = io.NopCloser(strings.NewReader(body)), req
		return resp, nil
	}
}

func tells(writes, reads []string) func(*http.Request) (*http.Response, error) {
	return says(200, document(writes, reads, ""))
}

// inTurn gives one answer after the other, the last for ever.
func inTurn(answers ...func(*http.Request) (*http.Response, error)) func(*http.Request) (*http.Response, error) {
	n := 0
	return func(req *http.Request) (*http.Response, error) {
		n++
		return answers[min(n, len(answers))-1](req)
	}
}

func opened(t *testing.T, f *fake, opts Options) *Account {
	t.Helper()
	a, err := open(t.Context(), f, opts)
	require.NoError(t, err)
	t.Cleanup(a.Close)
	return a
}

func open(ctx context.Context, f *fake, opts Options) (*Account, error) {
	opts.Transport = f
	return Open(ctx, global, SharedKey(testKey), opts)
}

func bubble(t *testing.T, f func(t *testing.T, service *fake)) {
	synctest.Test(t, func(t *testing.T) {
		service := newFake()
		service.on(globalAt, tells([]string{east}, []string{east, west}))
		f(t, service)
		synctest.Wait()
		require.Zero(t, service.open, "every answer's body is closed")
	})
}

func TestOpenReadsTheTopologyOnceAndSignsForIt(t *testing.T) {
	bubble(t, func(t *testing.T, service *fake) {
		var seen http.Header
		service.on(globalAt, func(req *http.Request) (*http.Response, error) {
			seen = req.Header.Clone()
			require.Equal(t, "/", req.URL.Path)
			require.Equal(t, "GET", req.Method)
			return tells([]string{east}, []string{east, west})(req)
		})
		a := opened(t, service, Options{PreferredRegions: []regions.Name{"West US", "Mars"}})
		require.Equal(t, []string{globalAt}, service.hosts())
		require.NotEmpty(t, seen.Get("Authorization"))
		require.NotEmpty(t, seen.Get("x-ms-version"))
		require.NotEmpty(t, seen.Get("x-ms-date"))
		reads := a.Regions.Endpoints(regions.ReadRegions)
		require.Equal(t, []regions.Name{"West US", "East US"}, []regions.Name{reads[0].Region, reads[1].Region}) // R063
		require.Equal(t, regions.Name("East US"), a.Regions.Endpoints(regions.Hub)[0].Region)
	})
}

// R081
func TestADeadEndpointIsTriedThreeTimesAndThenTheBackup(t *testing.T) {
	bubble(t, func(t *testing.T, service *fake) {
		service.on(globalAt, nil)
		service.on(westAt, tells([]string{east}, []string{east, west}))
		a := opened(t, service, Options{BackupEndpoints: []string{"https://" + eastAt, "https://" + westAt + "/"}})
		require.Equal(t, []string{globalAt, globalAt, globalAt, eastAt, eastAt, eastAt, westAt}, service.hosts())
		require.Equal(t, 100*time.Millisecond, service.at[1].Sub(service.at[0]))
		require.Equal(t, 200*time.Millisecond, service.at[2].Sub(service.at[1]))
		require.Len(t, a.Regions.Endpoints(regions.ReadRegions), 2)
	})
}

// R082
func TestAPersistent503SaysSoAndIsNotTakenForADocument(t *testing.T) {
	bubble(t, func(t *testing.T, service *fake) {
		service.on(globalAt, says(503, `{"code":"ServiceUnavailable","message":"come\r\nback"}`))
		_, err := open(t.Context(), service, Options{})
		var e *FetchError
		require.ErrorAs(t, err, &e)
		require.Equal(t, 503, e.Status)
		require.Equal(t, "cosmos: account from acct.documents.azure.com:443: 503 Service Unavailable: ServiceUnavailable: come back", err.Error())
		require.Len(t, service.hosts(), 1)
	})
}

func TestARefusedCredentialFailsAtOnceAndIsNotShown(t *testing.T) {
	for _, c := range []struct {
		status, sub int
		asked       int
	}{{401, 0, 1}, {403, 0, 1}, {403, 5300, 1}, {403, 1008, 2}, {403, 3, 2}, {404, 0, 2}} {
		bubble(t, func(t *testing.T, service *fake) {
			service.on(globalAt, func(req *http.Request) (*http.Response, error) {
				auth := req.Header.Get("Authorization")
				return says(c.status, `{"code":"No","message":"you sent `+auth+`"}`, "x-ms-substatus", fmt.Sprint(c.sub))(req)
			})
			service.on(eastAt, says(500, ""))
			_, err := open(t.Context(), service, Options{BackupEndpoints: []string{"https://" + eastAt}})
			var e *FetchError
			require.ErrorAs(t, err, &e)
			require.Equal(t, c.status, e.Status)
			require.Equal(t, c.sub, e.Substatus)
			require.Equal(t, "No: you sent [redacted]", e.Message)
			require.Len(t, service.hosts(), c.asked)
		})
	}
}

func TestAnAuthorizerThatFailsEndsTheOpenUnsent(t *testing.T) {
	bubble(t, func(t *testing.T, service *fake) {
		auth := AuthorizerFunc(func(context.Context, *http.Request) error { return errTest })
		_, err := Open(t.Context(), global, auth, Options{Transport: service, BackupEndpoints: []string{"https://" + eastAt}})
		require.ErrorIs(t, err, errTest)
		require.ErrorContains(t, err, "authorizing")
		require.Empty(t, service.hosts())
	})
}

// R044, R047, R049: a 429 is waited out on the same endpoint, for as long as the service wishes, nine times.
func TestAThrottledReadWaitsAsLongAsTheServiceWishes(t *testing.T) {
	bubble(t, func(t *testing.T, service *fake) {
		busy := says(429, "", "x-ms-retry-after-ms", "100")
		service.on(globalAt, inTurn(busy, busy, tells([]string{east}, nil)))
		start := time.Now()
		opened(t, service, Options{})
		require.Equal(t, 200*time.Millisecond, time.Since(start))
		require.Len(t, service.hosts(), 3)
	})
	bubble(t, func(t *testing.T, service *fake) {
		service.on(globalAt, says(429, "", "x-ms-retry-after-ms", "100", "x-ms-substatus", "3200"))
		_, err := open(t.Context(), service, Options{})
		var e *FetchError
		require.ErrorAs(t, err, &e)
		require.Equal(t, 429, e.Status)
		require.Len(t, service.hosts(), 10)
	})
}

// R046 by DESIGN rule 2: a wish beyond the budget is not cut short, the 429 is the answer at once.
func TestAWishThatDoesNotFitIsNotBegun(t *testing.T) {
	bubble(t, func(t *testing.T, service *fake) {
		service.on(globalAt, says(429, "", "x-ms-retry-after-ms", "31000"))
		start := time.Now()
		_, err := open(t.Context(), service, Options{})
		require.ErrorContains(t, err, "429")
		require.Zero(t, time.Since(start))
		require.Len(t, service.hosts(), 1)
	})
	bubble(t, func(t *testing.T, service *fake) { // the sum counts: 14 s + 14 s, and a third does not fit
		service.on(globalAt, says(429, "", "Retry-After", "14"))
		start := time.Now()
		_, err := open(t.Context(), service, Options{})
		require.ErrorContains(t, err, "429")
		require.Equal(t, 28*time.Second, time.Since(start))
	})
}

func TestAThrottleWithoutAWishBacksOff(t *testing.T) {
	bubble(t, func(t *testing.T, service *fake) {
		service.on(globalAt, says(429, ""))
		_, err := open(t.Context(), service, Options{})
		require.Error(t, err)
		require.Len(t, service.at, 10)
		for n := range 9 {
			base := 5 * time.Millisecond << n
			require.InDelta(t, float64(base), float64(service.at[n+1].Sub(service.at[n])), 0.25*float64(base)+1)
		}
	})
}

func TestASystemThrottleGoesToTheNextEndpointAtOnce(t *testing.T) { // DESIGN rule 2: 429/3092
	bubble(t, func(t *testing.T, service *fake) {
		service.on(globalAt, says(429, "", "x-ms-substatus", "3092", "x-ms-retry-after-ms", "5000"))
		service.on(westAt, tells([]string{east}, nil))
		start := time.Now()
		opened(t, service, Options{BackupEndpoints: []string{"https://" + westAt}})
		require.Zero(t, time.Since(start))
	})
}

func TestBadAnswersArePassedOver(t *testing.T) {
	for name, bad := range map[string]func(*http.Request) (*http.Response, error){
		"junk":     says(200, "<html>"),
		"envelope": says(200, `{"code":"x"}`),
		"redirect": says(307, "", "Location", "https://evil.example/"),
		"foreign":  tells([]string{"x https://evil.example"}, nil),
		"too long": says(200, strings.Repeat(" ", maxDocument)+"{}"),
		"cut": func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 200, Body: io.NopCloser(&cutBody{})}, nil
		},
		"closed unasked":  func(*http.Request) (*http.Response, error) { return nil, io.EOF },
		"endless silence": silence,
		"endless body": func(req *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 200, Body: endless{req.Context()}}, nil
		},
		"1008": says(403, "", "x-ms-substatus", "1008"),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, service *fake) {
				service.on(globalAt, bad)
				service.on(westAt, tells([]string{east}, []string{west}))
				start := time.Now()
				opened(t, service, Options{BackupEndpoints: []string{"https://" + westAt}})
				require.Equal(t, []string{globalAt, westAt}, service.hosts())
				if strings.HasPrefix(name, "endless") {
					require.Equal(t, defaultRequestTimeout, time.Since(start))
				} else {
					require.Zero(t, time.Since(start))
				}
			})
			bubble(t, func(t *testing.T, service *fake) {
				service.on(globalAt, bad)
				_, err := open(t.Context(), service, Options{RequestTimeout: 65 * time.Second})
				var e *FetchError
				require.ErrorAs(t, err, &e)
				require.Equal(t, globalAt, e.Endpoint)
			})
		})
	}
}

func silence(req *http.Request) (*http.Response, error) {
	<-req.Context().Done()
	return nil, req.Context().Err()
}

type cutBody struct{ sent bool }

func (b *cutBody) Read(p []byte) (int, error) {
	if b.sent {
		return 0, io.ErrUnexpectedEOF
	}
	b.sent = true
	return copy(p, `{"writableLocations":[`), nil
}

// endless trickles a blank a second, as long as the request lives.
type endless struct{ ctx context.Context }

func (e endless) Read(p []byte) (int, error) {
	select {
	case <-e.ctx.Done():
		return 0, e.ctx.Err()
	case <-time.After(time.Second):
		return copy(p, " "), nil
	}
}
func (endless) Close() error { return nil }

func TestOpenEndsWithItsContext(t *testing.T) {
	bubble(t, func(t *testing.T, service *fake) {
		service.on(globalAt, silence)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := open(ctx, service, Options{})
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

func TestOpenOutlastsTheWaitOfASingleOperation(t *testing.T) {
	bubble(t, func(t *testing.T, service *fake) {
		busy := says(429, "", "Retry-After", "12")
		service.on(globalAt, inTurn(busy, busy, tells([]string{east}, nil)))
		start := time.Now()
		opened(t, service, Options{RefreshWait: time.Second})
		require.Equal(t, 24*time.Second, time.Since(start))
	})
}

// R083, R099: the walk ignores what callers exclude, since no caller takes part in it.
func TestARefreshFallsBackToTheKnownRegions(t *testing.T) {
	bubble(t, func(t *testing.T, service *fake) {
		a := opened(t, service, Options{})
		service.forget()
		service.on(globalAt, says(503, ""))
		service.on(eastAt, says(403, "", "x-ms-substatus", "1008"))
		service.on(westAt, tells([]string{west}, []string{west}))
		time.Sleep(5 * time.Second)
		ctx := middleware.WithExcludedRegions(t.Context(), "West US")
		top, err := a.Regions.Refresh(ctx, a.Regions.Topology())
		require.NoError(t, err)
		require.Equal(t, regions.Name("West US"), top.Writes[0].Region)
		require.Equal(t, []string{globalAt, eastAt, westAt}, service.hosts(), "each once, without connect retries")
	})
}

func TestAFailedRefreshKeepsTheTopology(t *testing.T) { // R078
	bubble(t, func(t *testing.T, service *fake) {
		a := opened(t, service, Options{BackupEndpoints: []string{"https://" + globalAt, "https://backup.example"}})
		before := a.Regions.Topology()
		service.forget()
		service.on(globalAt, tells([]string{"x https://evil.example"}, nil))
		time.Sleep(5 * time.Second)
		after, err := a.Regions.Refresh(t.Context(), before)
		var e *DocumentError
		require.ErrorAs(t, err, &e)
		require.Same(t, before, after)
		require.Equal(t, []string{globalAt, eastAt, westAt, "backup.example"}, service.hosts())
		require.False(t, a.Regions.Knows("evil.example"))
	})
}

// R079, R102
func TestRunRefreshesEveryFiveMinutesAndLearnsNewRegions(t *testing.T) {
	bubble(t, func(t *testing.T, service *fake) {
		a := opened(t, service, Options{})
		ended := make(chan error, 1)
		go func() { ended <- a.Run(t.Context()) }()
		time.Sleep(4*300*time.Second + time.Second)
		require.Len(t, service.hosts(), 1+4)
		service.on(globalAt, tells([]string{east}, []string{east, west, "UK South https://acct-uksouth.documents.azure.com:443/"}))
		time.Sleep(300 * time.Second)
		require.Len(t, a.Regions.Endpoints(regions.ReadRegions), 3)
		a.Close()
		require.ErrorIs(t, <-ended, snapshot.ErrClosed)
		a.Close()
	})
}

func TestManyStaleOperationsCostOneRead(t *testing.T) { // R076
	bubble(t, func(t *testing.T, service *fake) {
		a := opened(t, service, Options{})
		service.forget()
		time.Sleep(5 * time.Second)
		old := a.Regions.Topology()
		var group sync.WaitGroup
		for range 100 {
			group.Go(func() { _, _ = a.Regions.Refresh(t.Context(), old) })
		}
		group.Wait()
		require.Len(t, service.hosts(), 1)
	})
}

// fakeAuth is an Authorizer that cannot do without its receiver, and fussy a base
// that checks itself.
type (
	fakeAuth struct{ Authorizer }
	fussy    struct{ http.RoundTripper }
)

func (*fussy) Validate() error { return errors.New("Streams is -1") }

func TestBadConfigurationIsNamed(t *testing.T) {
	_, err := Open(t.Context(), "https://user:hidden@acct.documents.azure.com", nil, Options{
		PreferredRegions: []regions.Name{"West US", " "},
		BackupEndpoints:  []string{"ftp://x"},
		RequestTimeout:   time.Second, RefreshInterval: -1, BackgroundInterval: -1, RefreshWait: -1, MarkFor: -1,
	})
	for _, want := range []string{
		"endpoint", "Authorizer is nil", "PreferredRegions[1]", `BackupEndpoints[0] "ftp://x"`, "RequestTimeout is 1s, want 5s to 1m5s",
		"RefreshInterval", "BackgroundInterval", "RefreshWait", "MarkFor",
	} {
		require.ErrorContains(t, err, want)
	}
	require.NotContains(t, err.Error(), "hidden")

	_, err = Open(t.Context(), global, AuthorizerFunc(nil), Options{
		Transport:  (*http.Transport)(nil),
		Partitions: partitions.Config{FetchTimeout: -1, MaxContainers: -2, Source: &partitionSource{}},
	})
	for _, want := range []string{
		"cosmos: Authorizer is a nil cosmos.AuthorizerFunc", "cosmos: Options.Transport is a nil *http.Transport",
		"cosmos: Options.Partitions.Source is set", "cosmos: Options.Partitions: partitions: Config.FetchTimeout is -1ns", "Config.MaxContainers is -2",
	} {
		require.ErrorContains(t, err, want)
	}
	_, err = Open(t.Context(), global, (*fakeAuth)(nil), Options{Transport: &fussy{}})
	require.EqualError(t, err, "cosmos: Authorizer is a nil *cosmos.fakeAuth: how are the account's own requests signed?\n"+
		"cosmos: Options.Transport: Streams is -1")
	for _, bad := range []string{"", "acct.documents.azure.com", "https://", "https://a/b", "https://a/?x", "://", "https://a b"} {
		_, err := Open(t.Context(), bad, SharedKey(testKey), Options{})
		require.ErrorContains(t, err, "endpoint", bad)
	}
}

func TestAnAccountJudgesOnlyItsOwnHosts(t *testing.T) {
	bubble(t, func(t *testing.T, service *fake) {
		a := opened(t, service, Options{BackupEndpoints: []string{"https://front.example"}})
		for host, mine := range map[string]bool{
			globalAt: true, "acct.documents.azure.com": true, "ACCT.documents.azure.com": true, eastAt: true, "acct-eastus.documents.azure.com": true,
			"acct-new.documents.azure.com": true, "front.example": true, "front.example:443": true,
			"other.documents.azure.com": false, "example.com": false, "127.0.0.1:8081": false, "": false,
		} {
			req := request(t, "GET", "/dbs/d/colls/c/docs/i")
			req.URL.Host = host
			require.Equal(t, mine, a.Intent(req).Scope != middleware.Foreign, host)
		}
		in := a.Intent(request(t, "GET", "/dbs/d/colls/c/docs/i"))
		require.Equal(t, "read item", in.Name)
		require.Equal(t, middleware.SessionLag, a.Judge(&in, answered(404, "x-ms-substatus", "1002"), nil).Cause)
		require.Zero(t, testing.AllocsPerRun(100, func() { sink = a.Intent(request0) }))
		require.NotContains(t, fmt.Sprintf("%+v %#v", a, a), testKey)
	})
}

var request0 = func() *http.Request {
	req, _ := http.NewRequest("GET", "https://"+eastAt+"/dbs/d/colls/c/docs/i", nil)
	return req
}()

func TestOnTheLoopbackOnlyKnownPortsAreTheAccounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := newFake()
		service.on("127.0.0.1:8081", tells([]string{"East http://127.0.0.1:8082"}, nil))
		a, err := Open(t.Context(), "http://127.0.0.1:8081", SharedKey(testKey), Options{Transport: service})
		require.NoError(t, err)
		defer a.Close()
		for host, mine := range map[string]bool{"127.0.0.1:8081": true, "127.0.0.1:8082": true, "127.0.0.1:8083": false, "localhost:80": false} {
			req := request(t, "GET", "/dbs")
			req.URL.Host = host
			require.Equal(t, mine, a.Intent(req).Scope != middleware.Foreign, host)
		}
	})
}

func TestWritesAreStampedByTheTopologyOfTheMoment(t *testing.T) {
	bubble(t, func(t *testing.T, service *fake) {
		a := opened(t, service, Options{})
		write := &middleware.Intent{Write: true}
		require.Empty(t, a.Stamp(write, http.Header{})[headerAllowTentativeWrites])
		service.on(globalAt, says(200, document([]string{east, west}, nil, `,"enableMultipleWriteLocations":true`)))
		time.Sleep(5 * time.Second)
		_, err := a.Regions.Refresh(t.Context(), a.Regions.Topology())
		require.NoError(t, err)
		require.Equal(t, yes, a.Stamp(write, http.Header{})[headerAllowTentativeWrites])
		require.Equal(t, yes, a.Stamp(write, http.Header{})[headerNoRetry449])
	})
}

func TestAnAccountIsADialectOfAStack(t *testing.T) { // R036
	bubble(t, func(t *testing.T, service *fake) {
		a := opened(t, service, Options{StrictPatch: true})
		sent := []http.Header{}
		retryWith := says(449, "")
		turn := inTurn(retryWith, retryWith, retryWith, says(200, "{}"))
		service.on("acct.documents.azure.com", func(req *http.Request) (*http.Response, error) {
			sent = append(sent, req.Header)
			return turn(req)
		})
		rt, err := middleware.Stack(service, contended{a})
		require.NoError(t, err)
		resp, err := rt.RoundTrip(request(t, "GET", "/dbs/d/colls/c/docs/i"))
		require.NoError(t, err)
		defer resp.Body.Close()
		require.Equal(t, 200, resp.StatusCode)
		require.Len(t, sent, 4)
		for _, h := range sent {
			require.Equal(t, "true", h.Get("x-ms-noretry-449"))
		}
		report := middleware.FromResponse(resp).Report()
		require.Equal(t, "read item", report.Operation)
		require.Equal(t, "449", report.Attempts[0].Code)
	})
}

type contended struct{ d middleware.Dialect }

func (c contended) Wrap(next http.RoundTripper) (http.RoundTripper, error) {
	budget := &middleware.Budget{Name: "449", Retries: 9}
	return middleware.Retry(next, c.d, func(_ context.Context, _ *middleware.Operation, out middleware.Outcome) middleware.Verdict {
		if out.Cause != middleware.Contended {
			return middleware.Verdict{}
		}
		return middleware.Verdict{Budget: budget, Wait: 10 * time.Millisecond}
	}, budget)
}

// A connection string, or an endpoint with a signature, is an easy mistake: no error repeats what it holds.
func TestAnEndpointThatHoldsACredentialIsRefusedWithoutRepeatingIt(t *testing.T) {
	for _, endpoint := range []string{
		"AccountEndpoint=https://acct.documents.example:443/;AccountKey=c2VjcmV0;",
		"https://acct.documents.example/?sig=c2VjcmV0", "https://acct.documents.example/#c2VjcmV0", "https://me:c2VjcmV0@acct.documents.example/",
		"ht tp://c2VjcmV0", "https://acct.documents.example:443/;AccountKey=c2VjcmV0", "%zz;c2VjcmV0",
	} {
		for name, opts := range map[string]Options{endpoint: {}, "https://acct.documents.example": {BackupEndpoints: []string{endpoint}}} {
			_, err := Open(t.Context(), name, SharedKey(testKey), opts)
			require.Error(t, err)
			require.NotContains(t, fmt.Sprintf("%v %+v", err, err), "c2VjcmV0")
		}
	}
	_, err := Open(t.Context(), "AccountEndpoint=https://acct.documents.example:443/;AccountKey=c2VjcmV0;", SharedKey(testKey), Options{})
	require.ErrorContains(t, err, "connection string")
}

func TestThePartitionsOptionsAreCheckedByName(t *testing.T) {
	_, err := Open(t.Context(), "https://acct.documents.example", SharedKey(testKey), Options{ThrottleRetries: -1, ThrottleMaxWait: -1,
		Partitions: partitions.Config{Source: &partitionSource{}}})
	require.ErrorContains(t, err, "Options.ThrottleRetries is -1")
	require.ErrorContains(t, err, "Options.ThrottleMaxWait is -1ns")
	require.ErrorContains(t, err, "Options.Partitions.Source is set")
	_, err = Open(t.Context(), "https://acct.documents.example", SharedKey(testKey), Options{Partitions: partitions.Config{NegativeTTL: time.Second}})
	require.ErrorContains(t, err, "Options.Partitions: partitions: Config.NegativeTTL is 1s")
}
