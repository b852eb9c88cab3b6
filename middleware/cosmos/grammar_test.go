package cosmos

import (
	"bufio"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/idempotency"
	"github.com/reroute-go/reroute/middleware"
)

// request makes a request as a RoundTripper gets it; headers are "Name: value".
func request(t testing.TB, method, path string, headers ...string) *http.Request {
	t.Helper()
	req, err := http.NewRequest(method, "https://acct.documents.azure.com"+path, nil)
	require.NoError(t, err)
	for _, h := range headers {
		name, value, ok := strings.Cut(h, ": ")
		require.True(t, ok, h)
		req.Header.Add(name, value)
	}
	return req
}

func intentOf(t testing.TB, method, path string, headers ...string) middleware.Intent {
	t.Helper()
	return dialect{}.Intent(request(t, method, path, headers...))
}

var scopes = map[string]middleware.Scope{
	"data": middleware.Data, "metadata": middleware.Metadata, "discovery": middleware.Discovery,
}

type row struct {
	headers     []string
	name, scope string
	write       bool
}

// rows reads testdata/requests.txt, by method, path and headers.
func rows(t testing.TB) map[string]row {
	text, err := os.ReadFile("testdata/requests.txt")
	require.NoError(t, err)
	out := map[string]row{}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		f := strings.Split(strings.TrimSpace(line), "|")
		require.Len(t, f, 6, line)
		var headers []string
		if f[2] != "" {
			headers = strings.Split(f[2], " ; ")
		}
		out[strings.Join(f[:3], "|")] = row{headers: headers, name: f[3], scope: f[4], write: f[5] == "write"}
	}
	return out
}

func (r row) check(t *testing.T, in middleware.Intent) {
	t.Helper()
	require.Equal(t, r.name, in.Name)
	require.Equal(t, scopes[r.scope], in.Scope)
	require.Equal(t, r.write, in.Write)
}

func TestRequestsOfTheOfficialSDKAreRecognised(t *testing.T) {
	all := rows(t)
	require.Greater(t, len(all), 50)
	for key, r := range all {
		f := strings.Split(key, "|")
		t.Run(key, func(t *testing.T) { r.check(t, intentOf(t, f[0], f[1], r.headers...)) })
	}
}

// The logs themselves are not part of the module; where they are at hand, every request in them must have its row and be
// recognised with all its headers.
func TestWireLogsAreRecognised(t *testing.T) {
	files, _ := filepath.Glob("../../../shared/data/wire/*.txt")
	if len(files) == 0 {
		t.Skip("no wire logs here")
	}
	all, seen := rows(t), 0
	deciding := map[string]bool{}
	for _, r := range all {
		for _, h := range r.headers {
			name, _, _ := strings.Cut(h, ": ")
			deciding[name] = true
		}
	}
	for _, file := range files {
		f, err := os.Open(file)
		require.NoError(t, err)
		in := bufio.NewReader(f)
		for {
			line, err := in.ReadString('\n')
			if err == io.EOF {
				break
			}
			require.NoError(t, err)
			first, ok := strings.CutPrefix(line, ">>> ")
			if !ok {
				continue
			}
			part := strings.Fields(first)
			var headers, decide []string
			for {
				h, err := in.ReadString('\n')
				require.NoError(t, err)
				if h = strings.TrimRight(h, "\r\n"); h == "" {
					break
				}
				headers = append(headers, h)
				if name, _, _ := strings.Cut(h, ": "); deciding[name] {
					decide = append(decide, h)
				}
			}
			r, ok := all[part[0]+"|"+part[1]+"|"+strings.Join(decide, " ; ")]
			require.True(t, ok, "%s: %s %v has no row", filepath.Base(file), first, decide)
			r.check(t, intentOf(t, part[0], part[1], headers...))
			seen++
		}
		require.NoError(t, f.Close())
	}
	require.GreaterOrEqual(t, seen, 69)
}

func TestAWordIsKnownByItsPlaceAndWithoutCase(t *testing.T) {
	for _, c := range []struct{ method, path, name, container string }{
		{"GET", "", "read account", ""},
		{"GET", "/", "read account", ""},
		{"HEAD", "//", "read account", ""},
		{"GET", "/accounts/acct", "read account", ""},
		{"GET", "/accounts/acct/dbs/d", "read database", ""},
		{"GET", "/ACCOUNTS/acct/dbs/d/colls/c/docs/i", "read item", "dbs/d/colls/c"},
		{"GET", "//dbs/d/colls/c/docs/i", "read item", "dbs/d/colls/c"},
		{"GET", "/dbs/d/colls/c/docs/i/", "read item", "dbs/d/colls/c"},
		{"GET", "/dbs//d/colls/c//docs/i", "read item", "dbs/d/colls/c"},
		{"GET", "/DBS/D/Colls/C/Docs/i", "read item", "dbs/D/colls/C"},
		{"GET", "/dbs/d/colls/c/docs/", "read items", "dbs/d/colls/c"},
		{"GET", "/dbs/colls/colls/docs/docs/docs", "read item", "dbs/colls/colls/docs"},
		{"GET", "/dbs/d/colls/c/docs/sprocs", "read item", "dbs/d/colls/c"},
		{"GET", "/dbs/dbs", "read database", ""},
		{"GET", "/dbs/accounts/colls/offers", "read container", ""},
		{"GET", "/dbs/d/colls/c/docs/a%2Fb", "read item", "dbs/d/colls/c"},
		{"GET", "/dbs/d/colls/c/docs/a%2fdocs%2Fb", "read item", "dbs/d/colls/c"},
		{"GET", "/dbs/a%20b/colls/%C3%A9/docs/i", "read item", "dbs/a b/colls/é"},
		{"GET", "/dbs/a%20b/colls/%C3%A9/docs/a%2Fb", "read item", "dbs/a b/colls/é"},
		{"GET", "/dbs/OVJwAA==/colls/OVJwAOcMtA0=/docs/OVJwAOcMtA0BAAAAAAAAAA==/", "read item", "dbs/OVJwAA==/colls/OVJwAOcMtA0="},
		{"GET", "/dbs/d/colls/c/docs/i/attachments/a", "read attachment", "dbs/d/colls/c"},
		{"POST", "/dbs/d/colls/c/docs/i/attachments", "create attachment", "dbs/d/colls/c"},
		{"GET", "/offers/of3/", "read offer", ""},
		{"GET", "//addresses/?$resolveFor=dbs/d&$filter=protocol eq rntbd", "read addresses", ""},
		{"GET", "/dbs/d/users/u/permissions/p", "read permission", ""},
		{"GET", "/dbs/d/colls/c/pkranges/0", "read partition key range", ""},
		{"GET", "/dbs/d/colls/c/historicalpkranges", "read historical key ranges", ""},
		{"PUT", "/dbs/d/colls/c/operations/collectiontruncate", "truncate container", ""},
		{"POST", "/dbs/d/colls/c/operations/PartitionKeyDelete", "delete items by partition key", "dbs/d/colls/c"},
		{"POST", "/operations/dtc", "commit distributed transaction", ""},
		{"POST", "/operations/metadatacheckaccess", "check metadata access", ""},
		{"DELETE", "/dbs/d/colls/c/conflicts/x", "delete conflict", ""},
	} {
		t.Run(c.method+" "+c.path, func(t *testing.T) {
			in := intentOf(t, c.method, strings.ReplaceAll(c.path, " ", "%20"))
			require.Equal(t, c.name, in.Name)
			require.Equal(t, c.container, in.Container)
		})
	}
}

func TestWhatTheGrammarDoesNotHaveIsUnknownMetadataJudgedByItsMethod(t *testing.T) {
	for _, c := range []struct {
		method, path string
		write        bool
		level        idempotency.Level
	}{
		{"GET", "/docs/i", false, idempotency.Safe},                      // no container
		{"GET", "/dbs/d/docs/i", false, idempotency.Safe},                // not below a database
		{"POST", "/dbs/d/newthings", true, idempotency.NonIdempotent},    // not known yet
		{"PUT", "/dbs/d/newthings/n", true, idempotency.Idempotent},      //
		{"POST", "/", true, idempotency.NonIdempotent},                   //
		{"POST", "/dbs/d", true, idempotency.NonIdempotent},              // no such verb
		{"DELETE", "/dbs", true, idempotency.Idempotent},                 //
		{"GET", "/operations/dtc", false, idempotency.Safe},              //
		{"POST", "/operations/other", true, idempotency.NonIdempotent},   //
		{"GET", "/probe", false, idempotency.Safe},                       //
		{"GET", "/accounts", false, idempotency.Safe},                    // prefix without an account
		{"GET", "/dbs/d/colls/c/docs/i/docs/j", false, idempotency.Safe}, // items hold no items
	} {
		t.Run(c.method+" "+c.path, func(t *testing.T) {
			in := intentOf(t, c.method, c.path)
			require.Equal(t, middleware.Intent{Name: "unknown", Scope: middleware.Metadata, Write: c.write, Level: c.level}, in)
		})
	}
	opaque := &http.Request{Method: "GET", URL: &url.URL{Scheme: "https", Host: "h", Opaque: "//h/dbs/d"}}
	require.Equal(t, middleware.Metadata, dialect{}.Intent(opaque).Scope, "an opaque URL is not the account's root")
	require.Equal(t, "unknown", dialect{}.Intent(&http.Request{}).Name)
}

func TestTheFirstMarkOfAPostDecides(t *testing.T) {
	const docs = "/dbs/d/colls/c/docs"
	plan, query, goQuery := "x-ms-cosmos-is-query-plan-request: TRUE", "x-ms-documentdb-isquery: true", "x-ms-documentdb-query: True"
	batch, feed, upsert := "x-ms-cosmos-is-batch-request: true", "A-IM: Incremental Feed", "x-ms-documentdb-is-upsert: TRUE"
	content := "Content-Type: Application/Query+JSON; charset=utf-8"
	for _, c := range []struct {
		name    string
		headers []string
	}{
		{"plan query", []string{plan, query, content, batch, feed, upsert}},
		{"query items", []string{query, batch, feed, upsert}},
		{"query items", []string{goQuery, batch}},
		{"query items", []string{content, upsert}},
		{"execute batch", []string{batch, feed, upsert}},
		{"read change feed", []string{feed, upsert}},
		{"upsert item", []string{upsert}},
		{"create item", []string{"x-ms-documentdb-is-upsert: False", "x-ms-documentdb-isquery: 0", "Content-Type: application/json"}},
		{"create item", nil},
	} {
		in := intentOf(t, "POST", docs, c.headers...)
		require.Equal(t, c.name, in.Name, c.headers)
		require.Equal(t, middleware.Data, in.Scope)
		require.Equal(t, c.name != "plan query", in.Partitioned, c.headers)
	}
	require.Equal(t, "upsert permission", intentOf(t, "POST", "/dbs/d/users/u/permissions", upsert).Name)
	require.Equal(t, "execute stored procedure", intentOf(t, "POST", "/dbs/d/colls/c/sprocs/s", query, batch).Name)
}

// The seed's table "Idempotency Requirements", with DESIGN rule 4.
func TestARepeatIsJudgedAsTheSeedHasIt(t *testing.T) {
	const docs, doc = "/dbs/d/colls/c/docs", "/dbs/d/colls/c/docs/i"
	const tag, upsert = `If-Match: "e1"`, "x-ms-documentdb-is-upsert: True"
	for _, c := range []struct {
		name, method, path string
		headers            []string
		level              idempotency.Level
		echo               idempotency.Echo
	}{
		{"read", "GET", doc, nil, idempotency.Safe, idempotency.NoEcho},
		{"conditional read", "GET", doc, []string{`If-None-Match: "e1"`}, idempotency.Safe, idempotency.NoEcho},
		{"query", "POST", docs, []string{"x-ms-documentdb-isquery: True"}, idempotency.Safe, idempotency.NoEcho},
		{"create", "POST", docs, nil, idempotency.Idempotent, idempotency.Exists},
		{"create database", "POST", "/dbs", nil, idempotency.Idempotent, idempotency.Exists},
		{"delete", "DELETE", doc, nil, idempotency.Idempotent, idempotency.Missing},
		{"delete with a tag", "DELETE", doc, []string{tag}, idempotency.Idempotent, idempotency.Missing},
		{"replace", "PUT", doc, nil, idempotency.Idempotent, idempotency.NoEcho},
		{"replace with a tag", "PUT", doc, []string{tag}, idempotency.Idempotent, idempotency.Changed},
		{"replace with any tag", "PUT", doc, []string{"If-Match: *"}, idempotency.Idempotent, idempotency.NoEcho},
		{"upsert", "POST", docs, []string{upsert}, idempotency.Idempotent, idempotency.NoEcho},
		{"upsert with a tag", "POST", docs, []string{upsert, tag}, idempotency.Idempotent, idempotency.Changed},
		{"upsert only once", "POST", docs, []string{upsert, "If-None-Match: *"}, idempotency.Idempotent, idempotency.Changed},
		{"patch", "PATCH", doc, nil, idempotency.Idempotent, idempotency.NoEcho},
		{"patch with a tag", "PATCH", doc, []string{tag}, idempotency.Idempotent, idempotency.Changed},
		{"batch", "POST", docs, []string{"x-ms-cosmos-is-batch-request: True"}, idempotency.Idempotent, idempotency.NoEcho},
		{"stored procedure", "POST", "/dbs/d/colls/c/sprocs/s", nil, idempotency.NonIdempotent, idempotency.NoEcho},
		{"create stored procedure", "POST", "/dbs/d/colls/c/sprocs", nil, idempotency.Idempotent, idempotency.Exists},
		{"create with a trigger", "POST", docs, []string{"x-ms-documentdb-pre-trigger-include: t"}, idempotency.NonIdempotent, idempotency.Exists},
		{"replace with a trigger", "PUT", doc, []string{tag, "x-ms-documentdb-post-trigger-include: t"}, idempotency.NonIdempotent, idempotency.Changed},
		{"triggers left out", "POST", docs, []string{"x-ms-documentdb-pre-trigger-exclude: t"}, idempotency.Idempotent, idempotency.Exists},
		{"read with a trigger", "GET", doc, []string{"x-ms-documentdb-pre-trigger-include: t"}, idempotency.Safe, idempotency.NoEcho},
		{"delete by key", "POST", "/dbs/d/colls/c/operations/partitionkeydelete", nil, idempotency.NonIdempotent, idempotency.NoEcho},
		{"truncate", "PUT", "/dbs/d/colls/c/operations/collectiontruncate", nil, idempotency.NonIdempotent, idempotency.NoEcho},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := intentOf(t, c.method, c.path, c.headers...)
			require.Equal(t, c.level, in.Level)
			require.Equal(t, c.echo, in.Echo)
			strict := dialect{strictPatch: true}.Intent(request(t, c.method, c.path, c.headers...))
			if c.name == "patch" {
				require.Equal(t, idempotency.NonIdempotent, strict.Level, "an incr would be applied twice")
				strict.Level = in.Level
			}
			require.Equal(t, in, strict)
		})
	}
}

func TestThePartitionIsReadFromTheHeaders(t *testing.T) {
	in := intentOf(t, "GET", "/dbs/d/colls/c/docs/i", `x-ms-documentdb-partitionkey: ["a",1]`)
	require.Equal(t, `["a",1]`, in.PartitionKey)
	require.True(t, in.Partitioned)
	in = intentOf(t, "GET", "/dbs/d/colls/c/docs", "A-IM: Incremental feed", "x-ms-documentdb-partitionkeyrangeid: 12")
	require.Equal(t, "12", in.RangeID)
	in = intentOf(t, "GET", "/dbs/d/colls/c/docs", "x-ms-documentdb-partitionkeyrangeid: OVJwAOcMtA0=,7")
	require.Equal(t, "7", in.RangeID, "without the container's rid")
	in = intentOf(t, "GET", "/dbs/d/colls/c/pkranges", `x-ms-documentdb-partitionkey: ["a"]`)
	require.Zero(t, in.PartitionKey)
	require.False(t, in.Partitioned)
}

func TestOrdinaryRequestsAreRecognisedWithoutAllocating(t *testing.T) {
	for name, req := range ordinary(t) {
		require.Zero(t, testing.AllocsPerRun(100, func() { sink = dialect{}.Intent(req) }), name)
	}
}

var sink middleware.Intent

func ordinary(t testing.TB) map[string]*http.Request {
	sdk := []string{
		"Authorization: x", "User-Agent: x", "X-Ms-Activity-Id: x", "X-Ms-Cosmos-Allow-Tentative-Writes: true",
		"X-Ms-Date: x", `X-Ms-Documentdb-Partitionkey: ["p1"]`, "X-Ms-Version: 2020-11-05", "X-Ms-Cosmos-Sdk-Supportedcapabilities: 1",
	}
	write := append([]string{"Content-Type: application/json", "Prefer: return=minimal"}, sdk...)
	return map[string]*http.Request{
		"read":   request(t, "GET", "/dbs/mydatabase/colls/mycontainer/docs/item-0001", sdk...),
		"create": request(t, "POST", "/dbs/mydatabase/colls/mycontainer/docs", write...),
		"upsert": request(t, "POST", "/dbs/mydatabase/colls/mycontainer/docs", append(write, "X-Ms-Documentdb-Is-Upsert: true")...),
		"query":  request(t, "POST", "/dbs/mydatabase/colls/mycontainer/docs", append(sdk, "Content-Type: application/query+json")...),
	}
}

func BenchmarkIntent(b *testing.B) {
	for name, req := range ordinary(b) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				sink = dialect{}.Intent(req)
			}
		})
	}
}

func FuzzIntent(f *testing.F) {
	for key := range rows(f) {
		k := strings.Split(key, "|")
		f.Add(k[0], k[1], "1")
	}
	f.Add("GET", "/dbs/%2F/colls/%25%zz/docs", "a,b")
	f.Fuzz(func(t *testing.T, method, path, id string) {
		req := &http.Request{Method: method, Header: http.Header{headerRangeID: {id}}}
		if u, err := url.Parse("https://acct.documents.azure.com" + path); err == nil {
			req.URL = u
		} else {
			req.URL = &url.URL{Path: path, RawPath: path}
		}
		in := dialect{}.Intent(req)
		require.NotEmpty(t, in.Name)
		require.NotEqual(t, middleware.Foreign, in.Scope)
		require.NotEqual(t, idempotency.Unknown, in.Level)
		require.Equal(t, in.Write, in.Level != idempotency.Safe)
		require.Equal(t, in.Scope == middleware.Data, in.Container != "", "data lies in a container")
		if in.Container != "" {
			require.True(t, strings.HasPrefix(in.Container, "dbs/") && strings.Contains(in.Container, "/colls/"), in.Container)
		}
	})
}
