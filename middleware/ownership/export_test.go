package ownership

// HintCount counts the hints held.
func (r *Registry) HintCount() int { return int(r.hints.n.Load()) }
