package regions_test

import (
	"context"
	"fmt"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/regions"
)

func TestNamesAreTheSameWithoutCaseAndSpaces(t *testing.T) {
	for _, same := range [][2]regions.Name{
		{"West US 2", "westus2"}, {"West US 2", " WEST  US2 "}, {"", " "}, {"Région É", "régioné"}, {"a\tb", "AB"},
	} {
		require.True(t, same[0].Equal(same[1]), same)
		require.True(t, same[1].Equal(same[0]), same)
		require.Equal(t, same[0].Key(), same[1].Key())
	}
	for _, other := range [][2]regions.Name{{"West US", "West US 2"}, {"West US", "East US"}, {"a-b", "ab"}, {"é", "e"}, {"", "a"}} {
		require.False(t, other[0].Equal(other[1]), other)
		require.False(t, other[1].Equal(other[0]), other)
		require.NotEqual(t, other[0].Key(), other[1].Key())
	}
	require.Equal(t, "westus2", regions.Name("West US 2").Key())
}

func FuzzNamesWithEqualKeysAreEqual(f *testing.F) {
	f.Add("West US 2", "westus2")
	f.Add("K", "\u212a") // the Kelvin sign folds to k
	f.Add("\u0130", "i")
	f.Add("a", "a\u00a0")
	f.Add("\xff", "\ufffd")
	f.Fuzz(func(t *testing.T, a, b string) {
		require.Equal(t, regions.Name(a).Key() == regions.Name(b).Key(), regions.Name(a).Equal(regions.Name(b)))
	})
}

func TestPreferredRegionsComeFirstAndTheRestFollowsInAccountOrder(t *testing.T) { // R063
	for _, tc := range []struct {
		name      string
		preferred []regions.Name
		topology  *regions.Topology
		reads     string
		writes    string
		hub       string
	}{
		{"none preferred", nil, multiWrite(east, west, north), "East US, West US, North Europe", "East US, West US, North Europe", "East US"},
		{"two preferred", []regions.Name{west, east}, multiWrite(north, east, west), "West US, East US, North Europe", "West US, East US, North Europe", "North Europe"},
		{"unknown skipped", []regions.Name{"Mars", "WESTUS", "west us"}, multiWrite(east, west), "West US, East US", "West US, East US", "East US"},
		{"single write has one write region", []regions.Name{west}, singleWrite(east, west), "West US, East US", "East US", "East US"},
		{"single write among several told", []regions.Name{west}, &regions.Topology{Reads: endpointsOf(east, west), Writes: endpointsOf(east, west)}, "West US, East US", "East US", "East US"},
		{"no read regions", []regions.Name{west}, &regions.Topology{Writes: endpointsOf(east, west), MultiWrite: true}, "West US, East US", "West US, East US", "East US"},
		{"no write regions", nil, &regions.Topology{Reads: endpointsOf(east, west)}, "East US, West US", "", ""},
		{"told twice", nil, multiWrite(east, east, west), "East US, West US", "East US, West US", "East US"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, _ := open(t, tc.topology, tc.preferred...)
			require.Equal(t, tc.reads, order(r.Endpoints(regions.ReadRegions)))
			require.Equal(t, tc.writes, order(r.Endpoints(regions.WriteRegions)))
			require.Equal(t, tc.hub, order(r.Endpoints(regions.Hub)))
		})
	}
}

func TestAMalformedTopologyIsRefusedAndTheOldOneStays(t *testing.T) {
	with := func(e regions.Endpoint) *regions.Topology {
		return &regions.Topology{Reads: []regions.Endpoint{endpoint(east), e}}
	}
	var long []regions.Endpoint
	for i := range 1000 {
		long = append(long, endpoint(regions.Name(fmt.Sprint("Region ", i))))
	}
	for problem, told := range map[string]*regions.Topology{
		"neither a read nor a write region":  {MultiWrite: true},
		"Reads[1] has no region name":        with(regions.Endpoint{Region: " ", URL: &url.URL{Scheme: "https", Host: "h"}}),
		"Reads[1] has no URL":                with(regions.Endpoint{Region: west}),
		"Reads[1] is neither https nor http": with(regions.Endpoint{Region: west, URL: &url.URL{Scheme: "ftp", Host: "h"}}),
		"Reads[1] has no host":               with(regions.Endpoint{Region: west, URL: &url.URL{Scheme: "https", Host: ":443"}}),
		"Writes is too long":                 {Writes: long},
	} {
		t.Run(problem, func(t *testing.T) {
			a := &account{now: told}
			r, err := regions.New(regions.Config{Source: a})
			require.NoError(t, err)
			topology, err := r.Refresh(context.Background(), nil)
			var refused *regions.TopologyError
			require.ErrorAs(t, err, &refused)
			require.Equal(t, problem, refused.Problem)
			require.Nil(t, topology)

			a.set(singleWrite(east), nil)
			good, err := r.Refresh(context.Background(), nil)
			require.NoError(t, err)
			require.Same(t, good, r.Topology())
		})
	}
}

func TestEndpointsKeepSchemeAndHostOnly(t *testing.T) {
	told := &regions.Topology{Reads: []regions.Endpoint{{
		Region: east, URL: &url.URL{Scheme: "https", User: url.UserPassword("u", "secret"), Host: "Acct-East.example:443", Path: "/", RawQuery: "q=1"},
	}}}
	r, _ := open(t, told)
	told.Reads[0].URL.Host = "changed later"
	require.Equal(t, "https://acct-east.example:443", pick(t, r, regions.Want{}).URL.String())
}
