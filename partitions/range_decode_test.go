package partitions

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

// As the official Go SDK receives it.
const onePage = `{"PartitionKeyRanges":[{"id":"0","minInclusive":"","maxExclusive":"FF","ridPrefix":0,"throughputFraction":1,"status":"online","parents":[],"_etag":"dc14c463","_rid":"gAABAIAAAAEBAAAAAAAAUA==","_self":"/dbs/gAABAA==/colls/gAABAIAAAAE=/pkranges/gAABAIAAAAEBAAAAAAAAUA==","_ts":1795976809}],"_count":1}`

func page(ranges string) string {
	return `{"_rid":"x","PartitionKeyRanges":[` + ranges + `],"_count":1}`
}

func TestAPageOfTheServiceIsRead(t *testing.T) {
	got, err := DecodeRanges(iotest.OneByteReader(strings.NewReader(onePage)))
	require.NoError(t, err)
	require.Equal(t, []Range{{ID: "0", Max: MaxKey(), Status: StatusOnline}}, got)

	got, err = DecodeRanges(strings.NewReader(page(
		`{"id":"3","minInclusive":"","maxExclusive":"05c1df","parents":["0","1"],"status":"offline"},`+
			`{"id":"3","minInclusive":"","maxExclusive":"05C1DF00","parents":null,"status":"melting"}`) + "\n"))
	require.NoError(t, err)
	require.Equal(t, []Range{
		{ID: "3", Max: key("05C1DF"), Parents: []string{"0", "1"}, Status: StatusOffline},
		{ID: "3", Max: key("05C1DF"), Status: "melting"},
	}, got, "copies are the map's business, and so is a status that is new")

	got, err = DecodeRanges(strings.NewReader(`{"PartitionKeyRanges":[]}`))
	require.NoError(t, err)
	require.Empty(t, got)
}

// The npm Cosmos server writes ids as numbers.
func TestIdsMayBeJSONNumbers(t *testing.T) {
	got, err := DecodeRanges(strings.NewReader(page(`{"id":12,"minInclusive":"","maxExclusive":"FF","parents":[3,"4"]}`)))
	require.NoError(t, err)
	require.Equal(t, []Range{{ID: "12", Max: MaxKey(), Parents: []string{"3", "4"}}}, got)
}

func TestAJunkPageIsRefusedWithThePlace(t *testing.T) {
	const good = `{"id":"0","minInclusive":"","maxExclusive":"10"}`
	for _, c := range []struct {
		page  string
		index int
		text  string
	}{
		{``, -1, "unexpected EOF"},
		{`[]`, -1, `"[": want {`},
		{`"secret"`, -1, "want {"},
		{`null`, -1, "want {"},
		{`<html>`, -1, "invalid character"},
		{`{}`, -1, "PartitionKeyRanges: missing"},
		{`{"partitionkeyranges":[]}`, -1, "PartitionKeyRanges: missing"},
		{`{"PartitionKeyRanges":null}`, -1, "want ["},
		{`{"PartitionKeyRanges":{}}`, -1, "want ["},
		{`{"PartitionKeyRanges":[],"PartitionKeyRanges":[]}`, -1, "given twice"},
		{`{"PartitionKeyRanges":[]`, -1, "unexpected EOF"},
		{`{"PartitionKeyRanges":[]}x`, -1, "invalid character"},
		{`{"PartitionKeyRanges":[]}{}`, -1, "text after the page"},
		{`{"PartitionKeyRanges":[` + good, -1, "unexpected EOF"},
		{`{"PartitionKeyRanges":[` + good + `,`, 1, "unexpected EOF"},
		{onePage[:len(onePage)/2], 0, "unexpected EOF"},
		{page(good + `,null`), 1, "id: missing"},
		{page(good + `,{}`), 1, "id: missing"},
		{page(good + `,{"id":null,"minInclusive":"","maxExclusive":"FF"}`), 1, "id: missing"},
		{page(good + `,[]`), 1, "cannot unmarshal"},
		{page(good + `,{"id":"","minInclusive":"","maxExclusive":"FF"}`), 1, "not 1 to 128 bytes"},
		{page(`{"id":"` + strings.Repeat("1", 129) + `","minInclusive":"","maxExclusive":"FF"}`), 0, "not 1 to 128 bytes"},
		{page(`{"id":` + strings.Repeat("1", 129) + `,"minInclusive":"","maxExclusive":"FF"}`), 0, "not 1 to 128 bytes"},
		{page(`{"id":1.5,"minInclusive":"","maxExclusive":"FF"}`), 0, `id "1.5": neither`},
		{page(`{"id":-1,"minInclusive":"","maxExclusive":"FF"}`), 0, `id "-1": neither`},
		{page(`{"id":1e3,"minInclusive":"","maxExclusive":"FF"}`), 0, `id "1e3": neither`},
		{page(`{"id":true,"minInclusive":"","maxExclusive":"FF"}`), 0, `id "true": neither`},
		{page(`{"id":["1"],"minInclusive":"","maxExclusive":"FF"}`), 0, `neither`},
		{page(`{"id":"1,2","minInclusive":"","maxExclusive":"FF"}`), 0, `id "1,2": a byte`},
		{page(`{"id":"1\r\nX: y","minInclusive":"","maxExclusive":"FF"}`), 0, "a byte"},
		{page(`{"id":"é","minInclusive":"","maxExclusive":"FF"}`), 0, "a byte"},
		{page(`{"id":"1","maxExclusive":"FF"}`), 0, "minInclusive: missing"},
		{page(`{"id":"1","minInclusive":""}`), 0, "maxExclusive: missing"},
		{page(`{"id":"1","minInclusive":null,"maxExclusive":"FF"}`), 0, "minInclusive: missing"},
		{page(`{"id":"1","minInclusive":5,"maxExclusive":"FF"}`), 0, "minInclusive"},
		{page(`{"id":"1","minInclusive":"0G","maxExclusive":"FF"}`), 0, `minInclusive: partitions: key "0G", byte 1`},
		{page(`{"id":"1","minInclusive":"","maxExclusive":"F"}`), 0, "an odd number of digits"},
		{page(`{"id":"1","minInclusive":"20","maxExclusive":"10"}`), 0, `malformed range: "1" [20, 10)`},
		{page(`{"id":"1","minInclusive":"20","maxExclusive":"2000"}`), 0, "malformed range"},
		{page(`{"id":"1","minInclusive":"20","maxExclusive":"FFFF"}`), 0, "malformed range"},
		{page(`{"id":"1","minInclusive":"","maxExclusive":"FF","parents":["1"]}`), 0, "its own parent"},
		{page(`{"id":"1","minInclusive":"","maxExclusive":"FF","parents":[""]}`), 0, "not 1 to 128 bytes"},
		{page(`{"id":"1","minInclusive":"","maxExclusive":"FF","parents":[null]}`), 0, "parents: a null"},
		{page(`{"id":"1","minInclusive":"","maxExclusive":"FF","parents":"0"}`), 0, "parents"},
		{page(`{"id":"1","minInclusive":"","maxExclusive":"FF","status":7}`), 0, "status"},
	} {
		got, err := DecodeRanges(strings.NewReader(c.page))
		require.Nil(t, got, c.page)
		var bad *PageError
		require.ErrorAs(t, err, &bad, c.page)
		require.ErrorContains(t, err, c.text, c.page)
		require.Equal(t, c.index, bad.Index, "%s: %v", c.page, err)
	}
}

func TestTheReasonsBehindAPageErrorCanBeTested(t *testing.T) {
	_, err := DecodeRanges(strings.NewReader(onePage[:40]))
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	_, err = DecodeRanges(strings.NewReader(page(`{"id":"1","minInclusive":"20","maxExclusive":"10"}`)))
	require.ErrorIs(t, err, ErrMalformedRange)
	broken := errors.New("connection reset")
	for _, n := range []int{0, 10, 30, 60, len(onePage)} {
		_, err = DecodeRanges(io.MultiReader(strings.NewReader(onePage[:n]), iotest.ErrReader(broken)))
		require.ErrorIs(t, err, broken, n)
	}
}

// endless never stops saying the same.
type endless struct {
	text string
	read int
}

func (e *endless) Read(p []byte) (int, error) {
	n := 0
	for n < len(p) {
		n += copy(p[n:], e.text[(e.read+n)%len(e.text):])
	}
	e.read += n
	return n, nil
}

func TestAnEndlessPageIsGivenUp(t *testing.T) {
	for _, start := range []string{``, `{"x":"`, `{"PartitionKeyRanges":[`, onePage} {
		body := &endless{text: `{"id":"7","minInclusive":"","maxExclusive":"FF"},`}
		_, err := DecodeRanges(io.MultiReader(strings.NewReader(start), body))
		require.EqualError(t, err, "partitions: page of ranges: larger than 16777216 bytes")
		require.LessOrEqual(t, body.read, maxPage+1)
	}
}

// A json.Decoder takes time that grows with the square of this, unless it has the page whole.
func TestAPageOfSpacesInSmallPiecesTakesNoLongerThanOthers(t *testing.T) {
	_, err := DecodeRanges(iotest.OneByteReader(strings.NewReader(strings.Repeat(" ", 1<<20))))
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
}

func TestAPageUpToTheLimitIsRead(t *testing.T) {
	fill := strings.Repeat(" ", maxPage-len(onePage))
	got, err := DecodeRanges(strings.NewReader(onePage + fill))
	require.NoError(t, err)
	require.Len(t, got, 1)
	_, err = DecodeRanges(strings.NewReader(onePage + fill + " "))
	require.ErrorContains(t, err, "larger than")
}

// What is accepted is well formed, and what is written again reads the same.
func FuzzDecodeRanges(f *testing.F) {
	f.Add([]byte(onePage))
	f.Add([]byte(page(`{"id":12,"minInclusive":"","maxExclusive":"3f","parents":[3,"4"]},{"id":"13","minInclusive":"3F00","maxExclusive":"FF","status":"splitting"}`)))
	for _, junk := range []string{``, `{}`, `{"PartitionKeyRanges":[{}]}`, `{"PartitionKeyRanges":[`, page(`{"id":1e9,"minInclusive":"","maxExclusive":"FF"}`), page(`{"id":"1","minInclusive":"20","maxExclusive":"10"}`)} {
		f.Add([]byte(junk))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := DecodeRanges(strings.NewReader(string(data)))
		if err != nil {
			var bad *PageError
			require.ErrorAs(t, err, &bad)
			require.NotEmpty(t, bad.Error())
			return
		}
		require.True(t, json.Valid(data), "%q", data)
		type wire struct {
			ID      string   `json:"id"`
			Min     string   `json:"minInclusive"`
			Max     string   `json:"maxExclusive"`
			Parents []string `json:"parents"`
			Status  Status   `json:"status"`
		}
		again := struct{ PartitionKeyRanges []wire }{PartitionKeyRanges: []wire{}}
		for _, r := range got {
			require.NoError(t, r.check())
			again.PartitionKeyRanges = append(again.PartitionKeyRanges, wire{r.ID, r.Min.String(), r.Max.String(), r.Parents, r.Status})
		}
		text, err := json.Marshal(again)
		require.NoError(t, err)
		back, err := DecodeRanges(strings.NewReader(string(text)))
		require.NoError(t, err)
		require.Equal(t, got, back)

		m, err := NewMap(got)
		if err == nil {
			require.NoError(t, checkComplete(m.ranges))
			for i := range m.Len() {
				require.False(t, m.Gone(m.ID(i)))
				found, ok := m.Find(m.At(i).Min)
				require.True(t, ok)
				require.Equal(t, i, found)
			}
		} else {
			var bad *MapError
			require.ErrorAs(t, err, &bad)
		}
	})
}

func BenchmarkDecodeRanges(b *testing.B) {
	for _, n := range []int{100, 10_000} {
		m := evenMap(b, n)
		var text strings.Builder
		text.WriteString(`{"PartitionKeyRanges":[`)
		for i := range n {
			if i > 0 {
				text.WriteByte(',')
			}
			r := m.At(i)
			fmt.Fprintf(&text, `{"id":%q,"minInclusive":%q,"maxExclusive":%q,"ridPrefix":%d,"throughputFraction":0.1,"status":"online","parents":[],"_etag":"dc14c463","_ts":1795976809}`, r.ID, r.Min.String(), r.Max.String(), i)
		}
		text.WriteString(`]}`)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(text.Len()))
			for b.Loop() {
				if _, err := DecodeRanges(strings.NewReader(text.String())); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
