package dormant

import (
	"encoding/binary"

	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/platform"
	"gvisor.dev/gvisor/pkg/usermem"
)

// The instruction SVC (Arm Architecture Reference Manual, C6.2). Linux takes each as a system call, whatever the
// constant of 16 bits in it. gVisor never rewrites it.
const (
	svc     = 0xd4000001
	svcMask = 0xffe0001f
)

// call does what the processor does at an instruction for a system call, and reports whether there is one. The
// processor keeps all registers, and gVisor itself remembers the first argument, in whose place the result is.
func call(ctx context.Context, mm platform.MemoryManager, ac *arch.Context64) bool {
	if ac.SingleStep() {
		return false
	}
	regs := &ac.StateData().Regs
	if regs.Pc%arch.SyscallWidth != 0 {
		return false
	}
	var code [arch.SyscallWidth]byte
	n, err := mm.CopyIn(ctx, hostarch.Addr(regs.Pc), code[:], usermem.IOOpts{IgnorePermissions: true})
	if err != nil || n < len(code) || binary.LittleEndian.Uint32(code[:])&svcMask != svc {
		return false
	}
	regs.Pc += arch.SyscallWidth
	return true
}
