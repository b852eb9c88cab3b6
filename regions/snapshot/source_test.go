package snapshot_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/regions/snapshot"
)

type (
	source  struct{ err error }
	sources []source
)

func (s *source) Validate() error { return s.err }

func TestASourceThatCannotTellAnythingIsNamed(t *testing.T) {
	bad := errors.New("URL is empty")
	for want, source := range map[string]any{
		"a.Source is nil: it is required":                         nil,
		"a.Source is a nil *snapshot_test.source: it is required": (*source)(nil),
		"a.Source is a nil func(): it is required":                (func())(nil),
		"a.Source: URL is empty":                                  &source{bad},
	} {
		require.EqualError(t, snapshot.CheckSource("a.Source", source), want)
	}
	require.ErrorIs(t, snapshot.CheckSource("a.Source", &source{bad}), bad)
	for _, good := range []any{&source{}, func() {}, sources(nil), source{bad}} {
		require.NoError(t, snapshot.CheckSource("a.Source", good), "%T", good)
	}
}
