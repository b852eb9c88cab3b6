package cosmostest

import (
	"encoding/base64"
	"net/http"
	"net/url"
	"strings"
)

// The header names the account reads and writes.
const (
	headerActivityID    = "x-ms-activity-id"
	headerBatch         = "x-ms-cosmos-is-batch-request"
	headerBatchAtomic   = "x-ms-cosmos-batch-atomic"
	headerBatchContinue = "x-ms-cosmos-batch-continue-on-error"
	headerCharge        = "x-ms-request-charge"
	headerContainerRID  = "x-ms-cosmos-intended-collection-rid"
	headerContinuation  = "x-ms-continuation"
	headerCrossQuery    = "x-ms-documentdb-query-enablecrosspartition"
	headerDate          = "x-ms-date"
	headerEndEPK        = "x-ms-end-epk"
	headerHubOnly       = "x-ms-cosmos-hub-region-processing-only"
	headerIsQuery       = "x-ms-documentdb-isquery"
	headerItemCount     = "x-ms-item-count"
	headerMaxItemCount  = "x-ms-max-item-count"
	headerPartitionKey  = "x-ms-documentdb-partitionkey"
	headerQuery         = "x-ms-documentdb-query"
	headerQueryPlan     = "x-ms-cosmos-is-query-plan-request"
	headerRangeID       = "x-ms-documentdb-partitionkeyrangeid"
	headerSession       = "x-ms-session-token"
	headerStartEPK      = "x-ms-start-epk"
	headerSubstatus     = "x-ms-substatus"
	headerTentative     = "x-ms-cosmos-allow-tentative-writes"
	headerThroughput    = "x-ms-offer-throughput"
	headerAutopilot     = "x-ms-cosmos-offer-autopilot-settings"
	headerUpsert        = "x-ms-documentdb-is-upsert"
	headerRetryAfterMS  = "x-ms-retry-after-ms"
)

// call is a request read into the words of the service.
type call struct {
	operation Operation
	method    string
	path      string // escaped, as sent
	database  string // decoded ids
	container string
	kind      string // sprocs, triggers, udfs: the script family
	id        string // of the item, script or offer
	header    http.Header
	body      []byte

	resourceType string // what the signature covers
	links        []string

	scope   *scope // filled in while the call is carried out
	applied bool   // something was changed
}

// isTrue reads the flag headers of the service, which differ in case from client to client.
func isTrue(h http.Header, name string) bool { return strings.EqualFold(h.Get(name), "true") }

// parseCall reads a request. Position in the path decides, not text: an id may look like a resource word. The escaped path is
// split before it is decoded, because an id may hold a slash.
func parseCall(r *http.Request, body []byte) *call {
	c := &call{operation: Unknown, method: r.Method, path: r.URL.EscapedPath(), header: r.Header, body: body}
	var parts []string
	for part := range strings.SplitSeq(c.path, "/") {
		if part == "" {
			continue
		}
		if decoded, err := url.PathUnescape(part); err == nil {
			part = decoded
		}
		parts = append(parts, part)
	}
	c.readLinks(parts)
	words := make([]string, len(parts))
	for i, p := range parts {
		if words[i] = p; i%2 == 0 {
			words[i] = strings.ToLower(p)
		}
	}
	c.operation = c.classify(words)
	return c
}

// readLinks works out what the signature of this path has to cover.
func (c *call) readLinks(parts []string) {
	n := len(parts)
	if n == 0 {
		c.links = []string{""}
		return
	}
	if n%2 == 1 { // a feed: the type is the last word, the link is its parent
		c.resourceType = strings.ToLower(parts[n-1])
		c.links = []string{strings.Join(parts[:n-1], "/")}
		if n > 1 && byRID(parts) {
			c.links = append(c.links, strings.ToLower(parts[n-2]))
		}
		return
	}
	c.resourceType = strings.ToLower(parts[n-2])
	c.links = []string{strings.Join(parts, "/")}
	if c.resourceType == "operations" && strings.EqualFold(parts[n-1], "partitionkeydelete") {
		c.resourceType, c.links = "partitionkey", []string{strings.Join(parts[:n-2], "/")}
	}
	if byRID(parts) {
		c.links = append(c.links, strings.ToLower(parts[n-1]))
	}
}

// byRID reports whether a path addresses resources by resource id instead of by name.
func byRID(parts []string) bool {
	if strings.EqualFold(parts[0], "offers") {
		return true
	}
	rid, err := base64.StdEncoding.DecodeString(strings.ReplaceAll(parts[1], "-", "/"))
	return err == nil && len(rid) == 4
}

func (c *call) isQuery() bool {
	return isTrue(c.header, headerIsQuery) || isTrue(c.header, headerQuery) ||
		strings.HasPrefix(strings.ToLower(c.header.Get("Content-Type")), "application/query+json")
}

// classify names the operation of a split path and fills in the ids.
func (c *call) classify(p []string) Operation {
	if len(p) == 0 {
		return c.pick(methods{get: ReadAccount})
	}
	if p[0] == "offers" {
		switch len(p) {
		case 1:
			return c.pick(methods{get: ListOffers, query: ListOffers})
		case 2:
			c.id = p[1]
			return c.pick(methods{get: ReadOffer, put: ReplaceOffer})
		}
		return Unknown
	}
	if p[0] != "dbs" || len(p) > 6 || (len(p) > 2 && p[2] != "colls") {
		return Unknown
	}
	if len(p) > 1 {
		c.database = p[1]
	}
	if len(p) > 3 {
		c.container = p[3]
	}
	if len(p) > 5 {
		c.id = p[5]
	}
	switch len(p) {
	case 1:
		return c.pick(methods{get: ListDatabases, post: CreateDatabase, query: QueryDatabases})
	case 2:
		return c.pick(methods{get: ReadDatabase, delete: DeleteDatabase})
	case 3:
		return c.pick(methods{get: ListContainers, post: CreateContainer, query: QueryContainers})
	case 4:
		return c.pick(methods{get: ReadContainer, head: ReadContainer, put: ReplaceContainer, delete: DeleteContainer})
	}
	feed := len(p) == 5
	switch p[4] {
	case "docs":
		if feed {
			return c.documentFeed()
		}
		return c.pick(methods{get: ReadItem, put: ReplaceItem, patch: PatchItem, delete: DeleteItem})
	case "sprocs", "triggers", "udfs":
		c.kind = p[4]
		if feed {
			return c.pick(methods{get: ListScripts, post: CreateScript, query: ListScripts})
		}
		m := methods{get: ReadScript, put: ReplaceScript, delete: DeleteScript}
		if c.kind == "sprocs" {
			m.post = ExecuteSproc
		}
		return c.pick(m)
	case "pkranges":
		if feed {
			return c.pick(methods{get: ReadRanges})
		}
	case "conflicts":
		if feed {
			return c.pick(methods{get: ListConflicts, query: ListConflicts})
		}
	case "operations":
		if !feed && strings.EqualFold(c.id, "partitionkeydelete") {
			return c.pick(methods{post: DeletePartitionKey})
		}
	}
	return Unknown
}

// documentFeed tells apart the things a request to .../docs can be; the first test that holds wins.
func (c *call) documentFeed() Operation {
	changes := c.header.Get("A-IM") != ""
	switch c.method {
	case http.MethodGet:
		if changes {
			return ChangeFeed
		}
		return ListItems
	case http.MethodPost:
		switch {
		case isTrue(c.header, headerQueryPlan):
			return QueryPlan
		case c.isQuery():
			return QueryItems
		case isTrue(c.header, headerBatch):
			return Batch
		case changes:
			return ChangeFeed
		case isTrue(c.header, headerUpsert):
			return UpsertItem
		}
		return CreateItem
	}
	return Unknown
}

// methods maps the methods a path serves to operations; "" is not served.
type methods struct{ get, head, post, query, put, patch, delete Operation }

func (c *call) pick(m methods) Operation {
	var op Operation
	switch c.method {
	case http.MethodGet:
		op = m.get
	case http.MethodHead:
		op = m.head
	case http.MethodPost:
		if op = m.post; c.isQuery() {
			op = m.query
		}
	case http.MethodPut:
		op = m.put
	case http.MethodPatch:
		op = m.patch
	case http.MethodDelete:
		op = m.delete
	}
	if op == "" {
		return Unknown
	}
	return op
}
