package ownership

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// IfVersion makes req succeed only while the key is at this version, as returned
// by Version: If-Match. Its repeat after a lost answer is then a Conflict, not a
// second write. It returns an error, and changes nothing, when req already asks
// for the opposite (Z082) or version cannot stand in a header.
func IfVersion(req *http.Request, version string) error {
	if other := req.Header.Get("If-None-Match"); other != "" {
		return fmt.Errorf("ownership: If-Match beside If-None-Match: %q can never succeed", other)
	}
	if version == "" || strings.ContainsFunc(version, func(r rune) bool { return r < 0x21 || r == '"' || r >= 0x7f }) {
		return fmt.Errorf("ownership: version is %q, want printable ASCII without quotes and spaces", version)
	}
	req.Header.Set("If-Match", strconv.Quote(version))
	return nil
}

// IfAbsent makes req succeed only while the key does not exist: If-None-Match: *
// (Z081). It returns an error, and changes nothing, when req already asks for a
// version (Z082).
func IfAbsent(req *http.Request) error {
	if other := req.Header.Get("If-Match"); other != "" {
		return fmt.Errorf("ownership: If-None-Match beside If-Match: %q can never succeed", other)
	}
	req.Header.Set("If-None-Match", "*")
	return nil
}

// Version returns the version of what resp holds or has written, from its strong
// entity tag. A missing, weak or malformed tag is not ok (Z089).
func Version(resp *http.Response) (version string, ok bool) {
	tag := strings.TrimSpace(resp.Header.Get("ETag"))
	if len(tag) < 3 || tag[0] != '"' || tag[len(tag)-1] != '"' {
		return "", false
	}
	version = tag[1 : len(tag)-1]
	return version, !strings.Contains(version, `"`)
}
