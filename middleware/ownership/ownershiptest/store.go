package ownershiptest

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/reroute-go/reroute/middleware/ownership"
)

// maxValue bounds a value.
const maxValue = 1 << 20

// serveKey is one request at one node.
func (c *Cluster) serveKey(n *node, rw http.ResponseWriter, req *http.Request) {
	key, ok := strings.CutPrefix(req.URL.Path, "/kv/")
	if !ok || key == "" {
		http.NotFound(rw, req)
		return
	}
	body, err := io.ReadAll(io.LimitReader(req.Body, maxValue+1))
	if err != nil || len(body) > maxValue {
		http.Error(rw, "body", http.StatusBadRequest)
		return
	}
	if !pause(req, c.cfg.Latency) {
		panic(http.ErrAbortHandler)
	}
	hit := Hit{Time: time.Now(), Node: n.name, Method: req.Method, Key: key, Segment: c.Segment(key), Header: req.Header, Body: string(body)}
	a := c.carryOut(n, req, &hit)
	hit.Status = a.code
	c.log.add(hit)
	if hit.Lost {
		panic(http.ErrAbortHandler)
	}
	if a.code == 0 {
		ownership.Reject(rw, hit.Answer, a.hint)
		return
	}
	if a.version != 0 {
		rw.Header().Set("ETag", `"`+strconv.FormatUint(a.version, 10)+`"`)
	}
	rw.WriteHeader(a.code)
	_, _ = io.WriteString(rw, a.data)
}

// answer is what a node says: a code, or a rejection in words.
type answer struct {
	code    int
	version uint64
	data    string
	hint    ownership.Hint
}

// carryOut decides by ownership and changes the store, in one step.
func (c *Cluster) carryOut(n *node, req *http.Request, hit *Hit) answer {
	c.mu.Lock()
	defer c.mu.Unlock()
	write := req.Method != http.MethodGet && req.Method != http.MethodHead
	if status := c.segments[hit.Segment].statusAt(n, write); status != ownership.Other {
		hit.Answer = status
		return answer{hint: c.hint(hit.Segment, status)}
	}
	a := c.apply(req, hit.Key, hit.Body)
	hit.Applied = write && a.code < 300
	if hit.Applied && c.lose[hit.Key] > 0 {
		c.lose[hit.Key]--
		hit.Lost = true
	}
	switch a.code {
	case http.StatusNotFound:
		hit.Answer, a.code = ownership.NotFound, 0
	case http.StatusPreconditionFailed:
		hit.Answer, a.code = ownership.Conflict, 0
	}
	return a
}

// statusAt says why n does not serve the segment; Other = it does.
func (s *segment) statusAt(n *node, write bool) ownership.Status {
	switch {
	case s.owner == nil:
		return ownership.Unavailable
	case s.owner == n && s.state == ownership.Migrating && !write:
		return ownership.Other // only writes are held
	case s.owner == n:
		return s.state
	case s.replica == n && write:
		return ownership.ReplicaWriteRejected
	case s.replica == n:
		return ownership.Other
	}
	return ownership.Moved
}

func (c *Cluster) hint(number int, status ownership.Status) ownership.Hint {
	if status == ownership.Migrating {
		return ownership.Hint{RetryAfter: time.Second}
	}
	if !c.cfg.Hints || status != ownership.Moved && status != ownership.ReplicaWriteRejected {
		return ownership.Hint{}
	}
	return ownership.Hint{Owner: c.segments[number].owner.address(), Epoch: c.epoch}
}

// apply is the store. Called with mu held.
func (c *Cluster) apply(req *http.Request, key, body string) answer {
	old, exists := c.values[key]
	if match := req.Header.Get("If-Match"); match != "" && (!exists || match != "*" && strings.Trim(match, `"`) != strconv.FormatUint(old.version, 10)) {
		return answer{code: http.StatusPreconditionFailed}
	}
	if req.Header.Get("If-None-Match") == "*" && exists {
		return answer{code: http.StatusPreconditionFailed}
	}
	next := value{data: body, version: old.version + 1}
	switch req.Method {
	case http.MethodGet, http.MethodHead:
		if !exists {
			return answer{code: http.StatusNotFound}
		}
		return answer{code: http.StatusOK, version: old.version, data: old.data}
	case http.MethodDelete:
		if !exists {
			return answer{code: http.StatusNotFound}
		}
		delete(c.values, key)
		return answer{code: http.StatusNoContent}
	case http.MethodPut:
	case http.MethodPost:
		was, _ := strconv.ParseInt(old.data, 10, 64)
		add, err := strconv.ParseInt(body, 10, 64)
		if err != nil {
			return answer{code: http.StatusBadRequest}
		}
		next.data = strconv.FormatInt(was+add, 10)
	default:
		return answer{code: http.StatusMethodNotAllowed}
	}
	c.values[key] = next
	code := http.StatusOK
	if !exists {
		code = http.StatusCreated
	}
	return answer{code: code, version: next.version, data: next.data}
}
