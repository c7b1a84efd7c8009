#include "textflag.h"

#define SYS_futex 98
#define SYS_rt_sigreturn 139
#define SYS_gettid 178
#define SYS_clone 220
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

// The kernel's signal frame, struct rt_sigframe: siginfo_t has 128 bytes, and ucontext_t follows.
#define frame_stack 144 // uc_stack.ss_sp: the low end of the alternate stack
#define frame_pc 568 // uc_mcontext.pc

// noted finds where the runtime keeps a thread's id. In: R0 g, R1 the id. Out: R2
// the address, 0 if there is none or more than one. Uses R3, R4, R5.
TEXT noted<>(SB), NOSPLIT|NOFRAME, $0
	MOVD ZR, R2
	CBZ  R0, none
	MOVD g_m(R0), R3
	CBZ  R3, none
	ADD  $(m_words*8), R3, R4
next:
	MOVD (R3), R5
	CMP  R1, R5
	BNE  other
	CBNZ R2, none
	MOVD R3, R2
other:
	ADD  $8, R3
	CMP  R4, R3
	BLO  next
	RET
none:
	MOVD ZR, R2
	RET

// func ownNoted() uintptr: noted of the calling thread.
TEXT ·ownNoted(SB), NOSPLIT, $16-8
	MOVD $SYS_gettid, R8
	SVC
	MOVD R0, R1
	MOVD g, R0
	BL   noted<>(SB)
	MOVD R2, ret+0(FP)
	RET

// func note(at uintptr): stores the id of the calling thread.
TEXT ·note(SB), NOSPLIT, $0-8
	MOVD $SYS_gettid, R8
	SVC
	MOVD at+0(FP), R1
	MOVD R0, (R1)
	RET

// func handler() uintptr: the address of hold.
TEXT ·handler(SB), NOSPLIT, $0-8
	MOVD $hold<>(SB), R0
	MOVD R0, ret+0(FP)
	RET

// func restorer() uintptr: the address of resume.
TEXT ·restorer(SB), NOSPLIT, $0-8
	MOVD $resume<>(SB), R0
	MOVD R0, ret+0(FP)
	RET

// hold is the signal handler; see threads_amd64.s. It may use all registers: they come back from
// the kernel's frame, which is where SP is.
//
// The register of g is the C compiler's in the vDSO. The runtime stores g at the low end of the
// signal stack before it calls there (sigFetchG, in a program without cgo).
TEXT hold<>(SB), NOSPLIT|NOFRAME, $0
	MOVD $·round(SB), R19
	LDARW (R19), R21
	TBZ  $0, R21, go
	MOVD $·arriving(SB), R0
count:
	LDAXRW (R0), R1
	ADDW $1, R1, R2
	STLXRW R2, (R0), R3
	CBNZW R3, count
	MOVD $maxThreads, R2
	CMP  R2, R1
	BHS  wait
	MOVD $thread_size, R2
	MUL  R2, R1, R1
	MOVD $·threads(SB), R20
	ADD  R1, R20
	MOVD RSP, R0
	MOVD R0, thread_sp(R20)
	MRS  TPIDR_EL0, R0
	MOVD R0, thread_fs(R20)
	MOVD $SYS_gettid, R8
	SVC
	MOVD R0, thread_id(R20)
	MOVD R0, R1
	MOVD g, R0
	MOVD frame_pc(RSP), R3
	MOVD ·vdsoStart(SB), R4
	SUB  R4, R3
	MOVD ·vdsoSize(SB), R4
	CMP  R4, R3
	BHS  find
	MOVD frame_stack(RSP), R3
	MOVD (R3), R0
find:
	BL   noted<>(SB)
	MOVD R2, thread_noted(R20)
	MOVD $·arrived(SB), R0
arrive:
	LDAXRW (R0), R1
	ADDW $1, R1, R1
	STLXRW R1, (R0), R3
	CBNZW R3, arrive
wait:
	LDARW (R19), R1
	CMPW R21, R1
	BNE  go
	MOVD R19, R0
	MOVD $FUTEX_WAIT_PRIVATE, R1
	MOVD R21, R2
	MOVD ZR, R3
	MOVD $SYS_futex, R8
	SVC
	B    wait
go:
	B    resume<>(SB)

// resume is what a handler returns to, with SP at the kernel's signal frame.
TEXT resume<>(SB), NOSPLIT|NOFRAME, $0
	MOVD $SYS_rt_sigreturn, R8
	SVC
	UNDEF

// func revive(t *thread, flags uintptr) uintptr: makes a thread that continues where t
// was held. It returns what clone(2) does, which notes the id before it does.
TEXT ·revive(SB), NOSPLIT, $0-24
	MOVD t+0(FP), R20
	MOVD flags+8(FP), R0
	MOVD thread_sp(R20), R1
	MOVD thread_noted(R20), R2 // CLONE_PARENT_SETTID
	MOVD thread_fs(R20), R3
	MOVD ZR, R4
	MOVD $SYS_clone, R8
	SVC
	CBZ  R0, born
	MOVD R0, ret+16(FP)
	RET
born:
	B    resume<>(SB)
