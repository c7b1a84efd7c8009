package cow

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/cpuid"
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/log"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/limits"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
	"gvisor.dev/gvisor/pkg/sentry/mm"
	"gvisor.dev/gvisor/pkg/sentry/platform"
	"gvisor.dev/gvisor/pkg/sentry/usage"
	"gvisor.dev/gvisor/pkg/usermem"
)

func TestMain(m *testing.M) {
	log.SetLevel(log.Warning)
	cpuid.Initialize()
	if err := usage.Init(); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// page is the unit of everything here.
const page = hostarch.PageSize

// pages returns the file range of the pages from..to, without the last.
func pages(from, to uint64) memmap.FileRange {
	return memmap.FileRange{Start: from * page, End: to * page}
}

func newFile(t testing.TB, content []byte) *os.File {
	t.Helper()
	fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "test")
	t.Cleanup(func() { f.Close() })
	if _, err := f.WriteAt(content, 0); err != nil {
		t.Fatal(err)
	}
	return f
}

// newMemory returns a memory whose file is destroyed with the test.
func newMemory(t testing.TB) *Memory {
	t.Helper()
	fd, err := unix.MemfdCreate("memory", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	m, err := NewMemory(os.NewFile(uintptr(fd), "memory"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.MemoryFile().Destroy)
	return m
}

// idlePlatform is a platform on which nothing can run.
type idlePlatform struct{ platform.Platform }

func (idlePlatform) MapUnit() uint64               { return 0 }
func (idlePlatform) SupportsAddressSpaceIO() bool  { return false }
func (idlePlatform) MinUserAddress() hostarch.Addr { return hostarch.PageSize }
func (idlePlatform) MaxUserAddress() hostarch.Addr { return 1 << 46 }
func (idlePlatform) NewAddressSpace() (platform.AddressSpace, error) {
	return unusedAddressSpace{}, nil
}

// unusedAddressSpace is that of a process that never runs.
type unusedAddressSpace struct{ platform.NoAddressSpaceIO }

func (unusedAddressSpace) MapFile(hostarch.Addr, memmap.File, memmap.FileRange, hostarch.AccessType, bool) error {
	return nil
}
func (unusedAddressSpace) Unmap(hostarch.Addr, uint64) {}
func (unusedAddressSpace) Release()                    {}
func (unusedAddressSpace) PreFork()                    {}
func (unusedAddressSpace) PostFork()                   {}

// process is the memory of a guest process that never runs.
type process struct {
	t   testing.TB
	mm  *mm.MemoryManager
	ctx context.Context
}

func newProcess(t testing.TB, mem *Memory) *process {
	t.Helper()
	return newProcessOn(t, mem, idlePlatform{})
}

func newProcessOn(t testing.TB, mem *Memory, on platform.Platform) *process {
	t.Helper()
	ctx := context.WithValue(context.Background(), limits.CtxLimits, limits.NewLimitSet())
	m, err := mm.NewMemoryManager(NewPlatform(on, mem), mem.MemoryFile())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.SetMmapLayout(arch.New(arch.Host), limits.NewLimitSet()); err != nil {
		t.Fatal(err)
	}
	return &process{t, m, ctx}
}

// mmap makes a private anonymous mapping of some pages.
func (p *process) mmap(pages uint64) hostarch.Addr {
	p.t.Helper()
	addr, err := p.mm.MMap(p.ctx, memmap.MMapOpts{Length: pages * page, Private: true, Perms: hostarch.ReadWrite, MaxPerms: hostarch.AnyAccess})
	if err != nil {
		p.t.Fatal(err)
	}
	return addr
}

func (p *process) write(addr hostarch.Addr, s string) {
	p.t.Helper()
	if _, err := p.mm.CopyOut(p.ctx, addr, []byte(s), usermem.IOOpts{}); err != nil {
		p.t.Fatal(err)
	}
}

func (p *process) read(addr hostarch.Addr, n int) string {
	p.t.Helper()
	b := make([]byte, n)
	if _, err := p.mm.CopyIn(p.ctx, addr, b, usermem.IOOpts{}); err != nil {
		p.t.Fatal(err)
	}
	return strings.TrimRight(string(b), "\x00")
}
