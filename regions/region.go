// Package regions knows where requests can go: the regions of an account, which of them are in trouble, and which one
// serves the next attempt. It knows nothing of HTTP statuses; a Source tells it the topology, and reports tell it how
// endpoints behave.
package regions

import (
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Name is a region's display name, such as "West US 2". Names are the same when they differ only in case and spaces
// (compare with Equal, not ==).
type Name string

// Equal reports whether n and other name the same region.
func (n Name) Equal(other Name) bool {
	if n == other {
		return true
	}
	i, j := 0, 0
	for {
		for i < len(n) && isSpace(n[i]) {
			i++
		}
		for j < len(other) && isSpace(other[j]) {
			j++
		}
		switch {
		case i < len(n) && n[i] >= utf8.RuneSelf, j < len(other) && other[j] >= utf8.RuneSelf:
			return n.Key() == other.Key() // rare, so it may allocate
		case i == len(n) || j == len(other):
			return i == len(n) && j == len(other)
		case lower(n[i]) != lower(other[j]):
			return false
		}
		i++
		j++
	}
}

// Key returns the canonical spelling, "westus2" for "West US 2": equal names have equal keys.
func (n Name) Key() string {
	return strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return -1
		}
		return unicode.ToLower(r)
	}, string(n))
}

func isSpace(c byte) bool { return c == ' ' || '\t' <= c && c <= '\r' }

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		c += 'a' - 'A'
	}
	return c
}

func contains(names []Name, n Name) bool {
	for _, other := range names {
		if n.Equal(other) {
			return true
		}
	}
	return false
}

// Endpoint is a region and the address that serves it there.
type Endpoint struct {
	Region Name     // its name; not empty
	URL    *url.URL // scheme and host[:port] only. Shared: must not be changed
}

// List names the regions that can serve a request, in order: first the preferred ones (Config.Preferred) that exist, in
// order of preference, then the rest in account order (R063).
type List uint8

const (
	// ReadRegions is every region that serves reads, or the write regions if the account names none for reads.
	ReadRegions List = iota
	// WriteRegions is every region that takes writes: all of an account with multiple write regions, else the hub alone.
	WriteRegions
	// Hub is the account's first write region, whatever the preference.
	Hub
)

// String is the list's name in lower case words.
func (l List) String() string {
	switch l {
	case ReadRegions:
		return "read regions"
	case WriteRegions:
		return "write regions"
	case Hub:
		return "hub"
	}
	return "unknown list"
}
