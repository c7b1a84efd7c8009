package dormant

import (
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/platform"
	"gvisor.dev/gvisor/pkg/usermem"
)

// The instruction SYSCALL, and what gVisor puts in its place where a call is made often (package usertrap): a jump
// of seven bytes, the last two of which are where the call was. A call that is repeated begins there.
var (
	syscallCode = [...]byte{0x0f, 0x05}
	jumpCode    = [...]byte{0xff, 0x24, 0x25}
)

const (
	jumpLength = 7
	jumpMark   = 0x06 // the byte of the jump where SYSCALL began
)

// call does what the processor does at an instruction for a system call (SYSCALL in Intel's manual), and reports
// whether there is one.
func call(ctx context.Context, mm platform.MemoryManager, ac *arch.Context64) bool {
	if ac.SingleStep() {
		return false
	}
	regs := &ac.StateData().Regs
	if !atCall(ctx, mm, hostarch.Addr(regs.Rip)) {
		return false
	}
	regs.Orig_rax = regs.Rax
	regs.Rip += arch.SyscallWidth
	regs.Rcx, regs.R11 = regs.Rip, regs.Eflags
	return true
}

// atCall reports whether there is such an instruction at ip.
func atCall(ctx context.Context, mm platform.MemoryManager, ip hostarch.Addr) bool {
	var code [jumpLength]byte
	const before hostarch.Addr = jumpLength - 2
	read := func(at hostarch.Addr, b []byte) bool {
		n, err := mm.CopyIn(ctx, at, b, usermem.IOOpts{IgnorePermissions: true})
		return err == nil && n == len(b)
	}
	here := code[before:]
	if ip < before || !read(ip, here) {
		return false
	}
	if [2]byte(here) == syscallCode {
		return true
	}
	return here[0] == jumpMark && read(ip-before, code[:]) && [3]byte(code[:]) == jumpCode
}
