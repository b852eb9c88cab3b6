package cosmostest

import (
	"bytes"
	"encoding/json"
	"math"
	"net/http"
	"strconv"
	"strings"

	"github.com/reroute-go/reroute/partitions"
)

// partitionKey is a partition key value in one spelling, so that [1] and [1.0] are the same key.
type partitionKey struct {
	text     string // JSON array; {} stands for undefined
	parts    []any
	span     partitions.Span // of effective partition keys: one when complete
	complete bool            // has a value for every path
}

// undefined is the value of a partition key path the document does not have.
type undefined struct{}

// MarshalJSON writes undefined as partition key headers do.
func (undefined) MarshalJSON() ([]byte, error) { return []byte("{}"), nil }

// parseKey reads the partition key header.
func (c *container) parseKey(text string) (*partitionKey, error) {
	var parts []any
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&parts); err != nil || d.More() {
		return nil, badRequest("The partition key %s is no JSON array.", strconv.Quote(text))
	}
	if len(parts) > len(c.paths) || len(parts) < len(c.paths) && len(parts) > 0 && c.kind != string(partitions.KindMultiHash) {
		return nil, badRequest("The partition key has %d components, the container has %d paths.", len(parts), len(c.paths))
	}
	for i, p := range parts {
		v, err := keyPart(p)
		if err != nil {
			return nil, err
		}
		parts[i] = v
	}
	return c.newKey(parts)
}

func (c *container) newKey(parts []any) (*partitionKey, error) {
	text := string(encode(parts))
	span, err := c.definition().Span(text)
	if err != nil {
		return nil, badRequest("The partition key cannot be hashed: %v", err)
	}
	return &partitionKey{text: text, parts: parts, span: span, complete: len(parts) == len(c.paths)}, nil
}

// keyPart brings one component of a key into its one spelling.
func keyPart(v any) (any, error) {
	switch v := v.(type) {
	case json.Number:
		f, err := v.Float64()
		if err != nil || math.IsInf(f, 0) {
			return nil, badRequest("The partition key number %s is out of range.", v)
		}
		if f == 0 {
			f = 0 // -0 and 0 are one key
		}
		return f, nil
	case map[string]any:
		if len(v) == 0 {
			return undefined{}, nil
		}
	case nil, string, bool:
		return v, nil
	}
	return nil, badRequest("A partition key component must be a string, number, boolean, null or {}.")
}

// keyOf extracts the partition key of a document.
func (c *container) keyOf(doc map[string]any) (*partitionKey, error) {
	parts := make([]any, len(c.paths))
	for i, path := range c.paths {
		var v any = doc
		for name := range strings.SplitSeq(strings.TrimPrefix(path, "/"), "/") {
			object, _ := v.(map[string]any) // nil for anything else, which has no properties
			inner, ok := object[strings.Trim(name, `"`)]
			if v = inner; !ok {
				v = undefined{}
				break
			}
		}
		if _, missing := v.(undefined); !missing {
			part, err := keyPart(v)
			if err != nil {
				return nil, err
			}
			v = part
		}
		parts[i] = v
	}
	return c.newKey(parts)
}

// mustMatch refuses a document whose partition key is not the one of the request.
func (c *container) mustMatch(doc map[string]any, key *partitionKey) error {
	own, err := c.keyOf(doc)
	if err != nil {
		return err
	}
	if own.text != key.text {
		return &apiError{status: http.StatusBadRequest, substatus: 1001,
			message: "PartitionKey extracted from document doesn't match the one specified in the header."}
	}
	return nil
}

// readDefinition reads the partition key definition of a container body.
func (c *container) readDefinition(properties map[string]any) error {
	raw, err := json.Marshal(properties["partitionKey"])
	if err != nil {
		return badRequest("The partition key definition is not valid.")
	}
	var def struct {
		Paths   []string `json:"paths"`
		Kind    string   `json:"kind"`
		Version int      `json:"version"`
	}
	if err := json.NewDecoder(bytes.NewReader(raw)).Decode(&def); err != nil {
		return badRequest("The partition key definition is not valid: %v", err)
	}
	if len(def.Paths) == 0 || len(def.Paths) > 3 {
		return badRequest("A container needs a partition key of 1 to 3 paths, got %d.", len(def.Paths))
	}
	for _, p := range def.Paths {
		if !strings.HasPrefix(p, "/") || len(p) == 1 {
			return badRequest("The partition key path %q is not valid.", p)
		}
	}
	if def.Kind == "" {
		def.Kind = "Hash"
	}
	switch {
	case def.Kind != "Hash" && def.Kind != "MultiHash" && def.Kind != "Range",
		def.Kind != "MultiHash" && len(def.Paths) > 1:
		return badRequest("The partition key kind %q does not go with %d paths.", def.Kind, len(def.Paths))
	}
	if def.Version == 0 {
		def.Version = 1
	}
	c.paths, c.kind, c.keyVersion = def.Paths, def.Kind, def.Version
	return nil
}
