package partitions

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// A version 2 key of one path must cost no memory, however it is written.
func TestHashingAnOrdinaryVersion2KeyDoesNotAllocate(t *testing.T) {
	for _, header := range []string{
		`["tenant-4711"]`, `["3f2504e0-4f89-11d3-9a0c-0305e82c3301"]`, `[42]`, `[-1.5e3]`, `[true]`, `[null]`, `[{}]`, `[]`,
		`["\u00e9\ud83d\ude00\n"]`, longText,
	} {
		for _, d := range []Definition{{Version: 2}, {Kind: KindMultiHash}} {
			require.Zero(t, testing.AllocsPerRun(100, func() {
				if _, err := d.Span(header); err != nil {
					t.Fatal(err)
				}
			}), "%.40s", header)
		}
	}
}

func TestHashingAHierarchicalKeyAllocatesOnlyItsTail(t *testing.T) {
	d := Definition{Kind: KindMultiHash, Paths: 3}
	for header, want := range map[string]float64{`["t","u","s"]`: 1, `["t"]`: 0, `["t","u"]`: 2} {
		require.LessOrEqual(t, testing.AllocsPerRun(100, func() { _, _ = d.Span(header) }), want, header)
	}
}

func BenchmarkSpan(b *testing.B) {
	for _, c := range []struct {
		name   string
		d      Definition
		header string
	}{
		{"V2/tenant", Definition{Version: 2}, `["tenant-4711"]`},
		{"V2/uuid", Definition{Version: 2}, `["3f2504e0-4f89-11d3-9a0c-0305e82c3301"]`},
		{"V2/integer", Definition{Version: 2}, `[4711]`},
		{"V2/float", Definition{Version: 2}, `[47.11]`},
		{"V2/escapes", Definition{Version: 2}, `["caf\u00e9 \ud83d\ude00"]`},
		{"V2/1KiB", Definition{Version: 2}, longText},
		{"MultiHash/full", Definition{Kind: KindMultiHash, Paths: 3}, `["tenant","user","session"]`},
		{"MultiHash/prefix", Definition{Kind: KindMultiHash, Paths: 3}, `["tenant"]`},
		{"V1/tenant", Definition{Version: 1}, `["tenant-4711"]`},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.d.Span(c.header); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	// What reading the header alone costs encoding/json, before anything is hashed.
	b.Run("V2/uuid/encoding-json", func(b *testing.B) {
		b.ReportAllocs()
		header := []byte(`["3f2504e0-4f89-11d3-9a0c-0305e82c3301"]`)
		for b.Loop() {
			var values []any
			if err := json.Unmarshal(header, &values); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// headers are different keys of one length, so that a benchmark does not train the branch predictor on one.
func headers(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf(`["tenant-%08d"]`, i*7919)
	}
	return out
}
