package roundtrippers_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/layertest"
	"github.com/reroute-go/reroute/middleware/rest"
	"github.com/reroute-go/reroute/roundtrippers"
)

// No credential shows in anything that can be printed: errors, events, logs,
// reports, the layers and the client, with any verb (V079, done-when 6).
func TestNoCredentialCanBePrintedV079(t *testing.T) {
	const secret = "s3cr3t"
	fetchErr := &url.Error{Op: "Post", URL: "https://login.test/token?client_secret=" + secret, Err: errReset}
	steps := map[string][]layertest.Step{
		"ok": apiSteps(200), "401": apiSteps(401), "503": apiSteps(503), "422": apiSteps(422), "429": {throttled("5")}, "reset": {{Err: errReset}},
		"a base that quotes the URL": {{Err: &url.Error{Op: "Get", URL: "https://user:" + secret + "@api.test/rows?token=" + secret, Err: errReset}}},
	}
	for name, script := range steps {
		for _, sourceFails := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				var out bytes.Buffer
				var mu sync.Mutex
				show := func(values ...any) {
					mu.Lock()
					defer mu.Unlock()
					for _, v := range values {
						for _, verb := range []string{"%v\n", "%+v\n", "%s\n", "%q\n"} {
							fmt.Fprintf(&out, verb, v)
						}
						// A foreign error keeps its own fields: errors.As is to find them.
						if text, err := json.Marshal(v); err == nil && !strings.Contains(name, "quotes") {
							out.Write(text)
						}
					}
				}
				logs := []middleware.Observer{
					middleware.LogTo(slog.New(slog.NewTextHandler(&lockedWriter{w: &out, mu: &mu}, &slog.HandlerOptions{Level: slog.LevelDebug}))),
					middleware.LogTo(slog.New(slog.NewJSONHandler(&lockedWriter{w: &out, mu: &mu}, &slog.HandlerOptions{Level: slog.LevelDebug}))),
				}
				calls := 0
				auth := &roundtrippers.Auth{Origins: []string{"https://api.test"}, Source: func(context.Context) (roundtrippers.Token, error) {
					if calls++; sourceFails && calls > 1 {
						return roundtrippers.Token{}, fetchErr
					}
					return roundtrippers.Token{Value: "Bearer " + secret, Expires: time.Now().Add(time.Hour)}, nil
				}}
				c := apiOver(t, func(b *roundtrippers.APIBuilder) {
					b.Auth, b.Circuit.Threshold = auth, 2
					b.Pause, b.PerOperation = &roundtrippers.Pause{}, []middleware.Layer{roundtrippers.PriorityHeader{}}
					b.IdempotencyKey = &roundtrippers.IdempotencyKey{New: func() string { return "key-" + secret }}
					b.Observe = func(ctx context.Context, e middleware.Event) {
						for _, log := range logs {
							log(ctx, e)
						}
						e.Err = shownError(e.Err)
						show(e)
					}
				}, script...)
				api := rest.API{Transport: c.rt, BaseURL: "https://user:" + secret + "@api.test/?token=" + secret,
					Header: http.Header{"X-Api-Key": {secret}}}
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				defer cancel()
				for _, ctx := range []context.Context{ctx, essentially(ctx)} {
					for range 2 {
						var page any
						err := api.Get(ctx, "/rows?key="+secret, &page)
						synctest.Wait() // what follows reads everything by reflection
						show(err, shownError(err), errors.Unwrap(err))
						show(api.Send(ctx, http.MethodPost, "/rows", nil, map[string]int{"n": 1}, nil))
						show(api.GraphQL(ctx, rest.Document{Query: "{a}"}, &page))
						var failed *rest.Error
						if errors.As(err, &failed) && !strings.Contains(name, "quotes") {
							show(*failed)
						}
						var typed *middleware.Error
						if errors.As(err, &typed) {
							show(typed.Report, typed.Outcome)
							if !strings.Contains(name, "quotes") {
								show(*typed)
							}
						}
					}
				}
				resp, err := c.rt.RoundTrip(get(ctx, "https://api.test/rows?key="+secret))
				if err == nil {
					show(middleware.FromResponse(resp).Report())
					_ = resp.Body.Close()
				}
				synctest.Wait()
				over := c.builder
				over.Base = flaky(200) // the script has a record of what it was sent
				bare, err := over.Build()
				require.NoError(t, err)
				show(&http.Client{Transport: bare}, bare, auth, roundtrippers.Token{Value: secret}, &roundtrippers.Token{Value: secret},
					struct{ T roundtrippers.Token }{roundtrippers.Token{Value: secret}}, middleware.Describe(c.rt))
				for _, l := range c.builder.Layers() {
					show(l)
				}
				slog.New(slog.NewJSONHandler(&lockedWriter{w: &out, mu: &mu}, nil)).Info("x", "token", roundtrippers.Token{Value: secret}, "auth", auth)

				mu.Lock()
				defer mu.Unlock()
				text := out.String()
				require.Greater(t, len(text), 5000)
				require.Contains(t, text, "<set>")
				if i := strings.Index(text, secret); i >= 0 {
					t.Fatalf("%s: ...%s", name, text[max(0, i-300):min(len(text), i+50)])
				}
			})
		}
	}
}

// shownError leaves out a foreign base's own error, whose text is its own affair:
// what this library says of it is checked.
func shownError(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		if err == error(u) {
			return nil
		}
	}
	return err
}

type lockedWriter struct {
	w  io.Writer
	mu *sync.Mutex
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}
