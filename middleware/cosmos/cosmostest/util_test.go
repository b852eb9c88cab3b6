package cosmostest

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// client is a raw REST client of one account.
type client struct {
	t *testing.T
	*Account
	http *http.Client
}

// answer is a response read whole.
type answer struct {
	status int
	sub    string
	header http.Header
	body   string
}

func newClient(t *testing.T, cfg Config) *client {
	a := Start(t, cfg)
	return &client{t: t, Account: a, http: a.Client()}
}

// inBoth runs a test on real sockets and in a bubble.
func inBoth(t *testing.T, cfg Config, test func(t *testing.T, c *client)) {
	t.Run("RealSockets", func(t *testing.T) { test(t, newClient(t, cfg)) })
	t.Run("Bubble", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			memory := cfg
			memory.InMemory = true
			test(t, newClient(t, memory))
		})
	})
}

// try sends a request to a region; headers are name, value pairs.
func (c *client) try(region, method, path, body string, headers ...string) (answer, error) {
	r, err := http.NewRequest(method, c.RegionEndpoint(region)+path, strings.NewReader(body))
	require.NoError(c.t, err)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := c.http.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header.Get("x-ms-substatus"), resp.Header, string(data)}, err
}

func (c *client) do(region, method, path, body string, headers ...string) answer {
	c.t.Helper()
	ans, err := c.try(region, method, path, body, headers...)
	require.NoError(c.t, err)
	return ans
}

// item sends an item request with partition key "p".
func (c *client) item(region, method, id, body string, headers ...string) answer {
	c.t.Helper()
	path := "/dbs/db/colls/c/docs"
	if id != "" {
		path += "/" + id
	}
	return c.do(region, method, path, body, append([]string{"x-ms-documentdb-partitionkey", `["p"]`}, headers...)...)
}

func (ans answer) json(t *testing.T) map[string]any {
	t.Helper()
	var v map[string]any
	require.NoError(t, json.Unmarshal([]byte(ans.body), &v), ans.body)
	return v
}

const (
	west  = "West US"
	east  = "East US"
	north = "North Europe"
)
