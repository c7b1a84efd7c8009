#include "textflag.h"

// func signed(pointer uintptr) (a, b uintptr)
TEXT ·signed(SB), NOSPLIT, $0-24
	MOVD pointer+0(FP), R17
	MOVD $99, R16
	WORD $0xd503211f // PACIA1716
	MOVD R17, a+8(FP)
	MOVD pointer+0(FP), R17
	WORD $0xd503215f // PACIB1716
	MOVD R17, b+16(FP)
	RET
