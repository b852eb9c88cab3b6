package cosmostest

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func FuzzQuery(f *testing.F) {
	for _, text := range []string{`SELECT * FROM c WHERE c.a = 'x' AND NOT (c.b IN (1, 2) OR IS_DEFINED(c["d"][0]))`, `SELECT VALUE COUNT(1) FROM c`, `SELECT TOP 1 c.a AS b FROM c`, `FROM c WHERE c.a`, `SELECT * FROM c WHERE ` + strings.Repeat("(", 500),
		`SELECT * FROM c WHERE c.b IN (1, 00)`, `SELECT * FROM c WHERE c.b = -inf`, `SELECT * FROM c WHERE c.b = 0x1p4`, `SELECT * FROM c WHERE c.b = 1.`} {
		f.Add(text)
	}
	doc := map[string]any{"a": "x", "b": true, "d": []any{nil}}
	f.Fuzz(func(t *testing.T, text string) {
		for _, parse := range []func() (*query, error){
			func() (*query, error) { return parseQuery(encode(map[string]any{"query": text})) },
			func() (*query, error) { return parseCondition(text) },
		} {
			q, err := parse()
			if err != nil {
				require.Equal(t, http.StatusBadRequest, replyTo(err).status)
				continue
			}
			q.holds(doc)
			q.project(&version{doc: doc, body: []byte("{}")})
		}
	})
}

func FuzzSessionToken(f *testing.F) {
	for _, text := range []string{"0:1#2#3=4", "0:5,1:-1#6", "::", "0:1#2#3=-1"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		tokens, err := parseSessions(text)
		require.Equal(t, err != nil, tokens == nil)
	})
}

func FuzzPath(f *testing.F) {
	for _, path := range []string{"/", "/dbs/a/colls/b/docs/c%2Fd", "//offers/x/", "/dbs/%zz", "/dbs/a/colls/b/operations/partitionkeydelete"} {
		f.Add("POST", path)
	}
	f.Fuzz(func(t *testing.T, method, path string) {
		u, err := url.ParseRequestURI(path)
		if err != nil {
			return
		}
		c := parseCall(&http.Request{Method: method, URL: u, Header: http.Header{}}, nil)
		require.NotEmpty(t, c.operation)
		require.NotEmpty(t, c.links)
	})
}

func FuzzPatch(f *testing.F) {
	f.Add(`{"operations":[{"op":"add","path":"/list/-","value":1},{"op":"move","from":"/a","path":"/list/0"}]}`)
	f.Add(`{"condition":"from c where c.a = 1","operations":[{"op":"remove","path":"/list/0"}]}`)
	old := &version{doc: map[string]any{"a": "1", "list": []any{"x"}}, body: []byte(`{"a":"1","list":["x"]}`)}
	f.Fuzz(func(t *testing.T, body string) {
		if _, err := applyPatch([]byte(body), old); err != nil {
			require.Less(t, replyTo(err).status, 500)
		}
		require.Equal(t, []any{"x"}, old.doc["list"], "a stored document never changes")
	})
}
