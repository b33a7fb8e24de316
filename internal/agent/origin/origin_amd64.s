#include "textflag.h"

// System calls of x86-64 Linux, and F_GETFD, RLIMIT_NOFILE, SIG_IGN, EBADF.
#define SYS_rt_sigaction 13
#define SYS_rt_sigprocmask 14
#define SYS_fcntl 72
#define SYS_prlimit64 302

// The kernel enters here (linker flag -E ripstop_entry): SP points to argc. There is no Go yet: no stack checks, no TLS. The memory
// below SP is free, for no signal handler is installed.
TEXT ripstop_entry(SB),NOSPLIT|NOFRAME|TOPFRAME,$0
	MOVQ	SP, ·stack(SB)

	MOVQ	$1, BX
signals:
	MOVQ	$SYS_rt_sigaction, AX
	MOVQ	BX, DI
	XORL	SI, SI
	LEAQ	-64(SP), DX
	MOVQ	$8, R10
	MOVQ	$0, -64(SP)
	SYSCALL
	CMPQ	-64(SP), $1	// sa_handler == SIG_IGN
	JNE	next
	LEAQ	-1(BX), CX
	MOVQ	$1, AX
	SHLQ	CX, AX
	ORQ	AX, ·ignored(SB)
next:
	INCQ	BX
	CMPQ	BX, $65
	JNE	signals

	MOVQ	$SYS_rt_sigprocmask, AX
	XORL	DI, DI
	XORL	SI, SI
	LEAQ	·mask(SB), DX
	MOVQ	$8, R10
	SYSCALL

	XORL	BX, BX
descriptors:
	MOVQ	$SYS_fcntl, AX
	MOVQ	BX, DI
	MOVQ	$1, SI		// F_GETFD
	XORL	DX, DX
	SYSCALL
	CMPQ	AX, $-9		// EBADF
	JNE	open
	MOVQ	BX, CX
	MOVQ	$1, AX
	SHLQ	CX, AX
	ORQ	AX, ·closed(SB)
open:
	INCQ	BX
	CMPQ	BX, $3
	JNE	descriptors

	XORL	DI, DI
	MOVQ	$7, SI		// RLIMIT_NOFILE
	XORL	DX, DX
	LEAQ	·nofile(SB), R10
	MOVQ	$SYS_prlimit64, AX
	SYSCALL

	MOVQ	$1, ·entered(SB)
	XORL	DX, DX		// what the ABI passes in RDX at entry of a static program
	JMP	_rt0_amd64_linux(SB)

// func readNofile()
TEXT ·readNofile(SB),NOSPLIT,$0
	XORL	DI, DI
	MOVQ	$7, SI
	XORL	DX, DX
	LEAQ	·nofile(SB), R10
	MOVQ	$SYS_prlimit64, AX
	SYSCALL
	RET
