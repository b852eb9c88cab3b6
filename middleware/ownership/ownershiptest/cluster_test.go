package ownershiptest_test

import (
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/reroute-go/reroute/middleware/ownership"
	"github.com/reroute-go/reroute/middleware/ownership/ownershiptest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// both runs f on sockets, and in memory in a bubble.
func both(t *testing.T, cfg ownershiptest.Config, f func(t *testing.T, c *ownershiptest.Cluster)) {
	run := func(t *testing.T) {
		c, err := ownershiptest.New(cfg)
		require.NoError(t, err)
		defer c.Close()
		f(t, c)
	}
	t.Run("RealSockets", run)
	t.Run("in memory", func(t *testing.T) {
		cfg.InMemory = true
		synctest.Test(t, run)
	})
}

// ask sends one request to one node, with headers as name, value, ...
func ask(t *testing.T, c *ownershiptest.Cluster, node, method, key, body string, header ...string) (status int, words, data string, h http.Header) {
	req, err := http.NewRequestWithContext(t.Context(), method, "http://"+node+"/kv/"+key, strings.NewReader(body))
	require.NoError(t, err)
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := c.Transport().RoundTrip(req)
	require.NoError(t, err)
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return resp.StatusCode, resp.Header.Get("X-Route-Status"), string(text), resp.Header
}

func TestOnlyTheOwnerServes(t *testing.T) {
	both(t, ownershiptest.Config{Nodes: 3, Segments: 8, Hints: true}, func(t *testing.T, c *ownershiptest.Cluster) {
		owner := c.Owner("k")
		replica := c.Map().Segments[c.Segment("k")].Replica
		var other string
		for _, n := range c.Nodes() {
			if n != owner && n != replica {
				other = n
			}
		}
		status, _, _, h := ask(t, c, owner, "PUT", "k", "v")
		require.Equal(t, 201, status)
		require.Equal(t, `"1"`, h.Get("ETag"))

		status, words, _, h := ask(t, c, other, "GET", "k", "")
		require.Equal(t, 421, status)
		require.Equal(t, "moved", words)
		require.Equal(t, owner, h.Get("X-Route-Owner"))
		require.Equal(t, "1", h.Get("X-Route-Epoch"))

		status, words, _, _ = ask(t, c, replica, "PUT", "k", "w")
		require.Equal(t, 421, status)
		require.Equal(t, "replica-write-rejected", words)
		status, _, data, _ := ask(t, c, replica, "GET", "k", "")
		require.Equal(t, 200, status)
		require.Equal(t, "v", data)

		c.Promote("k")
		require.Equal(t, replica, c.Owner("k"))
		require.EqualValues(t, 2, c.Map().Epoch)
		c.Orphan("k")
		status, words, _, _ = ask(t, c, owner, "GET", "k", "")
		require.Equal(t, 503, status)
		require.Equal(t, "unavailable", words)

		hits := c.Hits("k")
		require.Len(t, hits, 5)
		require.Equal(t, ownership.ReplicaWriteRejected, hits[2].Answer)
		require.True(t, hits[0].Applied)
		require.False(t, hits[2].Applied)
		require.Equal(t, "w", hits[2].Body)
		require.Equal(t, 1, c.Answers(ownership.Moved))
	})
}

func TestTheStoreHeedsPreconditions(t *testing.T) {
	both(t, ownershiptest.Config{}, func(t *testing.T, c *ownershiptest.Cluster) {
		node := c.Owner("k")
		for i, tc := range []struct {
			method, body string
			header       []string
			status       int
			value        string
		}{
			{"GET", "", nil, 404, ""},
			{"DELETE", "", nil, 404, ""},
			{"PUT", "1", []string{"If-Match", `"1"`}, 412, ""},
			{"PUT", "1", []string{"If-Match", "*"}, 412, ""},
			{"PUT", "1", []string{"If-None-Match", "*"}, 201, "1"},
			{"PUT", "9", []string{"If-None-Match", "*"}, 412, "1"},
			{"PUT", "9", []string{"If-Match", `"7"`}, 412, "1"},
			{"PUT", "2", []string{"If-Match", `"1"`}, 200, "2"},
			{"PUT", "2", []string{"If-Match", `"1"`}, 412, "2"},
			{"POST", "5", nil, 200, "7"},
			{"POST", "x", nil, 400, "7"},
			{"PATCH", "x", nil, 405, "7"},
			{"DELETE", "", []string{"If-Match", `"1"`}, 412, "7"},
			{"DELETE", "", nil, 204, ""},
		} {
			status, _, _, _ := ask(t, c, node, tc.method, "k", tc.body, tc.header...)
			require.Equal(t, tc.status, status, "%d %+v", i, tc)
			value, _, _ := c.Value("k")
			require.Equal(t, tc.value, value, "%d %+v", i, tc)
		}
	})
}

func TestADeadNodeRefusesAndComesBackAtItsAddress(t *testing.T) {
	both(t, ownershiptest.Config{Nodes: 3, Segments: 9}, func(t *testing.T, c *ownershiptest.Cluster) {
		dead := c.Owner("k")
		c.Fail(dead)
		req, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+dead+"/kv/k", nil)
		require.NoError(t, err)
		_, err = c.Transport().RoundTrip(req)
		var op *net.OpError
		require.ErrorAs(t, err, &op)
		require.Equal(t, "dial", op.Op)
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
		require.Equal(t, dead, c.Owner("k"), "until it is failed over")

		replica := c.Map().Segments[c.Segment("k")].Replica
		c.FailOver(dead)
		require.Equal(t, replica, c.Owner("k"))
		for i, s := range c.Map().Segments {
			require.NotEqual(t, dead, s.Owner, i)
			require.NotEqual(t, dead, s.Replica, i)
			require.NotEqual(t, s.Owner, s.Replica, i)
			require.NotEmpty(t, s.Replica, i)
		}
		require.NoError(t, c.Recover(dead))
		require.NoError(t, c.Recover(dead), "twice does no harm")
		status, words, _, _ := ask(t, c, dead, "GET", "k", "")
		require.Equal(t, 421, status)
		require.Equal(t, "moved", words)
		c.Move("k", dead)
		status, _, _, _ = ask(t, c, dead, "PUT", "k", "v")
		require.Equal(t, 201, status)
	})
}

func TestALostAnswerIsAWriteThatCounts(t *testing.T) {
	both(t, ownershiptest.Config{}, func(t *testing.T, c *ownershiptest.Cluster) {
		c.LoseAnswers("k", 1)
		req, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+c.Owner("k")+"/kv/k", strings.NewReader("5"))
		require.NoError(t, err)
		_, err = c.Transport().RoundTrip(req)
		require.Error(t, err)
		value, version, ok := c.Value("k")
		require.Equal(t, "5", value)
		require.EqualValues(t, 1, version)
		require.True(t, ok)
		hits := c.Hits("")
		require.True(t, hits[len(hits)-1].Lost)
	})
}

func TestTransfersTakeTheirTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := ownershiptest.New(ownershiptest.Config{InMemory: true, Nodes: 3})
		require.NoError(t, err)
		defer c.Close()
		owner, to := c.Owner("k"), c.Map().Segments[c.Segment("k")].Replica
		c.Migrate("k", to, time.Second)
		status, words, _, h := ask(t, c, owner, "PUT", "k", "v")
		require.Equal(t, 503, status)
		require.Equal(t, "migrating", words)
		require.Equal(t, "1", h.Get("Retry-After"))
		status, _, _, _ = ask(t, c, owner, "GET", "k", "")
		require.Equal(t, 404, status, "reads are served")
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, to, c.Owner("k"))

		c.HandOff("k", owner, time.Second)
		status, words, _, _ = ask(t, c, to, "GET", "k", "")
		require.Equal(t, 503, status)
		require.Equal(t, "ownership-changing", words)
		c.Move("k", to) // calls it off
		time.Sleep(2 * time.Second)
		require.Equal(t, to, c.Owner("k"))
		status, _, _, _ = ask(t, c, to, "GET", "k", "")
		require.Equal(t, 404, status)
		c.HandOff("k", owner, time.Hour) // ended by Close
	})
}

func TestTheMapServiceCanLieFailAndDawdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := ownershiptest.New(ownershiptest.Config{InMemory: true})
		require.NoError(t, err)
		defer c.Close()
		source := c.Source()
		m, err := source.Fetch(t.Context(), nil)
		require.NoError(t, err)
		require.Equal(t, c.Map(), m)
		c.StaleMap(1)
		c.Promote("k")
		m, err = source.Fetch(t.Context(), nil)
		require.NoError(t, err)
		require.EqualValues(t, 1, m.Epoch)
		m, err = source.Fetch(t.Context(), nil)
		require.NoError(t, err)
		require.EqualValues(t, 2, m.Epoch)
		c.FailMap(403, 1)
		_, err = source.Fetch(t.Context(), nil)
		var failed *ownership.FetchError
		require.ErrorAs(t, err, &failed)
		require.Equal(t, 403, failed.Status)
		c.SlowMap(time.Second)
		start := time.Now()
		time.AfterFunc(time.Millisecond, func() { c.Promote("k") })
		m, err = source.Fetch(t.Context(), nil)
		require.NoError(t, err)
		require.EqualValues(t, 2, m.Epoch, "as it was when asked")
		require.Equal(t, time.Second, time.Since(start))
		require.Equal(t, 5, c.Fetches())
	})
}

func TestARequestUnderWayIsCutWhenItsNodeDies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := ownershiptest.New(ownershiptest.Config{InMemory: true, Latency: time.Second})
		require.NoError(t, err)
		defer c.Close()
		time.AfterFunc(100*time.Millisecond, func() { c.Fail(c.Owner("k")) })
		req, err := http.NewRequestWithContext(t.Context(), "PUT", "http://"+c.Owner("k")+"/kv/k", strings.NewReader("v"))
		require.NoError(t, err)
		_, err = c.Transport().RoundTrip(req)
		require.ErrorIs(t, err, syscall.ECONNRESET)
		_, _, ok := c.Value("k")
		require.False(t, ok)
	})
}

func TestBadConfigIsNamed(t *testing.T) {
	for want, cfg := range map[string]ownershiptest.Config{
		"Nodes is -1": {Nodes: -1}, "Segments is -2": {Segments: -2}, "LogSize is -3": {LogSize: -3}, "Latency is -1ns": {Latency: -1},
	} {
		_, err := ownershiptest.New(cfg)
		require.ErrorContains(t, err, want)
	}
	c, err := ownershiptest.New(ownershiptest.Config{InMemory: true})
	require.NoError(t, err)
	require.Panics(t, func() { c.Move("k", "nowhere") })
}
