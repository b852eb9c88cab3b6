package storm

import (
	"sync"
	"time"
)

// flights watches the fetches of one shared thing: one at a time, and a pause
// after each that brought something.
type flights struct {
	*storm
	what  string
	pause time.Duration
	// early is how often a fetch need not wait for the pause, as those need not that
	// insist; 0 = never. One that had to share a fetch before can come right before
	// the next.
	early time.Duration

	mu        sync.Mutex
	up        int
	landed    time.Time // the last that brought something
	lastEarly [2]time.Time
}

// take notes the start of a fetch. land ends it.
func (f *flights) take() (land func(good bool)) {
	f.mu.Lock()
	f.up++
	crowd, now := f.up, time.Now()
	rash := !f.landed.IsZero() && now.Sub(f.landed) < f.pause
	since := now.Sub(f.landed)
	if rash {
		if f.early > 0 && now.Sub(f.lastEarly[1]) >= f.early {
			rash = false
		}
		f.lastEarly = [2]time.Time{now, f.lastEarly[0]}
	}
	f.mu.Unlock()
	if crowd > 1 {
		f.break_("%d fetches of %s at once", crowd, f.what)
	}
	if rash {
		f.break_("a fetch of %s %s after the last, with a pause of %s", f.what, since, f.pause)
	}
	var once sync.Once
	return func(good bool) {
		once.Do(func() {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.up--
			if good {
				f.landed = time.Now()
			}
		})
	}
}
