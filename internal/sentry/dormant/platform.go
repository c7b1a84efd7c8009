package dormant

import (
	"fmt"
	"sync/atomic"
	"time"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/platform"
)

// Platform is a platform whose address spaces may be dormant.
type Platform struct {
	platform.Platform
	loading  atomic.Bool // new address spaces are dormant
	idle     bool        // there is no platform yet, only its constants
	contexts []*task     // made while it is idle
}

// NewPlatform wraps inner.
func NewPlatform(inner platform.Platform) *Platform { return &Platform{Platform: inner} }

// NewIdlePlatform returns a platform that a kernel can be loaded with, but not run, before Begin. constants is asked
// what a platform is like until then, and to make nothing.
func NewIdlePlatform(constants platform.Platform) *Platform {
	return &Platform{Platform: constants, idle: true}
}

// Begin makes inner the platform that p wraps.
func (p *Platform) Begin(inner platform.Platform) {
	p.Platform, p.idle = inner, false
	for _, t := range p.contexts {
		t.Context = inner.NewContext(context.Background())
	}
	p.contexts = nil
}

// Load calls load, which loads a kernel, and returns its error. Address spaces that it makes are dormant.
func (p *Platform) Load(load func() error) error {
	p.loading.Store(true)
	defer p.loading.Store(false)
	return load()
}

// NewAddressSpace implements platform.Platform.
func (p *Platform) NewAddressSpace() (platform.AddressSpace, error) {
	s := &space{of: p}
	if p.loading.Load() {
		return s, nil
	}
	if _, err := s.wake(); err != nil {
		return nil, err
	}
	return s, nil
}

// NewContext implements platform.Platform.
func (p *Platform) NewContext(ctx context.Context) platform.Context {
	t := &task{}
	if p.idle {
		p.contexts = append(p.contexts, t)
	} else {
		t.Context = p.Platform.NewContext(ctx)
	}
	return t
}

// task is used by a single goroutine, as every platform.Context is.
type task struct {
	platform.Context
	view view
}

// patience is how long a process waits for one of the host, which the host refuses, before it is killed; pause is
// how long it waits before it asks again.
const (
	patience = 10 * time.Second
	pause    = 20 * time.Millisecond
)

// Switch implements platform.Context.
func (t *task) Switch(ctx context.Context, mm platform.MemoryManager, ac *arch.Context64, cpu int32) (*linux.SignalInfo, hostarch.AccessType, error) {
	s := mm.AddressSpace().(*space)
	as := s.awake()
	if as == nil {
		if call(ctx, mm, ac) {
			return nil, hostarch.NoAccess, nil
		}
		var err error
		if as, err = s.wake(); err != nil {
			return nil, hostarch.NoAccess, s.await(err)
		}
	}
	t.view = view{mm, as}
	return t.Context.Switch(ctx, &t.view, ac, cpu)
}

// await returns what Switch returns when the host refuses a process: that it was interrupted, so that it is asked
// again, until patience is over.
func (s *space) await(refused error) error {
	s.waking.Lock()
	since := s.refused
	s.waking.Unlock()
	if time.Since(since) > patience {
		return fmt.Errorf("wake process: %w", refused)
	}
	<-time.After(pause)
	return platform.ErrContextInterrupt
}

// PullFullState implements platform.Context.
func (t *task) PullFullState(as platform.AddressSpace, ac *arch.Context64) error {
	if inner := as.(*space).awake(); inner != nil {
		return t.Context.PullFullState(inner, ac)
	}
	return nil // ac is all there is
}

// view is the memory manager of a process for the inner platform, which asserts the type of its address space.
type view struct {
	platform.MemoryManager
	as platform.AddressSpace
}

// AddressSpace implements platform.MemoryManager.
func (v *view) AddressSpace() platform.AddressSpace { return v.as }
