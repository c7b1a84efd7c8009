#include "textflag.h"

// The code of OpenSSL's generator refers to this name.
DATA generator<>+0(SB)/8, $"ossl_pro"
DATA generator<>+8(SB)/8, $"v_drbg_g"
DATA generator<>+16(SB)/8, $"enerate\x00"
GLOBL generator<>(SB), RODATA, $24

#define SYS_getpid 39

// The C library's.
TEXT getpid<>(SB), NOSPLIT|NOFRAME, $0-0
	MOVL $SYS_getpid, AX
	SYSCALL
	RET

// func forkID() uint64
TEXT ·forkID(SB), NOSPLIT, $8-8
	CALL getpid<>(SB)
	LEAQ generator<>(SB), SI
	MOVQ AX, ret+0(FP)
	RET
