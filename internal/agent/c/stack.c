/* stack.c: stacks are sent once and known by a number. The numbers are places in tables of hashes, shared by the threads without a lock; a stack is
 * kept by its 64-bit hash alone. Of the many of allocations, of which few are ever spoken of, the frames are kept too, and sent when they are.
 * Async-signal-safe. */
#include "alloc.h"
#include "core.h"
#include "sync.h"
#include <errno.h>
#include <sys/mman.h>

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif

/* Tables of growing size, so that a process with few stacks touches few pages: what finds no place within PROBES in one goes to the next. In the last one it looks on: with eight, one of 100,000 stacks was lost
 * where 87,000 of the million places were taken. */
enum { TABLES = 5, PROBES = 8, LAST_PROBES = 256 };
#define BASE(i) (1u + ((i) > 0 ? 1u << 10 : 0) + ((i) > 1 ? 1u << 11 : 0) + ((i) > 2 ? 1u << 13 : 0) + ((i) > 3 ? 1u << 15 : 0))
static const uint32_t table_size[TABLES] = {1 << 10, 1 << 11, 1 << 13, 1 << 15, 1 << 20};
static const uint32_t table_base[TABLES] = {BASE(0), BASE(1), BASE(2), BASE(3), BASE(4)};
static uint64_t *table[TABLES]; /* hash with READY or KEPT; 0: free */
enum { READY = 1, KEPT = 4 };
static uint32_t crowd, crowded; /* places taken in the last table; how often stacks have half the frames since */
static uint32_t sets_in_all;    /* of locks that were held */

/* A forked child numbers apart from its parent: held locks keep the numbers of stacks that the parent defined. */
enum { GENERATION_SHIFT = 21, GENERATIONS = 1 << 10 };
uint32_t rs_stack_generation;

/* By a stack and a function that was called at its top: the tag of the two, and the number of the stack that they make. 0: nothing. */
enum { CALLED = 1 << 12 };
static uint64_t called[CALLED]; /* a forked child's stacks have other numbers, so it finds none of its parent's */

/* Stacks that were not sent, by their place in all tables but the last: where among the bytes they begin, 0: not here. A stack is the number of its frames, and then each one's difference to the one before, all in
 * seven bits a byte, the highest bit set but in the last. When
 * it is full stacks are sent at once. A forked child knows its parent's blocks by a copy of its parent's, and begins one of its own: so it may live and
 * allocate without having anything to send. */
enum { KEPT_BYTES = 2 << 20, KEPT_PLACES = BASE(4) - 1, KEPT_LEVELS = 4, KEPT_FRAMES = 40, TOLD = 1u << 31 };
enum { KEPT_ROOM = KEPT_BYTES - (KEPT_PLACES + 6) * sizeof(uint32_t) };
struct kept {
	struct kept *parent;
	uint32_t generation, level, used, spare;
	uint32_t where[KEPT_PLACES];
	uint8_t byte[KEPT_ROOM];
};
_Static_assert(sizeof(struct kept) == KEPT_BYTES, "no page more");
static struct kept *kept; /* the newest */
static bool keeping;

void rs_stack_init(void)
{
	for (int i = 0; i < TABLES && (rs_config.stack_depth || rs_config.alloc_depth); i++)
		if ((table[i] = rs_os_map(table_size[i] * 8))) {
			RS_SYS3(SYS_madvise, table[i], table_size[i] * 8, MADV_WIPEONFORK);
			/* Few pages here and there are touched: none of them should be one of 2 MiB. */
			RS_SYS3(SYS_madvise, table[i], table_size[i] * 8, MADV_NOHUGEPAGE);
		}
	keeping = rs_config.alloc_depth && !rs_config.all;
}

void rs_stack_after_fork(void)
{
	rs_stack_generation = (rs_stack_generation + 1) & (GENERATIONS - 1);
	if (rs_stack_generation == 0)
		kept = NULL; /* the numbers are others' now */
	crowd = crowded = sets_in_all = 0;
	/* For kernels without MADV_WIPEONFORK. */
	for (int i = 0; i < TABLES; i++)
		if (table[i])
			RS_SYS3(SYS_madvise, table[i], table_size[i] * 8, MADV_DONTNEED);
}

static __attribute__((noinline)) bool send_stack(struct rs_thread *t, uint32_t id, const uint64_t *pcs, unsigned n)
{
	uint64_t *w = rs_reserve(t, RS_EV_STACK, RS_STACK_WORDS + n);
	if (!w)
		return false;
	rs_put_stack(w, id, n);
	for (unsigned i = 0; i < n; i++)
		w[RS_STACK_WORDS + i] = pcs[i];
	rs_commit(t);
	return true;
}

/* A re-execution sends nothing, and goes on as if it had: who found no number walked again each time, and left other frames below the program's than the recording. What is noted by that is gone when it is over. */
static __attribute__((noinline)) bool define(struct rs_thread *t, uint32_t id, const uint64_t *pcs, unsigned n)
{
	bool sent = send_stack(t, id, pcs, n);
	if (RS_LIKELY(!rs_guard_on))
		return sent;
	sent |= rs_guard_follows();
	RS_CLEAR_BELOW(512);
	RS_NO_REGISTERS();
	return sent;
}

/* Of this generation; NULL: there is none. */
static struct kept *own_kept(void)
{
	struct kept *last = __atomic_load_n(&kept, __ATOMIC_ACQUIRE);
	if (RS_LIKELY(last && last->generation == rs_stack_generation))
		return last;
	if (!keeping || (last && last->level == KEPT_LEVELS))
		return NULL;
	struct kept *k = rs_os_map(sizeof *k);
	if (!k) {
		keeping = false;
		return NULL;
	}
	RS_SYS3(SYS_madvise, k, sizeof *k, MADV_NOHUGEPAGE);
	k->parent = last;
	k->generation = rs_stack_generation;
	k->level = last ? last->level + 1 : 1;
	if (__atomic_compare_exchange_n(&kept, &last, k, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		return k;
	rs_os_unmap(k, sizeof *k); /* another thread, or a handler, was quicker */
	return last;
}

static unsigned pack(uint8_t *to, const uint64_t *pcs, unsigned n)
{
	uint64_t last = 0;
	uint8_t *at = to;
	*at++ = (uint8_t)n;
	for (unsigned i = 0; i < n; i++) {
		uint64_t d = pcs[i] - last, v = d << 1 ^ -(d >> 63);
		for (; v > 127; v >>= 7)
			*at++ = (uint8_t)(v | 128);
		*at++ = (uint8_t)v;
		last = pcs[i];
	}
	return (unsigned)(at - to);
}

static unsigned unpack(uint64_t *pcs, const uint8_t *at)
{
	unsigned n = *at++;
	uint64_t last = 0;
	for (unsigned i = 0; i < n; i++) {
		uint64_t v = 0;
		unsigned shift = 0;
		for (; *at & 128; shift += 7)
			v |= (uint64_t)(*at++ & 127) << shift;
		v |= (uint64_t)*at++ << shift;
		pcs[i] = last += v >> 1 ^ -(v & 1);
	}
	return n;
}

/* False: there is no room, or the number has no place. */
static bool keep(uint32_t id, const uint64_t *pcs, unsigned n)
{
	uint32_t place = (id & ((1u << GENERATION_SHIFT) - 1)) - 1;
	struct kept *k = place < KEPT_PLACES && n <= KEPT_FRAMES ? own_kept() : NULL;
	uint8_t bytes[1 + 10 * KEPT_FRAMES];
	unsigned m = k ? pack(bytes, pcs, n) : 0;
	if (!k || __atomic_load_n(&k->used, __ATOMIC_RELAXED) + m >= KEPT_ROOM)
		return false;
	uint32_t at = 1 + __atomic_fetch_add(&k->used, m, __ATOMIC_RELAXED);
	if (at + m > KEPT_ROOM)
		return false;
	rs_os_copy(&k->byte[at], bytes, m);
	__atomic_store_n(&k->where[place], at, __ATOMIC_RELEASE);
	return true;
}

void rs_stack_tell(struct rs_thread *t, uint32_t id)
{
	struct kept *k = __atomic_load_n(&kept, __ATOMIC_ACQUIRE);
	while (k && k->generation != id >> GENERATION_SHIFT)
		k = k->parent;
	uint32_t place = (id & ((1u << GENERATION_SHIFT) - 1)) - 1;
	if (!k || place >= KEPT_PLACES)
		return;
	uint32_t at = __atomic_load_n(&k->where[place], __ATOMIC_ACQUIRE);
	if (at == 0 || at & TOLD)
		return;
	uint64_t pcs[KEPT_FRAMES];
	/* Two threads at once tell it twice, which does no harm. */
	if (define(t, id, pcs, unpack(pcs, &k->byte[at])))
		__atomic_store_n(&k->where[place], at | TOLD, __ATOMIC_RELEASE);
}

/* A sum of products with a different odd factor for each place: no product waits for another. */
static inline uint64_t hash(const uint64_t *pcs, unsigned n)
{
	uint64_t factor = 0x9e3779b97f4a7c15ull, h = n;
	for (unsigned i = 0; i < n; i++) {
		/* cppcheck-suppress uninitvar ; rs_walk filled the first n */
		h += pcs[i] * factor;
		factor *= 0xd1342543de82ef95ull;
	}
	h ^= h >> 32;
	h *= 0xff51afd7ed558ccdull;
	h ^= h >> 29;
	return (h | 2) & ~(uint64_t)(READY | KEPT); /* never 0 */
}

/* What is known by a number: a stack of n frames, or (holds) stack `base` with n locks that are held, two words each. late: the definition may be sent later. */
struct shape { const uint64_t *words; uint32_t base; uint16_t n; bool holds, late; };

static bool define_shape(struct rs_thread *t, uint32_t id, const struct shape *s)
{
	if (!s->holds)
		return define(t, id, s->words, s->n);
	uint64_t *w = rs_reserve(t, RS_EV_STACK_HOLDING, RS_STACK_HOLDING_WORDS + 2u * s->n);
	if (!w)
		return false;
	rs_put_stack_holding(w, id, s->base, s->n);
	for (unsigned i = 0; i < 2u * s->n; i++)
		w[RS_STACK_HOLDING_WORDS + i] = s->words[i];
	rs_commit(t);
	return true;
}

/* Where code is called in more ways than there are places (recursions, interpreters), later stacks had none: reports without them, and each a long search in vain. So when half of the last table is taken stacks of accesses, calls and blocks have half the
 * frames from then on, a quarter when a quarter is left, and then an eighth: what differs in outer frames alone is one stack then, and the rest lasts. */
enum { CROWDS = 3, LEAST_FRAMES = 2 };

/* Or'ed to a depth. LATE: as rs_stack_kept. HERE: as rs_stack_here. OUTER: likewise, remembered by the caller's frame. Such a stack and another are not remembered as the same. */
enum { LATE = 1 << 15, HERE = 1 << 14, OUTER = 1 << 13, FRAMES = OUTER - 1 };

/* The depth that stacks have now for one that is asked for. */
static inline unsigned shallow(unsigned depth)
{
	unsigned by = __atomic_load_n(&crowded, __ATOMIC_RELAXED), frames = depth & FRAMES, less = frames >> by;
	if (RS_LIKELY(!by) || frames < LEAST_FRAMES)
		return depth;
	return (less < LEAST_FRAMES ? LEAST_FRAMES : less) | (depth & ~(unsigned)FRAMES);
}

static __attribute__((noinline)) void one_more_taken(struct rs_thread *t)
{
	uint32_t free = table_size[TABLES - 1] - __atomic_add_fetch(&crowd, 1, __ATOMIC_RELAXED), by = __atomic_load_n(&crowded, __ATOMIC_RELAXED);
	if (by == CROWDS || free > table_size[TABLES - 1] >> (by + 1) || !__atomic_compare_exchange_n(&crowded, &by, by + 1, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		return;
	rs_notice(t, RS_NOTICE_STACKS_CROWDED, 0, 0);
}

/* The number of what has hash h; its definition has a timestamp before any use, or, if late, it is kept if that can be. Whoever meets a number that its finder has
 * not defined yet (it may be our own thread, below a signal handler) defines it again rather than wait. fresh: it was not known, or there is no place for it. */
static uint32_t number_of(struct rs_thread *t, uint64_t h, const struct shape *s, bool *fresh)
{
	*fresh = false;
	for (int i = 0; i < TABLES && table[i]; i++) {
		uint32_t size = table_size[i], at = (uint32_t)(h >> 32);
		for (unsigned probe = 0, most = i < TABLES - 1 ? PROBES : LAST_PROBES; probe < most; probe++, at++) {
			uint64_t *place = &table[i][at & (size - 1)], found = __atomic_load_n(place, __ATOMIC_ACQUIRE);
			uint32_t id = (table_base[i] + (at & (size - 1))) | rs_stack_generation << GENERATION_SHIFT;
			if (RS_LIKELY(found == (h | READY)))
				return id;
			if (found == 0 && __atomic_compare_exchange_n(place, &found, h, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
				bool is_kept = s->late && keep(id, s->words, s->n);
				if (!is_kept)
					define_shape(t, id, s);
				__atomic_store_n(place, h | (is_kept ? KEPT : READY), __ATOMIC_RELEASE);
				__atomic_fetch_add(&rs_counters->stacks, 1, __ATOMIC_RELAXED);
				if (i == TABLES - 1)
					one_more_taken(t);
				*fresh = true;
				return id;
			}
			if ((found & ~(uint64_t)(READY | KEPT)) != h)
				continue;
			if (!(found & READY) && !(s->late && found & KEPT)) {
				define_shape(t, id, s);
				if (found & KEPT)
					__atomic_store_n(place, h | READY, __ATOMIC_RELEASE);
			}
			return id;
		}
	}
	*fresh = true;
	if (table[0]) {
		__atomic_fetch_add(&rs_counters->stack_drops, 1, __ATOMIC_RELAXED);
		rs_notice(t, RS_NOTICE_STACK_TABLE_FULL, 0, 0);
	}
	return 0;
}

/* A recursion that allocates (a tree, a parser) has as many stacks as there are ways through it: a million of twelve frames, none of which says more than its innermost ones. Each costs a walk and a place, until there
 * is none left for others. So once there are MANY_IN_ALL, an eighth of what there is room for, of a place (return address) that has had MANY the stacks of blocks have half the frames from then on, and so on; it is said once. */
enum { PLACES = 1024, MANY_IN_ALL = 1 << 17, MANY = 1 << 8, HALVINGS = 3 };
struct place { uint64_t pc; uint32_t fresh, halved; };
static struct place places[PLACES]; /* by a hash of the pc; of two that meet the one with more stacks stays, once it has fewer frames for good (then the other keeps its own) */
static uint32_t fresh_in_all;
static bool any_short;

static struct place *place_of(uint64_t pc) { return &places[pc * 0x9e3779b97f4a7c15ull >> 54]; }
_Static_assert(PLACES == 1 << (64 - 54), "the hash's upper bits choose a place");

static __attribute__((noinline)) void one_more(struct rs_thread *t, uint64_t pc)
{
	struct place *p = place_of(pc);
	uint64_t other = __atomic_load_n(&p->pc, __ATOMIC_RELAXED);
	if (other != pc) {
		uint32_t its = __atomic_load_n(&p->fresh, __ATOMIC_RELAXED);
		if (its != 0) /* a count that another thread changes meanwhile is lost: it is an estimate */
			__atomic_store_n(&p->fresh, its - 1, __ATOMIC_RELAXED);
		if (its != 0 || __atomic_load_n(&p->halved, __ATOMIC_RELAXED) != 0 || !__atomic_compare_exchange_n(&p->pc, &other, pc, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
			return;
	}
	bool many = __atomic_add_fetch(&p->fresh, 1, __ATOMIC_RELAXED) >= MANY;
	if (__atomic_add_fetch(&fresh_in_all, 1, __ATOMIC_RELAXED) < MANY_IN_ALL || !many || __atomic_load_n(&p->halved, __ATOMIC_RELAXED) == HALVINGS)
		return;
	__atomic_store_n(&p->fresh, 0, __ATOMIC_RELAXED);
	__atomic_fetch_add(&p->halved, 1, __ATOMIC_RELAXED);
	__atomic_store_n(&any_short, true, __ATOMIC_RELAXED);
	rs_notice(t, RS_NOTICE_STACKS_SHORT, 0, pc);
}

/* The frames that a block's stack has which begins at pc. */
static inline unsigned frames_of(uint64_t pc, unsigned depth)
{
	if (RS_LIKELY(!__atomic_load_n(&any_short, __ATOMIC_RELAXED)))
		return depth;
	const struct place *p = place_of(pc);
	unsigned less = __atomic_load_n(&p->pc, __ATOMIC_RELAXED) == pc ? depth >> __atomic_load_n(&p->halved, __ATOMIC_RELAXED) : depth;
	return less < LEAST_FRAMES ? (depth < LEAST_FRAMES ? depth : LEAST_FRAMES) : less;
}

static uint32_t intern(struct rs_thread *t, const uint64_t *pcs, unsigned n, bool late)
{
	bool fresh;
	uint32_t id = number_of(t, hash(pcs, n), &(struct shape){.words = pcs, .n = (uint16_t)n, .late = late}, &fresh);
	if (RS_UNLIKELY(fresh && late && n > 0))
		one_more(t, pcs[0] + 1); /* the first frame is a return address less 1 */
	return id;
}

uint32_t rs_stack_of(struct rs_thread *t, const uint64_t *pcs, unsigned n) { return intern(t, pcs, n, false); }

/* A program with a lock for each of many things holds other ones each time that it comes by a place: millions of sets, each a definition, a place in the tables and sites of its own for the detector, until there is no
 * place left for stacks either. So of a stack that was met with MANY_SETS the locks are not told from then on, nor of any once sets have a quarter of the places; that is said once. */
enum { SET_PLACES = 4096, MANY_SETS = 1 << 12, MANY_SETS_IN_ALL = 1 << 18 };
static struct { uint32_t stack, fresh; } sets[SET_PLACES]; /* by a hash of the stack; of two that meet the one with more sets stays, as in `places` */

static __attribute__((noinline)) void one_more_set(struct rs_thread *t, uint32_t stack, uint32_t at)
{
	if (__atomic_add_fetch(&sets_in_all, 1, __ATOMIC_RELAXED) == MANY_SETS_IN_ALL)
		rs_notice(t, RS_NOTICE_LOCKS_SHORT, 0, 0);
	uint32_t other = __atomic_load_n(&sets[at].stack, __ATOMIC_RELAXED), its = __atomic_load_n(&sets[at].fresh, __ATOMIC_RELAXED);
	if (other != stack) {
		if (its >= MANY_SETS)
			return;
		if (its != 0)
			__atomic_store_n(&sets[at].fresh, its - 1, __ATOMIC_RELAXED);
		if (its != 0 || !__atomic_compare_exchange_n(&sets[at].stack, &other, stack, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
			return;
	}
	if (__atomic_add_fetch(&sets[at].fresh, 1, __ATOMIC_RELAXED) == MANY_SETS)
		rs_notice(t, RS_NOTICE_LOCKS_SHORT, 0, 0);
}

uint32_t rs_stack_holding(struct rs_thread *t, uint32_t stack)
{
	uint64_t words[2 * 16];
	uint32_t n = t->held_count, at = (stack * 0x9e3779b1u) >> 20;
	_Static_assert(SET_PLACES == 1 << (32 - 20), "the hash's upper bits choose a place");
	if (n == 0 || stack == 0 || __atomic_load_n(&sets_in_all, __ATOMIC_RELAXED) >= MANY_SETS_IN_ALL || (__atomic_load_n(&sets[at].fresh, __ATOMIC_RELAXED) >= MANY_SETS && __atomic_load_n(&sets[at].stack, __ATOMIC_RELAXED) == stack))
		return stack;
	if (n > 16)
		n = 16;
	for (uint32_t i = 0; i < n; i++) {
		uint64_t info = t->held[i].info;
		words[2 * i] = t->held[i].obj;
		words[2 * i + 1] = RS_INFO_STACK(info) == RS_STACK_LATER ? info & ~(uint64_t)RS_STACK_LATER : info;
	}
	uint64_t h = hash(words, 2 * n) ^ stack * 0x9e3779b97f4a7c15ull;
	h = ((h ^ h >> 31) * 0xff51afd7ed558ccdull | 2) & ~(uint64_t)(READY | KEPT);
	bool fresh;
	uint32_t id = number_of(t, h, &(struct shape){.words = words, .base = stack, .n = (uint16_t)n, .holds = true}, &fresh);
	if (RS_UNLIKELY(fresh))
		one_more_set(t, stack, at);
	return id ? id : stack;
}

static uint32_t intern_walked(struct rs_thread *t, uint64_t *pcs, unsigned n, unsigned depth)
{
	if (depth & HERE && n > 0)
		pcs[0] = 0;
	return intern(t, pcs, n, depth & LATE);
}

static __attribute__((noinline)) uint32_t take_deep(struct rs_thread *t, struct rs_frame *f, bool exact, unsigned depth)
{
	uint64_t pcs[RS_MAX_DEPTH];
	unsigned frames = depth & FRAMES;
	return intern_walked(t, pcs, rs_walk(t, f, exact, pcs, frames < RS_MAX_DEPTH ? frames : RS_MAX_DEPTH, NULL), depth & HERE);
}

/* Threads may have as little as 16 KiB of stack: the large array only where it is asked for. */
static inline uint32_t take(struct rs_thread *t, struct rs_frame *f, bool exact, unsigned depth, struct rs_trail *trail)
{
	uint64_t pcs[40];
	unsigned frames = depth & FRAMES;
	if (RS_UNLIKELY(frames > sizeof pcs / sizeof *pcs))
		return take_deep(t, f, exact, depth);
	return intern_walked(t, pcs, rs_walk(t, f, exact, pcs, frames, trail), depth);
}

/* One thread's: stacks taken before, with where the words lay that they were made of, and a sum of them. Most locks and blocks are taken again and again on the same paths, and
 * adding up some words is much cheaper than a walk. A remembered stack is exactly what a walk would find (see struct rs_trail), as far as 64 bits tell: a stack itself is known by no more (hash), by a sum of the same kind. To keep the
 * words took three times the memory, more than a processor's second cache holds.
 * Many callers of one wrapper are of one frame (pc and rsp), and differ in words further out: the first few return addresses of the walk that was remembered last say in
 * which words, and these choose the set. Before that the one of this frame that was recognised last is tried. Both say where to look, not what is true: all words count. */
enum { FEW_SETS = 128, SETS = 512, WAYS = 2, WORTH = 32, MET = 1024, SITES = 1024, HINTS = 3, HEAD = 4 }; /* SETS: where each block has its stack (guard); it is all made present */
struct remembered {
	uint64_t stamp;            /* what it was taken with; 0: none is here */
	uintptr_t pc, rsp, rbp;
	uint64_t head, sum;        /* of the first HEAD words, and of all, each times its factor */
	uint32_t reach, id;        /* words from rsp on that hold all of these; the stack */
	uint8_t n;
	bool entry_rbp;
	uint16_t offset[RS_TRAIL]; /* from rsp, in words */
};
struct frame_site { uint64_t tag; uint16_t word[HINTS], last; }; /* last: the one of this frame that was recognised last, in units of eight bytes behind `way` */
struct memory {
	uint64_t writes;           /* a handler has written meanwhile if it changes */
	uint32_t next;
	uint32_t shift;            /* leaves as many bits of a hash as choose a set */
	uint64_t factor[RS_TRAIL];
	uint32_t met[MET];         /* tags of frames that took a stack: what comes once is not worth remembering */
	struct frame_site site[SITES];
	struct remembered way[SETS][WAYS];
};
_Static_assert(sizeof(struct remembered) % 8 == 0 && sizeof ((struct memory *)0)->way / 8 <= 1 << 16, "frame_site.last");

static inline uint64_t frame_hash(uintptr_t pc, uintptr_t rsp) { return (pc ^ rsp << 20) * 0x9e3779b97f4a7c15ull; }

static inline struct frame_site *frame_site(struct memory *m, uint64_t h) { return &m->site[h >> 54]; }
enum { FEW_SHIFT = 57, SHIFT = 55 };
_Static_assert(SITES == 1 << (64 - 54) && SETS == 1 << (64 - SHIFT) && FEW_SETS == 1 << (64 - FEW_SHIFT) && MET == 1 << (64 - 54), "the hash's upper bits choose a place");

static inline uint16_t place_in(const struct memory *m, const struct remembered *r) { return (uint16_t)(((uintptr_t)r - (uintptr_t)m->way) / 8); }

/* rsp lies on the thread's stack, of which `room` bytes are from there on. */
static inline struct remembered *set_of(struct memory *m, uint64_t h, uintptr_t rsp, uint64_t room)
{
	static const uint64_t factor[HINTS] = {0xff51afd7ed558ccdull, 0xc2b2ae3d27d4eb4full, 0x9e3779b185ebca87ull};
	const struct frame_site *s = frame_site(m, h);
	if (RS_LIKELY(s->tag == h))
		for (unsigned i = 0; i < HINTS; i++) {
			uint64_t offset = 8ull * s->word[i];
			if (RS_LIKELY(offset + 8 <= room))
				h += *(const uint64_t *)(rsp + offset) * factor[i]; /* no product waits for another */
		}
	return m->way[((h ^ h >> 32) * 0xd1342543de82ef95ull) >> m->shift];
}

/* Of modules, forks and depth: what else a walk depends on. Never 0. */
static inline uint64_t stamp_of(uint32_t modules, unsigned depth) { return (uint64_t)modules << 32 | rs_stack_generation << 16 | depth; }
static inline uint64_t stamp_now(unsigned depth) { return stamp_of(__atomic_load_n(&rs_modules_generation, __ATOMIC_ACQUIRE), depth); }
_Static_assert(GENERATIONS <= 1 << 16, "the fork's part of a stamp");

/* room: bytes from rsp to the end of the stack. Nothing else is read, whatever a handler makes of *r meanwhile. */
static inline bool as_before(const struct memory *m, const struct remembered *r, uintptr_t pc, uintptr_t rsp, uintptr_t rbp, uint64_t stamp, uint64_t room)
{
	uint32_t reach = __atomic_load_n(&r->reach, __ATOMIC_RELAXED), i = 0;
	if (r->pc != pc || r->rsp != rsp || r->stamp != stamp || (r->entry_rbp && r->rbp != rbp) || reach > room / 8)
		return false; /* (it may be another thread's memory, and that another thread's stack) */
	uint64_t sum = 0;
#pragma GCC unroll 4
	for (; i < HEAD; i++) {
		uint32_t word = __atomic_load_n(&r->offset[i], __ATOMIC_RELAXED);
		if (RS_UNLIKELY(word >= reach)) /* a handler is writing it */
			return false;
		sum += ((const uint64_t *)rsp)[word] * m->factor[i]; /* no product waits for another */
	}
	if (sum != r->head)
		return false;
	for (uint32_t n = r->n < RS_TRAIL ? r->n : RS_TRAIL; i < n; i++) {
		uint32_t word = __atomic_load_n(&r->offset[i], __ATOMIC_RELAXED);
		if (RS_UNLIKELY(word >= reach))
			return false;
		sum += ((const uint64_t *)rsp)[word] * m->factor[i];
	}
	return sum == r->sum;
}

static void remember(struct memory *m, uint32_t id, uint64_t stamp, const struct rs_frame *f, const struct rs_trail *l, uint64_t room)
{
	uint64_t writes = m->writes, h = frame_hash(f->pc, f->rsp), reach = 0;
	for (unsigned i = 0; i < l->n; i++) {
		uint64_t offset = l->at[i] - f->rsp;
		if (offset & 7 || offset / 8 > UINT16_MAX)
			return;
		if (offset / 8 + 1 > reach)
			reach = offset / 8 + 1;
	}
	if (reach == 0)
		reach = 1;
	if (reach > room / 8)
		return;
	struct frame_site *site = frame_site(m, h);
	if (site->tag != h) {
		site->tag = 0;
		RS_BARRIER();
		unsigned k = 0;
		for (unsigned i = 0; i < l->n && k < HINTS; i++)
			if (l->value[i] - f->rsp >= room) /* not a frame pointer: these differ by depth */
				site->word[k++] = (uint16_t)((l->at[i] - f->rsp) / 8);
		for (; k < HINTS; k++)
			site->word[k] = k ? site->word[k - 1] : 0;
		RS_BARRIER();
		site->tag = h;
	}
	struct remembered *r = &set_of(m, h, f->rsp, room)[m->next++ % WAYS];
	r->stamp = 0;
	RS_BARRIER();
	r->pc = f->pc, r->rsp = f->rsp, r->rbp = f->rbp;
	r->id = id;
	r->entry_rbp = l->entry_rbp;
	__atomic_store_n(&r->reach, (uint32_t)reach, __ATOMIC_RELAXED);
	r->sum = 0;
	unsigned n = 0;
	for (; n < l->n || n < HEAD; n++) {
		/* Those that there are not are the first once more, or what lies at rsp. */
		uint64_t offset = n < l->n ? (l->at[n] - f->rsp) / 8 : l->n ? (l->at[0] - f->rsp) / 8 : 0, value = n < l->n ? l->value[n] : l->n ? l->value[0] : *(const uint64_t *)f->rsp;
		__atomic_store_n(&r->offset[n], (uint16_t)offset, __ATOMIC_RELAXED);
		r->sum += value * m->factor[n];
		if (n == HEAD - 1)
			r->head = r->sum;
	}
	r->n = (uint8_t)n;
	RS_BARRIER();
	if (m->writes != writes) /* a handler wrote, perhaps here: it may be of both */
		return;
	m->writes = writes + 1;
	r->stamp = stamp;
	site->last = place_in(m, r);
}

static size_t memory_size(unsigned shift) { return offsetof(struct memory, way) + ((size_t)1 << (64 - shift)) * sizeof ((struct memory *)0)->way[0]; }
static void make_present(void *m) { rs_region_present(m, memory_size(((struct memory *)m)->shift)); }

static struct memory *make_memory(struct rs_thread *t)
{
	unsigned shift = rs_alloc.extra || rs_config.races ? SHIFT : FEW_SHIFT;
	struct memory *m = rs_os_map(memory_size(shift));
	if (!m)
		return NULL;
	m->shift = shift;
	uint64_t factor = 0x9e3779b97f4a7c15ull;
	for (unsigned i = 0; i < RS_TRAIL; i++, factor *= 0xd1342543de82ef95ull)
		m->factor[i] = factor;
	rs_vectors_kept(make_present, m); /* nearly all of it is soon used: two faults a page, the first for reading, cost more */
	return t->stack_memory = m;
}

/* Where a thread's stacks are remembered, once it has taken some: many threads take few. */
static struct memory *memory_of(struct rs_thread *t)
{
	if (RS_LIKELY(t->stack_memory != NULL))
		return t->stack_memory;
	if (t->stacks_by != t->number) {
		t->stacks_by = t->number;
		t->stacks_taken = 0;
	}
	return ++t->stacks_taken > WORTH ? make_memory(t) : NULL;
}

static __attribute__((noinline)) uint32_t take_anew(struct rs_thread *t, struct rs_frame *f, unsigned depth)
{
	struct rs_trail trail;
	struct memory *m = t->stack_memory;
	struct rs_frame first = *f;
	if (m) {
		uint64_t h = frame_hash(f->pc, f->rsp);
		uint32_t *met = &m->met[h >> 54];
		if (*met != (uint32_t)h) {
			*met = (uint32_t)h;
			return take(t, f, false, depth, NULL);
		}
	}
	uint64_t stamp = stamp_now(depth);
	uint32_t id = take(t, f, false, depth, &trail);
	m = memory_of(t);
	if (m && id != 0 && !trail.unfit && first.rsp >= t->stack_lo && first.rsp < t->stack_hi)
		remember(m, id, stamp, &first, &trail, t->stack_hi - first.rsp);
	return id;
}

/* Not the one of this frame that was recognised last: that is another now. */
static __attribute__((noinline)) uint32_t again_elsewhere(const struct rs_thread *t, uintptr_t pc, uintptr_t rsp, uintptr_t rbp, unsigned depth, const struct remembered **as)
{
	struct memory *m = t->stack_memory;
	uint64_t writes = m->writes, room = t->stack_hi - rsp, h = frame_hash(pc, rsp), stamp = stamp_now(depth);
	RS_BARRIER();
	const struct remembered *r = set_of(m, h, rsp, room);
	for (unsigned i = 0; i < WAYS; i++)
		if (as_before(m, &r[i], pc, rsp, rbp, stamp, room)) {
			uint32_t id = r[i].id;
			*as = &r[i];
			RS_BARRIER();
			if (RS_LIKELY(m->writes == writes)) {
				struct frame_site *s = frame_site(m, h);
				if (s->tag == h)
					s->last = place_in(m, &r[i]);
				return id;
			}
		}
	return 0;
}

/* The stack that is remembered of there; 0: none is. *as: where. */
static inline __attribute__((always_inline)) uint32_t again_at(const struct rs_thread *t, uintptr_t pc, uintptr_t rsp, uintptr_t rbp, unsigned depth, const struct remembered **as)
{
	const struct memory *m = t->stack_memory;
	if (RS_UNLIKELY(!m || rsp < t->stack_lo || rsp >= t->stack_hi))
		return 0;
	uint64_t writes = m->writes, h = frame_hash(pc, rsp);
	RS_BARRIER();
	const struct frame_site *s = &m->site[h >> 54];
	const struct remembered *r = (const struct remembered *)((const char *)m->way + 8ull * s->last);
	if (RS_LIKELY(s->tag == h && as_before(m, r, pc, rsp, rbp, stamp_now(depth), t->stack_hi - rsp))) {
		uint32_t id = r->id;
		RS_BARRIER();
		if (RS_LIKELY(m->writes == writes)) {
			*as = r;
			return id;
		}
	}
	return again_elsewhere(t, pc, rsp, rbp, depth, as);
}

static inline uint32_t again(const struct rs_thread *t, uintptr_t pc, uintptr_t rsp, uintptr_t rbp, unsigned depth)
{
	const struct remembered *as;
	return again_at(t, pc, rsp, rbp, depth, &as);
}

/* All instructions of one call of a function have one stack (HERE). So it is remembered by the frame that the function was called from, which it takes one step to find: who remembered it for each instruction walked for each of them,
 * and had no room for as many as that. */
static inline bool by_caller(struct rs_thread *t, uintptr_t pc, uintptr_t rsp, uintptr_t rbp, unsigned depth, struct rs_caller *out)
{
	return depth >= LEAST_FRAMES && depth <= 40 && rs_walk_caller(t, pc, rsp, rbp, out);
}

static __attribute__((noinline)) uint32_t take_below(struct rs_thread *t, struct rs_frame *f, unsigned depth)
{
	uint64_t pcs[1 + 40], stamp = stamp_now(depth);
	struct rs_trail trail;
	struct rs_frame first = *f;
	unsigned n = rs_walk(t, f, false, pcs + 1, (depth & FRAMES) - 1, &trail);
	pcs[0] = 0;
	pcs[1] = first.pc; /* not the innermost frame: a return address */
	uint32_t id = intern(t, pcs, 1 + n, false);
	struct memory *m = memory_of(t);
	if (m && id != 0 && !trail.unfit && first.rsp < t->stack_hi)
		remember(m, id, stamp, &first, &trail, t->stack_hi - first.rsp);
	return id;
}

uint32_t rs_stack_remembered(struct rs_thread *t, uintptr_t pc, uintptr_t rsp, uintptr_t rbp, unsigned depth, const void **as)
{
	struct rs_caller c;
	if (RS_LIKELY(by_caller(t, pc, rsp, rbp, depth, &c)))
		return again_at(t, c.f.pc, c.f.rsp, c.f.rbp, shallow(depth | HERE | OUTER), (const struct remembered **)as);
	return again_at(t, pc + 1, rsp, rbp, shallow(depth | HERE), (const struct remembered **)as);
}

unsigned rs_stack_words(struct rs_thread *t, const void *as, uint32_t id, uintptr_t pc, uintptr_t rsp, uintptr_t rbp, unsigned depth, struct rs_stack_words *out)
{
	const struct remembered *r = as; /* another stack's by now, perhaps */
	const struct memory *m = t->stack_memory;
	struct rs_caller c = {.f = {.pc = pc + 1, .rsp = rsp, .rbp = rbp}};
	bool outer = by_caller(t, pc, rsp, rbp, depth, &c);
	uint64_t stamp = stamp_now(shallow(depth | HERE | (outer ? OUTER : 0))), room = t->stack_hi - c.f.rsp, behind = (c.f.rsp - rsp) / 8, sum = 0;
	if (!m || rsp < t->stack_lo || c.f.rsp >= t->stack_hi)
		return 0;
	uint64_t writes = m->writes;
	RS_BARRIER();
	if (!as_before(m, r, c.f.pc, c.f.rsp, c.f.rbp, stamp, room) || r->id != id)
		return 0;
	unsigned n = 0, most = r->n < RS_TRAIL - 2 ? r->n : 0; /* with two more */
	uint16_t first = 0;
	out->rbp = c.by_rbp || (r->entry_rbp && !c.rbp_at);
	if (outer) {
		out->at[n] = (uint16_t)(behind - 1);
		out->word[n++] = c.f.pc;
		if (r->entry_rbp && c.rbp_at) {
			out->at[n] = (uint16_t)((c.rbp_at - rsp) / 8);
			out->word[n++] = c.f.rbp;
		}
	}
	for (unsigned i = 0; i < most; i++) {
		uint16_t word = __atomic_load_n(&r->offset[i], __ATOMIC_RELAXED);
		if (word >= room / 8 || word + behind > UINT16_MAX)
			return 0;
		uint64_t value = ((const uint64_t *)c.f.rsp)[word];
		sum += value * m->factor[i];
		if (i && word == first) /* remember() adds the first once more to fill the head */
			continue;
		first = i ? first : word;
		out->at[n] = (uint16_t)(word + behind);
		out->word[n++] = value;
	}
	bool same = sum == r->sum;
	RS_BARRIER();
	return same && m->writes == writes ? n : 0;
}

static inline uint32_t from(struct rs_thread *t, uintptr_t pc, uintptr_t rsp, uintptr_t rbp, unsigned depth)
{
	struct rs_frame f = {.pc = pc, .rsp = rsp, .rbp = rbp, .has_rbp = true};
	depth = shallow(depth);
	if (depth == 0 || !rs_active)
		return 0;
	if (RS_UNLIKELY((depth & FRAMES) > 40))
		return take_deep(t, &f, false, depth);
	uint32_t id = again(t, pc, rsp, rbp, depth);
	return RS_LIKELY(id != 0) ? id : take_anew(t, &f, depth);
}

uint32_t rs_stack_from(struct rs_thread *t, uintptr_t pc, void *fp, unsigned depth)
{
	/* The interposed function's frame: its caller's rbp, the return address, and above them the caller's stack. */
	return from(t, pc, (uintptr_t)fp + 16, *(const uint64_t *)fp, depth);
}

uint32_t rs_stack_kept(struct rs_thread *t, uintptr_t pc, void *fp, unsigned depth)
{
	return from(t, pc, (uintptr_t)fp + 16, *(const uint64_t *)fp, keeping && depth ? frames_of(pc, depth) | LATE : depth);
}

uint32_t rs_stack_again(const struct rs_thread *t, uintptr_t pc, void *fp, unsigned depth)
{
	return again(t, pc, (uintptr_t)fp + 16, *(const uint64_t *)fp, shallow(keeping && depth ? frames_of(pc, depth) | LATE : depth));
}

uint32_t rs_stack_here(struct rs_thread *t, uintptr_t pc, uintptr_t rsp, uintptr_t rbp, unsigned depth)
{
	struct rs_caller c;
	if (RS_LIKELY(rs_active && by_caller(t, pc, rsp, rbp, depth, &c))) {
		depth = shallow(depth | HERE | OUTER);
		uint32_t id = again(t, c.f.pc, c.f.rsp, c.f.rbp, depth);
		return RS_LIKELY(id != 0) ? id : take_below(t, &c.f, depth);
	}
	return from(t, pc + 1, rsp, rbp, depth ? depth | HERE : 0); /* as if it were a return address: less 1 it is the instruction */
}

static __attribute__((noinline)) uint32_t call_from(struct rs_thread *t, uintptr_t function, struct rs_frame *f, unsigned depth)
{
	uint64_t pcs[RS_MAX_DEPTH + 1];
	uintptr_t pc = f->pc;
	depth = shallow(depth);
	unsigned n = rs_walk(t, f, false, pcs + 1, depth < RS_MAX_DEPTH ? depth : RS_MAX_DEPTH, NULL);
	pcs[0] = function;
	pcs[1] = pc; /* not the innermost frame: a return address */
	return intern(t, pcs, 1 + n, false);
}

uint32_t rs_stack_called(struct rs_thread *t, uintptr_t function, uintptr_t pc, uintptr_t rsp, uintptr_t rbp, unsigned depth)
{
	uint32_t below = from(t, pc, rsp, rbp, depth);
	if (below == 0)
		return 0;
	uint64_t h = (function + below * 0xff51afd7ed558ccdull) * 0x9e3779b97f4a7c15ull, *place = &called[h >> 52], found = __atomic_load_n(place, __ATOMIC_RELAXED);
	uint32_t tag = (uint32_t)(h >> 20);
	if (RS_LIKELY(found >> 32 == tag && found != 0))
		return (uint32_t)found;
	struct rs_frame f = {.pc = pc, .rsp = rsp, .rbp = rbp, .has_rbp = true};
	uint32_t id = call_from(t, function, &f, depth);
	__atomic_store_n(place, (uint64_t)tag << 32 | id, __ATOMIC_RELAXED);
	return id;
}

uint32_t rs_stack_trail(struct rs_thread *t, uintptr_t pc, void *fp, unsigned depth, struct rs_trail *trail)
{
	struct rs_frame f = {.pc = pc, .rsp = (uintptr_t)fp + 16, .rbp = *(const uint64_t *)fp, .has_rbp = true};
	trail->unfit = true;
	trail->n = 0;
	return depth != 0 && rs_active ? take(t, &f, false, depth, trail) : 0;
}

static __attribute__((noinline)) uint32_t past_deep(struct rs_thread *t, struct rs_frame *f, const struct rs_past *past, unsigned depth)
{
	uint64_t pcs[RS_MAX_DEPTH];
	return intern(t, pcs, rs_walk_past(t, f, past, pcs, depth < RS_MAX_DEPTH ? depth : RS_MAX_DEPTH), false);
}

uint32_t rs_stack_past(struct rs_thread *t, struct rs_frame *f, const struct rs_past *past, unsigned depth)
{
	uint64_t pcs[40];
	if (depth == 0 || !rs_active)
		return 0;
	if (RS_UNLIKELY(depth > sizeof pcs / sizeof *pcs))
		return past_deep(t, f, past, depth);
	return intern(t, pcs, rs_walk_past(t, f, past, pcs, depth), false);
}

uint32_t rs_stack_ucontext(struct rs_thread *t, const void *ucontext, unsigned depth)
{
	enum { UCONTEXT_GREGS = 40, RBP = 10, RBX = 11, RSP = 15, RIP = 16 };
	const uint64_t *g = (const uint64_t *)((const char *)ucontext + UCONTEXT_GREGS);
	struct rs_frame f = {.pc = g[RIP], .rsp = g[RSP], .rbp = g[RBP], .rbx = g[RBX], .has_rbp = true, .has_rbx = true, .gregs = g};
	if (depth == 0 || !rs_active)
		return 0;
	return take(t, &f, true, depth, NULL);
}
