/* tell.c: what a recipe's Tell calls before a memory access, with its address in rdi (internal/recipe). What the thread has told already since its last other event is found here, in
 * some twenty instructions; all else goes to access.c.
 *
 * Ground rules: no vector registers, nothing below the stack pointer but the 128 bytes that the kernel leaves alone; every register and flag is on return as it was. Until access.c
 * is called nothing has happened: a thread that is interrupted before is shown at the site and starts over there. */
#include "access.h"
#include "patch.h"

/* From rsp: where the recipe's mark lies, the program's rdi (recipe.tellDepth above which is the program's rsp); and what is saved. Below that, for access.c, a context of which these four are the
 * end: 192 + 32 bytes. */
#define FRAME "224"
_Static_assert(sizeof(struct rs_access_context) == 192 && offsetof(struct rs_access_context, flags) == 128 && offsetof(struct rs_access_context, site) == 136 &&
	offsetof(struct rs_access_context, addr) == 152 && offsetof(struct rs_access_context, outer) == 176, "the offsets below");

/* Where the assembler finds a thread's memory; the rest are numbers. */
__attribute__((used)) static void offsets(void)
{
	__asm__ volatile(".set rs_o_accesses, %c0" ::"i"(offsetof(struct rs_thread, accesses)));
}
_Static_assert(offsetof(struct rs_told_entry, key) == 0 && offsetof(struct rs_told_entry, watch) == 8 && offsetof(struct rs_told_entry, value) == 16 &&
	sizeof(struct rs_told_entry) == 32, "the offsets below");
_Static_assert(offsetof(struct rs_told, seen) == 0 && offsetof(struct rs_told, last) == 8 && offsetof(struct rs_told, stamp) == 16 && offsetof(struct rs_told, table) == 128 &&
	sizeof(struct rs_told_entry[RS_TOLD_PLACES]) == 262144 && RS_PATCH_THREAD_CONTEXT == 1, "the offsets below");

/* Each entry takes RS_TELL_BYTES: a place in one is the same in all. The first's have names. */

/* al: OF, as 127 + 1 overflows; ah: the others. */
#define RESTORE_FLAGS_1 "	addb $127, %al\n"
#define RESTORE_FLAGS_2 "	sahf\n"

__asm__(".macro rs_place name\n.if rs_entry == 0\n\\name:\n.endif\n.endm\n"
	".macro rs_begin\n"
	".p2align 8\n"
	"	movq %rax, -8(%rsp)\n"
	"	movq %rcx, -16(%rsp)\n"
	"	movq %rdx, -24(%rsp)\n"
	"	movq %rsi, -32(%rsp)\n"
	"	rs_place rs_tell_saved\n"
	"	lahf\n"
	"	seto %al\n"
	"	rs_place rs_tell_flags\n"
	".endm\n"
	".macro rs_entry_for shift\n"
	"	rs_begin\n"
	"	movq rs_thread_tls@gottpoff(%rip), %rdx\n"
	"	movq %fs:(%rdx), %rdx\n"
	"	testq %rdx, %rdx\n"
	"	jz 9f\n"
	"	movq rs_o_accesses(%rdx), %rdx\n"
	"	testq %rdx, %rdx\n"
	"	jz 9f\n"
	"	movq rs_access_changes(%rip), %rcx\n"
	"	cmpq %rcx, (%rdx)\n"
	"	jne 9f\n"
	/* What was read last, if it is in a table: it has been made by now, and is nothing new if this has not changed. */
	"	movq 8(%rdx), %rcx\n"
	"	movq 8(%rcx), %rsi\n"
	"	movq (%rsi), %rsi\n"
	"	cmpq %rsi, 16(%rcx)\n"
	"	jne 9f\n"
	"	movl %edi, %ecx\n"
	"	shll $\\shift, %ecx\n"
	"	andl $262144 - 32, %ecx\n"
	"	movq 16(%rdx), %rsi\n"
	"	xorq %rdi, %rsi\n"
	"	leaq 128 + rs_entry * 262144(%rdx,%rcx), %rcx\n"
	"	cmpq %rsi, (%rcx)\n"
	"	jne 9f\n"
	"	movq %rcx, 8(%rdx)\n"
	RESTORE_FLAGS_1
	"	rs_place rs_tell_added\n"
	RESTORE_FLAGS_2
	"	rs_place rs_tell_found\n"
	"	movq -32(%rsp), %rsi\n"
	"	movq -24(%rsp), %rdx\n"
	"	movq -16(%rsp), %rcx\n"
	"	movq -8(%rsp), %rax\n"
	"	movq 8(%rsp), %rdi\n"
	"	ret $136\n"
	"	rs_place rs_tell_missed\n"
	"9:	{disp32} jmp rs_tell_slow\n"
	".set rs_entry, rs_entry + 1\n"
	".endm\n"
	".text\n.p2align 8\n.globl rs_tell_code\n.hidden rs_tell_code\n.type rs_tell_code, @function\n"
	"rs_tell_code:\n"
	".cfi_startproc\n.cfi_def_cfa %rsp, 144\n.cfi_offset %rip, -144\n.cfi_offset %rdi, -136\n"
	".set rs_entry, 0\n"
	"	rs_entry_for 5\n	rs_entry_for 4\n	rs_entry_for 3\n	rs_entry_for 2\n	rs_entry_for 2\n"
	"	rs_entry_for 5\n	rs_entry_for 4\n	rs_entry_for 3\n	rs_entry_for 2\n	rs_entry_for 2\n"
	"	rs_begin\n"
	"rs_tell_slow:\n"
	RESTORE_FLAGS_1
	"rs_tell_slow_added:\n"
	RESTORE_FLAGS_2
		"	leaq -" FRAME "(%rsp), %rsp\n"
	".cfi_def_cfa_offset 144 + " FRAME "\n"
	"rs_tell_framed:\n"
	"	pushfq\n"
	".cfi_adjust_cfa_offset 8\n"
	"rs_tell_pushed:\n"
	"	popq 128(%rsp)\n" /* rsp is as it will be when the address is computed */
	".cfi_adjust_cfa_offset -8\n"
		"	movq %rbx, 24(%rsp)\n	movq %rbp, 40(%rsp)\n	movq %r8, 64(%rsp)\n	movq %r9, 72(%rsp)\n	movq %r10, 80(%rsp)\n	movq %r11, 88(%rsp)\n"
	"	movq %r12, 96(%rsp)\n	movq %r13, 104(%rsp)\n	movq %r14, 112(%rsp)\n	movq %r15, 120(%rsp)\n"
	"	movq " FRAME "-8(%rsp), %rax\n	movq %rax, (%rsp)\n"
	"	movq " FRAME "-16(%rsp), %rax\n	movq %rax, 8(%rsp)\n"
	"	movq " FRAME "-24(%rsp), %rax\n	movq %rax, 16(%rsp)\n"
	"	movq " FRAME "-32(%rsp), %rax\n	movq %rax, 48(%rsp)\n"
	"	movq " FRAME "+8(%rsp), %rax\n	movq %rax, 56(%rsp)\n"
	"	leaq " FRAME "+144(%rsp), %rax\n	movq %rax, 32(%rsp)\n"
	"	movq %rdi, 152(%rsp)\n"
	"	movq " FRAME "(%rsp), %rsi\n"
	"	movslq 4(%rsi), %rax\n"
	"	leaq (%rsi,%rax), %rax\n"
	"	movq %rax, 136(%rsp)\n"
	"	movq rs_patch_pointers@gottpoff(%rip), %rcx\n"
	"	movq %fs:8(%rcx), %rax\n"
	"	movq %rax, 176(%rsp)\n"
	"	movq %rsp, %fs:8(%rcx)\n"
	"rs_tell_context:\n"
	"	movq %rsp, %rdi\n"
	"	cld\n"
	"	call rs_access_told\n"
	"rs_tell_called:\n"
	"	movq rs_patch_pointers@gottpoff(%rip), %rcx\n"
	"	movq 176(%rsp), %rax\n"
	"	movq %rax, %fs:8(%rcx)\n"
	"	pushq 128(%rsp)\n"
	".cfi_adjust_cfa_offset 8\n"
	"rs_tell_pushed_again:\n"
	"	popfq\n"
	".cfi_adjust_cfa_offset -8\n"
	"	movq (%rsp), %rax\n	movq 8(%rsp), %rcx\n	movq 16(%rsp), %rdx\n	movq 24(%rsp), %rbx\n	movq 40(%rsp), %rbp\n	movq 48(%rsp), %rsi\n	movq 56(%rsp), %rdi\n"
	"	movq 64(%rsp), %r8\n	movq 72(%rsp), %r9\n	movq 80(%rsp), %r10\n	movq 88(%rsp), %r11\n	movq 96(%rsp), %r12\n	movq 104(%rsp), %r13\n"
	"	movq 112(%rsp), %r14\n	movq 120(%rsp), %r15\n"
	"	leaq " FRAME "(%rsp), %rsp\n"
	".cfi_def_cfa_offset 144\n"
	"rs_tell_leaving:\n"
	"	ret $136\n"
	".cfi_endproc\n"
	"rs_tell_end:\n"
	".size rs_tell_code, .-rs_tell_code\n");

#define LABEL(name) extern const char name[] RS_HIDDEN
LABEL(rs_tell_saved); LABEL(rs_tell_flags); LABEL(rs_tell_added); LABEL(rs_tell_found); LABEL(rs_tell_missed); LABEL(rs_tell_slow); LABEL(rs_tell_slow_added);
LABEL(rs_tell_framed); LABEL(rs_tell_pushed); LABEL(rs_tell_context); LABEL(rs_tell_called); LABEL(rs_tell_pushed_again);
LABEL(rs_tell_leaving); LABEL(rs_tell_end);

bool rs_tell_has(uintptr_t pc) { return pc - (uintptr_t)rs_tell_code < (uintptr_t)rs_tell_end - (uintptr_t)rs_tell_code; }

bool rs_tell_view(greg_t *g, struct rs_access_context **context, uintptr_t *resume)
{
	enum { AH = 0xd5, OF = 0x800 };
	uintptr_t pc = (uintptr_t)g[REG_RIP];
	uint64_t sp = (uint64_t)g[REG_RSP];
	*context = NULL;
	if (RS_LIKELY(!rs_tell_has(pc)))
		return false;
	if (pc == (uintptr_t)rs_tell_pushed || pc == (uintptr_t)rs_tell_pushed_again)
		sp += 8;
	if (pc >= (uintptr_t)rs_tell_context && pc < (uintptr_t)rs_tell_called) {
		*context = (struct rs_access_context *)sp;
		return true;
	}
	if (pc >= (uintptr_t)rs_tell_called && pc < (uintptr_t)rs_tell_leaving)
		rs_access_context_back(g, (const struct rs_access_context *)sp);
	if (pc >= (uintptr_t)rs_tell_framed && pc < (uintptr_t)rs_tell_leaving)
		sp += 224;
	const uint64_t *frame = (const uint64_t *)sp;
	/* The same place in the first entry. */
	bool slow = pc >= (uintptr_t)rs_tell_slow;
	uintptr_t at = slow ? pc : (pc - (uintptr_t)rs_tell_code) % RS_TELL_BYTES + (uintptr_t)rs_tell_code;
	bool flags = slow ? at <= (uintptr_t)rs_tell_slow_added : (at >= (uintptr_t)rs_tell_flags && at < (uintptr_t)rs_tell_found) || at == (uintptr_t)rs_tell_missed;
	if (flags) {
		uint64_t rax = (uint64_t)g[REG_RAX];
		bool overflow = at == (uintptr_t)rs_tell_added || at == (uintptr_t)rs_tell_slow_added ? rax & 0x80 : rax & 1;
		g[REG_EFL] = (g[REG_EFL] & ~(greg_t)(AH | OF)) | (greg_t)(rax >> 8 & AH) | (overflow ? OF : 0);
	}
	if (at >= (uintptr_t)rs_tell_saved && at < (uintptr_t)rs_tell_called) {
		g[REG_RAX] = (greg_t)frame[-1];
		g[REG_RCX] = (greg_t)frame[-2];
		g[REG_RDX] = (greg_t)frame[-3];
		g[REG_RSI] = (greg_t)frame[-4];
	}
	g[REG_RDI] = (greg_t)frame[1];
	g[REG_RSP] = (greg_t)(sp + 144);
	g[REG_RIP] = (greg_t)rs_tell_site(frame[0]);
	*resume = pc >= (uintptr_t)rs_tell_called ? (uintptr_t)frame[0] : (uintptr_t)g[REG_RIP]; /* it is told: on to the instruction */
	return true;
}

/* --- calling the rest of the agent --------------------------------------------------------------------------------------------------------- */

struct rs_xsave rs_xsave;

/* The stack is as the program had it at the instruction, which in a leaf function is not where the ABI wants it for a call, and what f runs may rely on that. */
__attribute__((force_align_arg_pointer)) void rs_vectors_kept(void (*f)(void *), void *arg)
{
	enum { HEADER = 512, HEADER_BYTES = 64 }; /* Intel SDM vol. 1, 13.4.2: xsave leaves most of it alone, and xrstor wants zeros */
	if (RS_LIKELY(!rs_xsave.size)) {
		f(arg);
		return;
	}
	char *area = (char *)(((uintptr_t)__builtin_alloca(rs_xsave.size + 63) + 63) & -64ul);
	for (unsigned i = 0; i < HEADER_BYTES; i += 8)
		*(uint64_t *)(area + HEADER + i) = 0;
	uint32_t lo = (uint32_t)rs_xsave.mask, hi = (uint32_t)(rs_xsave.mask >> 32);
	if (rs_xsave.compact)
		__asm__ volatile("xsavec64 (%0)" ::"r"(area), "a"(lo), "d"(hi) : "memory");
	else
		__asm__ volatile("xsave64 (%0)" ::"r"(area), "a"(lo), "d"(hi) : "memory");
	f(arg);
	__asm__ volatile("xrstor64 (%0)" ::"r"(area), "a"(lo), "d"(hi) : "memory");
}
