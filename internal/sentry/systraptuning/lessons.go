package systraptuning

import (
	"slices"
	"sync"
	"sync/atomic"
	"weak"

	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/mm"
)

const (
	// lessonPages bounds the pages of a lesson, and lessonForks the forks after which a lesson begins
	// anew: pages that are mapped ahead show no fault any more when nobody needs them.
	lessonPages = 64
	lessonForks = 64
	// childLearns and parentLearns are the switches after a fork in which faults are noted.
	childLearns  = 100
	parentLearns = 60
	// mostFamilies bounds the parents whose lessons are kept for their next child.
	mostFamilies = 64
)

// lesson is the pages on which processes of a family faulted after a fork.
type lesson struct {
	mu    sync.Mutex
	pages []lessonPage
}

type lessonPage struct {
	at    hostarch.Addr
	write bool
	again bool // it faulted although it was in the lesson
}

// note enters a fault.
func (l *lesson) note(addr hostarch.Addr, access hostarch.AccessType) {
	page := addr.RoundDown()
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.IndexFunc(l.pages, func(p lessonPage) bool { return p.at == page }); i >= 0 {
		l.pages[i].again = l.pages[i].write == access.Write
		l.pages[i].write = l.pages[i].write || access.Write
	} else if len(l.pages) < lessonPages {
		l.pages = append(l.pages, lessonPage{at: page, write: access.Write})
	}
}

// take returns the pages in the order in which they are to be mapped: those that are written to
// first, because they are mapped for reading as well, and those that faulted again last.
func (l *lesson) take() []lessonPage {
	l.mu.Lock()
	pages := slices.Clone(l.pages)
	l.mu.Unlock()
	rank := func(p lessonPage) int {
		switch {
		case p.again:
			return 2
		case p.write:
			return 0
		}
		return 1
	}
	slices.SortStableFunc(pages, func(a, b lessonPage) int { return rank(a) - rank(b) })
	return pages
}

func (l *lesson) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pages = l.pages[:0]
}

// family is a process that forks and its children, before they execute a program: they have the same
// code and data at the same addresses.
type family struct {
	forks         atomic.Int32
	parent, child lesson
}

// fork counts a fork.
func (f *family) fork() {
	if f.forks.Add(1)%lessonForks == 0 {
		f.parent.forget()
		f.child.forget()
	}
}

// memory is a process's memory, without keeping it.
type memory = weak.Pointer[mm.MemoryManager]

// families are the families of parents, for their children.
type families struct {
	mu     sync.Mutex
	recent []kin // the last one is the most recent
}

type kin struct {
	parent memory
	family *family
}

// put enters the family of a parent that forks.
func (fs *families) put(parent memory, f *family) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.recent = append(slices.DeleteFunc(fs.recent, func(k kin) bool { return k.parent == parent }), kin{parent, f})
	if len(fs.recent) > mostFamilies {
		fs.recent = slices.Delete(fs.recent, 0, 1)
	}
}

// of returns the family of a parent, or nil.
func (fs *families) of(parent memory) *family {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	for i := range fs.recent {
		if fs.recent[i].parent == parent {
			return fs.recent[i].family
		}
	}
	return nil
}

// drop forgets a parent that has ended.
func (fs *families) drop(parent memory) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.recent = slices.DeleteFunc(fs.recent, func(k kin) bool { return k.parent == parent })
}

// born finds the family of a process that was forked, and maps what its siblings touched.
func (as *addressSpace) born(t *kernel.Task) {
	parent := t.Parent()
	if parent == nil {
		return
	}
	var of memory
	parent.WithMuLocked(func(parent *kernel.Task) { of = weak.Make(parent.MemoryManager()) })
	f := as.platform.families.of(of)
	if f == nil {
		return
	}
	// Systrap rewrites no call while a process is forked, and only one of its threads is in the child,
	// which made a call: none is in the middle of one that is being rewritten.
	as.inherited.Do(func() {})
	as.family.Store(f)
	as.learn(&f.child, childLearns)
	as.replay(t.AsyncContext(), t.MemoryManager(), &f.child)
}

// hasForked maps what the process touched after its last fork.
func (as *addressSpace) hasForked(t *kernel.Task) {
	f := as.family.Load()
	if f == nil {
		return
	}
	as.learn(&f.parent, parentLearns)
	as.replay(t.AsyncContext(), t.MemoryManager(), &f.parent)
}

// learn has faults noted in l for some switches.
func (as *addressSpace) learn(l *lesson, switches int32) {
	as.lesson.Store(l)
	as.learns.Store(switches)
}

// learned notes a fault.
func (as *addressSpace) learned(addr hostarch.Addr, access hostarch.AccessType) {
	if l := as.lesson.Load(); l != nil {
		l.note(addr, access)
	}
}

// replay maps the pages of a lesson, each of which would be a fault. A page may bring its neighbours,
// whose turn is over then.
func (as *addressSpace) replay(ctx context.Context, m *mm.MemoryManager, l *lesson) {
	pages := l.take()
	if len(pages) == 0 {
		return
	}
	as.mu.Lock()
	as.replayed, as.replaying = as.replayed[:0], true
	as.mu.Unlock()
	for _, p := range pages {
		if !p.again && as.hasReplayed(p) {
			continue
		}
		access := hostarch.Read
		if p.write {
			access = hostarch.Write
		}
		if !touch(ctx, m, p.at, access) && !p.write {
			touch(ctx, m, p.at, hostarch.Execute)
		}
	}
	as.mu.Lock()
	as.replaying = false
	as.mu.Unlock()
}

// mapping is a range that was mapped.
type mapping struct {
	hostarch.AddrRange
	write bool
}

func (as *addressSpace) hasReplayed(p lessonPage) bool {
	as.mu.Lock()
	defer as.mu.Unlock()
	return slices.ContainsFunc(as.replayed, func(m mapping) bool { return m.Contains(p.at) && (m.write || !p.write) })
}
