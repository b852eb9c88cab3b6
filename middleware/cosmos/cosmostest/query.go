package cosmostest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// defaultPage is the page size of queries and feeds without x-ms-max-item-count.
const defaultPage = 100

// pageSize reads x-ms-max-item-count; -1 leaves the size to the service, which then sends everything.
func pageSize(h http.Header) (int, error) {
	text := h.Get(headerMaxItemCount)
	if text == "" {
		return defaultPage, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n == 0 || n < -1 {
		return 0, badRequest("%s is %q, want -1 or a number above 0.", headerMaxItemCount, text)
	}
	if n == -1 {
		n = int(^uint(0) >> 1)
	}
	return n, nil
}

// page is one answer of a query or feed: rows and where the next page starts.
type page struct {
	rows         []json.RawMessage
	continuation string
}

func (p *page) reply(rid, name string) *reply {
	if p.rows == nil {
		p.rows = []json.RawMessage{}
	}
	body := encode(map[string]any{"_rid": rid, name: p.rows, "_count": len(p.rows)})
	return newReply(http.StatusOK, body).charge(2.8+float64(len(p.rows))/10).
		set(headerItemCount, strconv.Itoa(len(p.rows))).set(headerContinuation, p.continuation)
}

// continuation tokens carry the order number of the last item, so they stay good in another region and after a split.
const continuationForm = `{"token":"+RID:%s#RT:1#SEQ:%d","range":{"min":"","max":"FF"}}`

func readContinuation(text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	_, tail, ok := strings.Cut(text, "#SEQ:")
	digits, _, _ := strings.Cut(tail, `"`)
	n, err := strconv.ParseInt(digits, 10, 64)
	if !ok || err != nil || n < 0 {
		return 0, badRequest("Invalid continuation token %s.", strconv.Quote(text))
	}
	return n, nil
}

// queryItems serves queries and read feeds (q nil).
func (a *Account) queryItems(c *call, at *region, now time.Time) (*reply, error) {
	s, err := a.readScope(c, at, now)
	if err != nil {
		return nil, err
	}
	q := &query{top: -1}
	if c.operation == QueryItems {
		if s.key == nil && !s.exact && len(s.container.ranges) > 0 && !isTrue(c.header, headerCrossQuery) && c.header.Get(headerStartEPK) == "" {
			return nil, badRequest("Cross partition query is required but disabled. Please set %s to true, specify %s, or change the query.", headerCrossQuery, headerPartitionKey)
		}
		if q, err = parseQuery(c.body); err != nil {
			return nil, err
		}
	}
	size, err := pageSize(c.header)
	if err != nil {
		return nil, err
	}
	after, err := readContinuation(c.header.Get(headerContinuation))
	if err != nil {
		return nil, err
	}
	p := a.selectPage(s, q, at, now, size, after)
	return p.reply(s.container.rid, "Documents"), nil
}

// selectPage runs a query from an order number on.
func (a *Account) selectPage(s *scope, q *query, at *region, now time.Time, size int, after int64) *page {
	p := &page{}
	matched := 0
	for _, it := range s.container.order {
		if !s.covers(it) {
			continue
		}
		v := a.visible(it, s.container.rangeOf(it.epk), at, now)
		if v == nil || !q.holds(v.doc) {
			continue
		}
		if matched++; q.count || q.top >= 0 && matched > q.top || it.seq <= after {
			continue
		}
		if len(p.rows) == size {
			p.continuation = fmt.Sprintf(continuationForm, s.container.rid, after)
			break
		}
		after = it.seq
		if row, ok := q.project(v); ok {
			p.rows = append(p.rows, row)
		}
	}
	if q.count {
		p.rows = []json.RawMessage{encode(matched)}
	}
	return p
}

// readScope finds the scope of a read over several items and checks each of its ranges.
func (a *Account) readScope(c *call, at *region, now time.Time) (*scope, error) {
	s, err := a.scope(c)
	if err != nil {
		return nil, err
	}
	for _, g := range s.ranges {
		if err := a.admit(c, g, at, now); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// changeFeed serves the items changed since an LSN, oldest change first. Deletions leave no trace in it.
func (a *Account) changeFeed(c *call, at *region, now time.Time) (*reply, error) {
	s, err := a.readScope(c, at, now)
	if err != nil {
		return nil, err
	}
	size, err := pageSize(c.header)
	if err != nil {
		return nil, err
	}
	position := int64(0)
	for i, g := range s.ranges { // the position up to which every range of the scope is visible
		if seen := a.advance(g, at, now); i == 0 || seen > position {
			position = seen
		}
	}
	since, err := a.changesSince(c, position)
	if err != nil {
		return nil, err
	}
	var changed []*version
	for _, v := range a.itemsIn(s, at, now) {
		if v.lsn > since && !v.changed.Before(modifiedSince(c)) {
			changed = append(changed, v)
		}
	}
	slices.SortStableFunc(changed, func(x, y *version) int { return cmp.Compare(x.lsn, y.lsn) })
	if len(changed) == 0 {
		return newReply(http.StatusNotModified, nil).charge(1).set("ETag", feedETag(max(since, position))), nil
	}
	p := &page{}
	for i, v := range changed {
		if i >= size && v.lsn > since { // a transaction is never torn over two pages
			break
		}
		p.rows, since = append(p.rows, v.body), v.lsn
	}
	if len(p.rows) == len(changed) {
		since = max(since, position)
	}
	return p.reply(s.container.rid, "Documents").set("ETag", feedETag(since)), nil
}

func feedETag(lsn int64) string { return `"` + strconv.FormatInt(lsn, 10) + `"` }

func modifiedSince(c *call) time.Time {
	t, _ := http.ParseTime(c.header.Get("If-Modified-Since")) // zero when absent or junk: from the beginning
	return t
}

// changesSince reads where a change feed goes on: an LSN, or * for now.
func (a *Account) changesSince(c *call, now int64) (int64, error) {
	text := strings.Trim(c.header.Get("If-None-Match"), `"`)
	switch text {
	case "":
		return 0, nil
	case "*":
		return now, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, badRequest("The change feed position %q is not valid.", text)
	}
	return n, nil
}

// queryPlan answers that a query can be run as it is over the whole key space.
func (a *Account) queryPlan(c *call) (*reply, error) {
	s, err := a.scope(c)
	if err != nil {
		return nil, err
	}
	if _, err := parseQuery(c.body); err != nil {
		return nil, err
	}
	none := []any{}
	return newReply(http.StatusOK, encode(map[string]any{
		"partitionedQueryExecutionInfoVersion": 2,
		"queryInfo": map[string]any{
			"distinctType": "None", "top": nil, "offset": nil, "limit": nil, "orderBy": none, "orderByExpressions": none,
			"groupByExpressions": none, "groupByAliases": none, "aggregates": none, "groupByAliasToAggregateType": map[string]any{},
			"rewrittenQuery": "", "hasSelectValue": false, "hasNonStreamingOrderBy": false,
		},
		"queryRanges": []any{map[string]any{"min": s.ranges[0].texts[0], "max": s.ranges[len(s.ranges)-1].texts[1], "isMinInclusive": true, "isMaxInclusive": false}},
	})).charge(1), nil
}
