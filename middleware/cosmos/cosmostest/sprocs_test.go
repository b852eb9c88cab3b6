package cosmostest

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestStoredProceduresAreDefinedListedExecutedAndCounted(t *testing.T) {
	inBoth(t, Config{}, func(t *testing.T, c *client) {
		c.CreateContainer("db", "c", Container{})
		const sprocs = "/dbs/db/colls/c/sprocs"
		run := func(region, id, body string) answer {
			return c.do(region, "POST", sprocs+"/"+id, body, "x-ms-documentdb-partitionkey", `["p"]`)
		}
		require.Equal(t, 404, run(west, "sp", `[]`).status)
		require.Equal(t, 201, c.do(west, "POST", sprocs, `{"id":"sp","body":"function(){}"}`).status)
		require.Equal(t, 409, c.do(west, "POST", sprocs, `{"id":"sp","body":"function(){}"}`).status)
		require.Equal(t, 403, c.do(east, "POST", sprocs, `{"id":"sp2","body":""}`).status)
		require.Equal(t, "function(){}", c.do(east, "GET", sprocs+"/sp", "").json(t)["body"])
		require.Len(t, c.do(east, "GET", sprocs, "").json(t)["StoredProcedures"], 1)
		require.Equal(t, 200, c.do(west, "PUT", sprocs+"/sp", `{"id":"sp","body":"other"}`).status)

		require.Equal(t, `["x",1]`, run(west, "sp", `["x",1]`).body, "a procedure without a handler answers its arguments")
		require.Equal(t, "3", run(east, "sp", `[]`).sub, "executing is a write")
		c.HandleSproc("db", "c", "sp", func(call SprocCall) (any, error) {
			if len(call.Parameters) == 0 {
				return nil, errors.New("no arguments")
			}
			return map[string]any{"region": call.Region, "key": call.PartitionKey}, nil
		})
		require.JSONEq(t, `{"region":"West US","key":"[\"p\"]"}`, run(west, "sp", `[1]`).body)
		require.Equal(t, 400, run(west, "sp", `[]`).status)
		require.Equal(t, 400, c.do(west, "POST", sprocs+"/sp", `[]`).status, "no partition key")
		require.Equal(t, 3, c.Executions("db", "c", "sp"))

		c.AddFault(Fault{Match: Match{Operations: []Operation{ExecuteSproc}}, Count: 1, AfterApply: true, Answer: Error(408, 0)})
		c.AddFault(Fault{Match: Match{Operations: []Operation{ExecuteSproc}}, Count: 1, Answer: Error(503, 0)})
		require.Equal(t, 408, run(west, "sp", `[1]`).status)
		require.Equal(t, 503, run(west, "sp", `[1]`).status)
		require.Equal(t, 4, c.Executions("db", "c", "sp"), "ran behind the 408, not behind the 503")

		require.Equal(t, 204, c.do(west, "DELETE", sprocs+"/sp", "").status)
		require.Equal(t, 404, c.do(west, "DELETE", sprocs+"/sp", "").status)
		require.Equal(t, 201, c.do(west, "POST", "/dbs/db/colls/c/udfs", `{"id":"f","body":""}`).status)
		require.Equal(t, 405, c.do(west, "POST", "/dbs/db/colls/c/udfs/f", ``).status)
	})
}

func TestASlowStoredProcedureDoesNotStopTheAccount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newStore(t, Config{InMemory: true})
		c.HandleSproc("db", "c", "sp", func(SprocCall) (any, error) {
			time.Sleep(time.Hour)
			return "late", nil
		})
		done := make(chan answer, 1)
		go func() {
			done <- c.do(west, "POST", "/dbs/db/colls/c/sprocs/sp", `[]`, "x-ms-documentdb-partitionkey", `["p"]`)
		}()
		synctest.Wait()
		require.Equal(t, 201, c.item(west, "POST", "", `{"id":"a","pk":"p"}`).status)
		require.Equal(t, `"late"`, (<-done).body)
	})
}
