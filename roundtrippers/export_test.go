package roundtrippers

// CircuitWakes tells tests how many waiters l has woken.
func CircuitWakes(l *Circuit) int {
	l.inner.mu.Lock()
	defer l.inner.mu.Unlock()
	return l.inner.waiting.wakes
}
