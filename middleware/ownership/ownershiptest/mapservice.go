package ownershiptest

import (
	"net/http"
	"time"

	"github.com/reroute-go/reroute/middleware/ownership"
)

// mapFaults is what the map service is made to do.
type mapFaults struct {
	fetches int
	slow    time.Duration
	stale   int // answers left
	old     *ownership.Map
	fail    int // answers left
	status  int
}

// Fetches counts the requests for the map so far.
func (c *Cluster) Fetches() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.maps.fetches
}

// StaleMap has the next n answers of the map service tell the map as it is now,
// whatever happens meanwhile.
func (c *Cluster) StaleMap(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.maps.stale, c.maps.old = n, c.mapNow()
}

// SlowMap has each answer of the map service take d; the map told is that of the
// request's arrival. 0 ends it.
func (c *Cluster) SlowMap(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.maps.slow = d
}

// FailMap has the next n answers of the map service be of this status.
func (c *Cluster) FailMap(status, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.maps.status, c.maps.fail = status, n
}

func (c *Cluster) serveMap(rw http.ResponseWriter, req *http.Request) {
	c.mu.Lock()
	c.maps.fetches++
	m, wait, status := c.mapNow(), c.maps.slow, 0
	if c.maps.fail > 0 {
		c.maps.fail--
		status = c.maps.status
	}
	if c.maps.stale > 0 {
		c.maps.stale--
		m = c.maps.old
	}
	c.mu.Unlock()
	if !pause(req, wait) {
		panic(http.ErrAbortHandler)
	}
	if status != 0 {
		http.Error(rw, http.StatusText(status), status)
		return
	}
	ownership.MapHandler(func() *ownership.Map { return m }).ServeHTTP(rw, req)
}

// pause waits for d and reports whether the request still stands.
func pause(req *http.Request, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-req.Context().Done():
		return false
	}
}
