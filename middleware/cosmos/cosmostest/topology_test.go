package cosmostest

import (
	"context"
	"errors"
	"io"
	"net/http"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// newStore is a client of an account with container db/c.
func newStore(t *testing.T, cfg Config) *client {
	c := newClient(t, cfg)
	c.CreateContainer("db", "c", Container{})
	return c
}

func TestAWriteOutsideTheWriteRegionIsForbidden(t *testing.T) { // R104
	inBoth(t, Config{}, func(t *testing.T, c *client) {
		c.CreateContainer("db", "c", Container{})
		ans := c.item(east, "POST", "", `{"id":"a","pk":"p"}`)
		require.Equal(t, 403, ans.status)
		require.Equal(t, "3", ans.sub)
		require.Equal(t, 403, c.do(east, "POST", "/dbs", `{"id":"other"}`).status)
		require.Equal(t, 201, c.item(Global, "POST", "", `{"id":"a","pk":"p"}`).status, "the global endpoint is served by the write region")

		c.HoldTopology(0)
		c.SetWriteRegion(east)
		require.Equal(t, "3", c.item(west, "POST", "", `{"id":"b","pk":"p"}`).sub)
		require.Equal(t, 201, c.item(east, "POST", "", `{"id":"b","pk":"p"}`).status)
		require.Equal(t, west, writers(t, c)[0], "the document is held")
		c.ReleaseTopology()
		require.Equal(t, east, writers(t, c)[0])
	})
}

func writers(t *testing.T, c *client) (names []string) {
	for _, l := range c.do(north, "GET", "/", "").json(t)["writableLocations"].([]any) {
		names = append(names, l.(map[string]any)["name"].(string))
	}
	return names
}

func TestMultiWriteNeedsTheTentativeHeaderOutsideTheHub(t *testing.T) {
	inBoth(t, Config{MultiWrite: true}, func(t *testing.T, c *client) {
		c.CreateContainer("db", "c", Container{})
		require.Len(t, writers(t, c), 3)
		require.Equal(t, "3", c.item(east, "POST", "", `{"id":"a","pk":"p"}`).sub)
		require.Equal(t, 201, c.item(east, "POST", "", `{"id":"a","pk":"p"}`, "x-ms-cosmos-allow-tentative-writes", "true").status)
		require.Equal(t, 201, c.item(west, "POST", "", `{"id":"b","pk":"p"}`).status)
		c.SetMultiWrite(false)
		require.Len(t, writers(t, c), 1)
	})
}

func TestADrainingRegionIsStillListedAndARemovedOneIsNot(t *testing.T) { // R101, R103
	inBoth(t, Config{}, func(t *testing.T, c *client) {
		c.CreateContainer("db", "c", Container{})
		c.Drain(east)
		ans := c.item(east, "GET", "a", "")
		require.Equal(t, 403, ans.status)
		require.Equal(t, "1008", ans.sub)
		require.Equal(t, 200, c.do(east, "GET", "/", "").status)
		require.Contains(t, c.Regions(), east)
		c.SetOnline(east)
		require.Equal(t, 404, c.item(east, "GET", "a", "").status)

		c.RemoveRegion(east)
		require.Equal(t, "1008", c.item(east, "GET", "a", "").sub)
		require.NotContains(t, c.Regions(), east)
		c.AddRegion(east)
		require.Equal(t, 404, c.item(east, "GET", "a", "").status)
		c.AddRegion("Brazil South")
		require.Equal(t, 404, c.item("brazilsouth", "GET", "a", "").status)
		require.Len(t, c.Regions(), 4)
	})
}

func TestPartitionFailoverFlagIsAbsentFalseOrTrue(t *testing.T) {
	inBoth(t, Config{PartitionFailover: new(bool)}, func(t *testing.T, c *client) {
		require.Equal(t, false, c.do(west, "GET", "/", "").json(t)["enablePerPartitionFailoverBehavior"])
		on := true
		c.SetPartitionFailover(&on)
		require.Equal(t, true, c.do(west, "GET", "/", "").json(t)["enablePerPartitionFailoverBehavior"])
		c.SetPartitionFailover(nil)
		require.NotContains(t, c.do(west, "GET", "/", "").json(t), "enablePerPartitionFailoverBehavior")
	})
}

func TestAFailedOverPartitionIsWrittenInItsOwnRegion(t *testing.T) { // R121
	inBoth(t, Config{}, func(t *testing.T, c *client) {
		c.CreateContainer("db", "c", Container{})
		c.FailoverPartition("db", "c", "0", north)
		require.Equal(t, "3", c.item(west, "POST", "", `{"id":"a","pk":"p"}`).sub)
		require.Equal(t, 201, c.item(north, "POST", "", `{"id":"a","pk":"p"}`).status)
		require.Len(t, c.Items("db", "c"), 1)
		c.FailoverPartition("db", "c", "", "")
		require.Equal(t, 201, c.item(west, "POST", "", `{"id":"b","pk":"p"}`).status)
	})
}

func TestAnOfflineRegionRefusesAndComesBackAtTheSameAddress(t *testing.T) { // R084
	inBoth(t, Config{}, func(t *testing.T, c *client) {
		c.CreateContainer("db", "c", Container{})
		before := c.RegionEndpoint(east)
		require.Equal(t, 404, c.item(east, "GET", "a", "").status)
		c.SetOffline(east, Refused)
		c.http.CloseIdleConnections()
		_, err := c.try(east, "GET", "/", "")
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
		require.Equal(t, 404, c.item(west, "GET", "a", "").status)
		c.SetOnline(east)
		require.Equal(t, before, c.RegionEndpoint(east))
		require.Equal(t, 404, c.item(east, "GET", "a", "").status)
	})
}

func TestABlackHoleTakesRequestsAndNeverAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newStore(t, Config{InMemory: true})
		c.SetOffline(east, BlackHole)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		start := time.Now()
		r, _ := http.NewRequestWithContext(ctx, "GET", c.RegionEndpoint(east)+"/", nil)
		_, err := c.http.Do(r)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, time.Hour, time.Since(start))
		require.Equal(t, 1, c.Sends(east))
		require.Zero(t, c.Requests(Match{Region: east})[0].Status)

		go func() {
			time.Sleep(time.Minute)
			c.SetOnline(east)
		}()
		_, err = c.try(east, "GET", "/", "")
		require.Error(t, err, "what the black hole took stays unanswered")
		require.Equal(t, 200, c.do(east, "GET", "/", "").status)
	})
}

func TestABlackHoleEndsWithTheAccountOnRealSockets(t *testing.T) {
	c := newStore(t, Config{})
	c.SetOffline(east, BlackHole)
	result := make(chan error, 1)
	go func() {
		_, err := c.try(east, "GET", "/", "")
		result <- err
	}()
	require.Eventually(t, func() bool { return c.Sends(east) == 1 }, 5*time.Second, time.Millisecond)
	c.Close()
	require.Error(t, <-result)
	c.Close()
}

func TestResetMidAnswerAppliesTheWriteAndBreaksTheBody(t *testing.T) {
	inBoth(t, Config{}, func(t *testing.T, c *client) {
		c.CreateContainer("db", "c", Container{})
		c.SetOffline(west, ResetMidAnswer)
		_, err := c.try(west, "POST", "/dbs/db/colls/c/docs", `{"id":"a","pk":"p"}`, "x-ms-documentdb-partitionkey", `["p"]`)
		require.Error(t, err)
		require.True(t, errors.Is(err, syscall.ECONNRESET) || errors.Is(err, io.ErrUnexpectedEOF), "%v", err)
		require.Len(t, c.Items("db", "c"), 1)
		require.True(t, c.Requests(Match{Operations: DataWrites()})[0].Applied)
	})
}

func TestLatencyDelaysARegionInVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newStore(t, Config{InMemory: true})
		c.SetLatency(east, 3*time.Second)
		start := time.Now()
		c.item(east, "GET", "a", "")
		require.Equal(t, 3*time.Second, time.Since(start))
		c.item(west, "GET", "a", "")
		require.Equal(t, 3*time.Second, time.Since(start))
	})
}

func TestAHeldTopologyExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newStore(t, Config{InMemory: true})
		c.HoldTopology(time.Minute)
		c.SetWriteRegion(north)
		require.Equal(t, []string{west}, writers(t, c))
		time.Sleep(time.Minute)
		require.Equal(t, []string{north}, writers(t, c))
	})
}
