package cosmostest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// maxBody bounds what the server reads of a request, in bytes.
const maxBody = 4 << 20

// serve handles one request from arrival to answer. A panic with ErrAbortHandler closes the connection without a (further) answer.
func (a *Account) serve(e *endpoint, w http.ResponseWriter, r *http.Request) {
	if !a.enter() {
		panic(http.ErrAbortHandler)
	}
	defer a.serving.Done()
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	if err != nil {
		panic(http.ErrAbortHandler) // the client went away in the middle of its request
	}
	c := parseCall(r, body)
	entry := a.arrival(e, c)
	outage, recovered, latency := a.condition(e)
	switch outage {
	case Refused:
		panic(http.ErrAbortHandler) // a connection that slipped through while the gate was shut
	case BlackHole:
		a.hang(r.Context(), recovered)
	}
	a.wait(r.Context(), latency)

	rep, plan := a.decide(r.Context(), e, c, entry)
	if outage == ResetMidAnswer {
		plan.Reset, plan.CutAfter = true, max(1, len(rep.body)/2)
	}
	if !plan.silent() {
		a.log.update(func() { entry.Status, entry.Substatus = rep.status, rep.substatus })
	}
	a.send(w, r, rep, plan)
}

// enter counts a request in, unless the account is closed.
func (a *Account) enter() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return false
	}
	a.serving.Add(1)
	return true
}

// arrival logs a request.
func (a *Account) arrival(e *endpoint, c *call) *Request {
	h := c.header.Clone()
	if credential := h.Get("Authorization"); credential != "" {
		h.Set("Authorization", redact(credential))
	}
	entry := &Request{Time: time.Now(), Region: e.name, Method: c.method, Path: c.path, Operation: c.operation,
		Database: c.database, Container: c.container, ID: c.id, Range: c.header.Get(headerRangeID), Header: h}
	if len(c.body) <= maxKeptBody {
		entry.Body = c.body
	}
	if c.operation == CreateItem || c.operation == UpsertItem {
		var doc struct{ ID string }
		_ = json.Unmarshal(c.body, &doc) // a body without an id has none to log
		entry.ID = doc.ID
	}
	a.mu.Lock()
	if coll := a.store.container(c.database, c.container); coll != nil {
		entry.Database, entry.Container = coll.db.id, coll.id
		if s, err := a.scope(c); err == nil && s.exact {
			entry.Range = s.ranges[0].id
		}
	}
	a.mu.Unlock()
	a.log.add(entry)
	return entry
}

func (a *Account) condition(e *endpoint) (Outage, <-chan struct{}, time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return e.outage, e.recovered, e.latency
}

// decide works out the answer: credential, faults, then the operation itself.
func (a *Account) decide(ctx context.Context, e *endpoint, c *call, entry *Request) (*reply, Answer) {
	if err := a.authorize(c); err != nil {
		a.log.update(func() { a.log.bad++ })
		return a.refusal(err, c), Answer{}
	}
	fault := a.rules.take(entry, time.Now())
	if fault == nil {
		return a.apply(e, c, entry), Answer{}
	}
	plan := fault.Answer
	if fault.Respond != nil {
		plan = fault.Respond(*entry)
	}
	a.log.update(func() { entry.Fault = fault })
	var rep *reply
	if fault.AfterApply {
		rep = a.apply(e, c, entry)
	}
	a.wait(ctx, plan.Delay)
	if rep == nil && plan.Status == 0 && !plan.silent() {
		rep = a.apply(e, c, entry)
	}
	if plan.Status != 0 || rep == nil {
		rep = a.refusal(&apiError{status: plan.Status, message: "Injected by a fault rule."}, c)
		if plan.Status < 400 {
			rep.body = nil
		}
	}
	if plan.Substatus != 0 {
		rep.substatus = plan.Substatus
	}
	if plan.Body != "" {
		rep.body = []byte(plan.Body)
	}
	for name, value := range plan.Header {
		rep.header.Set(name, value)
	}
	return rep, plan
}

// apply carries out an operation.
func (a *Account) apply(e *endpoint, c *call, entry *Request) *reply {
	rep := a.applied(e, c)
	if c.applied {
		a.log.update(func() { entry.Applied = true })
	}
	return rep
}

func (a *Account) applied(e *endpoint, c *call) *reply {
	a.mu.Lock()
	at, err := a.serverOf(e, c)
	if err == nil && c.operation == ExecuteSproc {
		a.mu.Unlock()
		rep, err := a.executeSproc(c, at)
		if err != nil {
			return a.refusal(err, c)
		}
		return rep
	}
	defer a.mu.Unlock()
	now := time.Now()
	var rep *reply
	if err == nil {
		rep, err = a.dispatch(c, at, now)
	}
	if err != nil {
		rep = replyTo(err)
	}
	return a.dress(rep, c, at, now)
}

// serverOf finds the region that serves an endpoint and refuses what it serves no more.
func (a *Account) serverOf(e *endpoint, c *call) (*region, error) {
	at := a.hub
	if e != a.global {
		at = a.regionByKey(regionKey(e.name))
	}
	switch {
	case c.operation == ReadAccount:
	case at.draining || at.removed:
		return at, &apiError{status: http.StatusForbidden, substatus: 1008, message: "Database account " + a.cfg.ID + " does not exist in " + at.name + "."}
	case c.operation.isMetaWrite() && at != a.hub:
		return at, writeForbidden()
	}
	return at, nil
}

// dispatch runs everything but stored procedures, which must not run under the lock.
func (a *Account) dispatch(c *call, at *region, now time.Time) (*reply, error) {
	if len(c.body) > maxBody {
		return nil, tooLarge()
	}
	switch c.operation {
	case ReadAccount:
		return a.readAccount(now), nil
	case CreateDatabase, ReadDatabase, DeleteDatabase, ListDatabases, QueryDatabases:
		return a.databaseRequest(c, now)
	case CreateContainer, ReadContainer, ReplaceContainer, DeleteContainer, ListContainers, QueryContainers:
		return a.containerRequest(c, now)
	case ReadRanges:
		return a.readRanges(c, at)
	case CreateItem, ReadItem, UpsertItem, ReplaceItem, PatchItem, DeleteItem:
		return a.itemRequest(c, at, now)
	case Batch:
		return a.batch(c, at, now)
	case QueryItems, ListItems:
		return a.queryItems(c, at, now)
	case QueryPlan:
		return a.queryPlan(c)
	case ChangeFeed:
		return a.changeFeed(c, at, now)
	case DeletePartitionKey:
		return a.deletePartition(c, at, now)
	case CreateScript, ReadScript, ReplaceScript, DeleteScript, ListScripts:
		return a.scriptRequest(c, now)
	case ListConflicts:
		return (&page{}).reply("", "Conflicts"), nil
	case ReadOffer, ReplaceOffer, ListOffers:
		return a.offerRequest(c)
	}
	if c.resourceType != "" && slices.Contains([]string{"dbs", "colls", "docs", "sprocs", "triggers", "udfs", "pkranges", "offers", "conflicts"}, c.resourceType) {
		return nil, &apiError{status: http.StatusMethodNotAllowed, message: c.method + " is not supported on " + c.path + "."}
	}
	return nil, &apiError{status: http.StatusNotFound, message: "There is no resource at " + c.path + "."}
}

func replyTo(err error) *reply {
	var e *apiError
	if !errors.As(err, &e) {
		e = &apiError{status: http.StatusInternalServerError, message: err.Error()}
	}
	return e.reply().charge(1)
}

// refusal is the answer to a request that never reached the store.
func (a *Account) refusal(err error, c *call) *reply {
	a.mu.Lock()
	defer a.mu.Unlock()
	rep := replyTo(err)
	a.addIdentity(rep, c)
	return rep
}

func (a *Account) addIdentity(rep *reply, c *call) {
	id := c.header.Get(headerActivityID)
	if id == "" {
		a.made++
		id = fmt.Sprintf("%08x-0000-4000-8000-%012x", a.made>>48, a.made&(1<<48-1))
	}
	rep.set(headerActivityID, id).set("x-ms-gatewayversion", "2.0.0").set("x-ms-serviceversion", "cosmostest")
}

// dress adds the headers that tell about region, range and log position.
func (a *Account) dress(rep *reply, c *call, at *region, now time.Time) *reply {
	a.addIdentity(rep, c)
	listed := 0
	for _, r := range a.regions {
		if !r.removed {
			listed++
		}
	}
	rep.set("x-ms-number-of-read-regions", strconv.Itoa(listed-1))
	if c.scope == nil {
		return rep
	}
	tokens := make([]string, len(c.scope.ranges))
	for i, g := range c.scope.ranges {
		tokens[i] = a.sessionToken(g, at, now)
	}
	rep.set(headerSession, strings.Join(tokens, ","))
	rep.set("x-ms-alt-content-path", "dbs/"+c.scope.container.db.id+"/colls/"+c.scope.container.id).set("x-ms-content-path", c.scope.container.rid)
	if len(c.scope.ranges) == 1 {
		g := c.scope.ranges[0]
		lsn := strconv.FormatInt(a.advance(g, at, now), 10)
		rep.set(headerRangeID, g.id).set("lsn", lsn).set("x-ms-global-committed-lsn", lsn)
	}
	return rep
}

// wait lets time pass for a request, and ends the request when the client or the account goes first.
func (a *Account) wait(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return
	case <-ctx.Done():
	case <-a.done:
	}
	panic(http.ErrAbortHandler)
}

// hang keeps a request without an answer until the client leaves, the account closes or the outage ends.
func (a *Account) hang(ctx context.Context, recovered <-chan struct{}) {
	select {
	case <-recovered:
	case <-ctx.Done():
	case <-a.done:
	}
	panic(http.ErrAbortHandler)
}
