/* tellnew.c: what tell.c's entries find to be new in the thread's time, where it is of the commonest form: made by a recipe, stack and locks that were told before, to a cell with two points at most, which all
 * come before it by the thread's own clock and of which one at most is left. What fullquick.c and the detector's put_at_once (raceshadow.c) would come to for such an access is done here in some 150 instructions, without
 * a stack of its own. All else goes to access.c as before, with nothing done that is not done again.
 *
 * Ground rules: as tell.c's. Until the cell is locked nothing has happened; while it is, registers alone say what is to be stored, so that for a thread that is interrupted there rs_new_view makes the stores. Then the
 * access is told: the thread is shown at the site, starts over there, and finds it known. */
#include "full.h"

_Static_assert(sizeof(struct rs_full_site) == 64 && RS_FULL_SITES == 32768 && offsetof(struct rs_full_site, ret) == 0 && RS_FULL_HELD == 2 && offsetof(struct rs_full_site, first) == 48 &&
	sizeof(struct rs_held_slot) == 16 && offsetof(struct rs_held_slot, obj) == 0 && offsetof(struct rs_held_slot, info) == 8 && RS_FULL_CHAINS == 1024 && offsetof(struct rs_full_chain, id) == 0 &&
	RS_FULL_WALKED == 256 && sizeof(((struct rs_full *)0)->walked[0]) == 32 && offsetof(struct rs_full, epoch) == 8 && offsetof(struct rs_full_last, e) == 8 && offsetof(struct rs_full_last, addr) == 16 &&
	offsetof(struct rs_full_last, ret) == 24 && sizeof(((struct rs_thread *)0)->inside) == 2, "the numbers below");
_Static_assert(offsetof(struct race_cell, e) == 0 && offsetof(struct race_cell, site) == 16 && offsetof(struct race_cell, info) == 24 && offsetof(struct race_cell, places) == 26 &&
	offsetof(struct race_cell, lock) == 27 && offsetof(struct race_cell, more) == 28 && CELLS == 512 && GROUP == 8 && MASK_BITS == 56 && TIME_BITS == 44 && SLOTS == 4096 && POINT_WRITE == 1 && POINT_READ == 2 &&
	INFO_KIND == 4 && INFO_BEFORE == 8 && INFO_MOV == 128 && FREED_ALL == 2 && offsetof(struct race_thread, quick) == 0 && offsetof(struct rs_race_thread, epoch) == 0, "the numbers below");

__attribute__((used)) static void offsets(void)
{
#define AT(name, type, member) __asm__ volatile(".set rs_n_" name ", %c0" ::"i"(offsetof(type, member)))
	AT("accesses_race", struct rs_thread, race);
	AT("number", struct rs_thread, number);
	AT("inside", struct rs_thread, inside);
	AT("held_count", struct rs_thread, held_count);
	AT("held", struct rs_thread, held);
	AT("r_number", struct race_thread, quick.number);
	AT("r_busy", struct race_thread, busy);
	AT("r_v", struct race_thread, v);
	AT("r_store", struct race_thread, store);
	AT("r_store_size", struct race_thread, store_size);
	AT("busy", struct rs_full, busy);
	AT("none", struct rs_full, none);
	AT("read", struct rs_full, read);
	AT("write", struct rs_full, write);
	AT("walked", struct rs_full, walked);
	AT("sites", struct rs_full, site);
	AT("chains", struct rs_full, chain);
	AT("store_kind", struct rs_full, store.kind);
	AT("w_epoch", struct rs_full, walked[0].epoch);
	AT("w_stack", struct rs_full, walked[0].stack);
	AT("w_ret", struct rs_full, walked[0].ret);
	AT("w_addr", struct rs_full, walked[0].addr);
	AT("s_mark", struct rs_full_site, mark);
	AT("s_chain", struct rs_full_site, chain);
	AT("s_rbp", struct rs_full_site, rbp);
	AT("s_has_rbp", struct rs_full_site, has_rbp);
	AT("s_stack", struct rs_full_site, stack);
	AT("s_id", struct rs_full_site, id);
	AT("s_held", struct rs_full_site, held);
	AT("second", struct rs_full, second);
	AT("c_rsp", struct rs_full_chain, rsp);
	AT("c_n", struct rs_full_chain, n);
	AT("c_number", struct rs_full_chain, number);
	AT("c_modules", struct rs_full_chain, modules);
	AT("c_generation", struct rs_full_chain, generation);
	AT("c_at", struct rs_full_chain, at);
	AT("c_word", struct rs_full_chain, word);
	AT("alone", struct rs_race_config, alone);
	AT("cells", struct race_page, cell);
	AT("p_number", struct race_page, number);
	AT("p_touched", struct race_page, touched);
	AT("p_used", struct race_page, used);
	AT("p_any_freed", struct race_page, any_freed);
	AT("p_freed", struct race_page, freed);
	AT("p_stack", struct race_page, stack);
#undef AT
}

/* An entry comes to rs_new_r, of a read, or rs_new_w, with rdi: the address, rdx: the thread's memory (struct rs_full), rsi: the cell, r8: the thread's epoch, ecx: the access's bytes in the cell, r10d: size<<8 | what its point's info is but for the
 * offset, rax: the flags. rcx, rdx, rsi, r8, r9, r10, rax are saved, and rdi is (tell.c). UNALIGNED, SPAN: bits of r10 that say
 * that the access is not aligned, and so no mov; and that it is of several cells: then it comes to rs_new_span_read or _write, with its first cell. */
__asm__(".set UNALIGNED, 30\n.set SPAN, 29\n.set SECOND, 31\n" /* the first point becomes the second */
	/* What is left of point p, whose info is in the byte of r13 above `shift`, when the access has been noted. r9, rbp: scratch. */
	".macro rs_new_left p, left, shift, how\n"
	"	movq \\p, \\left\n"
	"	movq \\p, %r9\n"
	"	shrq $56, %r9\n"
	"	testl %r9d, %ecx\n"
	"	jz 5f\n" /* it has none of these bytes */
	"	movl %r13d, %r9d\n"
	".if \\shift\n	shrl $\\shift, %r9d\n.endif\n"
	"	andl $0x70, %r9d\n"
	"	subl $0x10, %r9d\n"
	"	cmpl $0x10, %r9d\n" /* not below: a write; equal: a read */
	"	ja 9f\n"
	"	movq \\p, %rbp\n"
	"	xorq %r8, %rbp\n"
	"	shlq $8, %rbp\n"
	".if \\how == 0\n	jz 9f\n.else\n	jz 6f\n.endif\n" /* of this time */
	"	shrq $52, %rbp\n"
	"	jz 7f\n" /* its own */
	/* Another thread's, of which the thread may know. (So may all by a floor, which is looked at elsewhere.) */
	"	movq \\p, %rbp\n"
	"	shrq $44, %rbp\n"
	"	andl $4095, %ebp\n"
	"	movq 8(%rdx), %r9\n"
	"	movq rs_n_r_v(%r9), %r9\n"
	"	movq (%r9,%rbp,8), %r9\n"
	"	movq \\p, %rbp\n"
	"	shlq $20, %rbp\n"
	"	shrq $20, %rbp\n"
	"	cmpq %rbp, %r9\n"
	".if \\how == 0\n"
	"	jae 7f\n"
	"	testl $0x20 << \\shift, %r13d\n" /* two reads */
	"	jnz 5f\n"
	"	jmp 9f\n"
	".else\n"
	"	jb 9f\n"
	"	jmp 7f\n"
	/* Of this time: a read goes, and a write by another way before a mov. */
	"6:	testl $0x20 << \\shift, %r13d\n"
	"	jnz 8f\n"
	"	testb %r10b, %r10b\n"
	"	jns 9f\n"
	"	testl $0x80 << \\shift, %r13d\n"
	"	jnz 9f\n"
	".endif\n"
	"7:\n"
	".if \\how == 0\n"
	"	testl $0x20 << \\shift, %r13d\n" /* a write stays */
	"	jz 5f\n"
	".else\n"
	/* A write that is no mov keeps of a mov that it may have been an atomic's. */
	"	testb %r10b, %r10b\n"
	"	js 8f\n"
	"	testl $0x20 << \\shift, %r13d\n"
	"	jnz 8f\n"
	"	testl $0x80 << \\shift, %r13d\n"
	"	jnz 9f\n"
	".endif\n"
	"8:	movq %rcx, %r9\n"
	"	rorq $8, %r9\n"
	"	notq %r9\n"
	"	andq %r9, \\left\n"
	"5:\n"
	".endm\n"

	".macro rs_new_back\n"
	"	movq -112(%rsp), %rbp\n"
	"	movq -104(%rsp), %r15\n"
	"	movq -96(%rsp), %r14\n"
	"	movq -88(%rsp), %r13\n"
	"	movq -80(%rsp), %r12\n"
	"	movq -72(%rsp), %rbx\n"
	"	movq -64(%rsp), %r11\n"
	".endm\n"
	".macro rs_new_return\n"
	"	movq -56(%rsp), %r10\n"
	"	movq -48(%rsp), %r9\n"
	"	movq -40(%rsp), %r8\n"
	"	movq -32(%rsp), %rsi\n"
	"	movq -24(%rsp), %rdx\n"
	"	movq -16(%rsp), %rcx\n"
	"	movq -8(%rsp), %rax\n"
	"	movq 8(%rsp), %rdi\n"
	"	ret $136\n"
	".endm\n"

	/* Takes from ecx, and says whether there are more, the bytes of the point at `at`, whose info is in r9b, which is to be of this time and of a kind that counts. */
	".macro rs_new_has how, at\n"
	"	andl $0x70, %r9d\n"
	"	subl $0x10, %r9d\n"
	".if \\how == 0\n	cmpl $0x10, %r9d\n.else\n	cmpl $0, %r9d\n.endif\n"
	"	ja 2f\n"
	"	movq \\at(%rsi), %r9\n"
	"	xorq %r8, %r9\n"
	"	rolq $8, %r9\n"
	"	cmpq $255, %r9\n"
	"	ja 2f\n"
	"	notl %r9d\n"
	"	andl %r9d, %ecx\n"
	".endm\n"
	/* Bytes of several cells of a page, from rdi on, which is kept at -120; -128: where they end. Each cell is known, by its first point, or new; when it has been told it is the next one's turn. */
	".macro rs_new_span_for how, to\n"
	"	leaq rs_n_none(%rdx), %r8\n"
	"	movq %r8, (%rdx)\n"
	"	movq 8(%rdx), %r8\n"
	"	movq (%r8), %r8\n"
	"	movl %r10d, %ecx\n"
	"	shrl $8, %ecx\n"
	"	movzbl %cl, %ecx\n"
	"	movq %rdi, -120(%rsp)\n"
	"	movl %edi, %r9d\n"
	"	andl $4095, %r9d\n"
	"	addl %ecx, %r9d\n"
	"	cmpl $4096, %r9d\n"
	"	ja 9f\n"
	"	addq %rdi, %rcx\n"
	"	movq %rcx, -128(%rsp)\n"
	".Lnew_cell_\\to:\n"
	"	movq -128(%rsp), %rcx\n"
	"	subq %rdi, %rcx\n"
	"	movl $0xff, %r9d\n"
	"	cmpq $8, %rcx\n"
	"	jae 1f\n"
	"	movl $1, %r9d\n"
	"	shll %cl, %r9d\n"
	"	decl %r9d\n"
	"1:	movl %edi, %ecx\n"
	"	andl $7, %ecx\n"
	"	shll %cl, %r9d\n"
	"	movzbl %r9b, %ecx\n"
	"	shll $16, %ecx\n" /* as rs_full_mine and rs_full_behind; r10 keeps the mask */
	"	andl $0xff00ffff, %r10d\n"
	"	orl %ecx, %r10d\n"
	"	shrl $16, %ecx\n"
	"	movl 24(%rsi), %r9d\n"
	"	testl $0xff0000, %r9d\n"
	"	jnz 9f\n"
	"	movl %r9d, -64(%rsp)\n"
	"	rs_new_has \\how, 0\n"
	"	jz .Lnew_next_\\to\n"
	"	cmpl $0, 28(%rsi)\n"
	"	jne 2f\n"
	"	movl -64(%rsp), %r9d\n"
	"	shrl $8, %r9d\n"
	"	rs_new_has \\how, 8\n"
	"	jnz 2f\n"
	"	movl 24(%rsi), %r9d\n"
	"	cmpl $0xffff, %r9d\n"
	"	ja 2f\n"
	"	cmpl -64(%rsp), %r9d\n"
	"	je .Lnew_next_\\to\n"
	"2:	movl %r10d, %ecx\n"
	"	shrl $16, %ecx\n"
	"	movzbl %cl, %ecx\n"
	"	jmp rs_new_\\to\n"
	".Lnew_next_\\to:\n"
	"	orq $7, %rdi\n"
	"	incq %rdi\n"
	"	leaq 32(%rsi), %rsi\n"
	"	orl $8, %r10d\n" /* INFO_BEFORE */
	"	cmpq -128(%rsp), %rdi\n"
	"	jb .Lnew_cell_\\to\n"
	"	addb $127, %al\n"
	"rs_new_span_added_\\to:\n"
	"	sahf\n"
	"rs_new_span_found_\\to:\n"
	"	rs_new_return\n"
	"rs_new_span_rest_\\to:\n"
	"9:	movq -120(%rsp), %rdi\n"
	"	movq -56(%rsp), %r10\n"
	"	movq -48(%rsp), %r9\n"
	"	movq -40(%rsp), %r8\n"
	"	jmp rs_tell_slow\n"
	".endm\n"

	".macro rs_new_for how, to\n"
	"	movq %r11, -64(%rsp)\n"
	"	movq %rbx, -72(%rsp)\n"
	"	movq %r12, -80(%rsp)\n"
	"	movq %r13, -88(%rsp)\n"
	"	movq %r14, -96(%rsp)\n"
	"	movq %r15, -104(%rsp)\n"
	"	movq %rbp, -112(%rsp)\n"
	"rs_new_saved_\\to:\n"
	".cfi_remember_state\n"
	".cfi_offset %rbx, -216\n.cfi_offset %r12, -224\n.cfi_offset %r13, -232\n.cfi_offset %r14, -240\n.cfi_offset %r15, -248\n.cfi_offset %rbp, -256\n"
	"	cmpl $0xffff, 24(%rsi)\n" /* places, or locked */
	"	ja 9f\n"
	"	cmpl $0, 28(%rsi)\n"
	"	jne 9f\n"
	/* The thread: r9. What else rs_full_quick asks for is so as long as the entry finds what was read last unchanged. */
	"	movq rs_thread_tls@gottpoff(%rip), %r9\n"
	"	movq %fs:(%r9), %r9\n"
	"	movq 8(%rdx), %rbx\n"
	"	movl rs_n_number(%r9), %r15d\n"
	"	cmpq %rbx, rs_n_accesses_race(%r9)\n"
	"	jne 9f\n"
	"	cmpl %r15d, rs_n_r_number(%rbx)\n"
	"	jne 9f\n"
	"	cmpq $0, rs_n_r_busy(%rbx)\n"
	"	jne 9f\n"
	"	cmpq $0, rs_n_busy(%rdx)\n"
	"	jne 9f\n"
	"	cmpl $0, rs_active(%rip)\n"
	"	je 9f\n"
	"	cmpq $0, rs_race_configured+rs_n_alone(%rip)\n"
	"	jne 9f\n"
	"	cmpw $0, rs_n_inside(%r9)\n"
	"	jne 9f\n"
	/* The site: r14, as place_of has it. */
	"	movl rs_n_held_count(%r9), %r12d\n"
	"	movq (%rsp), %r11\n"
	"	leaq 144(%rsp), %r13\n"
	"	movq %r13, %r14\n"
	"	shlq $20, %r14\n"
	"	xorq %r11, %r14\n"
	"	testl %r12d, %r12d\n"
	"	jnz .Lnew_lock_\\to\n"
	".Lnew_place_\\to:\n"
	"	movabsq $0x9e3779b97f4a7c15, %rbx\n"
	"	imulq %rbx, %r14\n"
	"	shrq $40, %r14\n"
	"	andl $32767, %r14d\n"
	"	shll $6, %r14d\n"
	"	leaq rs_n_sites(%rdx,%r14), %r14\n"
	"	cmpq %r11, (%r14)\n"
	"	jne 9f\n"
	"	movq (%r11), %rbx\n"
	"	cmpq %rbx, rs_n_s_mark(%r14)\n"
	"	jne 9f\n"
	"	cmpl %r12d, rs_n_s_held(%r14)\n"
	"	jne 9f\n"
	"	testl %r12d, %r12d\n"
	"	jnz .Lnew_held_\\to\n"
	/* Its stack: r11, as same_chain has it. */
	".Lnew_stack_\\to:\n"
	"	movq rs_n_s_chain(%r14), %rbx\n"
	"	movl %ebx, %r11d\n"
	"	andl $1023, %r11d\n"
	"	shll $9, %r11d\n"
	"	leaq rs_n_chains(%rdx,%r11), %r11\n"
	"	cmpq %rbx, (%r11)\n"
	"	jne 9f\n"
	"	cmpq %r13, rs_n_c_rsp(%r11)\n"
	"	jne 9f\n"
	"	cmpl %r15d, rs_n_c_number(%r11)\n"
	"	jne 9f\n"
	"	movl rs_modules_generation(%rip), %ebx\n"
	"	cmpl %ebx, rs_n_c_modules(%r11)\n"
	"	jne 9f\n"
	"	movl rs_stack_generation(%rip), %ebx\n"
	"	cmpl %ebx, rs_n_c_generation(%r11)\n"
	"	jne 9f\n"
	"	cmpl $0, rs_n_s_has_rbp(%r14)\n"
	"	je 1f\n"
	"	cmpq %rbp, rs_n_s_rbp(%r14)\n"
	"	jne 9f\n"
	"1:	movl rs_n_c_n(%r11), %r12d\n"
	"1:	movzwl rs_n_c_at-2(%r11,%r12,2), %ebx\n"
	"	movq rs_n_c_word-8(%r11,%r12,8), %r15\n"
	"	cmpq %r15, 144(%rsp,%rbx,8)\n"
	"	jne 9f\n"
	"	decl %r12d\n"
	"	jnz 1b\n"
	"	movl rs_n_s_id(%r14), %ebx\n"
	".if \\how == 0\n" /* rs_full_walked */
	"	testb %r10b, %r10b\n"
	"	jns 1f\n"
	"	movl rs_n_s_stack(%r14), %r14d\n"
	"	movq (%rsp), %r11\n"
	"	leaq (,%r11,8), %r12\n"
	"	xorq %rdi, %r12\n"
	"	movabsq $0x9e3779b97f4a7c15, %r13\n"
	"	imulq %r13, %r12\n"
	"	shrq $40, %r12\n"
	"	movzbl %r12b, %r12d\n"
	"	shll $5, %r12d\n"
	"	movq $-1, rs_n_w_epoch(%rdx,%r12)\n"
	"	movq %rdi, rs_n_w_addr(%rdx,%r12)\n"
	"	movq %r11, rs_n_w_ret(%rdx,%r12)\n"
	"	movl %r14d, rs_n_w_stack(%rdx,%r12)\n"
	"	movq %r8, rs_n_w_epoch(%rdx,%r12)\n"
	"1:\n"
	".endif\n"
	/* The cell, as put_at_once has it: its points r11 and r12, their infos r13d, what is left of them r14 and r15; ebx: the site. */
	"	movl 24(%rsi), %r13d\n"
	"	movq (%rsi), %r11\n"
	"	movq 8(%rsi), %r12\n"
	"	rs_new_left %r11, %r14, 0, \\how\n"
	"	rs_new_left %r12, %r15, 8, \\how\n"
	/* Then r14 and r15: the points that are stored, ecx: their infos, places and lock. */
	"	rorq $8, %rcx\n"
	"	movq %r14, %r9\n"
	"	shrq $56, %r9\n"
	"	jz 2f\n"
	"	btl $UNALIGNED, %r10d\n"
	"	jc 1f\n"
	"	movq %r11, %r9\n" /* is it one point with another of its site? */
	"	xorq %r8, %r9\n"
	"	shlq $8, %r9\n"
	"	jnz 1f\n"
	"	cmpq %r11, %r14\n"
	"	jne 1f\n"
	"	cmpl 16(%rsi), %ebx\n"
	"	jne 1f\n"
	"	movl %r13d, %r9d\n"
	"	xorl %r10d, %r9d\n"
	"	testl $0x78, %r9d\n"
	"	jnz 1f\n"
	"	orq %rcx, %r14\n" /* the first stays where it is: so does its info */
	"	movzwl %r13w, %ecx\n"
	"	jmp 3f\n"
	"1:	movq %r15, %r9\n" /* the first becomes the second */
	"	shrq $56, %r9\n"
	"	jnz 9f\n"
	"	movq %r14, %r15\n"
	"	movl %r13d, %r9d\n"
	"	shll $8, %r9d\n"
	"	orl $1 << SECOND, %r10d\n"
	"	jmp 4f\n"
	"2:	movl %r13d, %r9d\n"
	"	movq %r15, %rbp\n"
	"	shrq $56, %rbp\n"
	"	jz 1f\n"
	"	movq %r12, %rbp\n" /* as above; which has the points change places */
	"	xorq %r8, %rbp\n"
	"	shlq $8, %rbp\n"
	"	jnz 4f\n"
	"	cmpl 20(%rsi), %ebx\n"
	"	je 9f\n"
	"	jmp 4f\n"
	"1:	xorl %r15d, %r15d\n"
	"4:	andl $0xff00, %r9d\n"
	"	movq %rcx, %r14\n"
	"	orq %r8, %r14\n"
	"	movl %edi, %ecx\n"
	"	andl $7, %ecx\n"
	"	movzbl %r10b, %ebp\n"
	"	orl %ebp, %ecx\n"
	"	orl %r9d, %ecx\n"
	"	jmp 5f\n"
	"3:	movq %r15, %r9\n"
	"	shrq $56, %r9\n"
	"	jnz 5f\n"
	"	xorl %r15d, %r15d\n"
	/* The page: rbp, cells behind its beginning. */
	"5:	leal (,%rdi,4), %r9d\n"
	"	andl $0x3fe0, %r9d\n"
	"	movq %rsi, %rbp\n"
	"	subq %r9, %rbp\n"
	"	movq rs_race_made_pages(%rip), %r9\n"
	"	cmpq %r9, rs_n_p_touched-rs_n_cells(%rbp)\n"
	"	jne .Lnew_touch_\\to\n"
	".Lnew_touched_\\to:\n"
	"	movl rs_n_p_stack-rs_n_cells(%rbp), %r9d\n"
	"	testl %r9d, %r9d\n"
	"	jnz 3f\n"
	/* What is noted of the access when it is told. */
	"4:	movq (%rsp), %r9\n"
	".if \\how == 0\n"
	"	movq %rsi, rs_n_read(%rdx)\n"
	"	movq %r14, rs_n_read+8(%rdx)\n"
	"	movq %rdi, rs_n_read+16(%rdx)\n"
	"	movq %r9, rs_n_read+24(%rdx)\n"
	".else\n"
	"	movq %rdi, rs_n_write+16(%rdx)\n"
	"	movq %r9, rs_n_write+24(%rdx)\n"
	".endif\n"
	"	movq %rdi, %r9\n"
	"	shrq $12, %r9\n"
	"	movl $1, %r8d\n"
	"	xchgb %r8b, 27(%rsi)\n"
	"rs_new_locked_\\to:\n" /* if r8b is 0 */
	"	testb %r8b, %r8b\n"
	"	jnz 9f\n"
	"	cmpq (%rsi), %r11\n"
	"	jne 8f\n"
	"	cmpq 8(%rsi), %r12\n"
	"	jne 8f\n"
	"	cmpw 24(%rsi), %r13w\n"
	"	jne 8f\n"
	"	cmpb $0, 26(%rsi)\n"
	"	jne 8f\n"
	"	cmpl $0, 28(%rsi)\n"
	"	jne 8f\n"
	"	cmpq %r9, rs_n_p_number-rs_n_cells(%rbp)\n"
	"	jne 8f\n"
	"	movq %rdi, %r9\n"
	"	shrq $6, %r9\n"
	"	movq rs_n_p_used-rs_n_cells(%rbp), %r11\n" /* race_use */
	"	btq %r9, %r11\n"
	"	jnc 8f\n"
	"	cmpl $0, rs_n_p_any_freed-rs_n_cells(%rbp)\n"
	"	jne .Lnew_freed_\\to\n"
	".Lnew_lives_\\to:\n"
	"	movl 20(%rsi), %r9d\n"
	"	testl %r10d, %r10d\n"
	"	jns 1f\n"
	"	movl 16(%rsi), %r9d\n"
	"1:	shlq $32, %r9\n"
	"	orq %r9, %rbx\n"
	"rs_new_stores_\\to:\n" /* from here on rs_new_view makes them all: as put_point, and the last one unlocks */
	"	movq %r15, 8(%rsi)\n"
	"	movq %rbx, 16(%rsi)\n"
	"	movq %r14, (%rsi)\n"
	"	movl %ecx, 24(%rsi)\n"
	"rs_new_told_\\to:\n"
	"	movq 8(%rdx), %r8\n"
	"	movq $0, rs_n_r_store_size(%r8)\n"
	"	testb %r10b, %r10b\n" /* of one that is no mov nothing is looked at */
	".if \\how == 0\n"
	"	jns 1f\n"
	"	leaq rs_n_read(%rdx), %r9\n"
	"	movq %r9, (%rdx)\n"
	"1:\n"
	".else\n"
	"	jns 1f\n"
	"	leaq rs_n_write(%rdx), %r9\n"
	"	movq %r9, (%rdx)\n"
	"	shrl $8, %r10d\n"
	"	movzbl %r10b, %r10d\n"
	"	movq %rdi, rs_n_r_store(%r8)\n"
	"	movq %r10, rs_n_r_store_size(%r8)\n"
	"1:\n"
	".endif\n"
	"	movb $0, rs_n_store_kind(%rdx)\n"
	"	btl $SPAN, %r10d\n"
	"	jc .Lnew_more_\\to\n"
	"	addb $127, %al\n"
	"rs_new_added_\\to:\n"
	"	sahf\n"
	"rs_new_found_\\to:\n"
	"	rs_new_back\n"
	"	rs_new_return\n"
	"rs_new_rest_\\to:\n"
	"3:	movq 8(%rdx), %r8\n" /* it is a part of a stack: somebody else's? */
	"	cmpl rs_n_r_number(%r8), %r9d\n"
	"	jne 9f\n"
	"	jmp 4b\n"
	".Lnew_more_\\to:\n"
	"	rs_new_back\n"
	"	andl $~(1 << SECOND), %r10d\n"
	"	movq (%r8), %r8\n"
	"	jmp .Lnew_next_\\to\n"
	".Lnew_lock_\\to:\n"
	"	cmpl $2, %r12d\n"
	"	ja 9f\n"
	"	movl %r12d, %ebx\n"
	"	shlq $4, %rbx\n"
	"	addq rs_n_held(%r9), %rbx\n"
	"	movq -16(%rbx), %rbx\n"
	"	shlq $7, %rbx\n"
	"	xorq %rbx, %r14\n"
	"	jmp .Lnew_place_\\to\n"
	".Lnew_held_\\to:\n" /* same_held */
	"	movq rs_n_held(%r9), %rbx\n"
	"	movq (%rbx), %r11\n"
	"	cmpq %r11, 48(%r14)\n"
	"	jne 9f\n"
	"	movq 8(%rbx), %r11\n"
	"	cmpq %r11, 56(%r14)\n"
	"	jne 9f\n"
	"	cmpl $1, %r12d\n"
	"	je .Lnew_stack_\\to\n"
	"	movq %r14, %r9\n"
	"	subq %rdx, %r9\n"
	"	subq $rs_n_sites, %r9\n"
	"	shrq $2, %r9\n"
	"	leaq rs_n_second(%rdx,%r9), %r9\n"
	"	movq 16(%rbx), %r11\n"
	"	cmpq %r11, (%r9)\n"
	"	jne 9f\n"
	"	movq 24(%rbx), %r11\n"
	"	cmpq %r11, 8(%r9)\n"
	"	jne 9f\n"
	"	jmp .Lnew_stack_\\to\n"
	".Lnew_touch_\\to:\n"
	"	movq %r9, rs_n_p_touched-rs_n_cells(%rbp)\n"
	"	jmp .Lnew_touched_\\to\n"
	"rs_new_freed_\\to:\n" /* freed_here; the cell is locked */
	".Lnew_freed_\\to:\n"
	"	testl $2, rs_n_p_any_freed-rs_n_cells(%rbp)\n" /* FREED_ALL */
	"	jnz 8f\n"
	"	movl %edi, %r9d\n"
	"	shrl $3, %r9d\n"
	"	andl $511, %r9d\n"
	"	movq %r14, %r11\n"
	"	shrq $56, %r11\n"
	"	testb %r11b, rs_n_p_freed-rs_n_cells(%rbp,%r9)\n"
	"	jz .Lnew_lives_\\to\n"
	"rs_new_failed_\\to:\n"
	"8:	movb $0, 27(%rsi)\n"
	"rs_new_end_\\to:\n"
	"9:	rs_new_back\n"
	"	btl $SPAN, %r10d\n"
	"	jnc 1f\n"
	"	movq -120(%rsp), %rdi\n"
	"1:\n"
	"	movq -56(%rsp), %r10\n"
	"	movq -48(%rsp), %r9\n"
	"	movq -40(%rsp), %r8\n"
	".cfi_restore_state\n"
	"	jmp rs_tell_slow\n"
	".endm\n"
	".text\n.p2align 6\n.globl rs_new_code\n.hidden rs_new_code\n.type rs_new_code, @function\n"
	"rs_new_code:\n"
	".cfi_startproc\n.cfi_def_cfa %rsp, 144\n.cfi_offset %rip, -144\n.cfi_offset %rdi, -136\n"
	".globl rs_new_span_read\n.hidden rs_new_span_read\n"
	"rs_new_span_read:\n"
	"	rs_new_span_for 0, r\n"
	".p2align 6\n.globl rs_new_r\n.hidden rs_new_r\n"
	"rs_new_r:\n"
	"	rs_new_for 0, r\n"
	".p2align 6\n.globl rs_new_span_write\n.hidden rs_new_span_write\n"
	"rs_new_span_write:\n"
	"	rs_new_span_for 1, w\n"
	".p2align 6\n.globl rs_new_w\n.hidden rs_new_w\n"
	"rs_new_w:\n"
	"	rs_new_for 1, w\n"
	".cfi_endproc\n"
	"rs_new_code_end:\n"
	".size rs_new_code, .-rs_new_code\n");

#define LABEL(name) extern const char name[] RS_HIDDEN
LABEL(rs_new_code); LABEL(rs_new_code_end);
LABEL(rs_new_saved_r); LABEL(rs_new_locked_r); LABEL(rs_new_stores_r); LABEL(rs_new_told_r); LABEL(rs_new_added_r); LABEL(rs_new_found_r); LABEL(rs_new_rest_r); LABEL(rs_new_freed_r); LABEL(rs_new_failed_r); LABEL(rs_new_end_r);
LABEL(rs_new_span_added_r); LABEL(rs_new_span_found_r); LABEL(rs_new_span_rest_r);
LABEL(rs_new_span_write);
LABEL(rs_new_span_added_w); LABEL(rs_new_span_found_w); LABEL(rs_new_span_rest_w);
LABEL(rs_new_saved_w); LABEL(rs_new_locked_w); LABEL(rs_new_stores_w); LABEL(rs_new_told_w); LABEL(rs_new_added_w); LABEL(rs_new_found_w); LABEL(rs_new_rest_w); LABEL(rs_new_freed_w); LABEL(rs_new_failed_w); LABEL(rs_new_end_w);

bool rs_new_has(uintptr_t pc) { return pc - (uintptr_t)rs_new_code < (uintptr_t)rs_new_code_end - (uintptr_t)rs_new_code; }

bool rs_new_view(greg_t *g, uintptr_t pc, bool *added)
{
	const struct { const char *saved, *locked, *stores, *told, *added, *found, *rest, *freed, *failed, *span_added, *span_found, *span_rest; } places[] = {
		{rs_new_saved_r, rs_new_locked_r, rs_new_stores_r, rs_new_told_r, rs_new_added_r, rs_new_found_r, rs_new_rest_r, rs_new_freed_r, rs_new_failed_r, rs_new_span_added_r, rs_new_span_found_r, rs_new_span_rest_r},
		{rs_new_saved_w, rs_new_locked_w, rs_new_stores_w, rs_new_told_w, rs_new_added_w, rs_new_found_w, rs_new_rest_w, rs_new_freed_w, rs_new_failed_w, rs_new_span_added_w, rs_new_span_found_w, rs_new_span_rest_w}}, *in = &places[pc >= (uintptr_t)rs_new_span_write];
	struct race_cell *c = (struct race_cell *)g[REG_RSI];
	if (pc >= (uintptr_t)in->stores && pc < (uintptr_t)in->told) {
		/* Some may have been made; until the last one, which unlocks, nobody else touches the cell. */
		__atomic_store_n(&c->e[1], (uint64_t)g[REG_R15], __ATOMIC_RELEASE);
		c->site[0] = (uint32_t)g[REG_RBX];
		c->site[1] = (uint32_t)((uint64_t)g[REG_RBX] >> 32);
		__atomic_store_n(&c->e[0], (uint64_t)g[REG_R14], __ATOMIC_RELEASE);
		__atomic_store_n(&c->info[0], (uint8_t)g[REG_RCX], __ATOMIC_RELEASE);
		__atomic_store_n(&c->info[1], (uint8_t)(g[REG_RCX] >> 8), __ATOMIC_RELEASE);
		race_unlock_cell(c);
	} else if (((pc >= (uintptr_t)in->locked && pc < (uintptr_t)in->stores) || (pc >= (uintptr_t)in->freed && pc <= (uintptr_t)in->failed)) && !(uint8_t)g[REG_R8])
		race_unlock_cell(c);
	if (pc >= (uintptr_t)in->saved) {
		const uint64_t *frame = (const uint64_t *)g[REG_RSP];
		g[REG_R11] = (greg_t)frame[-8];
		g[REG_RBX] = (greg_t)frame[-9];
		g[REG_R12] = (greg_t)frame[-10];
		g[REG_R13] = (greg_t)frame[-11];
		g[REG_R14] = (greg_t)frame[-12];
		g[REG_R15] = (greg_t)frame[-13];
		g[REG_RBP] = (greg_t)frame[-14];
	}
	*added = pc == (uintptr_t)in->added || pc == (uintptr_t)in->span_added;
	return !(pc >= (uintptr_t)in->found && pc < (uintptr_t)in->rest) && !(pc >= (uintptr_t)in->span_found && pc < (uintptr_t)in->span_rest);
}
