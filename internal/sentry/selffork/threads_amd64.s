#include "textflag.h"

#define SYS_rt_sigreturn 15
#define SYS_clone 56
#define SYS_arch_prctl 158
#define SYS_gettid 186
#define SYS_futex 202
#define ARCH_GET_FS 0x1003
#define FUTEX_WAIT_PRIVATE 128

// type thread
#define thread_sp 0
#define thread_fs 8
#define thread_id 16
#define thread_noted 24
#define thread_size 32
#define maxThreads 4096

// In the runtime: where g keeps m, and how many words of m to look through for the
// id of its thread.
#define g_m 48
#define m_words 16

// noted finds where the runtime keeps a thread's id. In: AX g, BX the id. Out: CX
// the address, 0 if there is none or more than one. Uses DX, DI.
TEXT noted<>(SB), NOSPLIT|NOFRAME, $0
	XORL CX, CX
	MOVQ g_m(AX), DX
	TESTQ DX, DX
	JZ   none
	LEAQ (m_words*8)(DX), DI
next:
	CMPQ BX, (DX)
	JNE  other
	TESTQ CX, CX
	JNZ  none
	MOVQ DX, CX
other:
	ADDQ $8, DX
	CMPQ DX, DI
	JB   next
	RET
none:
	XORL CX, CX
	RET

// func ownNoted() uintptr: noted of the calling thread.
TEXT ·ownNoted(SB), NOSPLIT, $0-8
	MOVL $SYS_gettid, AX
	SYSCALL
	MOVQ AX, BX
	MOVQ (TLS), AX
	CALL noted<>(SB)
	MOVQ CX, ret+0(FP)
	RET

// func note(at uintptr): stores the id of the calling thread.
TEXT ·note(SB), NOSPLIT, $0-8
	MOVL $SYS_gettid, AX
	SYSCALL
	MOVQ at+0(FP), BX
	MOVQ AX, (BX)
	RET

// func handler() uintptr: the address of hold.
TEXT ·handler(SB), NOSPLIT, $0-8
	MOVQ $hold<>(SB), AX
	MOVQ AX, ret+0(FP)
	RET

// func restorer() uintptr: the address of resume.
TEXT ·restorer(SB), NOSPLIT, $0-8
	MOVQ $resume<>(SB), AX
	MOVQ AX, ret+0(FP)
	RET

// hold is the signal handler: it notes the thread and keeps it until round changes. A
// thread may be late to leave when the next round has begun, in which the signal waits
// for it to do so. A signal outside of rounds, when round is even, is somebody else's.
TEXT hold<>(SB), NOSPLIT|NOFRAME, $0
	MOVL ·round(SB), R14
	TESTL $1, R14
	JZ   go
	MOVL $1, AX
	LOCK
	XADDL AX, ·arriving(SB)
	CMPL AX, $maxThreads
	JAE  wait
	IMULQ $thread_size, AX
	LEAQ ·threads(SB), R12
	ADDQ AX, R12
	MOVQ SP, thread_sp(R12)
	LEAQ thread_fs(R12), SI
	MOVL $ARCH_GET_FS, DI
	MOVL $SYS_arch_prctl, AX
	SYSCALL
	MOVL $SYS_gettid, AX
	SYSCALL
	MOVQ AX, thread_id(R12)
	MOVQ AX, BX
	MOVQ (TLS), AX
	CALL noted<>(SB)
	MOVQ CX, thread_noted(R12)
	LOCK
	INCL ·arrived(SB)
wait:
	LEAQ ·round(SB), DI
	CMPL (DI), R14
	JNE  go
	MOVL R14, DX
	MOVL $FUTEX_WAIT_PRIVATE, SI
	XORL R10, R10
	MOVL $SYS_futex, AX
	SYSCALL
	JMP  wait
go:
	RET // to resume: the kernel pushed its address

// resume is what a handler returns to, with SP at the kernel's signal frame.
TEXT resume<>(SB), NOSPLIT|NOFRAME, $0
	MOVL $SYS_rt_sigreturn, AX
	SYSCALL
	INT  $3

// func revive(t *thread, flags uintptr) uintptr: makes a thread that goes on where t
// was held. It returns what clone(2) does, which notes the id before it does.
TEXT ·revive(SB), NOSPLIT, $0-24
	MOVQ t+0(FP), R12
	MOVQ flags+8(FP), DI
	MOVQ thread_sp(R12), SI
	MOVQ thread_noted(R12), DX // CLONE_PARENT_SETTID
	XORL R10, R10
	MOVQ thread_fs(R12), R8
	MOVL $SYS_clone, AX
	SYSCALL
	TESTQ AX, AX
	JZ   born
	MOVQ AX, ret+16(FP)
	RET
born:
	RET // to resume, as the handler would have
