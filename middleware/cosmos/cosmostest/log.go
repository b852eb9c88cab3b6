package cosmostest

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// maxKeptBody bounds the request body a log entry keeps.
const maxKeptBody = 64 << 10

// Request is one request that reached the account.
type Request struct {
	Time      time.Time   // when it arrived
	Region    string      // Global for the global endpoint
	Method    string      // HTTP method
	Path      string      // escaped, as sent
	Operation Operation   // what it asks for
	Database  string      // id, "" when the path names none
	Container string      // id, "" when the path names none
	ID        string      // of the item, script or offer; "" in feeds
	Range     string      // partition key range the request belongs to, "" when it names none
	Header    http.Header // as received, the credential taken out of Authorization
	Body      []byte      // nil above 64 KiB
	Status    int         // of the answer; 0 while none was given (hung, refused, cut before the status)
	Substatus int         // of the answer, 0 = none
	Applied   bool        // a write took effect, whatever the client was told
	Fault     *Fault      // the rule that shaped the answer, nil for none
}

// Match selects requests. Every field that is set must hold; the zero Match selects all.
type Match struct {
	Region     string            // a region name or Global, case and spaces ignored
	Operations []Operation       // any of them
	Database   string            // id
	Container  string            // id
	ID         string            // id of the item, script or offer
	Range      string            // partition key range id
	Method     string            // HTTP method
	Header     map[string]string // header name to value; "" = present with any value
}

func (m Match) matches(r *Request) bool {
	if m.Region != "" && regionKey(m.Region) != regionKey(r.Region) ||
		len(m.Operations) > 0 && !slices.Contains(m.Operations, r.Operation) ||
		m.Database != "" && m.Database != r.Database ||
		m.Container != "" && m.Container != r.Container ||
		m.ID != "" && m.ID != r.ID ||
		m.Range != "" && m.Range != r.Range ||
		m.Method != "" && !strings.EqualFold(m.Method, r.Method) {
		return false
	}
	for name, want := range m.Header {
		got := r.Header.Values(name)
		if len(got) == 0 || want != "" && got[0] != want {
			return false
		}
	}
	return true
}

// requestLog keeps the newest requests and counts all of them.
type requestLog struct {
	mu     sync.Mutex
	size   int
	kept   []*Request
	counts map[string]map[Operation]int // region key to operation
	bad    int                          // refused credentials
}

// add records an arrival.
func (l *requestLog) add(r *Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.kept) >= l.size {
		l.kept = slices.Delete(l.kept, 0, max(1, l.size/8))
	}
	l.kept = append(l.kept, r)
	key := regionKey(r.Region)
	if l.counts[key] == nil {
		l.counts[key] = map[Operation]int{}
	}
	l.counts[key][r.Operation]++
}

// update changes an entry already recorded.
func (l *requestLog) update(change func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change()
}

// Requests returns the logged requests that match, oldest first. The log keeps the newest Config.LogSize requests.
func (a *Account) Requests(m Match) []Request {
	a.log.mu.Lock()
	defer a.log.mu.Unlock()
	var found []Request
	for _, r := range a.log.kept {
		if m.matches(r) {
			found = append(found, *r)
		}
	}
	return found
}

// Sends counts the requests a region (or Global) has received since the start or ResetLog, whatever became of them.
// Without operations it counts all of them; region "" counts every endpoint.
func (a *Account) Sends(region string, operations ...Operation) int {
	a.log.mu.Lock()
	defer a.log.mu.Unlock()
	total := 0
	for key, counts := range a.log.counts {
		if region != "" && key != regionKey(region) {
			continue
		}
		for op, n := range counts {
			if len(operations) == 0 || slices.Contains(operations, op) {
				total += n
			}
		}
	}
	return total
}

// BadSignatures counts the requests answered 401 or 403 because of their credential. A healthy client keeps it at 0.
func (a *Account) BadSignatures() int {
	a.log.mu.Lock()
	defer a.log.mu.Unlock()
	return a.log.bad
}

// ResetLog forgets the logged requests and sets every counter of the log to 0.
func (a *Account) ResetLog() {
	a.log.mu.Lock()
	defer a.log.mu.Unlock()
	a.log.kept, a.log.counts, a.log.bad = nil, map[string]map[Operation]int{}, 0
}
