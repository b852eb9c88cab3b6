package partitions

import (
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// values reads the JSON array of a partition key header, value by value, straight into hash input.
//
// It is not encoding/json because every request passes here: reading ["<uuid>"] alone costs that 580 ns and 6
// allocations, where all of Span, hash included, takes 67 ns and none (BenchmarkSpan). The fuzz test holds it to accept,
// refuse and decode exactly what encoding/json does.
type values struct {
	text string
	pos  int
	n    int // values read so far
}

func (v *values) fail(kind, reason string) error {
	return &KeyError{Component: v.n, Kind: kind, Offset: v.pos, Reason: reason}
}

// peek is the byte at the cursor, or 0 at the end: NUL is no JSON outside of a string and not allowed inside.
func (v *values) peek() byte {
	if v.pos < len(v.text) {
		return v.text[v.pos]
	}
	return 0
}

func (v *values) skipSpace() {
	for v.pos < len(v.text) {
		switch v.text[v.pos] {
		case ' ', '\t', '\r', '\n':
			v.pos++
		default:
			return
		}
	}
}

// open passes the bracket.
func (v *values) open() error {
	v.skipSpace()
	if v.peek() != '[' {
		return v.fail("", "not a JSON array")
	}
	v.pos++
	return nil
}

// next adds the next value to buf, its marker and then its payload: nothing, eight bytes or UTF-8. It is false after
// the last of at most limit values, when the rest of the text is in order too.
func (v *values) next(buf []byte, limit int) ([]byte, bool, error) {
	v.skipSpace()
	if v.peek() == ']' {
		return buf, false, v.close()
	}
	if v.n > 0 {
		if v.peek() != ',' {
			return buf, false, v.fail("", "neither a comma nor the end of the array")
		}
		v.pos++
		v.skipSpace()
	}
	if v.n == limit {
		return buf, false, v.fail("", "more values than the container has paths ("+strconv.Itoa(limit)+")")
	}
	buf, err := v.value(buf)
	if err != nil {
		return buf, false, err
	}
	v.n++
	return buf, true, nil
}

func (v *values) close() error {
	v.pos++
	v.skipSpace()
	if v.pos < len(v.text) {
		return v.fail("", "text after the array")
	}
	return nil
}

func (v *values) value(buf []byte) ([]byte, error) {
	switch c := v.peek(); {
	case c == '"':
		return v.str(append(buf, markString))
	case c == '-' || '0' <= c && c <= '9':
		return v.number(buf)
	case c == 'n':
		return append(buf, markNull), v.literal("null", "null")
	case c == 't':
		return append(buf, markTrue), v.literal("true", "boolean")
	case c == 'f':
		return append(buf, markFalse), v.literal("false", "boolean")
	case c == '{':
		v.pos++
		v.skipSpace()
		if v.peek() != '}' {
			return buf, v.fail("object", "only {} may be a value")
		}
		v.pos++
		return append(buf, markUndefined), nil
	case c == '[':
		return buf, v.fail("array", "an array is no value")
	}
	return buf, v.fail("", "no JSON value")
}

func (v *values) literal(word, kind string) error {
	if len(v.text)-v.pos < len(word) || v.text[v.pos:v.pos+len(word)] != word {
		return v.fail(kind, "no JSON value")
	}
	v.pos += len(word)
	return nil
}

// number follows the grammar of JSON. Integers are converted on the way while they fit: the conversion of an int64 to a
// double rounds as that of its text does.
func (v *values) number(buf []byte) ([]byte, error) {
	start := v.pos
	negative := v.peek() == '-'
	if negative {
		v.pos++
	}
	digits := v.pos
	var n int64
	for '0' <= v.peek() && v.peek() <= '9' {
		n = n*10 + int64(v.peek()-'0') // may wrap; then it is not used
		v.pos++
	}
	switch length := v.pos - digits; {
	case length == 0:
		return buf, v.fail("number", "no digits")
	case length > 1 && v.text[digits] == '0':
		return buf, v.fail("number", "a leading zero")
	}
	integer := v.pos-digits <= 18
	if v.peek() == '.' {
		integer = false
		v.pos++
		if !v.skipDigits() {
			return buf, v.fail("number", "no digits after the point")
		}
	}
	if c := v.peek(); c == 'e' || c == 'E' {
		integer = false
		v.pos++
		if c := v.peek(); c == '+' || c == '-' {
			v.pos++
		}
		if !v.skipDigits() {
			return buf, v.fail("number", "no digits in the exponent")
		}
	}
	f := float64(n)
	if negative {
		f = -f
	}
	if !integer {
		var err error
		if f, err = strconv.ParseFloat(v.text[start:v.pos], 64); err != nil {
			return buf, v.fail("number", "beyond the reach of a double")
		}
	}
	if f == 0 {
		f = 0 // -0 is the same number and must be the same key
	}
	return appendNumber(buf, f), nil
}

func (v *values) skipDigits() bool {
	start := v.pos
	for '0' <= v.peek() && v.peek() <= '9' {
		v.pos++
	}
	return v.pos > start
}

// str adds the text of the string at the cursor.
func (v *values) str(buf []byte) ([]byte, error) {
	text, i := v.text, v.pos+1
	for {
		run := i
		for i < len(text) && plain[text[i]] {
			i++
		}
		buf = append(buf, text[run:i]...)
		v.pos = i
		if i == len(text) {
			return buf, v.fail("string", "no closing quote")
		}
		switch c := text[i]; {
		case c == '"':
			v.pos++
			return buf, nil
		case c == '\\':
			var err error
			if buf, err = v.escape(buf); err != nil {
				return buf, err
			}
			i = v.pos
		case c < ' ':
			return buf, v.fail("string", "a control character")
		default:
			r, size := utf8.DecodeRuneInString(text[i:])
			buf = utf8.AppendRune(buf, r)
			i += size
		}
	}
}

// plain is the bytes of a string that stand for themselves.
var plain = func() (set [256]bool) {
	for c := ' '; c < utf8.RuneSelf; c++ {
		set[c] = c != '"' && c != '\\'
	}
	return set
}()

// escape adds what the escape at the cursor stands for.
func (v *values) escape(buf []byte) ([]byte, error) {
	if v.pos+1 == len(v.text) {
		return buf, v.fail("string", "no closing quote")
	}
	c := v.text[v.pos+1]
	switch c {
	case '"', '\\', '/':
	case 'b':
		c = '\b'
	case 'f':
		c = '\f'
	case 'n':
		c = '\n'
	case 'r':
		c = '\r'
	case 't':
		c = '\t'
	case 'u':
		r := unicodeEscape(v.text[v.pos:])
		if r < 0 {
			return buf, v.fail("string", `no four hexadecimal digits after \u`)
		}
		v.pos += 6
		if utf16.IsSurrogate(r) {
			// A lone surrogate is U+FFFD, and what follows it stands for itself.
			if r = utf16.DecodeRune(r, unicodeEscape(v.text[v.pos:])); r != utf8.RuneError {
				v.pos += 6
			}
		}
		return utf8.AppendRune(buf, r), nil
	default:
		return buf, v.fail("string", "an escape that JSON does not have")
	}
	v.pos += 2
	return append(buf, c), nil
}

// unicodeEscape is the code unit of the \uXXXX that text begins with, or -1.
func unicodeEscape(text string) rune {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
		return -1
	}
	var r rune
	for _, c := range []byte(text[2:6]) {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return -1
		}
		r = r<<4 | rune(c)
	}
	return r
}
