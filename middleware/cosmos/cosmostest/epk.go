package cosmostest

import (
	"fmt"
	"math"

	"github.com/reroute-go/reroute/partitions"
)

// wholeSpace is the size of the key space in the positions that ranges are cut at.
const wholeSpace = uint64(1) << 32

func (c *container) definition() partitions.Definition {
	return partitions.Definition{Kind: partitions.Kind(c.kind), Version: c.keyVersion, Paths: len(c.paths)}
}

// boundary is the effective partition key at a position: hashes spread evenly over the positions, so even cuts make even ranges.
func (c *container) boundary(position uint64) string {
	switch {
	case position == 0:
		return ""
	case position >= wholeSpace:
		return "FF"
	case c.kind == string(partitions.KindHash) && c.keyVersion == 1:
		return "05" + v1Number(float64(position))
	}
	return fmt.Sprintf("%016X", position<<30) // version 2 hashes begin with two zero bits
}

// v1Number is how version 1 keys write a positive number so that bytes sort as numbers do: eight bits, then seven to a byte, whose
// lowest bit says whether more follow.
func v1Number(f float64) string {
	bits := math.Float64bits(f) ^ 1<<63
	text := fmt.Sprintf("%02X", bits>>56)
	for bits <<= 8; ; {
		group := bits >> 56 &^ 1
		if bits <<= 7; bits == 0 {
			return text + fmt.Sprintf("%02X", group)
		}
		text += fmt.Sprintf("%02X", group|1)
	}
}

func mustKey(text string) partitions.Key {
	k, err := partitions.ParseKey(text)
	if err != nil {
		panic("cosmostest: " + err.Error()) // boundaries are made here
	}
	return k
}
