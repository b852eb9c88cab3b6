// Package partitions answers "which partition is this?" for stores that split a key space into ranges.
//
// A [Definition] hashes the partition key of a request into a [Key], the effective partition key. A [Map] says which
// [Range] owns that key. Both are values that never change, safe for any number of goroutines.
//
// A [Registry] keeps the maps of an account's containers: it reads them from a [Source] when an operation needs them, once
// for all who wait, and anew when they prove stale. It also knows which regions serve a partition badly, and in which one
// its writes go through. A map takes the feed of ranges as it really is (pkrange-gaps.md):
//
//  1. A throttled page (429) is waited out where it was asked, for as long as the service wishes; only when that budget
//     is spent another region is asked. That is the part of the Source, as package cosmos has it.
//  2. Ranges with a gap, as in the middle of a split, are read again and never kept; the map held until then stays.
//  3. A region behind the session (404/1002) is an error of its own, SessionUnavailable, not a missing container.
//  4. A missing container and a refused credential are remembered for a few seconds, so that a mistake costs one read
//     and not one for each operation; [Registry.Refresh] asks all the same.
//  5. Every 5xx counts for a partition's breaker, not 503 alone, and so do failures of the transport.
//  6. The breakers have options of their own, [FailoverOptions], apart from the retries of operations.
package partitions

import (
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
)

// Key is an effective partition key: a place on the line from the zero Key, which is the minimum and is written as
// "", to [MaxKey], written as "FF".
//
// Keys are byte strings that compare bytewise, where bytes that are missing at the end count as zero: "05C1" and
// "05C100" are the same place. Services write the boundaries of hierarchical containers both ways. Key is kept
// normalised to that rule, so == and [Key.Compare] agree and a Key may be a map key.
type Key struct {
	hi, lo uint64 // the first 16 bytes, big-endian, padded with zeros: a V2 hash fits, so it needs no memory of its own
	rest   string // what follows, without zeros at its end
}

// maxKeyBytes bounds what ParseKey accepts. The longest keys there are, three V1 strings, have 315 bytes.
const maxKeyBytes = 1024

// MaxKey is the end of the line, "FF". It is above every key that a partition key can hash to.
func MaxKey() Key { return Key{hi: 0xFF << 56} }

// ParseKey reads the hexadecimal form that services use for range boundaries, upper or lower case. "" is the zero Key.
// Anything else is a [*HexError].
func ParseKey(text string) (Key, error) {
	if len(text) > 2*maxKeyBytes {
		return Key{}, &HexError{Text: clip(text), Offset: 2 * maxKeyBytes, Reason: "too long"}
	}
	if len(text)%2 != 0 {
		return Key{}, &HexError{Text: clip(text), Offset: len(text), Reason: "an odd number of digits"}
	}
	if i := strings.IndexFunc(text, notHex); i >= 0 {
		return Key{}, &HexError{Text: clip(text), Offset: i, Reason: "not a hexadecimal digit"}
	}
	var stack [64]byte
	b, _ := hex.AppendDecode(stack[:0], []byte(text)) // cannot fail: checked above
	return keyOf(b), nil
}

func notHex(r rune) bool {
	return !('0' <= r && r <= '9' || 'a' <= r && r <= 'f' || 'A' <= r && r <= 'F')
}

// keyOf normalises b, which it does not keep.
func keyOf(b []byte) Key {
	var head [16]byte
	copy(head[:], b)
	k := Key{hi: binary.BigEndian.Uint64(head[:8]), lo: binary.BigEndian.Uint64(head[8:])}
	if len(b) > 16 {
		end := len(b)
		for end > 16 && b[end-1] == 0 {
			end--
		}
		k.rest = string(b[16:end])
	}
	return k
}

// Compare is -1, 0 or +1 as k lies before, at or after other.
func (k Key) Compare(other Key) int {
	if k.hi != other.hi {
		return cmp.Compare(k.hi, other.hi)
	}
	if k.lo != other.lo {
		return cmp.Compare(k.lo, other.lo)
	}
	return strings.Compare(k.rest, other.rest)
}

// less is Compare < 0 for the loops of a lookup: keys are hashes, so the first word nearly always decides.
func (k *Key) less(other *Key) bool {
	if k.hi != other.hi {
		return k.hi < other.hi
	}
	return k.Compare(*other) < 0
}

// String is k in upper-case hexadecimal without zero bytes at its end, for people and for messages.
// [ParseKey] gives k back.
func (k Key) String() string {
	b := make([]byte, 16, 16+len(k.rest))
	binary.BigEndian.PutUint64(b, k.hi)
	binary.BigEndian.PutUint64(b[8:], k.lo)
	b = append(b, k.rest...)
	for len(b) > 0 && b[len(b)-1] == 0 {
		b = b[:len(b)-1]
	}
	return strings.ToUpper(hex.EncodeToString(b))
}

// Span is the part of the line from Min to just before Max. A Span whose Max equals its Min is the single key Min.
// The zero Span is the single zero Key.
type Span struct {
	Min Key // inclusive
	Max Key // exclusive
}

// Point is the single key that s stands for, and false when s is wider than that.
func (s Span) Point() (Key, bool) { return s.Min, s.Min == s.Max }

// String is "key" for a single key, else "[min, max)".
func (s Span) String() string {
	if s.Min == s.Max {
		return s.Min.String()
	}
	return "[" + s.Min.String() + ", " + s.Max.String() + ")"
}

// HexError says why a text is no [Key].
type HexError struct {
	Text   string // the text, cut to 64 bytes
	Offset int    // byte where it went wrong
	Reason string // what is wrong there
}

// Error names the text, the place and the reason.
func (e *HexError) Error() string {
	return fmt.Sprintf("partitions: key %q, byte %d: %s", e.Text, e.Offset, e.Reason)
}

// clip bounds what an error may carry of a hostile input.
func clip(text string) string {
	if len(text) > 64 {
		return text[:64]
	}
	return text
}
