package partitions

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func env(pairs ...string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		for i := 0; i < len(pairs); i += 2 {
			if name == pairs[i] {
				return pairs[i+1], true
			}
		}
		return "", false
	}
}

func TestTheDefaultsAreTheReferences(t *testing.T) { // 4.1, gap 6
	l, err := FailoverOptions{}.decide(noEnv)
	require.NoError(t, err)
	require.Equal(t, limits{
		enabled: true, failures: [2]uint32{10, 5}, resetWindow: 5 * time.Minute, unavailable: 5 * time.Second,
		lease: 75 * time.Second, maxTracked: 200_000,
	}, l)
}

func TestAFieldCountsBeforeTheEnvironmentAndThatBeforeTheDefault(t *testing.T) {
	lookup := env(
		"AZURE_COSMOS_PPCB_ENABLED", "false",
		"AZURE_COSMOS_PPCB_ENABLED_OVERRIDE", " Yes ",
		"AZURE_COSMOS_PPCB_READ_FAILURE_THRESHOLD", "3",
		"AZURE_COSMOS_PPCB_WRITE_FAILURE_THRESHOLD", "1",
		"AZURE_COSMOS_PPCB_COUNTER_RESET_WINDOW_MS", "1000",
		"AZURE_COSMOS_PPCB_PARTITION_UNAVAILABILITY_DURATION_MS", "2500",
	)
	l, err := FailoverOptions{}.decide(lookup)
	require.NoError(t, err)
	require.Equal(t, limits{
		override: new(true), failures: [2]uint32{3, 1}, resetWindow: time.Second, unavailable: 2500 * time.Millisecond,
		lease: 75 * time.Second, maxTracked: 200_000,
	}, l)

	l, err = FailoverOptions{
		Enabled: new(true), EnabledOverride: new(false), ReadFailures: 20, WriteFailures: 30, ResetWindow: time.Minute,
		UnavailabilityDuration: time.Second, ProbeLease: time.Second, MaxTracked: 1,
	}.decide(lookup)
	require.NoError(t, err)
	require.Equal(t, limits{
		enabled: true, override: new(false), failures: [2]uint32{20, 30}, resetWindow: time.Minute, unavailable: time.Second,
		lease: time.Second, maxTracked: 1,
	}, l)
}

func TestJunkInTheEnvironmentIsRefusedByNameAndValue(t *testing.T) {
	for name, values := range map[string][]string{
		"AZURE_COSMOS_PPCB_ENABLED":                              {"", "yes", "1", "TRUE"},
		"AZURE_COSMOS_PPCB_ENABLED_OVERRIDE":                     {"", "maybe", "2"},
		"AZURE_COSMOS_PPCB_READ_FAILURE_THRESHOLD":               {"", "0", "-1", "ten", "4294967296", "99999999999999999999", "1.5"},
		"AZURE_COSMOS_PPCB_WRITE_FAILURE_THRESHOLD":              {"0"},
		"AZURE_COSMOS_PPCB_COUNTER_RESET_WINDOW_MS":              {"999", "5s", "2592000001"},
		"AZURE_COSMOS_PPCB_PARTITION_UNAVAILABILITY_DURATION_MS": {"0", "-5000", "NaN"},
	} {
		for _, value := range values {
			_, err := FailoverOptions{}.decide(env(name, value))
			require.ErrorContains(t, err, name+` is "`+value+`": must be`)
		}
	}
	_, err := FailoverOptions{}.decide(env(
		"AZURE_COSMOS_PPCB_ENABLED", "?", "AZURE_COSMOS_PPCB_READ_FAILURE_THRESHOLD", "?"))
	require.ErrorContains(t, err, "ENABLED")
	require.ErrorContains(t, err, "THRESHOLD", "all of them at once")
}

func TestAFieldOutOfBoundsIsRefusedByNameAndValue(t *testing.T) {
	for text, o := range map[string]FailoverOptions{
		"ReadFailures is -1":              {ReadFailures: -1},
		"WriteFailures is -2":             {WriteFailures: -2},
		"ResetWindow is 999ms":            {ResetWindow: 999 * time.Millisecond},
		"UnavailabilityDuration is -1s":   {UnavailabilityDuration: -time.Second},
		"UnavailabilityDuration is 721h0": {UnavailabilityDuration: 721 * time.Hour},
		"ProbeLease is 1ns":               {ProbeLease: 1},
		"MaxTracked is -5":                {MaxTracked: -5},
	} {
		_, err := o.decide(noEnv)
		require.ErrorContains(t, err, "partitions: FailoverOptions."+text)
	}
}

func TestTheOverrideDecidesAndElseTheAccountOrTheOption(t *testing.T) { // 4.1: override ?? (account ∨ enabled)
	for _, c := range []struct {
		override         *bool
		enabled, account bool
		want             bool
	}{
		{nil, false, false, false}, {nil, true, false, true}, {nil, false, true, true}, {nil, true, true, true},
		{new(true), false, false, true}, {new(false), true, true, false},
	} {
		require.Equal(t, c.want, (&limits{override: c.override, enabled: c.enabled}).on(c.account))
	}
}
