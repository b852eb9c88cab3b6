package cosmostest

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDatabasesAndContainersAreListedQueriedReplacedAndDeleted(t *testing.T) {
	inBoth(t, Config{}, func(t *testing.T, c *client) {
		c.do(west, "POST", "/dbs", `{"id":"db"}`)
		c.do(west, "POST", "/dbs", `{"id":"other"}`)
		require.Len(t, c.do(east, "GET", "/dbs", "").json(t)["Databases"], 2)
		found := c.do(east, "POST", "/dbs", `{"query":"select * from dbs d where d.id='db'"}`, "Content-Type", "application/query+json", "x-ms-documentdb-query", "True")
		require.Len(t, found.json(t)["Databases"], 1)

		def := `{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2},"defaultTtl":100}`
		made := c.do(west, "POST", "/dbs/db/colls", def, "x-ms-offer-throughput", "400")
		require.Equal(t, 201, made.status, made.body)
		require.Equal(t, 409, c.do(west, "POST", "/dbs/db/colls", def).status)
		for _, bad := range []string{`{"id":"x"}`, `{"partitionKey":{"paths":["/pk"]}}`, `{"id":"x","partitionKey":{"paths":["pk"]}}`, `{"id":"x","partitionKey":{"paths":["/a","/b"],"kind":"Hash"}}`, `[]`, `{`} {
			require.Equal(t, 400, c.do(west, "POST", "/dbs/db/colls", bad).status, bad)
		}
		rid := made.json(t)["_rid"].(string)
		require.Equal(t, 200, c.do(east, "GET", "/dbs/"+found.json(t)["Databases"].([]any)[0].(map[string]any)["_rid"].(string)+"/colls/"+rid, "").status, "by resource id")
		require.Equal(t, 0, c.BadSignatures())
		head := c.do(east, http.MethodHead, "/dbs/db/colls/c", "")
		require.Equal(t, 200, head.status)
		require.Empty(t, head.body)
		require.Len(t, c.do(east, "GET", "/dbs/db/colls", "").json(t)["DocumentCollections"], 1)
		replaced := c.do(west, "PUT", "/dbs/db/colls/c", strings.Replace(made.body, "100", "200", 1))
		require.EqualValues(t, 200, replaced.json(t)["defaultTtl"], replaced.body)
		require.Equal(t, 400, c.do(west, "PUT", "/dbs/db/colls/c", `{"id":"c","partitionKey":{"paths":["/other"]}}`).status)

		offers := c.do(east, "POST", "/offers", `{"query":"SELECT * FROM c WHERE c.offerResourceId = '`+rid+`'"}`, "Content-Type", "application/query+json", "x-ms-documentdb-query", "True")
		offer := offers.json(t)["Offers"].([]any)[0].(map[string]any)
		require.EqualValues(t, 400, offer["content"].(map[string]any)["offerThroughput"])
		path := "/offers/" + offer["_rid"].(string) + "/"
		require.Equal(t, 200, c.do(west, "PUT", path, `{"content":{"offerThroughput":500}}`).status)
		require.EqualValues(t, 500, c.do(east, "GET", path, "").json(t)["content"].(map[string]any)["offerThroughput"])

		c.item(west, "POST", "", `{"id":"a","pk":"p"}`)
		require.Equal(t, 204, c.do(west, "DELETE", "/dbs/db/colls/c", "").status)
		gone := c.item(west, "GET", "a", "")
		require.Equal(t, 404, gone.status)
		require.Equal(t, "1003", gone.sub)
		c.do(west, "POST", "/dbs/db/colls", def)
		require.Equal(t, 404, c.item(west, "GET", "a", "").status, "a new container is empty")
		old := c.item(west, "GET", "a", "", "x-ms-cosmos-intended-collection-rid", rid)
		require.Equal(t, "1024", old.sub)
		require.Equal(t, 204, c.do(west, "DELETE", "/dbs/db", "").status)
		require.Equal(t, 404, c.do(west, "GET", "/dbs/db", "").status)
	})
}

func TestUnknownPathsAndMethodsAreRefusedInJSON(t *testing.T) {
	c := newStore(t, Config{})
	for path, want := range map[string]int{
		"GET /nothing": 404, "GET /dbs/db/users": 404, "GET /dbs/db/colls/c/docs/a/b": 404, "GET /dbs/db/colls/c/other": 404,
		"PATCH /dbs": 405, "POST /dbs/db": 405, "DELETE /dbs/db/colls/c/pkranges": 405, "PUT /dbs/db/colls/c/docs": 405, "POST /": 404,
	} {
		method, target, _ := strings.Cut(path, " ")
		ans := c.do(west, method, target, "")
		require.Equal(t, want, ans.status, path)
		require.Contains(t, ans.json(t), "code")
		require.Contains(t, ans.json(t), "message")
	}
	require.Equal(t, 200, c.do(west, "GET", "//dbs/db/", "").status, "some clients send a doubled or trailing slash")
	require.Len(t, c.do(west, "GET", "/dbs/db/colls/c/conflicts", "").json(t)["Conflicts"], 0)
}

func TestBadItemsAreRefusedAndStoreNothing(t *testing.T) {
	c := newStore(t, Config{})
	for body, want := range map[string]int{
		`{`: 400, `[]`: 400, `null`: 400, `{"pk":"p"}`: 400, `{"id":1,"pk":"p"}`: 400, `{"id":"","pk":"p"}`: 400, `{"id":"a","pk":"q"}`: 400,
		`{"id":"a","pk":"p"} {}`: 400, `{"id":"a","pk":"p","x":"` + strings.Repeat("x", 2<<20) + `"}`: 413, strings.Repeat("y", 5<<20): 413,
	} {
		ans := c.item(west, "POST", "", body)
		require.Equal(t, want, ans.status, "%.40s: %.200s", body, ans.body)
	}
	require.Equal(t, "1001", c.item(west, "POST", "", `{"id":"a","pk":"q"}`).sub)
	for _, key := range []string{`p`, `["p","q"]`, `[["p"]]`, `[1e999]`, `[]`, `{}`} {
		require.Equal(t, 400, c.do(west, "GET", "/dbs/db/colls/c/docs/a", "", "x-ms-documentdb-partitionkey", key).status, key)
	}
	require.Equal(t, 400, c.do(west, "GET", "/dbs/db/colls/c/docs/a", "").status, "a point read needs a key")
	require.Empty(t, c.Items("db", "c"))
	require.Equal(t, 201, c.do(west, "POST", "/dbs/db/colls/c/docs", `{"id":"u"}`, "x-ms-documentdb-partitionkey", `[{}]`).status, "undefined is a key")
	require.Equal(t, 201, c.do(west, "POST", "/dbs/db/colls/c/docs", `{"id":"n","pk":5}`, "x-ms-documentdb-partitionkey", `[5.0]`).status, "one number, two spellings")
	c.item(west, "POST", "", `{"id":"b","pk":"p"}`)
	require.Equal(t, 400, c.item(west, "PUT", "b", `{"id":"a","pk":"p"}`).status, "an id cannot change")
}

func TestBadPatchesChangeNothing(t *testing.T) { // R168
	c := newStore(t, Config{})
	c.item(west, "POST", "", `{"id":"a","pk":"p","n":1,"s":"x","list":[1,2,3]}`)
	for _, body := range []string{
		`{`, `{"operations":[]}`, `{"operations":[{"op":"explode","path":"/n"}]}`, `{"operations":[{"op":"set","path":"n","value":1}]}`,
		`{"operations":[{"op":"replace","path":"/no","value":1}]}`, `{"operations":[{"op":"remove","path":"/no"}]}`, `{"operations":[{"op":"incr","path":"/s","value":1}]}`,
		`{"operations":[{"op":"incr","path":"/n","value":"1"}]}`, `{"operations":[{"op":"set","path":"/no/deep","value":1}]}`, `{"operations":[{"op":"set","path":"/pk","value":"q"}]}`,
		`{"operations":[{"op":"set","path":"/list/9","value":1}]}`, `{"condition":"where","operations":[{"op":"set","path":"/n","value":2}]}`,
		`{"operations":[` + strings.Repeat(`{"op":"incr","path":"/n","value":1},`, 10) + `{"op":"incr","path":"/n","value":1}]}`,
	} {
		require.Equal(t, 400, c.item(west, "PATCH", "a", body).status, body)
	}
	require.Equal(t, 404, c.item(west, "PATCH", "no", `{"operations":[{"op":"set","path":"/n","value":2}]}`).status)
	ans := c.item(west, "PATCH", "a", `{"operations":[{"op":"remove","path":"/list/1"},{"op":"set","path":"/list/0","value":9},{"op":"add","path":"/list/-","value":4},{"op":"incr","path":"/n","value":0.5},{"op":"move","from":"/s","path":"/t"}]}`)
	require.Equal(t, 200, ans.status, ans.body)
	require.Equal(t, []any{9.0, 3.0, 4.0}, ans.json(t)["list"])
	require.Equal(t, 1.5, ans.json(t)["n"])
	require.Equal(t, "x", ans.json(t)["t"])
	require.NotContains(t, ans.json(t), "s")
}

func TestDeletingAPartitionKeyRemovesItsItemsOnly(t *testing.T) {
	c := newStore(t, Config{})
	c.item(west, "POST", "", `{"id":"a","pk":"p"}`)
	c.item(west, "POST", "", `{"id":"b","pk":"p"}`)
	c.do(west, "POST", "/dbs/db/colls/c/docs", `{"id":"a","pk":"q"}`, "x-ms-documentdb-partitionkey", `["q"]`)
	require.Equal(t, 200, c.do(west, "POST", "/dbs/db/colls/c/operations/partitionkeydelete", "", "x-ms-documentdb-partitionkey", `["p"]`).status)
	require.Len(t, c.Items("db", "c"), 1)
	require.Equal(t, 0, c.BadSignatures())
}
