#include "textflag.h"

// func identity() (midr, isar0 uint64)
TEXT ·identity(SB), NOSPLIT, $0-16
	MRS  MIDR_EL1, R0
	MOVD R0, midr+0(FP)
	MRS  ID_AA64ISAR0_EL1, R0
	MOVD R0, isar0+8(FP)
	RET
