package roundtrippers_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/layertest"
	"github.com/reroute-go/reroute/middleware/rest"
	"github.com/reroute-go/reroute/roundtrippers"
)

func TestThePriorityIsOnEachRequestP06(t *testing.T) {
	for name, row := range map[string]struct {
		layer roundtrippers.PriorityHeader
		ctx   context.Context
		own   []string // the caller's header
		want  []string
	}{
		"background is the default":                {ctx: t.Context(), want: []string{"background"}},
		"essential":                                {ctx: essentially(t.Context()), want: []string{"essential"}},
		"the caller's own value stays":             {ctx: essentially(t.Context()), own: []string{"batch"}, want: []string{"batch"}},
		"all of them, and an empty one":            {ctx: essentially(t.Context()), own: []string{"", "batch"}, want: []string{"", "batch"}},
		"under another name, whatever its letters": {layer: roundtrippers.PriorityHeader{Header: "x-class"}, ctx: essentially(t.Context()), want: []string{"essential"}},
	} {
		t.Run(name, func(t *testing.T) {
			header := "X-Request-Priority"
			if row.layer.Header != "" {
				header = "X-Class"
			}
			script := layertest.NewScript(t, layertest.Step{Status: 503}, layertest.Step{})
			rt, err := roundtrippers.APIBuilder{Dialect: rest.Dialect{}, Base: script, PerOperation: []middleware.Layer{row.layer}}.Build()
			require.NoError(t, err)
			req := get(patiently(row.ctx, middleware.Patience{Retries: 1}), "https://api.test/")
			if row.own != nil {
				req.Header[header] = row.own
			}
			before := req.Header.Clone()
			closeIt(rt.RoundTrip(req))
			require.Len(t, script.Sends(), 2) // the retry too
			for _, send := range script.Sends() {
				require.Equal(t, row.want, send.Header[header])
			}
			require.Equal(t, before, req.Header)
		})
	}
}

func TestWhatIsNotCertainlyEssentialIsBackgroundP06(t *testing.T) {
	for name, row := range map[string]struct {
		values []string
		want   middleware.Priority
	}{
		"essential":                  {[]string{"essential"}, middleware.Essential},
		"in capitals, with spaces":   {[]string{" Essential "}, middleware.Essential},
		"said twice":                 {[]string{"essential", "essential"}, middleware.Essential},
		"said twice, joined":         {[]string{"essential, essential"}, middleware.Essential},
		"background":                 {[]string{"background"}, middleware.Background},
		"missing":                    {nil, middleware.Background},
		"empty":                      {[]string{""}, middleware.Background},
		"a class of somebody else's": {[]string{"critical"}, middleware.Background},
		"a number":                   {[]string{"1"}, middleware.Background},
		"contradictory":              {[]string{"essential", "background"}, middleware.Background},
		"contradictory, joined":      {[]string{"essential,background"}, middleware.Background},
		"one known and one unknown":  {[]string{"essential", "critical"}, middleware.Background},
		"one known and one empty":    {[]string{"essential", ""}, middleware.Background},
		"more than the word":         {[]string{"essential; q=1"}, middleware.Background},
	} {
		t.Run(name, func(t *testing.T) {
			for _, around := range []context.Context{t.Context(), essentially(t.Context())} { // the server's own context does not count
				req := get(around, "https://here.test/")
				if row.values != nil {
					req.Header["X-Request-Priority"] = row.values
				}
				var got middleware.Priority
				roundtrippers.PriorityHeader{}.Inherit(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					got = middleware.PriorityOf(r.Context())
				})).ServeHTTP(httptest.NewRecorder(), req)
				require.Equal(t, row.want, got)
			}
		})
	}
}

// Over real sockets, through two services: what the first one is asked with, it
// asks the second with.
func TestAPriorityIsInheritedOverRealServersP06(t *testing.T) {
	p := roundtrippers.PriorityHeader{}
	client := func() *http.Client {
		base := http.DefaultTransport.(*http.Transport).Clone()
		t.Cleanup(base.CloseIdleConnections)
		rt, err := middleware.Stack(base, p)
		require.NoError(t, err)
		return &http.Client{Transport: rt}
	}
	ask := func(ctx context.Context, c *http.Client, url string) string {
		resp, err := c.Do(get(ctx, url))
		if err != nil {
			return err.Error()
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		return string(text)
	}
	last := httptest.NewServer(p.Inherit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, middleware.PriorityOf(r.Context()).String())
	})))
	t.Cleanup(last.Close)
	between := client()
	first := httptest.NewServer(p.Inherit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, ask(r.Context(), between, last.URL))
	})))
	t.Cleanup(first.Close)

	c := client()
	require.Equal(t, "essential", ask(essentially(t.Context()), c, first.URL))
	require.Equal(t, "background", ask(t.Context(), c, first.URL))
	require.Equal(t, "background", ask(essentially(t.Context()), http.DefaultClient, first.URL)) // says nothing
}

func TestABadPriorityHeaderIsNamed(t *testing.T) {
	for _, name := range []string{"a b", "a:b", "é", "a\r\nX-Evil", " "} {
		_, err := roundtrippers.PriorityHeader{Header: name}.Wrap(nil)
		require.ErrorContains(t, err, "Header is ")
	}
}
