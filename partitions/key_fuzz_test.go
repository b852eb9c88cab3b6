package partitions

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/murmur3"
)

// slowSpan says the same as Definition.Span in the plainest way: encoding/json, hexadecimal text, the streaming hash
// and big integers. It shares no code with it.
func slowSpan(kind Kind, version, paths int, header string) (lower, upper string, err error) {
	if !strings.HasPrefix(strings.TrimLeft(header, " \t\r\n"), "[") {
		return "", "", errors.New("no array")
	}
	dec := json.NewDecoder(strings.NewReader(header))
	dec.UseNumber()
	var values []any
	if err := dec.Decode(&values); err != nil {
		return "", "", err
	}
	if !json.Valid([]byte(header)) {
		return "", "", errors.New("text after the array")
	}
	switch {
	case len(values) > paths, kind != KindMultiHash && len(values) != 0 && len(values) != paths:
		return "", "", errors.New("count")
	}
	var plain, v2 [][]byte
	var suffix string
	for _, value := range values {
		in, end, err := slowInput(value, version)
		if err != nil {
			return "", "", err
		}
		suffix += slowV1(in)
		if version == 1 {
			plain = append(plain, append(in, end...))
		} else {
			v2 = append(v2, append(in, end...))
		}
	}
	switch {
	case len(values) == 0 && kind == KindMultiHash:
		return "", "FF", nil
	case len(values) == 0:
		return "", "", nil
	case kind == KindMultiHash:
		for _, in := range v2 {
			lower += slowV2(in)
		}
		if len(values) < paths {
			return lower, lower + "FF", nil
		}
		return lower, lower, nil
	case version == 1:
		h := murmur3.New32()
		for _, in := range plain {
			_, _ = h.Write(in)
		}
		bits := binary.LittleEndian.AppendUint64([]byte{5}, math.Float64bits(float64(h.Sum32())))
		lower = slowV1(bits) + suffix
		return lower, lower, nil
	}
	lower = slowV2(slices.Concat(v2...))
	return lower, lower, nil
}

func slowInput(value any, version int) (in, end []byte, err error) {
	switch value := value.(type) {
	case nil:
		return []byte{1}, nil, nil
	case bool:
		if value {
			return []byte{3}, nil, nil
		}
		return []byte{2}, nil, nil
	case json.Number:
		f, err := strconv.ParseFloat(string(value), 64)
		if err != nil {
			return nil, nil, err
		}
		if f == 0 {
			f = math.Abs(f)
		}
		return binary.LittleEndian.AppendUint64([]byte{5}, math.Float64bits(f)), nil, nil
	case string:
		if version == 1 {
			return append([]byte{8}, value[:min(len(value), 100)]...), []byte{0}, nil
		}
		return append([]byte{8}, value...), []byte{0xFF}, nil
	case map[string]any:
		if len(value) == 0 {
			return []byte{0}, nil, nil
		}
	}
	return nil, nil, fmt.Errorf("a %T", value)
}

func slowV2(in []byte) string {
	h := murmur3.New128()
	_, _ = h.Write(in)
	h1, h2 := h.Sum128()
	b := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, h1), h2)
	slices.Reverse(b)
	b[0] &= 0x3F
	return hex.EncodeToString(b)
}

// slowV1 writes the bits of a number as text and cuts the text.
func slowV1(in []byte) string {
	out := fmt.Sprintf("%02x", in[0])
	switch in[0] {
	case 5:
		n := new(big.Int).SetUint64(binary.LittleEndian.Uint64(in[1:]))
		top := new(big.Int).Lsh(big.NewInt(1), 63)
		if n.Cmp(top) < 0 {
			n.Add(n, top)
		} else {
			n.Sub(new(big.Int).Lsh(top, 1), n)
		}
		text := fmt.Sprintf("%064b", n)
		first, rest := text[:8], strings.TrimRight(text[8:], "0")
		groups := []string{}
		for len(rest) > 7 {
			groups, rest = append(groups, rest[:7]+"1"), rest[7:]
		}
		groups = append(groups, rest+strings.Repeat("0", 8-len(rest)))
		for _, bits := range append([]string{first}, groups...) {
			b, _ := strconv.ParseUint(bits, 2, 8)
			out += fmt.Sprintf("%02x", b)
		}
	case 8:
		for _, c := range in[1:] {
			out += fmt.Sprintf("%02x", c+1)
		}
		out += "00"
	}
	return out
}

func FuzzSpan(f *testing.F) {
	for i, header := range []string{
		`["p1"]`, `[]`, `[{}]`, `[null]`, `[true,false]`, `["t","u",5]`, `[-0]`, `[1e400]`, `[5e-324]`, `[0.1e+2]`,
		`["\ud83d\ude00\ud800\u00e9"]`, "[\"\xff\xc3(\"]", longText, ` [ 1 , { } ] `, `[[]]`, `[{"a":1}]`, `["` + strings.Repeat("é", 60) + `"]`,
	} {
		f.Add(header, byte(i))
	}
	definitions := []Definition{
		{}, {Version: 2}, {Kind: KindMultiHash}, {Version: 1, Paths: 2}, {Version: 2, Paths: 3},
		{Kind: KindMultiHash, Version: 2, Paths: 3}, {Kind: KindRange},
	}
	f.Fuzz(func(t *testing.T, header string, choice byte) {
		d := definitions[int(choice)%len(definitions)]
		version, paths := 2, max(1, d.Paths)
		if d.Kind == "" && d.Version != 2 {
			version = 1
		}
		lower, upper, slowErr := slowSpan(d.Kind, version, paths, header)
		s, err := d.Span(header)
		if slowErr != nil {
			var bad *KeyError
			require.ErrorAs(t, err, &bad, "%q should be refused: %v", header, slowErr)
			require.True(t, 0 <= bad.Offset && bad.Offset <= len(header), "offset %d", bad.Offset)
			return
		}
		require.NoError(t, err, "%q", header)
		require.Equal(t, canonical(lower), s.Min.String(), "%q", header)
		require.Equal(t, canonical(upper), s.Max.String(), "%q", header)
		back, err := ParseKey(lower)
		require.NoError(t, err)
		require.Equal(t, back, s.Min)
		back, err = ParseKey(upper)
		require.NoError(t, err)
		require.Equal(t, back, s.Max)
	})
}

func canonical(text string) string {
	for strings.HasSuffix(text, "00") && len(text)%2 == 0 {
		text = text[:len(text)-2]
	}
	return strings.ToUpper(text)
}

func FuzzParseKey(f *testing.F) {
	for _, text := range []string{"", "FF", "05C1DF", "05c100", "3FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF", "0", "zz", strings.Repeat("0F", 40) + "00"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		k, err := ParseKey(text)
		b, slowErr := hex.DecodeString(text)
		require.Equal(t, slowErr != nil || len(b) > maxKeyBytes, err != nil, "%q: %v", text, err)
		if err == nil {
			require.Equal(t, canonical(text), k.String())
		}
	})
}
