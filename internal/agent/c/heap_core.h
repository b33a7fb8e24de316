/* heap_core.h: the table of blocks that the files of the heap share: heap.c. */
#ifndef RS_HEAP_CORE_H
#define RS_HEAP_CORE_H
#include "agent.h"
#include <emmintrin.h>

#define BLOCK_BITS 19 /* 512 Ki entries, 8 MiB, touched as needed */
#define BIG_SIZE 4096 /* from here on a block is also in the tables of big ones */
#define BIG_SLOTS 256
#define BIG_LEVELS 5

/* In the low bits of an address. B_SITE: the stack is of an earlier call from the same place (site_stack). B_OBJECT: sync objects were seen in the block. B_NEW: an operator new handed it out that did not get it, as it is, from
 * malloc: it may lie in a block of malloc's, at its very beginning, too. */
enum { B_FREED = 1, B_SITE = 2, B_OBJECT = 4, B_NEW = 8 };

union block {
	__m128i v;
	struct {
		uint64_t addr; /* block | flags; 0: empty */
		uint32_t size; /* UINT32_MAX: that or more */
		uint32_t stack;
	};
};

extern union block *rs_heap_blocks RS_HIDDEN; /* NULL: not remembered (no session, no memory) */
/* Big blocks by size, each level's up to 16 times as long as those of the one before; so one that an address is in begins in one of the 17 granules below it.
 * In the last level are all others. */
extern union block (*rs_heap_bigs)[BIG_SLOTS] RS_HIDDEN;
extern bool rs_heap_big_used[BIG_LEVELS] RS_HIDDEN;
extern bool rs_heap_tombstones RS_HIDDEN; /* are believed */

static inline union block *slot_of(uintptr_t p)
{
	return &rs_heap_blocks[((p >> 5) ^ (p >> 24)) & ((1u << BLOCK_BITS) - 1)];
}
/* In assembler: of C's, compilers make two of 8 bytes. */
static inline union block load(const union block *b)
{
	union block r;
	__asm__ volatile("movdqa %1, %0" : "=x"(r.v) : "m"(b->v) : "memory");
	return r;
}
static inline void store(union block *b, uint64_t addr, size_t size, uint32_t stack)
{
	uint64_t rest = (size > UINT32_MAX ? UINT32_MAX : size) | (uint64_t)stack << 32;
	__m128i v = _mm_set_epi64x((long long)rest, (long long)addr);
	__asm__ volatile("movdqa %1, %0" : "=m"(b->v) : "x"(v) : "memory");
}
static inline unsigned big_level(size_t n)
{
	unsigned bits = n < UINT32_MAX ? 31 - (unsigned)__builtin_clz((unsigned)n) : 31;
	return (bits - 12) / 4;
}
static inline union block *big_of(unsigned level, uintptr_t p)
{
	uintptr_t granule = p >> (12 + 4 * level);
	return &rs_heap_bigs[level][(granule ^ granule >> 8) & (BIG_SLOTS - 1)];
}
_Static_assert(BIG_SIZE == 1 << 12 && (31 - 12) / 4 == BIG_LEVELS - 1, "levels of big blocks");

static inline bool lives(union block b, uintptr_t p) { return (b.addr & ~(uint64_t)15) == p && !(b.addr & B_FREED); }

/* --- heapwrong.c -------------------------------------------------------------------------------------------------------------- */

struct rs_alloc_wrong;
/* Is p, of which the table has `was`, a block that was freed? With guard bytes that is known of each as long as it is kept back; else of those with a tombstone, whose allocation is not. */
bool rs_heap_is_freed(uintptr_t p, union block was, struct rs_alloc_wrong *w) RS_HIDDEN;
/* A double free of it. site: the stack of its free is that of an earlier free from the same call. */
void rs_heap_freed_twice(struct rs_thread *t, const struct rs_alloc_wrong *w, bool site, uintptr_t pc, void *fp) RS_HIDDEN;
/* p was not found as a live block. True: it is certain that it is none, which is told. */
bool rs_heap_stranger(struct rs_thread *t, uintptr_t p, uintptr_t pc, void *fp) RS_HIDDEN;
/* The big block that p is in, as far as its level's table knows; addr 0: none. */
union block rs_heap_big_around(uintptr_t p) RS_HIDDEN;
/* The block below p of less than BIG_SIZE, or where a part of a block may be one, of any size; addr 0: none. */
union block rs_heap_small_around(uintptr_t p) RS_HIDDEN;
/* The length of a block of our own; of one of glibc's by the head before it, which glibc's free reads as well; 0: such a head no block has. malloc_usable_size does not ask that, and
 * crashes at what is no block, where the program natively ends by glibc's abort. Of the next head, if it is near: is this block said to be in use there? */
size_t rs_heap_length_by_head(uintptr_t p) RS_HIDDEN;
#endif
