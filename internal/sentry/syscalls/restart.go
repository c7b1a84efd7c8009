package syscalls

import (
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
)

// To save a sandbox, gVisor interrupts every task. A call that ends with EINTR then returns an error to its
// program although no signal arrived. The calls below end with an error that makes the kernel repeat them, as
// Linux does: ERESTARTSYS where a handler with SA_RESTART repeats the call too, ERESTARTNOHAND where each handler
// ends it.

// restarts returns a call that is repeated after an interruption without a handler.
func restarts(as error) func(kernel.SyscallFn) kernel.SyscallFn {
	return restartsIf(as, func(arch.SyscallArguments) bool { return true })
}

// forever returns a call that is repeated if its argument at position arg, a pointer to a timeout, is null. A call
// with a timeout ends with EINTR, as on Linux after a stop: repeated, it would wait for the whole timeout again.
func forever(arg int) func(kernel.SyscallFn) kernel.SyscallFn {
	return restartsIf(linuxerr.ERESTARTNOHAND, func(args arch.SyscallArguments) bool { return args[arg].Pointer() == 0 })
}

// foreverMilliseconds is forever for a timeout in milliseconds, which is negative if there is none.
func foreverMilliseconds(arg int) func(kernel.SyscallFn) kernel.SyscallFn {
	return restartsIf(linuxerr.ERESTARTNOHAND, func(args arch.SyscallArguments) bool { return args[arg].Int() < 0 })
}

func restartsIf(as error, may func(arch.SyscallArguments) bool) func(kernel.SyscallFn) kernel.SyscallFn {
	return func(original kernel.SyscallFn) kernel.SyscallFn {
		return func(t *kernel.Task, sysno uintptr, args arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
			n, control, err := original(t, sysno, args)
			if interrupted(err) && may(args) {
				err = as
			}
			return n, control, err
		}
	}
}

// interrupted reports whether a call ended because its task was interrupted.
func interrupted(err error) bool {
	return err != nil && (err == linuxerr.ErrInterrupted || linuxerr.Equals(linuxerr.EINTR, err))
}
