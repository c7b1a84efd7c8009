#include "textflag.h"

// The code of OpenSSL's generator refers to this name.
DATA generator<>+0(SB)/8, $"ossl_pro"
DATA generator<>+8(SB)/8, $"v_drbg_g"
DATA generator<>+16(SB)/8, $"enerate\x00"
GLOBL generator<>(SB), RODATA, $24

#define SYS_getpid 172

// The C library's.
TEXT getpid<>(SB), NOSPLIT|NOFRAME, $0-0
	MOVD $SYS_getpid, R8
	SVC
	RET

// func forkID() uint64
TEXT ·forkID(SB), NOSPLIT, $16-8
	BL   getpid<>(SB)
	MOVD $generator<>(SB), R1
	MOVD R0, ret+0(FP)
	RET
