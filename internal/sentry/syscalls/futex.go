package syscalls

import (
	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
)

// lockPI is futex(2), of which original is gVisor's. FUTEX_UNLOCK_PI gives the mutex to its first waiter. gVisor
// drops that ownership when the wait is interrupted or times out at the same moment: the repeated call then finds
// that its own thread is the owner, and fails. Such a wait ends with success here.
func lockPI(original kernel.SyscallFn) kernel.SyscallFn {
	return func(t *kernel.Task, sysno uintptr, args arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
		if args[1].Int()&^(linux.FUTEX_PRIVATE_FLAG|linux.FUTEX_CLOCK_REALTIME) != linux.FUTEX_LOCK_PI {
			return original(t, sysno, args)
		}
		owned := ownsPI(t, args[0].Pointer())
		n, control, err := original(t, sysno, args)
		if err != nil && !owned && ownsPI(t, args[0].Pointer()) {
			return 0, nil, nil
		}
		return n, control, err
	}
}

// ownsPI reports whether the mutex at addr says that t is its owner. Only t itself and the owner before it write
// that.
func ownsPI(t *kernel.Task, addr hostarch.Addr) bool {
	word, err := t.LoadUint32(addr)
	return err == nil && word&linux.FUTEX_TID_MASK == uint32(t.ThreadID())
}
