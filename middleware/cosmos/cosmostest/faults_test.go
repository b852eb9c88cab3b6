package cosmostest

import (
	"errors"
	"io"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAFaultAnswersInsteadOfTheOperationSoOftenAsItSays(t *testing.T) { // R169
	inBoth(t, Config{}, func(t *testing.T, c *client) {
		c.CreateContainer("db", "c", Container{})
		h := c.AddFault(Fault{Match: Match{Region: "westus", Operations: DataWrites()}, Skip: 1, Count: 2, Answer: Throttled(24 * time.Millisecond)})
		require.Equal(t, 201, c.item(west, "POST", "", `{"id":"a","pk":"p"}`).status)
		for range 2 {
			ans := c.item(west, "POST", "", `{"id":"b","pk":"p"}`)
			require.Equal(t, 429, ans.status)
			require.Equal(t, "3200", ans.sub)
			require.Equal(t, "24", ans.header.Get("x-ms-retry-after-ms"))
			require.Equal(t, "429", ans.json(t)["code"])
		}
		require.Len(t, c.Items("db", "c"), 1)
		require.Equal(t, 201, c.item(west, "POST", "", `{"id":"b","pk":"p"}`).status)
		require.Equal(t, 2, h.Hits())
		require.Empty(t, Throttled(0).Header)
	})
}

func TestALostAcknowledgementAppliesTheWrite(t *testing.T) {
	inBoth(t, Config{}, func(t *testing.T, c *client) {
		c.CreateContainer("db", "c", Container{})
		h := c.AddFault(Fault{Match: Match{Operations: []Operation{CreateItem}, ID: ""}, AfterApply: true, Answer: Error(503, 20003)})
		ans := c.item(west, "POST", "", `{"id":"a","pk":"p"}`)
		require.Equal(t, 503, ans.status)
		require.Equal(t, "20003", ans.sub)
		require.Equal(t, "ServiceUnavailable", ans.json(t)["code"])
		h.Remove()
		require.Equal(t, 409, c.item(west, "POST", "", `{"id":"a","pk":"p"}`).status)
		log := c.Requests(Match{Operations: []Operation{CreateItem}})
		require.True(t, log[0].Applied)
		require.NotNil(t, log[0].Fault)
		require.False(t, log[1].Applied)
	})
}

func TestConnectionFaultsLookLikeBrokenConnections(t *testing.T) {
	cases := map[string]struct {
		answer  Answer
		applied bool
		check   func(error) bool
	}{
		"refuse":           {Answer{Refuse: true}, false, func(err error) bool { return errors.Is(err, io.EOF) }},
		"reset":            {Answer{Reset: true}, false, func(err error) bool { return errors.Is(err, syscall.ECONNRESET) }},
		"cut body":         {Answer{CutAfter: 5}, true, func(err error) bool { return errors.Is(err, io.ErrUnexpectedEOF) }},
		"cut after header": {Answer{CutAfter: -1}, true, func(err error) bool { return errors.Is(err, io.ErrUnexpectedEOF) }},
		"cut far":          {Answer{CutAfter: 1 << 20}, true, func(err error) bool { return errors.Is(err, io.ErrUnexpectedEOF) }},
		"cut header":       {Answer{CutHeader: true}, true, func(err error) bool { return err != nil }},
		"cut error body":   {Answer{Status: 500, CutAfter: 3}, false, func(err error) bool { return errors.Is(err, io.ErrUnexpectedEOF) }},
		"cut with reset": {Answer{CutAfter: 5, Reset: true}, true, func(err error) bool {
			return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, io.ErrUnexpectedEOF)
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			inBoth(t, Config{}, func(t *testing.T, c *client) {
				c.CreateContainer("db", "c", Container{})
				c.AddFault(Fault{Match: Match{Operations: DataWrites()}, Answer: tc.answer})
				_, err := c.try(west, "POST", "/dbs/db/colls/c/docs", `{"id":"a","pk":"p"}`, "x-ms-documentdb-partitionkey", `["p"]`)
				require.Error(t, err)
				require.True(t, tc.check(err), "%v", err)
				require.Len(t, c.Items("db", "c"), map[bool]int{true: 1}[tc.applied])
			})
		})
	}
}

func TestACutCannotBreakAnAnswerWithoutABodyButItsHeader(t *testing.T) {
	inBoth(t, Config{}, func(t *testing.T, c *client) {
		c.CreateContainer("db", "c", Container{})
		c.item(west, "POST", "", `{"id":"a","pk":"p"}`)
		c.AddFault(Fault{Match: Match{Operations: []Operation{DeleteItem}}, Answer: Answer{CutAfter: 1}})
		_, err := c.try(west, "DELETE", "/dbs/db/colls/c/docs/a", "", "x-ms-documentdb-partitionkey", `["p"]`)
		require.Error(t, err)
		require.Empty(t, c.Items("db", "c"))
	})
}

func TestDelaysHangsAndWindowsRunInVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newStore(t, Config{InMemory: true})
		c.http.Timeout = time.Minute
		slow := c.AddFault(Fault{Answer: Answer{Delay: 5 * time.Second}})
		start := time.Now()
		require.Equal(t, 404, c.item(west, "GET", "a", "").status, "a delay alone leaves the answer as it is")
		require.Equal(t, 5*time.Second, time.Since(start))
		slow.Remove()

		hang := c.AddFault(Fault{Answer: Answer{Hang: true}})
		_, err := c.try(west, "GET", "/", "")
		require.Error(t, err)
		require.Equal(t, time.Minute+5*time.Second, time.Since(start))
		require.Equal(t, 1, hang.Hits())
		c.ClearFaults()

		stall := c.AddFault(Fault{Answer: Answer{CutAfter: 10, Hang: true}})
		_, err = c.try(west, "GET", "/", "")
		require.Error(t, err)
		require.Equal(t, 2*time.Minute+5*time.Second, time.Since(start))
		stall.Remove()
		header := c.AddFault(Fault{Answer: Answer{CutHeader: true, Hang: true}})
		_, err = c.try(west, "GET", "/", "")
		require.Error(t, err)
		require.Equal(t, 3*time.Minute+5*time.Second, time.Since(start))
		header.Remove()

		now := time.Now()
		c.AddFault(Fault{From: now.Add(time.Second), Until: now.Add(2 * time.Second), Answer: Error(500, 0)})
		require.Equal(t, 200, c.do(west, "GET", "/", "").status)
		time.Sleep(time.Second)
		require.Equal(t, 500, c.do(west, "GET", "/", "").status)
		time.Sleep(time.Second)
		require.Equal(t, 200, c.do(west, "GET", "/", "").status)
	})
}

func TestARuleWithoutEffectCountsAndLetsLaterRulesAct(t *testing.T) {
	inBoth(t, Config{}, func(t *testing.T, c *client) {
		c.CreateContainer("db", "c", Container{})
		counter := c.AddFault(Fault{Match: Match{Region: west, Header: map[string]string{"x-ms-documentdb-partitionkey": `["p"]`, "Authorization": ""}}})
		c.AddFault(Fault{Match: Match{Container: "c"}, Answer: Error(410, 1002)})
		require.Equal(t, "1002", c.item(west, "GET", "a", "").sub)
		require.Equal(t, 200, c.do(west, "GET", "/", "").status)
		require.Equal(t, 1, counter.Hits())
	})
}

func TestProbabilityIsRepeatableWithASeed(t *testing.T) {
	c := newStore(t, Config{})
	run := func(seed uint64) (hits []bool) {
		h := c.AddFault(Fault{Probability: 0.5, Seed: seed, Answer: Error(500, 0)})
		defer h.Remove()
		for range 40 {
			hits = append(hits, c.do(west, "GET", "/", "").status == 500)
		}
		return hits
	}
	first := run(7)
	require.Equal(t, first, run(7))
	require.NotEqual(t, first, run(8))
	require.Contains(t, first, true)
	require.Contains(t, first, false)
}

func TestRespondMakesTheAnswerFromTheRequest(t *testing.T) {
	inBoth(t, Config{}, func(t *testing.T, c *client) {
		c.CreateContainer("db", "c", Container{})
		c.AddFault(Fault{Respond: func(r Request) Answer {
			if r.ID == "sick" {
				return Answer{Status: 503, Body: r.Region, Header: map[string]string{"Retry-After": "2"}}
			}
			return Answer{}
		}})
		ans := c.item(east, "GET", "sick", "")
		require.Equal(t, 503, ans.status)
		require.Equal(t, east, ans.body)
		require.Equal(t, "2", ans.header.Get("Retry-After"))
		require.Equal(t, 404, c.item(east, "GET", "well", "").status)
	})
}

func TestHeadersOfAFaultAreAddedToTheRealAnswer(t *testing.T) {
	c := newStore(t, Config{})
	c.AddFault(Fault{Match: Match{Operations: DataReads()}, Answer: Answer{Header: map[string]string{"x-ms-documentdb-partitionkeyrangeid": "17"}}})
	ans := c.item(west, "GET", "a", "")
	require.Equal(t, 404, ans.status)
	require.Equal(t, "17", ans.header.Get("x-ms-documentdb-partitionkeyrangeid"))
}

func TestARuleThatCannotBePanicsWithFieldAndValue(t *testing.T) {
	c := newStore(t, Config{})
	for want, f := range map[string]Fault{
		"Fault.Skip is -1":             {Skip: -1},
		"Fault.Count is -2":            {Count: -2},
		"Fault.Probability is 2":       {Probability: 2},
		"Fault.Answer.Status is 99":    {Answer: Answer{Status: 99}},
		"Fault.Answer.CutAfter is -2":  {Answer: Answer{CutAfter: -2}},
		"Fault.Answer.Delay is -1ns":   {Answer: Answer{Delay: -1}},
		"cosmostest: no region Narnia": {Match: Match{Region: "Narnia"}},
	} {
		func() {
			defer func() { require.Contains(t, recover(), want) }()
			c.AddFault(f)
		}()
	}
}
