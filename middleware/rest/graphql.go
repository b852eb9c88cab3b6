package rest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/reroute-go/reroute/idempotency"
	"github.com/reroute-go/reroute/middleware"
)

// Document is a GraphQL request.
type Document struct {
	Query         string         `json:"query"`                   // queries, mutations, fragments
	OperationName string         `json:"operationName,omitempty"` // which of them to run; "" where there is one
	Variables     map[string]any `json:"variables,omitempty"`     // nil = none
}

// GraphQL posts a document to BaseURL and decodes the answer's data into what into
// points to. A query may be repeated like any read; a mutation is a write like any
// POST. A success with errors in it is an *Error of Kind GraphQL, though into and
// Error.Data hold what data it has; as the transport has succeeded it is never sent
// again (seed api-requests, "What a status means"). Errors under any other status
// are an *Error of Kind Status, with its body.
func (a API) GraphQL(ctx context.Context, d Document, into any) error {
	query := isQuery(d)
	if query {
		ctx = middleware.WithIdempotency(ctx, idempotency.Safe)
	}
	c := call{api: a, write: !query, graphQL: true}
	if strings.TrimSpace(d.Query) == "" {
		return c.invalid(http.MethodPost, errors.New("Document.Query is empty"))
	}
	if err := c.prepare(ctx, http.MethodPost, "", nil, d, into); err != nil {
		return err
	}
	resp, err := c.roundTrip()
	if err != nil {
		return err
	}
	data, err := c.read(resp)
	if err != nil {
		return err
	}
	var answer struct {
		Data   json.RawMessage `json:"data"`
		Errors []Message       `json:"errors"`
	}
	if err := json.Unmarshal(data, &answer); err != nil {
		return c.undecoded(resp, data, err)
	}
	hasData := len(answer.Data) > 0 && !bytes.Equal(answer.Data, []byte("null"))
	var decodeErr error
	if into != nil && hasData {
		decodeErr = json.Unmarshal(answer.Data, into)
	}
	switch {
	case len(answer.Errors) > 0:
		e := c.failed(GraphQL, resp)
		e.Messages, e.final = answer.Errors, true
		replace(resp, data)
		if hasData {
			e.Data = answer.Data
		}
		return e
	case decodeErr != nil:
		return c.undecoded(resp, data, decodeErr)
	case !hasData && answer.Data == nil:
		return c.undecoded(resp, data, fmt.Errorf("the answer has neither data nor errors"))
	}
	c.done(resp, into)
	return nil
}
