package cosmos

import (
	"net/http"
	"strings"

	"github.com/reroute-go/reroute/idempotency"
	"github.com/reroute-go/reroute/middleware"
)

// dialect is the part of an Account that needs no topology.
type dialect struct {
	strictPatch bool
}

// Intent says what a request asks for. What the grammar does not know is named "unknown", counts as Metadata unless
// it is about items, and is judged by its method alone, so that a new kind of resource is still carried to the right
// region.
func (d dialect) Intent(req *http.Request) middleware.Intent {
	p := placeOf(req.URL)
	v := verbOf(req, p)
	in := middleware.Intent{
		Name:  names[v][p.kind],
		Scope: scopeOf(v, p.kind),
		Write: verbs[v].write,
		Level: verbs[v].level,
		Echo:  verbs[v].echo,

		Lenient: verbs[v].lenient,
	}
	if v == other {
		in.Level = idempotency.OfMethod(req)
		in.Write = in.Level != idempotency.Safe
	}
	if in.Scope == middleware.Data {
		in.Container = p.container
		in.Partitioned = v != planQuery // the gateway plans without asking a partition
		in.PartitionKey = value(req.Header, headerPartitionKey)
		in.RangeID = rangeID(req.Header)
	}
	if in.Write {
		d.judgeWrite(&in, v, req.Header)
	}
	return in
}

// judgeWrite refines what the verb says of a repeat by what the headers say.
func (d dialect) judgeWrite(in *middleware.Intent, v verb, h http.Header) {
	switch v {
	case replace, upsert, patch:
		guarded := idempotency.Guarded(h)
		if guarded {
			in.Echo, in.Lenient = idempotency.Changed, false
		}
		if v == patch && d.strictPatch && !guarded {
			in.Level = idempotency.NonIdempotent
		}
	}
	// Triggers run code of the user's with the write, and run it again with a repeat.
	if value(h, headerPreTrigger) != "" || value(h, headerPostTrigger) != "" {
		in.Level = idempotency.NonIdempotent
	}
}

// scopeOf: Data is what the service can take in any write region, and what depends on a partition being healthy.
func scopeOf(v verb, r resource) middleware.Scope {
	switch {
	case r == account && v == read:
		return middleware.Discovery
	case r == item, r == attachment, v == execute, v == removeByKey:
		return middleware.Data
	}
	return middleware.Metadata
}

// rangeID reads the partition that a request names, without the container's rid that some SDKs put before it.
func rangeID(h http.Header) string {
	id := value(h, headerRangeID)
	if i := strings.LastIndexByte(id, ','); i >= 0 {
		return id[i+1:]
	}
	return id
}

// verbOf says what the request does to the place.
func verbOf(req *http.Request, p place) verb {
	switch p.kind {
	case unknown:
		return other
	case containerOperation, accountOperation:
		return operationVerb(req.Method, p)
	}
	switch req.Method {
	case http.MethodGet, http.MethodHead, "":
		switch {
		case !p.feed:
			return read
		case p.kind == item && value(req.Header, headerChangeFeed) != "":
			return readChangeFeed
		default:
			return readFeed
		}
	case http.MethodPost:
		switch {
		case p.feed:
			return postVerb(req.Header, p.kind)
		case p.kind == sproc:
			return execute
		}
	case http.MethodPut:
		if !p.feed && p.kind != account {
			return replace
		}
	case http.MethodPatch:
		if !p.feed && p.kind != account {
			return patch
		}
	case http.MethodDelete:
		if !p.feed && p.kind != account {
			return remove
		}
	}
	return other
}

// postVerb tells apart what a POST to a feed can be; the first mark that fits decides.
func postVerb(h http.Header, r resource) verb {
	switch {
	case isTrue(h, headerIsQueryPlan):
		return planQuery
	case isTrue(h, headerIsQuery), isTrue(h, headerQuery), isQueryContent(value(h, headerContentType)):
		return query
	case r == item && isTrue(h, headerIsBatch):
		return batch
	case r == item && value(h, headerChangeFeed) != "":
		return readChangeFeed
	case isTrue(h, headerIsUpsert):
		return upsert
	default:
		return create
	}
}

func isQueryContent(contentType string) bool {
	return len(contentType) >= len(queryContentType) && strings.EqualFold(contentType[:len(queryContentType)], queryContentType)
}

// operationVerb reads a path of .../operations/{name}, where the name is the verb.
func operationVerb(method string, p place) verb {
	if method == http.MethodGet || method == http.MethodHead || method == "" {
		return other
	}
	switch {
	case p.kind == containerOperation && strings.EqualFold(p.id, "partitionkeydelete"):
		return removeByKey
	case p.kind == containerOperation && strings.EqualFold(p.id, "collectiontruncate"):
		return truncate
	case p.kind == accountOperation && strings.EqualFold(p.id, "dtc"):
		return commit
	case p.kind == accountOperation && strings.EqualFold(p.id, "metadatacheckaccess"):
		return checkAccess
	}
	return other
}
