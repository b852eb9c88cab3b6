package cosmostest

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

func (c *client) batch(region, body string, headers ...string) (answer, []batchResult) {
	c.t.Helper()
	headers = append([]string{"x-ms-cosmos-is-batch-request", "True", "x-ms-cosmos-batch-atomic", "True", "x-ms-cosmos-batch-ordered", "True"}, headers...)
	ans := c.item(region, "POST", "", body, headers...)
	var results []batchResult
	_ = json.Unmarshal([]byte(ans.body), &results)
	return ans, results
}

func statuses(results []batchResult) (list []int) {
	for _, r := range results {
		list = append(list, r.StatusCode)
	}
	return list
}

func TestABatchIsAllOrNothing(t *testing.T) {
	inBoth(t, Config{}, func(t *testing.T, c *client) {
		c.CreateContainer("db", "c", Container{})
		c.item(west, "POST", "", `{"id":"old","pk":"p","n":1}`)
		ans, results := c.batch(west, `[{"operationType":"Create","resourceBody":{"id":"a","pk":"p"}},{"operationType":"Upsert","resourceBody":{"id":"old","pk":"p","n":5}},
			{"operationType":"Read","id":"a"},{"operationType":"Patch","id":"old","resourceBody":{"operations":[{"op":"incr","path":"/n","value":1}]}},{"operationType":"Delete","id":"a"}]`)
		require.Equal(t, 200, ans.status, ans.body)
		require.Equal(t, []int{201, 200, 200, 200, 204}, statuses(results))
		require.NotEmpty(t, results[0].ETag)
		require.EqualValues(t, 6, c.item(east, "GET", "old", "").json(t)["n"])
		require.Len(t, c.Items("db", "c"), 1)

		ans, results = c.batch(west, `[{"operationType":"Create","resourceBody":{"id":"x","pk":"p"}},{"operationType":"Create","resourceBody":{"id":"old","pk":"p"}},{"operationType":"Delete","id":"old"}]`)
		require.Equal(t, 207, ans.status)
		require.Equal(t, []int{424, 409, 424}, statuses(results))
		require.Len(t, c.Items("db", "c"), 1, "rolled back")
		require.False(t, c.Requests(Match{Operations: []Operation{Batch}})[1].Applied)

		_, results = c.batch(west, `[{"operationType":"Replace","id":"old","ifMatch":"stale","resourceBody":{"id":"old","pk":"p"}}]`)
		require.Equal(t, []int{412}, statuses(results))
		_, results = c.batch(west, `[{"operationType":"Create","resourceBody":{"id":"z","pk":"p"}}]`, "Prefer", "return=minimal")
		require.Empty(t, results[0].ResourceBody)
		for _, bad := range []string{`{}`, `[]`, `[{"operationType":"Explode"}]`} {
			ans, _ := c.batch(west, bad)
			require.NotEqual(t, 200, ans.status, bad)
		}
	})
}

func TestABulkBatchRunsEachOperationForItself(t *testing.T) {
	c := newStore(t, Config{})
	body := `[{"operationType":"Create","partitionKey":"[\"p\"]","resourceBody":{"id":"a","pk":"p"}},{"operationType":"Read","id":"no","partitionKey":"[\"q\"]"},{"operationType":"Upsert","partitionKey":"[\"q\"]","resourceBody":{"id":"a","pk":"q"}}]`
	send := func(headers ...string) (answer, []batchResult) {
		ans := c.do(west, "POST", "/dbs/db/colls/c/docs", body, append(headers, "x-ms-cosmos-is-batch-request", "True", "x-ms-cosmos-batch-atomic", "false", "x-ms-documentdb-partitionkeyrangeid", "0")...)
		var results []batchResult
		require.NoError(t, json.Unmarshal([]byte(ans.body), &results), ans.body)
		return ans, results
	}
	ans, results := send("x-ms-cosmos-batch-continue-on-error", "True")
	require.Equal(t, 207, ans.status)
	require.Equal(t, []int{201, 404, 201}, statuses(results))
	_, results = send()
	require.Equal(t, []int{409, 424, 424}, statuses(results), "stops at the first failure")
	c.Split("db", "c", "0")
	require.Equal(t, "1002", c.do(west, "POST", "/dbs/db/colls/c/docs", body, "x-ms-cosmos-is-batch-request", "True", "x-ms-cosmos-batch-atomic", "false", "x-ms-documentdb-partitionkeyrangeid", "0").sub)
	_, results = c.batch(west, `[{"operationType":"Create","resourceBody":{"id":"q","pk":"other"}}]`)
	require.Equal(t, 1001, results[0].SubStatusCode)
	require.Equal(t, 400, results[0].StatusCode)
}
