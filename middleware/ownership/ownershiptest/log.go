package ownershiptest

import (
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/reroute-go/reroute/middleware/ownership"
)

// Hit is one request that a node has answered, or cut off.
type Hit struct {
	Time    time.Time        // when it arrived
	Node    string           // its address
	Method  string           // HTTP method
	Key     string           // that it is about
	Segment int              // of the key
	Header  http.Header      // as received
	Body    string           // read whole
	Status  int              // of the answer; 0 = a rejection in words
	Answer  ownership.Status // in words; Other where the node served
	Applied bool             // a write took effect
	Lost    bool             // and its answer was cut off
}

// hitLog keeps the newest hits and counts all.
type hitLog struct {
	mu     sync.Mutex
	size   int
	kept   []Hit
	counts map[ownership.Status]int
}

func (l *hitLog) add(h Hit) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.kept) >= l.size {
		l.kept = slices.Delete(l.kept, 0, max(1, l.size/8))
	}
	l.kept = append(l.kept, h)
	if l.counts == nil {
		l.counts = map[ownership.Status]int{}
	}
	l.counts[h.Answer]++
}

// Hits returns the hits on key, oldest first; "" = on all keys. The log keeps the
// newest Config.LogSize.
func (c *Cluster) Hits(key string) []Hit {
	c.log.mu.Lock()
	defer c.log.mu.Unlock()
	var found []Hit
	for _, h := range c.log.kept {
		if key == "" || h.Key == key {
			found = append(found, h)
		}
	}
	return found
}

// Answers counts the answers of this status since the start.
func (c *Cluster) Answers(s ownership.Status) int {
	c.log.mu.Lock()
	defer c.log.mu.Unlock()
	return c.log.counts[s]
}
