/* object.c: the registry of synchronisation objects that events have spoken of, and what happens to them when memory goes.
 *
 * A lock-free open-addressing set of addresses that only grows: addresses come back, so its size is bounded by the addresses that
 * ever held such objects, and nobody ever has to wait, in a handler or after a fork. Places are found by page, so that
 * neighbours in the target are neighbours here. A second table has, per page, a mask of 64-byte granules with objects: what
 * free() asks first.
 */
#include "sync.h"

enum {
	OBJECTS = 1 << 18,        /* × 32 bytes, touched as used */
	OBJECTS_MOST = OBJECTS / 4 * 3,
	PROBES = 256,
	FEW = 1 << 9,             /* the first ones, in buckets: a program that has no more touches few pages */
	BUCKET = 4,
	PAGES = 1 << 16,          /* × 16 bytes */
	PAGE_GROUP = 8,
	PAGE_PROBES = 64,
	CHUNKS = 1 << 13,         /* of 2 MiB of address space, hashed; a bit per 64 KiB */
};

struct page { uint64_t number, mask; };

static struct rs_object *objects;
static struct page *pages;
/* What finds no place in its bucket here goes to the large table. Nothing leaves either, so all agree on where that is. */
static struct rs_object few[FEW] __attribute__((aligned(64)));
static struct page few_pages[FEW] __attribute__((aligned(64)));
static uint32_t objects_used;
static uint32_t pages_full;
static uint32_t chunks[CHUNKS]; /* where objects may be: a buffer of megabytes must not cost a look at each of its pages */
uint32_t rs_generations[1 << RS_GENERATION_BITS];

#define LOAD(x) __atomic_load_n(&(x), __ATOMIC_ACQUIRE)
#define STATE(life, kind, flags, stack) ((uint64_t)(life) | (uint64_t)(kind) << 8 | (uint64_t)(flags) << 16 | (uint64_t)(stack) << 32)
#define STATE_KIND(s) ((unsigned)((s) >> 8) & 0xff)
#define STATE_FLAGS(s) ((unsigned)((s) >> 16) & (TOLD - 1))
/* In a state's flags, above those of enum ObjFlag. UNSAID: its init was not sent yet, nor anything else of it: of most locks of a program that makes and drops many nothing ever is. Its value is in the upper half of
 * extra. TOLD: of an object in these bytes something was sent, so Go is told when they are gone. */
enum { UNSAID = 1 << 15, TOLD = 1 << 14 };

static inline uint64_t scatter(uint64_t x) { return x * 0x9e3779b97f4a7c15ull; }

static void next_generation(uintptr_t obj)
{
	__atomic_fetch_add(rs_generation_place(obj), 1, __ATOMIC_RELAXED);
}

/* --- the set ------------------------------------------------------------------------------------------------------------------ */

static bool make_tables(struct rs_thread *t)
{
	if (LOAD(objects) && LOAD(pages))
		return true;
	struct page *p = rs_os_map(PAGES * sizeof *p), *no_page = NULL;
	struct rs_object *o = rs_os_map(OBJECTS * sizeof *o), *no_object = NULL;
	if (p && !__atomic_compare_exchange_n(&pages, &no_page, p, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
		rs_os_unmap(p, PAGES * sizeof *p);
	if (o && !__atomic_compare_exchange_n(&objects, &no_object, o, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
		rs_os_unmap(o, OBJECTS * sizeof *o);
	if (LOAD(objects) && LOAD(pages))
		return true;
	rs_notice(t, RS_NOTICE_NO_MEMORY, ENOMEM, OBJECTS * sizeof *o);
	return false;
}

/* By 16 bytes: a mutex has 40, and a page of them is not to be scattered over four pages here. */
static inline uint32_t place_of(uintptr_t obj)
{
	return ((uint32_t)(scatter(obj >> 12) >> 46) + (uint32_t)((obj & 4095) >> 4)) & (OBJECTS - 1);
}

static inline uint32_t bucket_of(uint64_t key) { return (uint32_t)(scatter(key) >> 57) * BUCKET; }
_Static_assert(FEW == BUCKET << (64 - 57), "the hash's upper bits choose a bucket");

struct rs_object *rs_object_find(uintptr_t obj)
{
	struct rs_object *table = &few[bucket_of(obj)];
	for (int i = 0; i < BUCKET; i++) {
		uint64_t key = LOAD(table[i].key);
		if (key == obj)
			return &table[i];
		if (key == 0)
			return NULL;
	}
	if (!(table = LOAD(objects)))
		return NULL;
	uint32_t at = place_of(obj);
	for (int i = 0; i < PROBES; i++, at = (at + 1) & (OBJECTS - 1)) {
		uint64_t key = LOAD(table[at].key);
		if (key == obj)
			return &table[at];
		if (key == 0)
			return NULL;
	}
	return NULL;
}

static inline bool claim(uint64_t *place, uint64_t *key, uint64_t wanted)
{
	return __atomic_compare_exchange_n(place, key, wanted, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE) || *key == wanted;
}

static struct rs_object *add(struct rs_thread *t, uintptr_t obj)
{
	struct rs_object *b = &few[bucket_of(obj)];
	for (int i = 0; i < BUCKET; i++) {
		uint64_t key = LOAD(b[i].key);
		if (key == obj || (key == 0 && claim(&b[i].key, &key, obj)))
			return &b[i];
	}
	if (!make_tables(t))
		return NULL;
	uint32_t at = place_of(obj);
	for (int i = 0; i < PROBES; i++, at = (at + 1) & (OBJECTS - 1)) {
		uint64_t key = LOAD(objects[at].key);
		if (key == obj)
			return &objects[at];
		if (key != 0)
			continue;
		if (__atomic_load_n(&objects_used, __ATOMIC_RELAXED) >= OBJECTS_MOST)
			break;
		if (__atomic_compare_exchange_n(&objects[at].key, &key, obj, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
			__atomic_fetch_add(&objects_used, 1, __ATOMIC_RELAXED);
			return &objects[at];
		}
		if (key == obj)
			return &objects[at];
	}
	/* Later objects have no init event and no place; all else works. */
	rs_notice(t, RS_NOTICE_LIMIT, 0, OBJECTS_MOST);
	return NULL;
}

_Static_assert(PAGES == PAGE_GROUP << (64 - 51), "the hash's upper bits choose a group of pages");

/* --- pages ---------------------------------------------------------------------------------------------------------------------- */

/* t: make a place for it if there is none; NULL: do not. */
static struct page *page_find(struct rs_thread *t, uint64_t number)
{
	struct page *b = &few_pages[bucket_of(number)];
	for (int i = 0; i < BUCKET; i++) {
		uint64_t n = LOAD(b[i].number);
		if (n == number || (n == 0 && t && claim(&b[i].number, &n, number)))
			return &b[i];
		if (n == 0 && !t)
			return NULL;
	}
	if (!LOAD(pages) && !(t && make_tables(t)))
		return NULL;
	/* Neighbours are neighbours here, too: a heap's pages touch few of ours. */
	uint32_t at = (uint32_t)(scatter(number / PAGE_GROUP) >> 51) * PAGE_GROUP + (uint32_t)(number % PAGE_GROUP);
	for (int i = 0; i < PAGE_PROBES; i++, at = (at + 1) & (PAGES - 1)) {
		uint64_t n = LOAD(pages[at].number);
		if (n == number)
			return &pages[at];
		if (n == 0) {
			if (!t)
				return NULL;
			if (__atomic_compare_exchange_n(&pages[at].number, &n, number, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE) || n == number)
				return &pages[at];
		}
	}
	return NULL;
}

static inline uint32_t *chunk_of(uintptr_t a) { return &chunks[scatter(a >> 21) >> 51]; }

static void mark(struct rs_thread *t, uintptr_t obj)
{
	uint32_t *chunk = chunk_of(obj), piece = 1u << (obj >> 16 & 31);
	if (!(LOAD(*chunk) & piece))
		__atomic_fetch_or(chunk, piece, __ATOMIC_RELEASE);
	struct page *p = page_find(t, obj >> 12);
	uint64_t bit = 1ull << (obj >> 6 & 63);
	if (!p)
		__atomic_store_n(&pages_full, 1, __ATOMIC_RELEASE);
	else if (!(LOAD(p->mask) & bit))
		__atomic_fetch_or(&p->mask, bit, __ATOMIC_RELEASE);
}

/* --- life ------------------------------------------------------------------------------------------------------------------------- */

static unsigned flags_of(uintptr_t obj, unsigned kind)
{
	switch (kind) {
	case RS_OBJECT_MUTEX: return rs_mutex_flags(obj);
	case RS_OBJECT_RWLOCK: return rs_rwlock_flags(obj);
	case RS_OBJECT_COND: return rs_cond_flags(obj);
	}
	return 0;
}

/* A destroyed object of the same kind was here. Do the bytes say that a static initialiser was assigned since? */
static bool made_anew(uintptr_t obj, unsigned kind)
{
	switch (kind) {
	case RS_OBJECT_MUTEX: return ((const pthread_mutex_t *)obj)->__data.__kind != -1;
	case RS_OBJECT_RWLOCK: return !rs_rwlock_marked((const pthread_rwlock_t *)obj);
	case RS_OBJECT_COND: return (((const pthread_cond_t *)obj)->__data.__wrefs & 4) == 0;
	case RS_OBJECT_BARRIER:
	case RS_OBJECT_SEM: return false; /* have no static initialiser */
	}
	return true;
}

/* Whatever has a mark is known to heap.c, too: what is freed with no object in it is not looked up here. */
static void heap_knows(uintptr_t obj)
{
	uintptr_t block;
	size_t size;
	uint32_t stack;
	bool site;
	rs_heap_block_of(NULL, obj, &block, &size, &stack, &site);
}

static void in_block(struct rs_thread *t, uintptr_t obj)
{
	uintptr_t block;
	size_t size;
	uint32_t stack;
	bool site = false;
	if (rs_heap_block_of(t, obj, &block, &size, &stack, &site)) {
		rs_stack_tell(t, stack);
		RS_EMIT(t, IN_BLOCK, in_block, obj, block, size, stack, site);
	}
}

/* Whoever finds it unsaid sends it, before its own event: once more does no harm, which a late init is there for. */
static __attribute__((noinline)) void say(struct rs_thread *t, struct rs_object *o, uint64_t s)
{
	uint32_t stack = (uint32_t)(s >> 32);
	RS_EMIT(t, INIT, init, o->key, (uint8_t)STATE_KIND(s), (uint16_t)(STATE_FLAGS(s) | RS_OBJ_FLAG_LATE), stack, (uint32_t)(LOAD(o->extra) >> 32));
	in_block(t, o->key);
	__atomic_compare_exchange_n(&o->state, &s, (s & ~((uint64_t)UNSAID << 16)) | (uint64_t)TOLD << 16, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

void rs_object_seen(struct rs_thread *t, uintptr_t obj, unsigned kind)
{
	struct rs_object *o = rs_object_find(obj);
	if (!o && !(o = add(t, obj)))
		return;
	uint64_t s = LOAD(o->state);
	if ((uint8_t)s == RS_LIFE_LIVE && STATE_KIND(s) == kind) {
		if (RS_UNLIKELY(s & (uint64_t)UNSAID << 16))
			say(t, o, s);
		return;
	}
	/* Never seen; or its memory went; or another kind of object was there; or it was destroyed and then made anew without an init. */
	if ((uint8_t)s == RS_LIFE_DESTROYED && STATE_KIND(s) == kind && !made_anew(obj, kind))
		return;
	unsigned flags = kind == RS_OBJECT_THREAD ? 0 : flags_of(obj, kind) | RS_OBJ_FLAG_STATIC;
	if (!__atomic_compare_exchange_n(&o->state, &s, STATE(RS_LIFE_LIVE, kind, flags | TOLD, 0), false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
		return; /* another thread says it */
	if ((uint8_t)s != RS_LIFE_UNSEEN)
		next_generation(obj);
	__atomic_store_n(&o->extra, 0, __ATOMIC_RELAXED);
	mark(t, obj);
	RS_EMIT(t, INIT, init, obj, (uint8_t)kind, (uint16_t)flags, 0, kind == RS_OBJECT_RWLOCK ? rs_rwlock_preference(obj) : 0);
	in_block(t, obj);
}

void rs_object_awaited(struct rs_thread *t, uintptr_t word)
{
	uintptr_t block;
	size_t size;
	uint32_t stack;
	bool site;
	if (rs_object_life(rs_object_find(word)) == RS_LIFE_UNSEEN && word % 4 == 0 && rs_heap_block_of(t, word, &block, &size, &stack, &site))
		rs_object_seen(t, word, RS_OBJECT_FUTEX);
}

struct rs_object *rs_object_init(struct rs_thread *t, uintptr_t obj, unsigned kind, unsigned flags, uint32_t value, uint32_t stack)
{
	struct rs_object *o = add(t, obj);
	bool later = false;
	if (o) {
		uint64_t s = LOAD(o->state), known = s & (uint64_t)TOLD << 16;
		/* Go takes what it was told of for alive: then it hears at once that this is another one. */
		later = !rs_config.all && !rs_config.races && ((uint8_t)s != RS_LIFE_LIVE || s & (uint64_t)UNSAID << 16);
		__atomic_store_n(&o->extra, (uint64_t)value << 32, __ATOMIC_RELAXED);
		s = __atomic_exchange_n(&o->state, STATE(RS_LIFE_LIVE, kind, flags | (later ? (unsigned)UNSAID : (unsigned)TOLD), stack) | known, __ATOMIC_ACQ_REL);
		if ((uint8_t)s != RS_LIFE_UNSEEN)
			next_generation(obj);
		mark(t, obj);
	}
	int held = rs_held_find(t, obj); /* of an object that was here before */
	if (held >= 0)
		rs_held_remove(t, held);
	if (later) {
		heap_knows(obj);
		return o;
	}
	RS_EMIT(t, INIT, init, obj, (uint8_t)kind, (uint16_t)flags, stack, value);
	in_block(t, obj);
	return o;
}

void rs_object_destroy(struct rs_thread *t, uintptr_t obj, unsigned kind, uint32_t stack, int result)
{
	bool unsaid = false;
	if (result == 0) {
		struct rs_object *o = add(t, obj);
		if (o) {
			uint64_t s = LOAD(o->state);
			unsaid = s & (uint64_t)UNSAID << 16;
			__atomic_store_n(&o->state, STATE(RS_LIFE_DESTROYED, kind, 0, stack) | (unsaid ? s & (uint64_t)TOLD << 16 : (uint64_t)TOLD << 16), __ATOMIC_RELEASE);
			mark(t, obj);
			heap_knows(obj);
		}
		next_generation(obj);
		int held = rs_held_find(t, obj);
		if (held >= 0)
			rs_held_remove(t, held);
	}
	if (!unsaid)
		RS_EMIT(t, DESTROY, destroy, obj, (uint8_t)kind, stack, (uint32_t)result);
}

void rs_object_void(uintptr_t obj)
{
	struct rs_object *o = rs_object_find(obj);
	if (o)
		__atomic_fetch_or(&o->extra, RS_OBJ_VOID, __ATOMIC_RELAXED);
}

bool rs_object_destroyed(uintptr_t obj, unsigned kind, uint32_t *where)
{
	struct rs_object *o = rs_object_find(obj);
	uint64_t s = o ? LOAD(o->state) : 0;
	if ((uint8_t)s != RS_LIFE_DESTROYED || STATE_KIND(s) != kind)
		return false;
	*where = (uint32_t)(s >> 32);
	return true;
}

/* --- memory that goes ---------------------------------------------------------------------------------------------------------------- */

/* The object of n bytes at obj: itself, or where its memory may be closed or gone already, a copy; NULL: it cannot be read. */
static const void *look(uintptr_t obj, void *copy, size_t n, bool readable)
{
	if (readable)
		return (const void *)obj;
	return rs_read_safely(copy, obj, n) ? copy : NULL;
}

/* Is this mutex, in memory about to be given back, locked by a thread that we know to hold it? */
static void free_locked_by_other(struct rs_thread *t, uintptr_t obj, uint64_t state, uintptr_t block, uint32_t stack, bool readable)
{
	if (STATE_KIND(state) != RS_OBJECT_MUTEX || (state >> 16 & (RS_OBJ_FLAG_PSHARED | RS_OBJ_FLAG_ROBUST)))
		return;
	pthread_mutex_t copy;
	const pthread_mutex_t *m = look(obj, &copy, sizeof copy, readable);
	uint32_t owner = m ? (uint32_t)m->__data.__owner : 0;
	if (!m || m->__data.__lock == 0 || owner == 0 || owner == t->tid)
		return;
	struct rs_sync_state *s = rs_sync_holder(owner, obj);
	if (s)
		rs_misuse(t, obj, RS_OBJECT_MUTEX, RS_MISUSE_FREE_LOCKED, 0, stack, rs_slot_held_stack(s->slot, obj), block, s->number);
}

/* Locks in [p, p+n) on this thread's own held list. They are off the list afterwards: the memory is somebody else's. */
static void free_locked_by_self(struct rs_thread *t, uintptr_t p, size_t n, uint32_t stack, bool readable)
{
	for (int i = (int)t->held_count - 1; i >= 0; i--) {
		uintptr_t obj = t->held[i].obj;
		uint64_t info = t->held[i].info;
		if (obj - p >= n)
			continue;
		bool locked = false; /* by its own bytes */
		union { pthread_mutex_t mutex; pthread_rwlock_t rwlock; } copy;
		const pthread_mutex_t *m;
		const pthread_rwlock_t *rw;
		if (!rs_object_has(rs_object_find(obj), RS_OBJ_VOID))
			switch (RS_INFO_KIND(info)) {
			case RS_OBJECT_MUTEX:
				locked = (m = look(obj, &copy, sizeof *m, readable)) && rs_mutex_owned(t, m);
				break;
			case RS_OBJECT_RWLOCK:
				locked = RS_INFO_MODE(info) == RS_MODE_EXCLUSIVE && (rw = look(obj, &copy, sizeof *rw, readable)) &&
					 (uint32_t)rw->__data.__cur_writer == t->tid;
				break;
			}
		if (locked)
			rs_misuse(t, obj, RS_INFO_KIND(info), RS_MISUSE_FREE_LOCKED, 0, stack, rs_held_stack_at(t, (uint32_t)i), p, t->number);
		rs_held_remove(t, i);
	}
}

/* All objects in [lo, hi), which lies in one granule of 64 bytes. Smallest alignment of any of them: 4. */
static bool granule_gone(struct rs_thread *t, uintptr_t lo, uintptr_t hi, uintptr_t block, uint32_t stack, bool readable)
{
	bool any = false;
	for (uintptr_t a = (lo + 3) & ~(uintptr_t)3; a < hi; a += 4) {
		struct rs_object *o = rs_object_find(a);
		uint64_t s = o ? LOAD(o->state) : 0;
		if ((uint8_t)s == RS_LIFE_UNSEEN)
			continue;
		any |= (s & (uint64_t)TOLD << 16) != 0;
		if (t && (uint8_t)s == RS_LIFE_LIVE)
			free_locked_by_other(t, a, s, block, stack, readable);
		__atomic_store_n(&o->state, 0, __ATOMIC_RELEASE);
		__atomic_store_n(&o->extra, 0, __ATOMIC_RELAXED);
		next_generation(a);
	}
	return any;
}

/* One page's part of [p, end). */
static bool page_gone(struct rs_thread *t, struct page *pg, uintptr_t p, uintptr_t end, uint32_t stack, bool readable)
{
	uintptr_t base = pg->number << 12;
	uint64_t mask = LOAD(pg->mask);
	bool any = false;
	for (; mask; mask &= mask - 1) {
		uintptr_t g = base + (uintptr_t)__builtin_ctzll(mask) * 64;
		uintptr_t lo = g < p ? p : g, hi = g + 64 < end ? g + 64 : end;
		if (lo >= hi)
			continue;
		any |= granule_gone(t, lo, hi, p, stack, readable);
		/* The granule is clean if all of it went. An object made there meanwhile (it cannot be ours) sets its bit after its state. */
		if (lo == g && hi == g + 64)
			__atomic_fetch_and(&pg->mask, ~(1ull << (g >> 6 & 63)), __ATOMIC_ACQ_REL);
	}
	return any;
}

static void memory_gone(struct rs_thread *t, uintptr_t p, size_t n, uint32_t stack, bool readable)
{
	if (n == 0)
		return;
	if (t && t->held_count)
		free_locked_by_self(t, p, n, stack, readable);
	uintptr_t end = p + n;
	bool any = false;
	if (n >> 12 > PAGES) { /* fewer pages known than asked for */
		struct page *all[] = {few_pages, LOAD(pages)};
		for (uint32_t i = 0; i < FEW + (all[1] ? PAGES : 0); i++) {
			struct page *pg = i < FEW ? &all[0][i] : &all[1][i - FEW];
			if (pg->number && pg->number >= p >> 12 && pg->number <= (end - 1) >> 12)
				any |= page_gone(t, pg, p, end, stack, readable);
		}
	} else {
		for (uintptr_t a = p; a < end;) {
			uint32_t pieces = LOAD(*chunk_of(a)) >> (a >> 16 & 31);
			if (!(pieces & 1)) {
				a = pieces ? ((a >> 16) + (uintptr_t)__builtin_ctz(pieces)) << 16 : ((a >> 21) + 1) << 21;
				continue;
			}
			struct page *pg = page_find(NULL, a >> 12);
			if (pg && LOAD(pg->mask)) {
				any |= page_gone(t, pg, p, end, stack, readable);
			} else if (!pg && RS_UNLIKELY(LOAD(pages_full)) && n <= 4096) {
				for (uintptr_t g = a & ~(uintptr_t)63; g < end && g >> 12 == a >> 12; g += 64)
					any |= granule_gone(t, g < p ? p : g, g + 64 < end ? g + 64 : end, p, stack, readable);
			}
			a = ((a >> 12) + 1) << 12;
		}
	}
	if (any && t) {
		rs_stack_tell(t, stack);
		RS_EMIT(t, BLOCK_GONE, block_gone, p, n, stack);
	}
}

void rs_sync_memory_gone(struct rs_thread *t, uintptr_t p, size_t n, uint32_t stack) { memory_gone(t, p, n, stack, true); }
void rs_sync_memory_unmapped(struct rs_thread *t, uintptr_t p, size_t n) { memory_gone(t, p, n, 0, false); }
