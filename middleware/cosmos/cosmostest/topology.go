package cosmostest

import (
	"fmt"
	"net/http"
	"strings"
	"time"
)

// region is one region of the account. Account.mu guards it.
type region struct {
	key      string // name without case and spaces
	name     string
	number   int // in session tokens; a region that comes back keeps it
	endpoint *endpoint
	draining bool
	removed  bool
	lag      time.Duration
}

// Outage is a way in which an endpoint is down.
type Outage int

const (
	// Refused refuses connections (ECONNREFUSED) and resets those that are open.
	Refused Outage = iota + 1
	// BlackHole accepts connections and requests and never answers.
	BlackHole
	// ResetMidAnswer carries out each request, sends half of the answer's body and resets the connection.
	ResetMidAnswer
)

// regionKey is a region name without case and spaces: "West US" and "westus" are one.
func regionKey(name string) string { return strings.ToLower(strings.ReplaceAll(name, " ", "")) }

func (a *Account) regionByKey(key string) *region {
	for _, r := range a.regions {
		if r.key == key {
			return r
		}
	}
	return nil
}

// mustRegion finds a region and panics on a stranger.
func (a *Account) mustRegion(name string) *region {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.mustRegionLocked(name)
}

func (a *Account) mustRegionLocked(name string) *region {
	r := a.regionByKey(regionKey(name))
	if r == nil {
		panic("cosmostest: no region " + name)
	}
	return r
}

// endpointOf finds the endpoint of a region or Global and panics on a stranger.
func (a *Account) endpointOf(name string) *endpoint {
	if name == Global {
		return a.global
	}
	return a.mustRegion(name).endpoint
}

// addRegion starts a region; the caller has made sure that nobody else changes the account's shape.
func (a *Account) addRegion(name string) (*region, error) {
	key := regionKey(name)
	if key == "" || key == Global || strings.ContainsAny(key, "/:?#.\\\"") {
		return nil, fmt.Errorf("region name %q is not valid", name)
	}
	a.mu.Lock()
	taken := a.regionByKey(key) != nil
	a.mu.Unlock()
	if taken {
		return nil, fmt.Errorf("region %q is named twice", name)
	}
	e, err := a.open(name, a.cfg.ID+"-"+key)
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	r := &region{key: key, name: name, number: len(a.regions) + 1, endpoint: e, lag: a.cfg.ReplicationLag}
	a.regions = append(a.regions, r)
	return r, nil
}

// AddRegion adds a region at the end of the list, with a full copy of the data, or takes a removed one back at its old endpoint.
// It does nothing when the region is there. It panics on a name that cannot be.
func (a *Account) AddRegion(name string) {
	a.mu.Lock()
	r := a.regionByKey(regionKey(name))
	if r != nil {
		r.removed = false
	}
	a.mu.Unlock()
	if r == nil {
		if _, err := a.addRegion(name); err != nil {
			panic("cosmostest: " + err.Error())
		}
	}
}

// RemoveRegion takes a region out of the account document; its endpoint stays up and answers 403/1008 to everything but GET /.
// It panics for the write region: fail over first.
func (a *Account) RemoveRegion(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := a.mustRegionLocked(name)
	if r == a.hub {
		panic("cosmostest: " + name + " is the write region")
	}
	r.removed = true
}

// Drain lets a region answer 403/1008 to everything but GET / while the account document still lists it: the first minutes of a removal.
// SetOnline ends it.
func (a *Account) Drain(region string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mustRegionLocked(region).draining = true
}

// SetWriteRegion makes another region the write region, with everything written so far visible in it. The old one answers writes with
// 403/3 at once. The account document follows at once unless it is held (HoldTopology). Failed-over partitions stay where they are.
func (a *Account) SetWriteRegion(region string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := a.mustRegionLocked(region)
	if r.removed {
		panic("cosmostest: " + region + " is removed")
	}
	a.hub = r
	a.eachRange(func(_ *container, g *keyRange) { a.catchUp(g, a.writer(g)) })
}

// FailoverPartition moves the writes of one range, or with rangeID "" of all ranges of a container, to a region (per-partition automatic
// failover): every other region, the write region too, answers them with 403/3. Region "" gives them back to the write region. It only
// matters in single-write accounts. It panics on an unknown container or range.
func (a *Account) FailoverPartition(db, coll, rangeID, region string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	c := a.mustContainer(db, coll)
	found := false
	for _, g := range c.ranges {
		if rangeID != "" && g.id != rangeID {
			continue
		}
		found, g.writer = true, ""
		if region != "" {
			g.writer = a.mustRegionLocked(region).key
		}
		a.catchUp(g, a.writer(g))
	}
	if !found {
		panic("cosmostest: no range " + rangeID)
	}
}

func (a *Account) mustContainer(db, coll string) *container {
	c := a.store.container(db, coll)
	if c == nil {
		panic("cosmostest: no container " + db + "/" + coll)
	}
	return c
}

// SetMultiWrite switches the account between single-write and multi-write.
func (a *Account) SetMultiWrite(on bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.multiWrite = on
	a.eachRange(func(_ *container, g *keyRange) { a.catchUp(g, a.writer(g)) })
}

// SetPartitionFailover sets the account flag enablePerPartitionFailoverBehavior; nil removes it from the document.
func (a *Account) SetPartitionFailover(flag *bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.failover = flag
}

// SetOffline takes the endpoint of a region, or Global, down. A second call changes the kind of outage.
func (a *Account) SetOffline(region string, how Outage) {
	if how < Refused || how > ResetMidAnswer {
		panic(fmt.Sprintf("cosmostest: no outage %d", how))
	}
	e := a.endpointOf(region)
	a.setOutage(e, how)
	if how == Refused {
		e.gate.shut()
		return
	}
	a.mustReopen(e)
}

// SetOnline ends the outage or draining of a region or of Global. Requests that a black hole holds are cut off.
func (a *Account) SetOnline(region string) {
	e := a.endpointOf(region)
	a.setOutage(e, 0)
	if region != Global {
		a.mu.Lock()
		a.mustRegionLocked(region).draining = false
		a.mu.Unlock()
	}
	a.mustReopen(e)
}

func (a *Account) mustReopen(e *endpoint) {
	if err := e.gate.reopen(a.cfg.InMemory); err != nil {
		panic("cosmostest: " + e.name + " cannot come back: " + err.Error())
	}
}

func (a *Account) setOutage(e *endpoint, how Outage) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if e.recovered != nil {
		close(e.recovered)
		e.recovered = nil
	}
	if e.outage = how; how != 0 {
		e.recovered = make(chan struct{})
	}
}

// SetLatency delays every answer of a region, or of Global, before the request is carried out. Default 0.
func (a *Account) SetLatency(region string, d time.Duration) {
	e := a.endpointOf(region)
	a.mu.Lock()
	defer a.mu.Unlock()
	e.latency = max(0, d)
}

// topology is what the account document tells.
type topology struct {
	write, read []location
	multiWrite  bool
	failover    *bool
}

type location struct {
	Name     string `json:"name"`
	Endpoint string `json:"databaseAccountEndpoint"`
}

// heldTopology is an old picture that the document goes on showing.
type heldTopology struct {
	picture topology
	until   time.Time // zero = until released
}

// HoldTopology makes the account document, at every endpoint, go on showing the picture of this moment for d, or with d = 0 until
// ReleaseTopology. Everything else about the account changes at once, as it does when routing runs ahead of the document.
func (a *Account) HoldTopology(d time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	h := &heldTopology{picture: a.picture(time.Now())}
	if d > 0 {
		h.until = time.Now().Add(d)
	}
	a.held = h
}

// ReleaseTopology lets the account document tell the truth again.
func (a *Account) ReleaseTopology() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.held = nil
}

// picture is the topology the document shows now.
func (a *Account) picture(now time.Time) topology {
	if h := a.held; h != nil && (h.until.IsZero() || now.Before(h.until)) {
		return h.picture
	}
	t := topology{multiWrite: a.multiWrite, failover: a.failover}
	for _, r := range a.regions {
		if r.removed {
			continue
		}
		l := location{Name: r.name, Endpoint: r.endpoint.url}
		t.read = append(t.read, l)
		if r == a.hub || a.multiWrite {
			t.write = append(t.write, l)
		}
	}
	return t
}

// readAccount answers GET /.
func (a *Account) readAccount(now time.Time) *reply {
	t := a.picture(now)
	doc := map[string]any{
		"_self": "", "id": a.cfg.ID, "_rid": a.cfg.ID + ".documents.example", "media": "//media/", "addresses": "//addresses/", "_dbs": "//dbs/",
		"writableLocations": t.write, "readableLocations": t.read, "enableMultipleWriteLocations": t.multiWrite,
		"continuousBackupEnabled": false, "enableNRegionSynchronousCommit": false,
		"userReplicationPolicy":    map[string]any{"asyncReplication": false, "minReplicaSetSize": 3, "maxReplicasetSize": 4},
		"systemReplicationPolicy":  map[string]any{"minReplicaSetSize": 3, "maxReplicasetSize": 4},
		"userConsistencyPolicy":    map[string]any{"defaultConsistencyLevel": a.cfg.Consistency},
		"readPolicy":               map[string]any{"primaryReadCoefficient": 1, "secondaryReadCoefficient": 1},
		"queryEngineConfiguration": `{"maxSqlQueryInputLength":262144,"maxJoinsPerSqlQuery":10,"maxLogicalAndPerSqlQuery":500,"maxLogicalOrPerSqlQuery":500}`,
	}
	if t.failover != nil {
		doc["enablePerPartitionFailoverBehavior"] = *t.failover
	}
	return newReply(http.StatusOK, encode(doc))
}
