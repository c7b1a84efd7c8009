package syscalls

import (
	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/limits"

	"ramet.dev/ramet/internal/sentry/rootfs"
)

// passOnModes is fallocate(2), of which original is gVisor's: that refuses all modes but 0
// before it asks the file system, and the root file system can punch holes.
func passOnModes(original kernel.SyscallFn) kernel.SyscallFn {
	return func(t *kernel.Task, sysno uintptr, args arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
		if args[1].Uint64() == 0 {
			return original(t, sysno, args)
		}
		return 0, nil, fallocate(t, args)
	}
}

// fallocate is the system call with a mode.
func fallocate(t *kernel.Task, args arch.SyscallArguments) error {
	file := t.GetFile(args[0].Int())
	if file == nil {
		return linuxerr.EBADF
	}
	defer file.DecRef(t)
	if !file.IsWritable() {
		return linuxerr.EBADF
	}
	mode, offset, length := args[1].Uint64(), args[2].Int64(), args[3].Int64()
	if offset < 0 || length <= 0 {
		return linuxerr.EINVAL
	}
	if !rootfs.CanPunch(file) {
		return linuxerr.EOPNOTSUPP
	}
	end := offset + length
	if end < 0 {
		return linuxerr.EFBIG
	}
	if mode&linux.FALLOC_FL_KEEP_SIZE == 0 && uint64(end) >= limits.FromContext(t).Get(limits.FileSize).Cur {
		_ = t.SendSignal(&linux.SignalInfo{Signo: int32(linux.SIGXFSZ), Code: linux.SI_USER}) // to itself
		return linuxerr.EFBIG
	}
	return file.Allocate(t, mode, uint64(offset), uint64(length))
}
