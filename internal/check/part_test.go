package check_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/internal/check"
)

type (
	source  struct{ err error }
	sources []source
)

func (s *source) Validate() error { return s.err }

func TestASourceThatCannotTellAnythingIsNamed(t *testing.T) {
	bad := errors.New("URL is empty")
	for want, source := range map[string]any{
		"a.Source is nil: it is required":      nil,
		"a.Source is a nil *check_test.source": (*source)(nil),
		"a.Source is a nil func()":             (func())(nil),
		"a.Source: URL is empty":               &source{bad},
	} {
		require.EqualError(t, check.Part("a.Source", source), want)
	}
	require.ErrorIs(t, check.Part("a.Source", &source{bad}), bad)
	for _, good := range []any{&source{}, func() {}, sources(nil), source{bad}} {
		require.NoError(t, check.Part("a.Source", good), "%T", good)
	}
}
