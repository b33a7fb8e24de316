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

// func cloneSentinel() (pid int)
//
// The child runs on the parent's stack pointer and must not touch the stack; it has a copy of the table of descriptors, in which it
// keeps only its two pipes, as 0 and 1.
TEXT ·cloneSentinel(SB),NOSPLIT,$0-8
	MOVL	$56, AX		// clone
	MOVL	$0x100, DI	// CLONE_VM; no signal at its end: nobody but wait with __WALL sees it
	XORL	SI, SI
	XORL	DX, DX
	XORL	R10, R10
	XORL	R8, R8
	SYSCALL
	TESTQ	AX, AX
	JZ	child
	MOVQ	AX, pid+0(FP)
	RET
child:
	MOVL	$33, AX		// dup2
	MOVL	·sentinelPipes(SB), DI
	XORL	SI, SI
	SYSCALL
	MOVL	$33, AX
	MOVL	·sentinelPipes+4(SB), DI
	MOVL	$1, SI
	SYSCALL
	MOVL	$436, AX	// close_range
	MOVL	$2, DI
	MOVL	$-1, SI
	XORL	DX, DX
	SYSCALL
	TESTQ	AX, AX
	JNZ	exit		// it would hold open what others wait to see closed
	MOVL	$157, AX	// prctl
	MOVL	$15, DI		// PR_SET_NAME
	LEAQ	sentinelName<>(SB), SI
	SYSCALL
asked:
	XORL	AX, AX		// read
	XORL	DI, DI
	LEAQ	sentinelInfo<>(SB), SI
	MOVL	$1, DX
	SYSCALL
	CMPQ	AX, $1
	JNE	exit
next:
	MOVL	$128, AX	// rt_sigtimedwait
	LEAQ	sentinelSet<>(SB), DI
	LEAQ	sentinelInfo<>(SB), SI
	LEAQ	sentinelNone<>(SB), DX
	MOVL	$8, R10
	SYSCALL
	LEAQ	sentinelInfo<>(SB), SI
	MOVQ	AX, R12
	TESTQ	AX, AX
	JGT	tell
	LEAQ	sentinelNone<>(SB), SI
tell:
	MOVL	$1, AX		// write
	MOVL	$1, DI
	MOVL	$128, DX
	SYSCALL
	CMPQ	AX, $128
	JNE	exit
	TESTQ	R12, R12
	JGT	next
	JMP	asked
exit:
	MOVL	$231, AX	// exit_group
	XORL	DI, DI
	SYSCALL
	INT	$3

DATA sentinelSet<>+0(SB)/8, $0xffffffffffffffff
GLOBL sentinelSet<>(SB), RODATA|NOPTR, $8
DATA sentinelName<>+0(SB)/8, $"ripstop-"
DATA sentinelName<>+8(SB)/8, $"signals\000"
GLOBL sentinelName<>(SB), RODATA|NOPTR, $16
GLOBL sentinelNone<>(SB), NOPTR, $128
GLOBL sentinelInfo<>(SB), NOPTR, $128
