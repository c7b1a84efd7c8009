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
	begun     atomic.Bool
	switches  atomic.Int32 // how often it went to its own code, not counted beyond pollAfter
	inherited sync.Once    // looks for calls that were rewritten before it was forked or restored
	traps     atomic.Int32 // how often systrap asked whether it may rewrite

	mu     sync.Mutex
	mapped []hostarch.AddrRange // all ranges that were ever mapped; incomplete once there are mostMapped
}

// MapFile implements platform.AddressSpace.
func (as *addressSpace) MapFile(addr hostarch.Addr, f memmap.File, fr memmap.FileRange, at hostarch.AccessType, precommit bool) error {
	as.note(hostarch.AddrRange{Start: addr, End: addr + hostarch.Addr(fr.Length())})
	return as.AddressSpace.MapFile(addr, f, fr, at, precommit)
}

// note enters a range that is about to be mapped.
func (as *addressSpace) note(r hostarch.AddrRange) {
	as.mu.Lock()
	defer as.mu.Unlock()
	known := func(m hostarch.AddrRange) bool { return m.IsSupersetOf(r) }
	if len(as.mapped) < mostMapped && !slices.ContainsFunc(as.mapped, known) {
		as.mapped = append(as.mapped, r)
	}
}

// Unmap implements platform.AddressSpace.
func (as *addressSpace) Unmap(addr hostarch.Addr, length uint64) {
	if as.mayBeMapped(hostarch.AddrRange{Start: addr, End: addr + hostarch.Addr(length)}) {
		as.AddressSpace.Unmap(addr, length)
	}
}

func (as *addressSpace) mayBeMapped(r hostarch.AddrRange) bool {
	as.mu.Lock()
	defer as.mu.Unlock()
	return len(as.mapped) == mostMapped || slices.ContainsFunc(as.mapped, r.Overlaps)
}
