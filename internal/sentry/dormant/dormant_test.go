package dormant

import (
	"errors"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
	"gvisor.dev/gvisor/pkg/sentry/platform"
	"gvisor.dev/gvisor/pkg/usermem"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// host is a platform that notes what is asked of it, and refuses address spaces for as often as refuses says.
type host struct {
	platform.Platform
	asked   []string
	refuses int
}

func (h *host) NewAddressSpace() (platform.AddressSpace, error) {
	if h.refuses > 0 {
		h.refuses--
		return nil, unix.ENOMEM
	}
	h.asked = append(h.asked, "space")
	return &hostSpace{host: h}, nil
}

func (h *host) NewContext(context.Context) platform.Context { return &hostContext{host: h} }

// expect fails unless the host was asked for these things, and nothing else, since the last time.
func (h *host) expect(t *testing.T, want ...string) {
	t.Helper()
	if !slices.Equal(h.asked, want) {
		t.Errorf("the host was asked for %q, not %q", h.asked, want)
	}
	h.asked = nil
}

type hostSpace struct {
	platform.AddressSpace
	host *host
}

func (s *hostSpace) MapFile(hostarch.Addr, memmap.File, memmap.FileRange, hostarch.AccessType, bool) error {
	s.host.asked = append(s.host.asked, "map")
	return nil
}
func (s *hostSpace) Unmap(hostarch.Addr, uint64) { s.host.asked = append(s.host.asked, "unmap") }
func (s *hostSpace) Release()                    { s.host.asked = append(s.host.asked, "release") }
func (s *hostSpace) PreFork()                    { s.host.asked = append(s.host.asked, "before fork") }
func (s *hostSpace) PostFork()                   { s.host.asked = append(s.host.asked, "after fork") }

type hostContext struct {
	platform.Context
	host *host
}

func (c *hostContext) Switch(_ context.Context, mm platform.MemoryManager, _ *arch.Context64, _ int32) (*linux.SignalInfo, hostarch.AccessType, error) {
	_ = mm.AddressSpace().(*hostSpace) // as systrap asserts it
	c.host.asked = append(c.host.asked, "run")
	return nil, hostarch.NoAccess, platform.ErrContextInterrupt
}

func (c *hostContext) PullFullState(as platform.AddressSpace, _ *arch.Context64) error {
	_ = as.(*hostSpace)
	c.host.asked = append(c.host.asked, "pull")
	return nil
}

// memory is that of a process, with code from base on.
type memory struct {
	platform.MemoryManager
	as   platform.AddressSpace
	code []byte
}

const base = 0x401000

func (m *memory) AddressSpace() platform.AddressSpace { return m.as }

func (m *memory) CopyIn(_ context.Context, at hostarch.Addr, dst []byte, _ usermem.IOOpts) (int, error) {
	if at < base || at >= base+hostarch.Addr(len(m.code)) {
		return 0, linuxerr.EFAULT
	}
	return copy(dst, m.code[at-base:]), nil
}

// load returns a process of p that was loaded, and a thread of it at an offset in code.
func load(t *testing.T, p *Platform, code []byte, at uint64) (*memory, platform.Context, *arch.Context64) {
	t.Helper()
	m := &memory{code: code}
	var thread platform.Context
	err := p.Load(func() (err error) {
		m.as, err = p.NewAddressSpace()
		thread = p.NewContext(context.Background())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	ac := &arch.Context64{}
	beforeRead(ac, base+at)
	return m, thread, ac
}

// code is what a thread that was loaded is at.
type code struct {
	code []byte
	at   uint64 // its offset
	is   bool   // it is a system call
}

func TestACallNeedsNoProcess(t *testing.T) {
	for name, c := range codes {
		h := &host{}
		m, thread, ac := load(t, NewPlatform(h), c.code, c.at)
		_, _, err := thread.Switch(context.Background(), m, ac, -1)
		if !c.is {
			if err != platform.ErrContextInterrupt {
				t.Errorf("%s: %v", name, err)
			}
			h.expect(t, "space", "run")
			continue
		}
		if err != nil || !behindRead(ac, base+c.at) {
			t.Errorf("%s: %v, %+v", name, err, ac.Regs)
		}
		if err := thread.PullFullState(m.as, ac); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		h.expect(t)
	}
}

func TestAwake(t *testing.T) {
	h := &host{}
	m, thread, ac := load(t, NewPlatform(h), readCall, 0)
	m.as.Unmap(0, 1<<47)
	h.expect(t)
	if err := m.as.MapFile(0, nil, memmap.FileRange{}, hostarch.Read, false); err != nil {
		t.Error(err)
	}
	h.expect(t, "space", "map")
	_, _, _ = thread.Switch(context.Background(), m, ac, -1)
	_ = thread.PullFullState(m.as, ac)
	m.as.Unmap(0, 1)
	m.as.PreFork()
	m.as.PostFork()
	m.as.Release()
	h.expect(t, "run", "pull", "unmap", "before fork", "after fork", "release")
}

func TestNewProcessesAreAwake(t *testing.T) {
	h := &host{}
	p := NewPlatform(h)
	as, err := p.NewAddressSpace()
	if err != nil {
		t.Fatal(err)
	}
	h.expect(t, "space")
	as.Release()
	h.expect(t, "release")
	h.refuses = 1
	if _, err := p.NewAddressSpace(); !errors.Is(err, unix.ENOMEM) {
		t.Error(err)
	}
}

func TestReleasedWhileDormant(t *testing.T) {
	h := &host{}
	m, _, _ := load(t, NewPlatform(h), nop, 0)
	m.as.Release()
	if err := m.as.MapFile(0, nil, memmap.FileRange{}, hostarch.Read, false); err == nil {
		t.Error("it was mapped")
	}
	h.expect(t)
}

// TestIdlePlatform loads a process before there is a platform.
func TestIdlePlatform(t *testing.T) {
	p := NewIdlePlatform(nil)
	m, thread, ac := load(t, p, nop, 0)
	h := &host{}
	p.Begin(h)
	h.expect(t)
	_, _, _ = thread.Switch(context.Background(), m, ac, -1)
	h.expect(t, "space", "run")
	_, _, _ = p.NewContext(context.Background()).Switch(context.Background(), m, ac, -1)
	h.expect(t, "run")
}

// TestTheHostRefuses has a process wait until the host has room, and end when it has none for too long.
func TestTheHostRefuses(t *testing.T) {
	h := &host{refuses: 2}
	m, thread, ac := load(t, NewPlatform(h), nop, 0)
	for range h.refuses {
		if _, _, err := thread.Switch(context.Background(), m, ac, -1); err != platform.ErrContextInterrupt {
			t.Error(err)
		}
		h.expect(t)
	}
	_, _, _ = thread.Switch(context.Background(), m, ac, -1)
	h.expect(t, "space", "run")

	h.refuses = 1 << 30
	m, thread, ac = load(t, NewPlatform(h), nop, 0)
	if _, _, err := thread.Switch(context.Background(), m, ac, -1); err != platform.ErrContextInterrupt {
		t.Error(err)
	}
	m.as.(*space).refused = time.Now().Add(-patience)
	if _, _, err := thread.Switch(context.Background(), m, ac, -1); !errors.Is(err, unix.ENOMEM) {
		t.Errorf("in the end: %v", err)
	}
}

// TestForkOfADormantProcess has the host see all of a fork or nothing of it.
func TestForkOfADormantProcess(t *testing.T) {
	h := &host{refuses: 1}
	m, _, _ := load(t, NewPlatform(h), nop, 0)
	m.as.PreFork()
	h.expect(t)
	m.as.PreFork() // of another thread, when the host has room
	m.as.PostFork()
	m.as.PostFork()
	h.expect(t, "space", "before fork", "after fork")
}
