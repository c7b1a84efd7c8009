package systraptuning

import (
	"slices"
	"sync"
	"sync/atomic"

	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
	"gvisor.dev/gvisor/pkg/sentry/platform"
)

// mostMapped is how many ranges are kept of what a process has mapped. A brief program's
// mappings are some twenty.
const mostMapped = 64

// addressSpace is what a process has had of its life. GVisor unmaps a place before it maps
// something that was copied there, also if nothing ever was: twice when a program is
// executed, and for each library's data. Each time two threads wait for each other.
type addressSpace struct {
	platform.AddressSpace
	begun     atomic.Bool
	switches  atomic.Int32 // how often it went to its own code, up to pollAfter and some
	inherited sync.Once    // looks for calls that were rewritten before it was forked or restored
	traps     atomic.Int32 // how often systrap asked whether it may rewrite

	mu     sync.Mutex
	mapped []hostarch.AddrRange // all that was ever mapped, unless it is mostMapped ranges
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
