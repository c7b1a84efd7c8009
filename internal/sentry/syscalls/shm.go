package syscalls

import (
	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
)

// maxUnused bounds the memory that is allocated and not used, in bytes, beyond which
// no shared segment is made. Such a segment is allocated as a whole, and a freeze asks
// the host of each of its pages whether it is used: 9 ms a GiB. gVisor bounds segments
// by the address space alone, and a segment of a terabyte kept a sandbox from being forked.
const maxUnused = 16 << 30

// boundSegments is shmget(2), of which original is gVisor's.
func boundSegments(original kernel.SyscallFn) kernel.SyscallFn {
	return func(t *kernel.Task, sysno uintptr, args arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
		size, flags := uint64(args[1].SizeT()), args[2].Int()
		if args[0].Int() == linux.IPC_PRIVATE || flags&linux.IPC_CREAT != 0 {
			mf := t.Kernel().MemoryFile()
			used, err := mf.TotalUsage()
			if err != nil {
				return 0, nil, linuxerr.ENOMEM
			}
			if unused := mf.TotalSize() - min(used, mf.TotalSize()); size > maxUnused || unused+size > maxUnused {
				return 0, nil, linuxerr.ENOSPC // as of SHMALL
			}
		}
		return original(t, sysno, args)
	}
}
