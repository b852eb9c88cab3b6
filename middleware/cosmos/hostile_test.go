package cosmos

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/partitions"
)

// everything prints an error and all that can be reached from it.
func everything(err error) string {
	text := fmt.Sprintf("%v %+v %#v", err, err, err)
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		if inner := e.Unwrap(); inner != nil {
			text += everything(inner)
		}
	case interface{ Unwrap() []error }:
		for _, inner := range e.Unwrap() {
			text += everything(inner)
		}
	}
	return text
}

// A gateway for debugging repeats what it was sent, under any status and in any shape.
func TestAnAnswerThatRepeatsTheCredentialIsNotRepeated(t *testing.T) {
	long := strings.Repeat("eyJhbGciOi/SECRET+", 100) + "=="
	shapes := []string{`%s`, `{"code":"No","message":"you sent %s"}`, `{"writableLocations":"%s"}`, `{"writableLocations":[{"name":"a","databaseAccountEndpoint":"https://%s"}]}`,
		`{"code":"%s"}`, strings.Repeat("x", 480) + `%s`, strings.Repeat("x", 100) + `%s`}
	for _, shape := range shapes {
		for _, status := range []int{200, 401, 403, 404, 500} {
			bubble(t, func(t *testing.T, service *fake) {
				var secrets []string
				service.on(globalAt, func(req *http.Request) (*http.Response, error) {
					auth := req.Header.Get("Authorization")
					plain, err := url.QueryUnescape(auth)
					require.NoError(t, err)
					secrets = append(secrets, strings.TrimPrefix(plain, "type=master&ver=1.0&sig="), strings.TrimPrefix(auth, "type%3Dmaster%26ver%3D1.0%26sig%3D"))
					return says(status, fmt.Sprintf(shape, plain+" "+auth))(req)
				})
				token := AADToken(func(context.Context) (string, time.Time, error) { return long, time.Time{}, nil })
				for _, auth := range []Authorizer{token, SharedKey(testKey)} {
					secrets = nil
					_, err := Open(t.Context(), global, auth, Options{Transport: service})
					require.Error(t, err)
					text := everything(err)
					require.NotContains(t, text, "SECRET", "%d %.40s", status, shape)
					for _, s := range secrets {
						require.NotContains(t, text, s[:12], "%d %.40s", status, shape)
					}
				}
			})
		}
	}
}

func TestAnErrorIsShortHoweverLongTheJunk(t *testing.T) {
	for name, junk := range map[string]string{"number": strings.Repeat("1", 1<<19), "text": `"` + strings.Repeat("x", 1<<19) + `"`, "list": "[" + strings.Repeat("1,", 1<<18) + "1]"} {
		d := domainOf(endpoint(t, global), nil)
		for _, body := range []string{`{"writableLocations":%s}`, `{"writableLocations":[{"name":%s}]}`, `{"enableMultipleWriteLocations":%s}`, `{"code":%s}`, `%s`} {
			_, err := topologyOf([]byte(fmt.Sprintf(body, junk)), d, nil)
			require.Error(t, err)
			require.Less(t, len(err.Error()), 1000, "%s in %s", name, body)
		}
		for _, body := range []string{`{"_rid":%s}`, `{"partitionKey":%s}`, `{"_rid":"r","partitionKey":{"kind":%s}}`, `{"_rid":"r","partitionKey":{"version":%s}}`, `%s`} {
			c, err := containerOf([]byte(fmt.Sprintf(body, junk)))
			if err == nil { // an unknown kind is refused when it is used
				continue
			}
			require.Less(t, len(err.Error()), 1000, "%s in %s: %v", name, body, c.RID)
		}
		for _, body := range []string{`{"PartitionKeyRanges":%s}`, `{"PartitionKeyRanges":[{"id":%s}]}`, `{"PartitionKeyRanges":[{"minInclusive":%s}]}`, `{"PartitionKeyRanges":[{"id":"1","minInclusive":"","maxExclusive":"FF","parents":%s}]}`, `%s`} {
			_, err := partitions.DecodeRanges(strings.NewReader(fmt.Sprintf(body, junk)))
			require.Error(t, err)
			require.Less(t, len(err.Error()), 1000, "%s in %s", name, body)
		}
	}
}

func TestANameThatDoesNotPrintIsRefused(t *testing.T) {
	for _, name := range []string{"West\r\n#2 US", "West\x1b[31m", "West\x00", "a\u202eb", "\u2028x", strings.Repeat("x", 10000)} {
		d := domainOf(endpoint(t, global), nil)
		body := fmt.Sprintf(`{"writableLocations":[{"name":%s,"databaseAccountEndpoint":%q}]}`, quoted(name), global)
		_, err := topologyOf([]byte(body), d, nil)
		var e *DocumentError
		require.True(t, errors.As(err, &e), "%.40q", name)
		require.Contains(t, e.Problem, "name")
	}
}

func quoted(s string) string {
	var b strings.Builder
	for _, r := range s {
		fmt.Fprintf(&b, `\u%04x`, r)
	}
	return `"` + b.String() + `"`
}

// net/http leaves an upgraded connection to whoever reads it, for ever.
func TestAnUpgradeThatNobodyAskedForHoldsNoRead(t *testing.T) {
	bubble(t, func(t *testing.T, service *fake) {
		service.on(globalAt, func(req *http.Request) (*http.Response, error) {
			resp := answered(101)
			server, client := net.Pipe()
			go func() {
				for {
					if _, err := server.Write([]byte("x")); err != nil {
						return
					}
					time.Sleep(time.Minute)
				}
			}()
			resp.Body, resp.Request = client, req
			return resp, nil
		})
		_, err := open(t.Context(), service, Options{})
		var e *FetchError
		require.ErrorAs(t, err, &e)
		require.Equal(t, 101, e.Status)
	})
}
