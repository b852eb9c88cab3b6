package rest

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"time"
)

const (
	keptBytes  = 2048 // of a failing answer's body
	shownRunes = 500  // of those, in an Error
	// shownMessages of a GraphQL answer are in an Error's text; all are in its field.
	shownMessages = 5
	bodyTime      = 5 * time.Second // for a failing answer's body to come
)

// keep reads the beginning of resp's body, within bounds of bytes and time, closes
// it and puts what was read in its place.
func keep(resp *http.Response) []byte {
	timer := time.AfterFunc(bodyTime, func() { _ = resp.Body.Close() })
	defer timer.Stop()
	kept, _ := io.ReadAll(io.LimitReader(resp.Body, keptBytes))
	_ = resp.Body.Close()
	replace(resp, kept)
	return kept
}

// replace puts the beginning of what was read in the place of resp's body.
func replace(resp *http.Response, read []byte) {
	resp.Body = io.NopCloser(bytes.NewReader(bytes.Clone(read[:min(len(read), keptBytes)])))
}

// shown is a body as text, cut to whole characters.
func shown(body []byte) string {
	text := strings.ToValidUTF8(string(body[:min(len(body), 4*shownRunes)]), "")
	n := 0
	for i := range text {
		if n == shownRunes {
			return text[:i]
		}
		n++
	}
	return text
}
