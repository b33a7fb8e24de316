/* tell.c: what a recipe's Tell calls before a memory access, with its address in rdi (internal/recipe). What the thread has told already since its last other event is found here, in
 * some twenty instructions; all else goes to access.c.
 *
 * Ground rules: no vector registers, nothing below the stack pointer but the 128 bytes that the kernel leaves alone; every register and flag is on return as it was. Until access.c
 * is called nothing has happened: a thread that is interrupted before is shown at the site and starts over there. */
#include "full.h"
#include "guardlog.h"
#include "patch.h"

/* From rsp: where the recipe's mark lies, the program's rdi (recipe.tellDepth above which is the program's rsp); and what is saved. Below that, for access.c, a context of which these four are the
 * end: 192 + 32 bytes. */
#define FRAME "224"
_Static_assert(sizeof(struct rs_access_context) == 192 && offsetof(struct rs_access_context, flags) == 128 && offsetof(struct rs_access_context, site) == 136 &&
	offsetof(struct rs_access_context, addr) == 152 && offsetof(struct rs_access_context, outer) == 176, "the offsets below");

/* Where the assembler finds a thread's memory; the rest are numbers. */
__attribute__((used)) static void offsets(void)
{
	__asm__ volatile(".set rs_o_accesses, %c0\n.set rs_o_cells, %c1\n.set rs_o_mask, %c2\n.set rs_o_page, %c3\n.set rs_o_none, %c4\n.set rs_o_read, %c5\n.set rs_o_write, %c6\n.set rs_o_seen, %c7" ::
		"i"(offsetof(struct rs_thread, accesses)), "i"(offsetof(struct race_page, cell)), "i"(offsetof(struct rs_full, mask)), "i"(offsetof(struct rs_full, page)),
		"i"(offsetof(struct rs_full, none)), "i"(offsetof(struct rs_full, read)), "i"(offsetof(struct rs_full, write)),
		"i"(offsetof(struct rs_full, seen)));
}
_Static_assert(offsetof(struct rs_full, last) == 0 && offsetof(struct rs_full, epoch) == 8 && RS_FULL_PAGES == 1024 && sizeof(((struct rs_full *)0)->page[0]) == 8 &&
	offsetof(struct rs_full_last, cell) == 0 && offsetof(struct rs_full_last, e) == 8 && offsetof(struct rs_full_last, addr) == 16 && offsetof(struct rs_full_last, ret) == 24 &&
	RS_FULL_SEEN == 65536 && sizeof(((struct rs_full *)0)->seen[0]) == 32 && offsetof(struct race_page, number) == 0 && sizeof(struct race_cell) == 32 && offsetof(struct race_cell, e) == 0 &&
	offsetof(struct race_cell, info) == 24 && offsetof(struct race_cell, places) == 26 && offsetof(struct race_cell, more) == 28 && CELLS == 512 && MASK_BITS == 56 && POINT_WRITE == 1 && POINT_READ == 2 && INFO_KIND == 4 && INFO_MOV == 128, "the offsets below");
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
	".globl rs_tell_slow\n.hidden rs_tell_slow\n"
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
	"	movl 128(%rsp), %eax\n"
	"	testl $0x400, %eax\n" /* DF, which was cleared: popf takes ten times as long as sahf */
	"	jnz 1f\n"
	"	movl %eax, %ecx\n"
	"	shrl $11, %ecx\n"
	"	movb %al, %ah\n"
	"	movb %cl, %al\n"
	"	andb $1, %al\n"
	RESTORE_FLAGS_1
	RESTORE_FLAGS_2
	"	jmp 2f\n"
	"1:	pushq 128(%rsp)\n"
	".cfi_adjust_cfa_offset 8\n"
	"rs_tell_pushed_again:\n"
	"	popfq\n"
	".cfi_adjust_cfa_offset -8\n"
	"2:	movq (%rsp), %rax\n	movq 8(%rsp), %rcx\n	movq 16(%rsp), %rdx\n	movq 24(%rsp), %rbx\n	movq 40(%rsp), %rbp\n	movq 48(%rsp), %rsi\n	movq 56(%rsp), %rdi\n"
	"	movq 64(%rsp), %r8\n	movq 72(%rsp), %r9\n	movq 80(%rsp), %r10\n	movq 88(%rsp), %r11\n	movq 96(%rsp), %r12\n	movq 104(%rsp), %r13\n"
	"	movq 112(%rsp), %r14\n	movq 120(%rsp), %r15\n"
	"	leaq " FRAME "(%rsp), %rsp\n"
	".cfi_def_cfa_offset 144\n"
	"rs_tell_leaving:\n"
	"	ret $136\n"
	".cfi_endproc\n"
	"rs_tell_end:\n"
	".size rs_tell_code, .-rs_tell_code\n");

/* Where the agent looks for races: what raceshadow.c's rs_race_known says, as far as the first two points of one cell tell it. */
__asm__(".macro rs_full_place name\n.if rs_entry == 0\nrs_full_\\name\\()_r:\n.elseif rs_entry == 5\nrs_full_\\name\\()_w:\n.elseif rs_entry == 10\nrs_full_\\name\\()_b:\n.elseif rs_entry == 4\nrs_full_\\name\\()_p:\n.elseif rs_entry == 3\nrs_full_\\name\\()_r8:\n.elseif rs_entry == 8\nrs_full_\\name\\()_w8:\n.elseif rs_entry == 13\nrs_full_\\name\\()_b8:\n.endif\n.endm\n"
	/* r10b: a point's info; zero: further bits that must be 0. */
	".macro rs_full_counts how, other, zero\n"
	".if \\how == 1\n"
	"	andl $0xf0 + \\zero, %r10d\n"
	"	cmpl $0x90, %r10d\n" /* by a mov */
	"	jne \\other\n"
	".elseif \\how == 2\n"
	"	andl $0x70 + \\zero, %r10d\n"
	"	cmpl $0x10, %r10d\n"
	"	jne \\other\n"
	".else\n"
	"	andl $0x70 + \\zero, %r10d\n"
	"	subl $0x10, %r10d\n"
	"	cmpl $0x10, %r10d\n"
	"	ja \\other\n"
	".endif\n"
	".endm\n"
	/* r9: a point, and what the shadow says of it in r10b. If it is not of this thread and time: on at not; if it has not all the bytes: at less; if it is of a kind that does not count: at other. */
	".macro rs_full_mine how, not, less, other, zero\n"
	"	xorq %r8, %r9\n"
	"	rolq $8, %r9\n"
	"	cmpq $255, %r9\n"
	"	ja \\not\n"
	"	notl %r9d\n"
	"	testl %r9d, %ecx\n"
	"	jnz \\less\n"
	"	rs_full_counts \\how, \\other, \\zero\n"
	".endm\n"
	/* As above of the second point, which others may have put there: the infos (r10d) are to be those that were read before, and nobody at it. Not of this thread and time, or of a kind that does not count: on at 7. */
	".macro rs_full_behind how, less\n"
	"	movl %r10d, -64(%rsp)\n"
	"	movq 8(%rsi), %r9\n"
	"	shrl $8, %r10d\n"
	"	rs_full_mine \\how, 7f, \\less, 7f, 0\n"
	"	movl 24(%rsi), %r10d\n"
	"	cmpl $0xffff, %r10d\n"
	"	ja 7f\n"
	"	cmpl -64(%rsp), %r10d\n"
	"	jne 7f\n"
	".endm\n"
	/* Up to the cell, in rsi; its place in the page is in ecx. */
	".macro rs_full_begin\n"
	".org rs_full_code + 1024 * rs_entry, 0xcc\n" /* RS_FULL_BYTES: an error if the last was larger */
	"	movq %rax, -8(%rsp)\n"
	"	movq %rcx, -16(%rsp)\n"
	"	movq %rdx, -24(%rsp)\n"
	"	movq %rsi, -32(%rsp)\n"
	"	movq %r8, -40(%rsp)\n"
	"	movq %r9, -48(%rsp)\n"
	"	movq %r10, -56(%rsp)\n"
	"	rs_full_place saved\n"
	"	lahf\n"
	"	seto %al\n"
	"	rs_full_place flags\n"
	"	movq rs_thread_tls@gottpoff(%rip), %rdx\n"
	"	movq %fs:(%rdx), %rdx\n"
	"	testq %rdx, %rdx\n"
	"	jz 9f\n"
	"	movq rs_o_accesses(%rdx), %rdx\n" /* 0, too, in a child of clone, where it is wiped: so no pointer to it is kept elsewhere */
	"	testq %rdx, %rdx\n"
	"	jz 9f\n"
	/* A read that was put off (full.c). */
	"	movq rs_patch_pointers@gottpoff(%rip), %rcx\n"
	"	cmpq $0, %fs:8*45(%rcx)\n"
	"	jne 70f\n"
	"71:\n"
	/* What was read last has been made by now. */
	"	movq (%rdx), %rcx\n"
	"	movq (%rcx), %r8\n"
	"	movq (%r8), %rsi\n"
	"	cmpq %rsi, 8(%rcx)\n"
	"	jne 9f\n"
	"	cmpb $0, 26(%r8)\n"
	"	jne 9f\n"
	/* The cell. */
	"	movq %rdi, %rcx\n"
	"	shrq $12, %rcx\n"
	"	imull $0x9e3779b1, %ecx, %esi\n" /* rs_full_page_at */
	"	shrl $22, %esi\n"
	"	movq rs_o_page(%rdx,%rsi,8), %rsi\n"
	"	cmpq %rcx, (%rsi)\n"
	"	jne 9f\n"
	"	movl %edi, %ecx\n"
	"	shll $2, %ecx\n"
	"	andl $0x3fe0, %ecx\n"
	"	leaq rs_o_cells(%rsi,%rcx), %rsi\n"
	".endm\n"
	".macro rs_full_found_it\n"
	RESTORE_FLAGS_1
	"	rs_full_place added\n"
	RESTORE_FLAGS_2
	"	rs_full_place found\n"
	"	movq -56(%rsp), %r10\n"
	"	movq -48(%rsp), %r9\n"
	"	movq -40(%rsp), %r8\n"
	"	movq -32(%rsp), %rsi\n"
	"	movq -24(%rsp), %rdx\n"
	"	movq -16(%rsp), %rcx\n"
	"	movq -8(%rsp), %rax\n"
	"	movq 8(%rsp), %rdi\n"
	"	ret $136\n"
	"	rs_full_place second\n"
	".endm\n"
	/* To what tells it. */
	".macro rs_full_end_it\n"
	"9:	movq -56(%rsp), %r10\n"
	"	movq -48(%rsp), %r9\n"
	"	movq -40(%rsp), %r8\n"
	"	jmp rs_tell_slow\n"
	"70:	movq (%rsp), %rsi\n"
	"	testb $128, 3(%rsi)\n" /* RS_SHAPE_PASSES */
	"	jz 9b\n"
	".if rs_entry >= 5\n"
	"	cmpq %rdi, %fs:8*45(%rcx)\n"
	"	jne 9b\n"
	".endif\n"
	"	jmp 71b\n"
	".set rs_entry, rs_entry + 1\n"
	".endm\n"
	/* The cell of 8 bytes: all of it is in the first point, which is of this thread and time, and of a kind that counts. */
	".macro rs_full_whole at, kinds\n"
	"	movl \\at+24(%rsi), %r10d\n"
	"	testl $0xff0000, %r10d\n"
	"	jnz 9f\n"
	"	movq \\at(%rsi), %r9\n"
	"	xorq %r8, %r9\n"
	"	rolq $8, %r9\n"
	"	cmpq $255, %r9\n"
	"	jne 7f\n"
	"	andl $0x70, %r10d\n"
	"	subl $0x10, %r10d\n"
	"	cmpl $\\kinds, %r10d\n"
	"	ja 7f\n"
	".endm\n"
	/* 16 bytes: two cells. Nothing can be ordered by them, so there is nothing to look at when they have been accessed. kinds: 0x10 of a read, else 0. */
	".macro rs_full_pair kinds\n"
	"	rs_full_begin\n"
	"	testl $7, %edi\n"
	"	jnz 7f\n"
	"	cmpl $0x3fe0, %ecx\n"
	"	je 9f\n"
	"	leaq rs_o_none(%rdx), %r8\n"
	"	movq %r8, (%rdx)\n"
	"	movq 8(%rdx), %r8\n"
	"	movq (%r8), %r8\n"
	"	rs_full_whole 0, \\kinds\n"
	"	rs_full_whole 32, \\kinds\n"
	"	rs_full_found_it\n"
	"7:\n" /* more cells, or new */
	".if \\kinds\n"
	"	movl $3 << 29 | 16 << 8 | 0x20, %r10d\n"
	"	jmp rs_new_span_read\n"
	".else\n"
	"	movl $3 << 29 | 16 << 8 | 0x10, %r10d\n"
	"	jmp rs_new_span_write\n"
	".endif\n"
	"	rs_full_end_it\n"
	".endm\n"
	/* how: 0 a read, 1 a write, 2 both. */
	".macro rs_full_for log, how\n"
	"	rs_full_begin\n"
	".if \\log == 3\n"
	"	testl $7, %edi\n"
	"	jnz .Lspan_\\how\\()_\\log\n"
	".else\n"
	"	movl %edi, %ecx\n"
	"	andl $7, %ecx\n"
	"	movzbl rs_o_mask+8*\\log(%rdx,%rcx), %ecx\n"
	"	testl %ecx, %ecx\n"
	"	jz .Lspan_\\how\\()_\\log\n"
	".endif\n"
	"	leaq rs_o_none(%rdx), %r8\n" /* in case of a handler */
	"	movq %r8, (%rdx)\n"
	"	movq 8(%rdx), %r8\n"
	"	movq (%r8), %r8\n"
	"	movl 24(%rsi), %r10d\n" /* before the points: these are written first */
	"	movq (%rsi), %r9\n"
	".if \\how == 0\n" /* what is noted of a read is what is looked at */
	"	movq %rsi, rs_o_read(%rdx)\n"
	"	movq %r9, rs_o_read+8(%rdx)\n"
	".endif\n"
	".if \\log == 3\n"
	"	xorq %r8, %r9\n"
	"	rolq $8, %r9\n"
	"	cmpq $255, %r9\n"
	"	jne 5f\n"
	"	rs_full_counts \\how, 3f, 0xff0000\n" /* places, which tellnew.c looks at, too */
	".else\n"
	"	rs_full_mine \\how, 1f, 4f, 7f, 0xff0000\n"
	".endif\n"
	"2:\n"
	".if \\how != 2\n"
	"	movq (%rsp), %rcx\n"
	".endif\n"
	".if \\how == 0\n"
	"	movq %rdi, rs_o_read+16(%rdx)\n"
	"	movq %rcx, rs_o_read+24(%rdx)\n"
	"	leaq rs_o_read(%rdx), %rcx\n"
	"	movq %rcx, (%rdx)\n"
	".elseif \\how == 1\n"
	"	movq %rdi, rs_o_write+16(%rdx)\n"
	"	movq %rcx, rs_o_write+24(%rdx)\n"
	"	leaq rs_o_write(%rdx), %rcx\n"
	"	movq %rcx, (%rdx)\n"
	".endif\n"
	"	rs_full_found_it\n"
	".if \\log == 3\n"
	"3:	movl $255, %ecx\n"
	"	jmp 7f\n"
	"5:	movl $255, %ecx\n"
	"	jb 4f\n"
	".endif\n"
	/* Of its own, but older: then nothing was accessed in this time. */
	"1:	testl $0xff0000, %r10d\n" /* places */
	"	jnz 9f\n"
	"	rolq $12, %r9\n"
	"	testl $0xfff, %r9d\n"
	"	jz 7f\n"
	/* Another thread's is newer. If it is of other bytes, or both read: is the second one, where there are no more, of this thread and time? */
	"	cmpl $0, 28(%rsi)\n"
	"	jne 3f\n"
	"	shrl $12, %r9d\n"
	"	testl %r9d, %ecx\n"
	".if \\how == 0\n"
	"	jz 8f\n"
	"	movl %r10d, %r9d\n"
	"	andl $0x70, %r9d\n"
	"	cmpl $0x20, %r9d\n"
	"	jne 7f\n"
	"8:\n"
	".else\n"
	"	jnz 7f\n"
	".endif\n"
	"	rs_full_behind \\how, 7f\n"
	"	jmp 2b\n"
	/* Else nothing was done since this was noted if the newest one is still the same. */
	"3:	movq %rsi, -64(%rsp)\n"
	"	movq (%rsi), %rsi\n"
	"	leal (,%rdi,4), %r9d\n"
	"	andl $65535 * 32, %r9d\n"
	"	cmpq %rsi, rs_o_seen+16(%rdx,%r9)\n"
	"	jne 6f\n"
	"	cmpb %r10b, rs_o_seen+24(%rdx,%r9)\n"
	"	jne 6f\n"
	"	jmp 5f\n"
	/* What is known of the cell beside its newest point: of the second, or together. */
	"4:	testl $0xff0000, %r10d\n"
	"	jnz 9f\n"
	"	cmpl $0, 28(%rsi)\n"
	"	jne 3f\n"
	"	rs_full_behind \\how, 3f\n"
	"	jmp 2b\n"
	"3:	movq %rsi, -64(%rsp)\n"
	"	leal (,%rdi,4), %r9d\n"
	"	andl $65535 * 32, %r9d\n"
	"5:\n"
	"	cmpq %r8, rs_o_seen+8(%rdx,%r9)\n"
	"	jne 6f\n"
	"	movq %rdi, %r10\n"
	"	shrq $19, %r10\n"
	"	shlq $24, %r10\n"
	"	xorq rs_o_seen(%rdx,%r9), %r10\n"
	"	cmpq $0xffffff, %r10\n"
	"	ja 6f\n"
	".if \\how == 1\n"
	"	shrl $16, %r10d\n"
	".elseif \\how == 2\n"
	"	shrl $8, %r10d\n"
	".endif\n"
	"	notl %r10d\n"
	"	testl %r10d, %ecx\n"
	"	jz 2b\n"
	"6:	movq -64(%rsp), %rsi\n"
	/* It is new (tellnew.c). */
	"7:	testl $(1 << \\log) - 1, %edi\n"
	"	jnz 3f\n"
	".if \\how == 0\n"
	"	movl $(1 << \\log) << 8 | 0xa0, %r10d\n"
	"	jmp rs_new_r\n"
	".elseif \\how == 1\n"
	"	movl $(1 << \\log) << 8 | 0x90, %r10d\n"
	"	jmp rs_new_w\n"
	".else\n"
	"	movl $(1 << \\log) << 8 | 0x10, %r10d\n"
	"	jmp rs_new_w\n"
	".endif\n"
	".if \\how == 0\n" /* no mov's */
	"3:	movl $1 << 30 | (1 << \\log) << 8 | 0x20, %r10d\n"
	"	jmp rs_new_r\n"
	".Lspan_\\how\\()_\\log:\n"
	"	movl $3 << 29 | (1 << \\log) << 8 | 0x20, %r10d\n" /* several cells */
	"	jmp rs_new_span_read\n"
	".else\n"
	"3:	movl $1 << 30 | (1 << \\log) << 8 | 0x10, %r10d\n"
	"	jmp rs_new_w\n"
	".Lspan_\\how\\()_\\log:\n"
	"	movl $3 << 29 | (1 << \\log) << 8 | 0x10, %r10d\n"
	"	jmp rs_new_span_write\n"
	".endif\n"
	"	rs_full_end_it\n"
	".endm\n"
	".p2align 10\n.globl rs_full_code\n.hidden rs_full_code\n.type rs_full_code, @function\n"
	"rs_full_code:\n"
	".cfi_startproc\n.cfi_def_cfa %rsp, 144\n.cfi_offset %rip, -144\n.cfi_offset %rdi, -136\n"
	".set rs_entry, 0\n"
	"	rs_full_for 0, 0\n	rs_full_for 1, 0\n	rs_full_for 2, 0\n	rs_full_for 3, 0\n	rs_full_pair 0x10\n"
	"	rs_full_for 0, 1\n	rs_full_for 1, 1\n	rs_full_for 2, 1\n	rs_full_for 3, 1\n	rs_full_pair 0\n"
	"	rs_full_for 0, 2\n	rs_full_for 1, 2\n	rs_full_for 2, 2\n	rs_full_for 3, 2\n	rs_full_pair 0\n"
	".cfi_endproc\n"
	"rs_full_end:\n"
	".size rs_full_code, .-rs_full_code\n");

/* Accesses to frames: by the thread's word to nothing, or to what they would be without. No flag is changed, and rdi is in the recipe's frame. */
_Static_assert(RS_PATCH_THREAD_OWN_WORD == 44 && RS_OWN_BYTES == 32 && RS_OWN_ENTRIES == 16 && RS_FULL_BYTES == 1024 && RS_TELL_BYTES == 256 && RS_TOLD_TABLES == 10, "the offsets below");
_Static_assert(RS_PATCH_THREAD_DEFERRED == 45 && RS_SHAPE_PASSES == 128 && offsetof(struct rs_tell_mark, shape) == 3, "the numbers above");
__asm__(".macro rs_own_for\n"
	".org rs_own_code + 32 * rs_entry, 0xcc\n"
	"	movq %rdi, -8(%rsp)\n"
	"	movq rs_patch_pointers@gottpoff(%rip), %rdi\n"
	"	movq %fs:8*44(%rdi), %rdi\n"
	"	movq (%rdi), %rdi\n"
	"	jmp *8*rs_entry(%rdi)\n"
	".set rs_entry, rs_entry + 1\n"
	".endm\n"
	/* Below what others accessed of the stack it is nothing. Only where the first entry's places are is of interest: all are alike. */
	".macro rs_own_told_for to\n"
	".org rs_own_told_code + 128 * rs_entry, 0xcc\n"
	"	movq -8(%rsp), %rdi\n"
	"	movq %rax, -16(%rsp)\n"
	"	movq %rcx, -24(%rsp)\n"
	"	lahf\n"
	"	rs_place rs_own_lahf\n"
	"	seto %al\n"
	"	rs_place rs_own_flags\n"
	"	movq rs_patch_pointers@gottpoff(%rip), %rcx\n"
	"	movq %fs:8*44(%rcx), %rcx\n"
	"	cmpq 8(%rcx), %rdi\n"
	"	sbbq %rcx, %rcx\n"
	RESTORE_FLAGS_1
	"	rs_place rs_own_added\n"
	RESTORE_FLAGS_2
	"	rs_place rs_own_found\n"
	"	jrcxz 1f\n"
	"	jmp rs_own_below\n"
	"1:	movq -24(%rsp), %rcx\n"
	"	movq -16(%rsp), %rax\n"
	"	{disp32} jmp \\to\n"
	".set rs_entry, rs_entry + 1\n"
	".endm\n"
	".p2align 6\n.globl rs_own_code\n.hidden rs_own_code\n.type rs_own_code, @function\n"
	"rs_own_code:\n"
	".cfi_startproc\n.cfi_def_cfa %rsp, 144\n.cfi_offset %rip, -144\n.cfi_offset %rdi, -136\n"
	".set rs_entry, 0\n"
	".rept 16\n	rs_own_for\n.endr\n"
	".org rs_own_code + 32 * 16, 0xcc\n"
	"rs_own_quiet_code:\n"
	"	movq 8(%rsp), %rdi\n"
	"	ret $136\n"
	"rs_own_below:\n"
	"	movq -24(%rsp), %rcx\n"
	"	movq -16(%rsp), %rax\n"
	"	jmp rs_own_quiet_code\n"
	".p2align 6\n"
	"rs_own_told_code:\n"
	".set rs_entry, 0\n"
	".rept 15\n	rs_own_told_for rs_full_code+1024*rs_entry\n.endr\n"
	"	rs_own_told_for rs_tell_code+256*10\n"
	".cfi_endproc\n"
	"rs_own_end:\n"
	".size rs_own_code, .-rs_own_code\n");

#define LABEL(name) extern const char name[] RS_HIDDEN
LABEL(rs_tell_saved); LABEL(rs_tell_flags); LABEL(rs_tell_added); LABEL(rs_tell_found); LABEL(rs_tell_missed); LABEL(rs_tell_slow); LABEL(rs_tell_slow_added);
LABEL(rs_tell_framed); LABEL(rs_tell_pushed); LABEL(rs_tell_context); LABEL(rs_tell_called); LABEL(rs_tell_pushed_again);
LABEL(rs_tell_leaving); LABEL(rs_tell_end);
LABEL(rs_full_saved_r); LABEL(rs_full_flags_r); LABEL(rs_full_added_r); LABEL(rs_full_found_r); LABEL(rs_full_second_r);
LABEL(rs_full_saved_w); LABEL(rs_full_flags_w); LABEL(rs_full_added_w); LABEL(rs_full_found_w); LABEL(rs_full_second_w);
LABEL(rs_full_saved_b); LABEL(rs_full_flags_b); LABEL(rs_full_added_b); LABEL(rs_full_found_b); LABEL(rs_full_second_b);
LABEL(rs_full_saved_p); LABEL(rs_full_flags_p); LABEL(rs_full_added_p); LABEL(rs_full_found_p); LABEL(rs_full_second_p); LABEL(rs_full_end);
/* Those of eight bytes are shorter. */
LABEL(rs_full_saved_r8); LABEL(rs_full_flags_r8); LABEL(rs_full_added_r8); LABEL(rs_full_found_r8); LABEL(rs_full_second_r8);
LABEL(rs_full_saved_w8); LABEL(rs_full_flags_w8); LABEL(rs_full_added_w8); LABEL(rs_full_found_w8); LABEL(rs_full_second_w8);
LABEL(rs_full_saved_b8); LABEL(rs_full_flags_b8); LABEL(rs_full_added_b8); LABEL(rs_full_found_b8); LABEL(rs_full_second_b8);

LABEL(rs_own_quiet_code); LABEL(rs_own_below); LABEL(rs_own_told_code); LABEL(rs_own_lahf); LABEL(rs_own_flags); LABEL(rs_own_added); LABEL(rs_own_found); LABEL(rs_own_end);

#define OWN_QUIET (uintptr_t)rs_own_quiet_code
#define OWN_TOLD(i) (uintptr_t)rs_own_told_code + OWN_TOLD_BYTES * (i)
enum { OWN_TOLD_BYTES = 128 };
const uintptr_t rs_own_quiet[RS_OWN_ENTRIES] = {OWN_QUIET, OWN_QUIET, OWN_QUIET, OWN_QUIET, OWN_QUIET, OWN_QUIET, OWN_QUIET, OWN_QUIET, OWN_QUIET, OWN_QUIET, OWN_QUIET, OWN_QUIET,
	OWN_QUIET, OWN_QUIET, OWN_QUIET, OWN_QUIET};
const uintptr_t rs_own_told[RS_OWN_ENTRIES] = {OWN_TOLD(0), OWN_TOLD(1), OWN_TOLD(2), OWN_TOLD(3), OWN_TOLD(4), OWN_TOLD(5), OWN_TOLD(6), OWN_TOLD(7), OWN_TOLD(8), OWN_TOLD(9),
	OWN_TOLD(10), OWN_TOLD(11), OWN_TOLD(12), OWN_TOLD(13), OWN_TOLD(14), OWN_TOLD(15)};

static bool in_own(uintptr_t pc) { return pc - (uintptr_t)rs_own_code < (uintptr_t)rs_own_end - (uintptr_t)rs_own_code; }

static bool in_full(uintptr_t pc) { return pc - (uintptr_t)rs_full_code < (uintptr_t)rs_full_end - (uintptr_t)rs_full_code; }

bool rs_tell_has(uintptr_t pc) { return pc - (uintptr_t)rs_tell_code < (uintptr_t)rs_tell_end - (uintptr_t)rs_tell_code || in_full(pc) || rs_new_has(pc) || in_own(pc); }

static void flags_back(greg_t *g, bool added)
{
	enum { AH = 0xd5, OF = 0x800 };
	uint64_t rax = (uint64_t)g[REG_RAX];
	bool overflow = added ? rax & 0x80 : rax & 1;
	g[REG_EFL] = (g[REG_EFL] & ~(greg_t)(AH | OF)) | (greg_t)(rax >> 8 & AH) | (overflow ? OF : 0);
}

/* What an entry had saved, and the caller, at the site. */
static void saved_back(greg_t *g, const uint64_t *frame, bool saved, bool more)
{
	if (saved) {
		g[REG_RAX] = (greg_t)frame[-1];
		g[REG_RCX] = (greg_t)frame[-2];
		g[REG_RDX] = (greg_t)frame[-3];
		g[REG_RSI] = (greg_t)frame[-4];
	}
	if (saved && more) {
		g[REG_R8] = (greg_t)frame[-5];
		g[REG_R9] = (greg_t)frame[-6];
		g[REG_R10] = (greg_t)frame[-7];
	}
	g[REG_RDI] = (greg_t)frame[1];
	g[REG_RSP] = (greg_t)(frame + 18);
	g[REG_RIP] = (greg_t)rs_tell_site(frame[0]);
}

static bool full_view(greg_t *g, uintptr_t pc, uintptr_t *resume)
{
	const struct { const char *saved, *flags, *added, *found, *second; } places[] = {
		{rs_full_saved_r, rs_full_flags_r, rs_full_added_r, rs_full_found_r, rs_full_second_r},
		{rs_full_saved_w, rs_full_flags_w, rs_full_added_w, rs_full_found_w, rs_full_second_w},
		{rs_full_saved_b, rs_full_flags_b, rs_full_added_b, rs_full_found_b, rs_full_second_b},
		{rs_full_saved_p, rs_full_flags_p, rs_full_added_p, rs_full_found_p, rs_full_second_p},
		{rs_full_saved_r8, rs_full_flags_r8, rs_full_added_r8, rs_full_found_r8, rs_full_second_r8},
		{rs_full_saved_w8, rs_full_flags_w8, rs_full_added_w8, rs_full_found_w8, rs_full_second_w8},
		{rs_full_saved_b8, rs_full_flags_b8, rs_full_added_b8, rs_full_found_b8, rs_full_second_b8}}, *first;
	enum { PAIR = 3, EIGHT = 4 };
	unsigned entry = (unsigned)((pc - (uintptr_t)rs_full_code) / RS_FULL_BYTES), log = entry % RS_FULL_SIZES, how = log == RS_FULL_SIZES - 1 ? PAIR : entry / RS_FULL_SIZES;
	uintptr_t begin = how == PAIR ? RS_FULL_ENTRY(RS_FULL_SIZES - 1) : RS_FULL_ENTRY(how * RS_FULL_SIZES);
	if (log == 3) {
		begin = RS_FULL_ENTRY(entry);
		how += EIGHT;
	}
	first = &places[how];
	/* The same place in the first entry of its kind. */
	uintptr_t at = (pc - begin) % RS_FULL_BYTES + begin;
	if ((at >= (uintptr_t)first->flags && at < (uintptr_t)first->found) || at >= (uintptr_t)first->second)
		flags_back(g, at == (uintptr_t)first->added);
	saved_back(g, (const uint64_t *)g[REG_RSP], at >= (uintptr_t)first->saved, true);
	*resume = (uintptr_t)g[REG_RIP]; /* it starts over there */
	return true;
}

static bool own_view(greg_t *g, uintptr_t pc, uintptr_t *resume)
{
	const uint64_t *frame = (const uint64_t *)g[REG_RSP];
	uintptr_t first = (uintptr_t)rs_own_told_code, at = pc < first ? pc : (pc - first) % OWN_TOLD_BYTES + first;
	bool told = at >= (uintptr_t)rs_own_lahf, below = at >= (uintptr_t)rs_own_below && at < first;
	if (told && at >= (uintptr_t)rs_own_flags && at < (uintptr_t)rs_own_found)
		flags_back(g, at == (uintptr_t)rs_own_added);
	if (told || below) {
		g[REG_RAX] = (greg_t)frame[-2];
		g[REG_RCX] = (greg_t)frame[-3];
	}
	saved_back(g, frame, false, false);
	*resume = (uintptr_t)g[REG_RIP]; /* it starts over there */
	return true;
}

bool rs_tell_view(greg_t *g, struct rs_access_context **context, uintptr_t *resume)
{
	uintptr_t pc = (uintptr_t)g[REG_RIP];
	uint64_t sp = (uint64_t)g[REG_RSP];
	*context = NULL;
	if (RS_LIKELY(!rs_tell_has(pc)))
		return false;
	if (in_full(pc))
		return full_view(g, pc, resume);
	if (rs_new_has(pc)) {
		bool added;
		if (rs_new_view(g, pc, &added))
			flags_back(g, added);
		saved_back(g, (const uint64_t *)sp, true, true);
		*resume = (uintptr_t)g[REG_RIP]; /* it starts over there */
		return true;
	}
	if (in_own(pc))
		return own_view(g, pc, resume);
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
	if (flags)
		flags_back(g, at == (uintptr_t)rs_tell_added || at == (uintptr_t)rs_tell_slow_added);
	saved_back(g, frame, at >= (uintptr_t)rs_tell_saved && at < (uintptr_t)rs_tell_called, false);
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
	/* What libc's functions left in registers when they were called by us, which may be so in a recording only, is not to stay below the program's stack pointer. */
	if (rs_guard_on)
		rs_os_clear(area, rs_xsave.size);
}

void rs_vectors_clear(void)
{
	enum { X87 = 1 };
	/* Of what is not in the header nothing is read: it is made as it is at the beginning. */
	struct { uint16_t control, status[11]; uint32_t mxcsr, rest[121]; uint64_t header[8]; } __attribute__((aligned(64))) area;
	_Static_assert(offsetof(__typeof__(area), mxcsr) == 24 && offsetof(__typeof__(area), header) == 512, "Intel SDM vol. 1, 13.4");
	if (!rs_xsave.size)
		return;
	rs_os_clear(&area, sizeof area);
	area.header[0] = X87;
	__asm__ volatile("stmxcsr %0\n\tfnstcw %1" : "=m"(area.mxcsr), "=m"(area.control));
	__asm__ volatile("xrstor64 %0" ::"m"(area), "a"((uint32_t)rs_xsave.mask), "d"((uint32_t)(rs_xsave.mask >> 32)));
}
