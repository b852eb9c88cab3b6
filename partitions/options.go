package partitions

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// FailoverOptions tunes the circuit breaker of each partition in each region (PPCB). It is the PartitionFailoverOptions
// of pkrange-gaps.md, gap 6.
//
// A field that is set counts before its environment variable, and that before the default. The environment is read once,
// by [New], which refuses values outside of the bounds by name and value. There is no interval of a failback sweep
// (AZURE_COSMOS_PPCB_FAILBACK_SWEEP_INTERVAL_MS is not read): whether a partition may be probed is judged by the
// operation that asks.
type FailoverOptions struct {
	// Enabled switches the breakers. nil: AZURE_COSMOS_PPCB_ENABLED ("true" or "false"), else true. An account with
	// partition failover (PPAF) has them on in any case, see [Registry.SetPartitionFailover].
	Enabled *bool

	// EnabledOverride, if set, decides whatever Enabled and the account say. nil: AZURE_COSMOS_PPCB_ENABLED_OVERRIDE
	// (true, 1, yes, on or false, 0, no, off in any case of letters), else none.
	EnabledOverride *bool

	// ReadFailures in a row trip the breaker of reads, at least 1. 0: AZURE_COSMOS_PPCB_READ_FAILURE_THRESHOLD, else 10.
	ReadFailures int

	// WriteFailures in a row trip the breaker of writes, at least 1. 0: AZURE_COSMOS_PPCB_WRITE_FAILURE_THRESHOLD, else 5.
	WriteFailures int

	// ResetWindow without a failure makes the count start again, at least 1 s. 0: AZURE_COSMOS_PPCB_COUNTER_RESET_WINDOW_MS,
	// else 5 min.
	ResetWindow time.Duration

	// UnavailabilityDuration is the time from a trip, or a failed probe, to the next probe, at least 1 s. Each breaker adds
	// up to half of it at random. 0: AZURE_COSMOS_PPCB_PARTITION_UNAVAILABILITY_DURATION_MS, else 5 s.
	UnavailabilityDuration time.Duration

	// ProbeLease is how long a probe that does not report keeps others from probing, at least 1 s, 0 = 75 s. It should be
	// longer than the slowest attempt; failures of attempts that are older than a recovery count for nothing for as long.
	ProbeLease time.Duration

	// MaxTracked bounds the breakers, one for each partition, region and direction with recent failures, at about 400 bytes
	// each, and apart from them the write overrides. 0 = 200,000. When it is reached, those that nobody has failed on for
	// ResetWindow make room; if there are none, further partitions are not tracked and keep their usual region.
	MaxTracked int
}

// limits are FailoverOptions with everything decided.
type limits struct {
	enabled     bool
	override    *bool
	failures    [2]uint32 // by direction
	resetWindow time.Duration
	unavailable time.Duration
	lease       time.Duration
	maxTracked  int
}

// decide asks the environment for what o leaves open.
func (o FailoverOptions) decide(lookup func(string) (string, bool)) (limits, error) {
	e := environment{lookup: lookup}
	var l limits
	if enabled := e.flag("Enabled", o.Enabled, "ENABLED", strictBool); enabled == nil || *enabled {
		l.enabled = true
	}
	l.override = e.flag("EnabledOverride", o.EnabledOverride, "ENABLED_OVERRIDE", lenientBool)
	l.failures[reads] = uint32(e.number("ReadFailures", int64(o.ReadFailures), "READ_FAILURE_THRESHOLD", 10, 1, math.MaxUint32))
	l.failures[writes] = uint32(e.number("WriteFailures", int64(o.WriteFailures), "WRITE_FAILURE_THRESHOLD", 5, 1, math.MaxUint32))
	l.resetWindow = e.duration("ResetWindow", o.ResetWindow, "COUNTER_RESET_WINDOW_MS", 5*time.Minute)
	l.unavailable = e.duration("UnavailabilityDuration", o.UnavailabilityDuration, "PARTITION_UNAVAILABILITY_DURATION_MS", 5*time.Second)
	l.lease = e.duration("ProbeLease", o.ProbeLease, "", 75*time.Second)
	l.maxTracked = int(e.number("MaxTracked", int64(o.MaxTracked), "", 200_000, 1, math.MaxInt32))
	return l, errors.Join(e.errs...)
}

// on is whether the breakers work, given the account's flag.
func (l *limits) on(account bool) bool {
	if l.override != nil {
		return *l.override
	}
	return l.enabled || account
}

// environment reads options and collects what is wrong with them.
type environment struct {
	lookup func(string) (string, bool)
	errs   []error
}

const prefix = "AZURE_COSMOS_PPCB_"

// longest is the largest duration that may be asked for: half as much again still fits into breaker.wait.
const longest = 30 * 24 * time.Hour

func (e *environment) get(name string) (string, bool) {
	if name == "" {
		return "", false
	}
	text, ok := e.lookup(prefix + name)
	return strings.TrimSpace(text), ok
}

func (e *environment) refuse(what string, value any, want string) {
	e.errs = append(e.errs, fmt.Errorf("partitions: %s is %v: must be %s", what, value, want))
}

func (e *environment) flag(field string, value *bool, name string, parse func(string) (value, ok bool)) *bool {
	if value != nil {
		copied := *value
		return &copied
	}
	text, ok := e.get(name)
	if !ok {
		return nil
	}
	parsed, ok := parse(text)
	if !ok {
		e.refuse(prefix+name, strconv.Quote(clip(text)), "true or false")
		return nil
	}
	return &parsed
}

func (e *environment) number(field string, value int64, name string, def, low, high int64) int64 {
	want := fmt.Sprintf("%d to %d", low, high)
	if value != 0 {
		if value < low || value > high {
			e.refuse("FailoverOptions."+field, value, want)
		}
		return value
	}
	text, ok := e.get(name)
	if !ok {
		return def
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < low || n > high {
		e.refuse(prefix+name, strconv.Quote(clip(text)), want)
		return def
	}
	return n
}

func (e *environment) duration(field string, value time.Duration, name string, def time.Duration) time.Duration {
	if value != 0 {
		if value < time.Second || value > longest {
			e.refuse("FailoverOptions."+field, value, fmt.Sprintf("%v to %v", time.Second, longest))
		}
		return value
	}
	ms := e.number(field, 0, name, def.Milliseconds(), 1000, longest.Milliseconds())
	return time.Duration(ms) * time.Millisecond
}

func strictBool(text string) (value, ok bool) {
	return text == "true", text == "true" || text == "false"
}

func lenientBool(text string) (value, ok bool) {
	switch strings.ToLower(text) {
	case "true", "1", "yes", "on":
		return true, true
	case "false", "0", "no", "off":
		return false, true
	}
	return false, false
}
