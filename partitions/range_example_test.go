package partitions_test

import (
	"errors"
	"fmt"
	"strings"

	"github.com/reroute-go/reroute/partitions"
)

// Which physical partition serves this item?
func ExampleMap() {
	page := `{"PartitionKeyRanges":[
		{"id":"1","minInclusive":"","maxExclusive":"1FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF","parents":["0"]},
		{"id":"2","minInclusive":"1FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF","maxExclusive":"FF","parents":["0"]}]}`
	ranges, err := partitions.DecodeRanges(strings.NewReader(page))
	if err != nil {
		panic(err)
	}
	m, err := partitions.NewMap(ranges)
	if err != nil {
		panic(err)
	}
	container := partitions.Definition{Kind: partitions.KindHash, Version: 2, Paths: 1}
	span, err := container.Span(`["redmond"]`)
	if err != nil {
		panic(err)
	}
	key, _ := span.Point()
	ordinal, _ := m.Find(key)
	fmt.Println(key, "is in range", m.ID(ordinal))
	fmt.Println("range 0 is gone:", m.Gone("0"))

	_, err = partitions.NewMap(ranges[:1])
	fmt.Println(errors.Is(err, partitions.ErrGap), err)
	// Output:
	// 22E342F38A486A088463DFF7838A5963 is in range 2
	// range 0 is gone: true
	// true partitions: gap after range "1" [, 1FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF)
}

// In a hierarchical container a query for one tenant may touch several ranges.
func ExampleDefinition_Span() {
	container := partitions.Definition{Kind: partitions.KindMultiHash, Paths: 2}
	tenant, _ := container.Span(`["/path1"]`)
	user, _ := container.Span(`["/path1","/path2"]`)
	fmt.Println(tenant)
	fmt.Println(user)
	// Output:
	// [3499FD5198AE0F1EB6B77F6E428D2FF0, 3499FD5198AE0F1EB6B77F6E428D2FF0FF)
	// 3499FD5198AE0F1EB6B77F6E428D2FF027A1848BD1102A3B65AFF266874D0FF5
}
