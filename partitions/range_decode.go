package partitions

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// maxPage bounds a page of ranges. Cosmos DB ends its pages at 4 MiB.
const maxPage = 16 << 20

// DecodeRanges reads one page of a pkranges feed, {"PartitionKeyRanges":[...]}, to its end. The ranges come back as
// delivered, copies included; [NewMap] judges the set.
//
// Each range needs id, minInclusive and maxExclusive, and an end after its start. Ids are 1 to 128 bytes of visible
// ASCII without comma and colon, which separate them in session tokens; some servers write them as JSON numbers, which
// is accepted for whole numbers. Fields that are not known are ignored. Anything else, and a page above 16 MiB, is a
// [*PageError]; it wraps an error of page.
func DecodeRanges(page io.Reader) ([]Range, error) {
	// Read whole first: a json.Decoder looks at all of a run of spaces again after each read, so a page of spaces in
	// small pieces would keep it busy for minutes.
	data, err := io.ReadAll(io.LimitReader(page, maxPage+1))
	if err != nil {
		return nil, &PageError{Index: -1, Err: err}
	}
	if len(data) > maxPage {
		return nil, &PageError{Index: -1, Reason: fmt.Sprintf("larger than %d bytes", maxPage)}
	}
	return decodePage(json.NewDecoder(bytes.NewReader(data)))
}

func decodePage(dec *json.Decoder) ([]Range, error) {
	if err := expect(dec, json.Delim('{')); err != nil {
		return nil, err
	}
	var ranges []Range
	found := false
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return nil, pageError(err)
		}
		if name != "PartitionKeyRanges" {
			var ignored json.RawMessage
			if err := dec.Decode(&ignored); err != nil {
				return nil, pageError(err)
			}
			continue
		}
		if found {
			return nil, &PageError{Index: -1, Field: "PartitionKeyRanges", Reason: "given twice"}
		}
		found = true
		if ranges, err = decodeList(dec); err != nil {
			return nil, err
		}
	}
	if err := expect(dec, json.Delim('}')); err != nil {
		return nil, err
	}
	if !found {
		return nil, &PageError{Index: -1, Field: "PartitionKeyRanges", Reason: "missing"}
	}
	if _, err := dec.Token(); err == nil {
		return nil, &PageError{Index: -1, Reason: "text after the page"}
	} else if err != io.EOF {
		return nil, pageError(err)
	}
	return ranges, nil
}

// decodeList decodes range by range, so that junk ends it before memory is spent on the rest.
func decodeList(dec *json.Decoder) ([]Range, error) {
	if err := expect(dec, json.Delim('[')); err != nil {
		return nil, err
	}
	var ranges []Range
	for dec.More() {
		var wire wireRange
		if err := dec.Decode(&wire); err != nil {
			return nil, at(len(ranges), err)
		}
		r, err := wire.toRange()
		if err != nil {
			return nil, at(len(ranges), err)
		}
		ranges = append(ranges, r)
	}
	return ranges, expect(dec, json.Delim(']'))
}

func expect(dec *json.Decoder, want json.Delim) error {
	got, err := dec.Token()
	if err != nil {
		return pageError(err)
	}
	if got != want {
		return &PageError{Index: -1, Value: clip(fmt.Sprint(got)), Reason: "want " + want.String()}
	}
	return nil
}

// wireRange is a range as the service writes it.
type wireRange struct {
	ID      wireID   `json:"id"`
	Min     *string  `json:"minInclusive"`
	Max     *string  `json:"maxExclusive"`
	Status  Status   `json:"status"`
	Parents []wireID `json:"parents"`
}

func (w *wireRange) toRange() (Range, error) {
	if w.ID == "" {
		return Range{}, &PageError{Field: "id", Reason: "missing"}
	}
	r := Range{ID: string(w.ID), Status: w.Status}
	var err error
	if r.Min, err = boundary("minInclusive", w.Min); err != nil {
		return Range{}, err
	}
	if r.Max, err = boundary("maxExclusive", w.Max); err != nil {
		return Range{}, err
	}
	if len(w.Parents) > 0 {
		r.Parents = make([]string, len(w.Parents))
		for i, parent := range w.Parents {
			if parent == "" {
				return Range{}, &PageError{Field: "parents", Reason: "a null in the list"}
			}
			r.Parents[i] = string(parent)
		}
	}
	return r, r.check()
}

func boundary(field string, text *string) (Key, error) {
	if text == nil {
		return Key{}, &PageError{Field: field, Reason: "missing"}
	}
	k, err := ParseKey(*text)
	if err != nil {
		return Key{}, &PageError{Field: field, Err: err}
	}
	return k, nil
}

// wireID is the id of a range, a JSON string or a whole number. null leaves it empty, like a missing field.
type wireID string

// UnmarshalJSON accepts a string or a whole number.
func (id *wireID) UnmarshalJSON(data []byte) error {
	text := string(data)
	switch {
	case text == "null":
		return nil
	case data[0] == '"':
		if err := json.Unmarshal(data, &text); err != nil {
			return err
		}
	default:
		for _, c := range text {
			if c < '0' || c > '9' {
				return &PageError{Field: "id", Value: clip(text), Reason: "neither a string nor a whole number"}
			}
		}
	}
	if text == "" || len(text) > 128 {
		return &PageError{Field: "id", Value: clip(text), Reason: "not 1 to 128 bytes"}
	}
	for _, c := range []byte(text) {
		if c <= ' ' || c > '~' || c == ',' || c == ':' {
			return &PageError{Field: "id", Value: clip(text), Reason: "a byte that an id cannot have"}
		}
	}
	*id = wireID(text)
	return nil
}

// PageError says why a page of ranges was refused.
type PageError struct {
	Index  int    // of the range in the page, -1 for the page itself
	Field  string // JSON name, or ""
	Value  string // the value, cut to 64 bytes, or ""
	Reason string // what is wrong with it, or ""
	Err    error  // the error of the reader, of the JSON, of the key or of the range behind it, or nil
}

// Error names the range, the field and the reason.
func (e *PageError) Error() string {
	text := "partitions: page of ranges"
	if e.Index >= 0 {
		text += fmt.Sprintf(", range %d", e.Index)
	}
	if e.Field != "" {
		text += ", " + e.Field
	}
	if e.Value != "" {
		text += fmt.Sprintf(" %q", e.Value)
	}
	if e.Reason != "" {
		text += ": " + e.Reason
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap returns the error behind it, or nil.
func (e *PageError) Unwrap() error { return e.Err }

// pageError wraps what the decoder met. A page that just stops is never a good end.
func pageError(err error) error {
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) { // which repeats a number whole, however long
		short := *wrong
		short.Value = clip(wrong.Value)
		err = &short
	}
	return &PageError{Index: -1, Err: err}
}

// at names the range that err is about.
func at(index int, err error) error {
	var page *PageError
	if errors.As(err, &page) {
		page.Index = index
		return page
	}
	wrapped := pageError(err).(*PageError)
	wrapped.Index = index
	return wrapped
}
