package cosmos

import (
	"encoding/json"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxMessage bounds what an error repeats of the service's words.
const maxMessage = 512

// messageOf is wordsOf on one line of valid UTF-8, at most maxMessage bytes long.
func messageOf(body []byte) string { return fold(wordsOf(body), maxMessage) }

// wordsOf finds the words in an error's body: {"code":..,"message":..}, where the message may hold a JSON list of
// errors of its own, or plain text.
func wordsOf(body []byte) string {
	var envelope struct{ Code, Message string }
	if json.Unmarshal(body, &envelope) != nil || envelope.Code == "" && envelope.Message == "" {
		return string(body)
	}
	message := envelope.Message
	if start := strings.IndexByte(message, '{'); start >= 0 {
		var inner struct{ Errors []string }
		if json.NewDecoder(strings.NewReader(message[start:])).Decode(&inner) == nil && len(inner.Errors) > 0 {
			message = strings.Join(inner.Errors, "; ")
		}
	}
	if envelope.Code == "" {
		return message
	}
	return envelope.Code + ": " + message
}

// fold puts text on one line of at most limit bytes: what is blank or does not print becomes a single blank.
func fold(text string, limit int) string {
	var b strings.Builder
	blank := false
	for _, r := range text {
		if unicode.IsSpace(r) || !unicode.IsPrint(r) {
			blank = b.Len() > 0
			continue
		}
		need := utf8.RuneLen(r)
		if blank {
			need++
		}
		if b.Len()+need > limit {
			break
		}
		if blank {
			b.WriteByte(' ')
			blank = false
		}
		b.WriteRune(r)
	}
	return b.String()
}
