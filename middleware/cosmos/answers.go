package cosmos

import (
	"context"
	"net/http"
	"strconv"

	"github.com/reroute-go/reroute/idempotency"
	"github.com/reroute-go/reroute/middleware"
)

// Substatuses that decide what an answer means. The same number means different things under different statuses.
const (
	writeForbidden          = 3    // 403
	nameCacheStale          = 1000 // 410
	partitionKeyMismatch    = 1001 // 400
	readSessionNotAvailable = 1002 // 404
	partitionKeyRangeGone   = 1002 // 410
	ownerNotFound           = 1003 // 404
	completingSplit         = 1007 // 410
	accountNotFound         = 1008 // 403
	completingMigration     = 1008 // 410
	storeNotReady           = 1023 // 404
	wrongContainer          = 1024 // 400
	systemUnavailable       = 3092 // 429

	// anySub stands for all substatuses that have no row of their own.
	anySub = -1
)

const statusRetryWith = 449

// timedOut is the code of an operation that the client's own deadline ended: the driver's CLIENT_OPERATION_TIMEOUT.
const timedOut = "408/20008"

type answer struct{ status, substatus int }

// answers is what the service's answers mean (seed "Status Code Handling", DESIGN rules 1 to 4, 11). Statuses without
// a row are Success for 2xx and 304, Unavailable for 5xx, else Final.
//
// Confirms marks what PPAF takes for proof of a partition's write region (rule 10).
//
// Unapplied stands where the service has refused before doing anything. A 408 or 5xx leaves that open, a 503 too:
// proxies make them as well (rule 4).
var answers = map[answer]middleware.Outcome{
	{400, partitionKeyMismatch}: {Cause: middleware.Final, Stale: middleware.StaleContainer},
	{400, wrongContainer}:       {Cause: middleware.Final, Stale: middleware.StaleContainer},

	{401, anySub}: {Cause: middleware.Unauthorized, Unapplied: true, NoRetry: true}, // the caller's credential: final

	{403, writeForbidden}:  {Cause: middleware.NotPrimary, Unapplied: true, Stale: middleware.StaleTopology},
	{403, accountNotFound}: {Cause: middleware.Removed, Unapplied: true, Stale: middleware.StaleTopology},

	{404, readSessionNotAvailable}: {Cause: middleware.SessionLag, Unapplied: true},
	{404, ownerNotFound}:           {Cause: middleware.Final, Stale: middleware.StaleContainer},
	{404, storeNotReady}:           {Cause: middleware.Unavailable, Unapplied: true},
	{404, 0}:                       {Cause: middleware.Final, Answer: idempotency.Missing, Confirms: true},
	{404, anySub}:                  {Cause: middleware.Final, Answer: idempotency.Missing},

	{408, anySub}: {Cause: middleware.Timeout},
	{409, anySub}: {Cause: middleware.Final, Answer: idempotency.Exists, Confirms: true},

	{410, nameCacheStale}:        {Cause: middleware.Gone, Unapplied: true, Stale: middleware.StaleContainer},
	{410, partitionKeyRangeGone}: {Cause: middleware.Split, Unapplied: true, Stale: middleware.StaleRanges},
	{410, completingSplit}:       {Cause: middleware.Migrating, Unapplied: true, Stale: middleware.StaleRanges},
	{410, completingMigration}:   {Cause: middleware.Migrating, Unapplied: true, Stale: middleware.StaleRanges},
	{410, anySub}:                {Cause: middleware.Gone, Unapplied: true},

	{412, anySub}: {Cause: middleware.Final, Answer: idempotency.Changed, Confirms: true},
	{413, anySub}: {Cause: middleware.Final, Confirms: true},

	{429, systemUnavailable}: {Cause: middleware.Unavailable, Unapplied: true}, // not the caller's doing: others may serve (rule 2)
	{429, anySub}:            {Cause: middleware.Throttled, Unapplied: true},

	{statusRetryWith, anySub}: {Cause: middleware.Contended, Unapplied: true},
}

// Judge says what a result means.
func (d dialect) Judge(in *middleware.Intent, resp *http.Response, err error) middleware.Outcome {
	switch {
	case resp == nil && err == context.DeadlineExceeded:
		return middleware.Outcome{Cause: middleware.Timeout, Code: timedOut}
	case resp == nil:
		return middleware.JudgeError(err)
	case in != nil && in.Scope == middleware.Foreign:
		return middleware.Outcome{Status: resp.StatusCode}
	}
	status := resp.StatusCode
	if status/100 == 2 || status == http.StatusNotModified {
		return middleware.Outcome{Cause: middleware.Success, Status: status, Code: code(status, 0), Range: servedBy(in, resp.Header), Confirms: true}
	}
	sub := substatus(resp.Header)
	out, ok := answers[answer{status, sub}]
	if !ok {
		out, ok = answers[answer{status, anySub}]
	}
	if !ok {
		out.Cause = middleware.Final
		if status/100 == 5 {
			out.Cause = middleware.Unavailable
		}
	}
	out.Status, out.Substatus, out.Code, out.Range = status, sub, code(status, sub), servedBy(in, resp.Header)
	if out.Cause.Transient() {
		out.Wait = wait(resp.Header)
	}
	return out
}

// servedBy is the partition that an answer came from.
func servedBy(in *middleware.Intent, h http.Header) string {
	if in == nil || !in.Partitioned {
		return ""
	}
	return value(h, headerRangeID)
}

// substatus reads x-ms-substatus; what is no number of at most nine digits is 0.
func substatus(h http.Header) int {
	v := value(h, headerSubstatus)
	if v == "" || len(v) > 9 {
		return 0
	}
	n := 0
	for i := range len(v) {
		if v[i] < '0' || v[i] > '9' {
			return 0
		}
		n = 10*n + int(v[i]-'0')
	}
	return n
}

// plainCodes spares the usual answers an allocation.
var plainCodes = func() (codes [600]string) {
	for status := range codes {
		codes[status] = strconv.Itoa(status)
	}
	return codes
}()

func code(status, sub int) string {
	plain := ""
	if 0 <= status && status < len(plainCodes) {
		plain = plainCodes[status]
	} else {
		plain = strconv.Itoa(status)
	}
	if sub == 0 {
		return plain
	}
	return plain + "/" + strconv.Itoa(sub)
}
