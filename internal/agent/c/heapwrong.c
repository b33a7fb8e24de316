/* heapwrong.c: what is told of frees of what is no block, and of blocks that were freed already.
 *
 * Ground rules that bite here: heap.c's. What is told must be certain: what the table has forgotten is no evidence. */
#include "alloc.h"
#include "calls.h"
#include "core.h"
#include "evidence.h"
#include "heap.h"
#include "heap_core.h"
#include <link.h>

static uintptr_t image_lo, image_hi; /* the executable's static data, for invalid-free */

static int find_image(struct dl_phdr_info *info, size_t size, void *arg)
{
	(void)size, (void)arg;
	for (int i = 0; i < info->dlpi_phnum; i++) { /* the first object is the executable */
		const ElfW(Phdr) *h = &info->dlpi_phdr[i];
		if (h->p_type == PT_LOAD && (h->p_flags & PF_W)) {
			image_lo = info->dlpi_addr + h->p_vaddr;
			image_hi = image_lo + h->p_memsz;
		}
	}
	return 1;
}

/* site: `then` is the stack of an earlier free from the same call. */
static void misuse(struct rs_thread *t, unsigned what, void *p, uint32_t then, uint32_t by, unsigned result, uint64_t aux, uintptr_t pc, void *fp)
{
	uint32_t now = rs_stack_from(t, pc, fp, rs_config.stack_depth);
	rs_stack_tell(t, then);
	RS_EMIT_URGENT(t, MISUSE, misuse, (uintptr_t)p, RS_OBJECT_HEAP, what, (int32_t)result, now, then, aux, by);
}

bool rs_heap_is_freed(uintptr_t p, union block was, struct rs_alloc_wrong *w)
{
	if (rs_alloc.extra && rs_alloc_at(p, w))
		return w->freed && w->block == p;
	*w = (struct rs_alloc_wrong){.block = p, .size = was.size, .known = was.size && was.size != UINT32_MAX, .free_stack = was.stack};
	return rs_heap_tombstones && (was.addr & ~(uint64_t)15) == p && was.addr & B_FREED;
}

void rs_heap_freed_twice(struct rs_thread *t, const struct rs_alloc_wrong *w, bool site, uintptr_t pc, void *fp)
{
	if (w->known) {
		rs_stack_tell(t, w->alloc_stack);
		RS_EMIT(t, IN_BLOCK, in_block, w->block, w->block, w->size, w->alloc_stack, 0);
	}
	misuse(t, RS_MISUSE_DOUBLE_FREE, (void *)w->block, w->free_stack, w->free_thread, site, w->size, pc, fp);
}

/* The guard's own word on the block that p lies in, and where it was allocated, which the table no longer says of one that was freed. */
static bool guarded_around(struct rs_thread *t, uintptr_t p, struct rs_evidence *e)
{
	if (!rs_alloc.extra || !rs_evidence_block(t, p, e) || p - e->block >= (e->size ? e->size : 1))
		return false;
	RS_EMIT(t, IN_BLOCK, in_block, p, e->block, e->size, e->alloc_stack, 0);
	return true;
}

/* Of which bytes of the guard's a pointer is made: what it was read from is no pointer any more. */
static unsigned filling(uintptr_t p)
{
	enum { NEAR = 4096 };
	if (!rs_alloc.extra)
		return 0;
	return p - RS_FREED_WORD + NEAR < 2 * NEAR ? RS_CRASH_FLAG_FREED : p - RS_GUARD_WORD + NEAR < 2 * NEAR ? RS_CRASH_FLAG_BEHIND : 0;
}

/* Is p in our own heap, and where no block begins? */
static bool inside_ours(uintptr_t p)
{
	uintptr_t at = p;
	size_t n;
	rs_alloc_block_of(p, &at, &n);
	return at != p;
}

union block rs_heap_big_around(uintptr_t p)
{
	for (unsigned level = 0; level < BIG_LEVELS; level++) {
		if (!__atomic_load_n(&rs_heap_big_used[level], __ATOMIC_RELAXED))
			continue;
		bool last = level == BIG_LEVELS - 1;
		for (unsigned i = 0; i < (last ? BIG_SLOTS : 17); i++) {
			union block b = load(last ? &rs_heap_bigs[level][i] : big_of(level, p - ((uintptr_t)i << (12 + 4 * level))));
			uintptr_t at = b.addr & ~(uint64_t)15;
			if (at && p >= at && (b.size == UINT32_MAX ? p - at < 1ull << 40 : p - at < b.size))
				return b;
		}
	}
	return (union block){.addr = 0};
}

union block rs_heap_small_around(uintptr_t p)
{
	enum { PER_SLOT = 32 }; /* bytes; of two blocks that begin there only the newer is known */
	for (uintptr_t a = p & ~(uintptr_t)(PER_SLOT - 1), end = a > BIG_SIZE ? a - BIG_SIZE : 0; a > end; a -= PER_SLOT) {
		uint64_t addr = __atomic_load_n(&slot_of(a)->addr, __ATOMIC_RELAXED);
		if (RS_LIKELY(addr - a >= PER_SLOT) || addr > (p | 15))
			continue;
		union block b = load(slot_of(a));
		/* Nothing live that begins lower can reach over a block, live or freed. */
		if (b.addr - a < PER_SLOT)
			return !(b.addr & B_FREED) && (b.size == UINT32_MAX || p - (b.addr & ~(uint64_t)15) < b.size) ? b : (union block){.addr = 0};
	}
	return (union block){.addr = 0};
}

/* p, which is no block's beginning as far as we know, is inside a block that is known to live, and so it is none for certain: a block goes through our hands
 * before its memory is anybody else's. Parts of blocks, as operators new may hand out, prove nothing. */
static bool inside_block(uintptr_t p, union block *b)
{
	*b = rs_heap_small_around(p);
	if (!b->addr)
		*b = rs_heap_big_around(p);
	uintptr_t at = b->addr & ~(uint64_t)15;
	return at && p > at && b->size != UINT32_MAX && p - at < b->size && !(b->addr & B_NEW) && lives(load(slot_of(at)), at);
}

size_t rs_heap_length_by_head(uintptr_t p)
{
	enum { PREVIOUS_IN_USE = 1, MMAPPED = 2 };
	if (rs_alloc_has(p)) {
		uintptr_t block;
		size_t length;
		return rs_alloc_block_of(p, &block, &length) && block == p ? length : 0;
	}
	size_t head = *((const size_t *)p - 1), size = head & ~(size_t)7;
	if (size < 32 || size % 16 != 0 || size >= 1ull << 46)
		return 0;
	if (head & MMAPPED)
		return size - 16;
	uintptr_t next = p + size - 8;
	return next >> 12 == p >> 12 && !(*(const size_t *)next & PREVIOUS_IN_USE) ? 0 : size - 8;
}

bool rs_heap_stranger(struct rs_thread *t, uintptr_t p, uintptr_t pc, void *fp)
{
	if (!rs_heap_tombstones)
		return false;
	/* glibc aligns every block to 16, no block of its lies on a thread's stack, in the executable's data, or in another block. */
	if (!image_hi)
		dl_iterate_phdr(find_image, NULL);
	union block in = {.addr = 0};
	/* Blocks of whom we know too many to know all have a sane head: they are not searched for. */
	if (p % 16 != 0 || (p >= t->stack_lo && p < t->stack_hi) || (p >= image_lo && p < image_hi) || inside_ours(p) || (!rs_heap_length_by_head(p) && inside_block(p, &in))) {
		if (!rs_config.misuse)
			return true;
		struct rs_evidence e = {.freed = false};
		bool guarded = guarded_around(t, p, &e);
		if (!guarded && !in.addr && !inside_block(p, &in))
			in.addr = 0;
		uintptr_t at = guarded ? e.block : in.addr & ~(uint64_t)15;
		if (!guarded && at) {
			rs_stack_tell(t, in.stack);
			RS_EMIT(t, IN_BLOCK, in_block, p, at, in.size, in.stack, !!(in.addr & B_SITE));
		}
		misuse(t, RS_MISUSE_INVALID_FREE, (void *)p, e.freed ? e.free_stack : 0, e.freed ? e.free_thread : 0, filling(p), at, pc, fp);
		return true;
	}
	return false;
}
