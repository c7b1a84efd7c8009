package systraptuning

import (
	"sync"
	"sync/atomic"

	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/platform"
)

const (
	// lateMost bounds a range that is unmapped late, unless a fork unmaps it, and lateRanges the
	// number of ranges.
	lateMost   = 1 << 20
	lateRanges = 32
)

// late is what is unmapped from a process of which no thread runs. Much of it is mapped again before
// one does, which unmaps it as well: memory that a fork makes copy-on-write, or a page that is
// copied. So it is unmapped when a thread of the process is about to run. Until then nothing sees
// that it is still mapped.
type late struct {
	forks  atomic.Int32 // forks under way
	inside atomic.Int32 // threads that run
	owed   atomic.Bool  // ranges is not empty, or about to be

	mu     sync.Mutex
	ranges []hostarch.AddrRange // disjoint, and not adjacent
}

// defers takes a range that is to be unmapped. It reports whether it took it: it does not while a
// thread runs. A thread that enters meanwhile sees owed, and waits for mu.
func (l *late) defers(r hostarch.AddrRange) bool {
	if l.forks.Load() == 0 && r.Length() > lateMost {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.owed.Store(true)
	if l.inside.Load() > 0 || len(l.ranges) == lateRanges {
		l.owed.Store(len(l.ranges) > 0)
		return false
	}
	l.ranges = with(l.ranges, r)
	return true
}

// mapped calls do, which maps a range, and so unmaps what was there.
func (l *late) mapped(r hostarch.AddrRange, do func() error) error {
	if !l.owed.Load() {
		return do()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	err := do()
	if err == nil {
		l.ranges = without(l.ranges, r)
		l.owed.Store(len(l.ranges) > 0)
	}
	return err
}

// enter is called before a thread runs, and leave afterwards.
func (l *late) enter(as platform.AddressSpace) {
	l.inside.Add(1)
	if !l.owed.Load() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.ranges {
		as.Unmap(r.Start, uint64(r.Length()))
	}
	l.ranges = l.ranges[:0]
	l.owed.Store(false)
}

func (l *late) leave() { l.inside.Add(-1) }

// with returns ranges and r, merged with those that it overlaps or is adjacent to.
func with(ranges []hostarch.AddrRange, r hostarch.AddrRange) []hostarch.AddrRange {
	left := ranges[:0]
	for _, p := range ranges {
		if p.Start <= r.End && r.Start <= p.End {
			r = hostarch.AddrRange{Start: min(p.Start, r.Start), End: max(p.End, r.End)}
		} else {
			left = append(left, p)
		}
	}
	return append(left, r)
}

// without returns ranges without r.
func without(ranges []hostarch.AddrRange, r hostarch.AddrRange) (left []hostarch.AddrRange) {
	for _, p := range ranges {
		if !p.Overlaps(r) {
			left = append(left, p)
			continue
		}
		if p.Start < r.Start {
			left = append(left, hostarch.AddrRange{Start: p.Start, End: r.Start})
		}
		if r.End < p.End {
			left = append(left, hostarch.AddrRange{Start: r.End, End: p.End})
		}
	}
	return left
}
