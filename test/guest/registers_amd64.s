#include "textflag.h"

// The fields of an exchange.
#define request 0
#define reply 4
#define op 8
#define text 12

#define SYS_futex 202

// func holdInRegisters(shared *exchange, avx bool)
TEXT ·holdInRegisters(SB), NOSPLIT, $0-9
	MOVQ shared+0(FP), BX
	MOVBLZX avx+8(FP), R14
	XORL R12, R12 // the last request
	PXOR X8, X8
	PXOR X9, X9
	PXOR X10, X10
	PXOR X11, X11

wait:
	MOVL request(BX), R13
	CMPL R13, R12
	JNE  asked
	LEAQ request(BX), DI
	MOVL $0, SI // wait
	MOVL R12, DX
	XORL R10, R10
	XORL R8, R8
	XORL R9, R9
	MOVL $SYS_futex, AX
	SYSCALL
	JMP  wait

asked:
	MOVL R13, R12
	CMPL op(BX), $1 // set
	JNE  get
	MOVOU (text+0)(BX), X8
	MOVOU (text+16)(BX), X9
	MOVOU (text+32)(BX), X10
	TESTL R14, R14
	JNE  setlong
	MOVOU (text+48)(BX), X11
	JMP  done

setlong:
	VMOVDQU (text+48)(BX), Y11
	JMP  done

get:
	MOVOU X8, (text+0)(BX)
	MOVOU X9, (text+16)(BX)
	MOVOU X10, (text+32)(BX)
	TESTL R14, R14
	JNE  getlong
	MOVOU X11, (text+48)(BX)
	JMP  done

getlong:
	VMOVDQU Y11, (text+48)(BX)

done:
	MOVL R12, reply(BX)
	LEAQ reply(BX), DI
	MOVL $1, SI // wake
	MOVL $1, DX
	MOVL $SYS_futex, AX
	SYSCALL
	JMP  wait
