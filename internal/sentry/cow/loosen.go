package cow

import (
	"reflect"

	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
	"gvisor.dev/gvisor/pkg/sentry/mm"
)

// A freeze takes from the processes what they have mapped to be written to, and all that
// they have mapped of files. The host then forgets page by page what they had touched: 1.5
// GiB that were just written take it 100 ms, and all that time they stand still. An address
// space is only a cache of what gVisor knows, though, and what is missing in it comes back
// with a fault. So large mappings are taken away before the pause, while the processes run,
// a piece at a time. What they touch meanwhile is mapped by the piece as well: else a
// fault would map all of a mapping again, over what is left of it, and wait for the host to
// forget that.
//
// Then all private memory is made copy-on-write, as the pause will do once more. What a process
// writes to until then it gets back without a copy, as nothing else has it yet, so the pause only
// takes that. A browser has a thousand small mappings, and taking one takes ten microseconds or
// more.

const (
	// loosenFrom is how much memory a sandbox has at least for which it is worth while,
	// and how large the mappings are that are taken, in bytes: what is less takes a
	// millisecond or two.
	loosenFrom     = 32 << 20
	loosenMappings = 4 << 20
	// loosePiece is what is taken away, or mapped again, at once: a power of two.
	loosePiece = 16 << 20
)

// Loosen prepares for Pin what need not be done in the pause. The kernel runs. It takes
// as long as it shortens the pause by.
//
// It returns the private memory of all processes, or nothing if it did nothing.
func (m *Memory) Loosen(ctx context.Context, k *kernel.Kernel) Ranges {
	if used, err := m.mf.TotalUsage(); err != nil || used < loosenFrom {
		return nil
	}
	m.loosening.Store(true)
	defer m.loosening.Store(false)
	return ofEach(memories(k), func(memory *mm.MemoryManager) (private []memmap.FileRange) {
		m.loosen(ctx, memory)
		whileUsed(ctx, memory, func() { private = copyOnWrite(nil, memory) })
		return private
	})
}

// loosen takes large mappings from one process. It has hold of the process's memory for
// no longer than a piece takes: when a process has ended, others may look whether what it
// had mapped is free.
func (m *Memory) loosen(ctx context.Context, memory *mm.MemoryManager) {
	var all Ranges
	whileUsed(ctx, memory, func() { all = m.tight(memory) })
	for _, r := range all {
		for r.Length() > 0 {
			piece := r
			piece.End = min(r.End, (r.Start+loosePiece)&^(loosePiece-1))
			whileUsed(ctx, memory, func() { memory.AddressSpace().Unmap(hostarch.Addr(piece.Start), piece.Length()) })
			r.Start = piece.End
		}
	}
}

// whileUsed does something with the memory of a process, unless that has ended.
func whileUsed(ctx context.Context, memory *mm.MemoryManager, do func()) {
	if memory.IncUsers() {
		defer memory.DecUsers(ctx)
		do()
	}
}

// tight returns the large ranges of addresses that a freeze takes from a process: of its
// private memory what may be written to without a copy, and of files all.
func (m *Memory) tight(memory *mm.MemoryManager) (large Ranges) {
	mu := lockerAt(reflect.ValueOf(memory).Elem().FieldByName("activeMu"))
	mu.lock()
	defer mu.unlock()
	var all []memmap.FileRange // of addresses
	visitPieces(memory, func(start, end uint64, p *piece) {
		taken := p.file != memmap.File(m.mf)
		if p.private {
			taken = !p.needCOW && p.effectivePerms.Write
		}
		if taken {
			all = append(all, memmap.FileRange{Start: start, End: end})
		}
	})
	for _, r := range normalize(all) {
		if r.Length() >= loosenMappings {
			large = append(large, r)
		}
	}
	return large
}
