package idempotency

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMethodsHaveTheLevelsOfRFC9110(t *testing.T) {
	for method, want := range map[string]Level{
		"": Safe, "GET": Safe, "HEAD": Safe, "OPTIONS": Safe, "TRACE": Safe,
		"PUT": Idempotent, "DELETE": Idempotent,
		"POST": NonIdempotent, "PATCH": NonIdempotent, "BREW": NonIdempotent,
	} {
		require.Equal(t, want, OfMethod(&http.Request{Method: method, Header: http.Header{}}), method)
	}
}

func TestAPreconditionOrAKeyMakesAWriteIdempotent(t *testing.T) {
	for _, c := range []struct {
		name, value string
		want        Level
	}{
		{Key, "7c1d", Idempotent},
		{"If-Match", `"0001"`, Idempotent},
		{"If-Match", "*", NonIdempotent},
		{"If-None-Match", "*", Idempotent},
		{"If-None-Match", `"0001"`, NonIdempotent},
		{"X-Other", "1", NonIdempotent},
	} {
		h := http.Header{}
		h.Set(c.name, c.value)
		require.Equal(t, c.want, OfMethod(&http.Request{Method: "PATCH", Header: h}), "%s: %s", c.name, c.value)
	}
}

func TestOnlyAJudgementForbidsARepeat(t *testing.T) {
	require.True(t, Unknown.Repeatable())
	require.True(t, Safe.Repeatable())
	require.True(t, Idempotent.Repeatable())
	require.False(t, NonIdempotent.Repeatable())
}

func TestLevelsAndEchoesPrintTheirNames(t *testing.T) {
	require.Equal(t, []string{"unknown", "safe", "idempotent", "non-idempotent"},
		[]string{Unknown.String(), Safe.String(), Idempotent.String(), NonIdempotent.String()})
	require.Equal(t, []string{"none", "exists", "missing", "changed"},
		[]string{NoEcho.String(), Exists.String(), Missing.String(), Changed.String()})
}
