package storm

// claim is what must be so in the end.
type claim struct {
	op       *operation
	kind, id string // what is claimed, of what
	// An acknowledged operation's effect is there, a refused one's is not, and of
	// any other it is one or the other.
	acknowledged, refused bool
}

func (s *storm) claim(c claim) {
	c.op.result.body, c.op.result.header = nil, nil // there are many
	s.mu.Lock()
	defer s.mu.Unlock()
	s.claims = append(s.claims, c)
}

// settle holds a claim against how often what it claims is there.
func (s *storm) settle(c claim, n int) {
	acknowledged, refused := c.acknowledged, c.refused
	if c.kind == gone {
		acknowledged, refused = refused, acknowledged
	}
	switch {
	case n > 1:
		s.breakIn(c.op, "%s %s is there %d times", c.kind, c.id, n)
	case acknowledged && n == 0:
		s.breakIn(c.op, "%s %s is lost", c.kind, c.id)
	case refused && n > 0:
		s.breakIn(c.op, "%s %s is there, though nothing was carried out", c.kind, c.id)
	}
}

// gone is the kind of claim that something is not there.
const gone = "what was deleted:"

// sums are the claims on counters.
type sums map[string]*sum

type sum struct{ acknowledged, doubtful int }

func (m sums) add(c claim) {
	if m[c.id] == nil {
		m[c.id] = &sum{}
	}
	switch {
	case c.acknowledged:
		m[c.id].acknowledged++
	case !c.refused:
		m[c.id].doubtful++
	}
}

func (m sums) check(s *storm, id string, is int) {
	if c := m[id]; is < c.acknowledged || is > c.acknowledged+c.doubtful {
		s.break_("%s counts %d, of %d acknowledged increments and %d in doubt", id, is, c.acknowledged, c.doubtful)
	}
}
