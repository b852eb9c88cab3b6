package partitions

import (
	"encoding/binary"
	"math"

	"github.com/twmb/murmur3"
)

// The first byte of a value, in the hash input and in V1 keys. Values sort by it.
const (
	markUndefined = 0x00
	markNull      = 0x01
	markFalse     = 0x02
	markTrue      = 0x03
	markNumber    = 0x05
	markString    = 0x08
)

// maxV1String is how many bytes of a string take part in a V1 key. It is a cut between bytes, also inside a character.
const maxV1String = 100

// keyV2 hashes all values together.
func keyV2(values *values, paths int, buf []byte) (Key, error) {
	for {
		var more bool
		var err error
		if buf, more, err = appendV2(buf, values, paths); err != nil {
			return Key{}, err
		}
		if !more {
			break
		}
	}
	if values.n == 0 {
		return Key{}, nil
	}
	hi, lo := hashV2(buf)
	return Key{hi: maskV2(hi), lo: lo}, nil
}

// spanMultiHash hashes each value alone and joins the hashes.
func spanMultiHash(values *values, paths int, buf []byte) (Span, error) {
	var hi, lo uint64
	var more [48]byte // hashes after the first
	rest := more[:0]
	for {
		b, ok, err := appendV2(buf[:0], values, paths)
		if err != nil {
			return Span{}, err
		}
		if !ok {
			break
		}
		h, l := hashV2(b)
		h = maskV2(h)
		if values.n == 1 {
			hi, lo = h, l
			continue
		}
		rest = binary.BigEndian.AppendUint64(rest, h)
		rest = binary.BigEndian.AppendUint64(rest, l)
	}
	if values.n == 0 {
		return Span{Max: MaxKey()}, nil
	}
	k := Key{hi: hi, lo: lo, rest: trimmed(rest)}
	if values.n == paths {
		return Span{Min: k, Max: k}, nil
	}
	// Hashes begin below 40, so FF in the place of the next one is above all of them.
	return Span{Min: k, Max: Key{hi: hi, lo: lo, rest: string(append(rest, 0xFF))}}, nil
}

func trimmed(rest []byte) string {
	for len(rest) > 0 && rest[len(rest)-1] == 0 {
		rest = rest[:len(rest)-1]
	}
	return string(rest)
}

// appendV2 adds the hash input of the next value, and is false at the end of the array.
func appendV2(buf []byte, values *values, paths int) ([]byte, bool, error) {
	start := len(buf)
	buf, more, err := values.next(buf, paths)
	if more && buf[start] == markString {
		buf = append(buf, 0xFF)
	}
	return buf, more, err
}

// hashV2 is the 128-bit murmur3 hash read backwards, as two big-endian words.
func hashV2(input []byte) (hi, lo uint64) {
	h1, h2 := murmur3.Sum128(input)
	return h2, h1
}

// maskV2 keeps hashes below 40, and so below MaxKey.
func maskV2(hi uint64) uint64 { return hi &^ (0xC0 << 56) }

// keyV1 is the 32-bit hash of all values followed by the values themselves, in an encoding that keeps their order.
func keyV1(values *values, paths int, buf []byte) (Key, error) {
	var whole [160]byte
	b, err := appendKeyV1(whole[:0], values, paths, buf)
	if err != nil {
		return Key{}, err
	}
	return keyOf(b), nil
}

func appendKeyV1(dst []byte, values *values, paths int, buf []byte) ([]byte, error) {
	var encoded [128]byte
	suffix := encoded[:0]
	for {
		start := len(buf)
		b, more, err := values.next(buf, paths)
		if err != nil {
			return nil, err
		}
		if !more {
			break
		}
		buf = b
		if buf[start] == markString {
			buf = buf[:min(len(buf), start+1+maxV1String)]
		}
		suffix = appendV1(suffix, buf[start:])
		if buf[start] == markString {
			buf = append(buf, 0)
		}
	}
	if values.n == 0 {
		return dst, nil
	}
	var number [9]byte
	hash := appendNumber(number[:0], float64(murmur3.Sum32(buf)))
	return append(appendV1(dst, hash), suffix...), nil
}

// appendV1 adds a value (its marker and payload) as it stands in a V1 key.
func appendV1(dst, value []byte) []byte {
	dst = append(dst, value[0])
	switch value[0] {
	case markNumber:
		n := binary.LittleEndian.Uint64(value[1:])
		if n>>63 == 0 {
			n ^= 1 << 63
		} else {
			n = -n
		}
		// The first byte whole, then seven bits to a byte; the low bit says that more follows.
		dst = append(dst, byte(n>>56))
		for n <<= 8; n<<7 != 0; n <<= 7 {
			dst = append(dst, byte(n>>56)|1)
		}
		dst = append(dst, byte(n>>56)&^1)
	case markString:
		for _, c := range value[1:] {
			dst = append(dst, c+1) // leaves 00 for the end
		}
		dst = append(dst, 0)
	}
	return dst
}

// appendNumber adds f as hash input. The bits are taken as they are: -0 and NaN are the caller's to judge.
func appendNumber(buf []byte, f float64) []byte {
	buf = append(buf, markNumber)
	return binary.LittleEndian.AppendUint64(buf, math.Float64bits(f))
}
