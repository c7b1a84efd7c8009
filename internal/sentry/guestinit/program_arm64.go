package guestinit

import "debug/elf"

// machine is the processor that the program is for.
const machine = elf.EM_AARCH64

// The system calls and constants of the program, from the arm64 Linux ABI.
const (
	sysRtSigprocmask        = 135
	sysRtSigtimedwait       = 137
	sysWait4                = 260
	sigBlock                = 0          // SIG_BLOCK
	wnohangWall             = 0x40000001 // WNOHANG | __WALL: children of every kind of clone
	sigsetSize              = 8          // sizeof(kernel_sigset_t)
	sigchldSet              = 1 << 16    // SIGCHLD is 17; signal n is bit n-1
	allSignals              = ^uint64(0)
	null                    = 0
	labelReap         label = "reap"
	labelSigset       label = "sigset"
	labelAll          label = "all"
)

// program returns the code and the constants behind it. program_amd64.go explains its steps.
func program() []byte {
	var a assembler

	// rt_sigprocmask(SIG_BLOCK, &all, NULL, 8)
	a.mov(0, sigBlock)
	a.adr(1, labelAll)
	a.mov(2, null)
	a.mov(3, sigsetSize)
	a.svc(sysRtSigprocmask)

	// do { wait4(-1, NULL, WNOHANG|__WALL, NULL) } while (result > 0)
	a.label(labelReap)
	a.movMinusOne(0)
	a.mov(1, null)
	a.mov(2, wnohangWall)
	a.mov(3, null)
	a.svc(sysWait4)
	a.bgt(labelReap)

	// rt_sigtimedwait(&sigset, NULL, NULL, 8), and again
	a.adr(0, labelSigset)
	a.mov(1, null)
	a.mov(2, null)
	a.mov(3, sigsetSize)
	a.svc(sysRtSigtimedwait)
	a.b(labelReap)

	a.align(8)
	a.label(labelSigset)
	a.quad(sigchldSet)
	a.label(labelAll)
	a.quad(allSignals)
	return a.link()
}
