package cow

import (
	"fmt"
	"os"
	"reflect"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
	"gvisor.dev/gvisor/pkg/sentry/mm"
	"gvisor.dev/gvisor/pkg/sentry/pgalloc"

	"ramet.dev/ramet/internal/engine/snapfile"
)

// Generation is an ancestor's memory file, open read-only.
type Generation struct {
	// Name identifies the memory file among all relatives.
	Name string
	File *os.File
}

// Memory is the copy-on-write memory of one sandbox. Its methods must not be
// called concurrently, except Release with itself excluded by the caller.
type Memory struct {
	mf   *pgalloc.MemoryFile
	file *os.File

	// table and gens are what the sandbox inherited. They are set before the
	// guest runs and never change. The ranges of table have one reference that
	// nobody gives up, so that they are copied before they are written, and
	// their place is never used for anything else.
	table Table
	gens  []Generation

	// pins holds the ranges of mf that each freeze has, and held how many have each
	// range, that of table included: all of them together hold one reference. One for
	// each would be saved by every later freeze, and given up one by one in its children.
	pins map[string]Ranges
	held counts

	// seceded is true in a copy of the process: see Secede.
	seceded bool
	// loosening makes Platform map no more than a piece around a fault, see Loosen.
	loosening atomic.Bool
}

// NewMemory makes an empty memory on file, a memfd that it takes over.
func NewMemory(file *os.File) (*Memory, error) {
	mf, err := pgalloc.NewMemoryFile(file, pgalloc.MemoryFileOpts{
		// The executable mapping this makes would be refused by the filter,
		// and the host made one.
		DisableIMAWorkAround: true,
	})
	if err != nil {
		return nil, fmt.Errorf("create memory file: %w", err)
	}
	return &Memory{mf: mf, file: file, pins: map[string]Ranges{}}, nil
}

// MemoryFile returns the memory file that the kernel allocates from.
func (m *Memory) MemoryFile() *pgalloc.MemoryFile { return m.mf }

// Inherit makes the memory that of a child: ranges in table live in gens. It
// must be called before the kernel's state is loaded.
func (m *Memory) Inherit(table Table, gens []Generation) {
	m.table, m.gens = table, gens
	for _, e := range table {
		m.held = append(m.held, counted{memmap.FileRange(e.Range), 1})
	}
}

// Generations returns the names of the inherited generations.
func (m *Memory) Generations() []string {
	names := make([]string, len(m.gens))
	for i, g := range m.gens {
		names[i] = g.Name
	}
	return names
}

// Files returns the sandbox's own memory file and those of its generations.
func (m *Memory) Files() (own *os.File, generations []*os.File) {
	for _, g := range m.gens {
		generations = append(generations, g.File)
	}
	return m.file, generations
}

// SharedBytes returns how many bytes of generations the sandbox inherited.
func (m *Memory) SharedBytes() int64 {
	n := uint64(0)
	for _, e := range m.table {
		n += e.Length()
	}
	return int64(n)
}

// FindCommitted asks the host which pages are in use, so that saving need not
// scan them. It may take milliseconds and runs while the guest does.
func (m *Memory) FindCommitted() error {
	// An explicit set of memory cgroups is not throttled, unlike nil.
	return m.mf.UpdateUsage(m.owners())
}

// Pinned is the outcome of Pin.
type Pinned struct {
	// Table says where each pinned page lives: in the generation of that
	// index in Generations.
	Table       Table
	Generations []string
	// drop are the ranges whose contents a save must not write.
	drop Ranges
	mem  *Memory
}

// BookCommitted prepares for a save with a Writer of p, so that frozen memory costs nothing. The kernel
// must be paused.
func (p *Pinned) BookCommitted() { p.mem.bookCommitted(p.drop) }

// Pin freezes all private pages of all tasks under the name id. self names this
// sandbox's own memory file in the result. The kernel must be paused.
func (m *Memory) Pin(k *kernel.Kernel, id, self string) (*Pinned, error) {
	if _, ok := m.pins[id]; ok {
		return nil, fmt.Errorf("pin %q exists", id)
	}
	p := &Pinned{mem: m}
	var own []memmap.FileRange
	index := map[int]uint32{}
	nameOf := func(gen int) string {
		if gen < 0 {
			return self
		}
		return m.gens[gen].Name
	}
	for _, r := range m.privateRanges(k) {
		m.table.overlapping(r, func(part memmap.FileRange, gen int) {
			i, ok := index[gen]
			if !ok {
				i = uint32(len(p.Generations))
				index[gen] = i
				p.Generations = append(p.Generations, nameOf(gen))
			}
			p.Table = append(p.Table, snapfile.Extent{Range: snapfile.Range(part), Gen: i})
			if gen < 0 {
				own = append(own, part)
			}
		})
	}
	m.pin(id, normalize(own))
	p.drop = m.held.ranges()
	return p, nil
}

// Held returns the references that freezes hold, this one included.
func (p *Pinned) Held() []snapfile.Held {
	held := make([]snapfile.Held, len(p.drop))
	for i, r := range p.drop {
		held[i] = snapfile.Held{Range: snapfile.Range(r), Refs: 1}
	}
	return held
}

// Settle gives up, in a child, the references that the freezes of its ancestors
// held, all but the one on what it inherited. Without it, pages that a sandbox
// has copied would never be free in its descendants, and each of them would
// save more of those than its parent. The state must be loaded and the guest not
// run yet.
func (m *Memory) Settle(held []snapfile.Held) {
	for _, h := range held {
		m.table.overlapping(memmap.FileRange(h.Range), func(part memmap.FileRange, gen int) {
			surplus := h.Refs
			if gen >= 0 {
				surplus--
			}
			for range surplus {
				m.mf.DecRef(part)
			}
		})
	}
}

// privateRanges returns the file ranges of all private mappings, and makes them
// copy-on-write in their address spaces as a side effect.
func (m *Memory) privateRanges(k *kernel.Kernel) Ranges {
	return ofEach(memories(k), func(memory *mm.MemoryManager) []memmap.FileRange {
		copyInSmallPieces(memory)
		return copyOnWrite(nil, memory)
	})
}

// ofEach returns what do returns for all of them. It does several at a time: most of the time is spent on
// waiting for processes that something is taken from.
func ofEach(all []*mm.MemoryManager, do func(*mm.MemoryManager) []memmap.FileRange) Ranges {
	ranges := make([][]memmap.FileRange, len(all))
	var next atomic.Int64
	var workers sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(all)) {
		workers.Go(func() {
			for i := next.Add(1) - 1; int(i) < len(all); i = next.Add(1) - 1 {
				ranges[i] = do(all[i])
			}
		})
	}
	workers.Wait()
	return normalize(slices.Concat(ranges...))
}

// unmapGap is how far ranges may be apart that are unmapped together, with what is between them: a call
// takes as long as some faults.
const unmapGap = 256 << 10

// copyOnWrite makes the private pages of a process copy-on-write and appends their file ranges. It
// does what MemoryManager.Fork does to the process that is forked, without making another, and also
// for mappings that a fork leaves out (MADV_DONTFORK). The caller pins the pages: one that has a
// single reference is not copied before it is written.
func copyOnWrite(ranges []memmap.FileRange, memory *mm.MemoryManager) []memmap.FileRange {
	mu := lockerAt(reflect.ValueOf(memory).Elem().FieldByName("activeMu"))
	mu.lock()
	defer mu.unlock()
	var writable []memmap.FileRange // of addresses
	visitPieces(memory, func(start, end uint64, p *piece) {
		if !p.private {
			return
		}
		ranges = append(ranges, memmap.FileRange{Start: p.off, End: p.off + end - start})
		if p.needCOW {
			return
		}
		if p.effectivePerms.Write {
			if last := len(writable) - 1; last >= 0 && start-writable[last].End <= unmapGap {
				writable[last].End = end
			} else {
				writable = append(writable, memmap.FileRange{Start: start, End: end})
			}
		}
		p.needCOW, p.effectivePerms.Write, p.maxPerms.Write = true, false, false
	})
	if as := memory.AddressSpace(); as != nil { // else it has ended
		for _, r := range writable {
			as.Unmap(hostarch.Addr(r.Start), r.Length())
		}
	}
	return ranges
}

// memories returns the memory of each process once, however many threads it has. The
// kernel may run.
func memories(k *kernel.Kernel) (all []*mm.MemoryManager) {
	seen := map[*mm.MemoryManager]bool{nil: true} // that of a task that is exiting
	for _, t := range k.TaskSet().Root.Tasks() {
		t.WithMuLocked(func(t *kernel.Task) {
			if m := t.MemoryManager(); !seen[m] {
				seen[m] = true
				all = append(all, m)
			}
		})
	}
	return all
}

// InUse returns the ranges of addresses that a process has private memory at: what it has
// mapped and never touched is not among them, and reading that would take memory. The
// process must not run.
func InUse(memory *mm.MemoryManager) (ranges []hostarch.AddrRange) {
	visitPieces(memory, func(start, end uint64, p *piece) {
		switch last := len(ranges) - 1; {
		case !p.private:
		case last >= 0 && ranges[last].End == hostarch.Addr(start):
			ranges[last].End = hostarch.Addr(end)
		default:
			ranges = append(ranges, hostarch.AddrRange{Start: hostarch.Addr(start), End: hostarch.Addr(end)})
		}
	})
	return ranges
}

// CountMapped returns how many mappings of files and of shared memory the processes of k have together. The
// kernel may run.
func CountMapped(k *kernel.Kernel) (n int) {
	for _, memory := range memories(k) {
		mu := lockerAt(reflect.ValueOf(memory).Elem().FieldByName("mappingMu"))
		mu.lock()
		visitAreas(memory, func(_, _ uint64, a *area) {
			if a.mappable != nil {
				n++
			}
		})
		mu.unlock()
	}
	return n
}

// maxSmallPieces is the largest mapping that is copied in small pieces, in
// bytes. What is larger is more likely to be written from end to end.
const maxSmallPieces = 32 << 20

// copyInSmallPieces makes the private writable mappings of m, and of what is
// forked from it, break copy-on-write a few pages at a time. gVisor's unit is
// 2 MiB but for stacks: a Python child that runs one line would copy ten times
// the memory it changes. Being a stack has no other effect on a mapping
// (getPMAsInternalLocked in gVisor's pkg/sentry/mm).
func copyInSmallPieces(m *mm.MemoryManager) {
	visitAreas(m, func(start, end uint64, a *area) {
		if end-start <= maxSmallPieces && a.private && a.realPerms.Write {
			a.isStack = true
		}
	})
}

// pin notes that the freeze id has ranges, none of which is in the table.
func (m *Memory) pin(id string, ranges Ranges) {
	m.pins[id] = ranges
	m.held = m.held.plus(ranges, 1, func(part memmap.FileRange, before, _ int) {
		if before == 0 {
			m.mf.IncRef(part, kernel.InvalidCgroupID)
		}
	})
}

// Release drops the pins of the freeze id; pages that nothing else holds go
// back to the host. It reports whether there were any.
func (m *Memory) Release(id string) bool {
	ranges, ok := m.pins[id]
	if !ok {
		return false
	}
	delete(m.pins, id)
	m.held = m.held.plus(ranges, -1, func(part memmap.FileRange, _, after int) {
		if after == 0 {
			m.mf.DecRef(part)
		}
	})
	return true
}

// PinNames returns the names of all pins.
func (m *Memory) PinNames() []string {
	names := make([]string, 0, len(m.pins))
	for id := range m.pins {
		names = append(names, id)
	}
	return names
}

// PinnedBytes returns how many bytes of the own memory file are pinned by id.
func (m *Memory) PinnedBytes(id string) int64 { return int64(m.pins[id].Bytes()) }

// Secede leaves this process, a copy of the one that the memory belongs to, the pages of rest only, which
// must be in use: it has zeros in all others, and what it writes the original does not see. What the
// original writes to the pages of rest is seen until this process writes to them. The processes of the
// original are left alone.
func (m *Memory) Secede(rest Ranges) error {
	m.seceded = true
	st, err := m.file.Stat()
	if err == nil && st.Size() > 0 {
		// Reading a page of the file that is not in use would take one from the host.
		none := ^uintptr(0)
		err = m.remap(memmap.FileRange{End: uint64(st.Size())}, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS, none)
	}
	for i := 0; err == nil && i < len(rest); i++ {
		err = m.remap(rest[i], unix.MAP_PRIVATE, m.file.Fd())
	}
	if err != nil {
		return fmt.Errorf("map a copy of memory: %w", err)
	}
	return nil
}

// ToFork readies the memory for forks of the process, which share what is mapped, and returns the pages that its own
// file has, for MoveTo. Nothing may use the memory from then on.
func (m *Memory) ToFork() (own Ranges, err error) {
	m.AwaitReleased()
	for _, e := range m.table { // a load maps what is known to be in use
		err := eachMapped(m.mf, memmap.FileRange(e.Range), func(text []byte, at uint64) error {
			return mapOver(text, m.gens[e.Gen].File, at)
		})
		if err != nil {
			return nil, fmt.Errorf("map inherited memory: %w", err)
		}
	}
	for at := uint64(0); ; {
		next, err := nextData(int(m.file.Fd()), at)
		if err != nil || next.Start >= noData {
			return own, err
		}
		own, at = append(own, next), next.End
	}
}

// MoveTo makes file, an empty memfd, the file of the memory, with the pages that ToFork returned, in a process that is
// a fork of the one that called that. Nothing may use it meanwhile. file stays the caller's.
func (m *Memory) MoveTo(file *os.File, own Ranges) error {
	st, err := m.file.Stat()
	if err == nil {
		err = file.Truncate(st.Size())
	}
	for i := 0; err == nil && i < len(own); i++ {
		err = copyPages(m.mf, own[i], file, int64(own[i].Start))
	}
	if err == nil && st.Size() > 0 {
		m.table.overlapping(memmap.FileRange{End: uint64(st.Size())}, func(part memmap.FileRange, gen int) {
			if err == nil && gen < 0 { // else it is mapped from a generation
				err = m.remap(part, unix.MAP_SHARED, file.Fd())
			}
		})
	}
	if err == nil {
		err = unix.Dup3(int(file.Fd()), int(m.file.Fd()), unix.O_CLOEXEC)
	}
	if err != nil {
		return fmt.Errorf("move memory to another file: %w", err)
	}
	return nil
}

// remap puts a mapping of fd, or of nothing, where the kernel has fr mapped.
func (m *Memory) remap(fr memmap.FileRange, flags int, fd uintptr) error {
	return eachMapped(m.mf, fr, func(text []byte, at uint64) error {
		return mapAt(text, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_NORESERVE|flags, fd, at)
	})
}

// Trim gives back all memory but what is pinned. The sandbox must never run
// again.
func (m *Memory) Trim() error {
	st, err := m.file.Stat()
	if err != nil {
		return fmt.Errorf("trim memory file: %w", err)
	}
	var pinned []memmap.FileRange
	for _, p := range m.pins {
		pinned = append(pinned, p...)
	}
	all := memmap.FileRange{Start: 0, End: uint64(st.Size())}
	if all.Length() == 0 {
		return nil
	}
	normalize(pinned).minus(all, func(part memmap.FileRange) {
		if err == nil {
			err = unix.Fallocate(int(m.file.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, int64(part.Start), int64(part.Length()))
		}
	})
	if err != nil {
		return fmt.Errorf("trim memory file: %w", err)
	}
	return nil
}
