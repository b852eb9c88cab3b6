package partitions

import "fmt"

// Kind is how a container partitions, in the words of its document ("partitionKey"."kind").
type Kind string

// The kinds of partition key.
const (
	KindHash      Kind = "Hash"      // all paths are hashed together; the default
	KindMultiHash Kind = "MultiHash" // hierarchical: each path is hashed alone, and a prefix of them is a span
	KindRange     Kind = "Range"     // of old containers; hashed like KindHash in version 2
)

// Definition is the part of a container's "partitionKey" that decides where its keys lie. The zero value is what a
// container document without further fields means: one path, Hash, version 1.
type Definition struct {
	Kind    Kind // "" is KindHash
	Version int  // 1 or 2; 0 is 1 for KindHash (documents of old containers have no version) and 2 for the other kinds
	Paths   int  // number of paths; 0 is 1
}

// Span is where the partition key in header lies. header is the value of x-ms-documentdb-partitionkey, a JSON array
// with a string, number, boolean, null or {} (the value is absent) for each path.
//
// A complete key is a single key ([Span.Point]). In a hierarchical container fewer values than paths are a prefix, and
// the Span holds all keys that begin with it; [] is then everything. Elsewhere [] is the minimum: it is sent for
// containers that were made without a partition key.
//
// Strings are hashed as UTF-8 with U+FFFD for what is not Unicode (a lone surrogate, a stray byte), numbers as IEEE 754
// doubles where -0 is 0. A number beyond a double's reach, any other JSON, and too many or too few values are a
// [*KeyError]; a Definition that cannot be is a [*DefinitionError].
//
// A version 2 key of one path costs no memory.
func (d Definition) Span(header string) (Span, error) {
	if len(header) > 240 {
		return d.spanOfLong(header)
	}
	var buf [256]byte
	return d.span(header, buf[:0])
}

// spanOfLong has a frame that holds the longest partition key there may be (2 KiB), and is apart because clearing such
// a frame costs more than hashing an ordinary key.
//
//go:noinline
func (d Definition) spanOfLong(header string) (Span, error) {
	var buf [4096]byte
	return d.span(header, buf[:0])
}

// span is Span with room for the hash input.
func (d Definition) span(header string, buf []byte) (Span, error) {
	version, paths, err := d.resolve()
	if err != nil {
		return Span{}, err
	}
	values := values{text: header}
	if err := values.open(); err != nil {
		return Span{}, err
	}
	if d.Kind == KindMultiHash {
		return spanMultiHash(&values, paths, buf)
	}
	var k Key
	if version == 1 {
		k, err = keyV1(&values, paths, buf)
	} else {
		k, err = keyV2(&values, paths, buf)
	}
	if err != nil {
		return Span{}, err
	}
	if values.n != paths && values.n != 0 {
		return Span{}, values.fail("", fmt.Sprintf("the array ends after %d of %d values", values.n, paths))
	}
	return Span{Min: k, Max: k}, nil
}

// resolve is d with its defaults.
func (d Definition) resolve() (version, paths int, err error) {
	version, paths = d.Version, d.Paths
	if paths == 0 {
		paths = 1
	}
	if paths < 0 {
		return 0, 0, &DefinitionError{Field: "Paths", Value: d.Paths, Want: "a count"}
	}
	switch d.Kind {
	case KindHash, "":
		if version == 0 {
			version = 1
		}
	case KindRange:
		version = 2
	case KindMultiHash:
		if version == 0 {
			version = 2
		}
		if version == 1 {
			return 0, 0, &DefinitionError{Field: "Version", Value: d.Version, Want: "2 for MultiHash"}
		}
	default:
		return 0, 0, &DefinitionError{Field: "Kind", Value: d.Kind, Want: "Hash, MultiHash or Range"}
	}
	if version != 1 && version != 2 {
		return 0, 0, &DefinitionError{Field: "Version", Value: d.Version, Want: "1 or 2"}
	}
	return version, paths, nil
}

// DefinitionError is a field of a [Definition] that no container can have.
type DefinitionError struct {
	Field string // its name
	Value any    // what it holds
	Want  string // what it may hold
}

// Error names the field, its value and what it may hold.
func (e *DefinitionError) Error() string {
	return fmt.Sprintf("partitions: Definition.%s is %v, want %s", e.Field, e.Value, e.Want)
}

// KeyError says why a partition key header has no effective partition key. It names the place, never the value, which
// may be a person's name.
type KeyError struct {
	Component int    // index of the value in the array
	Kind      string // "string", "number", "boolean", "null", "object", "array", or "" outside of a value
	Offset    int    // byte of the header
	Reason    string // what is wrong there
}

// Error names the place and the reason.
func (e *KeyError) Error() string {
	kind := ""
	if e.Kind != "" {
		kind = " (" + e.Kind + ")"
	}
	return fmt.Sprintf("partitions: partition key value %d%s, byte %d: %s", e.Component, kind, e.Offset, e.Reason)
}
