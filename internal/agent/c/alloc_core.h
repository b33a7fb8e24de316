/* alloc_core.h: what the files of the allocator share among themselves. */
#ifndef RS_ALLOC_CORE_H
#define RS_ALLOC_CORE_H
#include "alloc.h"
#include "calls.h"
#include "core.h"

enum {
	UNITS = RS_CHUNK / RS_UNIT,           /* of a chunk: one bit each in 64 */
	GRANULES = RS_CHUNK / 16,
	UNIT_WORDS = RS_UNIT / 16 / 64,       /* of a chunk's map of granules */
	CHUNKS_MOST = 1 << 18,
	HEAPS_MOST = 1 << 14,
	LEVELS = 7,                           /* longest run of free units: 1, 2 or 3, 4 to 7, … 64 */
};
_Static_assert(UNITS == 64, "a chunk's units are the bits of a word");

/* Blocks of one size, of which `free` are in the chunk's map and `fresh`, the last ones, were never handed out. */
struct span {
	uint32_t next, prev; /* in its bin's list; as rs_alloc_bin.first */
	uint16_t free, fresh, total;
	uint8_t units;
	uint8_t listed;
};

/* What is known of a chunk that is a heap's. Only under the heap's lock, but for what is atomic. */
struct chunk {
	uint64_t unit_free;      /* units in no span */
	uint64_t dirty[4];       /* pages that may not be zero; atomic */
	uint32_t next, prev, level; /* in its heap's list of that level */
	uint32_t pad;
	uint64_t run_bytes;      /* of a run's first chunk: the block's usable size */
	/* By other threads, atomically: blocks they freed (remote), in which units there are some, and whether the chunk is in its heap's list of such. */
	uint64_t remote_units;
	uint32_t remote_next, remote_queued;
	uint64_t spare[6];
	struct span span[UNITS]; /* at a span's first unit */
	uint8_t rest[4096 - 128 - 16 * UNITS];
	uint64_t free[GRANULES / 64];   /* a free block begins at this granule */
	uint64_t remote[GRANULES / 64];
};
_Static_assert(sizeof(struct chunk) == 5 * 4096, "whole pages: of what is not used none is touched");

extern struct rs_alloc_tables {
	struct chunk *chunk;
	struct rs_alloc_heap *heap[HEAPS_MOST]; /* by id; [0] none */
	uint32_t heaps;                         /* ids given so far, +1 */
	uint32_t lock;                          /* 0 in rs_alloc_order: chunks, the list of heaps */
	uint32_t chunks;                        /* of the range */
	uint32_t size[RS_ALLOC_CLASSES];
	uint8_t units[RS_ALLOC_CLASSES];        /* of a span */
	uint16_t total[RS_ALLOC_CLASSES];       /* blocks of a span */
	uint16_t cap[RS_ALLOC_CLASSES];         /* of a heap's stack of free blocks */
	bool boxed;
} rs_alloc_tables RS_HIDDEN;
#define T rs_alloc_tables
#define V rs_alloc

static inline uint32_t chunk_index(uintptr_t p) { return (uint32_t)((p - V.base) >> RS_CHUNK_BITS); }
static inline uint32_t unit_index(uintptr_t p) { return (uint32_t)((p - V.base) >> RS_UNIT_BITS); }
static inline struct chunk *chunk_at(uint32_t i) { return &T.chunk[i]; }
static inline uintptr_t chunk_address(uint32_t i) { return V.base + ((uintptr_t)i << RS_CHUNK_BITS); }
static inline uintptr_t unit_address(uint32_t u) { return V.base + ((uintptr_t)u << RS_UNIT_BITS); }
static inline struct span *span_at(uint32_t unit) { return &T.chunk[unit / UNITS].span[unit % UNITS]; }

/* Where the allocator itself accesses what lies at p. */
static inline uintptr_t seen(uintptr_t p) { return p + rs_alloc_source.away; }

/* Not 0: the pages are as they were. In a sandbox the program's filter may not know the call. */
static inline long purge(uintptr_t at, size_t bytes) { return rs_sandboxed ? -1 : rs_alloc_source.purge(at, bytes); }

/* Not the first: two blocks in 32 bytes would have one place in heap.c's table, and be forgotten, where glibc has none of less than 32 either. */
static inline unsigned class_of(size_t n) /* 0 < n ≤ RS_ALLOC_LARGEST */
{
	if (n <= 32)
		return 1;
	if (n <= 128)
		return (unsigned)((n - 1) >> 4);
	if (n > 2 * RS_UNIT)
		return RS_ALLOC_WHOLE - 2 + (unsigned)((n - 1) >> RS_UNIT_BITS);
	unsigned e = 63 - (unsigned)__builtin_clzll(n - 1);
	return 8 + (e - 7) * 8 + (unsigned)((n - 1) >> (e - 3) & 7);
}

/* alloc.c */
void rs_alloc_lock(uint32_t *lock, uint32_t id) RS_HIDDEN;
void rs_alloc_unlock(uint32_t *lock) RS_HIDDEN;
/* The calling thread's heap, had for it if it has none; NULL: it can have none now. Until rs_alloc_leave the quick paths find an empty heap, and a handler that comes in between none. */
struct rs_alloc_heap *rs_alloc_enter(void) RS_HIDDEN;
void rs_alloc_leave(struct rs_alloc_heap *h) RS_HIDDEN;
void rs_alloc_abort(const char *what) RS_HIDDEN __attribute__((noreturn));

/* allocslab.c, all on the heap's own thread, between rs_alloc_enter and rs_alloc_leave. */
/* A block; 0: no memory. */
uintptr_t rs_slab_refill(struct rs_alloc_heap *h, unsigned class) RS_HIDDEN;
/* Makes room on the stack of a class; all: empties it. */
void rs_slab_flush(struct rs_alloc_heap *h, unsigned class, bool all) RS_HIDDEN;
/* Of p, a block of RS_ALLOC_WHOLE or a larger class, is made one of `class`, larger still, where it lies; false: what is behind it is in use. */
bool rs_slab_extend(struct rs_alloc_heap *h, uintptr_t p, unsigned class) RS_HIDDEN;
/* p goes back to its heap, which is not h. */
void rs_slab_remote(uintptr_t p) RS_HIDDEN;
void rs_slab_collect(struct rs_alloc_heap *h) RS_HIDDEN;
/* Gives all back that can be: at the thread's end. */
void rs_slab_idle(struct rs_alloc_heap *h) RS_HIDDEN;
void rs_slab_purge(struct rs_alloc_heap *h) RS_HIDDEN; /* locked */
/* All of the block's pages were zero when it was handed out, and it never was before. */
bool rs_slab_clean(uintptr_t p, size_t n) RS_HIDDEN;
void rs_slab_dirty(uintptr_t p, size_t n) RS_HIDDEN;
/* Is p a block of a span that is out, as far as its heap's maps know? */
bool rs_slab_out(uintptr_t p) RS_HIDDEN;

/* allochuge.c */
/* k chunks in a row, the first at a multiple of `align` chunks, for heap `owner`; clean: all are zero. UINT32_MAX: no memory. zeroed may be NULL. */
uint32_t rs_run_take(uint32_t k, uint32_t align, uint32_t owner, bool *clean) RS_HIDDEN;
void rs_run_give(uint32_t first, uint32_t k, uint32_t owner, bool dirty) RS_HIDDEN;
uintptr_t rs_huge_alloc(struct rs_alloc_heap *h, size_t n, size_t align, bool *clean) RS_HIDDEN;
void rs_huge_free(uintptr_t p) RS_HIDDEN;
/* In place, or moved; 0: there is no memory, or n is not huge: the old block stays. */
uintptr_t rs_huge_resize(struct rs_alloc_heap *h, uintptr_t p, size_t n) RS_HIDDEN;
bool rs_runs_purge(void) RS_HIDDEN;
void rs_runs_count(struct rs_alloc_counts *c) RS_HIDDEN;
/* notes: with V.note. */
long rs_runs_begin(uintptr_t bytes, bool notes) RS_HIDDEN;

/* alloc.c: all locks, for at most so long; false: they cannot be had, or this thread is in the allocator. */
bool rs_alloc_still(unsigned ms) RS_HIDDEN;
void rs_alloc_go(void) RS_HIDDEN;

/* allocguard.c: in place of rs_plain_alloc and rs_plain_free where V.extra. */
enum { RS_QUARANTINED = 1 << 14 };
/* word: the block's last one; class: of its unit. n: what is kept is no longer than quarantine_bytes, which are less than 4 GiB. */
struct rs_kept { uintptr_t block; uint64_t word; uint32_t n, alloc_stack, free_stack; uint16_t free_thread; uint8_t class; };
struct rs_quarantine {
	size_t bytes;
	uint32_t first, end; /* counted, of kept by RS_QUARANTINED; one store each makes a block be in or out */
	struct rs_kept kept[RS_QUARANTINED];
};
struct rs_alloc_wrongs { unsigned n; struct rs_alloc_wrong e[4]; }; /* more are not told */
void rs_alloc_guard_begin(uint32_t word) RS_HIDDEN;
void *rs_alloc_guard_alloc(struct rs_alloc_heap *h, size_t n, size_t align, bool zero) RS_HIDDEN;
void rs_alloc_guard_free(struct rs_alloc_heap *h, void *p, unsigned when, struct rs_alloc_wrongs *out) RS_HIDDEN;
bool rs_alloc_guard_resize(struct rs_alloc_heap *h, uintptr_t *block, size_t n, struct rs_alloc_wrongs *out) RS_HIDDEN;
size_t rs_alloc_guard_usable(uintptr_t p) RS_HIDDEN;
/* What a block's last word says; NONE: nothing. */
enum rs_guard_state { RS_GUARD_NONE, RS_GUARD_LIVE, RS_GUARD_GONE };
enum rs_guard_state rs_guard_state(uintptr_t p, size_t size, size_t *n) RS_HIDDEN;
size_t rs_guard_whole(uintptr_t p) RS_HIDDEN; /* 0: no block */
/* Something is wrong with a block that is out, or kept. */
bool rs_guard_look(uintptr_t p, struct rs_alloc_wrong *w) RS_HIDDEN;
bool rs_guard_look_freed(const struct rs_kept *k, struct rs_alloc_wrong *w) RS_HIDDEN;
uint32_t rs_kept_alloc_thread(const struct rs_kept *k) RS_HIDDEN;
/* In a forked child; torn: its parent had other threads. */
void rs_alloc_guard_fork(bool torn) RS_HIDDEN;
/* Those that are kept stay so for ever. */
void rs_alloc_guard_forget(struct rs_quarantine *q) RS_HIDDEN;

/* p goes home under its heap's lock. */
void rs_slab_home(uintptr_t p) RS_HIDDEN;

/* alloc.c, without guard bytes and quarantine; entered. */
void *rs_plain_alloc(struct rs_alloc_heap *h, size_t n, size_t align, bool zero) RS_HIDDEN;
void rs_plain_free(struct rs_alloc_heap *h, void *p) RS_HIDDEN; /* h NULL: a thread without */
#endif
