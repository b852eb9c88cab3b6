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
		if !accountsOwn(req.Header) {
			return answer(req)
		}
		return accountsReads(req, multiWrite)
	})
	account, err := cosmos.Open(t.Context(), "https://"+accountHost, cosmos.SharedKey(accountKey), cosmos.Options{Transport: script})
	require.NoError(t, err)
	t.Cleanup(account.Close)
	return account, script
}

// accountsReads answers what the account reads on its own behalf.
func accountsReads(req *http.Request, multiWrite bool) layertest.Step {
	switch {
	case req.URL.Path == "/":
		return layertest.Step{Body: accountDocument(multiWrite, "a", "b", "c")}
	case !strings.HasSuffix(req.URL.Path, "/pkranges"):
		return layertest.Step{Body: `{"_rid":"rid=","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2}}`}
	case req.Header.Get("If-None-Match") != "":
		return layertest.Step{Status: http.StatusNotModified}
	}
	return layertest.Step{Header: map[string]string{"Etag": "1"}, Body: `{"PartitionKeyRanges":[{"id":"0","minInclusive":"","maxExclusive":"FF"}]}`}
}

// accountsOwn tells what the account reads on its own behalf.
func accountsOwn(h http.Header) bool { return h.Get("User-Agent") == "reroute-cosmos" }

// dataSends leaves that out.
func dataSends(script *layertest.Script) []layertest.Send {
	var sends []layertest.Send
	for _, s := range script.Sends() {
		if !accountsOwn(s.Header) {
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
	// The waits of some rows are jittered: within this, which is what is told.
	jitter [2]time.Duration
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

// splitting is what Partition waits in all: 0.1 s doubling to at most 5 s, +-25 %.
var splitting = [2]time.Duration{11 * time.Second, 18 * time.Second}

var faults = []fault{
	{row: "400", step: answerOf(400, "")},
	{row: "401", step: answerOf(401, "")},
	{row: "403 other", step: answerOf(403, "")},
	{row: "404/0", step: answerOf(404, "0")},
	{row: "409", step: answerOf(409, "")},
	{row: "412", step: answerOf(412, "")},
	{row: "449", step: answerOf(449, "")},
	{row: "403/3", step: answerOf(403, "3")},
	{row: "403/1008", step: answerOf(403, "1008")},
	{row: "404/1002", step: answerOf(404, "1002")},
	{row: "408", step: answerOf(408, "")},
	{row: "410/0", step: answerOf(410, "")},
	{row: "410/1000", step: answerOf(410, "1000")},
	{row: "410/1002", step: answerOf(410, "1002")},
	{row: "410/1007", step: answerOf(410, "1007"), jitter: splitting},
	{row: "410/1008", step: answerOf(410, "1008"), jitter: splitting},
	{row: "429, no wished wait", step: answerOf(429, "3200"), jitter: [2]time.Duration{1916 * time.Millisecond, 3194 * time.Millisecond}}, // 2.555 s +-25 %
	{row: "429, wait 100 ms", step: answerOf(429, "3200", "X-Ms-Retry-After-Ms", "100")},
	{row: "429, wait 20 s", step: answerOf(429, "3200", "X-Ms-Retry-After-Ms", "20000")},
	{row: "429/3092", step: answerOf(429, "3092")},
	{row: "500", step: answerOf(500, "")},
	{row: "502", step: answerOf(502, "")},
	{row: "503", step: answerOf(503, "")},
	{row: "504", step: answerOf(504, "")},
	{row: "transport, not sent", step: layertest.Step{Err: &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}}},
	{row: "transport, maybe sent", step: layertest.Step{Err: &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}}},
	{row: "no answer, deadline 10 s", step: layertest.Step{Hang: true}},
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
		rt, err := roundtrippers.Builder{Dialect: account, Regions: account.Regions, Partitions: account.Partitions, Base: script}.Build()
		require.NoError(t, err)

		ctx, cancel := t.Context(), context.CancelFunc(func() {})
		if f.step.Hang {
			ctx, cancel = context.WithTimeout(ctx, 10*time.Second)
		}
		defer cancel()
		started := time.Now()
		resp, err := rt.RoundTrip(op.to(ctx))
		elapsed := time.Since(started)
		took := fmt.Sprint(elapsed.Round(100 * time.Millisecond))
		if elapsed > 0 && f.jitter[1] > 0 {
			require.True(t, f.jitter[0] <= elapsed && elapsed <= f.jitter[1], "%s", elapsed)
			took = fmt.Sprintf("%s to %s", f.jitter[0].Round(100*time.Millisecond), f.jitter[1].Round(100*time.Millisecond))
		}

		sends := dataSends(script)
		end := ending(resp, err)
		if resp != nil {
			require.NoError(t, resp.Body.Close())
		}
		told = fmt.Sprintf("%d | %s | %s | %s", len(sends), itinerary(sends), took, end)
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

// itinerary spells the regions in order, long runs shortened: "(a b c)...", "a x10 b".
func itinerary(sends []layertest.Send) string {
	var names []string
	for _, s := range sends {
		names = append(names, regionOf(s.URL.Host))
	}
	for period := 1; period <= 3; period++ {
		if len(names) > 8 && repeats(names, period) {
			return fmt.Sprintf("(%s)...", strings.Join(names[:period], " "))
		}
	}
	if len(names) <= 8 {
		return strings.Join(names, " ")
	}
	var runs []string
	for i := 0; i < len(names); {
		end := i
		for end < len(names) && names[end] == names[i] {
			end++
		}
		runs = append(runs, names[i])
		if end-i > 1 {
			runs[len(runs)-1] += fmt.Sprintf(" x%d", end-i)
		}
		i = end
	}
	return strings.Join(runs, " ")
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
