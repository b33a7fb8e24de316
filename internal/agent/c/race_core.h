/* race_core.h: what the files of the detector share: race.c (memory, clocks, threads), raceevent.c (objects, events), raceobject.c (accesses to objects), raceplace.c (atomic locations), raceblock.c (heap
 * blocks), racepage.c (pages of the shadow, sites), racepoint.c (points of a cell), raceshadow.c (the check), racefound.c (races).
 *
 * Order of locks, outermost first: heap, learn, a place, pages, then a bucket or a cell, then a thread's clock or the races, then a pool. Nobody waits for a lock for ever:
 * rs_race_lock gives up, and whoever cannot do what it must calls rs_race_amnesty. So a handler may come upon a lock that its own thread holds, and a longjmp out of one may
 * leave a lock locked. */
#ifndef RS_RACE_CORE_H
#define RS_RACE_CORE_H
/* No vector registers: the trampolines save none. */
#if !defined(__clang__) /* which has -mgeneral-regs-only alone */
#pragma GCC target("general-regs-only")
#endif
#include "os.h"
#include "race.h"
#include "zz_wire.h"

#define RACE_HIDDEN __attribute__((visibility("hidden")))
#define RACE_UNLIKELY(x) __builtin_expect(!!(x), 0)

/* An epoch: a slot of 12 bits and a time of 44, at 20 million releases a second ten days. A place in the shadow has in the 8 bits above the bytes of the cell that it speaks of. */
enum { SLOTS = 4096, TIME_BITS = 44, MASK_BITS = 56 };
#define TIME ((1ull << TIME_BITS) - 1)
#define EPOCH ((1ull << MASK_BITS) - 1)
static inline uint32_t race_slot(uint64_t e) { return (uint32_t)(e >> TIME_BITS) & (SLOTS - 1); }
static inline uint64_t race_time(uint64_t e) { return e & TIME; }
static inline uint64_t race_load(const uint64_t *p) { return __atomic_load_n(p, __ATOMIC_RELAXED); }

/* --- memory, locks: race.c --------------------------------------------------------------------------------------------- */

bool rs_race_lock(uint32_t *lock) RACE_HIDDEN;
void rs_race_pause(unsigned round) RACE_HIDDEN; /* between tries for a lock */
static inline void rs_race_unlock(uint32_t *lock) { __atomic_store_n(lock, 0, __ATOMIC_RELEASE); }

/* Items of one size by number; 0 is none. They are never given back to the OS, so a number that is out of date leads to an item, perhaps another one. */
enum { POOL_CHUNKS = 4096 };
struct race_pool { uint32_t lock, size, shift, next, free; char *chunk[POOL_CHUNKS]; };
uint32_t rs_race_get(struct race_pool *p) RACE_HIDDEN; /* zeroed; 0: no memory */
void rs_race_put(struct race_pool *p, uint32_t i) RACE_HIDDEN;
static inline void *race_at(const struct race_pool *p, uint32_t i) { return p->chunk[i >> p->shift] + (size_t)(i & ((1u << p->shift) - 1)) * p->size; }

extern struct rs_race_counts rs_race_counted RACE_HIDDEN;
extern struct rs_race_config rs_race_configured RACE_HIDDEN;

/* --- clocks: race.c ---------------------------------------------------------------------------------------------------- */

/* What a release told: two clocks. v: as internal/race orders it, without what only movs order. w: with that, and so never less than v. of: the last release's epoch, 0: none at all.
 * exact: the release of `of` knew all the others. */
struct race_stamp { uint64_t of; uint32_t buf, n, gen; bool exact; };

struct race_point { uint64_t e; uint32_t site; uint8_t info; };
static inline uint8_t race_bytes(const struct race_point *p) { return (uint8_t)(p->e >> MASK_BITS); }
enum { POINTS = 512, SITE_CACHE = 256, LAST_TAKEN = 16, READS = 8 };
struct race_site { uint64_t pc, size; uint32_t stack, thread; uint32_t kind; };

/* One thread, and its slot's last once it has ended. Its own thread changes it, others under lock: v, w; and epoch, by atomic additions. */
struct race_thread {
	struct rs_race_thread quick;
	uintptr_t busy;            /* in the detector, since where on the stack: a handler that comes now must not */
	bool put_off;              /* one waits for its end */
	uint32_t lock;
	uint32_t slot, phase;
	bool created, started, ended;
	uint64_t end;              /* its epoch when it ended */
	uint64_t store, store_size; /* a plain store after which it did nothing; size 0: none */
	struct race_stamp tmp;
	uint64_t *v, *w;           /* SLOTS each */
	uint32_t next;             /* of the recycled */
	struct { uint64_t obj; uint32_t stack; } taken[LAST_TAKEN]; /* where it took locks, the newest at takes-1 */
	uint32_t takes;
	struct race_stamp fence;   /* of the last fence that released */
	uint64_t read[READS], read_count; /* atomics that were read with NO_TAKE since the last fence that acquired */
	struct race_met { uint64_t hash; uint32_t id; } sites[SITE_CACHE]; /* by a site's hash; id 0: none */
	struct race_point points[POINTS + 4];
	uint64_t alone;            /* a page of which configured.alone is to hear; 0: none */
	uint32_t met_many;         /* how often it met a page that several use */
	uint64_t stack_lo, stack_hi; /* rs_race_stack's, as are these: NULL: none was told */
	struct rs_race_frames *frames;
	const uintptr_t *told;
};

extern struct race_thread *rs_race_owner[SLOTS] RACE_HIDDEN; /* the last thread of each slot; NULL: gone */
extern uint64_t rs_race_floor[SLOTS] RACE_HIDDEN;            /* up to here everybody knows */
extern uint32_t rs_race_slots RACE_HIDDEN;
extern uint32_t rs_race_generation RACE_HIDDEN;              /* how often w became v, twice */

static inline bool race_in(const struct race_thread *t, const uint64_t *clock, uint64_t e)
{
	uint32_t s = race_slot(e);
	return s == t->slot || race_load(&clock[s]) >= race_time(e) || race_load(&rs_race_floor[s]) >= race_time(e);
}
/* What was done at e comes before what t does now; perhaps by movs alone. */
static inline bool race_knows(const struct race_thread *t, uint64_t e) { return race_in(t, t->v, e); }
static inline bool race_may_know(const struct race_thread *t, uint64_t e) { return race_in(t, t->w, e); }

/* Nothing of the detector's is changed by a handler between the two. */
static inline void race_enter(struct race_thread *t, uintptr_t sp)
{
	t->busy = sp;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
}
static inline void race_leave(struct race_thread *t)
{
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	t->busy = 0;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	if (__builtin_expect(t->put_off, 0)) {
		t->put_off = false;
		rs_race_configured.due();
	}
}

void rs_race_give(struct race_stamp *s, struct race_thread *t) RACE_HIDDEN; /* and a time of t begins */
void rs_race_give_later(struct race_stamp *s, struct race_thread *t) RACE_HIDDEN; /* likewise; none begins where nobody could know the difference. Not to one that begins by it */
void rs_race_take(struct race_thread *t, const struct race_stamp *s, bool by_mov) RACE_HIDDEN;
void rs_race_join_stamps(struct race_stamp *to, const struct race_stamp *s) RACE_HIDDEN;
void rs_race_drop(struct race_stamp *s) RACE_HIDDEN;
void rs_race_give_slot(struct race_stamp *s, uint32_t slot) RACE_HIDDEN;  /* what the slot's thread has done by now */
void rs_race_floor_stamp(const struct race_stamp *s) RACE_HIDDEN;         /* everybody knows it */
void rs_race_bump(uint32_t slot) RACE_HIDDEN;                             /* a time of the slot's thread begins */
void rs_race_movs_order(void) RACE_HIDDEN;                                /* what movs ordered up to here is ordered for certain */

struct race_thread *rs_race_of(uint32_t number) RACE_HIDDEN;      /* NULL: never seen */
bool rs_race_gone(uint32_t number) RACE_HIDDEN;                   /* it has been, and ended long ago */
struct race_thread *rs_race_self(uint32_t number) RACE_HIDDEN;
struct race_thread *rs_race_new(uint32_t number, const struct race_stamp *from) RACE_HIDDEN;
void rs_race_thread_ends(struct race_thread *t) RACE_HIDDEN;
void rs_race_unborn(struct race_thread *t) RACE_HIDDEN;           /* it never was */
void rs_race_take_all(struct race_thread *t) RACE_HIDDEN;
void rs_race_take_ended(struct race_thread *t) RACE_HIDDEN;
void rs_race_give_others(struct race_thread *t) RACE_HIDDEN;
void rs_race_threads_after_fork(void) RACE_HIDDEN;
uint32_t rs_race_stack_at(uint64_t addr) RACE_HIDDEN;             /* whose stack it is: a number; 0: nobody's */
extern uint64_t rs_race_common RACE_HIDDEN; /* the first thread's time when it made the second: everybody knows what is older */

/* --- objects: raceevent.c, raceobject.c ---------------------------------------------------------------------------------------------- */

void rs_race_drop_objects(uint64_t lo, uint64_t hi) RACE_HIDDEN;
bool rs_race_object_shared(uint64_t addr, uint32_t kind) RACE_HIDDEN; /* processes share it */
/* The access to an object that an event tells, if it does; before what the event orders. */
void rs_race_object_access(struct race_thread *t, const uint64_t *w) RACE_HIDDEN;

/* --- atomic locations: raceplace.c --------------------------------------------------------------------------------------- */

/* PLACE_ATOMIC: a locked instruction accessed it. PLACE_MOV: movs raced for it; it orders in w alone. PLACE_SAME: two movs of its very bytes did. */
enum { PLACE_ATOMIC = 1, PLACE_MOV = 2, PLACE_SAME = 4, PLACE_DEAD = 8 };
/* To rs_race_learn alone: what the thread did up to now is not released by it. */
enum { PLACE_QUIET = 16 };
enum { PLACES = 16 };
#define PLACE_CERTAIN (1u << 31)
/* Numbers of the places with one of the flags that share a byte with [lo,hi), at most PLACES; with PLACE_CERTAIN those of atomics. */
unsigned rs_race_places(uint64_t lo, uint64_t hi, unsigned flags, uint32_t out[PLACES]) RACE_HIDDEN;
/* Makes [lo,hi) a part of a place with these flags. by: the thread whose access shows it. */
void rs_race_learn(struct race_thread *by, uint64_t lo, uint64_t hi, unsigned flags) RACE_HIDDEN;
void rs_race_place_give(uint32_t i, struct race_thread *t) RACE_HIDDEN;
void rs_race_place_give_slot(uint32_t i, uint32_t slot) RACE_HIDDEN;
void rs_race_place_join(uint32_t i, const struct race_stamp *s) RACE_HIDDEN;
void rs_race_place_take(uint32_t i, struct race_thread *t) RACE_HIDDEN;
void rs_race_close(uint64_t lo, uint64_t hi) RACE_HIDDEN;
/* Bytes of a cell that are in places of ATOMIC, or of any kind. */
uint8_t rs_race_place_bytes(uint64_t cell, bool atomic) RACE_HIDDEN;
bool rs_race_page_has_places(uint64_t page) RACE_HIDDEN;
void rs_race_places_after_fork(void) RACE_HIDDEN;

/* --- heap blocks: raceblock.c -------------------------------------------------------------------------------------------- */

void rs_race_alloc(struct race_thread *t, uint64_t addr, uint64_t size, uint32_t stack) RACE_HIDDEN;
/* The program was told that its block has so many bytes: those that it did not ask for are its as well, and nobody's before. */
void rs_race_grow(uint64_t addr, uint64_t size) RACE_HIDDEN;
/* If no block there is known. */
void rs_race_adopt(struct race_thread *t, uint64_t addr, uint64_t size, uint32_t stack) RACE_HIDDEN;
void rs_race_free(struct race_thread *t, uint64_t addr, uint32_t stack, uint8_t kind) RACE_HIDDEN;
/* The bytes are other memory: blocks, history, places, objects go. */
void rs_race_replace(uint64_t lo, uint64_t hi) RACE_HIDDEN;
struct race_freed { uint64_t addr, size; uint32_t stack, thread; };
bool rs_race_freed_at(uint64_t lo, uint64_t hi, struct race_freed *out) RACE_HIDDEN;
void rs_race_blocks_after_fork(void) RACE_HIDDEN;

/* --- shadow: racepage.c, racepoint.c, raceshadow.c ------------------------------------------------------------------------------------------------ */

enum { POINT_WRITE = 1, POINT_READ, POINT_ATOMIC_WRITE, POINT_ATOMIC_READ, POINT_LAST_MOV };
enum { INFO_BEFORE = 8, INFO_KIND = 4, INFO_MOV = 128 }; /* info: the offset in the cell; the access began in an earlier cell; kind<<INFO_KIND; by a mov that could be an atomic's */
static inline unsigned race_kind(uint8_t info) { return info >> INFO_KIND & 7; }
static inline uint8_t race_mask(uint64_t cell, uint64_t lo, uint64_t hi)
{
	unsigned mask = 0xff;
	if (lo > cell * 8)
		mask = mask << (lo - cell * 8) & 0xff;
	if (hi - 1 < cell * 8 + 7)
		mask &= 0xff >> (7 - (hi - 1 - cell * 8));
	return (uint8_t)mask;
}
/* places: bytes that are of places of any kind. more: a node. */
struct race_cell { uint64_t e[2]; uint32_t site[2]; uint8_t info[2], places, lock; uint32_t more; };
_Static_assert(sizeof(struct race_cell) == 32, "four times the memory it speaks of");
struct race_node { uint64_t e[3]; uint32_t site[3]; uint32_t next; uint8_t info[3]; };
enum { CELLS = 512, NODE_POOLS = 16, LEVEL = 4096 };
/* A page's memory may become another page's, so whoever has locked a cell looks at the number again. freed: bytes of freed blocks, as any_freed says: FREED_SOME, FREED_ALL. touched: how many pages there had
 * been at the last access. user: the one thread whose accesses were told since it was set, RACE_MANY: there were several; alone: how many of them were not the same again. used: a bit for each 8 cells, without which none has a point. Whoever stores one has locked the cell and sees to the bit before it looks whether the bytes are freed; who takes the bit away looks at the
 * cells afterwards. */
enum { FREED_SOME = 1, FREED_ALL = 2, GROUP = 8 };
#define RACE_MANY UINT32_MAX
/* stack: whose stack it is a part of, a thread's number; 0: nobody's. */
struct race_page { uint64_t number, touched, used; uint64_t freed[64]; uint32_t next, any_freed, user, alone, stack; struct race_cell cell[CELLS]; };
_Static_assert(CELLS / GROUP == 64, "bits of used");
static inline void race_use(struct race_page *g, uint64_t cell)
{
	uint64_t bit = 1ull << cell % CELLS / GROUP;
	if (!(race_load(&g->used) & bit))
		__atomic_fetch_or(&g->used, bit, __ATOMIC_SEQ_CST);
}
extern struct race_page ***rs_race_pages[LEVEL] RACE_HIDDEN; /* by page number, 12 bits a level */
extern uint64_t rs_race_made_pages RACE_HIDDEN;
extern struct race_pool rs_race_nodes[NODE_POOLS] RACE_HIDDEN;
static inline struct race_pool *race_nodes_of(uint64_t cell) { return &rs_race_nodes[cell / CELLS % NODE_POOLS]; }
static inline struct race_page *race_page_at(uint64_t number)
{
	struct race_page ***a = __atomic_load_n(&rs_race_pages[number >> 24 & (LEVEL - 1)], __ATOMIC_ACQUIRE);
	struct race_page **b = a ? __atomic_load_n(&a[number >> 12 & (LEVEL - 1)], __ATOMIC_ACQUIRE) : NULL;
	return b ? __atomic_load_n(&b[number & (LEVEL - 1)], __ATOMIC_ACQUIRE) : NULL;
}
static inline void race_unlock_cell(struct race_cell *c) { __atomic_store_n(&c->lock, 0, __ATOMIC_RELEASE); }
bool rs_race_lock_cell(struct race_cell *c) RACE_HIDDEN;
/* The page, with the cell locked; NULL: it cannot be had. */
struct race_page *rs_race_locked_cell(uint64_t cell, bool make, struct race_cell **out) RACE_HIDDEN;
/* Calls fn for the cells of [lo,hi) that may have a point. ends: none has one afterwards, as far as the bytes are all of a group's. */
void rs_race_each_cell(uint64_t lo, uint64_t hi, bool ends, void (*fn)(struct race_page *g, uint64_t cell, uint8_t mask, void *arg), void *arg) RACE_HIDDEN;
void rs_race_free_nodes(struct race_pool *p, uint32_t i) RACE_HIDDEN;
bool rs_race_shadow_begin(void) RACE_HIDDEN;
/* Loads the points of a locked cell, of that number, into t->points, and gives how many there are; stores the first n of them. Points without bytes are left out. A point is seen by others before what describes it. */
unsigned rs_race_load_points(struct race_thread *t, uint64_t number, const struct race_cell *c) RACE_HIDDEN;
void rs_race_store_points(struct race_thread *t, uint64_t number, struct race_cell *c, unsigned n) RACE_HIDDEN;
/* Notes that the bytes of the cell are of a place. Gives the slots of the movs that wrote them, at most n, those that t does not know; slots NULL: none. */
unsigned rs_race_mark(struct race_thread *t, uint64_t cell, uint8_t mask, uint32_t *slots, unsigned n) RACE_HIDDEN;
void rs_race_unmark(uint64_t cell) RACE_HIDDEN; /* looks again which bytes are of places */
void rs_race_forget_history(uint64_t lo, uint64_t hi) RACE_HIDDEN;
void rs_race_set_freed(uint64_t lo, uint64_t hi, bool freed) RACE_HIDDEN;
struct race_block_ref { uint64_t addr, size; uint32_t stack; };
/* The access of a call, no mov, to few bytes. In the detector. */
void rs_race_called(struct race_thread *t, uint64_t addr, uint64_t size, unsigned kind, uint64_t pc, uint32_t stack) RACE_HIDDEN;
/* An access that is no atomic's to bytes of one page, which may be another page by now: what rs_race_access would come to where that needs little. site: rs_race_intern's. Returns the first point of the
 * cell, if it is one cell, else a number; 0: not done, or in part, and so to be told. Not in the detector. */
uint64_t rs_race_quick(struct race_thread *t, const struct race_page *page, uint64_t lo, uint64_t size, unsigned kind, uint32_t site) RACE_HIDDEN;
void rs_race_check_free(struct race_thread *t, const struct race_block_ref *b) RACE_HIDDEN;
void rs_race_shadow_after_fork(void) RACE_HIDDEN;
/* What is the same in many accesses, kept once; 0 is none. */
const struct race_site *rs_race_site(uint32_t id) RACE_HIDDEN;
uint32_t rs_race_intern(struct race_thread *t, uint64_t pc, uint64_t size, uint32_t stack, unsigned kind) RACE_HIDDEN;

/* --- races: racefound.c -------------------------------------------------------------------------------------------------- */

/* What a race rests on. ORDERED: what movs order would order it. DIRECT: both are movs, or atomic; it is none if the bytes prove atomic. SAME: both of the very same bytes. */
enum { REST_ORDERED = 1, REST_DIRECT = 2, REST_SAME = 4 };
uint64_t rs_race_now(void) RACE_HIDDEN; /* counts places and races, to tell what was first */
/* What others may learn while an access is looked at: taken before it is, and compared when a race of it is noted. */
struct race_moment { uint32_t generation, atomics; };
extern uint32_t rs_race_atomics RACE_HIDDEN; /* how often bytes proved atomic */
static inline struct race_moment rs_race_moment(void)
{
	return (struct race_moment){__atomic_load_n(&rs_race_generation, __ATOMIC_ACQUIRE), __atomic_load_n(&rs_race_atomics, __ATOMIC_ACQUIRE)};
}
bool rs_race_is_new(const struct rs_race_found *f) RACE_HIDDEN; /* no race of that pair is noted */
void rs_race_found(const struct rs_race_found *f, uint64_t lo, uint64_t hi, unsigned rests, struct race_moment began) RACE_HIDDEN;
/* The bytes proved atomic: their place can be found. */
void rs_race_found_atomic(uint64_t lo, uint64_t hi) RACE_HIDDEN;
/* Movs that ordered since then were an atomic's. */
void rs_race_found_ordered(uint64_t since) RACE_HIDDEN;
/* The bytes will not prove atomic any more. */
void rs_race_found_dies(uint64_t lo, uint64_t hi) RACE_HIDDEN;
void rs_race_found_after_fork(void) RACE_HIDDEN;
#endif
