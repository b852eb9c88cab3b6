package roundtrippers_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/cosmos"
	"github.com/reroute-go/reroute/middleware/layertest"
	"github.com/reroute-go/reroute/roundtrippers"
)

var update = flag.Bool("update", false, "rewrite testdata/decisions.md from what the stack does")

// account is a scripted account: its document is real, its answers to anything
// else are the test's.
const (
	accountHost = "acct.documents.example"
	accountKey  = "bm90IGEgc2VjcmV0LCBqdXN0IGEgdGVzdCBrZXk="
)

func regionHost(region string) string { return "acct-" + region + ".documents.example" }

func regionOf(host string) string {
	region := strings.TrimSuffix(strings.TrimPrefix(host, "acct-"), ".documents.example")
	if host == accountHost {
		return "global"
	}
	return region
}

func accountDocument(multiWrite bool, names ...string) string {
	locations := func(names []string) string {
		var list []string
		for _, n := range names {
			list = append(list, fmt.Sprintf(`{"name":%q,"databaseAccountEndpoint":"https://%s/"}`, n, regionHost(n)))
		}
		return strings.Join(list, ",")
	}
	writes := names[:1]
	if multiWrite {
		writes = names
	}
	return fmt.Sprintf(`{"id":"acct","writableLocations":[%s],"readableLocations":[%s],"enableMultipleWriteLocations":%t,`+
		`"userConsistencyPolicy":{"defaultConsistencyLevel":"Session"}}`, locations(writes), locations(names), multiWrite)
}

// openAccount opens an account in regions a, b and c over a script that gives the
// document to whoever asks and answer to everything else.
func openAccount(t *testing.T, multiWrite bool, answer func(*http.Request) layertest.Step) (*cosmos.Account, *layertest.Script) {
	t.Helper()
	script := layertest.NewServer(t, func(req *http.Request) layertest.Step {
		if req.URL.Path == "/" {
			return layertest.Step{Body: accountDocument(multiWrite, "a", "b", "c")}
		}
		return answer(req)
	})
	account, err := cosmos.Open(t.Context(), "https://"+accountHost, cosmos.SharedKey(accountKey), cosmos.Options{Transport: script})
	require.NoError(t, err)
	t.Cleanup(account.Close)
	return account, script
}

// dataSends leaves out what the account reads on its own behalf.
func dataSends(script *layertest.Script) []layertest.Send {
	var sends []layertest.Send
	for _, s := range script.Sends() {
		if s.URL.Path != "/" {
			sends = append(sends, s)
		}
	}
	return sends
}

type request struct {
	name, method, path string
	header             map[string]string
	body               string
}

const docs = "/dbs/d/colls/c/docs"

var everyOperation = []request{
	{"read", "GET", docs + "/1", nil, ""},
	{"query", "POST", docs, map[string]string{"Content-Type": "application/query+json", "X-Ms-Documentdb-Isquery": "True"}, `{"query":"SELECT * FROM c"}`},
	{"create", "POST", docs, nil, `{"id":"1"}`},
	{"upsert", "POST", docs, map[string]string{"X-Ms-Documentdb-Is-Upsert": "true"}, `{"id":"1"}`},
	{"replace", "PUT", docs + "/1", nil, `{"id":"1"}`},
	{"patch", "PATCH", docs + "/1", nil, `{"everyOperation":[]}`},
	{"delete", "DELETE", docs + "/1", nil, ""},
	{"batch", "POST", docs, map[string]string{"X-Ms-Cosmos-Is-Batch-Request": "True"}, `[]`},
	{"sproc execute", "POST", "/dbs/d/colls/c/sprocs/s", nil, `[]`},
	{"metadata read", "GET", "/dbs/d/colls/c", nil, ""},
}

func (r request) to(ctx context.Context) *http.Request {
	var body io.Reader
	if r.body != "" {
		body = bytes.NewReader([]byte(r.body))
	}
	req, err := http.NewRequestWithContext(ctx, r.method, "https://"+accountHost+r.path, body)
	if err != nil {
		panic(err)
	}
	for name, value := range r.header {
		req.Header.Set(name, value)
	}
	if strings.Contains(r.path, "/docs") || strings.Contains(r.path, "/sprocs/") {
		req.Header.Set("X-Ms-Documentdb-Partitionkey", `["p"]`)
	}
	return req
}

// fault is a row: what the regions answer.
type fault struct {
	row  string
	step layertest.Step
}

func answerOf(code int, substatus string, header ...string) layertest.Step {
	h := map[string]string{}
	if substatus != "" {
		h["X-Ms-Substatus"] = substatus
	}
	for i := 0; i+1 < len(header); i += 2 {
		h[header[i]] = header[i+1]
	}
	return layertest.Step{Status: code, Header: h, Body: `{"code":"x"}`}
}

var faults = []fault{
	{"400", answerOf(400, "")},
	{"401", answerOf(401, "")},
	{"403 other", answerOf(403, "")},
	{"404/0", answerOf(404, "0")},
	{"409", answerOf(409, "")},
	{"412", answerOf(412, "")},
	{"449", answerOf(449, "")},
	{"403/3", answerOf(403, "3")},
	{"403/1008", answerOf(403, "1008")},
	{"404/1002", answerOf(404, "1002")},
	{"408", answerOf(408, "")},
	{"410/0", answerOf(410, "")},
	{"410/1000", answerOf(410, "1000")},
	{"410/1002", answerOf(410, "1002")},
	{"410/1007", answerOf(410, "1007")},
	{"410/1008", answerOf(410, "1008")},
	{"429, wait 100 ms", answerOf(429, "3200", "X-Ms-Retry-After-Ms", "100")},
	{"429, wait 20 s", answerOf(429, "3200", "X-Ms-Retry-After-Ms", "20000")},
	{"429/3092", answerOf(429, "3092")},
	{"500", answerOf(500, "")},
	{"502", answerOf(502, "")},
	{"503", answerOf(503, "")},
	{"504", answerOf(504, "")},
	{"transport, not sent", layertest.Step{Err: &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}}},
	{"transport, maybe sent", layertest.Step{Err: &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}}},
	{"no answer, deadline 10 s", layertest.Step{Hang: true}},
}

// cell runs one operation against one fault and tells what happened.
func cell(t *testing.T, op request, f fault, multiWrite, everywhere bool) (told string) {
	synctest.Test(t, func(t *testing.T) {
		account, script := openAccount(t, multiWrite, func(req *http.Request) layertest.Step {
			if !everywhere && req.URL.Host != regionHost("a") {
				return layertest.Step{Body: "{}"}
			}
			return f.step
		})
		rt, err := roundtrippers.Builder{Dialect: account, Regions: account.Regions, Base: script}.Build()
		require.NoError(t, err)

		ctx, cancel := t.Context(), context.CancelFunc(func() {})
		if f.step.Hang {
			ctx, cancel = context.WithTimeout(ctx, 10*time.Second)
		}
		defer cancel()
		started := time.Now()
		resp, err := rt.RoundTrip(op.to(ctx))
		took := time.Since(started).Round(100 * time.Millisecond)

		sends := dataSends(script)
		end := ending(resp, err)
		if resp != nil {
			require.NoError(t, resp.Body.Close())
		}
		told = fmt.Sprintf("%d | %s | %s | %s", len(sends), route(sends), took, end)
	})
	return told
}

func ending(resp *http.Response, err error) string {
	if err == nil {
		end := fmt.Sprint(resp.StatusCode)
		if sub := resp.Header.Get("X-Ms-Substatus"); sub != "" && sub != "0" {
			end += "/" + sub
		}
		return end
	}
	var typed *middleware.Error
	if !errors.As(err, &typed) {
		return "untyped error"
	}
	return "error: " + typed.Outcome.Code
}

// route spells the regions in order, runs shortened: "a b c x98".
func route(sends []layertest.Send) string {
	var names []string
	for _, s := range sends {
		names = append(names, regionOf(s.URL.Host))
	}
	for period := 1; period <= 3; period++ {
		if len(names) > 8 && repeats(names, period) {
			return fmt.Sprintf("(%s)...", strings.Join(names[:period], " "))
		}
	}
	if len(names) > 8 {
		return strings.Join(names[:8], " ") + "..."
	}
	return strings.Join(names, " ")
}

func repeats(names []string, period int) bool {
	for i := period; i < len(names); i++ {
		if names[i] != names[i-period] {
			return false
		}
	}
	return true
}

// TestDecisionTable runs the standard stack against every row of the seed's
// status tables and compares with testdata/decisions.md. Cites R001, R007,
// R018, R019, R029, R031, R032, R033, R034, R049, R072 and the seed's tables.
func TestDecisionTable(t *testing.T) {
	var b strings.Builder
	b.WriteString(decisionsHead)
	for _, f := range faults {
		fmt.Fprintf(&b, "\n### %s\n\n| fault in | account | operation | sends | regions | virtual time | end |\n|---|---|---|---|---|---|---|\n", f.row)
		for _, everywhere := range []bool{true, false} {
			where := "a only"
			if everywhere {
				where = "all regions"
			}
			single, multi := decide(t, f, false, everywhere), decide(t, f, true, everywhere)
			if slices.Equal(single, multi) {
				writeLines(&b, where, "both", single)
				continue
			}
			writeLines(&b, where, "single-write", single)
			writeLines(&b, where, "multi-write", multi)
		}
	}
	const golden = "testdata/decisions.md"
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(golden, []byte(b.String()), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), b.String(), "run with -update and read the difference")
}

// decide runs every operation; those that fare alike share a line.
func decide(t *testing.T, f fault, multiWrite, everywhere bool) []string {
	var order []string
	alike := map[string][]string{}
	for _, op := range everyOperation {
		told := cell(t, op, f, multiWrite, everywhere)
		if _, seen := alike[told]; !seen {
			order = append(order, told)
		}
		alike[told] = append(alike[told], op.name)
	}
	var lines []string
	for _, told := range order {
		names := strings.Join(alike[told], ", ")
		if len(alike[told]) == len(everyOperation) {
			names = "every operation"
		}
		lines = append(lines, names+" | "+told)
	}
	return lines
}

func writeLines(b *strings.Builder, where, account string, lines []string) {
	for _, line := range lines {
		fmt.Fprintf(b, "| %s | %s | %s |\n", where, account, line)
	}
}

const decisionsHead = `# Decisions

What the standard Cosmos DB stack does, made by running it in virtual time against an account with the regions a, b and c, preferred in
that order; a is the write region of the single-write account. The fault lasts as long as the operation, in all regions or in a alone. The
operations are read, query, create, upsert, replace, patch, delete, batch, sproc execute and metadata read. Made by

    go test ./roundtrippers -run TestDecisionTable -update
`
