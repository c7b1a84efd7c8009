package syscalls

import (
	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"ramet.dev/ramet/internal/sentry/limitfs"
)

// showLoad is sysinfo(2), of which original is gVisor's: that leaves the load averages out, which the C library's
// getloadavg(3) takes from there.
func showLoad(original kernel.SyscallFn) kernel.SyscallFn {
	return func(t *kernel.Task, sysno uintptr, args arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
		n, ctl, err := original(t, sysno, args)
		if err != nil {
			return n, ctl, err
		}
		var info linux.Sysinfo
		if _, err := info.CopyIn(t, args[0].Pointer()); err != nil {
			return 0, nil, err
		}
		for i, load := range limitfs.LoadAverages(t.Kernel()) {
			info.Loads[i] = uint64(load * (1 << 16)) // see SI_LOAD_SHIFT of sysinfo(2)
		}
		_, err = info.CopyOut(t, args[0].Pointer())
		return n, ctl, err
	}
}
