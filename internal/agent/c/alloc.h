/* alloc.h: the agent's own heap: what heap.c, sharing and guard use of it. docs/decisions.md, 38.
 *
 * One reserved range of addresses, made of chunks. A chunk is one heap's, a heap one thread's (or, for the moment, nobody's). Small blocks lie in spans of one size each,
 * larger ones in runs of chunks of their own. What the allocator knows lies beside the range: it never touches the program's pages, but where the program asks for it (calloc, realloc's
 * copy, guard bytes). Each heap has for each size a stack of free blocks, which no other thread sees; only what goes beyond it takes the heap's lock. */
#ifndef RS_ALLOC_H
#define RS_ALLOC_H
#include "agent.h"

enum {
	RS_CHUNK_BITS = 20,
	RS_UNIT_BITS = 14,                /* spans are of whole units */
	RS_CHUNK = 1 << RS_CHUNK_BITS,
	RS_UNIT = 1 << RS_UNIT_BITS,
	RS_ALLOC_CLASSES = 102,           /* 16 to 128 by 16, then eight to each power of two up to 32 KiB, then by units up to RS_ALLOC_LARGEST */
	RS_ALLOC_LARGEST = 512 << 10,
	RS_ALLOC_QUICK = 1024,            /* up to here the class is had from a table */
	RS_ALLOC_PAGED = 48,              /* the first class of more than a page, 4608: of these it is known which pages are zero */
	RS_ALLOC_WHOLE = 72,              /* the first class of which a block is a span of its own */
	RS_ALLOC_HUGE = 0xff,             /* as a unit's class: a run of chunks begins here */
};

/* --- where pages come from ---------------------------------------------------------------------------------------------- */

/* Whole chunks. Not called once the program is in a sandbox: what would need them is then libc's. May be changed before rs_alloc_begin, or by who sees to it that no thread allocates meanwhile. Called with locks of the allocator held: none
 * of them may allocate. Those that return a long return 0 or a negative errno. */
struct rs_alloc_source {
	/* From now on this is memory of heap `owner`, readable, writable and zero. */
	long (*commit)(uintptr_t at, size_t bytes, uint32_t owner);
	/* It is nobody's, has no pages, and faults. */
	void (*decommit)(uintptr_t at, size_t bytes);
	/* It keeps its owner and is zero; part of chunks, whole pages. Not 0: it is as it was. */
	long (*purge)(uintptr_t at, size_t bytes);
	/* Committed memory passes from one heap to another; 0: nobody. */
	long (*hand)(uintptr_t at, size_t bytes, uint32_t from, uint32_t to);
	/* The pages at `from` are to be those at `to` (both committed, of the same heap), and `from` zero. Not 0: the caller copies. */
	long (*move)(uintptr_t from, uintptr_t to, size_t bytes);
	uintptr_t base, bytes; /* the range, whole chunks; 0: one is reserved */
	uintptr_t away;        /* to where the allocator itself accesses what blocks hold (calloc, realloc's copy): the same pages, which nobody is denied */
	bool (*not_for)(uintptr_t pc); /* whether what asks for a block is to have libc's; NULL: nobody */
	bool (*common)(uintptr_t pc, void *fp); /* whether it is to be one of the common heap (rs_alloc_common), pc and fp as rs_stack_from has them; NULL: nobody's */
};
extern struct rs_alloc_source rs_alloc_source __attribute__((visibility("hidden")));

/* What two threads may do in either order they do under locks: 0 is that of chunks and heaps, others are heaps. With frees that go to the freeing thread all
 * addresses follow from each thread's own calls and the order in which each lock was had. `before` is called before a lock is sought (a re-execution waits there for its
 * turn), `after` when it is held, `free` when it is not any more. */
struct rs_alloc_order {
	void (*before)(uint32_t lock);
	void (*after)(uint32_t lock);
	void (*free)(void);
};
extern struct rs_alloc_order rs_alloc_order __attribute__((visibility("hidden")));

/* --- what everybody reads -------------------------------------------------------------------------------------------------- */

struct rs_alloc_bin {
	uintptr_t *top, *bottom, *limit; /* the stack of free blocks is [bottom, top), with room up to limit */
	uint32_t first, last;            /* spans with blocks that are on no stack; 0: none, else 1 + index of a unit */
};

/* Of one thread, or of none that lives. */
struct rs_alloc_heap {
	struct rs_alloc_bin bin[RS_ALLOC_CLASSES];
	uint32_t id;          /* 0: of nobody, and always empty */
	uint32_t lock;        /* alloc.c */
	uint32_t taken;       /* a thread has it */
	uint32_t seq;         /* odd while its thread is in the allocator */
	uint32_t level[8];    /* chunks by their longest run of free units: [i] 2^i or more, [7] none; 0: no chunk, else 1 + its index */
	uint32_t spare;       /* an empty chunk that is kept */
	uint32_t remote __attribute__((aligned(64))); /* chunks with blocks that other threads freed; 1 + index */
	struct rs_quarantine *quarantine;
};

struct rs_alloc_view {
	uintptr_t base, limit; /* chunks of [base, base+limit) have been used */
	uint16_t *unit;        /* low byte: 0, 1 + class, or RS_ALLOC_HUGE; high byte: units since the span's first */
	uint32_t *owner;       /* heap of each chunk, 0: nobody's */
	uint8_t foreign;       /* who frees a block has it; else it goes back to its heap */
	uint8_t extra;         /* blocks have guard bytes or go to quarantine */
	uint8_t on;            /* new blocks are had here */
	uint8_t torn;          /* a forked child of a process that had other threads: what is older than the fork need not be of one moment */
	uint8_t generation;    /* how many such forks, of parents and theirs; beyond a few, that many (allocguard.c) */
	uint32_t guard;        /* bytes behind each block */
	uintptr_t reserved;    /* bytes of the whole range */
	uint32_t *note;        /* where blocks have guard bytes: a word by 32 bytes of the range; see below */
};
extern struct rs_alloc_view rs_alloc __attribute__((visibility("hidden")));
extern uint8_t rs_alloc_class_of[RS_ALLOC_QUICK / 16 + 1] __attribute__((visibility("hidden")));
extern __thread struct rs_alloc_heap *rs_alloc_mine __attribute__((tls_model("initial-exec"), visibility("hidden")));

/* Is p in memory that was handed out here, at some time? */
static inline bool rs_alloc_has(uintptr_t p) { return p - rs_alloc.base < __atomic_load_n(&rs_alloc.limit, __ATOMIC_RELAXED); }
/* The heap that the page at p is of; 0: nobody's, or not of this allocator. */
static inline uint32_t rs_alloc_owner(uintptr_t p)
{
	return rs_alloc_has(p) ? __atomic_load_n(&rs_alloc.owner[(p - rs_alloc.base) >> RS_CHUNK_BITS], __ATOMIC_RELAXED) : 0;
}
/* The heap of the calling thread; 0: it has none yet. */
static inline uint32_t rs_alloc_own(void) { return rs_alloc_mine->id; }

/* --- the allocator ------------------------------------------------------------------------------------------------------------ */

/* word: Config.Allocator. False: it cannot be had, and says why; all else then is libc's. Before there are other threads. */
bool rs_alloc_begin(uint32_t word) __attribute__((visibility("hidden")));
/* New blocks are libc's from now on; those that are out stay ours. */
void rs_alloc_stop(void) __attribute__((visibility("hidden")));
/* The calling thread does not allocate any more, or hardly: its heap is for the next thread that needs one. */
void rs_alloc_thread_end(void) __attribute__((visibility("hidden")));
void rs_alloc_before_fork(void) __attribute__((visibility("hidden")));
/* Heaps of threads that are not here are for new ones. */
void rs_alloc_after_fork(bool child) __attribute__((visibility("hidden")));

/* As libc's functions of that name, errno included. Without memory or addresses they ask libc's. What is given back must be rs_alloc_has; if it is no block that is out,
 * these end the program as libc's do where they notice. */
void *rs_alloc_malloc_slow(size_t n) __attribute__((visibility("hidden")));
void *rs_alloc_calloc(size_t m, size_t n) __attribute__((visibility("hidden")));
void *rs_alloc_realloc(void *p, size_t n) __attribute__((visibility("hidden")));
void *rs_alloc_memalign(size_t align, size_t n) __attribute__((visibility("hidden")));
void rs_alloc_free_slow(void *p) __attribute__((visibility("hidden")));
/* As rs_alloc_free, of which nobody knows whether it is a block. */
void rs_alloc_free_doubtful(void *p) __attribute__((visibility("hidden")));
/* Ends the program with that text if p is for certain no block that is out. */
void rs_alloc_doubt(void *p, const char *what) __attribute__((visibility("hidden")));
size_t rs_alloc_usable_size(void *p) __attribute__((visibility("hidden")));
/* A block of a heap that is no thread's, which is had under a lock; freed as any other. NULL: there is none. */
void *rs_alloc_common(size_t n, size_t align, bool zero) __attribute__((visibility("hidden")));
/* A block with another size as one of that heap, the old one freed unless it is the same. NULL: nothing was done. */
void *rs_alloc_common_realloc(void *old, size_t n) __attribute__((visibility("hidden")));
/* The number of that heap; 0: nobody has asked for a block of it. */
extern uint32_t rs_alloc_common_heap __attribute__((visibility("hidden")));
bool rs_alloc_trim(void) __attribute__((visibility("hidden")));
struct rs_alloc_counts { size_t held, free, huge, huge_blocks, spans; }; /* bytes committed, bytes of them free, bytes and number of runs, spans */
void rs_alloc_count(struct rs_alloc_counts *c) __attribute__((visibility("hidden")));

/* The block that p is in, as far as it is known to be out: its beginning and usable size; its beginning also of one that is known not to be. Takes no lock; asked of a block that another thread gives back at the time, the answer
 * is the one before or after. */
bool rs_alloc_block_of(uintptr_t p, uintptr_t *block, size_t *size) __attribute__((visibility("hidden")));

/* --- guard bytes, quarantine (allocguard.c, alloccheck.c) ---------------------------------------------------------------------- */

/* What is noted of a block that has guard bytes, apart from it: its upper bits how many more than V.guard these are, and one more (0: of no block, all ones: too many), its lower ones the stack of its allocation (0: not known). No other block has that word, as none is
 * shorter than 32 bytes; so it is known of each for as long as it lives, where heap.c's table has recent ones alone. Of a stack that has no such number (a child's child's child's child) nothing is noted. */
enum { RS_NOTE_STACK = (1 << 23) - 1, RS_NOTE_LENGTH_MOST = (1 << 9) - 1 };
static inline uint32_t *rs_alloc_note_of(uintptr_t p) { return &rs_alloc.note[(p - rs_alloc.base) / 32]; }
/* By who had p just now, and nobody else knows it. */
static inline void rs_alloc_note_stack(uintptr_t p, uint32_t stack)
{
	if (rs_alloc.note && rs_alloc_has(p) && stack <= RS_NOTE_STACK)
		__atomic_store_n(rs_alloc_note_of(p), (*rs_alloc_note_of(p) & ~(uint32_t)RS_NOTE_STACK) | stack, __ATOMIC_RELAXED);
}
/* Is p a block that is out, and its length, as asked for, and stack known? Takes no lock. */
bool rs_alloc_noted(uintptr_t p, size_t *n, uint32_t *stack) __attribute__((visibility("hidden")));

/* What guard bytes are filled with, and freed blocks: byte i of the word at addresses of i modulo 8. */
#define RS_GUARD_WORD 0xc7c5c3c1cfcdcbc9ull
#define RS_FREED_WORD 0xd7d5d3d1dfdddbd9ull

/* What is wrong with a block. */
struct rs_alloc_wrong {
	uintptr_t block;
	size_t size;          /* as asked for; known false: at most */
	uintptr_t first;      /* wrong byte */
	uintptr_t next;       /* where the block behind it begins, 0: none is known */
	uint32_t wrong;       /* bytes, as far as is looked; at least 1 */
	uint32_t shown;       /* of the bytes at first */
	uint8_t was[16], is[16];
	bool known, freed;
	bool more;            /* of the guard's last eight bytes some are wrong, too, or, where first is there, only these */
	bool apart;           /* the bytes next to the block are as they were: more likely a write in front of the next */
	uint8_t when;         /* enum Noticed */
	uint32_t alloc_thread, alloc_stack, free_thread, free_stack; /* 0: not known */
	uintptr_t pc;         /* of the call that noticed, and its frame, as rs_stack_from has them; 0: none */
	void *fp;
};

/* Looks at the guard bytes of blocks that are out, and at those in quarantine, `most` of them, and calls found for each that is not as it was left, with the allocator's locks held. Other threads may run; the calling one must not be in the allocator.
 * Returns how many there were; -1: it was not looked. */
long rs_alloc_check(size_t most, void (*found)(void *arg, const struct rs_alloc_wrong *w), void *arg) __attribute__((visibility("hidden")));
/* What is known of the block that p lies in, or behind, up to where the next one can begin: it is out, or kept back since it was freed. Takes no lock; of w block, size, known, freed, threads and stacks are set. */
bool rs_alloc_at(uintptr_t p, struct rs_alloc_wrong *w) __attribute__((visibility("hidden")));
/* Calls fn for each block that is kept back since it was freed, of each heap the last one first until it says false. Takes no lock: the world is stopped. */
void rs_alloc_each_kept(bool (*fn)(const struct rs_alloc_wrong *w)) __attribute__((visibility("hidden")));
/* As rs_alloc_check, of one block that is out, by its owner; the first wrong byte, or 0. *n: the length asked for (if that can still be told; else 0). */
uintptr_t rs_alloc_check_block(uintptr_t block, size_t *n) __attribute__((visibility("hidden")));

/* Called, if set, when a block with a wrong byte was freed or has left quarantine, outside the allocator. */
extern void (*rs_alloc_found)(const struct rs_alloc_wrong *w) __attribute__((visibility("hidden")));
/* Asked, if set, how long a block is whose guard bytes do not tell. */
extern bool (*rs_alloc_asked)(uintptr_t block, size_t *n) __attribute__((visibility("hidden")));
/* What the heap has said of itself before it ends the program in this thread; NULL: nothing. */
extern __thread const char *rs_alloc_says __attribute__((tls_model("initial-exec"), visibility("hidden")));
/* By who is about to free a block: what is known of it. */
struct rs_alloc_giving { uintptr_t block, pc; void *fp; uint32_t alloc_stack, free_stack; };
extern __thread struct rs_alloc_giving rs_alloc_giving __attribute__((tls_model("initial-exec"), visibility("hidden")));

/* Where blocks have guard bytes and rs_alloc.on: a block, without a lock and where nothing is unusual; NULL: not so. stack: of its note. */
void *rs_alloc_guard_quick(size_t n, bool zero, uint32_t stack) __attribute__((visibility("hidden")));
/* The block, which rs_alloc_has, is about to be freed. */
void rs_alloc_guard_prefetch(const void *p) __attribute__((visibility("hidden")));
/* Where blocks have guard bytes: rs_alloc_free, where nothing is unusual about the block and nothing wrong. The stacks are those of rs_alloc_giving. False: nothing was done. */
bool rs_alloc_guard_free_quick(void *p, uint32_t alloc_stack, uint32_t free_stack) __attribute__((visibility("hidden")));

/* --- quick paths ----------------------------------------------------------------------------------------------------------------- */

static inline void *rs_alloc_malloc(size_t n)
{
	if (RS_LIKELY(n <= RS_ALLOC_QUICK && !rs_alloc.extra)) {
		struct rs_alloc_bin *b = &rs_alloc_mine->bin[rs_alloc_class_of[(n + 15) >> 4]];
		uintptr_t *top = b->top;
		if (RS_LIKELY(top != b->bottom)) {
			uintptr_t p = *--top;
			b->top = top;
			return (void *)p;
		}
	}
	return rs_alloc_malloc_slow(n);
}

/* p: rs_alloc_has, and a block that is out. */
static inline void rs_alloc_free(void *p)
{
	uintptr_t at = (uintptr_t)p - rs_alloc.base;
	struct rs_alloc_heap *h = rs_alloc_mine;
	unsigned class = (rs_alloc.unit[at >> RS_UNIT_BITS] & 0xff) - 1u;
	if (RS_LIKELY(rs_alloc.owner[at >> RS_CHUNK_BITS] == h->id && class < RS_ALLOC_PAGED && !rs_alloc.extra)) {
		struct rs_alloc_bin *b = &h->bin[class];
		uintptr_t *top = b->top;
		if (RS_LIKELY(top != b->limit)) {
			*top = (uintptr_t)p;
			__asm__ volatile("" ::: "memory"); /* a child that is forked now sees either both or not the latter */
			b->top = top + 1;
			return;
		}
	}
	rs_alloc_free_slow(p);
}
#endif
