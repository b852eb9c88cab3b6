package roundtrippers_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/roundtrippers"
)

// environment looks names up in a map.
func environment(values map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		value, ok := values[name]
		return value, ok
	}
}

func TestSwitchesAreReadFromTheEnvironment(t *testing.T) {
	const infinite, none = -1, -1
	for _, tc := range []struct {
		id, name, value string
		want            roundtrippers.Switches
		junk            bool
	}{
		{"Z076", "DISABLE_RETRIES", "1", roundtrippers.Switches{DisableRetries: true}, false},
		{"Z076", "DISABLE_RETRIES", "true", roundtrippers.Switches{DisableRetries: true}, false},
		{"Z076", "DISABLE_RETRIES", " TRUE ", roundtrippers.Switches{DisableRetries: true}, false},
		{"Z076", "DISABLE_RETRIES", "0", roundtrippers.Switches{}, false},
		{"Z076", "DISABLE_RETRIES", "false", roundtrippers.Switches{}, false},
		{"Z076", "DISABLE_RETRIES", "", roundtrippers.Switches{}, false},
		{"Z076", "DISABLE_RETRIES", "maybe", roundtrippers.Switches{}, true},
		{"Z076", "DISABLE_RETRIES", "yes", roundtrippers.Switches{}, true},
		{"Z077", "REQUEST_TIMEOUT", "5s", roundtrippers.Switches{RequestTimeout: 5 * time.Second}, false},
		{"Z077", "REQUEST_TIMEOUT", "5", roundtrippers.Switches{RequestTimeout: 5 * time.Second}, false},
		{"Z077", "REQUEST_TIMEOUT", "1m30s", roundtrippers.Switches{RequestTimeout: 90 * time.Second}, false},
		{"Z077", "REQUEST_TIMEOUT", "infinite", roundtrippers.Switches{RequestTimeout: infinite}, false},
		{"Z077", "REQUEST_TIMEOUT", "Infinite", roundtrippers.Switches{RequestTimeout: infinite}, false},
		{"Z077", "REQUEST_TIMEOUT", "-3", roundtrippers.Switches{}, true},
		{"Z077", "REQUEST_TIMEOUT", "-3s", roundtrippers.Switches{}, true},
		{"Z077", "REQUEST_TIMEOUT", "0", roundtrippers.Switches{}, true},
		{"Z077", "REQUEST_TIMEOUT", "abc", roundtrippers.Switches{}, true},
		{"Z077", "REQUEST_TIMEOUT", "99999999999999999999", roundtrippers.Switches{}, true},
		{"Z077", "REQUEST_TIMEOUT", "9999999999999", roundtrippers.Switches{}, true},
		{"Z078", "CLIENT_MAP_REFRESH_WAIT_MS", "500", roundtrippers.Switches{RefreshWait: 500 * time.Millisecond}, false},
		{"Z078", "CLIENT_MAP_REFRESH_WAIT_MS", "0", roundtrippers.Switches{RefreshWait: none}, false},
		{"Z078", "CLIENT_MAP_REFRESH_WAIT_MS", "-1", roundtrippers.Switches{}, true},
		{"Z078", "CLIENT_MAP_REFRESH_WAIT_MS", "5s", roundtrippers.Switches{}, true},
		{"Z078", "CLIENT_MAP_REFRESH_WAIT_MS", "9223372036854775807", roundtrippers.Switches{}, true},
	} {
		got, err := roundtrippers.SwitchesFromEnv("ZARIS_", environment(map[string]string{"ZARIS_" + tc.name: tc.value, tc.name: "junk without the prefix"}))
		require.Equal(t, tc.want, got, "%s %q", tc.id, tc.value)
		if !tc.junk {
			require.NoError(t, err, tc.value)
			continue
		}
		var junk *roundtrippers.SwitchError
		require.ErrorAs(t, err, &junk, tc.value)
		require.Equal(t, "ZARIS_"+tc.name, junk.Name)
		require.ErrorContains(t, err, tc.name)
	}
}

func TestEveryJunkSwitchIsReportedAndTheOthersHold(t *testing.T) { // Z076, Z077
	got, err := roundtrippers.SwitchesFromEnv("", environment(map[string]string{"REQUEST_TIMEOUT": "soon", "DISABLE_RETRIES": "maybe", "CLIENT_MAP_REFRESH_WAIT_MS": "7"}))
	require.Equal(t, roundtrippers.Switches{RefreshWait: 7 * time.Millisecond}, got)
	require.ErrorContains(t, err, "REQUEST_TIMEOUT")
	require.ErrorContains(t, err, "DISABLE_RETRIES")
}

func TestTheEnvironmentIsReadOnce(t *testing.T) { // Z079, R44
	t.Setenv("KV_REQUEST_TIMEOUT", "7s")
	got, err := roundtrippers.SwitchesFromEnv("KV_", nil)
	require.NoError(t, err)
	t.Setenv("KV_REQUEST_TIMEOUT", "9s")
	require.Equal(t, 7*time.Second, got.RequestTimeout)
}

func TestFieldsWinOverSwitchesAndEitherDisables(t *testing.T) { // Z075, Z077
	deadline := func(b roundtrippers.OwnershipBuilder) time.Duration {
		for _, l := range b.Layers() {
			if d, ok := l.(roundtrippers.Deadline); ok {
				return d.After
			}
		}
		return -1
	}
	reroute := func(b roundtrippers.OwnershipBuilder) roundtrippers.Reroute {
		for _, l := range b.Layers() {
			if r, ok := l.(roundtrippers.Reroute); ok {
				return r
			}
		}
		return roundtrippers.Reroute{}
	}
	type builder = roundtrippers.OwnershipBuilder
	require.Equal(t, time.Minute, deadline(builder{}))
	require.Equal(t, 5*time.Second, deadline(builder{Switches: roundtrippers.Switches{RequestTimeout: 5 * time.Second}}))
	require.EqualValues(t, -1, deadline(builder{Switches: roundtrippers.Switches{RequestTimeout: -1}}))
	require.Equal(t, 3*time.Second, deadline(builder{OperationTimeout: 3 * time.Second, Switches: roundtrippers.Switches{RequestTimeout: -1}}))
	require.EqualValues(t, -1, deadline(builder{OperationTimeout: -1, Switches: roundtrippers.Switches{RequestTimeout: time.Second}}))

	require.EqualValues(t, 2, reroute(builder{Reroute: roundtrippers.Reroute{RefreshWait: 2}, Switches: roundtrippers.Switches{RefreshWait: 3}}).RefreshWait)
	require.EqualValues(t, 3, reroute(builder{Switches: roundtrippers.Switches{RefreshWait: 3}}).RefreshWait)

	off := roundtrippers.Switches{DisableRetries: true}
	require.Equal(t, 1, reroute(builder{Reroute: roundtrippers.Reroute{Attempts: 1}}).Attempts, "by the field")
	require.Equal(t, 1, reroute(builder{Reroute: roundtrippers.Reroute{Attempts: 5}, Switches: off}).Attempts, "by the switch")
	require.Equal(t, 5, reroute(builder{Reroute: roundtrippers.Reroute{Attempts: 5}}).Attempts)
}
