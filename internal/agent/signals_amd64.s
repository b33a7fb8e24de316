#include "textflag.h"

// The handler of caught signals, in C's calling convention: DI is the signal, SI the siginfo. It writes signal, si_code and si_pid to a
// pipe and knows nothing of Go, which must not notice.
TEXT ·caught(SB),NOSPLIT|NOFRAME|TOPFRAME,$0
	SUBQ	$24, SP
	MOVL	DI, 0(SP)
	MOVL	8(SI), AX
	MOVL	AX, 4(SP)
	MOVL	16(SI), AX
	MOVL	AX, 8(SP)
	MOVL	·caughtPipe(SB), DI
	MOVQ	SP, SI
	MOVL	$12, DX
	MOVL	$1, AX		// write
	SYSCALL
	ADDQ	$24, SP
	RET

TEXT ·sigreturn(SB),NOSPLIT|NOFRAME|TOPFRAME,$0
	MOVL	$15, AX		// rt_sigreturn
	SYSCALL
	INT	$3

// func handlerPCs() (handler, restorer uintptr)
TEXT ·handlerPCs(SB),NOSPLIT,$0-16
	LEAQ	·caught(SB), AX
	MOVQ	AX, handler+0(FP)
	LEAQ	·sigreturn(SB), AX
	MOVQ	AX, restorer+8(FP)
	RET
