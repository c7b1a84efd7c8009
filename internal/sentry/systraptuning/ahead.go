package systraptuning

import (
	"weak"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/mm"
)

const (
	// aheadCode and aheadData bound the size of mappings that are mapped ahead, in bytes. Data
	// are copied.
	aheadCode = 16 << 20
	aheadData = 64 << 10
	// segments is how many mappings a program or a library usually has.
	segments = 4
)

// begin maps the pages that a process touches first. A process that was forked or restored is
// told apart by its register for thread-local variables, which every C library sets and no program
// begins with.
func (as *addressSpace) begin(ctx context.Context, ac *arch.Context64) {
	t := kernel.TaskFromContext(ctx)
	if t == nil {
		return
	}
	as.self = weak.Make(t.MemoryManager())
	if ac.TLS() != 0 {
		as.born(t)
	} else {
		execute(t, ac)
	}
}

// execute maps the pages that a dynamically linked program touches first: its stack, its linker
// and itself.
func execute(t *kernel.Task, ac *arch.Context64) {
	var linker, headers, vdso hostarch.Addr
	for _, e := range t.MemoryManager().Auxv() {
		switch e.Key {
		case linux.AT_BASE:
			linker = e.Value
		case linux.AT_PHDR:
			headers = e.Value
		case linux.AT_SYSINFO_EHDR:
			vdso = e.Value
		}
	}
	if linker == 0 {
		return
	}
	// Not the task itself: as far as gVisor knows it runs guest code, and may not wait.
	waiting, m := t.AsyncContext(), t.MemoryManager()
	touch(waiting, m, hostarch.Addr(ac.Stack()), hostarch.Write)
	touch(waiting, m, vdso, hostarch.Read)
	for _, at := range []hostarch.Addr{linker, headers} {
		for range segments {
			r, err := m.FindVMARange(at)
			if err != nil {
				break
			}
			switch n := r.Length(); {
			case n > aheadCode:
			case n > aheadData:
				touch(waiting, m, r.Start, hostarch.Execute)
			case !touch(waiting, m, r.Start, hostarch.Write):
				touch(waiting, m, r.Start, hostarch.Read)
			}
			at = r.End
		}
	}
}

// touch maps the page at an address as a fault would. A page that cannot be mapped is left to
// the fault, whose error the program gets.
func touch(ctx context.Context, m *mm.MemoryManager, at hostarch.Addr, access hostarch.AccessType) bool {
	return m.HandleUserFault(ctx, at, access, at) == nil
}

// Mmap is mmap(2), of which original is gVisor's. It maps the pages that a dynamic linker is
// sure to touch: a segment of a library with code or data, which the linker places in a range
// that it has reserved, the head of the library, and a small file such as the linker's cache.
func Mmap(original kernel.SyscallFn) kernel.SyscallFn {
	return func(t *kernel.Task, sysno uintptr, args arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
		at, control, err := original(t, sysno, args)
		start, length, prot, flags, offset := hostarch.Addr(at), args[1].Uint64(), args[2].Int(), args[3].Int(), args[5].Uint64()
		if err != nil || flags&(linux.MAP_PRIVATE|linux.MAP_ANONYMOUS) != linux.MAP_PRIVATE {
			return at, control, err
		}
		m := t.MemoryManager()
		switch fixed := flags&linux.MAP_FIXED != 0; {
		case !fixed && prot == linux.PROT_READ && length <= aheadData:
			touch(t, m, start, hostarch.Read)
		case fixed && prot&linux.PROT_WRITE != 0 && length <= aheadData:
			touch(t, m, start, hostarch.Write)
		case fixed && prot&linux.PROT_WRITE == 0 && prot&linux.PROT_EXEC != 0 && length <= aheadCode:
			touch(t, m, start, hostarch.Read)
			if head := start - hostarch.Addr(offset); 0 < offset && offset <= aheadCode && head < start {
				touch(t, m, head, hostarch.Read)
			}
		}
		return at, control, nil
	}
}

// Mprotect is mprotect(2), of which original is gVisor's, which unmaps the range. It maps a
// range again that becomes read-only, as a linker has it after its last write.
func Mprotect(original kernel.SyscallFn) kernel.SyscallFn {
	return func(t *kernel.Task, sysno uintptr, args arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
		ret, control, err := original(t, sysno, args)
		if length := args[1].Uint64(); err == nil && 0 < length && length <= aheadData && args[2].Int() == linux.PROT_READ {
			touch(t, t.MemoryManager(), args[0].Pointer(), hostarch.Read)
		}
		return ret, control, err
	}
}
