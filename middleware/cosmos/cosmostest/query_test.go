package cosmostest

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func stringReader(s string) io.Reader { return strings.NewReader(s) }

func (c *client) query(region, body string, headers ...string) answer {
	return c.do(region, "POST", "/dbs/db/colls/c/docs", body,
		append([]string{"Content-Type", "application/query+json", "x-ms-documentdb-query", "True", "x-ms-documentdb-query-enablecrosspartition", "true"}, headers...)...)
}

// fill makes 7 items over several partition keys.
func fill(t *testing.T, c *client) {
	c.CreateContainer("db", "c", Container{Ranges: 3})
	for i := range 7 {
		body := fmt.Sprintf(`{"id":"i%d","pk":"k%d","n":%d,"sub":{"even":%t},"name":"O'Neil \"%d\""}`, i, i%3, i, i%2 == 0, i)
		ans := c.do(west, "POST", "/dbs/db/colls/c/docs", body, "x-ms-documentdb-partitionkey", fmt.Sprintf(`["k%d"]`, i%3))
		require.Equal(t, 201, ans.status, ans.body)
	}
}

func TestQueriesOfTheSubsetAreAnswered(t *testing.T) {
	c := newClient(t, Config{})
	fill(t, c)
	for text, want := range map[string]string{
		`SELECT VALUE c.id FROM c`:                                                                           `["i0","i1","i2","i3","i4","i5","i6"]`,
		`select value count(1) from c where c.n >= 2 and c.n<5`:                                              `[3]`,
		`SELECT VALUE r.n FROM root r WHERE r.pk = 'k1'`:                                                     `[1,4]`,
		`SELECT VALUE c.n FROM c WHERE c.id IN ('i1', "i6", 'nope')`:                                         `[1,6]`,
		`SELECT VALUE c.n FROM c WHERE (c.n = 1 OR c.n = 2) AND NOT c.sub.even`:                              `[1]`,
		`SELECT VALUE c.n FROM c WHERE c["sub"]["even"] AND c.n != 0`:                                        `[2,4,6]`,
		`SELECT VALUE c.n FROM c WHERE c.name = 'O\'Neil "3"'`:                                               `[3]`,
		`SELECT TOP 2 VALUE c.n FROM c`:                                                                      `[0,1]`,
		`SELECT c.id, c.n AS number FROM c WHERE c.n > 5`:                                                    `[{"id":"i6","number":6}]`,
		`SELECT VALUE c.n FROM c WHERE IS_DEFINED(c.nope) OR c.n = 1.0`:                                      `[1]`,
		`SELECT VALUE c.n FROM c WHERE c.n = -1 OR c.n = null OR c.n = '1' OR c.sub.even = true AND c.n < 1`: `[0]`,
	} {
		ans := c.query(east, string(encode(map[string]any{"query": text})))
		require.Equal(t, 200, ans.status, "%s: %s", text, ans.body)
		got := ans.json(t)["Documents"]
		require.JSONEq(t, want, string(encode(got)), text)
	}
	ans := c.query(east, `{"query":"SELECT VALUE c.n FROM c WHERE c.pk = @pk AND c.n > @n","parameters":[{"name":"@pk","value":"k0"},{"name":"@n","value":2}]}`)
	require.JSONEq(t, `[3,6]`, string(encode(ans.json(t)["Documents"])))
	for _, text := range []string{
		"", "SELECT", "SELECT * FROM c ORDER BY c.n", "SELECT * FROM c WHERE", "SELECT * FROM c WHERE c.a = 'x", "SELECT * FROM c WHERE d.a = 1",
		"SELECT * FROM c WHERE c.a = @no", "SELECT TOP x * FROM c", "SELECT * FROM c JOIN d IN c.d", "SELECT VALUE SUM(c.n) FROM c", "SELECT * FROM c WHERE c.a = 1x",
	} {
		require.Equal(t, 400, c.query(east, string(encode(map[string]any{"query": text}))).status, text)
	}
	require.Equal(t, 400, c.query(east, `not json`).status)
}

func TestQueriesAndFeedsArePagedAcrossRegionsAndSplits(t *testing.T) { // R162 without order
	inBoth(t, Config{}, func(t *testing.T, c *client) {
		fill(t, c)
		var ids []string
		continuation := ""
		for page := 0; ; page++ {
			headers := []string{"x-ms-max-item-count", "2"}
			if continuation != "" {
				headers = append(headers, "x-ms-continuation", continuation)
			}
			ans := c.query([]string{west, east, north}[page%3], `{"query":"SELECT * FROM c"}`, headers...)
			require.Equal(t, 200, ans.status, ans.body)
			for _, doc := range ans.json(t)["Documents"].([]any) {
				ids = append(ids, doc.(map[string]any)["id"].(string))
			}
			if continuation = ans.header.Get("x-ms-continuation"); continuation == "" {
				break
			}
			c.Split("db", "c", c.Ranges("db", "c")[page].ID)
		}
		require.Equal(t, []string{"i0", "i1", "i2", "i3", "i4", "i5", "i6"}, ids)
		list := c.do(west, "GET", "/dbs/db/colls/c/docs", "", "x-ms-max-item-count", "-1")
		require.Equal(t, "7", list.header.Get("x-ms-item-count"))
		require.Equal(t, 400, c.query(west, `{"query":"SELECT * FROM c"}`, "x-ms-continuation", "junk").status)
		require.Equal(t, 400, c.query(west, `{"query":"SELECT * FROM c"}`, "x-ms-max-item-count", "0").status)
	})
}

func TestAQueryIsBoundToItsPartitionKeyOrRange(t *testing.T) {
	c := newClient(t, Config{})
	fill(t, c)
	ans := c.query(west, `{"query":"SELECT VALUE c.n FROM c"}`, "x-ms-documentdb-partitionkey", `["k1"]`)
	require.JSONEq(t, `[1,4]`, string(encode(ans.json(t)["Documents"])))
	require.Equal(t, c.RangeOf("db", "c", `["k1"]`), ans.header.Get("x-ms-documentdb-partitionkeyrangeid"))
	total := 0
	for _, r := range c.Ranges("db", "c") {
		ans := c.query(west, `{"query":"SELECT VALUE COUNT(1) FROM c"}`, "x-ms-documentdb-partitionkeyrangeid", r.ID)
		total += int(ans.json(t)["Documents"].([]any)[0].(float64))
	}
	require.Equal(t, 7, total)
	require.Equal(t, "1002", c.query(west, `{"query":"SELECT * FROM c"}`, "x-ms-documentdb-partitionkeyrangeid", "77").sub)
	ans = c.do(west, "POST", "/dbs/db/colls/c/docs", `{"query":"SELECT * FROM c"}`, "x-ms-documentdb-isquery", "True")
	require.Equal(t, 400, ans.status, "cross partition was not asked for")
	plan := c.query(west, `{"query":"SELECT * FROM c"}`, "x-ms-cosmos-is-query-plan-request", "True").json(t)
	require.Contains(t, plan, "queryInfo")
	require.Equal(t, 1, c.Sends(west, QueryPlan))
}

func TestTheChangeFeedGoesOnWhereItsEtagStands(t *testing.T) {
	inBoth(t, Config{}, func(t *testing.T, c *client) {
		fill(t, c)
		changes := func(etag string, headers ...string) answer {
			headers = append(headers, "A-IM", "Incremental feed")
			if etag != "" {
				headers = append(headers, "If-None-Match", etag)
			}
			return c.do(east, "GET", "/dbs/db/colls/c/docs", "", headers...)
		}
		first := changes("", "x-ms-max-item-count", "5")
		require.Equal(t, "5", first.header.Get("x-ms-item-count"))
		second := changes(first.header.Get("etag"))
		require.Equal(t, "2", second.header.Get("x-ms-item-count"))
		nothing := changes(second.header.Get("etag"))
		require.Equal(t, 304, nothing.status)
		require.Equal(t, 304, changes("*").status)

		c.do(west, "PUT", "/dbs/db/colls/c/docs/i1", `{"id":"i1","pk":"k1","n":100}`, "x-ms-documentdb-partitionkey", `["k1"]`)
		c.do(west, "DELETE", "/dbs/db/colls/c/docs/i2", "", "x-ms-documentdb-partitionkey", `["k2"]`)
		ans := changes(nothing.header.Get("etag"))
		require.Equal(t, 200, ans.status)
		docs := ans.json(t)["Documents"].([]any)
		require.Len(t, docs, 1)
		require.EqualValues(t, 100, docs[0].(map[string]any)["n"])
		one := changes("", "x-ms-documentdb-partitionkeyrangeid", c.RangeOf("db", "c", `["k1"]`))
		require.Equal(t, 200, one.status)
		require.Equal(t, 400, changes("junk").status)
	})
}

func TestTheChangeFeedNeverSkipsWhatReplicatesLater(t *testing.T) {
	c := newStore(t, Config{})
	c.SetReplicationLag(east, Paused)
	c.item(west, "POST", "", `{"id":"a","pk":"p"}`)
	ans := c.do(east, "GET", "/dbs/db/colls/c/docs", "", "A-IM", "Incremental Feed")
	require.Equal(t, 304, ans.status)
	c.SetReplicationLag(east, 0)
	ans = c.do(east, "GET", "/dbs/db/colls/c/docs", "", "A-IM", "Incremental Feed", "If-None-Match", ans.header.Get("etag"))
	require.Equal(t, 200, ans.status)
}
