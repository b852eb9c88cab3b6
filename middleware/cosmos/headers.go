package cosmos

import (
	"net/http"
	"strings"
)

// The service's headers, spelled the way net/http keeps them, so that they are found without being rewritten first.
const (
	headerAllowTentativeWrites = "X-Ms-Cosmos-Allow-Tentative-Writes"
	headerChangeFeed           = "A-Im"
	headerContentType          = "Content-Type"
	headerDate                 = "X-Ms-Date"
	headerETag                 = "Etag"
	headerIfNoneMatch          = "If-None-Match"
	headerIsBatch              = "X-Ms-Cosmos-Is-Batch-Request"
	headerIsQuery              = "X-Ms-Documentdb-Isquery"
	headerIsQueryPlan          = "X-Ms-Cosmos-Is-Query-Plan-Request"
	headerIsUpsert             = "X-Ms-Documentdb-Is-Upsert"
	headerMaxItems             = "X-Ms-Max-Item-Count"
	headerNoRetry449           = "X-Ms-Noretry-449"
	headerPartitionKey         = "X-Ms-Documentdb-Partitionkey"
	headerPostTrigger          = "X-Ms-Documentdb-Post-Trigger-Include"
	headerPreTrigger           = "X-Ms-Documentdb-Pre-Trigger-Include"
	headerQuery                = "X-Ms-Documentdb-Query"
	headerRangeID              = "X-Ms-Documentdb-Partitionkeyrangeid"
	headerRetryAfter           = "Retry-After"
	headerRetryAfterMS         = "X-Ms-Retry-After-Ms"
	headerRetryMS              = "Retry-After-Ms" // of gateways and proxies of other Azure services
	headerSubstatus            = "X-Ms-Substatus"
	headerVersion              = "X-Ms-Version"
)

const queryContentType = "application/query+json"

// value is h.Get for a name that is spelled as above.
func value(h http.Header, name string) string {
	if v := h[name]; len(v) > 0 {
		return v[0]
	}
	return ""
}

// isTrue compares without case: some SDKs send True, others true.
func isTrue(h http.Header, name string) bool {
	v := value(h, name)
	return v != "" && strings.EqualFold(strings.TrimSpace(v), "true")
}
