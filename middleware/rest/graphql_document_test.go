package rest

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOnlyWhatCertainlyReadsIsAQuery(t *testing.T) {
	for _, text := range []string{
		"{a}", " query{a}", "query Q($x: Int = 3, $y: [In!]) @live(if: true) { a(b: {c: \"}\"}) }", "\ufeff# mutation\n{a}", "fragment F on mutation {a} query Q {...F}",
		`query { a(text: """ mutation { \""" } """) }`, "query A {a} query B {b}", ", , {a}", "query mutation {a}", `{ a(s: "\"}") }`,
	} {
		require.True(t, isQuery(Document{Query: text}), text)
	}
	for _, text := range []string{
		"", "mutation{a}", "subscription {a}", "query Q {a} mutation M {b}", "{a", "a}", "{a}}", "{ a(s: \"open) }", `{ a(s: """open) }`, "query", "fragment F on T {a}",
		"mutation M{a} # query", "nonsense {a}", "query A {a} query A {a}", "# {a}", "extend query {a}",
	} {
		require.False(t, isQuery(Document{Query: text}), text)
	}
	both := "query Q {a} mutation M {b}"
	require.True(t, isQuery(Document{Query: both, OperationName: "Q"}))
	require.False(t, isQuery(Document{Query: both, OperationName: "M"}))
	require.False(t, isQuery(Document{Query: both, OperationName: "X"}))
}

// Whatever the text, a document with a mutation at its top level is no query.
func FuzzADocumentWithAMutationIsNoQuery(f *testing.F) {
	for _, seed := range []string{"{a}", "query Q {a}", "fragment F on T {a}", "# x\n", `{a(s:"}")}`, `"`, "\\", "}"} {
		f.Add(seed, seed)
	}
	f.Fuzz(func(t *testing.T, before, after string) {
		if _, whole := operationsOf(before); !whole {
			t.Skip() // the mutation would be inside of something: a field, a string
		}
		text := before + "\nmutation M {a}\n" + after
		if isQuery(Document{Query: text}) {
			operations, ok := operationsOf(before)
			t.Fatalf("%q is taken for a query (before: %v %v)", text, operations, ok)
		}
		_ = isQuery(Document{Query: before})
	})
}
