package rest_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/layertest"
	"github.com/reroute-go/reroute/middleware/rest"
	"github.com/reroute-go/reroute/roundtrippers"
)

// Whatever a GraphQL service answers: it is asked once, the call succeeds only
// where there is data and no error, all else is one *Error of a fitting kind whose
// text is one bounded line, and no body is left open.
func FuzzGraphQLAnswer(f *testing.F) {
	for _, body := range []string{
		``, `{}`, `null`, `[]`, `{"data":null}`, `{"data":{"a":1}}`, `{"data":{"a":1},"errors":[]}`, `{"errors":null,"data":{}}`,
		`{"data":{"a":1},"errors":[{"message":"no\r\nX: y","path":["a",0],"extensions":{"code":"FORBIDDEN"}}]}`,
		`{"errors":[{}]}`, `{"errors":[null]}`, `{"errors":"no"}`, `{"errors":[{"message":7}]}`, `{"data":"text"}`, `{"data":{"a":"x"}}`,
		`{"DATA":{"a":1}}`, `{"data":{"a":1}}{"data":{"a":2}}`, "\xff\xfe{}", `{"errors":[{"message":"` + strings.Repeat("é\u001b", 3000) + `"}]}`,
	} {
		f.Add(200, body)
		f.Add(503, body)
	}
	f.Fuzz(func(t *testing.T, status int, body string) {
		synctest.Test(t, func(t *testing.T) {
			if status < 100 || status > 599 {
				status = 200
			}
			script := layertest.NewScript(t, layertest.Step{Status: status, Body: body})
			rt, err := roundtrippers.APIBuilder{Dialect: rest.Dialect{}, Base: script}.Build()
			require.NoError(t, err)
			into := struct{ A int }{-1}
			err = rest.API{Transport: rt, BaseURL: "https://api.test/graphql"}.GraphQL(t.Context(), rest.Document{Query: "{a}"}, &into)
			require.Len(t, script.Sends(), 1)
			var answer struct {
				Data   json.RawMessage
				Errors []rest.Message
			}
			decoded := status/100 == 2 && json.Unmarshal([]byte(body), &answer) == nil
			ok := decoded && len(answer.Errors) == 0 && answer.Data != nil
			if err == nil {
				require.True(t, ok, "%q", body)
				return
			}
			var e *rest.Error
			require.ErrorAs(t, err, &e)
			require.Contains(t, []rest.Kind{rest.Status, rest.GraphQL, rest.Decode}, e.Kind)
			require.Equal(t, status/100 != 2, e.Kind == rest.Status)
			require.Equal(t, decoded && len(answer.Errors) > 0, e.Kind == rest.GraphQL, "%q", body)
			require.Equal(t, e.Kind == rest.GraphQL, len(e.Messages) > 0)
			if e.Kind != rest.GraphQL || e.Data == nil {
				require.True(t, into.A == -1 || e.Kind == rest.Decode, "a failure without data writes nothing")
			}
			text := e.Error()
			require.Less(t, len(text), 8192)
			require.False(t, strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }), "%q", text)
			kept, err := io.ReadAll(e.Response.Body)
			require.NoError(t, err, "the answer needs no Close and can be read")
			require.LessOrEqual(t, len(kept), 2048)
			require.Equal(t, body[:len(kept)], string(kept))
			require.False(t, errors.Is(err, middleware.ErrBudgetSpent))
			require.Equal(t, http.MethodPost, e.Method)
		})
	})
}
