package cosmostest

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheAccountDocumentNamesTheRegionsAtEveryEndpoint(t *testing.T) {
	inBoth(t, Config{}, func(t *testing.T, c *client) {
		for _, region := range []string{Global, west, east, north} {
			ans := c.do(region, http.MethodGet, "/", "")
			require.Equal(t, 200, ans.status, ans.body)
			doc := ans.json(t)
			require.Len(t, doc["readableLocations"], 3)
			require.Len(t, doc["writableLocations"], 1)
			require.Equal(t, false, doc["enableMultipleWriteLocations"])
			require.NotContains(t, doc, "enablePerPartitionFailoverBehavior")
			first := doc["writableLocations"].([]any)[0].(map[string]any)
			require.Equal(t, west, first["name"])
			require.Equal(t, c.RegionEndpoint(west)+"/", first["databaseAccountEndpoint"])
		}
		require.Equal(t, 1, c.Sends(Global, ReadAccount))
		require.Equal(t, 4, c.Sends("", ReadAccount))
		require.Equal(t, east, c.Requests(Match{Region: "eastus"})[0].Region)
	})
}

func TestItemsAreCreatedReadReplacedPatchedAndDeleted(t *testing.T) {
	inBoth(t, Config{}, func(t *testing.T, c *client) {
		require.Equal(t, 201, c.do(west, "POST", "/dbs", `{"id":"db"}`).status)
		require.Equal(t, 409, c.do(west, "POST", "/dbs", `{"id":"db"}`).status)
		require.Equal(t, 201, c.do(west, "POST", "/dbs/db/colls", `{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2}}`).status)

		made := c.item(west, "POST", "", `{"id":"a","pk":"p","v":1}`)
		require.Equal(t, 201, made.status, made.body)
		require.Equal(t, made.json(t)["_etag"], made.header.Get("etag"))
		require.Equal(t, 409, c.item(west, "POST", "", `{"id":"a","pk":"p","v":1}`).status)
		require.Equal(t, 200, c.item(west, "POST", "", `{"id":"a","pk":"p","v":2}`, "x-ms-documentdb-is-upsert", "True").status)

		read := c.item(east, "GET", "a", "")
		require.Equal(t, 200, read.status)
		require.EqualValues(t, 2, read.json(t)["v"])
		require.Equal(t, "0", read.header.Get("x-ms-documentdb-partitionkeyrangeid"))
		require.Equal(t, 304, c.item(east, "GET", "a", "", "If-None-Match", read.header.Get("etag")).status)
		require.Equal(t, 404, c.item(east, "GET", "b", "").status)

		require.Equal(t, 412, c.item(west, "PUT", "a", `{"id":"a","pk":"p","v":3}`, "If-Match", made.header.Get("etag")).status)
		require.Equal(t, 200, c.item(west, "PUT", "a", `{"id":"a","pk":"p","v":3}`, "If-Match", read.header.Get("etag")).status)
		patched := c.item(west, "PATCH", "a", `{"condition":"from c where c.v = 3","operations":[{"op":"incr","path":"/v","value":4},{"op":"add","path":"/tags","value":["x"]},{"op":"add","path":"/tags/0","value":"y"}]}`)
		require.Equal(t, 200, patched.status, patched.body)
		require.EqualValues(t, 7, patched.json(t)["v"])
		require.Equal(t, []any{"y", "x"}, patched.json(t)["tags"])
		require.Equal(t, 412, c.item(west, "PATCH", "a", `{"condition":"from c where c.v = 3","operations":[{"op":"remove","path":"/v"}]}`).status)

		minimal := c.item(west, "POST", "", `{"id":"m","pk":"p"}`, "Prefer", "return=minimal")
		require.Equal(t, 201, minimal.status)
		require.Empty(t, minimal.body)
		require.Len(t, c.Items("db", "c"), 2)

		require.Equal(t, 204, c.item(west, "DELETE", "a", "").status)
		require.Equal(t, 404, c.item(west, "DELETE", "a", "").status)
		require.Len(t, c.Items("db", "c"), 1)
		require.Equal(t, 0, c.BadSignatures())
	})
}

func TestABadConfigIsRefusedWithFieldAndValue(t *testing.T) {
	for want, cfg := range map[string]Config{
		"Config.Key":                               {Key: "not base64!"},
		"Config.Ranges is -1":                      {Ranges: -1},
		"Config.ReplicationLag is -1ns":            {ReplicationLag: -1},
		"Config.LogSize is -5":                     {LogSize: -5},
		`region "east us" is named twice`:          {Regions: []string{"East US", "east us"}},
		`region name "" is not valid`:              {Regions: []string{""}},
		`region name "global" is not valid`:        {Regions: []string{Global}},
		`region name "evil.example/" is not valid`: {Regions: []string{"evil.example/"}},
	} {
		_, err := New(cfg)
		require.ErrorContains(t, err, want)
	}
}

func TestAnUnknownRegionPanics(t *testing.T) {
	c := newStore(t, Config{})
	for _, use := range []func(){
		func() { c.SetWriteRegion("Narnia") }, func() { c.SetOffline("Narnia", Refused) }, func() { c.SetOnline("Narnia") }, func() { c.Drain("Narnia") },
		func() { c.SetReplicationLag("Narnia", 0) }, func() { c.SetReplicationLag(Global, 0) }, func() { c.RegionEndpoint("Narnia") }, func() { c.RemoveRegion(west) },
		func() { c.SetOffline(west, 9) }, func() { c.AddRegion("a/b") }, func() { c.Split("db", "c", "9") }, func() { c.FailoverPartition("db", "c", "9", "") },
		func() { c.CreateContainer("db", "c", Container{}) }, func() { c.SetKey("?") }, func() { c.SetReplicationLag(west, -1) }, func() { c.SetRangePageSize("db", "x", 1) },
	} {
		require.Panics(t, use)
	}
}

func TestTheLogIsBoundedAndTheCountersAreNot(t *testing.T) {
	c := newClient(t, Config{LogSize: 16})
	for range 100 {
		c.do(west, "GET", "/", "")
	}
	require.LessOrEqual(t, len(c.Requests(Match{})), 16)
	require.Equal(t, 100, c.Sends(west))
	c.ResetLog()
	require.Empty(t, c.Requests(Match{}))
	require.Zero(t, c.Sends(""))
}

func TestHostsAreTracedBackToTheirRegion(t *testing.T) {
	inBoth(t, Config{}, func(t *testing.T, c *client) {
		for _, region := range []string{Global, west, east} {
			u, err := url.Parse(c.RegionEndpoint(region))
			require.NoError(t, err)
			require.Equal(t, region, c.RegionOf(u.Host))
		}
		require.Empty(t, c.RegionOf("elsewhere.example:80"))
	})
}

func TestTheGlobalEndpointCanFailAlone(t *testing.T) {
	inBoth(t, Config{}, func(t *testing.T, c *client) {
		c.SetOffline(Global, Refused)
		_, err := c.try(Global, "GET", "/", "")
		require.Error(t, err)
		require.Equal(t, 200, c.do(west, "GET", "/", "").status)
		c.SetOnline(Global)
		require.Equal(t, 200, c.do(Global, "GET", "/", "").status)
	})
}

func TestAnActivityIdIsEchoedOrMade(t *testing.T) {
	c := newStore(t, Config{})
	require.Equal(t, "mine", c.item(west, "GET", "a", "", "x-ms-activity-id", "mine").header.Get("x-ms-activity-id"))
	first := c.item(west, "GET", "a", "").header.Get("x-ms-activity-id")
	require.NotEqual(t, first, c.item(west, "GET", "a", "").header.Get("x-ms-activity-id"))
	require.Equal(t, "2", c.item(west, "GET", "a", "").header.Get("x-ms-number-of-read-regions"))
}
