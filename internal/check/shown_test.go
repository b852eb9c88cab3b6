package check_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/reroute-go/reroute/internal/check"
)

func TestOfAURLIsShownWhatIsNoCredential(t *testing.T) {
	for text, want := range map[string]string{
		"":                                    "",
		"https://api.test:8443/v1/items":      "https://api.test:8443/v1/items",
		"https://*.api.test":                  "https://*.api.test",
		"map.internal/map":                    "map.internal/map",
		"ftp://x":                             "ftp://x",
		"https://me:secret@api.test/v1":       "https://...@api.test/v1",
		"me:secret@api.test":                  "...@api.test",
		"https://api.test/v1?key=secret":      "https://api.test/v1...",
		"https://me@api.test?key=secret":      "https://...@api.test...",
		"https://api.test?key=sec@secret":     "https://...",
		"https://me:sec/secret@api.test":      "https://...",
		"AccountKey=secret;Endpoint=a://b":    "...",
		"Bearer secret":                       "Bearer...",
		"https://api.test#secret":             "https://api.test...",
		"http://me:secret":                    "http://me...",
		"http://me:secret/v1":                 "http://me...",
		":secret":                             "...",
		"https://[::1]:8443/v1":               "https://[::1]:8443/v1",
		"https://[::1]:secret/v1":             "https://[::1]...",
		"https://api.test/v1:batch":           "https://api.test/v1:batch",
		"://secret@a":                         "://...@a",
		"https://me:sec]ret":                  "https://me...",
		"https://[me:secret]/":                "https://[me...",
		"https:/me:secret":                    "https...",
		"https:///me:secret":                  "https:///me...",
		"//me:secret":                         "//me...",
		"//me:secret@a":                       "...",
		"https:me:secret@a":                   "...@a",
		"https:\\\\me:secret":                 "https...",
		"https://a\\@secret":                  "https://...",
		"me:secret://a":                       "...",
		"https://secret%40a/v1":               "https://...",
		"https://me:123456":                   "https://me...",
		"https://a\nsecret":                   "https://a...",
		"Bearer\tsecret":                      "Bearer...",
		"https://" + strings.Repeat("a", 999): "https://" + strings.Repeat("a", 200) + "...",
	} {
		require.Equal(t, want, check.Shown(text))
	}
}

func TestOfAURLNeitherUserNorQueryIsShownWhateverTheyAre(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		secret := "SECRET" // what surrounds it is what could mislead
		noise := rapid.StringMatching(`[a-z:/?#@=;,. %&\]\[\\\t\n]{0,6}`)
		around := func(name string) string { return noise.Draw(rt, name) + secret + noise.Draw(rt, name) }
		for _, text := range []string{
			"https://" + around("user") + "@api.test/v1",
			"https://me:" + around("password") + "@api.test/v1",
			"https://api.test/v1?key=" + around("query"),
			"https://me:x@api.test/v1?key=" + around("query"),
			"https://me:" + secret + noise.Draw(rt, "no host"),
		} {
			if shown := check.Shown(text); strings.Contains(shown, secret) {
				rt.Fatalf("%q shows as %q", text, shown)
			}
		}
	})
}
