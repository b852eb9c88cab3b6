package cosmostest

import (
	"encoding/json"
	"errors"
	"net/http"
	"time"
)

// SprocCall is one execution of a stored procedure.
type SprocCall struct {
	Region       string            // that ran it
	Database     string            // id
	Container    string            // id
	ID           string            // of the stored procedure
	PartitionKey string            // JSON array
	Parameters   []json.RawMessage // the arguments
	Header       http.Header       // of the request
}

// Sproc is the Go body of a stored procedure. Its value is sent as JSON; an error is answered 400 with its text. It runs without
// locks held and may be called concurrently.
type Sproc func(SprocCall) (any, error)

// script is a stored procedure, trigger or user defined function.
type script struct {
	id, rid, etag string
	changed       time.Time
	properties    map[string]any
}

// sprocKey names a stored procedure of the account.
type sprocKey struct{ database, container, id string }

// HandleSproc makes run the body of a stored procedure, whether or not a client has created it. Without a handler a created
// procedure answers its arguments. A nil run takes the handler away.
func (a *Account) HandleSproc(db, coll, id string, run Sproc) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sprocs[sprocKey{db, coll, id}] = run
}

// Executions counts how often a stored procedure has run, answered or not.
func (a *Account) Executions(db, coll, id string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.executions[sprocKey{db, coll, id}]
}

// executeSproc runs a stored procedure. It is called without locks, because the handler may take its time.
func (a *Account) executeSproc(c *call, at *region) (*reply, error) {
	run, sc, err := a.beginSproc(c, at)
	if err != nil {
		return nil, err
	}
	var parameters []json.RawMessage
	if len(c.body) > 0 {
		if err := json.Unmarshal(c.body, &parameters); err != nil {
			return nil, badRequest("The stored procedure parameters are no JSON array: %v", err)
		}
	}
	var value any = parameters
	if parameters == nil {
		value = []any{}
	}
	if run != nil {
		value, err = run(SprocCall{Region: at.name, Database: c.database, Container: c.container, ID: c.id,
			PartitionKey: sc.key.text, Parameters: parameters, Header: c.header.Clone()})
		if err != nil {
			return nil, &apiError{status: http.StatusBadRequest, message: "Encountered exception while executing the stored procedure: " + err.Error()}
		}
	}
	body, err := json.Marshal(value)
	if err != nil {
		return nil, errors.Join(badRequest("The value of the stored procedure is no JSON."), err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	sc.container.lsn++
	a.append(sc.container.rangeOf(sc.key.span.Min), sc.container.lsn, at, now)
	return a.dress(newReply(http.StatusOK, body).charge(11.3), c, at, now), nil
}

// beginSproc checks an execution and counts it.
func (a *Account) beginSproc(c *call, at *region) (Sproc, *scope, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s, err := a.scope(c)
	if err != nil {
		return nil, nil, err
	}
	if s.key == nil || !s.key.complete {
		return nil, nil, badRequest("Executing a stored procedure needs a partition key.")
	}
	if err := a.admit(c, s.ranges[0], at, time.Now()); err != nil {
		return nil, nil, err
	}
	k := sprocKey{c.database, c.container, c.id}
	run := a.sprocs[k]
	if run == nil && s.container.scripts["sprocs"][c.id] == nil {
		return nil, nil, notFound()
	}
	a.executions[k]++
	c.applied = true
	return run, s, nil
}

// scriptFeeds are the names under which feeds list scripts.
var scriptFeeds = map[string]string{"sprocs": "StoredProcedures", "triggers": "Triggers", "udfs": "UserDefinedFunctions"}

// scriptRequest serves the definitions of stored procedures, triggers and user defined functions.
func (a *Account) scriptRequest(c *call, now time.Time) (*reply, error) {
	coll := a.store.container(c.database, c.container)
	if coll == nil {
		return nil, notFound()
	}
	family := coll.scripts[c.kind]
	if c.operation == ListScripts {
		p := &page{}
		for _, s := range sorted(family) {
			p.rows = append(p.rows, encode(s.document(coll, c.kind)))
		}
		return p.reply(coll.rid, scriptFeeds[c.kind]), nil
	}
	old := family[c.id]
	if old == nil && c.operation != CreateScript {
		return nil, notFound()
	}
	switch c.operation {
	case ReadScript:
		return newReply(http.StatusOK, encode(old.document(coll, c.kind))).charge(1).set("ETag", old.etag), nil
	case DeleteScript:
		delete(family, c.id)
		c.applied = true
		return newReply(http.StatusNoContent, nil).charge(1), nil
	}
	properties, err := decodeDoc(c.body)
	if err != nil {
		return nil, err
	}
	id, _ := properties["id"].(string)
	switch {
	case id == "":
		return nil, badRequest("The script has no id.")
	case c.operation == CreateScript && family[id] != nil:
		return nil, conflict()
	case c.operation == ReplaceScript && id != c.id:
		return nil, badRequest("The id in the body, %q, is not the id of the resource.", id)
	}
	a.made++
	s := &script{id: id, rid: newRID(coll.rid, 8, a.made|0x80<<56), etag: newETag("script", a.made, now), changed: now, properties: properties}
	status := http.StatusCreated
	if c.operation == ReplaceScript {
		status, s.rid = http.StatusOK, old.rid
	}
	if family == nil {
		family = map[string]*script{}
		coll.scripts[c.kind] = family
	}
	family[id] = s
	c.applied = true
	return newReply(status, encode(s.document(coll, c.kind))).charge(4.95).set("ETag", s.etag), nil
}

func (s *script) document(c *container, kind string) map[string]any {
	doc := map[string]any{}
	for name, v := range s.properties {
		doc[name] = v
	}
	return resource(doc, s.rid, c.self()+kind+"/"+s.rid+"/", s.etag, s.changed)
}
