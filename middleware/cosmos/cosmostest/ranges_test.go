package cosmostest

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/partitions"
)

const feed = "/dbs/db/colls/c/pkranges"

var incremental = []string{"A-IM", "Incremental Feed", "x-ms-max-item-count", "-1"}

// rangeIDs reads one page of the range feed.
func rangeIDs(t *testing.T, ans answer) (ids []string) {
	t.Helper()
	require.Equal(t, 200, ans.status, ans.body)
	for _, r := range ans.json(t)["PartitionKeyRanges"].([]any) {
		ids = append(ids, r.(map[string]any)["id"].(string))
	}
	return ids
}

func (c *client) since(region, etag string) answer {
	return c.do(region, "GET", feed, "", append(incremental, "If-None-Match", etag)...)
}

func TestRangesAreEvenForEveryKindOfKey(t *testing.T) {
	for name, def := range map[string]Container{
		"version 2":    {Ranges: 4},
		"version 1":    {Ranges: 4, KeyVersion: 1},
		"hierarchical": {Ranges: 4, Paths: []string{"/a", "/b"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClient(t, Config{})
			c.CreateContainer("db", "c", def)
			counts := map[string]int{}
			for i := range 1000 {
				key := fmt.Sprintf(`["key%d"]`, i)
				if len(def.Paths) == 2 {
					key = fmt.Sprintf(`["key%d","x"]`, i)
				}
				counts[c.RangeOf("db", "c", key)]++
			}
			require.Len(t, counts, 4)
			for id, n := range counts {
				require.InDelta(t, 250, n, 80, "range %s", id)
			}
			m, err := partitions.NewMap(c.Ranges("db", "c"))
			require.NoError(t, err)
			require.Equal(t, 4, m.Len())
		})
	}
}

func TestTheRangeFeedIsReadUntil304AndEtagsBelongToARegion(t *testing.T) { // R143, R144
	inBoth(t, Config{Ranges: 5}, func(t *testing.T, c *client) {
		c.CreateContainer("db", "c", Container{})
		ans := c.do(west, "GET", feed, "")
		require.Equal(t, []string{"0", "1", "2", "3", "4"}, rangeIDs(t, ans))
		decoded, err := partitions.DecodeRanges(stringReader(ans.body))
		require.NoError(t, err)
		_, err = partitions.NewMap(decoded)
		require.NoError(t, err)

		c.SetRangePageSize("db", "c", 2)
		var pages [][]string
		for ans = c.do(west, "GET", feed, "", incremental...); ans.status == 200; ans = c.since(west, ans.header.Get("etag")) {
			pages = append(pages, rangeIDs(t, ans))
		}
		require.Equal(t, [][]string{{"0", "1"}, {"2", "3"}, {"4"}}, pages)
		require.Equal(t, 304, ans.status)
		require.NotEmpty(t, ans.header.Get("etag"))
		require.Equal(t, []string{"0", "1"}, rangeIDs(t, c.since(east, ans.header.Get("etag"))), "elsewhere the etag means nothing")
		require.Equal(t, 404, c.do(west, "GET", "/dbs/db/colls/nope/pkranges", "").status)
	})
}

func TestASplitIsFirstLockedThenHalfPublishedThenServedByItsChildren(t *testing.T) { // R161, gap 2
	inBoth(t, Config{Ranges: 2}, func(t *testing.T, c *client) {
		c.CreateContainer("db", "c", Container{})
		id := c.RangeOf("db", "c", `["p"]`)
		token := c.item(west, "POST", "", `{"id":"a","pk":"p"}`).header.Get("x-ms-session-token")
		before := c.do(west, "GET", feed, "", incremental...).header.Get("etag")

		split := c.BeginSplit("db", "c", id)
		ans := c.item(west, "GET", "a", "")
		require.Equal(t, 410, ans.status)
		require.Equal(t, "1007", ans.sub)
		require.Equal(t, 304, c.since(west, before).status)

		split.PublishHalf()
		ans = c.do(west, "GET", feed, "")
		decoded, err := partitions.DecodeRanges(stringReader(ans.body))
		require.NoError(t, err)
		_, err = partitions.NewMap(decoded)
		require.ErrorIs(t, err, partitions.ErrGap)
		half := c.since(west, before)
		require.Len(t, rangeIDs(t, half), 1)
		require.Equal(t, "1007", c.item(west, "GET", "a", "").sub)
		require.Equal(t, "1007", c.item(west, "GET", "a", "", "x-ms-documentdb-partitionkeyrangeid", id).sub)

		children := split.Complete()
		require.Equal(t, children, split.Complete())
		require.Equal(t, []string{children[1]}, rangeIDs(t, c.since(west, half.header.Get("etag"))), "only what is new")
		require.Equal(t, children, rangeIDs(t, c.since(west, before)))
		ans = c.item(west, "GET", "a", "", "x-ms-session-token", token)
		require.Equal(t, 200, ans.status, "a child takes its parent's token: %s", ans.body)
		require.Contains(t, children, ans.header.Get("x-ms-documentdb-partitionkeyrangeid"))
		require.Equal(t, "1002", c.item(west, "GET", "a", "", "x-ms-documentdb-partitionkeyrangeid", id).sub)
		require.Equal(t, 201, c.item(west, "POST", "", `{"id":"b","pk":"p"}`).status)
		require.Len(t, c.Items("db", "c"), 2)

		_, err = partitions.NewMap(c.Ranges("db", "c"))
		require.NoError(t, err)
	})
}

func TestASplitKeepsWhatHasNotReplicatedBack(t *testing.T) {
	c := newStore(t, Config{})
	c.SetReplicationLag(east, Paused)
	token := c.item(west, "POST", "", `{"id":"a","pk":"p"}`).header.Get("x-ms-session-token")
	c.Split("db", "c", "0")
	require.Equal(t, "1002", c.item(east, "GET", "a", "", "x-ms-session-token", token).sub)
	c.SetReplicationLag(east, 0)
	require.Equal(t, 200, c.item(east, "GET", "a", "", "x-ms-session-token", token).status)
}

func TestAMergeHasBothParentsAndBumpsTheTokenVersion(t *testing.T) { // R163
	inBoth(t, Config{Ranges: 3}, func(t *testing.T, c *client) {
		c.CreateContainer("db", "c", Container{})
		token := c.item(west, "POST", "", `{"id":"a","pk":"p"}`).header.Get("x-ms-session-token")
		require.Panics(t, func() { c.Merge("db", "c", "0", "2") })
		require.Panics(t, func() { c.Merge("db", "c", "1", "0") })
		c.Merge("db", "c", "0", "1")
		last := c.Merge("db", "c", "3", "2")
		ans := c.item(east, "GET", "a", "", "x-ms-session-token", token)
		require.Equal(t, 200, ans.status)
		require.Equal(t, last, ans.header.Get("x-ms-documentdb-partitionkeyrangeid"))
		require.Contains(t, ans.header.Get("x-ms-session-token"), last+":3#")
		ranges := c.Ranges("db", "c")
		require.Len(t, ranges, 1)
		require.Equal(t, []string{"3", "2"}, ranges[0].Parents)
	})
}

func TestAKeyAndARangeThatDisagreeAreGone(t *testing.T) {
	c := newStore(t, Config{Ranges: 2})
	mine := c.RangeOf("db", "c", `["p"]`)
	other := map[string]string{"0": "1", "1": "0"}[mine]
	require.Equal(t, 404, c.item(west, "GET", "a", "", "x-ms-documentdb-partitionkeyrangeid", mine).status)
	for _, wrong := range []string{other, "99"} {
		ans := c.item(west, "GET", "a", "", "x-ms-documentdb-partitionkeyrangeid", wrong)
		require.Equal(t, http.StatusGone, ans.status)
		require.Equal(t, "1002", ans.sub)
	}
}

func TestAFaultCanStrikeOneRange(t *testing.T) {
	inBoth(t, Config{Ranges: 2}, func(t *testing.T, c *client) {
		c.CreateContainer("db", "c", Container{})
		mine := c.RangeOf("db", "c", `["p"]`)
		c.AddFault(Fault{Match: Match{Range: mine}, Answer: Error(503, 0)})
		for i := range 10 {
			key := fmt.Sprintf(`["key%d"]`, i)
			ans := c.do(west, "GET", "/dbs/db/colls/c/docs/a", "", "x-ms-documentdb-partitionkey", key)
			require.Equal(t, map[bool]int{true: 503, false: 404}[c.RangeOf("db", "c", key) == mine], ans.status)
		}
	})
}

func TestAHierarchicalPrefixReadsItsItemsOnly(t *testing.T) { // R156
	c := newClient(t, Config{})
	c.CreateContainer("db", "c", Container{Paths: []string{"/a", "/b"}, Ranges: 8})
	for i := range 20 {
		for _, tenant := range []string{"x", "y"} {
			body := fmt.Sprintf(`{"id":"1","a":%q,"b":%d}`, tenant, i)
			key := fmt.Sprintf(`[%q,%d]`, tenant, i)
			require.Equal(t, 201, c.do(west, "POST", "/dbs/db/colls/c/docs", body, "x-ms-documentdb-partitionkey", key).status)
		}
	}
	ans := c.do(west, "POST", "/dbs/db/colls/c/docs", `{"query":"SELECT VALUE COUNT(1) FROM c"}`, "Content-Type", "application/query+json", "x-ms-documentdb-partitionkey", `["x"]`)
	require.Equal(t, []any{20.0}, ans.json(t)["Documents"], ans.body)
	require.Equal(t, 400, c.do(west, "GET", "/dbs/db/colls/c/docs/1", "", "x-ms-documentdb-partitionkey", `["x"]`).status, "a point read needs the whole key")
	require.Equal(t, 200, c.do(west, "GET", "/dbs/db/colls/c/docs/1", "", "x-ms-documentdb-partitionkey", `["x",1.0]`).status)
}

func TestAnEPKSpanReadsTheItemsInIt(t *testing.T) {
	c := newStore(t, Config{Ranges: 2})
	for i := range 40 {
		body := fmt.Sprintf(`{"id":"1","pk":"key%d"}`, i)
		require.Equal(t, 201, c.do(west, "POST", "/dbs/db/colls/c/docs", body, "x-ms-documentdb-partitionkey", fmt.Sprintf(`["key%d"]`, i)).status)
	}
	total := 0.0
	for _, span := range [][2]string{{"", "10"}, {"10", "30"}, {"30", "FF"}} {
		ans := c.do(west, "GET", "/dbs/db/colls/c/docs", "", "x-ms-start-epk", span[0], "x-ms-end-epk", span[1])
		require.Equal(t, 200, ans.status, ans.body)
		n := ans.json(t)["_count"].(float64)
		require.Less(t, n, 40.0)
		total += n
	}
	require.Equal(t, 40.0, total)
	require.Equal(t, 400, c.do(west, "GET", "/dbs/db/colls/c/docs", "", "x-ms-start-epk", "xyz").status)
}
