package cosmostest

import (
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Paused as a replication lag stops replication into a region until the lag is set again.
const Paused time.Duration = math.MaxInt64

// replica is how far one region has followed the log of a range.
type replica struct {
	floor int64            // every commit up to here is visible
	own   int64            // newest commit this region took itself
	seen  map[string]int64 // newest visible commit by region that took it
}

// commit is one entry of the log of a range.
type commit struct {
	lsn    int64
	origin string
	at     time.Time
}

// replicaOf returns a region's position in a range, made on first use: a region that is added starts with a full copy.
func (g *keyRange) replicaOf(at *region) *replica {
	p := g.replicas[at.key]
	if p == nil {
		p = &replica{floor: g.lsn, seen: map[string]int64{}}
		for _, c := range g.commits {
			p.seen[c.origin] = c.lsn
		}
		g.replicas[at.key] = p
	}
	return p
}

// advance moves a region's view of a range to what has replicated by now and returns the LSN up to which it sees everything.
// The view only grows: changing the lag never takes back what was visible.
func (a *Account) advance(g *keyRange, at *region, now time.Time) int64 {
	p := g.replicaOf(at)
	start, _ := slices.BinarySearchFunc(g.commits, p.floor+1, func(c commit, lsn int64) int { return int(c.lsn - lsn) })
	for _, c := range g.commits[start:] {
		arrived := c.origin == at.key || a.cfg.Consistency == "Strong" ||
			at.lag != Paused && !now.Before(c.at.Add(at.lag))
		if !arrived {
			break
		}
		p.floor, p.seen[c.origin] = c.lsn, c.lsn
	}
	return p.floor
}

// catchUp makes everything in a range visible in a region.
func (a *Account) catchUp(g *keyRange, at *region) {
	p := g.replicaOf(at)
	for _, c := range g.commits {
		p.seen[c.origin] = max(p.seen[c.origin], c.lsn)
	}
	p.floor = g.lsn
}

// append records a commit taken by a region and drops log entries that every region has passed.
func (a *Account) append(g *keyRange, lsn int64, at *region, now time.Time) {
	for _, r := range a.regions {
		g.replicaOf(r) // must exist before the commit, or it would start with it
	}
	g.lsn = lsn
	g.commits = append(g.commits, commit{lsn: lsn, origin: at.key, at: now})
	g.replicaOf(at).own = lsn
	if len(g.commits)%256 != 0 {
		return
	}
	everywhere := lsn
	for _, r := range a.regions {
		everywhere = min(everywhere, a.advance(g, r, now))
	}
	g.commits = slices.DeleteFunc(g.commits, func(c commit) bool { return c.lsn <= everywhere })
}

// sessionToken is range:version#globalLSN#region=lsn...; the per-region part is there when several regions have written.
func (a *Account) sessionToken(g *keyRange, at *region, now time.Time) string {
	var b strings.Builder
	b.WriteString(g.id + ":" + strconv.Itoa(g.version) + "#" + strconv.FormatInt(a.advance(g, at, now), 10))
	for _, r := range a.regions {
		if lsn := a.known(g, at, r); lsn > 0 {
			b.WriteString("#" + strconv.Itoa(r.number) + "=" + strconv.FormatInt(lsn, 10))
		}
	}
	return b.String()
}

// known is the newest commit taken by origin that region at has.
func (a *Account) known(g *keyRange, at, origin *region) int64 {
	p := g.replicaOf(at)
	if at == origin {
		return max(p.own, p.seen[origin.key])
	}
	return p.seen[origin.key]
}

// checkSession refuses a read whose session token is ahead of the region with 404/1002. Tokens of other ranges are ignored; those of
// ranges that the served one descends from count.
func (a *Account) checkSession(header string, g *keyRange, at *region, now time.Time) error {
	tokens, err := parseSessions(header)
	if err != nil {
		return err
	}
	for id, token := range tokens {
		if id != g.id && !g.ancestors[id] {
			continue
		}
		ahead := token.global > a.advance(g, at, now) || token.version > g.version
		for number, lsn := range token.regions {
			if r := a.regionNumber(number); r != nil && lsn > a.known(g, at, r) {
				ahead = true
			}
		}
		if ahead {
			return &apiError{status: http.StatusNotFound, substatus: 1002,
				message: "The read session is not available for the input session token."}
		}
	}
	return nil
}

func (a *Account) regionNumber(n int) *region {
	for _, r := range a.regions {
		if r.number == n {
			return r
		}
	}
	return nil
}

type sessionToken struct {
	version int
	global  int64
	regions map[int]int64
}

// parseSessions reads a header: range:token, comma-separated. A range named twice counts with its last token.
func parseSessions(header string) (map[string]sessionToken, error) {
	tokens := map[string]sessionToken{}
	if header == "" {
		return tokens, nil
	}
	for entry := range strings.SplitSeq(header, ",") {
		id, text, ok := strings.Cut(strings.TrimSpace(entry), ":")
		token, valid := parseSession(text)
		if !ok || !valid {
			return nil, badRequest("The session token '%s' is not valid.", entry)
		}
		tokens[id] = token
	}
	return tokens, nil
}

// parseSession reads LSN or version#LSN#region=lsn...
func parseSession(text string) (sessionToken, bool) {
	parts := strings.Split(text, "#")
	t := sessionToken{version: -1, regions: map[int]int64{}}
	var err error
	if len(parts) == 1 {
		t.global, err = strconv.ParseInt(parts[0], 10, 64)
		return t, err == nil
	}
	if t.version, err = strconv.Atoi(parts[0]); err != nil {
		return t, false
	}
	if t.global, err = strconv.ParseInt(parts[1], 10, 64); err != nil {
		return t, false
	}
	for _, p := range parts[2:] {
		region, lsn, ok := strings.Cut(p, "=")
		number, err1 := strconv.Atoi(region)
		value, err2 := strconv.ParseInt(lsn, 10, 64)
		if !ok || err1 != nil || err2 != nil {
			return t, false
		}
		t.regions[number] = value
	}
	return t, true
}

// SetReplicationLag sets how long after a write it becomes visible in a region other than the one that took it. 0 = at once (default),
// Paused = not until the lag is set again. It also holds for writes still on their way. It panics on an unknown region or a negative lag.
func (a *Account) SetReplicationLag(region string, lag time.Duration) {
	at := a.mustRegion(region)
	if lag < 0 {
		panic("cosmostest: replication lag is " + lag.String() + ", want 0 or more")
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.eachRange(func(_ *container, g *keyRange) { a.advance(g, at, time.Now()) })
	at.lag = lag
}

// LSN is the newest log sequence number of a range that is fully visible in a region; 0 for an unknown container or range.
func (a *Account) LSN(region, db, coll, rangeID string) int64 {
	at := a.mustRegion(region)
	a.mu.Lock()
	defer a.mu.Unlock()
	c := a.store.container(db, coll)
	if c == nil {
		return 0
	}
	for _, g := range c.ranges {
		if g.id == rangeID {
			return a.advance(g, at, time.Now())
		}
	}
	return 0
}
