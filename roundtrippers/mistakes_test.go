package roundtrippers_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/layertest"
	"github.com/reroute-go/reroute/middleware/rest"
	"github.com/reroute-go/reroute/roundtrippers"
)

// nobody is an Owners that cannot do without its receiver.
type nobody struct{ roundtrippers.Owners }

// transporter is a dialect whose transport has not been made.
type transporter struct{ words }

func (transporter) NewTransport() *http.Transport { return nil }

// lines are an error's, without the names of those that passed it on.
func lines(t *testing.T, err error, builder string) []string {
	t.Helper()
	require.Error(t, err)
	text, named := strings.CutPrefix(err.Error(), "roundtrippers."+builder+": ")
	require.True(t, named, "%v", err)
	return strings.Split(strings.Replace(text, "middleware.Stack: ", "", 1), "\n")
}

func TestTheAPIBuilderNamesEveryBadFieldAndItsLayersToo(t *testing.T) {
	token := func(context.Context) (roundtrippers.Token, error) { return roundtrippers.Token{}, nil }
	b := roundtrippers.APIBuilder{
		OperationTimeout: -1, AttemptTimeout: -2, MaxReplayBytes: -3,
		PerOperation: []middleware.Layer{(*roundtrippers.RateLimit)(nil)},
		Retry:        roundtrippers.Retry{MaxRetries: -4, Jitter: 2, Background: middleware.Patience{Base: -5, Max: -6}},
		Auth:         &roundtrippers.Auth{Source: token, Origins: []string{"https://*.example.com"}, Header: "Authorization: Bearer secret"},
		Pause:        &roundtrippers.Pause{Max: -7},
		Circuit:      &roundtrippers.Circuit{Threshold: -8},
		Concurrency:  &roundtrippers.Concurrency{Limit: -9},
		Base:         &roundtrippers.Pools{Streams: -10, Grace: -11},
	}
	_, err := b.Build()
	require.Equal(t, []string{
		"OperationTimeout is -1ns, want >= 0",
		"Dialect is nil: which service is this?",
		"AttemptTimeout is -2ns, want >= 0",
		"MaxReplayBytes is -3, want >= 0, or -1 for none",
		"layer 0 is a nil *roundtrippers.RateLimit",
		"layer 2 (roundtrippers.Retry): MaxRetries is -4, want >= 0",
		"layer 2 (roundtrippers.Retry): Jitter is 2, want 0..1",
		"layer 2 (roundtrippers.Retry): Background: Patience.Base is -5ns, want >= 0",
		"layer 2 (roundtrippers.Retry): Background: Patience.Max is -6ns, want >= 0",
		"layer 5 (*roundtrippers.Circuit): Threshold is -8, want >= 0",
		`layer 6 (*roundtrippers.authAttach): Origins[0] is "https://*.example.com", want http or https://host[:port]`,
		`layer 6 (*roundtrippers.authAttach): Header is "Authorization...", want the name of a header`,
		"layer 7 (*roundtrippers.Concurrency): Limit is -9, want >= 0",
		"layer 8 (*roundtrippers.Pause): Max is -7ns, want >= 0",
		"base (*roundtrippers.Pools): Pools.Streams is -10, want >= 0",
		"base (*roundtrippers.Pools): Pools.Grace is -11ns, want >= 0",
	}, lines(t, err, "APIBuilder"))

	// What stood in for the dialect is gone from the caller's pointers.
	require.Nil(t, b.Circuit.Dialect)
	require.Nil(t, b.Pause.Dialect)
	require.Nil(t, b.Auth.Dialect)
	circuit := &roundtrippers.Circuit{}
	_, err = roundtrippers.APIBuilder{Circuit: circuit}.Build()
	require.EqualError(t, err, "roundtrippers.APIBuilder: Dialect is nil: which service is this?")
	rt, err := roundtrippers.APIBuilder{Dialect: rest.Dialect{}, Circuit: circuit, Base: layertest.NewScript(t, layertest.Step{Status: 200})}.Build()
	require.NoError(t, err)
	resp, err := rt.RoundTrip(get(t.Context(), "https://api.test/"))
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
}

func TestTheOwnershipBuilderNamesEveryBadFieldAndItsLayersToo(t *testing.T) {
	_, err := roundtrippers.OwnershipBuilder{}.Build()
	require.Equal(t, []string{"Dialect is nil: which service is this?", "Owners is nil: who knows which node owns what?"}, lines(t, err, "OwnershipBuilder"))

	_, err = roundtrippers.OwnershipBuilder{
		Dialect: (*transporter)(nil), Owners: (*nobody)(nil),
		Switches:         roundtrippers.Switches{RequestTimeout: -9, RefreshWait: -8},
		OperationTimeout: -5, AttemptTimeout: -6, MaxReplayBytes: -7,
		Reroute:    roundtrippers.Reroute{Attempts: -1, Base: -2, MigratingFactor: -3, Cap: -4, Jitter: 2, RefreshWait: -5, SuspectAfter: -6},
		Route:      roundtrippers.Route{Owners: (*nobody)(nil), Regions: registry(t, false)},
		PerAttempt: []middleware.Layer{middleware.LayerFunc(nil)},
		Base:       (*http.Transport)(nil),
	}.Build()
	require.Equal(t, []string{
		"OperationTimeout is -5ns, want >= 0, or -1 for none",
		"Dialect is a nil *roundtrippers_test.transporter: has it been opened?",
		"AttemptTimeout is -6ns, want >= 0",
		"MaxReplayBytes is -7, want >= 0, or -1 for none",
		"Switches.RequestTimeout is -9ns, want >= 0, or -1 for none",
		"Switches.RefreshWait is -8ns, want >= 0, or -1 for none",
		"Owners is a nil *roundtrippers_test.nobody: has it been opened?",
		"layer 2 (roundtrippers.Reroute): Attempts is -1, want >= 0",
		"layer 2 (roundtrippers.Reroute): Base is -2ns, want >= 0",
		"layer 2 (roundtrippers.Reroute): MigratingFactor is -3, want >= 0",
		"layer 2 (roundtrippers.Reroute): Cap is -4ns, want >= 0",
		"layer 2 (roundtrippers.Reroute): Jitter is 2, want 0..1",
		"layer 2 (roundtrippers.Reroute): RefreshWait is -5ns, want >= 0, or -1 for none",
		"layer 2 (roundtrippers.Reroute): SuspectAfter is -6, want >= 0",
		"layer 3 (roundtrippers.Route): Owners is a nil *roundtrippers_test.nobody: has it been opened?",
		"layer 3 (roundtrippers.Route): Owners and Regions are both set: who picks the endpoint?",
		"layer 4 is a nil middleware.LayerFunc",
		"base is a nil *http.Transport",
	}, lines(t, err, "OwnershipBuilder"))
}

// A stack is refused for what its fields say, whatever the operator's switches hide.
func TestABadFieldIsNamedWhereAnotherOneCountsBeforeIt(t *testing.T) {
	_, err := roundtrippers.OwnershipBuilder{Dialect: words{}, Owners: nobody{}, OperationTimeout: -1,
		Switches: roundtrippers.Switches{RequestTimeout: -2, DisableRetries: true}, Reroute: roundtrippers.Reroute{Attempts: -3}}.Build()
	require.Equal(t, []string{
		"Switches.RequestTimeout is -2ns, want >= 0, or -1 for none", "layer 1 (roundtrippers.Reroute): Attempts is -3, want >= 0",
	}, lines(t, err, "OwnershipBuilder"))
}

func TestADialectWithoutATransportIsNoPanic(t *testing.T) {
	_, err := roundtrippers.OwnershipBuilder{Dialect: transporter{}, Owners: nobody{}}.Build()
	require.Equal(t, []string{"base is a nil *http.Transport"}, lines(t, err, "OwnershipBuilder"))

	rt, err := roundtrippers.Builder{Dialect: transporter{}}.Build()
	require.NoError(t, err)
	_, err = rt.RoundTrip(get(t.Context(), "https://api.test/")) //nolint:bodyclose // there is none
	require.ErrorContains(t, err, "Pools.New returned nil")
}

func TestRouteNamesAllThatExcludesEachOther(t *testing.T) {
	_, err := roundtrippers.Route{KeepHost: true}.Wrap(nil)
	require.EqualError(t, err, "Dialect is nil: which service is this?\n"+
		"KeepHost is true without Owners: a region's endpoint needs its own Host\nRegions is nil: which registry knows the regions?")
}

func TestAnOriginThatNoRequestHasIsRefusedAndShown(t *testing.T) {
	source := (&tokenSource{}).next
	for origin, shown := range map[string]string{
		"":                                    "",
		"api.example.com":                     "api.example.com",
		"https://*.example.com":               "https://*.example.com",
		"*":                                   "*",
		"ftp://x":                             "ftp://x",
		"https://":                            "https://",
		"https://:443":                        "https://:443",
		"https://a.test/v1":                   "https://a.test/v1",
		"https://a.test?key=secret":           "https://a.test...",
		"https://a.test#secret":               "https://a.test...",
		"https://user:secret@api.example.com": "https://...@api.example.com",
		"https://user:secret":                 "https://user...",
	} {
		_, err := (&roundtrippers.Auth{Dialect: rest.Dialect{}, Source: source, Origins: []string{origin}}).Wrap(nil)
		require.EqualError(t, err, `Origins[0] is "`+shown+`", want http or https://host[:port]`)
	}
	_, err := (&roundtrippers.Auth{Dialect: rest.Dialect{}, Source: source,
		Origins: []string{"https://a.test", "HTTP://A.test:8080/", "https://[::1]:8443", "https://bücher.test", "https://a_b.test"}}).Wrap(nil)
	require.NoError(t, err)
}

func TestASplitAuthTellsItsMistakeOnceAndNoToken(t *testing.T) {
	replay, attach := (&roundtrippers.Auth{}).Split()
	_, err := middleware.Stack(nil, replay, &roundtrippers.Concurrency{}, attach)
	require.Equal(t, 1, strings.Count(err.Error(), "Source is nil"), "%v", err)

	replay, attach = (&roundtrippers.Auth{Dialect: rest.Dialect{}, Origins: []string{"https://api.test"},
		Source: func(context.Context) (roundtrippers.Token, error) { return roundtrippers.Token{Value: "secret"}, nil }}).Split()
	script := layertest.NewScript(t, layertest.Step{Status: 200})
	rt, err := middleware.Stack(script, replay, attach)
	require.NoError(t, err)
	resp, err := rt.RoundTrip(get(t.Context(), "https://api.test/"))
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, "secret", script.Sends()[0].Header.Get("Authorization"))
	text := fmt.Sprintf("%v %+v %#v %v %+v %#v", replay, replay, replay, attach, attach, attach)
	require.Contains(t, text, "Authorization: Token{<set>}")
	require.NotContains(t, text, "secret")

	replay, attach = (*roundtrippers.Auth)(nil).Split()
	_, err = middleware.Stack(nil, replay, attach)
	require.EqualError(t, err, "middleware.Stack: layer 0 is a nil *roundtrippers.authReplay\nlayer 1 is a nil *roundtrippers.authAttach")
}
