package ownership

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Words are the headers that both ends of a service agree on. The zero value is
// the recommended set.
type Words struct {
	StatusHeader    string // the Status in words; "" = X-Route-Status
	OwnerHeader     string // who owns the key, host[:port]; "" = X-Route-Owner
	EpochHeader     string // how new that, or the client's map, is; "" = X-Route-Epoch
	RemainingHeader string // milliseconds the client will wait yet; "" = X-Route-Remaining
}

func (w Words) status() string    { return orDefault(w.StatusHeader, "X-Route-Status") }
func (w Words) owner() string     { return orDefault(w.OwnerHeader, "X-Route-Owner") }
func (w Words) epoch() string     { return orDefault(w.EpochHeader, "X-Route-Epoch") }
func (w Words) remaining() string { return orDefault(w.RemainingHeader, "X-Route-Remaining") }

// Hint is what a node that does not serve a key knows about who does. Its zero
// value knows nothing.
type Hint struct {
	// Owner of the key, host[:port]. Clients go there at once, if they know the
	// host from the map or from their configuration.
	Owner string
	// Epoch of the map by which Owner is the owner. It must never fall.
	Epoch uint64
	// RetryAfter is how long the client should wait, rounded up to whole seconds.
	RetryAfter time.Duration
}

// Reject answers a request that this node does not serve, with the recommended
// code of s: 421 for Moved and ReplicaWriteRejected, 503 for OwnershipChanging,
// Migrating and Unavailable, 404 and 412 for NotFound and Conflict. The
// request must not have been carried out, in part or in whole: the client will
// send any method again.
func (w Words) Reject(rw http.ResponseWriter, s Status, hint Hint) {
	h := rw.Header()
	h.Set(w.status(), s.String())
	h.Set("Cache-Control", "no-store")
	if hint.Owner != "" {
		h.Set(w.owner(), hint.Owner)
	}
	if hint.Epoch != 0 {
		h.Set(w.epoch(), strconv.FormatUint(hint.Epoch, 10))
	}
	if hint.RetryAfter > 0 {
		seconds := (hint.RetryAfter-1)/time.Second + 1
		h.Set("Retry-After", strconv.FormatInt(int64(seconds), 10))
	}
	code := http.StatusInternalServerError
	if int(s) < len(statuses) {
		code = statuses[s].code
	}
	http.Error(rw, s.String(), code)
}

// Reject is Words.Reject with the recommended headers.
func Reject(rw http.ResponseWriter, s Status, hint Hint) { Words{}.Reject(rw, s, hint) }

// Epoch returns the epoch of the map by which the client chose this node; ok is
// false if the request does not say: see Stamp. A node that knows a newer one can
// answer Moved even where it could serve.
func (w Words) Epoch(req *http.Request) (epoch uint64, ok bool) {
	return number(req.Header, w.epoch())
}

// Remaining returns how long the client will wait for an answer yet; ok is false
// if the request does not say: see Stamp.
func (w Words) Remaining(req *http.Request) (left time.Duration, ok bool) {
	ms, ok := number(req.Header, w.remaining())
	if !ok || ms > uint64(maxWait/time.Millisecond) {
		return maxWait, ok
	}
	return time.Duration(ms) * time.Millisecond, true
}

// statusOf reads the status in words. Lines that contradict each other count as
// none (Z014).
func (w Words) statusOf(h http.Header) (s Status, ok bool) {
	word, ok := single(h, w.status())
	if !ok {
		return Other, false
	}
	return ParseStatus(word)
}

// hintOf reads a hint; what is malformed is left out.
func (w Words) hintOf(h http.Header) (owner string, epoch uint64) {
	if owner, _ = single(h, w.owner()); !validHost(owner) {
		owner = ""
	}
	epoch, _ = number(h, w.epoch())
	return owner, epoch
}

// single returns the header's value if all its lines agree.
func single(h http.Header, name string) (value string, ok bool) {
	values := h.Values(name)
	for i, v := range values {
		v = strings.TrimSpace(v)
		if i > 0 && !strings.EqualFold(v, value) {
			return "", false
		}
		value = v
	}
	return value, value != ""
}

func number(h http.Header, name string) (n uint64, ok bool) {
	text, ok := single(h, name)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseUint(text, 10, 64)
	return n, err == nil
}

// maxWait saturates durations that a header names; no layer waits that long.
const maxWait = 24 * time.Hour

// retryAfter reads a positive number of whole seconds (Z047); a date, zero or
// anything else counts as nothing said.
func retryAfter(h http.Header) time.Duration {
	text, ok := single(h, "Retry-After")
	if !ok || strings.Trim(text, "0123456789") != "" {
		return 0
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil || seconds > int64(maxWait/time.Second) {
		return maxWait // more digits than an int64 has
	}
	return time.Duration(seconds) * time.Second
}

func orDefault[T comparable](value, standard T) T {
	var zero T
	if value == zero {
		return standard
	}
	return value
}
