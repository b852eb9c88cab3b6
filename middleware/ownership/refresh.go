package ownership

import (
	"context"
	"time"

	"github.com/reroute-go/reroute/middleware"
)

// Refresh returns when key is known to have another owner than used, the Target
// that proved wrong: at once if it is already, else after one fetch that all
// callers share. It waits as long as ctx lets it; the fetch goes on.
//
// Within Config.Debounce of the last fetch the next one is delayed, never
// dropped. A caller that was turned away a second time insists: its fetch
// begins at once, if the last such exception is 100 ms ago and the map service
// is well. A fetch that had begun before the caller asked may have read too
// early; if key is still where it was, one more follows.
//
// A failure returns the error of the source, a *MapError, ctx's, or one of package
// snapshot. A remembered permanent failure returns at once.
func (r *Registry) Refresh(ctx context.Context, key string, used middleware.Target, insist bool) error {
	asked := time.Now()
	m := r.holder.Load()
	if m != nil && r.knowsBetter(m, key, used) {
		return nil
	}
	if ctx.Value(fetching{}) == r {
		return errOwnFetch
	}
	if err := r.remembered(); err != nil {
		return err
	}
	read := func(seen *held) (*held, error) { return r.holder.Refresh(ctx, seen) }
	if insist && r.mayInsist() {
		read = func(*held) (*held, error) { return r.holder.Force(ctx) }
	}
	for {
		next, err := read(m)
		if err != nil {
			return err
		}
		if next == m || !next.began.Before(asked) || r.knowsBetter(next, key, used) {
			return nil
		}
		m = next
		read = func(seen *held) (*held, error) { return r.holder.Refresh(ctx, seen) }
	}
}

// Trigger asks for the fetch that Refresh would wait for.
func (r *Registry) Trigger(key string, used middleware.Target) {
	m := r.holder.Load()
	if m != nil && r.knowsBetter(m, key, used) || r.remembered() != nil {
		return
	}
	r.holder.Trigger(m)
}

// Learn takes an answer's hint at the owner of key. It is used until the map is
// as new, or until the owner it names rejects the key too, and the map is read in
// the background. Learn refuses a host that is neither in the map nor in
// Config.HintHosts, a hint that is no newer than what is known, and one by which
// used.Endpoint itself would be the owner.
func (r *Registry) Learn(key string, used middleware.Target, owner string, epoch uint64) bool {
	m := r.holder.Load()
	if m == nil || owner == used.Endpoint || !r.trusts(m, owner) {
		return false
	}
	s, err := r.place(m, key)
	if err != nil {
		return false
	}
	if !m.numbered {
		epoch = 0 // not to be compared with numbers of our own
	}
	now := r.target(m, s)
	known := now.Endpoint == owner && now.Epoch >= epoch
	if !known && (epoch != 0 && epoch <= now.Epoch || !r.hints.learn(s, &hint{owner: owner, epoch: epoch, since: time.Now(), over: m})) {
		return false
	}
	if r.remembered() == nil {
		r.holder.Trigger(m)
	}
	return true
}

// knowsBetter reports whether key has another owner by now than used. A hint
// that led to used is given up: the owner it named has rejected the key.
func (r *Registry) knowsBetter(m *held, key string, used middleware.Target) bool {
	s, err := r.place(m, key)
	if err != nil {
		return true // no map will help
	}
	if used.Override {
		r.hints.forget(s, used)
	}
	now := r.target(m, s)
	if now.Endpoint == "" || now.Endpoint == used.Endpoint {
		return false
	}
	return now.Epoch > used.Epoch || now.Epoch == used.Epoch && !used.Override
}

// mayInsist lets one fetch pass over Debounce every insistPause, unless the map
// service fails: a storm of operations that the map cannot help must not become
// a storm of fetches.
func (r *Registry) mayInsist() bool {
	if r.holder.Err() != nil {
		return false
	}
	now, last := int64(time.Since(r.started)), r.insisted.Load()
	return now-last >= int64(insistPause) && r.insisted.CompareAndSwap(last, now)
}

func (r *Registry) trusts(m *held, host string) bool {
	if !validHost(host) {
		return false
	}
	if m.isMember(host) {
		return true
	}
	for _, pattern := range r.allowed {
		if allows(pattern, host) {
			return true
		}
	}
	return false
}
