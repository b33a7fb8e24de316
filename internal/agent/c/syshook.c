/* syshook.c: what system-call sites of libc jump to. Sees number and arguments before, and the result after, keeps every register and the flags as the kernel
 * would, and makes the call itself by a `syscall` instruction that the kernel may restart (SA_RESTART sets RIP back onto it).
 *
 * Ground rules: no vector registers; the stack only below the red zone; nothing is saved anywhere but in the frame, so that a handler that interrupts us may come
 * here too, and may leave by longjmp. The frame's CFI says that our caller is the site, with all its registers: unwinding passes (cancellation), and the
 * call is made with rsp - RS_CALL_FRAME, which no system call looks at but those that are left to the trampoline. */
#include "calls.h"
#include "core.h"
#include "dispatch.h"
#include "guardsignal.h"
#include "guardsync.h"
#include "guardsys.h"
#include <errno.h>

#define STR(x) #x
#define XSTR(x) STR(x)

/* Offsets in struct rs_call. */
#define START "0"
#define NUMBER "8"
#define AT "16"
#define RDX "24"
#define FLAGS "32"
#define ROW "36"
#define RESULT "40"
#define NEXT "48"
#define R11 "56"
#define SEE "64"
#define RDI "72"
#define RSI "80"
#define R10 "88"
#define R8 "96"
#define R9 "104"
#define ARG0 "112"
#define ARG1 "120"
#define ARG2 "128"
#define ARG3 "136"
#define ARG4 "144"
#define ARG5 "152"
#define TICKS "160"
#define OFFSET(o, member) _Static_assert(offsetof(struct rs_call, member) == o, #member)
OFFSET(0, start); OFFSET(8, number); OFFSET(16, at); OFFSET(24, rdx); OFFSET(32, flags); OFFSET(36, row); OFFSET(40, result); OFFSET(48, next); OFFSET(56, r11);
OFFSET(64, see); OFFSET(72, rdi); OFFSET(80, rsi); OFFSET(88, r10); OFFSET(96, r8); OFFSET(104, r9); OFFSET(112, arg); OFFSET(160, ticks);
#define FRAME XSTR(RS_CALL_FRAME)

uint8_t rs_call_class[RS_CALL_ROWS];

/* CF and the like as before: al gave OF (127 + 1 overflows), ah the others. Changes rax. */
#define RESTORE_FLAGS "	movzwl " FLAGS "(%rsp), %eax\n	addb $127, %al\n	sahf\n"
#define READ_TSC "	rdtsc\n	shlq $32, %rdx\n	orq %rdx, %rax\n"
/* What our functions leave below rsp would be what later functions find in variables that they do not set, and not the same in a recording and in its re-execution. Changes rcx, rdi, r9, r10, r11; with DF clear. */
#define CLEAR_BYTES 1536
#define CLEAR "	cmpl $0, rs_guard_on(%rip)\n	je 19f\n	movq %rax, %r11\n	xorl %eax, %eax\n	" RS_BELOW_("%", XSTR(CLEAR_BYTES), "%rdi", "%r9", "%r10") "rep stosq\n	movq %r11, %rax\n19:\n"
/* The same behind the vdso, of which a recorded clock touches no more; a slow one keeps what is below that. */
#define CLEAR_VDSO "	movq %rax, %r11\n	xorl %eax, %eax\n	" RS_BELOW_("%", XSTR(RS_VDSO_BELOW), "%rdi", "%r9", "%r10") "cld\n	rep stosq\n	movq %r11, %rax\n"
/* The same of what rs_hook_c left: where it was called from, and the flags. */
#define FORGET_C "	movq $0, -8(%rsp)\n	movq $0, -24(%rsp)\n"
/* What is left of the frame, below rsp again: registers that the call does not take have what functions before it left there. Keeps the flags. */
#define FORGET(o) "	movq $0, " o " - " FRAME "(%rsp)\n"
#define FORGET_FRAME FORGET(RDX) FORGET(R11) FORGET(RDI) FORGET(RSI) FORGET(R10) FORGET(R8) FORGET(R9) FORGET(ARG0) FORGET(ARG1) FORGET(ARG2) FORGET(ARG3) FORGET(ARG4) FORGET(ARG5)
#define CALL_C(f) "	leaq " #f "(%rip), %r11\n	call rs_hook_c\n"

__asm__(".text\n.p2align 6\n.globl rs_syscall_hook\n.hidden rs_syscall_hook\n.type rs_syscall_hook, @function\n"
	"rs_syscall_hook:\n"
	".cfi_startproc\n"
	".cfi_def_cfa %rsp, 0\n"
	".cfi_register %rip, %rcx\n"
	"	leaq -" FRAME "(%rsp), %rsp\n"
	".cfi_def_cfa_offset " FRAME "\n"
	"rs_hook_framed:\n"
	/* rcx + 2 is `lea next(%rip), %rcx`, seven bytes, of which the last four are the distance. */
	"	movslq 5(%rcx), %r11\n"
	"	leaq 9(%rcx,%r11), %r11\n"
	"	movq %r11, " NEXT "(%rsp)\n"
	".cfi_offset %rip, " NEXT " - " FRAME "\n"
	"	movq %rcx, " AT "(%rsp)\n"
	"	movq %rdx, " RDX "(%rsp)\n"
	"	movq $0, " SEE "(%rsp)\n"
	"	movq %rax, " NUMBER "(%rsp)\n"
	"rs_hook_number:\n"
	"	lahf\n"
	"	seto %al\n"
	"	movw %ax, " FLAGS "(%rsp)\n"
	"rs_hook_flags:\n"
	"	movl " NUMBER "(%rsp), %ecx\n" /* the kernel looks at 32 bits */
	"	movl $" XSTR(RS_CALL_ROWS) " - 1, %edx\n"
	"	cmpl $" XSTR(RS_CALL_ROWS) " - 8, %ecx\n"
	"	cmovael %edx, %ecx\n"
	"	movl %ecx, " ROW "(%rsp)\n"
	"	leaq rs_call_class(%rip), %rdx\n"
	"	movzbl (%rdx,%rcx), %edx\n"
	"	cmpl $1, %edx\n"
	"	jne 5f\n"
	READ_TSC
	"	movq %rax, " START "(%rsp)\n"
	RESTORE_FLAGS
	"	movq " RDX "(%rsp), %rdx\n"
	"2:	movq " NUMBER "(%rsp), %rax\n"
	"	syscall\n"
	/* From here to rs_hook_unmade the call is made. */
	"rs_hook_made:\n"
	"	movq %r11, " R11 "(%rsp)\n"
	"	movq %rax, " RESULT "(%rsp)\n"
	"rs_hook_result:\n"
	"	cmpq $0, " SEE "(%rsp)\n"
	"	jne 8f\n"
	READ_TSC
	"	subq " START "(%rsp), %rax\n"
	"	movl " ROW "(%rsp), %ecx\n"
	"	cmpl $0, rs_active(%rip)\n"
	"	je 4f\n"
	"	movq rs_calls_tls@gottpoff(%rip), %rdx\n"
	"	movq %fs:(%rdx), %rdx\n"
	"	testq %rdx, %rdx\n"
	"	jz 4f\n"
	"	leaq (%rcx,%rcx,2), %rcx\n"
	"	leaq (%rdx,%rcx,8), %rcx\n"
	/* An error is -4095 to -1: only then this does not borrow. */
	"	cmpq $-4095, " RESULT "(%rsp)\n"
	"	cmc\n"
	"	adcq $0, 8(%rcx)\n"
	"	addq %rax, 16(%rcx)\n"
	"	incq (%rcx)\n"
	"3:\n"
	RESTORE_FLAGS
	"	movq " RDX "(%rsp), %rdx\n"
	"	movq " R11 "(%rsp), %r11\n"
	"	movq " RESULT "(%rsp), %rax\n"
	"	movq " AT "(%rsp), %rcx\n"
	".cfi_remember_state\n"
	"	leaq " FRAME "(%rsp), %rsp\n"
	".cfi_def_cfa_offset 0\n"
	".cfi_register %rip, %rcx\n"
	"rs_hook_left:\n"
	FORGET_FRAME
	"	leaq 2(%rcx), %rcx\n"
	"rs_hook_leaving:\n"
	"	jmp *%rcx\n"
	"rs_hook_gone:\n"
	".cfi_restore_state\n"
	"4:	movq %rax, " TICKS "(%rsp)\n"
	CALL_C(rs_calls_add)
	"	jmp 3b\n"
	/* A call that a stop interrupted was made again with another timeout, or the rest of its bytes. */
	"8:	movq " RDI "(%rsp), %rdi\n	movq " RSI "(%rsp), %rsi\n	movq " R10 "(%rsp), %r10\n	movq " R8 "(%rsp), %r8\n	movq " R9 "(%rsp), %r9\n"
	CALL_C(rs_call_after)
	"	testq %rax, %rax\n"
	"	jnz 7f\n"
	FORGET_C
	"	movq " RDI "(%rsp), %rdi\n	movq " RSI "(%rsp), %rsi\n	movq " R10 "(%rsp), %r10\n	movq " R8 "(%rsp), %r8\n	movq " R9 "(%rsp), %r9\n"
	"	jmp 3b\n"
	/* rs_call_before has made it, or what stands for it: r11 as the kernel would leave it. RFLAGS are in rdx. */
	"9:\n"
	FORGET_C
	"	andq $~0x8d5, %rdx\n"
	"	movzwl " FLAGS "(%rsp), %eax\n"
	"	movl %eax, %ecx\n"
	"	shrl $8, %eax\n"
	"	andl $0xd5, %eax\n"
	"	orq %rax, %rdx\n"
	"	andl $1, %ecx\n"
	"	shll $11, %ecx\n"
	"	orq %rcx, %rdx\n"
	"	movq %rdx, " R11 "(%rsp)\n"
	"	jmp 3b\n"
	"rs_hook_unmade:\n"
	/* Other classes, in edx. */
	"5:	cmpl $2, %edx\n"
	"	ja 7f\n"
	"	jb 6f\n"
	"	movq $0, " RESULT "(%rsp)\n"
	"	movq $0, " TICKS "(%rsp)\n"
	CALL_C(rs_calls_add)
	/* On to the trampoline's own call. */
	"6:\n"
	RESTORE_FLAGS
	"	movq " RDX "(%rsp), %rdx\n"
	"	movq " NUMBER "(%rsp), %rax\n"
	"	movq " AT "(%rsp), %rcx\n"
	".cfi_remember_state\n"
	"	leaq " FRAME "(%rsp), %rsp\n"
	".cfi_def_cfa_offset 0\n"
	".cfi_register %rip, %rcx\n"
	"rs_hook_passed:\n"
	"	jmp *%rcx\n"
	"rs_hook_pass_gone:\n"
	".cfi_restore_state\n"
	"7:	movq " RDX "(%rsp), %rdx\n"
	"	movq %rdi, " ARG0 "(%rsp)\n	movq %rsi, " ARG1 "(%rsp)\n	movq %rdx, " ARG2 "(%rsp)\n"
	"	movq %r10, " ARG3 "(%rsp)\n	movq %r8, " ARG4 "(%rsp)\n	movq %r9, " ARG5 "(%rsp)\n"
	CALL_C(rs_call_before)
	"	testq %rax, %rax\n"
	"	jz 9b\n"
	"	cmpl $2, %eax\n"
	"	je 6b\n"
	"	ja 10f\n"
	"	movq $1, " SEE "(%rsp)\n"
	"	movq " ARG0 "(%rsp), %rdi\n	movq " ARG1 "(%rsp), %rsi\n"
	"	movq " ARG3 "(%rsp), %r10\n	movq " ARG4 "(%rsp), %r8\n	movq " ARG5 "(%rsp), %r9\n"
	RESTORE_FLAGS
	"	movq " ARG2 "(%rsp), %rdx\n"
	"	jmp 2b\n"
	/* A thread: it has no stack but an empty one, and begins with nothing but arguments. */
	"10:	cmpl $4, %eax\n"
	"	je 12f\n"
	"	movq $1, " SEE "(%rsp)\n"
	"	movq " AT "(%rsp), %r9\n"
	RESTORE_FLAGS
	"	movq " RDX "(%rsp), %rdx\n"
	"	movq " NUMBER "(%rsp), %rax\n"
	"	syscall\n"
	"	testq %rax, %rax\n"
	"	jz 11f\n"
	"	jmp rs_hook_made\n"
	".cfi_remember_state\n"
	".cfi_undefined %rip\n"
	"11:	leaq 2(%r9), %rcx\n"
	"	xorl %ebx, %ebx\n	xorl %ebp, %ebp\n	xorl %r9d, %r9d\n	xorl %r12d, %r12d\n	xorl %r13d, %r13d\n	xorl %r14d, %r14d\n	xorl %r15d, %r15d\n"
	"	pushq $0x246\n	popfq\n	movl $0x246, %r11d\n"
	"	jmp *%rcx\n"
	".cfi_restore_state\n"
	/* A yield that is to see all of the program's registers. */
	"12:\n"
	CALL_C(rs_guard_yields)
	"	jmp 9b\n"
	".cfi_endproc\n"
	".globl rs_syscall_hook_end\n.hidden rs_syscall_hook_end\nrs_syscall_hook_end:\n"
	/* For ripstop's walks (unwind.Bridge), whose tables have no return address but at the frame's end. */
	".set rs_hook_bridge_frame, " FRAME "\n.set rs_hook_bridge_next, " NEXT "\n"
	".size rs_syscall_hook, .-rs_syscall_hook\n");

/* Calls the C function r11 with the frame, all but rax, rcx, rdx and r11 kept; rdx is RFLAGS. */
__asm__(".p2align 4\n.type rs_hook_c, @function\n"
	"rs_hook_c:\n"
	".cfi_startproc\n"
	"	movq %rdi, 8+" RDI "(%rsp)\n	movq %rsi, 8+" RSI "(%rsp)\n	movq %r10, 8+" R10 "(%rsp)\n	movq %r8, 8+" R8 "(%rsp)\n	movq %r9, 8+" R9 "(%rsp)\n"
	"rs_hook_c_saved:\n"
	"	leaq 8(%rsp), %rdi\n"
	/* The program's stack may be aligned to 8 bytes only; functions for general registers do not care, but for what they may one day call. */
	"	pushq %rbp\n"
	".cfi_adjust_cfa_offset 8\n"
	".cfi_rel_offset %rbp, 0\n"
	"	movq %rsp, %rbp\n"
	".cfi_def_cfa_register %rbp\n"
	"	pushfq\n"
	"	andq $-16, %rsp\n"
	"	cld\n"
	"	call *%r11\n"
	/* Not where the call is made now: behind it another of ours is called, which leaves as much. */
	"	cmpq $1, %rax\n	je 19f\n"
	CLEAR
	"	movq -8(%rbp), %rdx\n"
	"	leave\n"
	".cfi_def_cfa %rsp, 8\n"
	".cfi_restore %rbp\n"
	/* Of the flags the caller gives back those of arithmetic. */
	"	testl $0x400, %edx\n	jz 20f\n	std\n20:\n"
	"	movq 8+" RDI "(%rsp), %rdi\n	movq 8+" RSI "(%rsp), %rsi\n	movq 8+" R10 "(%rsp), %r10\n	movq 8+" R8 "(%rsp), %r8\n	movq 8+" R9 "(%rsp), %r9\n"
	"rs_hook_c_loaded:\n"
	"	ret\n"
	".cfi_endproc\n"
	"rs_hook_c_end:\n"
	".size rs_hook_c, .-rs_hook_c\n");

/* At the first instruction of a function of the vdso: r10, r11, rax and the flags are the callee's to change. */
__asm__(".p2align 4\n.globl rs_vdso_hook\n.hidden rs_vdso_hook\n.type rs_vdso_hook, @function\n"
	"rs_vdso_hook:\n"
	".cfi_startproc\n"
	".cfi_register %rip, %r11\n"
	".cfi_def_cfa %rsp, 0\n"
	"	cmpl $0, rs_guard_on(%rip)\n"
	"	jne 4f\n"
	"	cmpl $0, rs_active(%rip)\n"
	"	je 1f\n"
	"	movq rs_calls_tls@gottpoff(%rip), %rax\n"
	"	movq %fs:(%rax), %rax\n"
	"	testq %rax, %rax\n"
	"	jz 1f\n"
	"	incq (%rax,%r10)\n"
	"	jmp *%r11\n"
	"1:	movq rs_calls_shared(%rip), %rax\n"
	"	cmpl $0, rs_active(%rip)\n"
	"	jne 2f\n"
	"	leaq rs_calls_pending(%rip), %rax\n"
	"2:	lock incq (%rax,%r10)\n"
	"	jmp *%r11\n"
	/* A function of ours, which calls the vdso's. */
	"4:\n"
	".cfi_def_cfa %rsp, 8\n"
	".cfi_offset %rip, -8\n"
	"	subq $8, %rsp\n"
	".cfi_adjust_cfa_offset 8\n"
	"	pushq %r11\n"
	".cfi_adjust_cfa_offset 8\n"
	"	pushq %r10\n"
	".cfi_adjust_cfa_offset 8\n"
	"	call rs_guard_vdso\n"
	"	addq $24, %rsp\n"
	".cfi_adjust_cfa_offset -24\n"
	CLEAR_VDSO
	RS_NO_REGISTERS_("%")
	"	ret\n"
	".cfi_endproc\n"
	"rs_vdso_hook_end:\n"
	".size rs_vdso_hook, .-rs_vdso_hook\n");

/* Of the stack pointer with which the vdso was called 248 bytes are left for what is behind rs_vdso_hook's three words, then what is below is kept, as far as functions of ours come; where there is no room for it yet it is cleared. */
#define KEPT_FRAME 216
__asm__(".p2align 4\n.globl rs_guard_vdso_slowly\n.hidden rs_guard_vdso_slowly\n.type rs_guard_vdso_slowly, @function\n"
	"rs_guard_vdso_slowly:\n"
	".cfi_startproc\n"
	"	subq $" XSTR(KEPT_FRAME) ", %rsp\n"
	".cfi_adjust_cfa_offset " XSTR(KEPT_FRAME) "\n"
	"	movq %rdi, 24(%rsp)\n	movq %rsi, 32(%rsp)\n	movq %rcx, 40(%rsp)\n"
	"	movq 8+" XSTR(KEPT_FRAME) "(%rsp), %rax\n	movq %rax, (%rsp)\n"
	"	movq 16+" XSTR(KEPT_FRAME) "(%rsp), %rax\n	movq %rax, 8(%rsp)\n"
	"	leaq 40+" XSTR(KEPT_FRAME) "(%rsp), %rax\n	movq %rax, 16(%rsp)\n"
	"	movq rs_guard_below@gottpoff(%rip), %rax\n	movq %fs:(%rax), %rax\n	movq %rax, 48(%rsp)\n"
	"	testq %rax, %rax\n	jz 1f\n"
	"	movq %rax, %rdi\n	" RS_BELOW_("%", XSTR(RS_GUARD_BELOW_ROOM), "%rsi", "%r10", "%r11") "cld\n	rep movsq\n"
	"1:	movq 24(%rsp), %rdi\n	movq 32(%rsp), %rsi\n	movq 40(%rsp), %rcx\n"
	"	call rs_guard_vdso_kept\n"
	"	" RS_BELOW_("%", XSTR(RS_GUARD_BELOW_ROOM), "%rdi", "%r10", "%r11") "movq 48(%rsp), %rsi\n	cld\n"
	"	testq %rsi, %rsi\n	jz 2f\n"
	"	rep movsq\n"
	"3:	addq $" XSTR(KEPT_FRAME) ", %rsp\n"
	".cfi_adjust_cfa_offset -" XSTR(KEPT_FRAME) "\n"
	"	ret\n"
	".cfi_adjust_cfa_offset " XSTR(KEPT_FRAME) "\n"
	"2:	movq %rax, %rsi\n	xorl %eax, %eax\n	rep stosq\n	movq %rsi, %rax\n	jmp 3b\n"
	".cfi_endproc\n"
	".size rs_guard_vdso_slowly, .-rs_guard_vdso_slowly\n");
_Static_assert(KEPT_FRAME + 32 <= RS_VDSO_BELOW && KEPT_FRAME % 16 == 8, "what is kept is below what is cleared");

#define MEASURED 512
#define PATTERN "	movabsq $0x5b1c7e93a2d46f08, %rax\n"
__asm__(".p2align 4\n.globl rs_vdso_measure\n.hidden rs_vdso_measure\n.type rs_vdso_measure, @function\n"
	"rs_vdso_measure:\n"
	".cfi_startproc\n"
	"	pushq %rbx\n"
	".cfi_adjust_cfa_offset 8\n"
	".cfi_rel_offset %rbx, 0\n"
	"	movq %rcx, %rbx\n	movq %rdi, %r8\n"
	"	leaq -" XSTR(MEASURED) "(%rsp), %rdi\n	movl $" XSTR(MEASURED) " / 8, %ecx\n" PATTERN "	cld\n	rep stosq\n"
	"	movq %r8, %rdi\n"
	"	call *%rdx\n"
	"	movq %rax, %r8\n"
	"	leaq -" XSTR(MEASURED) "(%rsp), %rdi\n	movl $" XSTR(MEASURED) " / 8, %ecx\n" PATTERN "	repe scasq\n"
	/* There is always one that is another: where it was called from. */
	"	leaq 8(,%rcx,8), %rcx\n"
	"	movq %rcx, (%rbx)\n"
	"	movq %r8, %rax\n"
	"	popq %rbx\n"
	".cfi_adjust_cfa_offset -8\n"
	".cfi_restore %rbx\n"
	"	ret\n"
	".cfi_endproc\n"
	".size rs_vdso_measure, .-rs_vdso_measure\n");

long rs_hooked_sys6(long n, long a, long b, long c, long d, long e, long f)
{
	if (rs_dispatch_on)
		return rs_dispatch_program6(n, a, b, c, d, e, f);
	long r;
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	register long r9 __asm__("r9") = f;
	__asm__ volatile("	leaq 1f(%%rip), %%rcx\n	jmp rs_syscall_hook\n1:	syscall\n	leaq 2f(%%rip), %%rcx\n2:\n"
		: "=a"(r) : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory", "cc");
	return r;
}

#define LABEL(name) extern char name[] __attribute__((visibility("hidden")))
LABEL(rs_hook_framed); LABEL(rs_hook_number); LABEL(rs_hook_flags); LABEL(rs_hook_made); LABEL(rs_hook_result); LABEL(rs_hook_left); LABEL(rs_hook_leaving);
LABEL(rs_hook_gone); LABEL(rs_vdso_hook_end); LABEL(rs_hook_unmade); LABEL(rs_hook_passed); LABEL(rs_hook_pass_gone);
LABEL(rs_hook_c); LABEL(rs_hook_c_saved); LABEL(rs_hook_c_loaded); LABEL(rs_hook_c_end);

/* --- seen from outside -------------------------------------------------------------------------------------------------------------------- */

static bool within(uintptr_t pc, const char *lo, const char *hi) { return pc - (uintptr_t)lo < (uintptr_t)(hi - lo); }

static uintptr_t next_of(uintptr_t at)
{
	struct __attribute__((packed)) code { char syscall[2], lea[3]; int32_t distance; };
	return at + 9 + (uintptr_t)(intptr_t)((const struct code *)at)->distance;
}

uint64_t rs_hook_next(const greg_t *g) { return (uintptr_t)g[REG_RIP] == (uintptr_t)rs_syscall_hook ? (uint64_t)g[REG_RCX] + 2 : 0; }

uint64_t rs_hook_exit(void) { return (uintptr_t)rs_hook_leaving; }

bool rs_hook_frame(uintptr_t *pc, uintptr_t *rsp)
{
	if (!within(*pc, rs_hook_number, rs_syscall_hook_end) || within(*pc, rs_hook_left, rs_hook_gone) || within(*pc, rs_hook_passed, rs_hook_pass_gone))
		return false;
	const struct rs_call *c = (const struct rs_call *)*rsp;
	*pc = c->next;
	*rsp += RS_CALL_FRAME;
	return true;
}

/* Where there is a frame: what the program would see. */
static void view(greg_t *g, const struct rs_call *c, bool made, bool saved, bool flags)
{
	enum { AH = 0xd5, OF = 0x800 };
	uintptr_t pc = (uintptr_t)g[REG_RIP];
	if (!made)
		g[REG_RAX] = (greg_t)c->number;
	else if (!within(pc, rs_hook_made, rs_hook_result))
		g[REG_RAX] = c->result;
	g[REG_RDX] = (greg_t)c->rdx;
	if (saved) {
		g[REG_RDI] = (greg_t)c->rdi;
		g[REG_RSI] = (greg_t)c->rsi;
		g[REG_R10] = (greg_t)c->r10;
		g[REG_R8] = (greg_t)c->r8;
		g[REG_R9] = (greg_t)c->r9;
	}
	if (flags)
		g[REG_EFL] = (g[REG_EFL] & ~(greg_t)(AH | OF)) | (c->flags >> 8 & AH) | (c->flags & 1 ? OF : 0);
	if (made) {
		g[REG_RCX] = (greg_t)c->next;
		g[REG_R11] = g[REG_EFL]; /* as the kernel leaves it */
	}
	g[REG_RSP] = (greg_t)(uintptr_t)c + RS_CALL_FRAME;
	g[REG_RIP] = (greg_t)(made ? c->next : c->next - 2);
}

static bool show(greg_t *g)
{
	uintptr_t pc = (uintptr_t)g[REG_RIP], sp = (uintptr_t)g[REG_RSP];
	if (within(pc, rs_hook_c, rs_hook_c_end)) {
		/* rbp is pushed for some of it: then we are as good as in a C function of the agent. */
		if (!within(pc, rs_hook_c, rs_hook_c_saved) && !within(pc, rs_hook_c_loaded, rs_hook_c_end))
			return false;
		uintptr_t from = *(const uintptr_t *)sp;
		const struct rs_call *c = (const struct rs_call *)(sp + 8);
		view(g, c, within(from, rs_hook_made, rs_hook_unmade), c->see, true);
		return true;
	}
	if (!within(pc, rs_syscall_hook, rs_syscall_hook_end))
		return false;
	bool leaving = within(pc, rs_hook_left, rs_hook_gone), passed = within(pc, rs_hook_passed, rs_hook_pass_gone);
	if (leaving) {
		uintptr_t at = (uintptr_t)g[REG_RCX] - (pc == (uintptr_t)rs_hook_leaving ? 2 : 0);
		g[REG_RCX] = g[REG_RIP] = (greg_t)next_of(at);
	} else if (passed || within(pc, rs_syscall_hook, rs_hook_number)) {
		if (within(pc, rs_hook_framed, rs_hook_number))
			g[REG_RSP] += RS_CALL_FRAME;
		g[REG_RIP] = (greg_t)next_of((uintptr_t)g[REG_RCX]) - 2;
	} else {
		const struct rs_call *c = (const struct rs_call *)sp;
		view(g, c, within(pc, rs_hook_made, rs_hook_unmade), c->see, !within(pc, rs_hook_number, rs_hook_flags));
	}
	return true;
}

#define GREGS (NGREG * sizeof(greg_t))

bool rs_hook_view(greg_t *g, greg_t *real, greg_t *shown)
{
	uintptr_t pc = (uintptr_t)g[REG_RIP];
	if (RS_LIKELY(!within(pc, rs_syscall_hook, rs_hook_c_end)))
		return false;
	rs_os_copy(real, g, GREGS);
	if (!show(g))
		return false;
	rs_os_copy(shown, g, GREGS);
	return true;
}

void rs_hook_back(greg_t *g, const greg_t *real, const greg_t *shown)
{
	/* A handler of SIGSYS answers in the kernel's place: what is done behind a call is still to be done. */
	const greg_t result = g[REG_RAX];
	const bool answered = result != shown[REG_RAX];
	if (answered && !within((uintptr_t)real[REG_RIP], rs_hook_made, rs_hook_result))
		return;
	g[REG_RAX] = shown[REG_RAX];
	if (rs_os_equal(g, shown, GREGS))
		rs_os_copy(g, real, GREGS);
	if (answered)
		g[REG_RAX] = result;
}

bool rs_hook_skip(greg_t *g)
{
	uintptr_t pc = (uintptr_t)g[REG_RIP];
	const struct rs_call *c = (const struct rs_call *)g[REG_RSP];
	if (pc + 2 != (uintptr_t)rs_hook_made || c->see != 1 || (c->guard_state != RS_GUARD_CALL_NOTED && c->guard_state != RS_GUARD_CALL_WAIT))
		return false;
	struct rs_guard_log *t = rs_guard_self();
	bool handles = t && rs_guard_signal_next(t);
	if (c->guard_state == RS_GUARD_CALL_WAIT && !handles && (c->arg[3] || !rs_guard_waits_for_ours(c)))
		return false;
	g[REG_RIP] = (greg_t)(uintptr_t)rs_hook_made;
	g[REG_RAX] = handles ? -EINTR : 0;
	return true;
}

bool rs_hook_at_call(uintptr_t pc) { return pc + 2 == (uintptr_t)rs_hook_made || pc == (uintptr_t)rs_hook_made; }

bool rs_hook_has(uintptr_t pc) { return within(pc, rs_syscall_hook, rs_hook_c_end); }

bool rs_hook_of_vdso(uintptr_t pc) { return within(pc, rs_vdso_hook, rs_vdso_hook_end); }
