/* sharefork.c: processes (share.h). What is shared memory to us is the program's own: a forked child gets a copy, made before the fork, when the thread that forks has seen all that the child may rely on.
 * In the child nothing is watched; instructions that are patched by then are judged. */
#include "share.h"
#include "patch.h"
#include "proc.h"
#include <errno.h>
#include <linux/memfd.h>
#include <linux/sysinfo.h>
#include <sys/mman.h>

static uintptr_t copy;         /* of the whole region; 0: there is none */
static struct rs_latch forking; /* one at a time has a copy made */
RS_TLS bool forks;

bool rs_share_swaps(void)
{
	struct sysinfo s = {0};
	return RS_SYS1(SYS_sysinfo, &s) < 0 || s.totalswap;
}

struct copying { uintptr_t to; bool all; };

/* By the mirror, which is open. A page that was never written is not there, and is not made by being looked at: mincore(2). */
static void copy_pages(uintptr_t at, size_t pages, void *arg)
{
	const struct copying *c = arg;
	enum { MANY = 256 };
	unsigned char here[MANY];
	uintptr_t mirror = rs_share.base + rs_share.away + at;
	for (size_t i = 0; i < pages; i += MANY) {
		size_t n = pages - i < MANY ? pages - i : MANY;
		bool known = !c->all && RS_SYS3(SYS_mincore, mirror + i * RS_PAGE, n * RS_PAGE, here) == 0;
		for (size_t k = 0; k < n; k++)
			if (!known || here[k] & 1)
				rs_os_copy((void *)(c->to + at + (i + k) * RS_PAGE), (const void *)(mirror + (i + k) * RS_PAGE), RS_PAGE);
	}
}

static void copy_one(struct share_block *b, void *arg) { copy_pages((uintptr_t)b->page << SHARE_PAGE_BITS, b->pages, arg); }

void rs_share_before_fork(void)
{
	if (!rs_share.base || forks)
		return;
	rs_latch_take(&forking);
	forks = true;
	long fd = RS_SYS2(SYS_memfd_create, "ripstop-heap", MFD_CLOEXEC), at = -1;
	if (fd >= 0 && RS_SYS2(SYS_ftruncate, fd, SHARE_BYTES) == 0)
		at = RS_SYS6(SYS_mmap, 0, SHARE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
	if (fd >= 0)
		RS_SYS1(SYS_close, fd);
	copy = at > 0 ? (uintptr_t)at : 0;
	if (!copy) {
		rs_os_say("no memory for a copy of what its child is to have: they share their heap and their variables", 0);
		return;
	}
	struct copying c = {copy, rs_share_swaps()};
	uint64_t mask = rs_os_no_signals();
	rs_lock(&rs_share_lock);
	rs_share_each(copy_one, &c);
	rs_share_heap_each(copy_pages, &c);
	rs_unlock(&rs_share_lock);
	rs_os_signals(mask);
}

void rs_share_after_fork(bool child)
{
	if (!rs_share.base || !forks)
		return;
	rs_share_lock.word = child ? 0 : rs_share_lock.word;
	if (copy && child) {
		enum { AGAIN = MREMAP_MAYMOVE | MREMAP_FIXED }; /* an old size of 0: one more mapping */
		RS_SYS5(SYS_mremap, copy, 0, SHARE_BYTES, AGAIN, rs_share.base);
		RS_SYS5(SYS_mremap, copy, 0, SHARE_BYTES, AGAIN, rs_share.base + rs_share.away);
		RS_SYS3(SYS_madvise, rs_share.base + rs_share.away, SHARE_BYTES, MADV_DONTDUMP);
		rs_share_maps_child(copy);
		rs_share_heap_child();
	}
	if (copy)
		RS_SYS2(SYS_munmap, copy, SHARE_BYTES);
	copy = 0;
	forks = false;
	if (child) {
		forking.word = 0;
		rs_share_retire(NULL);
	} else {
		rs_latch_give(&forking);
	}
}

/* --- on which stack ------------------------------------------------------------------------------------------------------------------------ */

void rs_share_fork_stack(uintptr_t sp) RS_HIDDEN;
void rs_share_fork_child(void) RS_HIDDEN;
/* What lies on the caller's stack is copied once more, now that it changes no more. */
__attribute__((used)) void rs_share_fork_stack(uintptr_t sp)
{
	enum { MOST = 16 << 10 }; /* of what changed since the copy was made, in glibc's fork and ours */
	uintptr_t offset, end;
	struct share_block *b;
	if (!copy)
		return;
	if (rs_share_has(sp)) {
		offset = sp - rs_share.base;
		end = rs_share.base + SHARE_BYTES;
	} else if (rs_share_bits(sp) & SHARE_GLOBAL && (b = rs_share_block(sp))) {
		offset = ((uintptr_t)b->page << SHARE_PAGE_BITS) + (sp - b->at);
		end = b->at + rs_share_bytes(b);
	} else {
		return;
	}
	rs_os_copy((void *)(copy + offset), (const void *)(sp + rs_share.away), end - sp < MOST ? end - sp : MOST);
}

__attribute__((used)) void rs_share_fork_child(void) { rs_share_after_fork(true); }

/* Makes the call {number, five arguments} on another stack. The caller's own may be watched memory, which a child has in common with its parent until it has its copy: it gets that first. */
long rs_share_fork_on(const long *call, uintptr_t top) RS_HIDDEN;
__asm__(".text\n.p2align 4\n.globl rs_share_fork_on\n.type rs_share_fork_on, @function\n"
	"rs_share_fork_on:\n"
	".cfi_startproc\n"
	"	pushq %rbp\n"
	".cfi_adjust_cfa_offset 8\n.cfi_offset %rbp, -16\n"
	"	movq %rsp, %rbp\n"
	".cfi_def_cfa_register %rbp\n"
	"	pushq %rbx\n"
	".cfi_offset %rbx, -24\n"
	"	movq %rdi, %rbx\n"
	"	leaq -8(%rbp), %rdi\n"
	"	movq %rsi, %rsp\n"
	"	call rs_share_fork_stack\n"
	"	movq (%rbx), %rax\n	movq 8(%rbx), %rdi\n	movq 16(%rbx), %rsi\n	movq 24(%rbx), %rdx\n	movq 32(%rbx), %r10\n	movq 40(%rbx), %r8\n"
	"	syscall\n"
	"	testq %rax, %rax\n"
	"	jnz 1f\n"
	"	call rs_share_fork_child\n"
	"	xorl %eax, %eax\n"
	"1:	movq -8(%rbp), %rbx\n"
	"	leave\n"
	".cfi_def_cfa %rsp, 8\n"
	"	ret\n"
	".cfi_endproc\n"
	".size rs_share_fork_on, .-rs_share_fork_on\n");

long rs_share_fork(const long *call)
{
	enum { STACK = 64 << 10 };
	bool within = forks; /* glibc's fork, whose handlers are ours */
	char *stack = rs_os_map(STACK);
	if (!stack)
		return -ENOMEM;
	uint64_t mask = rs_os_no_signals();
	rs_share_before_fork();
	uint32_t rights = share_rights();
	share_set_rights(0);
	long r = rs_share_fork_on(call, (uintptr_t)stack + STACK);
	if (r != 0) {
		share_set_rights(rights);
		if (!within)
			rs_share_after_fork(false);
	}
	rs_os_signals(mask);
	rs_os_unmap(stack, STACK);
	return r;
}

/* The child of a clone begins on a stack of ours, and comes to its own when that is its own. */
int rs_share_clone_on(uintptr_t top, int (*fn)(void *), void *arg) RS_HIDDEN;
__asm__(".text\n.p2align 4\n.globl rs_share_clone_on\n.type rs_share_clone_on, @function\n"
	"rs_share_clone_on:\n"
	".cfi_startproc\n"
	"	pushq %rbp\n"
	".cfi_adjust_cfa_offset 8\n.cfi_offset %rbp, -16\n"
	"	movq %rsp, %rbp\n"
	".cfi_def_cfa_register %rbp\n"
	"	movq %rdi, %rsp\n"
	"	andq $-16, %rsp\n"
	"	movq %rdx, %rdi\n"
	"	call *%rsi\n"
	"	leave\n"
	".cfi_def_cfa %rsp, 8\n"
	"	ret\n"
	".cfi_endproc\n"
	".size rs_share_clone_on, .-rs_share_clone_on\n");
