#include "textflag.h"

// System calls of x86-64 Linux, and F_GETFD, RLIMIT_NOFILE, SIG_IGN, EBADF.
#define SYS_rt_sigaction 13
#define SYS_rt_sigprocmask 14
#define SYS_fcntl 72
#define SYS_prlimit64 302
#define SYS_write 1
#define SYS_clone 56
#define SYS_wait4 61
#define SYS_exit_group 231
#define RLIMIT_DATA 2
#define RLIMIT_NPROC 6
#define RLIMIT_AS 9

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

	// Limits: what they are, and then no soft one for us, and no hard one if we may.
	LEAQ	·limits(SB), R12
raise:
	MOVQ	$SYS_prlimit64, AX
	XORL	DI, DI
	MOVQ	0(R12), SI
	XORL	DX, DX
	LEAQ	8(R12), R10
	SYSCALL
	MOVQ	$-1, -16(SP)	// RLIM_INFINITY
	MOVQ	$-1, -8(SP)
	MOVQ	$SYS_prlimit64, AX
	LEAQ	-16(SP), DX
	XORL	R10, R10
	SYSCALL
	TESTQ	AX, AX
	JZ	raised
	MOVQ	16(R12), BX
	MOVQ	BX, -16(SP)
	MOVQ	BX, -8(SP)
	MOVQ	$SYS_prlimit64, AX
	SYSCALL
raised:
	MOVQ	-16(SP), BX
	LEAQ	24(R12), R12

	// Too little for Go, which would end with words and a status of its own.
	CMPQ	SI, $RLIMIT_AS
	JNE	notAS
	LEAQ	tooLowAS<>(SB), R13
	MOVQ	$921600000, AX	// 900000 KiB; its arenas' summaries alone take some 600 MB
	CMPQ	BX, AX
	JCS	refuse
notAS:
	CMPQ	SI, $RLIMIT_DATA
	JNE	notData
	LEAQ	tooLowData<>(SB), R13
	CMPQ	BX, $204800000	// 200000 KiB; it takes 64 MiB at a time
	JCS	refuse
notData:
	CMPQ	SI, $RLIMIT_NPROC
	JNE	raise		// the last one

	// How many more there may be is not said anywhere. Where the limit is low so many processes are made, each by the one before it, which the
	// kernel holds until it has ended; nobody touches the stack that they all share.
	CMPQ	BX, $1000
	JHI	enough
	MOVQ	$24, R12
another:
	MOVQ	$SYS_clone, AX
	MOVQ	$0x4100, DI	// CLONE_VM, CLONE_VFORK; no signal at its end
	XORL	SI, SI
	XORL	DX, DX
	XORL	R10, R10
	XORL	R8, R8
	SYSCALL
	TESTQ	AX, AX
	JGT	ended
	JLT	none
	DECQ	R12
	JNZ	another
	JMP	exit
none:
	MOVQ	AX, probed<>(SB)
	JMP	back
ended:
	MOVQ	AX, DI
	MOVQ	$SYS_wait4, AX
	XORL	SI, SI
	MOVQ	$0x40000000, DX	// __WALL
	XORL	R10, R10
	SYSCALL
back:
	CMPQ	R12, $24
	JE	first
exit:
	XORL	DI, DI
	MOVQ	$SYS_exit_group, AX
	SYSCALL
first:
	LEAQ	tooLowNproc<>(SB), R13
	CMPQ	probed<>(SB), $-11	// EAGAIN: anything else is not the limit
	JE	refuse
enough:

	MOVQ	$1, ·entered(SB)
	XORL	DX, DX		// what the ABI passes in RDX at entry of a static program
	JMP	_rt0_amd64_linux(SB)

refuse:
	MOVQ	R13, SI
	XORL	DX, DX
length:
	CMPB	(SI)(DX*1), $0
	JEQ	say
	INCQ	DX
	JMP	length
say:
	MOVQ	$SYS_write, AX
	MOVQ	$2, DI
	SYSCALL
	MOVQ	$SYS_exit_group, AX
	MOVQ	$125, DI	// agent.ExitOurs
	SYSCALL
	INT	$3

// func readNofile()
TEXT ·readNofile(SB),NOSPLIT,$0
	XORL	DI, DI
	MOVQ	$7, SI
	XORL	DX, DX
	LEAQ	·nofile(SB), R10
	MOVQ	$SYS_prlimit64, AX
	SYSCALL
	RET

DATA tooLowAS<>+0(SB)/8, $"ripstop:"
DATA tooLowAS<>+8(SB)/8, $" the lim"
DATA tooLowAS<>+16(SB)/8, $"it on ad"
DATA tooLowAS<>+24(SB)/8, $"dress sp"
DATA tooLowAS<>+32(SB)/8, $"ace is t"
DATA tooLowAS<>+40(SB)/8, $"oo low ("
DATA tooLowAS<>+48(SB)/8, $"ulimit -"
DATA tooLowAS<>+56(SB)/8, $"v): rips"
DATA tooLowAS<>+64(SB)/8, $"top need"
DATA tooLowAS<>+72(SB)/8, $"s 900000"
DATA tooLowAS<>+80(SB)/8, $"\n\000\000\000\000\000\000\000"
GLOBL tooLowAS<>(SB), RODATA|NOPTR, $88

DATA tooLowData<>+0(SB)/8, $"ripstop:"
DATA tooLowData<>+8(SB)/8, $" the lim"
DATA tooLowData<>+16(SB)/8, $"it on me"
DATA tooLowData<>+24(SB)/8, $"mory is "
DATA tooLowData<>+32(SB)/8, $"too low "
DATA tooLowData<>+40(SB)/8, $"(ulimit "
DATA tooLowData<>+48(SB)/8, $"-d): rip"
DATA tooLowData<>+56(SB)/8, $"stop nee"
DATA tooLowData<>+64(SB)/8, $"ds 20000"
DATA tooLowData<>+72(SB)/8, $"0\n\000\000\000\000\000\000"
GLOBL tooLowData<>(SB), RODATA|NOPTR, $80

DATA tooLowNproc<>+0(SB)/8, $"ripstop:"
DATA tooLowNproc<>+8(SB)/8, $" the lim"
DATA tooLowNproc<>+16(SB)/8, $"it on pr"
DATA tooLowNproc<>+24(SB)/8, $"ocesses "
DATA tooLowNproc<>+32(SB)/8, $"and thre"
DATA tooLowNproc<>+40(SB)/8, $"ads is r"
DATA tooLowNproc<>+48(SB)/8, $"eached ("
DATA tooLowNproc<>+56(SB)/8, $"ulimit -"
DATA tooLowNproc<>+64(SB)/8, $"u): rips"
DATA tooLowNproc<>+72(SB)/8, $"top need"
DATA tooLowNproc<>+80(SB)/8, $"s room f"
DATA tooLowNproc<>+88(SB)/8, $"or 24 mo"
DATA tooLowNproc<>+96(SB)/8, $"re\n\000\000\000\000\000"
GLOBL tooLowNproc<>(SB), RODATA|NOPTR, $104

GLOBL probed<>(SB), NOPTR, $8
