package cosmos

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/regions"
)

func endpoint(t testing.TB, s string) *url.URL {
	t.Helper()
	u, err := parseEndpoint(s)
	require.NoError(t, err)
	return u
}

// document builds an account document; regions are "name endpoint".
func document(writes, reads []string, extra string) string {
	list := func(in []string) string {
		out := []map[string]string{}
		for _, s := range in {
			i := strings.LastIndexByte(s, ' ')
			out = append(out, map[string]string{"name": s[:i], "databaseAccountEndpoint": s[i+1:]})
		}
		b, _ := json.Marshal(out)
		return string(b)
	}
	return fmt.Sprintf(`{"id":"acct","_self":"","writableLocations":%s,"readableLocations":%s%s}`, list(writes), list(reads), extra)
}

const (
	east = "East US https://acct-eastus.documents.azure.com:443/"
	west = "West US https://acct-westus.documents.azure.com:443/"
)

func TestAnAccountDocumentBecomesATopology(t *testing.T) {
	d := domainOf(endpoint(t, "https://acct.documents.azure.com:443/"), nil)
	top, err := topologyOf([]byte(document([]string{east}, []string{east, west}, "")), d, nil)
	require.NoError(t, err)
	require.Equal(t, regions.Name("East US"), top.Writes[0].Region)
	require.Equal(t, "https://acct-westus.documents.azure.com:443", top.Reads[1].URL.String())
	require.False(t, top.MultiWrite || top.PartitionFailover)

	top, err = topologyOf([]byte(document([]string{east, west}, nil, `,"enableMultipleWriteLocations":true,"enablePerPartitionFailoverBehavior":true`)), d, nil)
	require.NoError(t, err)
	require.True(t, top.MultiWrite && top.PartitionFailover)
	require.Len(t, top.Writes, 2)
}

// DESIGN rule 10.
func TestAMissingPartitionFailoverFlagKeepsTheLastValue(t *testing.T) {
	d := domainOf(endpoint(t, "https://acct.documents.azure.com"), nil)
	for _, c := range []struct {
		extra string
		old   *regions.Topology
		want  bool
	}{
		{"", nil, false},
		{"", &regions.Topology{PartitionFailover: true}, true},
		{`,"enablePerPartitionFailoverBehavior":null`, &regions.Topology{PartitionFailover: true}, true},
		{`,"enablePerPartitionFailoverBehavior":false`, &regions.Topology{PartitionFailover: true}, false},
		{`,"enablePerPartitionFailoverBehavior":true`, &regions.Topology{}, true},
	} {
		top, err := topologyOf([]byte(document([]string{east}, []string{east}, c.extra)), d, c.old)
		require.NoError(t, err)
		require.Equal(t, c.want, top.PartitionFailover, c.extra)
	}
}

func TestADocumentThatIsNoneIsRefusedWithTheOffendingValue(t *testing.T) {
	d := domainOf(endpoint(t, "https://acct.documents.azure.com:443/"), nil)
	for _, c := range []struct{ name, body, problem, value string }{
		{"empty", ``, "not JSON", ""},
		{"not JSON", `<html>gateway</html>`, "not JSON", "<html>"},
		{"a list", `[]`, "not JSON of the right shape", "[]"},
		{"null", `null`, "writableLocations is missing", ""},
		{"an error envelope", `{"code":"ServiceUnavailable","message":"later"}`, "it is an error's", "ServiceUnavailable"}, // R082
		{"nothing", `{}`, "writableLocations is missing", ""},
		{"no write region", document(nil, []string{east}, ""), "writableLocations is missing or empty", ""},
		{"wrong type", `{"writableLocations":"East US"}`, "not JSON of the right shape", "East US"},
		{"a flag as text", document([]string{east}, nil, `,"enableMultipleWriteLocations":"true"`), "right shape", ""},
		{"two documents", document([]string{east}, nil, "") + "{}", "something follows", ""},
		{"no name", document([]string{"  https://acct.documents.azure.com/"}, nil, ""), "writableLocations[0].name is empty", ""},
		{"no endpoint", document([]string{east}, []string{"West US "}, ""), "readableLocations[0].databaseAccountEndpoint is neither", ""},
		{"no scheme", document([]string{"x acct.documents.azure.com"}, nil, ""), "is neither https nor http", "acct.documents"},
		{"plain http", document([]string{"x http://acct.documents.azure.com/"}, nil, ""), "is not https like the account's", "http://acct."},
		{"a foreign host", document([]string{east}, []string{east, "x https://acct-west.documents.example.com/"}, ""),
			"readableLocations[1].databaseAccountEndpoint is not a host of this account", "documents.example.com"},
		{"a path", document([]string{"x https://acct.documents.azure.com/evil"}, nil, ""), "more than scheme, host and port", "/evil"},
		{"a query", document([]string{"x https://acct.documents.azure.com/?a=b"}, nil, ""), "more than scheme", "documents.azure.com/..."},
		{"a bad escape", document([]string{"x https://acct%zz.documents.azure.com"}, nil, ""), "is not a URL", "acct%zz"},
		{"too long", `{"x":"` + strings.Repeat("x", maxDocument) + `"}`, "longer than", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := topologyOf([]byte(c.body), d, nil)
			var e *DocumentError
			require.ErrorAs(t, err, &e)
			require.Contains(t, e.Problem, c.problem)
			require.Contains(t, e.Value, c.value)
			require.Less(t, len(err.Error()), 500)
		})
	}
	_, err := topologyOf([]byte(document([]string{"x https://user:hidden@acct.documents.azure.com"}, nil, "")), d, nil)
	require.ErrorContains(t, err, "user name or password")
	require.NotContains(t, err.Error(), "hidden")
}

// DESIGN rule 8.
func TestOnlyHostsOfTheAccountMayBeNamed(t *testing.T) {
	for _, c := range []struct {
		account string
		mine    []string
		foreign []string
	}{
		{"https://acct.documents.azure.com:443/",
			[]string{"https://acct.documents.azure.com", "https://acct-westus2.documents.azure.com:443", "https://ACCT-EastUS.Documents.Azure.com", "https://acct-a-b.documents.azure.com"},
			[]string{"http://acct.documents.azure.com", "https://acct2.documents.azure.com", "https://acct-.documents.azure.com", "https://acct.documents.azure.cn",
				"https://acct-w.documents.azure.com.evil.example", "https://acct.evil.documents.azure.com", "https://evil.example", "https://documents.azure.com",
				"https://127.0.0.1", "https://localhost", "https://acct-w_x.documents.azure.com", "https://acct"}},
		{"http://127.0.0.1:8081",
			[]string{"http://127.0.0.1:9", "http://localhost:9", "http://[::1]:9", "http://127.0.0.2:1", "http://west.localhost:3"},
			[]string{"https://127.0.0.1:8081", "http://10.0.0.1", "http://localhost.example", "http://127.0.0.1.example", "http://acct.documents.azure.com"}},
		{"http://localhost:8081", []string{"http://127.0.0.1:9", "http://localhost:10"}, []string{"http://local", "http://localhost.com"}},
		{"https://10.1.2.3:8081", []string{"https://10.1.2.3:9"}, []string{"https://10.1.2.4", "https://127.0.0.1", "http://10.1.2.3:8081"}},
		{"https://[2001:db8::1]:8081", []string{"https://[2001:DB8:0::1]:9"}, []string{"https://[2001:db8::2]:8081"}},
		{"https://acct.example", []string{"https://acct.example:444"}, []string{"https://acct-evil.example", "https://acct-west.example:443"}},
		{"https://acct.docs.example", []string{"https://acct-west.docs.example"}, []string{"https://acct-west.example"}},
		{"http://cosmos:8081", []string{"http://cosmos:9", "http://cosmos-west:8081"}, []string{"http://cosmos.example", "http://other", "http://cosmoswest"}},
	} {
		d := domainOf(endpoint(t, c.account), []*url.URL{endpoint(t, c.account[:strings.Index(c.account, ":")]+"://front.example:8443")})
		for _, u := range c.mine {
			require.True(t, d.owns(endpoint(t, u)), "%s owns %s", c.account, u)
		}
		for _, u := range c.foreign {
			require.False(t, d.owns(endpoint(t, u)), "%s does not own %s", c.account, u)
		}
		require.True(t, d.owns(&url.URL{Scheme: d.scheme, Host: "front.example:8443"}), "configured by the user")
		require.False(t, d.owns(&url.URL{Scheme: d.scheme, Host: "front.example:8444"}))
	}
}

func FuzzAccountDocument(f *testing.F) {
	f.Add([]byte(document([]string{east}, []string{east, west}, `,"enableMultipleWriteLocations":true`)))
	f.Add([]byte(document([]string{"x https://acct-x.documents.azure.com@evil.example"}, nil, "")))
	f.Add([]byte(`{"writableLocations":[{"name":"a","databaseAccountEndpoint":"https://acct-%41.documents.azure.com:99999"}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		d := domainOf(&url.URL{Scheme: "https", Host: "acct.documents.azure.com"}, nil)
		top, err := topologyOf(body, d, nil)
		if err != nil {
			var e *DocumentError
			require.ErrorAs(t, err, &e)
			require.LessOrEqual(t, len(e.Value), 200)
			return
		}
		require.NotEmpty(t, top.Writes)
		for _, e := range append(top.Writes, top.Reads...) {
			require.Equal(t, "https", e.URL.Scheme)
			host := strings.ToLower(e.URL.Hostname())
			require.True(t, host == "acct.documents.azure.com" ||
				strings.HasPrefix(host, "acct-") && strings.Count(host, ".") == 3 && strings.HasSuffix(host, ".documents.azure.com"), host)
		}
	})
}
