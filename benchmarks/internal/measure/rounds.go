// Package measure takes the figures that the tables of this folder show.
package measure

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"
)

// Cost is what one operation takes.
type Cost struct{ Nanoseconds, Allocations, Bytes float64 }

// Minus is what c has more than other.
func (c Cost) Minus(other Cost) Cost {
	return Cost{c.Nanoseconds - other.Nanoseconds, c.Allocations - other.Allocations, c.Bytes - other.Bytes}
}

// Subject is something to measure.
type Subject struct {
	Name string
	// New returns a call for one goroutine; calls of several may share state.
	New func() (call func() error, err error)
	// Parallel has one goroutine per core call it.
	Parallel bool
}

// Rounds measures the subjects one after the other, each for about as long as
// spell, and that so many times over, so that what else the machine does meets
// all of them alike. It returns the costs by subject, one a round.
func Rounds(subjects []Subject, rounds int, spell time.Duration) ([][]Cost, error) {
	costs := make([][]Cost, len(subjects))
	sizes := make([]int, len(subjects))
	teams := make([]team, len(subjects))
	for i, s := range subjects {
		var err error
		if teams[i], err = assemble(s); err != nil {
			return nil, fmt.Errorf("%s: %w", s.Name, err)
		}
		if sizes[i], err = teams[i].sizeFor(spell); err != nil {
			return nil, fmt.Errorf("%s: %w", s.Name, err)
		}
	}
	for range rounds {
		for i, s := range subjects {
			c, err := teams[i].run(sizes[i])
			if err != nil {
				return nil, fmt.Errorf("%s: %w", s.Name, err)
			}
			costs[i] = append(costs[i], c)
		}
	}
	return costs, nil
}

// team is the goroutines that call one subject.
type team []func() error

func assemble(s Subject) (team, error) {
	t := make(team, 1)
	if s.Parallel {
		t = make(team, runtime.GOMAXPROCS(0))
	}
	for i := range t {
		var err error
		if t[i], err = s.New(); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// fewest calls are a measurement: beside fewer, what the round itself does shows.
const fewest = 256

// sizeFor is how many calls fill a spell. It warms the subject up.
func (t team) sizeFor(spell time.Duration) (int, error) {
	for n := 32; ; n *= 2 {
		c, err := t.run(n)
		if err != nil {
			return 0, err
		}
		if c.Nanoseconds*float64(n) >= float64(spell)/4 && n >= fewest {
			return max(int(float64(spell)/c.Nanoseconds), fewest), nil
		}
	}
}

// run makes n calls in all, or a few more to give each goroutine as many.
func (t team) run(n int) (Cost, error) {
	share := (n + len(t) - 1) / len(t)
	n = share * len(t)
	errs := make([]error, len(t))
	var all sync.WaitGroup
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	start := time.Now()
	for i, call := range t {
		all.Go(func() {
			for range share {
				if errs[i] = call(); errs[i] != nil {
					return
				}
			}
		})
	}
	all.Wait()
	took := time.Since(start)
	runtime.ReadMemStats(&after)
	each := func(total uint64) float64 { return float64(total) / float64(n) }
	return Cost{float64(took.Nanoseconds()) / float64(n), each(after.Mallocs - before.Mallocs), each(after.TotalAlloc - before.TotalAlloc)}, errors.Join(errs...)
}

// Median is the middle one of figures, the mean of both where there are two.
func Median(figures []float64) float64 {
	if len(figures) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(figures))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// MedianOf is the median of each part of costs by itself.
func MedianOf(costs []Cost) Cost {
	part := func(of func(Cost) float64) float64 {
		figures := make([]float64, len(costs))
		for i, c := range costs {
			figures[i] = of(c)
		}
		return Median(figures)
	}
	return Cost{
		part(func(c Cost) float64 { return c.Nanoseconds }),
		part(func(c Cost) float64 { return c.Allocations }),
		part(func(c Cost) float64 { return c.Bytes }),
	}
}

// Added is the median of what costs has more than base, round by round.
func Added(costs, base []Cost) Cost {
	more := make([]Cost, len(costs))
	for i := range costs {
		more[i] = costs[i].Minus(base[i])
	}
	return MedianOf(more)
}
