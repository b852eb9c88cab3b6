package cosmostest

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"
)

// maxBatch is how many operations a batch may have.
const maxBatch = 100

// batchOp is one operation of a batch as clients write it.
type batchOp struct {
	OperationType string          `json:"operationType"`
	ID            string          `json:"id"`
	PartitionKey  string          `json:"partitionKey"` // bulk only: JSON array in a string
	IfMatch       string          `json:"ifMatch"`
	IfNoneMatch   string          `json:"ifNoneMatch"`
	ResourceBody  json.RawMessage `json:"resourceBody"`
}

// batchResult is the answer to one of them.
type batchResult struct {
	StatusCode    int             `json:"statusCode"`
	SubStatusCode int             `json:"subStatusCode,omitempty"`
	RequestCharge float64         `json:"requestCharge"`
	ETag          string          `json:"eTag,omitempty"`
	ResourceBody  json.RawMessage `json:"resourceBody,omitempty"`
	Message       string          `json:"message,omitempty"`
}

var batchKinds = map[string]Operation{
	"create": CreateItem, "upsert": UpsertItem, "read": ReadItem, "replace": ReplaceItem, "patch": PatchItem, "delete": DeleteItem,
}

func (o batchOp) itemOp(c *call) (itemOp, error) {
	kind, ok := batchKinds[strings.ToLower(o.OperationType)]
	if !ok {
		return itemOp{}, badRequest("The batch operation type %q is not supported.", o.OperationType)
	}
	return itemOp{kind: kind, id: o.ID, body: o.ResourceBody, ifMatch: o.IfMatch, ifNoneMatch: o.IfNoneMatch,
		minimal: strings.EqualFold(c.header.Get("Prefer"), "return=minimal")}, nil
}

// batch serves transactional batches (atomic, one partition key) and bulk batches (every operation for itself, one range).
func (a *Account) batch(c *call, at *region, now time.Time) (*reply, error) {
	var ops []batchOp
	if err := json.Unmarshal(c.body, &ops); err != nil {
		return nil, badRequest("The batch is no JSON array of operations: %v", err)
	}
	if len(ops) == 0 || len(ops) > maxBatch {
		return nil, badRequest("A batch has 1 to %d operations, got %d.", maxBatch, len(ops))
	}
	s, err := a.scope(c)
	if err != nil {
		return nil, err
	}
	for _, g := range s.ranges {
		if err := a.admit(c, g, at, now); err != nil {
			return nil, err
		}
	}
	if isTrue(c.header, headerBatchAtomic) || c.header.Get(headerBatchAtomic) == "" {
		return a.transactionalBatch(c, s, ops, at, now)
	}
	return a.bulk(c, s, ops, at, now)
}

func (a *Account) transactionalBatch(c *call, s *scope, ops []batchOp, at *region, now time.Time) (*reply, error) {
	if s.key == nil || !s.key.complete {
		return nil, badRequest("A transactional batch needs one partition key.")
	}
	t := a.begin(s.container, s.ranges[0], at, now)
	results := make([]batchResult, len(ops))
	for i, op := range ops {
		results[i] = t.runInBatch(op, c, s.key)
		if results[i].failed() {
			for j := range results { // one failure undoes all: nothing was committed yet
				if j != i {
					results[j] = batchResult{StatusCode: http.StatusFailedDependency}
				}
			}
			return batchReply(http.StatusMultiStatus, results), nil
		}
	}
	c.applied = t.commit()
	return batchReply(http.StatusOK, results), nil
}

func (a *Account) bulk(c *call, s *scope, ops []batchOp, at *region, now time.Time) (*reply, error) {
	results := make([]batchResult, len(ops))
	status := http.StatusOK
	stopped := false
	for i, op := range ops {
		if stopped {
			results[i] = batchResult{StatusCode: http.StatusFailedDependency}
			continue
		}
		results[i] = a.bulkOp(op, c, s, at, now)
		if results[i].failed() {
			status = http.StatusMultiStatus
			stopped = !isTrue(c.header, headerBatchContinue)
		}
	}
	return batchReply(status, results), nil
}

func (a *Account) bulkOp(op batchOp, c *call, s *scope, at *region, now time.Time) batchResult {
	key := s.key
	if op.PartitionKey != "" || key == nil {
		var err error
		if key, err = s.container.parseKey(op.PartitionKey); err != nil {
			return failedResult(err)
		}
	}
	if !key.complete {
		return failedResult(badRequest("The partition key %s is incomplete.", key.text))
	}
	g := s.container.rangeOf(key.span.Min)
	if s.exact && g != s.ranges[0] {
		return failedResult(rangeGone(s.ranges[0].id))
	}
	t := a.begin(s.container, g, at, now)
	result := t.runInBatch(op, c, key)
	if !result.failed() && t.commit() {
		c.applied = true
	}
	return result
}

func (t *transaction) runInBatch(op batchOp, c *call, key *partitionKey) batchResult {
	item, err := op.itemOp(c)
	if err != nil {
		return failedResult(err)
	}
	r, err := t.run(item, key)
	if err != nil {
		return failedResult(err)
	}
	return batchResult{StatusCode: r.status, RequestCharge: r.charge, ETag: r.etag, ResourceBody: r.body}
}

func (r batchResult) failed() bool { return r.StatusCode >= 400 }

func failedResult(err error) batchResult {
	var e *apiError
	if !errors.As(err, &e) {
		e = &apiError{status: http.StatusInternalServerError, message: err.Error()}
	}
	return batchResult{StatusCode: e.status, SubStatusCode: e.substatus, RequestCharge: 1, Message: e.message}
}

func batchReply(status int, results []batchResult) *reply {
	total := 0.0
	for _, r := range results {
		total += r.RequestCharge
	}
	return newReply(status, encode(results)).charge(total)
}
