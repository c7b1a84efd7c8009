package brief

import (
	"slices"
	"sync"
	"sync/atomic"

	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
	"gvisor.dev/gvisor/pkg/sentry/platform"
)

// offMost is how many unmappings are put off at a time. A system call asks for one or two.
const offMost = 8

// addressSpace is what a process has mapped. GVisor unmaps what it maps anew, which the host
// does by itself when it maps: twice when a program is executed, and with each segment of a
// library that is written to or made read-only. So unmappings are put off, and left out if
// what they are of has been mapped anew when the process goes on. Until then others may have
// been given what was mapped there, so
//
//   - only those are put off that come before the process has run, or while it makes a
//     system call that may ask for them, if only one thread has ever run in it;
//   - before any thread runs they are made.
type addressSpace struct {
	platform.AddressSpace
	inherited sync.Once    // looks for calls that were rewritten before it was forked or restored
	traps     atomic.Int32 // how often systrap asked whether it may rewrite

	user   atomic.Pointer[task] // who ran first
	shared atomic.Bool          // others ran, too; written with mu locked

	mu         sync.Mutex
	puttingOff bool
	off        []hostarch.AddrRange // put off; empty unless puttingOff
}

func newAddressSpace(inner platform.AddressSpace) *addressSpace {
	return &addressSpace{AddressSpace: inner, puttingOff: true}
}

// enter notes that a task is about to run, and returns whether it is the first, which has to
// catch up before it does.
func (as *addressSpace) enter(t *task) (first bool) {
	if as.shared.Load() || as.user.Load() == t {
		return false
	}
	if as.user.CompareAndSwap(nil, t) {
		return true
	}
	as.mu.Lock()
	as.shared.Store(true)
	as.mu.Unlock()
	as.catchUp()
	return false
}

// putOff has unmappings put off until catchUp. The caller is a task that makes a system call.
func (as *addressSpace) putOff() {
	as.mu.Lock()
	defer as.mu.Unlock()
	as.puttingOff = !as.shared.Load()
}

// catchUp makes the unmappings that were put off.
func (as *addressSpace) catchUp() {
	as.mu.Lock()
	defer as.mu.Unlock()
	as.puttingOff = false
	as.flush(func(hostarch.AddrRange) bool { return true })
}

// flush makes those of the unmappings that are due.
func (as *addressSpace) flush(due func(hostarch.AddrRange) bool) {
	as.off = slices.DeleteFunc(as.off, func(r hostarch.AddrRange) bool {
		if due(r) {
			as.AddressSpace.Unmap(r.Start, uint64(r.Length()))
			return true
		}
		return false
	})
}

// MapFile implements platform.AddressSpace. An unmapping of part of the range would take away
// from it later.
func (as *addressSpace) MapFile(addr hostarch.Addr, f memmap.File, fr memmap.FileRange, at hostarch.AccessType, precommit bool) error {
	as.mu.Lock()
	defer as.mu.Unlock()
	mapped := hostarch.AddrRange{Start: addr, End: addr + hostarch.Addr(fr.Length())}
	replaces := func(r hostarch.AddrRange) bool { return mapped.IsSupersetOf(r) }
	as.flush(func(r hostarch.AddrRange) bool { return mapped.Overlaps(r) && !replaces(r) })
	err := as.AddressSpace.MapFile(addr, f, fr, at, precommit)
	if err == nil {
		as.off = slices.DeleteFunc(as.off, replaces)
	}
	return err
}

// Unmap implements platform.AddressSpace.
func (as *addressSpace) Unmap(addr hostarch.Addr, length uint64) {
	as.mu.Lock()
	defer as.mu.Unlock()
	if !as.puttingOff || len(as.off) == offMost {
		as.AddressSpace.Unmap(addr, length)
		return
	}
	as.off = append(as.off, hostarch.AddrRange{Start: addr, End: addr + hostarch.Addr(length)})
}
