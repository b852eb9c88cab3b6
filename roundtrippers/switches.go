package roundtrippers

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"time"
)

// Switches is what an operator may set from outside for a stack that reroutes.
// The zero value sets nothing.
type Switches struct {
	RequestTimeout time.Duration // of an operation; 0 = not set, -1 = infinite
	RefreshWait    time.Duration // see Reroute.RefreshWait; 0 = not set, -1 = none
	DisableRetries bool          // send once and show the raw answer
}

// validate reports what SwitchesFromEnv does not return, and takes it out.
func (s *Switches) validate(m *mistakes) {
	if negativeOrNone(m, "Switches.RequestTimeout", s.RequestTimeout); s.RequestTimeout < -1 {
		s.RequestTimeout = 0
	}
	if negativeOrNone(m, "Switches.RefreshWait", s.RefreshWait); s.RefreshWait < -1 {
		s.RefreshWait = 0
	}
}

// SwitchError says that a variable's value makes no sense and was ignored.
type SwitchError struct {
	Name, Value string // of the variable, as found
	Want        string // what the value may be
}

// Error shows at most 40 characters of the value.
func (e *SwitchError) Error() string {
	return fmt.Sprintf("%s is %.40q, want %s: ignored", e.Name, e.Value, e.Want)
}

// SwitchesFromEnv reads, once, the environment variables with this prefix, such
// as "ZARIS_" (seed ownership-churn):
//
//	REQUEST_TIMEOUT             "5s", "5" (seconds) or "infinite"
//	CLIENT_MAP_REFRESH_WAIT_MS  "500"; "0" = trigger a refresh and go on
//	DISABLE_RETRIES             "true" or "1", "false" or "0"
//
// Unset and empty variables set nothing. The error joins a *SwitchError for each
// one that holds junk; the Switches are good all the same, without it. lookup
// nil = os.LookupEnv.
func SwitchesFromEnv(prefix string, lookup func(name string) (value string, ok bool)) (Switches, error) {
	if lookup == nil {
		lookup = os.LookupEnv
	}
	var s Switches
	var errs []error
	read := func(name, want string, parse func(text string) bool) {
		value, _ := lookup(prefix + name)
		if text := strings.TrimSpace(value); text != "" && !parse(text) {
			errs = append(errs, &SwitchError{Name: prefix + name, Value: value, Want: want})
		}
	}
	read("REQUEST_TIMEOUT", `a duration, whole seconds or "infinite"`, func(text string) (ok bool) {
		s.RequestTimeout, ok = parseTimeout(text)
		return ok
	})
	read("CLIENT_MAP_REFRESH_WAIT_MS", "whole milliseconds", func(text string) bool {
		ms, ok := parseWhole(text, time.Millisecond)
		if ok && ms == 0 {
			ms = -1
		}
		s.RefreshWait = ms
		return ok
	})
	read("DISABLE_RETRIES", "true, 1, false or 0", func(text string) bool {
		s.DisableRetries = text == "1" || strings.EqualFold(text, "true")
		return s.DisableRetries || text == "0" || strings.EqualFold(text, "false")
	})
	return s, errors.Join(errs...)
}

func parseTimeout(text string) (time.Duration, bool) {
	if strings.EqualFold(text, "infinite") {
		return -1, true
	}
	if d, ok := parseWhole(text, time.Second); ok {
		return d, d > 0
	}
	if d, err := time.ParseDuration(text); err == nil && d > 0 {
		return d, true
	}
	return 0, false
}

// parseWhole reads a number of units without sign or fraction.
func parseWhole(text string, unit time.Duration) (time.Duration, bool) {
	n, err := strconv.ParseUint(text, 10, 63)
	if err != nil || n > uint64(math.MaxInt64/unit) {
		return 0, false
	}
	return time.Duration(n) * unit, true
}
