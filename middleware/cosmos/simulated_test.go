package cosmos_test

import (
	"context"
	"encoding/base64"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/middleware/cosmos"
	"github.com/reroute-go/reroute/middleware/cosmos/cosmostest"
	"github.com/reroute-go/reroute/regions"
)

// Against a service that verifies signatures, from the first read to a region that is added while the global endpoint is
// down (R083, R102).
func TestASimulatedAccountIsOpenedAndFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim := cosmostest.Start(t, cosmostest.Config{InMemory: true})
		a, err := cosmos.Open(t.Context(), sim.Endpoint(), cosmos.SharedKey(sim.Key()), cosmos.Options{
			Transport: sim.Transport(), PreferredRegions: []regions.Name{"northeurope"},
		})
		require.NoError(t, err)
		defer a.Close()
		require.Equal(t, regions.Name("North Europe"), a.Regions.Endpoints(regions.ReadRegions)[0].Region)
		require.Equal(t, regions.Name("West US"), a.Regions.Endpoints(regions.Hub)[0].Region)

		sim.SetOffline(cosmostest.Global, cosmostest.Refused)
		sim.AddRegion("UK South")
		sim.SetMultiWrite(true)
		time.Sleep(5 * time.Second)
		top, err := a.Regions.Refresh(t.Context(), a.Regions.Topology())
		require.NoError(t, err)
		require.Len(t, top.Reads, 4)
		require.True(t, top.MultiWrite)
		require.Zero(t, sim.BadSignatures())
		sim.Transport().CloseIdleConnections()
	})
}

func TestASimulatedAccountRefusesAWrongCredential(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim := cosmostest.Start(t, cosmostest.Config{InMemory: true, Token: "good"})
		opts := cosmos.Options{Transport: sim.Transport()}
		token := func(text string) cosmos.Authorizer {
			return cosmos.AADToken(func(context.Context) (string, time.Time, error) { return text, time.Time{}, nil })
		}
		for _, wrong := range []cosmos.Authorizer{cosmos.SharedKey(base64.StdEncoding.EncodeToString([]byte("wrong"))), token("bad")} {
			_, err := cosmos.Open(t.Context(), sim.Endpoint(), wrong, opts)
			var e *cosmos.FetchError
			require.ErrorAs(t, err, &e)
			require.Equal(t, 401, e.Status)
		}
		require.Equal(t, 2, sim.BadSignatures(), "once each")
		a, err := cosmos.Open(t.Context(), sim.Endpoint(), token("good"), opts)
		require.NoError(t, err)
		a.Close()
		sim.Transport().CloseIdleConnections()
	})
}
