package middleware_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/layertest"
)

// badPointer is a layer that cannot do without its receiver.
type badPointer struct{ err error }

func (l *badPointer) Wrap(http.RoundTripper) (http.RoundTripper, error) { return nil, l.err }

// layerFunc is a user's own kind of LayerFunc.
type layerFunc func(http.RoundTripper) (http.RoundTripper, error)

func (f layerFunc) Wrap(next http.RoundTripper) (http.RoundTripper, error) { return f(next) }

type checkedBase struct {
	http.RoundTripper
	err error
}

func (b *checkedBase) Validate() error { return b.err }

func TestANilPointerOrFunctionAmongTheLayersIsNamedByPositionAndType(t *testing.T) {
	var pointer *badPointer
	for want, layer := range map[string]middleware.Layer{
		"layer 1 is nil": nil,
		"layer 1 is a nil *middleware_test.badPointer":  pointer,
		"layer 1 is a nil middleware.LayerFunc":         middleware.LayerFunc(nil),
		"layer 1 is a nil middleware_test.layerFunc":    layerFunc(nil),
		"layer 1 (middleware_test.layerFunc): Wrap ret": layerFunc(func(http.RoundTripper) (http.RoundTripper, error) { return (*http.Transport)(nil), nil }),
	} {
		_, err := middleware.Stack(nil, again{}, layer)
		require.ErrorContains(t, err, want)
		var typed *middleware.LayerError
		require.ErrorAs(t, err, &typed)
		require.Equal(t, 1, typed.Position)
		require.NotContains(t, strings.TrimPrefix(err.Error(), "middleware.Stack: "), "\n")
	}
}

func TestAnObserverThatIsNilIsALayerAllTheSame(t *testing.T) {
	answered(t, stack(t, layertest.NewScript(t, status(200)...), middleware.Observer(nil)), get(t.Context()), 200)
}

func TestAStackAsksItsBase(t *testing.T) {
	for want, base := range map[string]http.RoundTripper{
		"middleware.Stack: layer 0 (middleware_test.badLayer): boom\nbase (*middleware_test.checkedBase): Size is -1\nbase (*middleware_test.checkedBase): Age is -2": &checkedBase{
			err: errors.Join(errors.New("Size is -1"), errors.New("Age is -2")),
		},
		"middleware.Stack: layer 0 (middleware_test.badLayer): boom\nbase is a nil *http.Transport":             (*http.Transport)(nil),
		"middleware.Stack: layer 0 (middleware_test.badLayer): boom\nbase is a nil middleware.RoundTripperFunc": middleware.RoundTripperFunc(nil),
	} {
		_, err := middleware.Stack(base, badLayer{errBoom})
		require.EqualError(t, err, want)
		_, err = middleware.Stack(base)
		var typed *middleware.LayerError
		require.ErrorAs(t, err, &typed)
		require.Equal(t, -1, typed.Position)
	}
	rt, err := middleware.Stack(&checkedBase{RoundTripper: layertest.NewScript(t, status(200)...)}, again{})
	require.NoError(t, err)
	answered(t, rt, get(t.Context()), 200)
}

func TestEachLineOfAMistakeHasItsLayersName(t *testing.T) {
	_, err := middleware.Stack(nil, again{}, badLayer{errors.Join(errors.New("Wait is -1"), errors.New("Retries is -2"))})
	require.EqualError(t, err, "middleware.Stack: layer 1 (middleware_test.badLayer): Wait is -1\nlayer 1 (middleware_test.badLayer): Retries is -2")
}

func TestALayerStackedTwiceTellsItsMistakeOnce(t *testing.T) {
	shared, other := &badPointer{errBoom}, &badPointer{errBoom}
	_, err := middleware.Stack(nil, shared, other, shared)
	require.EqualError(t, err, "middleware.Stack: layer 1 (*middleware_test.badPointer): boom\nlayer 2 (*middleware_test.badPointer): boom")
}
