package roundtrippers_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// buglog is the public bug log: each case's id and the property it stands for.
var buglog = []struct{ id, property string }{
	{"B01", "a body is replayed byte for byte, and no local length error shows"},
	{"B02", "replay works whatever the order of the layers"},
	{"B04", "an error of the body's source ends it and is not held against the server"},
	{"B05", "what is kept for replay is bounded; beyond the bound there is no retry"},
	{"B06", "GetBody and ContentLength reach the transport on each attempt"},
	{"B07", "an answer that is not returned is closed before the next attempt"},
	{"B09", "whoever refuses to send closes the request's body"},
	{"B11", "an answer or an error, never both, never neither"},
	{"B12", "what belongs to one operation is not kept on the layer"},
	{"B14", "facts of an attempt end with it"},
	{"B15", "a returned body can be read until it is closed"},
	{"B17", "a body that is cut is the reader's error; nothing is sent again unseen"},
	{"B18", "a wait that would outlive the deadline is not begun"},
	{"B19", "the last real failure can be found in every error"},
	{"B20", "no wait after the last attempt, no attempt after the context"},
	{"B22", "the ceiling holds for what a server wishes, too"},
	{"B23", "waits saturate; none is negative or zero by accident"},
	{"B24", "a wish of 0 does not make a client spin"},
	{"B25", "the finer wait header wins, and makes no final answer retryable"},
	{"B27", "the schedule is bounded for every attempt number"},
	{"B28", "a budget of time counts the waits that were waited"},
	{"B30", "a shared retry budget is spent by failures only and says that it is ours"},
	{"B31", "sent or perhaps sent is kept apart from not sent"},
	{"B32", "the answer to a repeat is shown as it is, with a mark"},
	{"B33", "another endpoint makes no unsafe repeat safe"},
	{"B35", "what no repeat can mend is found through any wrapping"},
	{"B36", "a stored procedure is sent again only where it cannot have run"},
	{"B38", "the replay that an idempotency key has net/http make is shown, and can be forbidden"},
	{"B40", "a replay after 401 has the whole body"},
	{"B41", "one replay after 401, with the fresh token, out of its own count"},
	{"B43", "each attempt is signed anew"},
	{"B44", "a limiter refuses at once, says so, and is nobody's failure"},
	{"B45", "who has left takes no token"},
	{"B47", "a slot is freed once on every path"},
	{"B48", "nobody holds a slot while it waits to retry"},
	{"B50", "an essential call waits for a slot, not for the queue"},
	{"B52", "a caller that leaves counts for nothing"},
	{"B54", "a caller's deadline and a caller's leaving are told apart"},
	{"B55", "throttling counts for nothing, an answer is no failure"},
	{"B56", "a result counts only in the state that let it in"},
	{"B57", "one probe at a time"},
	{"B59", "our own marks end by themselves"},
	{"B60", "a timeout moves the request and marks no region"},
	{"B61", "a forbidden write has the topology read, waits, and ends"},
	{"B63", "with everything marked the best of it is tried"},
	{"B65", "what concerns a partition moves that partition"},
	{"B67", "a session retry asks each region once"},
	{"B69", "session retries are bounded, the token stays, a plain 404 is an answer"},
	{"B70", "throttling is waited out in place and costs no failover"},
	{"B71", "only signs of a stale map have it read, at a bounded rate"},
	{"B72", "who waits for one fetch shares its failure"},
	{"B74", "a caller that leaves ends no shared fetch"},
	{"B76", "nobody waits for a fetch beyond its own deadline"},
	{"B77", "only who needs the new map waits for it, and only whole maps are kept"},
	{"B79", "a detour for once does not change the map"},
	{"B80", "rerouting in circles ends, by count and by time"},
	{"B81", "a dead owner has the map read, a dial that the caller broke does not"},
	{"B83", "a retry for a dead connection uses another one"},
}

var (
	idInName    = regexp.MustCompile(`(?:^Test|[a-z0-9])(B[0-9]{2})(?:[A-Z]|$)`)
	idInComment = regexp.MustCompile(`\bB[0-9]{2}\b`)
)

// TestEveryCaseOfTheBugLogHasATest checks, and with -update writes, testdata/buglog.md:
// which tests stand for which case. A test counts if the id is in its name, its doc comment, or a
// comment on the line of its func.
func TestEveryCaseOfTheBugLogHasATest(t *testing.T) {
	tests := map[string][]string{} // by id
	named := map[string]bool{}
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, path, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		folder := filepath.ToSlash(filepath.Dir(strings.TrimPrefix(filepath.ToSlash(path), "../")))
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || f.Recv != nil || !strings.HasPrefix(f.Name.Name, "Test") && !strings.HasPrefix(f.Name.Name, "Fuzz") {
				continue
			}
			ids := map[string]bool{}
			for _, m := range idInName.FindAllStringSubmatch(f.Name.Name, -1) {
				ids[m[1]] = true
				named[m[1]] = named[m[1]] || strings.HasPrefix(f.Name.Name, "Test"+m[1])
			}
			for _, group := range file.Comments {
				line := files.Position(group.Pos()).Line
				if group == f.Doc || line == files.Position(f.Pos()).Line {
					for _, id := range idInComment.FindAllString(group.Text(), -1) {
						ids[id] = true
					}
				}
			}
			for id := range ids {
				tests[id] = append(tests[id], folder+" "+f.Name.Name)
			}
		}
		return nil
	})
	require.NoError(t, err)

	var b strings.Builder
	fmt.Fprintf(&b, "# The bug log and its tests\n\n%d cases reduced from public reports, and the tests that stand for each. The first ones named by an id are the case\n"+
		"itself over the ready-made stacks; the others have it on a single layer or in a scenario. Made by\n\n"+
		"    go test ./roundtrippers -run TestEveryCaseOfTheBugLogHasATest -update\n\n| id | property | tests |\n|---|---|---|\n", len(buglog))
	known := map[string]bool{}
	for _, c := range buglog {
		known[c.id] = true
		require.True(t, named[c.id], "%s has no test of its name", c.id)
		list := tests[c.id]
		slices.SortFunc(list, func(x, y string) int { // those named by the id first
			return strings.Compare(rank(x, c.id), rank(y, c.id))
		})
		fmt.Fprintf(&b, "| %s | %s | %s |\n", c.id, c.property, strings.Join(list, "<br>"))
	}
	require.Len(t, known, 58)
	for id := range named {
		require.True(t, known[id], "%s is no case of the log", id)
	}
	const golden = "testdata/buglog.md"
	if *update {
		require.NoError(t, os.WriteFile(golden, []byte(b.String()), 0o644))
	}
	// What is written must be so; a test that cites a case since then may be missing until the next -update.
	written, err := os.ReadFile(golden)
	require.NoError(t, err)
	rows := strings.Split(strings.TrimSpace(string(written)), "\n")
	rows = rows[slices.Index(rows, "|---|---|---|")+1:]
	require.Len(t, rows, len(buglog), "run with -update")
	for i, c := range buglog {
		row := strings.Split(strings.Trim(rows[i], "| "), " | ")
		require.Equal(t, []string{c.id, c.property}, row[:2], "run with -update")
		require.Subset(t, tests[c.id], strings.Split(row[2], "<br>"), "%s: run with -update", c.id)
	}
}

func rank(test, id string) string {
	if strings.Contains(test, " Test"+id) {
		return "0" + test
	}
	return "1" + test
}
