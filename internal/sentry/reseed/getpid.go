package reseed

import (
	"sync/atomic"

	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
)

// generation counts how often the kernel of this process was loaded from a saved state,
// and the ones that this state was saved from. 0: never, and nothing can be a copy.
var generation atomic.Uint32

// Begin says that the kernel was loaded that often. Call it before the guest runs.
func Begin(loads uint32) { generation.Store(loads) }

// Getpid is getpid(2), of which original is gVisor's. OpenSSL's generator gets an answer
// that is another in each generation.
func Getpid(original kernel.SyscallFn) kernel.SyscallFn {
	return func(t *kernel.Task, sysno uintptr, args arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
		pid, control, err := original(t, sysno, args)
		if n := generation.Load(); n > 0 && err == nil && isGenerator(t) {
			pid = forkID(n, pid)
		}
		return pid, control, err
	}
}

const (
	// noPID is a bit that no process id has: gVisor gives out 16 bits.
	noPID = 1 << 30
	// pidBits is how many a process id has.
	pidBits = 16
)

// forkID is what the generator is told. It is positive, no process id, and another for
// each process and each of 16384 generations in a row.
func forkID(generation uint32, pid uintptr) uintptr {
	return noPID | uintptr(generation)<<pidBits&(noPID-1) | pid&(1<<pidBits-1)
}

// isGenerator reports whether the system call that t is in comes from OpenSSL's
// generator: by way of the C library's getpid, or with that function inlined.
func isGenerator(t *kernel.Task) bool {
	places, ok := callersOf(t)
	m := taskMemory{t}
	return ok && (callers.is(t.MemoryManager(), m, places[0]) || callers.is(t.MemoryManager(), m, places[1]))
}

// taskMemory is the memory of a task that is in a system call.
type taskMemory struct{ t *kernel.Task }

func (m taskMemory) read(at hostarch.Addr, p []byte) int {
	n, _ := m.t.CopyInBytes(at, p) // what is not mapped is not read
	return n
}
