package brief

import (
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/platform"
)

// Platform is a systrap platform that is cheap for brief programs.
type Platform struct {
	platform.Platform
}

// New makes the platform with systrap's constructor, once in a process. A guest process of
// it has as many threads as there are processors.
func New(systrap func(platform.Options) (platform.Platform, error)) (*Platform, error) {
	neverEnableFastPath = true
	inner, err := systrap(platform.Options{ApplicationCores: runtime.NumCPU()})
	if err != nil {
		return nil, err
	}
	// The constructor has said whether threads may spin, which they may where there are
	// two processors, and that is how it is known that the variable is still its own.
	if neverEnableFastPath && min(runtime.NumCPU(), runtime.GOMAXPROCS(0)) > 1 {
		return nil, errors.New("systrap has another switch for spinning than is known")
	}
	activity.maySpin = !neverEnableFastPath
	neverEnableFastPath = true
	return &Platform{inner}, nil
}

// NewAddressSpace implements platform.Platform.
func (p *Platform) NewAddressSpace() (platform.AddressSpace, error) {
	inner, err := p.Platform.NewAddressSpace()
	if err != nil {
		return nil, err
	}
	return &addressSpace{AddressSpace: inner}, nil
}

// NewContext implements platform.Platform.
func (p *Platform) NewContext(ctx context.Context) platform.Context {
	return &task{Context: p.Platform.NewContext(ctx)}
}

// addressSpace is what a process has had of its life.
type addressSpace struct {
	platform.AddressSpace
	begun atomic.Bool
	once  sync.Once    // for what it inherited
	traps atomic.Int32 // calls that systrap would have rewritten
}

// task is used by one goroutine, as every platform.Context is.
type task struct {
	platform.Context
	view     view
	cold     cold
	switches int
	slept    bool // since the last Switch
}

// Switch implements platform.Context.
func (t *task) Switch(ctx context.Context, mm platform.MemoryManager, ac *arch.Context64, cpu int32) (*linux.SignalInfo, hostarch.AccessType, error) {
	if t.slept || t.switches%lookEvery == 0 {
		activity.look(time.Since(epoch))
	}
	t.switches++
	t.slept = false
	as := mm.AddressSpace().(*addressSpace)
	if !as.begun.Load() && !as.begun.Swap(true) {
		begin(ctx, ac)
	}
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

// PrepareSleep implements platform.Context.
func (t *task) PrepareSleep() {
	t.slept = true
	t.Context.PrepareSleep()
}

// view is the memory manager of a process for systrap, which asserts the type of its
// address space.
type view struct {
	platform.MemoryManager
	as platform.AddressSpace
}

// AddressSpace implements platform.MemoryManager.
func (v *view) AddressSpace() platform.AddressSpace { return v.as }
