package cosmostest

import (
	"bytes"
	"encoding/json"
	"math"
	"net/http"
	"strconv"
	"strings"
)

// maxPatch is how many operations one patch may have.
const maxPatch = 10

// patchBody is the body of a PATCH.
type patchBody struct {
	Condition  string    `json:"condition"`
	Operations []patchOp `json:"operations"`
}

type patchOp struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	From  string `json:"from"`
	Value any    `json:"value"`
}

// applyPatch returns a patched copy of an item.
func applyPatch(body []byte, old *version) (map[string]any, error) {
	var p patchBody
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	if err := d.Decode(&p); err != nil {
		return nil, badRequest("The patch is not valid: %v", err)
	}
	if len(p.Operations) == 0 || len(p.Operations) > maxPatch {
		return nil, badRequest("A patch has 1 to %d operations, got %d.", maxPatch, len(p.Operations))
	}
	if p.Condition != "" {
		q, err := parseCondition(p.Condition)
		if err != nil {
			return nil, err
		}
		if !q.holds(old.doc) {
			return nil, &apiError{status: http.StatusPreconditionFailed, message: "Condition specified in the patch request is not satisfied."}
		}
	}
	doc, err := decodeDoc(old.body) // a deep copy: stored documents never change
	if err != nil {
		return nil, err
	}
	for _, op := range p.Operations {
		if err := op.apply(doc); err != nil {
			return nil, err
		}
	}
	return doc, nil
}

func (o patchOp) apply(doc map[string]any) error {
	steps, err := pointer(o.Path)
	if err != nil {
		return err
	}
	switch strings.ToLower(o.Op) {
	case "add", "set":
		return place(doc, steps, o.Value, strings.EqualFold(o.Op, "add"))
	case "replace":
		if _, ok := lookup(doc, steps); !ok {
			return badRequest("The path %q to replace does not exist.", o.Path)
		}
		return place(doc, steps, o.Value, false)
	case "remove":
		return remove(doc, steps, o.Path)
	case "incr":
		return o.increment(doc, steps)
	case "move":
		from, err := pointer(o.From)
		if err != nil {
			return err
		}
		v, ok := lookup(doc, from)
		if !ok {
			return badRequest("The path %q to move does not exist.", o.From)
		}
		if err := remove(doc, from, o.From); err != nil {
			return err
		}
		return place(doc, steps, v, false)
	}
	return badRequest("The patch operation %q is not supported.", o.Op)
}

func (o patchOp) increment(doc map[string]any, steps []string) error {
	by, ok := o.Value.(json.Number)
	if !ok {
		return badRequest("incr needs a number.")
	}
	current, exists := lookup(doc, steps)
	if !exists {
		return place(doc, steps, by, false)
	}
	n, ok := current.(json.Number)
	if !ok {
		return badRequest("The path %q to increment is no number.", o.Path)
	}
	a, errA := n.Int64()
	b, errB := by.Int64()
	if sum := a + b; errA == nil && errB == nil && (sum > a) == (b > 0) {
		return place(doc, steps, json.Number(strconv.FormatInt(sum, 10)), false)
	}
	x, _ := n.Float64()
	y, _ := by.Float64()
	if math.IsInf(x+y, 0) {
		return badRequest("The result of incr is out of range.")
	}
	return place(doc, steps, json.Number(strconv.FormatFloat(x+y, 'g', -1, 64)), false)
}

// pointer splits a JSON pointer.
func pointer(path string) ([]string, error) {
	if !strings.HasPrefix(path, "/") || len(path) == 1 {
		return nil, badRequest("The patch path %q is not valid.", path)
	}
	steps := strings.Split(path[1:], "/")
	for i, s := range steps {
		steps[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(s)
	}
	return steps, nil
}

// lookup follows a path through a document.
func lookup(v any, steps []string) (any, bool) {
	for _, s := range steps {
		switch in := v.(type) {
		case map[string]any:
			var ok bool
			if v, ok = in[s]; !ok {
				return nil, false
			}
		case []any:
			i, err := strconv.Atoi(s)
			if err != nil || i < 0 || i >= len(in) {
				return nil, false
			}
			v = in[i]
		default:
			return nil, false
		}
	}
	return v, true
}

// place puts a value at a path whose parent exists; into an array it inserts (add) or overwrites.
func place(doc map[string]any, steps []string, value any, insert bool) error {
	last := steps[len(steps)-1]
	parent, ok := lookup(doc, steps[:len(steps)-1])
	if !ok {
		return badRequest("The parent of the path /%s does not exist.", strings.Join(steps, "/"))
	}
	switch in := parent.(type) {
	case map[string]any:
		in[last] = value
		return nil
	case []any:
		i, err := strconv.Atoi(last)
		if last == "-" {
			i, err = len(in), nil
		}
		if err != nil || i < 0 || i > len(in) {
			break
		}
		if i < len(in) && !insert {
			in[i] = value
			return nil
		}
		grown := append(append(append([]any{}, in[:i]...), value), in[i:]...)
		return place(doc, steps[:len(steps)-1], grown, false)
	}
	return badRequest("The path /%s cannot be written.", strings.Join(steps, "/"))
}

func remove(doc map[string]any, steps []string, path string) error {
	if _, ok := lookup(doc, steps); !ok {
		return badRequest("The path %q to remove does not exist.", path)
	}
	parent, _ := lookup(doc, steps[:len(steps)-1])
	last := steps[len(steps)-1]
	if in, ok := parent.(map[string]any); ok {
		delete(in, last)
		return nil
	}
	in := parent.([]any)
	i, _ := strconv.Atoi(last)
	return place(doc, steps[:len(steps)-1], append(append([]any{}, in[:i]...), in[i+1:]...), false)
}
