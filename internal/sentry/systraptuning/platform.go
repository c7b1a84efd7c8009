package systraptuning

import (
	"runtime"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/platform"
)

// Platform is a systrap platform that is tuned for short-lived programs.
type Platform struct {
	platform.Platform
	polling  polling
	families families
}

// NewPlatform tunes inner, which must be the systrap platform or pass address spaces on to it
// as they are.
func NewPlatform(inner platform.Platform) (*Platform, error) {
	polling, err := pollingOf(inner)
	if err != nil {
		return nil, err
	}
	return &Platform{Platform: inner, polling: polling}, nil
}

// NewAddressSpace implements platform.Platform.
func (p *Platform) NewAddressSpace() (platform.AddressSpace, error) {
	inner, err := p.Platform.NewAddressSpace()
	if err != nil {
		return nil, err
	}
	return &addressSpace{AddressSpace: inner, platform: p}, nil
}

// NewContext implements platform.Platform.
func (p *Platform) NewContext(ctx context.Context) platform.Context {
	return &task{Context: p.Platform.NewContext(ctx), polling: p.polling}
}

// task is used by a single goroutine, as every platform.Context is.
type task struct {
	platform.Context
	polling polling
	view    view
	cold    cold
}

// Switch implements platform.Context.
func (t *task) Switch(ctx context.Context, mm platform.MemoryManager, ac *arch.Context64, cpu int32) (*linux.SignalInfo, hostarch.AccessType, error) {
	as := mm.AddressSpace().(*addressSpace)
	if !as.begun.Load() && !as.begun.Swap(true) { // a sync.Once would make a closure each time
		growStack()
		as.begin(ctx, ac)
	}
	if as.forked.Load() && as.forked.Swap(false) {
		if t := kernel.TaskFromContext(ctx); t != nil {
			as.hasForked(t)
		}
	}
	t.polling.allow(as.switches.Load() > pollAfter || as.switches.Add(1) > pollAfter)
	learning := as.learns.Load() > 0 && as.learns.Add(-1) >= 0
	as.late.enter(as.AddressSpace)
	info, access, err := t.enter(ctx, mm, as, ac, cpu)
	as.late.leave()
	if learning && err == platform.ErrContextSignal && info.Signo == int32(linux.SIGSEGV) {
		as.learned(hostarch.Addr(info.Addr()), access)
	}
	return info, access, err
}

// enter goes to the code of the process.
func (t *task) enter(ctx context.Context, mm platform.MemoryManager, as *addressSpace, ac *arch.Context64, cpu int32) (*linux.SignalInfo, hostarch.AccessType, error) {
	t.view = view{mm, as.AddressSpace}
	if as.traps.Load() > rewriteAfter {
		return t.Context.Switch(ctx, &t.view, ac, cpu)
	}
	t.cold = cold{ctx, mm, as}
	return t.Context.Switch(&t.cold, &t.view, ac, cpu)
}

// PullFullState implements platform.Context.
func (t *task) PullFullState(as platform.AddressSpace, ac *arch.Context64) error {
	if ours, ok := as.(*addressSpace); ok {
		as = ours.AddressSpace
	}
	return t.Context.PullFullState(as, ac)
}

// view is the memory manager of a process for systrap, which asserts the type of its
// address space.
type view struct {
	platform.MemoryManager
	as platform.AddressSpace
}

// AddressSpace implements platform.MemoryManager.
func (v *view) AddressSpace() platform.AddressSpace { return v.as }

// growStack grows the goroutine's stack once, while there is little on it, to the size that
// system calls of usual programs need. Else it is copied several times on the way there.
//
//go:noinline
func growStack() {
	var room [11 << 10]byte // more than half of 16 KiB, the size that it gets
	runtime.KeepAlive(&room)
}
