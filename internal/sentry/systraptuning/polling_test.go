package systraptuning

import (
	"sync/atomic"
	"testing"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/platform"
)

// systrap is a platform that notes how its processes are polled for.
type systrap struct {
	platform.Platform
	polled []bool
}

func (*systrap) ConcurrencyCount() int { return 3 }

func (s *systrap) NewContext(context.Context) platform.Context { return &systrapContext{systrap: s} }

type systrapContext struct {
	platform.Context
	systrap *systrap
}

func (c *systrapContext) Switch(context.Context, platform.MemoryManager, *arch.Context64, int32) (*linux.SignalInfo, hostarch.AccessType, error) {
	ticks, threads := atomic.LoadUint64(&deepSleepTimeout), atomic.LoadUint32(&fastPathContextLimit)
	c.systrap.polled = append(c.systrap.polled, ticks == usualTicks && threads == 6)
	if ticks != usualTicks && ticks != 1 || threads != 6 && threads != 0 {
		panic("it polls in some other way")
	}
	return nil, hostarch.NoAccess, nil
}

// usualTicks is what systrap sets, about, where the counter goes up 2.5 times a nanosecond.
const usualTicks = 50_000

// processMemory is the memory of a process with an address space of its own.
type processMemory struct {
	platform.MemoryManager
	as addressSpace
}

func (m *processMemory) AddressSpace() platform.AddressSpace { return &m.as }

// TestPolling checks that systrap does not poll for a process that is new, polls for one
// that goes on, and that neither changes that for the other.
func TestPolling(t *testing.T) {
	defer func(ticks uint64, threads uint32) { deepSleepTimeout, fastPathContextLimit = ticks, threads }(deepSleepTimeout, fastPathContextLimit)
	host := &systrap{}
	deepSleepTimeout = 0
	if _, err := NewPlatform(host); err == nil {
		t.Error("it polls for no time, and nobody minds")
	}
	deepSleepTimeout, fastPathContextLimit = usualTicks, 0 // systrap sets the other later
	p, err := NewPlatform(host)
	if err != nil {
		t.Fatal(err)
	}
	fastPathContextLimit = 6
	switched := func(m *processMemory, c platform.Context) (polled bool) {
		t.Helper()
		if _, _, err := c.Switch(context.Background(), m, &arch.Context64{}, 0); err != nil {
			t.Fatal(err)
		}
		return host.polled[len(host.polled)-1]
	}
	// It runs already: there is no program whose beginning could be mapped ahead.
	old, oldTask := &processMemory{}, p.NewContext(context.Background())
	old.as.begun.Store(true)
	for n := 1; n <= pollAfter; n++ {
		if switched(old, oldTask) {
			t.Fatalf("it is polled for when it goes to its code for the %d. time", n)
		}
	}
	second := p.NewContext(context.Background()) // another thread of it
	for range 2 {
		if !switched(old, oldTask) || !switched(old, second) {
			t.Error("it goes on and is not polled for")
		}
		fresh, freshTask := &processMemory{}, p.NewContext(context.Background())
		fresh.as.begun.Store(true)
		if switched(fresh, freshTask) {
			t.Error("one that is new is polled for")
		}
	}
}
