package cosmos

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

var testKey = base64.StdEncoding.EncodeToString([]byte("not a secret: only for tests"))

func sign(t *testing.T, a Authorizer, target string) (*http.Request, error) {
	req, err := http.NewRequest("GET", target, nil)
	require.NoError(t, err)
	return req, a.Authorize(t.Context(), req)
}

// The expected signatures were computed with openssl from the documented rule.
func TestASharedKeySignsByTheDocumentedRule(t *testing.T) {
	key := SharedKey(testKey).(*sharedKey)
	require.Equal(t, "type%3Dmaster%26ver%3D1.0%26sig%3Dvin3ibg8nuhZSSEl1aVEt71IO14WiG3UyWhJ5plbsEk%3D",
		key.token("GET", "dbs", "dbs/ToDoList", "Thu, 27 Apr 2017 00:51:12 GMT"))
	synctest.Test(t, func(t *testing.T) { // the clock stands at Sat, 01 Jan 2000 00:00:00 GMT
		for target, sig := range map[string]string{
			"https://a.documents.azure.com:443/":                               "5mDIPXqS5YnouMhew/iFEHeMR+TIIrHAyYr2khGpvlQ=",
			"https://a-west.documents.azure.com/dbs/My%20Db/colls/C/pkranges":  "gRsf1cI3pzjCU06QD8QUEl5JsSfuD2k0vpPrzBlSzcs=",
			"https://a.documents.azure.com//dbs/My%20Db/colls/C/pkranges/?a=b": "gRsf1cI3pzjCU06QD8QUEl5JsSfuD2k0vpPrzBlSzcs=",
			"https://a.documents.azure.com/dbs/My%20Db/colls/%43/pkranges":     "gRsf1cI3pzjCU06QD8QUEl5JsSfuD2k0vpPrzBlSzcs=",
			"https://a.documents.azure.com/offers/Of3Q/":                       "qxn+uhZemjo6gKT1TpMNxdRu4JOeLI6P9E/njow7kTg=",
		} {
			req, err := sign(t, SharedKey(" "+testKey+"\n"), target)
			require.NoError(t, err)
			require.Equal(t, "Sat, 01 Jan 2000 00:00:00 GMT", req.Header.Get("x-ms-date"))
			require.Equal(t, url.QueryEscape("type=master&ver=1.0&sig="+sig), req.Header.Get("Authorization"), target)
		}
	})
}

func TestAKeyThatIsNoKeyIsReportedWithoutBeingShown(t *testing.T) {
	for _, bad := range []string{"", "  ", "c2VjcmV0!", "c2VjcmV", "type=master"} {
		_, err := sign(t, SharedKey(bad), "https://a.documents.azure.com/")
		require.ErrorIs(t, err, ErrBadKey)
		_, err = Open(t.Context(), "https://a.documents.azure.com", SharedKey(bad), Options{})
		require.ErrorIs(t, err, ErrBadKey)
		if s := strings.TrimSpace(bad); s != "" {
			require.NotContains(t, err.Error(), s)
		}
	}
}

func TestNoCredentialShowsInAnyPrinting(t *testing.T) {
	token := AADToken(func(context.Context) (string, time.Time, error) { return "hidden-token", time.Time{}, nil })
	_, err := sign(t, token, "https://a.documents.azure.com/")
	require.NoError(t, err)
	raw, _ := base64.StdEncoding.DecodeString(testKey)
	for _, a := range []Authorizer{SharedKey(testKey), token} {
		held := struct{ Auth Authorizer }{a}
		var log strings.Builder
		slog.New(slog.NewTextHandler(&log, nil)).Info("x", "auth", a, "held", held)
		slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "auth", a, "held", held)
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%T", "%p"} {
			log.WriteString(fmt.Sprintf(verb+" ", a) + fmt.Sprintf(verb+" ", held) + fmt.Sprintf(verb+" ", &held))
		}
		text := strings.ToLower(log.String())
		for _, secret := range []string{testKey, string(raw), fmt.Sprintf("%x", raw), fmt.Sprint(raw), "hidden-token", fmt.Sprintf("%x", "hidden-token")} {
			require.NotContains(t, text, strings.ToLower(secret))
		}
	}
}

func TestAnAADTokenIsKeptUntilShortlyBeforeItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		a := AADToken(func(context.Context) (string, time.Time, error) {
			calls++
			return fmt.Sprint("token ", calls), time.Now().Add(time.Hour), nil
		})
		expect := func(want int) {
			t.Helper()
			req, err := sign(t, a, "https://a.documents.azure.com/")
			require.NoError(t, err)
			require.Equal(t, fmt.Sprintf("type%%3Daad%%26ver%%3D1.0%%26sig%%3Dtoken+%d", want), req.Header.Get("Authorization"))
			require.Equal(t, time.Now().UTC().Format(http.TimeFormat), req.Header.Get("x-ms-date"))
		}
		expect(1)
		time.Sleep(55*time.Minute - time.Second)
		expect(1)
		time.Sleep(time.Second)
		expect(2)
	})
}

func TestAShortOrEndlessTokenIsNotAskedForTooOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls, life := 0, 4*time.Minute
		a := AADToken(func(context.Context) (string, time.Time, error) {
			calls++
			if life == 0 {
				return "t", time.Time{}, nil
			}
			return "t", time.Now().Add(life), nil
		})
		ask := func(want int) {
			t.Helper()
			_, err := sign(t, a, "https://a.documents.azure.com/")
			require.NoError(t, err)
			require.Equal(t, want, calls)
		}
		ask(1)
		time.Sleep(2*time.Minute - time.Second)
		ask(1)
		time.Sleep(time.Second)
		ask(2)
		life = 0
		time.Sleep(time.Hour)
		ask(3)
		ask(4)
	})
}

func TestThoseWhoNeedATokenShareOneCallThatNoCallerCanEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		a := AADToken(func(ctx context.Context) (string, time.Time, error) {
			calls.Add(1)
			select {
			case <-time.After(2 * time.Second):
				return "t", time.Now().Add(time.Hour), nil
			case <-ctx.Done():
				return "", time.Time{}, ctx.Err()
			}
		})
		impatient, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var group sync.WaitGroup
		for i := range 100 {
			group.Go(func() {
				req, _ := http.NewRequest("GET", "https://a.documents.azure.com/", nil)
				ctx := t.Context()
				if i%2 == 0 {
					ctx = impatient
				}
				err := a.Authorize(ctx, req)
				if i%2 == 0 {
					require.ErrorIs(t, err, context.DeadlineExceeded)
				} else {
					require.NoError(t, err)
				}
			})
		}
		group.Wait()
		require.EqualValues(t, 1, calls.Load())
	})
}

func TestAFailedTokenIsAnErrorUnlessTheOldOneStillHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var fail error
		text, life := "t", time.Hour
		a := AADToken(func(context.Context) (string, time.Time, error) { return text, time.Now().Add(life), fail })
		_, err := sign(t, a, "https://a.documents.azure.com/")
		require.NoError(t, err)

		fail = errTest
		time.Sleep(57 * time.Minute)
		_, err = sign(t, a, "https://a.documents.azure.com/")
		require.NoError(t, err, "three minutes are left")
		time.Sleep(3 * time.Minute)
		_, err = sign(t, a, "https://a.documents.azure.com/")
		require.ErrorIs(t, err, errTest)

		fail, text = nil, ""
		_, err = sign(t, a, "https://a.documents.azure.com/")
		require.ErrorContains(t, err, "empty")
		text, life = "t", -time.Second
		_, err = sign(t, a, "https://a.documents.azure.com/")
		require.ErrorContains(t, err, "ended")
	})
	_, err := sign(t, AADToken(nil), "https://a.documents.azure.com/")
	require.ErrorContains(t, err, "AADToken got no function")
}

func TestAFunctionIsAnAuthorizer(t *testing.T) {
	_, err := sign(t, AuthorizerFunc(func(context.Context, *http.Request) error { return errTest }), "https://a/")
	require.True(t, errors.Is(err, errTest))
}
