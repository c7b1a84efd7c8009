package guestinit

import "debug/elf"

// machine is the processor that the program is for.
const machine = elf.EM_X86_64

// What the program tells the kernel, from the x86-64 Linux ABI.
const (
	sysRtSigprocmask        = 14
	sysWait4                = 61
	sysRtSigtimedwait       = 128
	sigBlock                = 0          // SIG_BLOCK
	waitAny                 = -1         // wait4: any child
	wnohangWall             = 0x40000001 // WNOHANG | __WALL: children of every kind of clone
	sigsetSize              = 8          // sizeof(kernel_sigset_t)
	sigchldSet              = 1 << 16    // SIGCHLD is 17; signal n is bit n-1
	allSignals              = ^uint64(0)
	null                    = 0
	labelReap         label = "reap"
	labelSigset       label = "sigset"
	labelAll          label = "all"
)

// program returns the code and the constants behind it.
//
// All signals are blocked, so that those of the kernel, as the SIGIO of a file whose owner is this process,
// do not end it either. SIGCHLD is blocked before the first look at the children and taken with
// sigtimedwait afterwards, so a child that dies in between leaves the signal
// pending and is not missed. A blocked signal is queued even though its default
// is to be ignored. One signal may stand for many children: hence the inner
// loop. A result of sigtimedwait does not matter, EINTR included.
func program() []byte {
	var a assembler

	// rt_sigprocmask(SIG_BLOCK, &all, NULL, 8)
	a.movEAX(sysRtSigprocmask)
	a.movEDI(sigBlock)
	a.leaRSI(labelAll)
	a.movEDX(null)
	a.movR10D(sigsetSize)
	a.syscall()

	// do { wait4(-1, NULL, WNOHANG|__WALL, NULL) } while (result > 0)
	// 0: children are left, but none is dead. -ECHILD: no children.
	a.label(labelReap)
	a.movEAX(sysWait4)
	a.movRDI(waitAny)
	a.movESI(null)
	a.movEDX(wnohangWall)
	a.movR10D(null)
	a.syscall()
	a.testRAX()
	a.jg(labelReap)

	// rt_sigtimedwait(&sigset, NULL, NULL, 8), and again
	a.movEAX(sysRtSigtimedwait)
	a.leaRDI(labelSigset)
	a.movESI(null)
	a.movEDX(null)
	a.movR10D(sigsetSize)
	a.syscall()
	a.jmp(labelReap)

	a.label(labelSigset)
	a.quad(sigchldSet)
	a.label(labelAll)
	a.quad(allSignals)
	return a.link()
}
