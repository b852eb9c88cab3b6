package cosmostest

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAReadAheadOfTheRegionIsNotAvailableUntilReplicated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newStore(t, Config{InMemory: true})
		c.SetReplicationLag(east, 10*time.Second)
		token := c.item(west, "POST", "", `{"id":"a","pk":"p"}`).header.Get("x-ms-session-token")
		require.Equal(t, "0:1#1#1=1", token)

		ans := c.item(east, "GET", "a", "", "x-ms-session-token", token)
		require.Equal(t, 404, ans.status)
		require.Equal(t, "1002", ans.sub)
		plain := c.item(east, "GET", "a", "")
		require.Equal(t, 404, plain.status)
		require.Empty(t, plain.sub, "without a token the region just does not have the item")
		require.Equal(t, 200, c.item(north, "GET", "a", "", "x-ms-session-token", token).status)
		require.Empty(t, c.ItemsIn(east, "db", "c"))

		time.Sleep(10 * time.Second)
		require.Equal(t, 200, c.item(east, "GET", "a", "", "x-ms-session-token", token).status)
		require.EqualValues(t, 1, c.LSN(east, "db", "c", "0"))
	})
}

// R164. reroute sends the caller's token as it is (TestTheTokenSurvivesEveryKindOfRetry). To keep tokens, merge them, find
// them by a container's name and drop them with its RID is the SDK's; how the service reads what comes of that is shown here.
func TestACompositeTokenBindsTheRangesItNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, Config{InMemory: true})
		c.CreateContainer("db", "c", Container{Ranges: 2})
		own := c.RangeOf("db", "c", `["p"]`)
		other := map[string]string{"0": "1", "1": "0"}[own]
		c.item(west, "POST", "", `{"id":"a","pk":"p"}`) // LSN 1, by region 1
		read := func(token string) string {
			ans := c.item(west, "GET", "a", "", "x-ms-session-token", token)
			return strconv.Itoa(ans.status) + "/" + ans.sub
		}
		for token, want := range map[string]string{
			own + ":1#1#1=1":                "200/",
			own + ":1#2":                    "404/1002", // the range is not there yet
			own + ":2#1":                    "404/1002", // nor of that version
			own + ":1#1#1=2":                "404/1002", // nor has it the region's second write
			own + ":1#1#1=-1":               "200/",     // region without an LSN
			own + ":-1#1#1=1":               "200/",     // version unknown
			own + ":1#1#77=9":               "200/",     // region unknown
			other + ":1#9":                  "200/",     // another range's
			other + ":1#9," + own + ":1#1":  "200/",
			other + ":1#0, " + own + ":1#2": "404/1002",
			own + ":1," + other + ":99":     "200/", // the old form, an LSN alone
			own + ":2":                      "404/1002",
			"77:1#9," + own + ":1#1#1=1#2=0," + other + ":1#0": "200/",
		} {
			require.Equal(t, want, read(token), token)
		}

		left, right := c.Split("db", "c", own)
		child := c.RangeOf("db", "c", `["p"]`)
		sibling := map[string]string{left: right, right: left}[child]
		require.Equal(t, "200/", read(own+":1#1"))
		require.Equal(t, "404/1002", read(own+":1#2"), "the parent's token binds its child")
		require.Equal(t, "404/1002", read(own+":1#1,"+child+":1#2"))
		require.Equal(t, "200/", read(sibling+":1#9"))
	})
}

func TestPausedReplicationHoldsWritesBackAndNeverTakesAnyBack(t *testing.T) {
	inBoth(t, Config{}, func(t *testing.T, c *client) {
		c.CreateContainer("db", "c", Container{})
		c.item(west, "POST", "", `{"id":"a","pk":"p"}`)
		c.SetReplicationLag(east, Paused)
		c.item(west, "POST", "", `{"id":"b","pk":"p"}`)
		require.Equal(t, 200, c.item(east, "GET", "a", "").status)
		require.Equal(t, 404, c.item(east, "GET", "b", "").status)
		c.SetReplicationLag(east, 0)
		require.Equal(t, 200, c.item(east, "GET", "b", "").status)
	})
}

func TestTheNewWriteRegionHasEverythingThatWasAcknowledged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newStore(t, Config{InMemory: true, ReplicationLag: time.Hour})
		token := c.item(west, "POST", "", `{"id":"a","pk":"p"}`).header.Get("x-ms-session-token")
		c.SetWriteRegion(north)
		require.Equal(t, 200, c.item(north, "GET", "a", "", "x-ms-session-token", token).status)
		require.Equal(t, 409, c.item(north, "POST", "", `{"id":"a","pk":"p"}`).status)
		require.Len(t, c.Items("db", "c"), 1)
	})
}

func TestInMultiWriteARegionReadsItsOwnWritesAndTheLastWriterWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const tentative = "x-ms-cosmos-allow-tentative-writes"
		c := newStore(t, Config{InMemory: true, MultiWrite: true, ReplicationLag: time.Second})
		w := c.item(west, "POST", "", `{"id":"a","pk":"p","by":"west"}`).header.Get("x-ms-session-token")
		e := c.item(east, "POST", "", `{"id":"a","pk":"p","by":"east"}`, tentative, "true").header.Get("x-ms-session-token")
		require.Equal(t, "1002", c.item(east, "GET", "a", "", "x-ms-session-token", w).sub)
		require.Equal(t, 200, c.item(east, "GET", "a", "", "x-ms-session-token", e).status)
		require.Equal(t, "west", c.item(west, "GET", "a", "").json(t)["by"])
		time.Sleep(time.Second)
		for _, region := range []string{west, east, north} {
			require.Equal(t, "east", c.item(region, "GET", "a", "", "x-ms-session-token", w+","+e).json(t)["by"])
		}
	})
}

func TestAMalformedSessionTokenIsABadRequest(t *testing.T) { // R166
	c := newStore(t, Config{})
	for _, token := range []string{"x", "0:", "0:1#", "0:1#2#3", "0:1#2#3=x", "0:1#2,y"} {
		require.Equal(t, 400, c.item(west, "GET", "a", "", "x-ms-session-token", token).status, token)
	}
	for _, token := range []string{"0:0", "0:-1#0", "7:1#99999", "0:1#0#1=0"} {
		require.Equal(t, 404, c.item(west, "GET", "a", "", "x-ms-session-token", token).status, token)
	}
}

func TestLongHistoriesArePrunedAndStayReadable(t *testing.T) {
	c := newStore(t, Config{InMemory: false})
	c.SetReplicationLag(north, Paused)
	c.mu.Lock()
	coll := c.store.container("db", "c")
	key, err := coll.parseKey(`["p"]`)
	require.NoError(t, err)
	for range 1000 {
		tx := c.begin(coll, coll.ranges[0], c.hub, time.Now())
		_, err := tx.run(itemOp{kind: UpsertItem, body: []byte(`{"id":"a","pk":"p"}`)}, key)
		require.NoError(t, err)
		tx.commit()
	}
	require.Len(t, coll.items[itemKey{`["p"]`, "a"}].versions, 1000, "a paused region still needs them")
	c.mu.Unlock()
	c.SetReplicationLag(north, 0)
	for range 300 {
		c.item(west, "POST", "", `{"id":"a","pk":"p"}`, "x-ms-documentdb-is-upsert", "true")
	}
	c.mu.Lock()
	require.Less(t, len(coll.items[itemKey{`["p"]`, "a"}].versions), 20)
	require.Less(t, len(coll.ranges[0].commits), 300)
	c.mu.Unlock()
	require.Equal(t, 200, c.item(north, "GET", "a", "", "x-ms-session-token", "0:1#1300").status)
}

func TestStrongConsistencyHasNoLag(t *testing.T) {
	c := newStore(t, Config{Consistency: "Strong", ReplicationLag: time.Hour})
	c.item(west, "POST", "", `{"id":"a","pk":"p"}`)
	require.Equal(t, 200, c.item(east, "GET", "a", "").status)
	require.Equal(t, map[string]any{"defaultConsistencyLevel": "Strong"}, c.do(east, "GET", "/", "").json(t)["userConsistencyPolicy"])
}

func TestAReadForTheHubOnlyIsForbiddenElsewhere(t *testing.T) {
	c := newStore(t, Config{})
	ans := c.item(east, "GET", "a", "", "x-ms-cosmos-hub-region-processing-only", "True")
	require.Equal(t, 403, ans.status)
	require.Equal(t, "3", ans.sub)
	require.Equal(t, 404, c.item(west, "GET", "a", "", "x-ms-cosmos-hub-region-processing-only", "True").status)
}
