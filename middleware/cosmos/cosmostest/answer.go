package cosmostest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
)

// reply is an answer before it is sent.
type reply struct {
	status    int
	substatus int
	header    http.Header
	body      []byte
}

func newReply(status int, body []byte) *reply {
	return &reply{status: status, header: http.Header{}, body: body}
}

// set adds a header unless its value is empty.
func (r *reply) set(name, value string) *reply {
	if value != "" {
		r.header.Set(name, value)
	}
	return r
}

func (r *reply) charge(units float64) *reply {
	return r.set(headerCharge, strconv.FormatFloat(units, 'f', -1, 64))
}

// apiError is a refusal of the service.
type apiError struct {
	status    int
	substatus int
	code      string // default: the service's word for status
	message   string
}

func (e *apiError) Error() string { return fmt.Sprintf("%d/%d: %s", e.status, e.substatus, e.message) }

func (e *apiError) reply() *reply {
	code := e.code
	if code == "" {
		code = codeOf(e.status)
	}
	r := newReply(e.status, encode(map[string]any{"code": code, "message": e.message}))
	r.substatus = e.substatus
	return r
}

func badRequest(format string, args ...any) *apiError {
	return &apiError{status: http.StatusBadRequest, message: fmt.Sprintf(format, args...)}
}

func notFound() *apiError {
	return &apiError{status: http.StatusNotFound, message: "Entity with the specified id does not exist in the system."}
}

func conflict() *apiError {
	return &apiError{status: http.StatusConflict, message: "Resource with specified id or name already exists."}
}

func preconditionFailed() *apiError {
	return &apiError{status: http.StatusPreconditionFailed, message: "Operation cannot be performed because one of the specified precondition is not met."}
}

func tooLarge() *apiError {
	return &apiError{status: http.StatusRequestEntityTooLarge, message: "Request size is too large."}
}

// codeOf is the word for a status in the error body.
func codeOf(status int) string {
	switch status {
	case http.StatusRequestEntityTooLarge:
		return "RequestEntityTooLarge"
	case http.StatusTooManyRequests:
		return "429"
	case 449:
		return "RetryWith"
	}
	var code []byte
	for _, c := range []byte(http.StatusText(status)) {
		if c != ' ' && c != '-' && c != '\'' {
			code = append(code, c)
		}
	}
	if len(code) == 0 {
		return strconv.Itoa(status)
	}
	return string(code)
}

// encode is JSON as the service writes it: no HTML escapes, no newline.
func encode(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic("cosmostest: " + err.Error()) // only values that came out of JSON get here
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// decodeDoc reads a JSON object, keeping numbers as they were written.
func decodeDoc(body []byte) (map[string]any, error) {
	var doc map[string]any
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	if err := d.Decode(&doc); err != nil {
		return nil, badRequest("The input content is invalid because it is no JSON object: %v", err)
	}
	if doc == nil || d.More() {
		return nil, badRequest("The input content is invalid because it is no single JSON object.")
	}
	return doc, nil
}
