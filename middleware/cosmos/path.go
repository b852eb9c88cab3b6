package cosmos

import (
	"net/url"
	"strings"
)

// place is what a path names: one thing, or the feed of all things of a kind below an owner.
type place struct {
	kind resource
	feed bool
	// id is the last segment of one thing.
	id string
	// container is "dbs/{d}/colls/{c}", unescaped, for a container and what is below it.
	container string
	// link is the path without slashes around it and without an accounts/{id} prefix; for a feed it ends with the
	// owner.
	link string
	// escaped says that id and link are still escaped.
	escaped bool
}

// placeOf reads a URL's path. Resource words compare without case, and a word is known by its position, never by its
// text: an item may well be called "docs". Slashes at the ends, or several together, do not count. A path that breaks
// the grammar is of kind unknown.
//
// It allocates nothing but for a container whose name is escaped or oddly written.
func placeOf(u *url.URL) place {
	if u == nil || u.Opaque != "" {
		return place{}
	}
	// Without a RawPath the path's encoding is the usual one, and no escaped slash hides in an id.
	path := u.Path
	if u.RawPath != "" {
		path = u.EscapedPath()
	}
	word, start, end := segment(path, 0)
	if len(word) == len("accounts") && strings.EqualFold(word, "accounts") {
		if _, _, after := segment(path, end); after > end {
			word, start, end = segment(path, after)
		}
	}
	p := place{kind: account, escaped: u.RawPath != ""}
	first, owned := start, start
	for word != "" {
		p.kind = childOf(p.kind, word)
		if p.kind == unknown {
			return place{}
		}
		id, _, idEnd := segment(path, end)
		if p.feed = id == ""; p.feed {
			p.link = strings.TrimRight(path[first:start], "/")
			return p
		}
		if p.kind == container {
			p.container = containerName(path[first:idEnd], p.id, id, p.escaped)
		}
		p.id, owned = id, idEnd
		word, start, end = segment(path, idEnd)
	}
	p.link = path[first:owned]
	return p
}

// segment returns the next segment of path at or after i, skipping slashes, and where it begins and ends. At the end
// of the path it returns "".
func segment(path string, i int) (s string, start, end int) {
	for i < len(path) && path[i] == '/' {
		i++
	}
	if end = strings.IndexByte(path[i:], '/'); end < 0 {
		return path[i:], i, len(path)
	}
	return path[i : i+end], i, i + end
}

func childOf(owner resource, word string) resource {
	for _, r := range children[owner] {
		if word == resources[r].word || strings.EqualFold(word, resources[r].word) {
			return r
		}
	}
	return unknown
}

// containerName gives a container one name, however its path is written, since caches are kept by it.
func containerName(written, db, coll string, escaped bool) string {
	if !escaped || strings.IndexByte(written, '%') < 0 {
		const word, between = "dbs/", "/colls/"
		if len(written) == len(word)+len(db)+len(between)+len(coll) && strings.HasPrefix(written, word) &&
			strings.HasPrefix(written[len(word)+len(db):], between) {
			return written
		}
	}
	return "dbs/" + unescape(db, escaped) + "/colls/" + unescape(coll, escaped)
}

func unescape(s string, escaped bool) string {
	if escaped {
		if plain, err := url.PathUnescape(s); err == nil {
			return plain
		}
	}
	return s
}
