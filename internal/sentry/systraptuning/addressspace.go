package systraptuning

import (
	"slices"
	"sync"
	"sync/atomic"

	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
	"gvisor.dev/gvisor/pkg/sentry/platform"
)

// mostMapped is how many mapped ranges of a process are kept. A short-lived program has some
// twenty mappings.
const mostMapped = 64

// addressSpace counts what a process has done so far. gVisor unmaps a range before it maps a
// copied page there, even if nothing was ever mapped there: twice when a program is
// executed, and for the data of each library. Each time two threads wait for each other.
type addressSpace struct {
	platform.AddressSpace
	platform  *Platform
	self      memory // set with begun
	begun     atomic.Bool
	forked    atomic.Bool  // since the last time that it went to its own code
	switches  atomic.Int32 // how often it went to its own code, not counted beyond pollAfter
	inherited sync.Once    // looks for calls that were rewritten before it was restored
	traps     atomic.Int32 // how often systrap asked whether it may rewrite

	family atomic.Pointer[family] // nil before its first fork, if it was not forked
	lesson atomic.Pointer[lesson] // in which faults are noted
	learns atomic.Int32           // switches for which they are
	late   late

	mu        sync.Mutex
	mapped    []hostarch.AddrRange // all ranges that were ever mapped; incomplete once there are mostMapped
	replaying bool
	replayed  []mapping // mapped while replaying
}

// MapFile implements platform.AddressSpace.
func (as *addressSpace) MapFile(addr hostarch.Addr, f memmap.File, fr memmap.FileRange, at hostarch.AccessType, precommit bool) error {
	r := hostarch.AddrRange{Start: addr, End: addr + hostarch.Addr(fr.Length())}
	as.note(r, at)
	return as.late.mapped(r, func() error { return as.AddressSpace.MapFile(addr, f, fr, at, precommit) })
}

// note enters a range that is about to be mapped.
func (as *addressSpace) note(r hostarch.AddrRange, at hostarch.AccessType) {
	as.mu.Lock()
	defer as.mu.Unlock()
	if as.replaying {
		as.replayed = append(as.replayed, mapping{r, at.Write})
	}
	known := func(m hostarch.AddrRange) bool { return m.IsSupersetOf(r) }
	if len(as.mapped) < mostMapped && !slices.ContainsFunc(as.mapped, known) {
		as.mapped = append(as.mapped, r)
	}
}

// Unmap implements platform.AddressSpace.
func (as *addressSpace) Unmap(addr hostarch.Addr, length uint64) {
	r := hostarch.AddrRange{Start: addr, End: addr + hostarch.Addr(length)}
	if as.mayBeMapped(r) && !as.late.defers(r) {
		as.AddressSpace.Unmap(addr, length)
	}
}

// PreFork implements platform.AddressSpace.
func (as *addressSpace) PreFork() {
	as.late.forks.Add(1)
	as.AddressSpace.PreFork()
}

// PostFork implements platform.AddressSpace. The child has not run yet.
func (as *addressSpace) PostFork() {
	as.AddressSpace.PostFork()
	as.late.forks.Add(-1)
	if as.family.Load() == nil {
		as.family.CompareAndSwap(nil, &family{})
	}
	f := as.family.Load()
	f.fork()
	as.platform.families.put(as.self, f)
	as.forked.Store(true)
}

// Release implements platform.AddressSpace.
func (as *addressSpace) Release() {
	if as.family.Load() != nil {
		as.platform.families.drop(as.self)
	}
	as.AddressSpace.Release()
}

func (as *addressSpace) mayBeMapped(r hostarch.AddrRange) bool {
	as.mu.Lock()
	defer as.mu.Unlock()
	return len(as.mapped) == mostMapped || slices.ContainsFunc(as.mapped, r.Overlaps)
}
