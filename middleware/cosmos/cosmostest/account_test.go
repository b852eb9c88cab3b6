package cosmostest

import (
	"net/http"
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
