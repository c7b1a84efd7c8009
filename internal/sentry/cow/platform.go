package cow

import (
	"fmt"
	"sync/atomic"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/log"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
	"gvisor.dev/gvisor/pkg/sentry/platform"
)

// Platform is a platform.Platform whose address spaces map generation pages
// from their generation's file.
type Platform struct {
	platform.Platform
	mem     *Memory
	refused atomic.Pointer[error]
	peak    peak
}

// NewPlatform wraps inner for mem. Address spaces of inner are given to it as they are.
func NewPlatform(inner platform.Platform, mem *Memory) *Platform {
	p := &Platform{Platform: inner, mem: mem}
	p.peak.mf = mem.mf
	return p
}

// PeakUsage returns the most memory that the sandbox had in use, in bytes, since it was made or forked.
func (p *Platform) PeakUsage() uint64 { return p.peak.note() }

// Spare makes n address spaces and gives them back: gVisor keeps them, and has them when
// as many are asked for. Each is a process, and making it takes milliseconds of waiting for
// that.
func (p *Platform) Spare(n int) error {
	for range n {
		as, err := p.Platform.NewAddressSpace()
		if err != nil {
			return fmt.Errorf("make address space: %w", err)
		}
		defer as.Release() // when all are made: else the next would be the same
	}
	return nil
}

// NewAddressSpace implements platform.Platform.
func (p *Platform) NewAddressSpace() (platform.AddressSpace, error) {
	inner, err := p.Platform.NewAddressSpace()
	if err != nil {
		// The host refused another process or more memory. Only an errno may
		// reach the guest's fork or execve; the kernel takes anything else
		// for a defect of its own and ends.
		log.Warningf("New address space: %v", err)
		p.refused.Store(&err)
		return nil, linuxerr.EAGAIN
	}
	return &addressSpace{AddressSpace: inner, mem: p.mem, peak: &p.peak}, nil
}

// MapUnit implements platform.Platform.MapUnit.
func (p *Platform) MapUnit() uint64 {
	if p.mem.loosening.Load() {
		return loosePiece
	}
	return p.Platform.MapUnit()
}

// Refused returns why the host refused an address space last, or nil if it never did.
func (p *Platform) Refused() error {
	if err := p.refused.Load(); err != nil {
		return *err
	}
	return nil
}

// NewContext implements platform.Platform.
func (p *Platform) NewContext(ctx context.Context) platform.Context {
	return &taskContext{Context: p.Platform.NewContext(ctx)}
}

// taskContext hands the inner address space to the inner platform, which
// asserts its type.
type taskContext struct {
	platform.Context
	view innerView // reused by every Switch: a Context is used by one goroutine
}

// Switch implements platform.Context.
func (c *taskContext) Switch(ctx context.Context, mm platform.MemoryManager, ac *arch.Context64, cpu int32) (*linux.SignalInfo, hostarch.AccessType, error) {
	c.view.MemoryManager = mm
	return c.Context.Switch(ctx, &c.view, ac, cpu)
}

// PullFullState implements platform.Context.
func (c *taskContext) PullFullState(as platform.AddressSpace, ac *arch.Context64) error {
	return c.Context.PullFullState(inner(as), ac)
}

type innerView struct{ platform.MemoryManager }

// AddressSpace implements platform.MemoryManager.
func (v *innerView) AddressSpace() platform.AddressSpace {
	return inner(v.MemoryManager.AddressSpace())
}

func inner(as platform.AddressSpace) platform.AddressSpace {
	if w, ok := as.(*addressSpace); ok {
		return w.AddressSpace
	}
	return as
}

type addressSpace struct {
	platform.AddressSpace
	mem  *Memory
	peak *peak
}

// MapFile implements platform.AddressSpace.
func (as *addressSpace) MapFile(addr hostarch.Addr, f memmap.File, fr memmap.FileRange, at hostarch.AccessType, precommit bool) error {
	if len(as.mem.table) == 0 || f != memmap.File(as.mem.mf) {
		return as.AddressSpace.MapFile(addr, f, fr, at, precommit)
	}
	var err error
	as.mem.table.overlapping(fr, func(part memmap.FileRange, gen int) {
		if err != nil {
			return
		}
		src := f
		if gen >= 0 {
			if at.Write {
				// A pinned page has at least two references, so gVisor copies
				// it before it maps it writable.
				panic(fmt.Sprintf("writable mapping of frozen pages %v at %#x", part, addr))
			}
			src = generationFile{f, int(as.mem.gens[gen].File.Fd())}
		}
		err = as.AddressSpace.MapFile(addr+hostarch.Addr(part.Start-fr.Start), src, part, at, precommit)
	})
	return err
}

// Unmap implements platform.AddressSpace.
func (as *addressSpace) Unmap(addr hostarch.Addr, length uint64) {
	if as.mem.seceded {
		return
	}
	if length >= leastNoted {
		as.peak.note()
	}
	as.AddressSpace.Unmap(addr, length)
}

// Release implements platform.AddressSpace. The memory of a process that ends is given back after it.
func (as *addressSpace) Release() {
	if !as.mem.seceded {
		as.peak.note()
	}
	as.AddressSpace.Release()
}

// generationFile is the sandbox's memory file as far as gVisor's bookkeeping is
// concerned, but has the data of a generation.
type generationFile struct {
	memmap.File
	fd int
}

// DataFD implements memmap.File.
func (g generationFile) DataFD(memmap.FileRange) (int, error) { return g.fd, nil }
