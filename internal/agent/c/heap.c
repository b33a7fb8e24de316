/* heap.c: the malloc family.
 *
 * Ground rules that bite here: malloc is called before the constructor, inside dlsym and dlopen, in fork children, at thread exit, and
 * (wrongly, but it happens) in signal handlers: nothing here locks, waits or allocates. The real allocator is whatever comes next in
 * the program's own lookup order, jemalloc or tcmalloc too; or, in place of glibc's, our own (alloc.h), for the blocks that it gave out. A program whose *executable* defines malloc never calls us.
 *
 * Blocks. A table of fixed size, indexed by address, remembers for recent blocks where they begin, how long they are, and the
 * stack of their allocation. It is a cache: a collision forgets the older block, and then nobody claims to know it. Each entry is one
 * aligned 16-byte store, which processors with AVX make atomic (Intel SDM vol. 3, 9.1.1; AMD64 APM vol. 2, 7.3.2), so threads never
 * see halves of two blocks. Freed blocks stay as tombstones until the address is handed out again: a free that finds a tombstone is
 * a double free for certain, provided that every way out of the allocator passes through here. That holds for glibc, whose own
 * callers of malloc go through the PLT; for other allocators (mallocx, …) it may not, nor where a library was loaded with RTLD_DEEPBIND, which calls glibc's
 * malloc past us: then tombstones are not believed.
 */
#include "alloc.h"
#include "calls.h"
#include "core.h"
#include "evidence.h"
#include "heap.h"
#include "heap_core.h"
#include "os.h"
#include "race.h"
#include <errno.h>
#include <gnu/libc-version.h>
#include <link.h>
#include <malloc.h>
#include <stdlib.h>

/* --- before rs_real is filled ---------------------------------------------------------------------------------------- */

/* dlsym and ld.so may allocate before we know the real malloc. Never given back; resident only as far as used. */
#define EARLY_BYTES (1u << 20)
static uint8_t early_area[EARLY_BYTES] __attribute__((aligned(4096)));
static size_t early_used;

struct early_head {
	size_t size;
	size_t pad;
};

bool rs_heap_is_early(const void *p)
{
	return (const uint8_t *)p >= early_area && (const uint8_t *)p < early_area + EARLY_BYTES;
}

void *rs_heap_early(size_t align, size_t n)
{
	if (align < 16)
		align = 16;
	if (n > EARLY_BYTES || align > 65536)
		return NULL;
	size_t need = sizeof(struct early_head) + align + ((n + 15) & ~(size_t)15);
	size_t at = __atomic_fetch_add(&early_used, need, __ATOMIC_RELAXED);
	if (at + need > EARLY_BYTES)
		return NULL;
	uintptr_t p = ((uintptr_t)early_area + at + sizeof(struct early_head) + align - 1) & ~(uintptr_t)(align - 1);
	((struct early_head *)p - 1)->size = n;
	return (void *)p;
}

size_t rs_heap_early_size(const void *p) { return ((const struct early_head *)p - 1)->size; }

static void copy(void *to, const void *from, size_t n)
{
	__asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(n) : : "memory");
}

/* --- blocks ------------------------------------------------------------------------------------------------------------- */

#define SITE_SLOTS 512
#define SITE_EXACT 32 /* so many allocations of a site are walked, then every SITE_EVERYth, and fewer the longer all walks agree */
#define SITE_EVERY 64
#define SITE_DOUBLED 4
#define FREE_EXACT 4 /* SITE_EXACT of frees that say nothing by themselves: only a second free of the block would ask for their stacks */
#define FREE_DEPTH 6 /* frames of these */

union block *rs_heap_blocks;
union block (*rs_heap_bigs)[BIG_SLOTS];
bool rs_heap_big_used[BIG_LEVELS], rs_heap_tombstones;
static bool parts; /* there was a block with B_NEW */
bool rs_bypassed;

struct site {
	uint64_t key;
	uint32_t stack;
	uint16_t walks; /* to SITE_EXACT; above it how often SITE_EVERY is doubled */
	uint16_t left;  /* uses of this stack before the next walk */
};

/* 1: the object holds a function that is nobody's but glibc's, and the allocator too; 2: that function only. The names __libc_malloc and
 * __libc_free prove nothing: tcmalloc and mimalloc define them. */
static int is_glibc(struct dl_phdr_info *info, size_t size, void *arg)
{
	(void)size, (void)arg;
	const uintptr_t wanted[] = {(uintptr_t)gnu_get_libc_version, (uintptr_t)rs_real.malloc, (uintptr_t)rs_real.free};
	unsigned found = 0;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *h = &info->dlpi_phdr[i];
		uintptr_t from = info->dlpi_addr + h->p_vaddr;
		for (unsigned k = 0; k < 3; k++)
			found |= (unsigned)(h->p_type == PT_LOAD && wanted[k] >= from && wanted[k] - from < h->p_memsz) << k;
	}
	return !(found & 1) ? 0 : found == 7 ? 1 : 2;
}

/* Called by the first thread with a session, before there are others or under the agent's init; idempotent. */
static bool blocks_ready(void)
{
	static int state; /* 0 not tried, 1 being tried, 2 there, 3 refused */
	int s = __atomic_load_n(&state, __ATOMIC_ACQUIRE);
	if (RS_LIKELY(s == 2))
		return true;
	if (s != 0 || !__atomic_compare_exchange_n(&state, &s, 1, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		return false;
	union block *b = rs_os_map(sizeof(union block) << BLOCK_BITS), *g = rs_os_map(sizeof *rs_heap_bigs * BIG_LEVELS);
	if (!b || !g) {
		__atomic_store_n(&state, 3, __ATOMIC_RELEASE);
		return false;
	}
	rs_heap_tombstones = dl_iterate_phdr(is_glibc, NULL) == 1 && !__atomic_load_n(&rs_bypassed, __ATOMIC_SEQ_CST);
	rs_heap_bigs = (union block (*)[BIG_SLOTS])g;
	__atomic_store_n(&rs_heap_blocks, b, __ATOMIC_RELEASE);
	__atomic_store_n(&state, 2, __ATOMIC_RELEASE);
	return true;
}

static bool refused; /* guard was asked for, with guard bytes, and the heap is libc's */
static bool foreign; /* guard was asked for, with guard bytes or epochs, and the heap is another allocator's */

/* Where the next allocator is not glibc's, the program may have other dealings with it. */
void rs_heap_begin(uint32_t word)
{
	if (!word)
		return;
	bool guard = word >> 8;
	if (dl_iterate_phdr(is_glibc, NULL) != 1) {
		foreign = guard || rs_config.guard;
		if (!foreign)
			rs_os_say("its heap is that of another allocator than libc's, and not the agent's own", 0);
	} else {
		refused = !rs_alloc_begin(word) && guard;
		if (guard && !refused)
			rs_evidence_begin();
	}
}

bool rs_heap_foreign(void) { return foreign; }

/* Without guard bytes no block is looked at, whoever hands it out. */
void rs_heap_begun(struct rs_thread *t)
{
	if (foreign && rs_config.allocator >> 8)
		rs_notice(t, RS_NOTICE_FOREIGN_HEAP, 0, 0);
	if (refused)
		rs_notice(t, RS_NOTICE_LIBC_HEAP, ENOMEM, 0);
	rs_heap_say_past(t);
}

/* Blocks of ours are for libc's free a mistake: there are to be no more of them. */
void rs_heap_bypassed(void)
{
	rs_alloc_stop();
	rs_race_blocks_unseen();
	__atomic_store_n(&rs_bypassed, true, __ATOMIC_SEQ_CST);
	__atomic_store_n(&rs_heap_tombstones, false, __ATOMIC_SEQ_CST);
}

/* Blocks of one size after the other touch a page of the table each few dozen: it is had by larger pieces, where there is more than a little. */
static void have_slots(const union block *b)
{
	enum { PIECE = 1 << 16, LITTLE = 64 };
	static uint32_t calls;
	static uint64_t had[((sizeof(union block) << BLOCK_BITS) / PIECE + 63) / 64];
	if (calls < LITTLE) {
		calls++; /* several threads at once do no harm */
		return;
	}
	uint64_t piece = (uint64_t)(b - rs_heap_blocks) * sizeof *b / PIECE, bit = 1ull << piece % 64;
	if (__atomic_load_n(&had[piece / 64], __ATOMIC_RELAXED) & bit || __atomic_fetch_or(&had[piece / 64], bit, __ATOMIC_RELAXED) & bit)
		return;
	rs_region_present((char *)rs_heap_blocks + piece * PIECE, PIECE);
}

static inline struct site *site_of(struct site *sites, uintptr_t pc, void *fp, uint64_t *key)
{
	*key = (pc ^ (uintptr_t)fp << 24) * 0x9e3779b97f4a7c15ull;
	return &sites[*key >> 55];
}
_Static_assert(SITE_SLOTS == 1 << (64 - 55), "the key's upper bits choose a site");

/* FREE_WHOLE: of a block that may have objects, of which there may be something to say: sites of their own, as the quick functions use the others. */
enum walked { GOT, FREE_BRIEF, FREE_WHOLE };

/* Frames of the stack of an allocation or free of a block that has guard bytes. */
static unsigned guarded_depth(void) { return rs_config.heap ? rs_config.alloc_depth : 0; }

extern const char __ehdr_start[] RS_HIDDEN, _end[] RS_HIDDEN;
static inline bool ours(uintptr_t pc) { return pc - (uintptr_t)__ehdr_start < (uintptr_t)_end - (uintptr_t)__ehdr_start; }

/* libstdc++'s operator delete jumps to free, which our operator has then called: who gives the block back is the program. Frames of ours keep rbp. */
static inline void past_ours(uintptr_t *pc, void **fp)
{
	enum { FRAMES = 4 /* an operator that is called by another one */, NEAR = 4096 };
	for (int i = 0; i < FRAMES && RS_UNLIKELY(ours(*pc)); i++) {
		uint64_t *up = *(uint64_t **)*fp;
		if ((uintptr_t)up - (uintptr_t)*fp - 1 >= NEAR || (uintptr_t)up % 8)
			return;
		*pc = up[1], *fp = up;
	}
}

/* The stack of an allocation or free: walked for the first ones of a call site (return address and stack depth), later the site's. Not used where all
 * events are sent: a thread with sites is one that the quick functions below are for. */
static uint32_t site_stack(struct rs_thread *t, uintptr_t pc, void *fp, enum walked walked, bool *reused)
{
	*reused = false;
	if (rs_alloc.extra) /* with guard bytes blocks are what reports are about: their stacks are exact */
		return rs_stack_kept(t, pc, fp, guarded_depth());
	if (!t->heap_recent && !(t->heap_recent = rs_os_map_numbered(RS_OS_RECENT(t->number), sizeof(struct site) * SITE_SLOTS)))
		return 0;
	uint64_t key;
	struct site *s = site_of(t->heap_recent, pc + (walked == FREE_WHOLE), fp, &key);
	if (s->key != key) {
		s->key = key;
		s->walks = s->left = 0;
	} else if (s->left) {
		s->left--;
		*reused = true;
		return s->stack;
	}
	unsigned depth = rs_config.heap ? rs_config.alloc_depth : 0;
	uint32_t stack = rs_stack_kept(t, pc, fp, walked == FREE_BRIEF && depth > FREE_DEPTH ? FREE_DEPTH : depth);
	if (s->walks < SITE_EXACT) {
		s->walks = (uint16_t)(walked == FREE_BRIEF && s->walks == FREE_EXACT ? SITE_EXACT : s->walks + 1);
	} else {
		if (stack != s->stack)
			s->walks = SITE_EXACT;
		else if (s->walks < SITE_EXACT + SITE_DOUBLED)
			s->walks++;
		s->left = (uint16_t)((SITE_EVERY << (s->walks - SITE_EXACT)) - 1);
	}
	return s->stack = stack;
}

enum { QUICK_LEAST = sizeof(pthread_spinlock_t) };

/* With guard bytes: the stack of an allocation of n bytes that is quick; 0: it is not. */
static inline uint32_t stack_guarded(size_t n, uintptr_t pc, void *fp)
{
	const struct rs_thread *t = rs_thread_tls;
	return RS_UNLIKELY(rs_config.all || !t || !rs_heap_blocks || n - QUICK_LEAST >= BIG_SIZE - QUICK_LEAST) ? 0 : rs_stack_again(t, pc, fp, guarded_depth());
}

/* got_quickly with guard bytes. */
static inline bool got_guarded(void *p, size_t n, uintptr_t pc, void *fp)
{
	uint32_t stack = p ? stack_guarded(n, pc, fp) : 0;
	if (RS_LIKELY(stack)) {
		store(slot_of((uintptr_t)p), (uintptr_t)p, n, stack);
		rs_alloc_note_stack((uintptr_t)p, stack);
	}
	return stack;
}

/* Nearly all allocations under `run` end here: nothing but this thread's and the block's own memory is touched. False: not this one. No rs_self: the block
 * is handed out, whoever looks on. */
static inline bool got_quickly(void *p, size_t n, uintptr_t pc, void *fp)
{
	struct rs_thread *t = rs_thread_tls;
	if (RS_UNLIKELY(rs_alloc.extra))
		return got_guarded(p, n, pc, fp);
	if (RS_UNLIKELY(!t || !t->heap_recent || n - QUICK_LEAST >= BIG_SIZE - QUICK_LEAST || rs_config.all))
		return false;
	uint64_t key;
	struct site *s = site_of(t->heap_recent, pc, fp, &key);
	if (RS_UNLIKELY(s->key != key || !s->left))
		return false;
	s->left--;
	store(slot_of((uintptr_t)p), (uintptr_t)p | B_SITE, n, s->stack);
	return true;
}

/* A sync object in the block is one that the thread holds. */
static inline bool holds_in(const struct rs_thread *t, uintptr_t p, size_t n)
{
	for (uint32_t i = 0; i < t->held_count; i++)
		if (RS_UNLIKELY(t->held[i].obj - p < n))
			return true;
	return false;
}

/* Of a block with entry `was`: it is known and lives, no sync object was ever seen in it, nor is one that this thread holds. */
static inline bool is_plain(const struct rs_thread *t, union block was, uintptr_t p)
{
	enum { FEW = 4 };
	return (was.addr & ~(uint64_t)B_SITE) == p && was.size < BIG_SIZE && t->held_count <= FEW && !holds_in(t, p, was.size);
}

/* The same of a block that is plain. */
static inline bool given_quickly(void *p, uintptr_t pc, void *fp, uint32_t *alloc_stack, uint32_t *free_stack)
{
	struct rs_thread *t = rs_thread_tls;
	if (RS_UNLIKELY(!t || !rs_heap_blocks || !t->heap_recent || rs_config.all))
		return false;
	union block *b = slot_of((uintptr_t)p), was = load(b);
	if (RS_UNLIKELY(!is_plain(t, was, (uintptr_t)p)))
		return false;
	uint64_t key;
	struct site *s = site_of(t->heap_recent, pc, fp, &key);
	if (RS_UNLIKELY(s->key != key || !s->left))
		return false;
	s->left--;
	*alloc_stack = was.stack;
	*free_stack = s->stack;
	store(b, (uintptr_t)p | B_FREED | B_SITE, was.size, s->stack);
	return true;
}

/* With guard bytes. */
static inline bool given_guarded(void *p, uintptr_t pc, void *fp, uint32_t *alloc_stack, uint32_t *free_stack)
{
	const struct rs_thread *t = rs_thread_tls;
	if (RS_UNLIKELY(!t || !rs_heap_blocks || rs_config.all || !rs_config.misuse))
		return false;
	union block *b = slot_of((uintptr_t)p), was = load(b);
	if (RS_UNLIKELY(!is_plain(t, was, (uintptr_t)p)))
		return false;
	uint32_t stack = rs_stack_again(t, pc, fp, guarded_depth());
	if (RS_UNLIKELY(!stack))
		return false;
	*alloc_stack = was.stack;
	*free_stack = stack;
	store(b, (uintptr_t)p | B_FREED, was.size, stack);
	return true;
}

/* Where all events are sent: the block that this thread's malloc handed out last, and the one that its operator delete is giving back. An operator of
 * the C++ runtime calls malloc or free, and one allocation is told once. */
RS_TLS void *last_got, *giving;

void rs_heap_operator(void)
{
	if (rs_config.all)
		last_got = giving = NULL;
}

__attribute__((noinline)) void rs_heap_got(void *p, size_t n, unsigned kind, uintptr_t pc, void *fp)
{
	if (!p || !rs_active)
		return;
	bool new = kind == RS_ALLOC_NEW || kind == RS_ALLOC_NEW_ARRAY;
	if (new && (rs_config.all ? last_got == p : rs_heap_blocks && lives(load(slot_of((uintptr_t)p)), (uintptr_t)p)))
		return;
	struct rs_thread *t = rs_self();
	if (!rs_heap_blocks && (!t || !blocks_ready()))
		return;
	uint32_t stack = 0;
	uint64_t flags = new ? B_NEW : 0;
	if (t) {
		if (rs_config.all) {
			last_got = p;
			if (giving == p)
				giving = NULL;
			stack = rs_stack_from(t, pc, fp, rs_config.alloc_depth);
			RS_EMIT(t, ALLOC, alloc, (uintptr_t)p, n, stack, kind);
			if (new && lives(load(slot_of((uintptr_t)p)), (uintptr_t)p))
				return;
		} else if (n >= sizeof(pthread_spinlock_t) || rs_alloc.extra) {
			bool reused;
			stack = site_stack(t, pc, fp, GOT, &reused);
			flags |= reused ? B_SITE : 0;
		}
	}
	if (flags & B_NEW && !__atomic_load_n(&parts, __ATOMIC_RELAXED))
		__atomic_store_n(&parts, true, __ATOMIC_RELAXED);
	if (n < BIG_SIZE)
		have_slots(slot_of((uintptr_t)p));
	store(slot_of((uintptr_t)p), (uintptr_t)p | flags, n, stack);
	rs_alloc_note_stack((uintptr_t)p, stack);
	if (RS_UNLIKELY(n >= BIG_SIZE)) {
		unsigned level = big_level(n);
		store(big_of(level, (uintptr_t)p), (uintptr_t)p | flags, n, stack);
		if (!__atomic_load_n(&rs_heap_big_used[level], __ATOMIC_RELAXED))
			__atomic_store_n(&rs_heap_big_used[level], true, __ATOMIC_RELAXED);
	}
}

/* Of a block that lives. */
static size_t usable(void *p)
{
	if (rs_alloc_has((uintptr_t)p))
		return rs_alloc_usable_size(p);
	return rs_real.malloc_usable_size ? rs_real.malloc_usable_size(p) : 1;
}

static __attribute__((noinline)) void give(void *p, unsigned kind, uintptr_t pc, void *fp)
{
	bool delete = kind == RS_ALLOC_DELETE || kind == RS_ALLOC_DELETE_ARRAY, told = false;
	if (rs_config.all) {
		told = giving == p; /* an operator delete calls another one, or free */
		if (delete)
			giving = p;
		if (last_got == p)
			last_got = NULL;
	}
	struct rs_thread *t = rs_self();
	if (!rs_heap_blocks && (!t || !blocks_ready()))
		return;
	union block *s = slot_of((uintptr_t)p), was = load(s);
	bool known = (was.addr & ~(uint64_t)15) == ((uintptr_t)p & ~(uintptr_t)15) && ((uintptr_t)p & 15) == 0;
	uint32_t stack = 0;
	bool reused = false;
	if (t && rs_config.all) {
		stack = rs_stack_from(t, pc, fp, rs_config.alloc_depth);
		if (!told && rs_config.guard && known && !(was.addr & B_FREED) && was.size != UINT32_MAX)
			rs_race_lives(t->number, (uintptr_t)p, was.size, was.stack); /* rs_config.all: in guardrace.c's re-execution */
		if (!told)
			RS_EMIT(t, FREE, free, (uintptr_t)p, stack, kind);
	}
	/* A block of malloc's is given back by the free that follows. If none does, it was a part of a block, and who knows of what size. */
	if (delete && rs_heap_tombstones && !(known && was.addr & B_NEW))
		return;
	if (RS_LIKELY(t != NULL)) {
		bool invalid = false;
		struct rs_alloc_wrong w;
		if (!rs_config.all && rs_config.misuse)
			stack = site_stack(t, pc, fp, known && !(was.addr & B_OBJECT) && was.size < BIG_SIZE && !holds_in(t, (uintptr_t)p, was.size) ? FREE_BRIEF : FREE_WHOLE, &reused);
		if (RS_UNLIKELY(!known || was.addr & B_FREED) && rs_config.misuse && rs_heap_is_freed((uintptr_t)p, was, &w))
			rs_heap_freed_twice(t, &w, known && was.addr & B_SITE, pc, fp);
		else if (RS_UNLIKELY(!known))
			invalid = rs_heap_stranger(t, (uintptr_t)p, pc, fp);
		if (known && !(was.addr & B_FREED) && was.size != UINT32_MAX && !rs_bypassed)
			rs_sync_memory_gone(t, (uintptr_t)p, was.size, stack);
		else if (!rs_heap_tombstones || (known && !(was.addr & B_FREED)))
			rs_sync_memory_gone(t, (uintptr_t)p, usable(p), stack);
		else if (!known && !invalid)
			rs_sync_memory_gone(t, (uintptr_t)p, rs_heap_length_by_head((uintptr_t)p), stack);
	}
	if (((uintptr_t)p & 15) != 0)
		return;
	if (RS_UNLIKELY(known && was.size >= BIG_SIZE)) {
		union block *g = big_of(big_level(was.size), (uintptr_t)p);
		if ((load(g).addr & ~(uint64_t)15) == (uintptr_t)p)
			store(g, 0, 0, 0);
	}
	/* Before the real free: afterwards the address may already be somebody else's. A part of a block leaves no tombstone: the whole may begin there. */
	if (delete && rs_heap_tombstones)
		store(s, 0, 0, 0);
	else
		store(s, (uintptr_t)p | B_FREED | (reused ? B_SITE : 0), known ? was.size : 0, stack);
}

/* With guard bytes: what is known of a block that is about to be freed, for who finds it wrong. */
static void about_to_give(void *p, uintptr_t pc, void *fp)
{
	union block was = rs_heap_blocks ? load(slot_of((uintptr_t)p)) : (union block){.addr = 0};
	rs_alloc_giving = (struct rs_alloc_giving){.block = (uintptr_t)p, .pc = pc, .fp = fp, .alloc_stack = lives(was, (uintptr_t)p) ? was.stack : 0};
}

static void gave(void *p)
{
	union block is = rs_heap_blocks ? load(slot_of((uintptr_t)p)) : (union block){.addr = 0};
	if (rs_alloc_giving.block == (uintptr_t)p && (is.addr & ~(uint64_t)15) == (uintptr_t)p && is.addr & B_FREED)
		rs_alloc_giving.free_stack = is.stack;
}

__attribute__((noinline)) void rs_heap_give(void *p, unsigned kind, uintptr_t pc, void *fp)
{
	if (!p || !rs_active)
		return;
	past_ours(&pc, &fp);
	if (RS_UNLIKELY(rs_alloc.extra))
		about_to_give(p, pc, fp);
	give(p, kind, pc, fp);
	if (RS_UNLIKELY(rs_alloc.extra))
		gave(p);
}

bool rs_heap_known(uintptr_t p, size_t *size, uint32_t *stack)
{
	union block b = rs_heap_blocks ? load(slot_of(p)) : (union block){.addr = 0};
	if (!lives(b, p) || b.size == UINT32_MAX || b.addr & B_NEW)
		return false;
	*size = b.size, *stack = b.stack;
	return true;
}

RS_GENERAL uint32_t rs_heap_stack_of(uintptr_t p)
{
	const union block *b = rs_heap_blocks ? slot_of(p) : NULL;
	return b && (__atomic_load_n(&b->addr, __ATOMIC_RELAXED) & ~(uint64_t)(15 & ~B_FREED)) == p ? __atomic_load_n(&b->stack, __ATOMIC_RELAXED) : 0;
}

bool rs_heap_gone(uintptr_t p, size_t *size)
{
	union block b = rs_heap_blocks ? load(slot_of(p)) : (union block){.addr = 0};
	*size = b.size;
	return (b.addr & ~(uint64_t)15) == p && b.addr & B_FREED && b.size && b.size != UINT32_MAX;
}

/* Who asks has found an object in the block: free will look at it closely. */
bool rs_heap_block_of(struct rs_thread *t, uintptr_t p, uintptr_t *block, size_t *size, uint32_t *stack, bool *site)
{
	(void)t;
	if (!rs_heap_blocks)
		return false;
	/* Many locks are a block of their own. Then, and where a big block still lives, there is no other around or in it, unless operators new hand out parts of blocks, or free is called past us. */
	bool nested = __atomic_load_n(&parts, __ATOMIC_RELAXED);
	union block b = load(slot_of(p)), big = {.addr = 0};
	uintptr_t at;
	if (!lives(b, p) || nested || __atomic_load_n(&rs_bypassed, __ATOMIC_RELAXED)) {
		b = big = rs_heap_big_around(p);
		at = big.addr & ~(uint64_t)15;
		if (!at || !lives(load(slot_of(at)), at) || nested)
			b = rs_heap_small_around(p);
	}
	if (!b.addr)
		b = big;
	if (!b.addr)
		return false;
	at = b.addr & ~(uint64_t)15;
	*block = at, *size = b.size, *stack = b.stack, *site = b.addr & B_SITE;
	if (b.size < BIG_SIZE)
		__atomic_fetch_or(&slot_of(at)->addr, B_OBJECT, __ATOMIC_RELAXED); /* if another block has the place by now, no harm is done */
	return true;
}

/* --- the interface ------------------------------------------------------------------------------------------------------- */

/* What the real functions are, our own heap's where that is in use. */
static inline bool ours_for(uintptr_t pc) { return rs_alloc.on && !(RS_UNLIKELY(rs_alloc_source.not_for != NULL) && rs_alloc_source.not_for(pc)); }
static __attribute__((noinline)) bool is_for_common(uintptr_t pc, void *fp) { return ours_for(pc) && rs_alloc_source.common(pc, fp); }
static inline void *had_in_common(size_t n, bool zero, uintptr_t pc, void *fp) { return is_for_common(pc, fp) ? rs_alloc_common(n, 16, zero) : NULL; }
static inline void *real_malloc(size_t n, uintptr_t pc) { return ours_for(pc) ? rs_alloc_malloc(n) : rs_real.malloc(n); }
static inline void *real_calloc(size_t m, size_t n, uintptr_t pc) { return ours_for(pc) ? rs_alloc_calloc(m, n) : rs_real.calloc(m, n); }
/* p is a block that is out, for certain. */
static inline void real_free(void *p)
{
	if (rs_alloc_has((uintptr_t)p))
		rs_alloc_free(p);
	else
		rs_real.free(p);
}

void rs_heap_free_real(void *p, void (*real)(void *))
{
	if (rs_alloc_has((uintptr_t)p))
		rs_alloc_free_doubtful(p);
	else
		real(p);
}

static void *real_resize(void *(*real)(void *, size_t), void *old, size_t n, bool known, uintptr_t pc, void *fp)
{
	bool common = RS_UNLIKELY(rs_alloc_source.common != NULL) && is_for_common(pc, fp);
	void *p = common && !old ? rs_alloc_common(n, 16, false) : NULL;
	if (!old)
		return p ? p : ours_for(pc) ? rs_alloc_malloc(n) : real(old, n);
	if (!rs_alloc_has((uintptr_t)old))
		return real(old, n);
	if (!known)
		rs_alloc_doubt(old, "realloc(): invalid pointer");
	p = common ? rs_alloc_common_realloc(old, n) : NULL;
	return p ? p : rs_alloc_realloc(old, n);
}

void *rs_heap_memalign_ours(size_t align, size_t n, uintptr_t pc, void *fp)
{
	void *p = RS_UNLIKELY(rs_alloc_source.common != NULL) && is_for_common(pc, fp) ? rs_alloc_common(n, align, false) : NULL;
	return p ? p : rs_alloc_memalign(align, n);
}

/* As glibc's, an alignment is rounded up to a power of two. */
void *rs_heap_memalign_real(void *(*real)(size_t, size_t), size_t align, size_t n, uintptr_t pc, void *fp)
{
	if (!rs_alloc.on || align > SIZE_MAX / 2 + 1)
		return real(align, n);
	if (align & (align - 1))
		align = 1ull << (64 - __builtin_clzll(align));
	return rs_heap_memalign_ours(align, n, pc, fp);
}

static __attribute__((noinline)) void *malloc_guarded(size_t n, uintptr_t pc, void *fp)
{
	uint32_t stack = stack_guarded(n, pc, fp);
	void *p = stack && rs_alloc.on ? rs_alloc_guard_quick(n, false, stack) : NULL;
	if (RS_LIKELY(p)) {
		store(slot_of((uintptr_t)p), (uintptr_t)p, n, stack);
		return p;
	}
	p = real_malloc(n, pc);
	if (!got_guarded(p, n, pc, fp))
		rs_heap_got(p, n, RS_ALLOC_MALLOC, pc, fp);
	return p;
}

RS_EXPORT void *malloc(size_t n)
{
	if (RS_UNLIKELY(!rs_real.malloc))
		return rs_heap_early(16, n);
	if (RS_UNLIKELY(rs_alloc.extra)) {
		void *guarded = malloc_guarded(n, RS_CALLER(), __builtin_frame_address(0));
		__asm__ volatile("" ::: "memory"); /* no tail call: our frame is looked at */
		return guarded;
	}
	void *p = RS_UNLIKELY(rs_alloc_source.common != NULL) ? had_in_common(n, false, RS_CALLER(), __builtin_frame_address(0)) : NULL;
	if (RS_LIKELY(!p))
		p = real_malloc(n, RS_CALLER());
	if (RS_UNLIKELY(!got_quickly(p, n, RS_CALLER(), __builtin_frame_address(0))))
		RS_HEAP_GOT(p, n, MALLOC);
	return p;
}

RS_EXPORT void *calloc(size_t m, size_t n)
{
	size_t total;
	if (RS_UNLIKELY(!rs_real.calloc)) /* the early area is zero and is never used twice */
		return __builtin_mul_overflow(m, n, &total) ? NULL : rs_heap_early(16, total);
	void *p = RS_UNLIKELY(rs_alloc_source.common != NULL) && !__builtin_mul_overflow(m, n, &total) ? had_in_common(total, true, RS_CALLER(), __builtin_frame_address(0)) : NULL;
	if (RS_LIKELY(!p))
		p = real_calloc(m, n, RS_CALLER());
	if (RS_UNLIKELY(!got_quickly(p, m * n, RS_CALLER(), __builtin_frame_address(0))))
		RS_HEAP_GOT(p, m * n, CALLOC);
	return p;
}

/* Moves an early block into the real heap. */
static void *early_move(void *old, size_t n, uintptr_t pc)
{
	size_t have = rs_heap_early_size(old);
	void *p = rs_real.malloc ? real_malloc(n, pc) : rs_heap_early(16, n);
	if (p)
		copy(p, old, have < n ? have : n);
	return p;
}

void *rs_heap_resize(void *(*real)(void *, size_t), void *old, size_t n, unsigned kind, uintptr_t pc, void *fp)
{
	if (RS_UNLIKELY(!real || rs_heap_is_early(old))) {
		void *p = old ? early_move(old, n, pc) : rs_heap_early(16, n);
		rs_heap_got(p, n, kind, pc, fp);
		return p;
	}
	size_t had = 0;
	bool known = false;
	if (old && rs_heap_blocks) {
		union block was = load(slot_of((uintptr_t)old));
		if ((was.addr & ~(uint64_t)15) == (uintptr_t)old)
			had = was.size;
		known = lives(was, (uintptr_t)old);
	}
	rs_heap_give(old, kind, pc, fp);
	void *p = real_resize(real, old, n, known, pc, fp);
	if (p)
		rs_heap_got(p, n, kind, pc, fp);
	else if (old && n != 0) /* it failed: the old block lives on */
		rs_heap_got(old, had, kind, pc, fp);
	return p;
}

RS_EXPORT void *realloc(void *old, size_t n)
{
	return rs_heap_resize(rs_real.realloc, old, n, RS_ALLOC_REALLOC, RS_CALLER(), __builtin_frame_address(0));
}

RS_EXPORT void *reallocarray(void *old, size_t m, size_t n)
{
	size_t total;
	if (__builtin_mul_overflow(m, n, &total)) {
		errno = ENOMEM;
		return NULL;
	}
	return rs_heap_resize(rs_real.realloc, old, total, RS_ALLOC_REALLOCARRAY, RS_CALLER(), __builtin_frame_address(0));
}
RS_ALIAS(__libc_reallocarray, reallocarray);

static __attribute__((noinline)) void free_slowly(void *p, uintptr_t pc, void *fp)
{
	if (rs_heap_is_early(p) || !rs_real.free)
		return;
	rs_heap_give(p, RS_ALLOC_FREE, pc, fp);
	rs_heap_free_real(p, rs_real.free);
}

/* With guard bytes the frame that frees is looked at once more, if something is wrong. */
static __attribute__((noinline)) void free_guarded(void *p, uintptr_t pc, void *fp)
{
	uint32_t alloc_stack, free_stack;
	past_ours(&pc, &fp);
	if (RS_LIKELY(rs_alloc_has((uintptr_t)p))) {
		/* Often none of these is in a cache: all at once, and not one after the other. */
		__builtin_prefetch(rs_heap_blocks ? slot_of((uintptr_t)p) : p);
		rs_alloc_guard_prefetch(p);
	}
	if (RS_LIKELY(rs_alloc_has((uintptr_t)p)) && given_guarded(p, pc, fp, &alloc_stack, &free_stack)) {
		if (RS_LIKELY(rs_alloc_guard_free_quick(p, alloc_stack, free_stack)))
			return;
		rs_alloc_giving = (struct rs_alloc_giving){.block = (uintptr_t)p, .pc = pc, .fp = fp, .alloc_stack = alloc_stack, .free_stack = free_stack};
		rs_alloc_free(p);
	} else {
		free_slowly(p, pc, fp);
	}
	__asm__ volatile("" ::: "memory");
}

RS_EXPORT void free(void *p)
{
	if (RS_UNLIKELY(rs_alloc.extra && p)) {
		free_guarded(p, RS_CALLER(), __builtin_frame_address(0));
		__asm__ volatile("" ::: "memory");
		return;
	}
	uint32_t alloc_stack, free_stack;
	uintptr_t pc = RS_CALLER();
	void *fp = __builtin_frame_address(0);
	past_ours(&pc, &fp);
	if (RS_LIKELY(given_quickly(p, pc, fp, &alloc_stack, &free_stack))) {
		real_free(p);
		return;
	}
	free_slowly(p, pc, fp);
	__asm__ volatile("" ::: "memory"); /* no tail call: our frame is looked at */
}
