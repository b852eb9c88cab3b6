package partitions

import (
	"bytes"
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"math"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/murmur3"
	"pgregory.net/rapid"
)

func point(t *testing.T, d Definition, header string) Key {
	t.Helper()
	s, err := d.Span(header)
	require.NoError(t, err, header)
	k, ok := s.Point()
	require.True(t, ok, "%s is a span: %v", header, s)
	return k
}

// rawV1 is the V1 key as the service writes it, with the zero that a Key does not keep.
func rawV1(t *testing.T, header string, paths int) string {
	t.Helper()
	v := values{text: header}
	require.NoError(t, v.open())
	b, err := appendKeyV1(nil, &v, paths, nil)
	require.NoError(t, err)
	return strings.ToUpper(hex.EncodeToString(b))
}

var longText = `["` + strings.Repeat("a", 1024) + `"]`

// The tables of the reference driver (section 7.6).
func TestVersion2KeysMatchThePublishedVectorsDigitForDigit(t *testing.T) {
	for header, want := range map[string]string{
		`[""]`:                     "32E9366E637A71B4E710384B2F4970A0",
		`["partitionKey"]`:         "013AEFCF77FA271571CF665A58C933F1",
		longText:                   "332BDF5512AE49615F32C7D98C2DB86C",
		`["redmond"]`:              "22E342F38A486A088463DFF7838A5963",
		`[null]`:                   "378867E4430E67857ACE5C908374FE16",
		`[true]`:                   "0E711127C5B5A8E4726AC6DD306A3E59",
		`[false]`:                  "2FE1BE91E90A3439635E0E9E37361EF2",
		`[-128]`:                   "01DAEDABF913540367FE219B2AD06148",
		`[127]`:                    "0C507ACAC853ECA7977BF4CEFB562A25",
		`[-9223372036854775808]`:   "23D5C6395512BDFEAFADAD15328AD2BB",
		`[9223372036854775807]`:    "2EDB959178DFCCA18983F89384D1629B",
		`[-2147483648]`:            "0B1660D5233C3171725B30D4A5F4CC1F",
		`[2147483647]`:             "2D9349D64712AEB5EB1406E2F0BE2725",
		`[5e-324]`:                 "0E6CBA63A280927DE485DEF865800139",
		`[1.7976931348623157e308]`: "31424D996457102634591FF245DBCC4D",
		`[5.0]`:                    "19C08621B135968252FB34B4CF66F811",
		`[5.123124190509124]`:      "0EF2E2D82460884AF0F6440BE4F726A8",
	} {
		require.Equal(t, want, point(t, Definition{Version: 2}, header).String(), header)
		require.Equal(t, want, point(t, Definition{Kind: KindRange}, header).String(), header)
		require.Equal(t, want, point(t, Definition{Kind: KindMultiHash}, header).String(), header)
	}
	together := point(t, Definition{Kind: KindHash, Version: 2, Paths: 4}, `[5.0,"redmond",true,null]`)
	require.Equal(t, "3032DECBE2AB1768D8E0AEDEA35881DF", together.String())
}

func TestVersion1KeysMatchThePublishedVectorsDigitForDigit(t *testing.T) {
	for header, want := range map[string]string{
		`[""]`:                     "05C1CF33970FF80800",
		`["partitionKey"]`:         "05C1E1B3D9CD2608716273756A756A706F4C667A00",
		`[null]`:                   "05C1ED45D7475601",
		`[true]`:                   "05C1D7C5A903D803",
		`[false]`:                  "05C1DB857D857C02",
		`[-128]`:                   "05C1D73349F54C053FA0",
		`[127]`:                    "05C1DD539DDFCC05C05FE0",
		`[-9223372036854775808]`:   "05C1DB35F33D1C053C20",
		`[9223372036854775807]`:    "05C1B799AB2DD005C3E0",
		`[-2147483648]`:            "05C1DFBF252BCC053E20",
		`[2147483647]`:             "05C1E1F503DFB205C1DFFFFFFFFC",
		`[5e-324]`:                 "05C1E5C91F4D3005800101010101010102",
		`[1.7976931348623157e308]`: "05C1CBE367C53005FFEFFFFFFFFFFFFFFE",
		longText:                   "05C1EB5921F70608" + strings.Repeat("62", 100) + "00",
	} {
		require.Equal(t, want, rawV1(t, header, 1), header)
		parsed, err := ParseKey(want)
		require.NoError(t, err)
		require.Equal(t, parsed, point(t, Definition{}, header), "version 1 is what a container without a version has: %s", header)
	}
}

// The baseline files that the SDKs share. Their V2 column is the hash before the mask, and their V1 column the 32-bit
// hash alone, of the value before -0 is made 0.
func TestHashesMatchTheBaselineFilesOfTheSDKs(t *testing.T) {
	files, err := filepath.Glob("testdata/epk/*.xml")
	require.NoError(t, err)
	require.Len(t, files, 4)
	checked := 0
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		var baseline struct {
			Results []struct {
				Value string `xml:"Input>PartitionKeyValue"`
				V1    string `xml:"Output>PartitionKeyHashV1"`
				V2    string `xml:"Output>PartitionKeyHashV2"`
			} `xml:"Result"`
		}
		require.NoError(t, xml.Unmarshal(data, &baseline))
		for _, r := range baseline.Results {
			v1, v2 := baselineHashes(t, r.Value)
			require.Equal(t, r.V1, v1, r.Value)
			require.Equal(t, r.V2, v2, r.Value)
			checked++
		}
	}
	require.Equal(t, 29, checked)
}

func baselineHashes(t *testing.T, value string) (v1, v2 string) {
	nonFinite := map[string]float64{
		`"NaN"`: math.Float64frombits(0xFFF8000000000000), `"Infinity"`: math.Inf(1), `"-Infinity"`: math.Inf(-1),
		`-0`: math.Copysign(0, -1),
	}
	var inputs [][]byte
	if f, ok := nonFinite[value]; ok {
		inputs = [][]byte{appendNumber(nil, f)}
	} else {
		header := value
		if value == "UNDEFINED" {
			header = "{}"
		}
		if !strings.HasPrefix(header, "[") {
			header = "[" + header + "]"
		}
		v := values{text: header}
		require.NoError(t, v.open())
		for {
			b, more, err := v.next(nil, 3)
			require.NoError(t, err)
			if !more {
				break
			}
			inputs = append(inputs, b)
		}
	}
	for _, in := range inputs {
		in1, in2 := in, in
		if in[0] == markString {
			in1, in2 = append(bytes.Clone(in), 0), append(bytes.Clone(in), 0xFF)
		}
		hi, lo := hashV2(in2)
		v1 += fmt.Sprintf("%032X", murmur3.Sum32(in1))
		v2 += fmt.Sprintf("%016X%016X", hi, lo)
	}
	return v1, v2
}

func TestHierarchicalKeysJoinTheHashesOfTheirValues(t *testing.T) {
	d := Definition{Kind: KindMultiHash, Version: 2, Paths: 3}
	// Lists.xml, with the mask.
	full := "3499FD5198AE0F1EB6B77F6E428D2FF0" + "27A1848BD1102A3B65AFF266874D0FF5" + "2CA5ABC953544CF9BD94776DA5E6EA52"
	k := point(t, d, `["/path1","/path2","/path3"]`)
	require.Equal(t, full, k.String())

	for n, header := range []string{`[]`, `["/path1"]`, `["/path1","/path2"]`} {
		s, err := d.Span(header)
		require.NoError(t, err)
		require.Equal(t, full[:32*n], s.Min.String())
		require.Equal(t, full[:32*n]+"FF", s.Max.String())
		require.Negative(t, s.Min.Compare(k))
		require.Positive(t, s.Max.Compare(k))
	}
}

// One hash in 256 ends in a zero byte, which a Key does not keep.
func TestAHierarchicalKeyThatEndsInZeroIsTheKeyOfItsText(t *testing.T) {
	two, three := Definition{Kind: KindMultiHash, Paths: 2}, Definition{Kind: KindMultiHash, Paths: 3}
	found := 0
	for i := range 2000 {
		header := fmt.Sprintf(`["tenant",%d]`, i)
		lower, upper, err := slowSpan(KindMultiHash, 2, 3, header)
		require.NoError(t, err)
		if !strings.HasSuffix(lower, "00") {
			continue
		}
		found++
		require.Equal(t, key(lower), point(t, two, header))
		prefix, err := three.Span(header)
		require.NoError(t, err)
		require.Equal(t, Span{Min: key(lower), Max: key(upper)}, prefix, "the FF stands behind all of the hash")
	}
	require.NotZero(t, found)
}

func TestAHierarchicalPrefixHoldsItsKeysAndNoOthers(t *testing.T) {
	d := Definition{Kind: KindMultiHash, Paths: 2}
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`[a-z]{0,3}`)
		tenant, other, user := text.Draw(t, "tenant"), text.Draw(t, "other"), text.Draw(t, "user")
		prefix, err := d.Span(`["` + tenant + `"]`)
		require.NoError(t, err)
		s, err := d.Span(`["` + other + `","` + user + `"]`)
		require.NoError(t, err)
		k, ok := s.Point()
		require.True(t, ok)
		inside := prefix.Min.Compare(k) <= 0 && k.Compare(prefix.Max) < 0
		require.Equal(t, tenant == other, inside)
	})
}

func TestEqualValuesInDifferentWritingAreOneKey(t *testing.T) {
	for _, same := range [][]string{
		{`[0]`, `[-0]`, `[-0.0]`, `[-0e9]`, `[0.000]`, `[-1e-400]`, `[1e-400]`},
		{`[10]`, `[1e1]`, `[10.0]`, `[1E+1]`, `[100e-1]`, " [\t10\r\n] "},
		{`[9007199254740993]`, `[9007199254740992]`, `[9.007199254740992e15]`},
		{`[999999999999999999]`, `[999999999999999999.0]`},
		{`[9007199254740995]`, `[9007199254740995.0]`, `[9007199254740996]`},
		{`[-1234567890123456789]`, `[-1234567890123456789.0]`},
		{`[99999999999999999999]`, `[1e20]`},
		{`["é"]`, `["\u00e9"]`, `["\u00E9"]`},
		{`["😀"]`, `["\ud83d\ude00"]`},
		{`["�"]`, `["\ud800"]`, `["\udc00"]`, `["\ufffd"]`, "[\"\xff\"]", "[\"\xc3\"]"},
		{`["��"]`, `["\ud800\ud800"]`, `["\ude00\ud83d"]`, "[\"\xed\xa0\"]"},
		{`["�A"]`, `["\ud800A"]`, `["\ud800\u0041"]`},
		{`["a/\"\\b"]`, `["\u0061\/\"\\b"]`},
		{"[\"\u007f\u0008\"]", "[\"\x7f\\b\"]"},
		{`[{}]`, `[{ }]`, "[ {\n} ]"},
	} {
		if strings.Contains(same[0], "\u0008") {
			same = same[1:] // a raw control character is no JSON
		}
		for _, d := range []Definition{{}, {Version: 2}, {Kind: KindMultiHash}} {
			for _, header := range same {
				require.Equal(t, point(t, d, same[0]), point(t, d, header), "%q", header)
			}
		}
	}
}

func TestDifferentKindsOfValueAreDifferentKeys(t *testing.T) {
	headers := []string{`[]`, `[{}]`, `[null]`, `[false]`, `[true]`, `[0]`, `[1]`, `[""]`, `["0"]`, `["null"]`, `["{}"]`, `["\u0000"]`}
	for _, d := range []Definition{{}, {Version: 2}} {
		seen := map[Key]string{}
		for _, header := range headers {
			k := point(t, d, header)
			require.Empty(t, seen[k], "%s and %s", seen[k], header)
			seen[k] = header
			require.Negative(t, k.Compare(MaxKey()))
		}
		require.Equal(t, `[]`, seen[Key{}])
	}
}

// G26: bytewise, also in the middle of a character.
func TestVersion1CutsStringsAfterHundredBytes(t *testing.T) {
	cut := strings.Repeat("a", 99) + "é"
	k := point(t, Definition{}, `["`+cut+`"]`)
	require.Equal(t, k, point(t, Definition{}, `["`+cut+`more"]`))
	require.NotEqual(t, k, point(t, Definition{Version: 2}, `["`+cut+`more"]`))
	raw := rawV1(t, `["`+cut+`"]`, 1)
	require.True(t, strings.HasSuffix(raw, "62"+"C4"+"00"), raw)
	exact := strings.Repeat("a", 100)
	require.Equal(t, point(t, Definition{}, `["`+exact+`"]`), point(t, Definition{}, `["`+exact+`b"]`))
	require.NotEqual(t, point(t, Definition{Version: 2}, `["`+exact+`"]`), point(t, Definition{Version: 2}, `["`+exact+`b"]`))
}

func TestBadHeadersAreRefusedWithThePlaceAndWithoutTheValue(t *testing.T) {
	for _, c := range []struct {
		header    string
		component int
		kind      string
		offset    int
	}{
		{``, 0, "", 0}, {`"secret"`, 0, "", 0}, {`null`, 0, "", 0}, {`{}`, 0, "", 0},
		{`[`, 0, "", 1}, {`["secret"`, 1, "", 9}, {`["secret`, 0, "string", 8}, {`["secret\`, 0, "string", 8},
		{`["secret",]`, 1, "", 10}, {`[,"secret"]`, 0, "", 1}, {`["secret" "x"]`, 1, "", 10},
		{`["secret"]x`, 1, "", 10}, {`["secret"]]`, 1, "", 10},
		{`["a","secret"]`, 1, "", 5},
		{`["secret\x"]`, 0, "string", 8}, {`["\u12"]`, 0, "string", 2}, {`["\u12g4"]`, 0, "string", 2},
		{"[\"secret\n\"]", 0, "string", 8}, {"[\"secret\x00\"]", 0, "string", 8}, {"[\"secret\x1f\"]", 0, "string", 8}, {"[\x00]", 0, "", 1},
		{`[1e400]`, 0, "number", 6}, {`[-1e400]`, 0, "number", 7}, {`[NaN]`, 0, "", 1}, {`[Infinity]`, 0, "", 1},
		{`[-Infinity]`, 0, "number", 2}, {`[-]`, 0, "number", 2}, {`[+1]`, 0, "", 1}, {`[01]`, 0, "number", 3}, {`[.5]`, 0, "", 1},
		{`[1.]`, 0, "number", 3}, {`[1e]`, 0, "number", 3}, {`[1e+]`, 0, "number", 4}, {`[0x10]`, 1, "", 2},
		{`[nul]`, 0, "null", 1}, {`[tru`, 0, "boolean", 1}, {`[False]`, 0, "", 1}, {`[nulll]`, 1, "", 5},
		{`[{"secret":1}]`, 0, "object", 2}, {`[{`, 0, "object", 2}, {`[["secret"]]`, 0, "array", 1},
	} {
		for _, d := range []Definition{{}, {Version: 2}, {Kind: KindMultiHash}} {
			_, err := d.Span(c.header)
			var bad *KeyError
			require.ErrorAs(t, err, &bad, "%q", c.header)
			require.Equal(t, c.component, bad.Component, "%q: %v", c.header, err)
			require.Equal(t, c.kind, bad.Kind, "%q: %v", c.header, err)
			require.Equal(t, c.offset, bad.Offset, "%q: %v", c.header, err)
			require.NotContains(t, err.Error(), "secret")
		}
	}
	_, err := Definition{Version: 2}.Span(`[1e400]`)
	require.EqualError(t, err, "partitions: partition key value 0 (number), byte 6: beyond the reach of a double")
}

func TestAKeyNeedsAValueForEachPathUnlessItIsHierarchical(t *testing.T) {
	for _, version := range []int{1, 2} {
		d := Definition{Version: version, Paths: 2}
		_, err := d.Span(`["a"]`)
		require.ErrorContains(t, err, "1 of 2")
		_, err = d.Span(`["a","b","c"]`)
		require.ErrorContains(t, err, "more values")
		require.NotEqual(t, point(t, d, `["a","b"]`), point(t, d, `["b","a"]`))
	}
	_, err := Definition{Kind: KindMultiHash, Paths: 2}.Span(`["a","b","c"]`)
	require.ErrorContains(t, err, "more values")
}

func TestADefinitionThatCannotBeIsNamed(t *testing.T) {
	for field, d := range map[string]Definition{
		"Kind is Spatial": {Kind: "Spatial"}, "Version is 3": {Version: 3}, "Version is -1": {Kind: KindMultiHash, Version: -1},
		"Version is 1, want 2": {Kind: KindMultiHash, Version: 1}, "Paths is -1": {Paths: -1},
	} {
		_, err := d.Span(`["a"]`)
		var bad *DefinitionError
		require.ErrorAs(t, err, &bad)
		require.ErrorContains(t, err, field)
	}
}

func TestKeysCompareBytewiseWithMissingBytesAsZero(t *testing.T) {
	raw := rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 5, 0xC1, 0xFE, 0xFF}), 0, 40)
	rapid.Check(t, func(t *rapid.T) {
		a, b := raw.Draw(t, "a"), raw.Draw(t, "b")
		if rapid.Bool().Draw(t, "related") {
			b = append(bytes.Clone(a), b...)
		}
		pad := func(x []byte) []byte { return append(bytes.Clone(x), make([]byte, 100-len(x))...) }
		want := bytes.Compare(pad(a), pad(b))
		ka, err := ParseKey(hex.EncodeToString(a))
		require.NoError(t, err)
		kb, err := ParseKey(strings.ToUpper(hex.EncodeToString(b)))
		require.NoError(t, err)
		require.Equal(t, want, ka.Compare(kb))
		require.Equal(t, want == 0, ka == kb)
		require.Equal(t, want < 0, ka.less(&kb))
		back, err := ParseKey(ka.String())
		require.NoError(t, err)
		require.Equal(t, ka, back)
	})
}

func TestZerosAtTheEndOfAKeyMeanNothing(t *testing.T) {
	for _, digits := range []string{"", "05C1", strings.Repeat("0A", 15), strings.Repeat("0A", 16), strings.Repeat("0A", 17), strings.Repeat("0A", 40)} {
		for _, zeros := range []int{1, 2, 16, 40} {
			padded := digits + strings.Repeat("00", zeros)
			require.Equal(t, key(digits), key(padded))
			require.Zero(t, key(digits).Compare(key(padded)))
			require.Equal(t, digits, key(padded).String())
			require.Negative(t, key(padded).Compare(key(padded+"01")))
		}
	}
}

func TestParseKeyRefusesWhatIsNoKey(t *testing.T) {
	for text, offset := range map[string]int{"0": 1, "0G": 1, "05C": 3, " 5": 0, "05é": 2, "0x05": 1, strings.Repeat("0", 2050): 2048} {
		_, err := ParseKey(text)
		var bad *HexError
		require.ErrorAs(t, err, &bad, text)
		require.Equal(t, offset, bad.Offset, text)
		require.LessOrEqual(t, len(bad.Text), 64)
	}
	k, err := ParseKey("")
	require.NoError(t, err)
	require.Equal(t, Key{}, k)
	k, err = ParseKey("ff")
	require.NoError(t, err)
	require.Equal(t, MaxKey(), k)
	require.Equal(t, "FF", k.String())
	require.Equal(t, "[, FF)", Span{Max: k}.String())
}

// The order of V1 numbers is the order of the numbers, which is why the encoding is what it is.
func TestVersion1NumbersKeepTheirOrder(t *testing.T) {
	number := rapid.Float64()
	rapid.Check(t, func(t *rapid.T) {
		a, b := number.Draw(t, "a"), number.Draw(t, "b")
		ea, eb := appendV1(nil, appendNumber(nil, a)), appendV1(nil, appendNumber(nil, b))
		want := big.NewFloat(a).Cmp(big.NewFloat(b))
		if a == 0 && b == 0 {
			return // -0 has its own encoding; a header never gives it
		}
		require.Equal(t, want, bytes.Compare(ea, eb))
	})
}
