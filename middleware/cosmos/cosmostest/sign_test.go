package cosmostest

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestOddIdsAreSignedDecodedAndServed(t *testing.T) {
	inBoth(t, Config{}, func(t *testing.T, c *client) {
		c.CreateContainer("db", "c", Container{})
		for _, id := range []string{"sp ace+plus%é", "a/b", "docs", "100%25", "x?y=#z", "dbs/db"} {
			body := string(encode(map[string]any{"id": id, "pk": "p"}))
			require.Equal(t, 201, c.item(west, "POST", "", body).status, id)
			ans := c.item(east, "GET", url.PathEscape(id), "")
			require.Equal(t, 200, ans.status, "%s: %s", id, ans.body)
			require.Equal(t, id, ans.json(t)["id"])
		}
		require.Equal(t, 0, c.BadSignatures())
		require.Equal(t, "a/b", c.Requests(Match{ID: "a/b", Operations: []Operation{ReadItem}})[0].ID)
	})
}

func TestAWrongSignatureIsRefusedAndCounted(t *testing.T) {
	c := newStore(t, Config{})
	good := func() *http.Request {
		r, _ := http.NewRequestWithContext(context.Background(), "GET", c.RegionEndpoint(west)+"/dbs/db", nil)
		c.Sign(r)
		return r
	}
	send := func(r *http.Request) int {
		resp, err := c.Transport().RoundTrip(r)
		require.NoError(t, err)
		resp.Body.Close()
		return resp.StatusCode
	}
	require.Equal(t, 200, send(good()))
	rehosted := good()
	rehosted.URL.Host = strings.TrimPrefix(c.RegionEndpoint(east), "http://")
	require.Equal(t, 200, send(rehosted), "the signature does not cover the host")
	for name, spoil := range map[string]func(*http.Request){
		"none":  func(r *http.Request) { r.Header.Del("Authorization") },
		"other": func(r *http.Request) { r.Header.Set("Authorization", "type%3Dmaster%26ver%3D1.0%26sig%3DAAAA") },
		"junk":  func(r *http.Request) { r.Header.Set("Authorization", "%zz") },
		"kind":  func(r *http.Request) { r.Header.Set("Authorization", "type=resource&ver=1.0&sig=x") },
		"date": func(r *http.Request) {
			r.Header.Set("x-ms-date", time.Now().Add(time.Minute).UTC().Format(http.TimeFormat))
		},
		"no date": func(r *http.Request) { r.Header.Del("x-ms-date") },
		"path":    func(r *http.Request) { r.URL.Path = "/dbs/other" },
		"method":  func(r *http.Request) { r.Method = "DELETE" },
		"token":   func(r *http.Request) { r.Header.Set("Authorization", "type=aad&ver=1.0&sig=stale") },
	} {
		r := good()
		spoil(r)
		require.Equal(t, 401, send(r), name)
	}
	require.Equal(t, 9, c.BadSignatures())

	late := good()
	late.Header.Set("x-ms-date", time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat))
	c.Sign(late)
	require.Equal(t, 403, send(late), "signed long ago")

	token := good()
	token.Header.Set("Authorization", url.QueryEscape("type=aad&ver=1.0&sig="+DefaultToken))
	require.Equal(t, 200, send(token))
	c.SetToken("next")
	require.Equal(t, 401, send(token))
	old := good()
	c.SetKey("b3RoZXI=")
	require.Equal(t, 401, send(old))
	require.Equal(t, 200, send(good()))

	for _, r := range c.Requests(Match{}) {
		credential := r.Header.Get("Authorization")
		require.NotContains(t, credential, DefaultToken)
		require.True(t, credential == "" || strings.HasSuffix(credential, "redacted"), credential)
	}
}

func TestSignaturesCanBeIgnored(t *testing.T) {
	c := newStore(t, Config{IgnoreSignatures: true})
	resp, err := c.Transport().RoundTrip(must(http.NewRequest("GET", c.Endpoint()+"/dbs/db", nil)))
	require.NoError(t, err)
	defer resp.Body.Close()
	require.Equal(t, 200, resp.StatusCode)
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
