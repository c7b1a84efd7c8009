package brief

import (
	"fmt"
	"maps"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
)

const (
	// linkerSize is more than a dynamic linker takes of the address space.
	linkerSize = 1 << 20
	// aheadCode and aheadData are how large a mapping may be, in bytes, that is mapped
	// ahead: what is only read takes no memory, what is written is copied.
	aheadCode = 16 << 20
	aheadData = 64 << 10
	// segments is how many mappings a program or a library usually has.
	segments = 4
)

// begin maps what a program that has just been executed, and is linked dynamically, is
// about to touch: its stack, its linker and itself. A process that is not at its beginning
// is left alone.
func begin(ctx context.Context, ac *arch.Context64) {
	t := kernel.TaskFromContext(ctx)
	if t == nil {
		return
	}
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
	if at := hostarch.Addr(ac.IP()); linker == 0 || at < linker || at-linker > linkerSize {
		return
	}
	touch(t, hostarch.Addr(ac.Stack()), hostarch.Write)
	touch(t, vdso, hostarch.Read)
	for _, at := range []hostarch.Addr{linker, headers} {
		for range segments {
			r, err := t.MemoryManager().FindVMARange(at)
			if err != nil || r.Length() > aheadCode {
				break
			}
			if r.Length() > aheadData {
				touch(t, r.Start, hostarch.Execute)
			} else if !touch(t, r.Start, hostarch.Write) {
				touch(t, r.Start, hostarch.Read)
			}
			at = r.End
		}
	}
}

// touch maps what is at an address as a fault would. What cannot be mapped is left to the
// fault, whose error the program gets.
func touch(t *kernel.Task, at hostarch.Addr, access hostarch.AccessType) bool {
	return t.MemoryManager().HandleUserFault(t, at, access, at) == nil
}

// Ahead lets mmap(2) and mprotect(2) map what a dynamic linker is about to touch.
func Ahead() error {
	for _, table := range kernel.SyscallTables() {
		changed := maps.Clone(table.Table)
		for name, then := range map[string]func(*kernel.Task, uintptr, arch.SyscallArguments){"mmap": mapped, "mprotect": protected} {
			number, err := table.LookupNo(name)
			if err != nil {
				return fmt.Errorf("replace a system call: %w", err)
			}
			call := changed[number]
			original := call.Fn
			call.Fn = func(t *kernel.Task, sysno uintptr, args arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
				ret, control, err := original(t, sysno, args)
				if err == nil {
					then(t, ret, args)
				}
				return ret, control, err
			}
			changed[number] = call
		}
		table.Table = changed
		table.Init()
	}
	return nil
}

// mapped maps a segment of a library with code or data, which a linker places within what
// it has reserved.
func mapped(t *kernel.Task, at uintptr, args arch.SyscallArguments) {
	length, prot, flags := args[1].Uint64(), args[2].Int(), args[3].Int()
	if flags&(linux.MAP_PRIVATE|linux.MAP_FIXED|linux.MAP_ANONYMOUS) != linux.MAP_PRIVATE|linux.MAP_FIXED {
		return
	}
	switch {
	case prot&linux.PROT_WRITE != 0 && length <= aheadData:
		touch(t, hostarch.Addr(at), hostarch.Write)
	case prot&linux.PROT_WRITE == 0 && prot&linux.PROT_EXEC != 0 && length <= aheadCode:
		touch(t, hostarch.Addr(at), hostarch.Read)
	}
}

// protected maps again what a linker has written and may only be read from now on.
func protected(t *kernel.Task, _ uintptr, args arch.SyscallArguments) {
	if args[1].Uint64() <= aheadData && args[2].Int() == linux.PROT_READ {
		touch(t, args[0].Pointer(), hostarch.Read)
	}
}
