/* sharefork.c: processes (share.h). What is shared memory to us is the program's own: a forked child gets a copy, made before the fork, when the thread that forks has seen all that the child may rely on.
 * In the child nothing is watched; instructions that are patched by then are judged. */
#include "share.h"
#include "patch.h"
#include <linux/memfd.h>
#include <linux/sysinfo.h>
#include <sys/mman.h>

static uintptr_t copy;  /* of the whole region; 0: there is none */

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
	if (!rs_share.base)
		return;
	long fd = RS_SYS2(SYS_memfd_create, "ripstop-heap", MFD_CLOEXEC), at = -1;
	if (fd >= 0 && RS_SYS2(SYS_ftruncate, fd, SHARE_BYTES) == 0)
		at = RS_SYS6(SYS_mmap, 0, SHARE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
	if (fd >= 0)
		RS_SYS1(SYS_close, fd);
	copy = at > 0 ? (uintptr_t)at : 0;
	if (!copy) {
		rs_os_say("no memory for a copy of what its child is to have: they share their large blocks", 0);
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
	if (!rs_share.base)
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
	if (child)
		rs_share_retire(NULL);
}
