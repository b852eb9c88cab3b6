package cosmos

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// longestWait bounds what a server can wish for. No budget takes a day; the limit only keeps sums from overflowing.
const longestWait = 24 * time.Hour

// wait reads how long the server wishes us to wait: retry-after-ms, else x-ms-retry-after-ms, else Retry-After in
// seconds, else Retry-After as a date; the finer header wins (B25). 0 = it did not say. What is negative, zero or garbage counts as not said; what is huge is
// longestWait, and never a short wait by overflow (B23).
func wait(h http.Header) time.Duration {
	for _, name := range [...]string{headerRetryMS, headerRetryAfterMS} {
		if d := number(value(h, name), time.Millisecond); d > 0 {
			return d
		}
	}
	v := value(h, headerRetryAfter)
	if v == "" {
		return 0 // ParseTime would make three errors of it
	}
	if d := number(v, time.Second); d > 0 {
		return d
	}
	if at, err := http.ParseTime(strings.TrimSpace(v)); err == nil {
		return min(max(time.Until(at), 0), longestWait)
	}
	return 0
}

// number reads a plain decimal number of units.
func number(s string, unit time.Duration) time.Duration {
	s = strings.TrimSpace(s)
	if s == "" || len(s) > 32 || strings.Trim(s, "0123456789.") != "" {
		return 0 // ParseFloat would also take hexadecimal, exponents and infinities
	}
	n, err := strconv.ParseFloat(s, 64)
	switch {
	case err != nil:
		return 0
	case n*float64(unit) >= float64(longestWait):
		return longestWait
	}
	return time.Duration(n * float64(unit))
}
