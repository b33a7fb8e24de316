/* race.c: the detector's memory, clocks and threads. No libc; memory only by rs_os_map; see race_core.h for locks. */
#include "race_core.h"

struct rs_race_counts rs_race_counted;
struct rs_race_config rs_race_configured;

/* --- locks, memory ------------------------------------------------------------------------------------------------------ */

/* After about a tenth of a second: its owner is kept from running, or has left it for good. */
void rs_race_pause(unsigned round)
{
	const struct { long s, ns; } a_while = {0, 50000};
	if (round > 40)
		RS_SYS2(SYS_nanosleep, &a_while, NULL);
	else if (round > 2)
		RS_SYS0(SYS_sched_yield);
}

static __attribute__((noinline)) bool wait_for(uint32_t *lock)
{
	for (unsigned round = 0; round < 1500; round++) {
		for (unsigned i = 0; i < 100; i++) {
			if (__atomic_load_n(lock, __ATOMIC_RELAXED) == 0 && __atomic_exchange_n(lock, 1, __ATOMIC_ACQUIRE) == 0)
				return true;
			__builtin_ia32_pause();
		}
		rs_race_pause(round);
	}
	return false;
}

bool rs_race_lock(uint32_t *lock) { return __atomic_exchange_n(lock, 1, __ATOMIC_ACQUIRE) == 0 || wait_for(lock); }

uint32_t rs_race_get(struct race_pool *p)
{
	uint32_t i = 0;
	if (!rs_race_lock(&p->lock))
		return 0;
	if (p->free) {
		i = p->free;
		p->free = *(uint32_t *)race_at(p, i);
	} else {
		if (p->next == 0)
			p->next = 1;
		uint32_t c = p->next >> p->shift;
		if (c < POOL_CHUNKS && !p->chunk[c])
			p->chunk[c] = rs_os_map((size_t)p->size << p->shift);
		if (c < POOL_CHUNKS && p->chunk[c])
			i = p->next++;
	}
	rs_race_unlock(&p->lock);
	if (i) {
		uint64_t *item = race_at(p, i);
		for (uint32_t k = 0; k < p->size / 8; k++)
			item[k] = 0;
	}
	return i;
}

void rs_race_put(struct race_pool *p, uint32_t i)
{
	if (!i || !rs_race_lock(&p->lock))
		return;
	*(uint32_t *)race_at(p, i) = p->free;
	p->free = i;
	rs_race_unlock(&p->lock);
}

/* --- clocks of releases --------------------------------------------------------------------------------------------------- */

/* Pairs of clocks of 4, 16, … 4096 slots; a number's upper bits say which. */
enum { CLASSES = 6, CLASS_SHIFT = 28 };
static struct race_pool clocks[CLASSES] = {
	{.size = 2 * 8 * 4, .shift = 12}, {.size = 2 * 8 * 16, .shift = 10}, {.size = 2 * 8 * 64, .shift = 8},
	{.size = 2 * 8 * 256, .shift = 6}, {.size = 2 * 8 * 1024, .shift = 4}, {.size = 2 * 8 * 4096, .shift = 2}};
static inline uint32_t room(uint32_t buf) { return buf ? 4u << 2 * (buf >> CLASS_SHIFT) : 0; }
static inline uint64_t *v_of(uint32_t buf) { return race_at(&clocks[buf >> CLASS_SHIFT], buf & ((1u << CLASS_SHIFT) - 1)); }
static inline uint64_t *w_of(uint32_t buf) { return v_of(buf) + room(buf); }

uint64_t rs_race_floor[SLOTS];
uint32_t rs_race_slots, rs_race_generation;
struct race_thread *rs_race_owner[SLOTS];

/* Room for n slots; those that are new are zero. False: no memory, and s is as it was. */
static bool widen(struct race_stamp *s, uint32_t n)
{
	if (room(s->buf) < n) {
		uint32_t c = 0;
		while (4u << 2 * c < n)
			c++;
		uint32_t i = rs_race_get(&clocks[c]);
		if (!i || i >> CLASS_SHIFT)
			return false;
		uint32_t b = i | c << CLASS_SHIFT;
		for (uint32_t k = 0; k < s->n; k++) {
			v_of(b)[k] = v_of(s->buf)[k];
			w_of(b)[k] = w_of(s->buf)[k];
		}
		if (s->buf)
			rs_race_put(&clocks[s->buf >> CLASS_SHIFT], s->buf & ((1u << CLASS_SHIFT) - 1));
		s->buf = b;
	}
	uint64_t *v = v_of(s->buf), *w = w_of(s->buf);
	for (uint32_t k = s->n; k < n; k++)
		v[k] = w[k] = 0;
	if (n > s->n)
		s->n = n;
	return true;
}

void rs_race_drop(struct race_stamp *s)
{
	if (s->buf)
		rs_race_put(&clocks[s->buf >> CLASS_SHIFT], s->buf & ((1u << CLASS_SHIFT) - 1));
	*s = (struct race_stamp){0};
}

static inline void raise(uint64_t *to, uint64_t x)
{
	if (*to < x)
		__atomic_store_n(to, x, __ATOMIC_RELAXED);
}

/* What movs order became certain since s was made. */
static void catch_up(struct race_stamp *s, uint32_t gen)
{
	if (s->gen == gen)
		return;
	for (uint32_t k = 0; k < s->n; k++)
		raise(&v_of(s->buf)[k], w_of(s->buf)[k]);
	s->gen = gen;
}

static void give_clock(struct race_stamp *s, struct race_thread *t, uint64_t e)
{
	uint32_t gen = __atomic_load_n(&rs_race_generation, __ATOMIC_ACQUIRE), n = __atomic_load_n(&rs_race_slots, __ATOMIC_ACQUIRE);
	bool fresh = !s->of || (s->exact && s->gen == gen && (race_slot(s->of) == t->slot || race_load(&t->v[race_slot(s->of)]) >= race_time(s->of)));
	if (!widen(s, n)) {
		rs_race_amnesty();
		return;
	}
	uint64_t *v = v_of(s->buf), *w = w_of(s->buf);
	if (fresh) {
		for (uint32_t k = 0; k < n; k++) {
			v[k] = race_load(&t->v[k]);
			w[k] = race_load(&t->w[k]);
		}
		for (uint32_t k = n; k < s->n; k++)
			v[k] = w[k] = 0;
		s->gen = gen;
		v[t->slot] = w[t->slot] = race_time(e);
	} else {
		catch_up(s, gen);
		for (uint32_t k = 0; k < n; k++) {
			raise(&v[k], race_load(&t->v[k]));
			raise(&w[k], race_load(&t->w[k]));
		}
		raise(&v[t->slot], race_time(e));
		raise(&w[t->slot], race_time(e));
	}
	s->exact = fresh;
	s->of = e;
}

/* A time begins with each, before the clock is read: whoever knows a time of t knows all that t knew at any of its releases up to it, on which `exact` rests. */
void rs_race_give(struct race_stamp *s, struct race_thread *t)
{
	if (!rs_race_lock(&t->lock)) {
		rs_race_amnesty();
		return;
	}
	give_clock(s, t, t->ended ? t->end : __atomic_fetch_add(&t->quick.epoch, 1, __ATOMIC_SEQ_CST));
	rs_race_unlock(&t->lock);
}

/* While t is the only thread that there ever was whoever takes what it gives is one that comes later, and knows then all that t did up to its beginning (thread_create, rs_race_self), before which a time of t ends. So no time begins here, and what t accessed is
 * nothing new behind each lock that it gives back. The epoch is read first: if another thread comes in between it knows this one. */
void rs_race_give_later(struct race_stamp *s, struct race_thread *t)
{
	uint64_t e = __atomic_load_n(&t->quick.epoch, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&rs_race_slots, __ATOMIC_SEQ_CST) != 1 || t->ended || !rs_race_lock(&t->lock)) {
		rs_race_give(s, t);
		return;
	}
	give_clock(s, t, e);
	rs_race_unlock(&t->lock);
}

void rs_race_take(struct race_thread *t, const struct race_stamp *s, bool by_mov)
{
	uint32_t gen = __atomic_load_n(&rs_race_generation, __ATOMIC_ACQUIRE);
	if (!s->of || (!by_mov && s->exact && s->gen == gen && (race_slot(s->of) == t->slot || race_load(&t->v[race_slot(s->of)]) >= race_time(s->of))))
		return;
	if (!rs_race_lock(&t->lock)) {
		rs_race_amnesty();
		return;
	}
	const uint64_t *v = s->gen == gen ? v_of(s->buf) : w_of(s->buf), *w = w_of(s->buf);
	for (uint32_t k = 0; k < s->n; k++) {
		if (!by_mov)
			raise(&t->v[k], v[k]);
		raise(&t->w[k], w[k]);
	}
	rs_race_unlock(&t->lock);
}

void rs_race_join_stamps(struct race_stamp *to, const struct race_stamp *s)
{
	uint32_t gen = __atomic_load_n(&rs_race_generation, __ATOMIC_ACQUIRE);
	if (!s->of)
		return;
	if (!widen(to, s->n)) {
		rs_race_amnesty();
		return;
	}
	catch_up(to, gen);
	const uint64_t *v = s->gen == gen ? v_of(s->buf) : w_of(s->buf), *w = w_of(s->buf);
	for (uint32_t k = 0; k < s->n; k++) {
		raise(&v_of(to->buf)[k], v[k]);
		raise(&w_of(to->buf)[k], w[k]);
	}
	to->of = s->of;
	to->exact = false;
}

/* --- threads ---------------------------------------------------------------------------------------------------------------- */

enum { NUMBERS = 4096, TOP = 4096 };
#define GONE ((struct race_thread *)1)
static struct race_thread **numbers[TOP];   /* by number; GONE: it ended and what it knew is in `ended` */
static struct race_thread *all[2 * SLOTS];  /* that are, or ended and have not been recycled */
static uint32_t all_count, threads_lock;
static struct race_stamp ended;             /* what all that ended did */
static uint64_t slot_end[SLOTS];            /* the time at which the slot's last thread ended; 0 while one lives there */
static uint32_t idle[SLOTS], idle_count;
static uint32_t oldest_at;                  /* where in all the search for one that ended goes on */
uint64_t rs_race_common;

static struct race_thread **entry(uint32_t number, bool make)
{
	if (number / NUMBERS >= TOP)
		return NULL;
	struct race_thread ***top = &numbers[number / NUMBERS];
	if (!__atomic_load_n(top, __ATOMIC_ACQUIRE) && make)
		__atomic_store_n(top, rs_os_map(NUMBERS * sizeof **top), __ATOMIC_RELEASE);
	struct race_thread **list = __atomic_load_n(top, __ATOMIC_ACQUIRE);
	return list ? &list[number % NUMBERS] : NULL;
}

struct race_thread *rs_race_of(uint32_t number)
{
	struct race_thread **e = entry(number, false), *t = e ? __atomic_load_n(e, __ATOMIC_ACQUIRE) : NULL;
	return t == GONE ? NULL : t;
}

bool rs_race_gone(uint32_t number)
{
	struct race_thread **e = entry(number, false);
	return e && __atomic_load_n(e, __ATOMIC_ACQUIRE) == GONE;
}

static void raise_floor(uint32_t s, uint64_t time)
{
	for (uint64_t old = race_load(&rs_race_floor[s]); old < time;)
		if (__atomic_compare_exchange_n(&rs_race_floor[s], &old, time, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
			break;
}

void rs_race_floor_stamp(const struct race_stamp *s)
{
	for (uint32_t k = 0; k < s->n; k++)
		raise_floor(k, w_of(s->buf)[k]);
}

void rs_race_amnesty(void)
{
	uint32_t n = __atomic_load_n(&rs_race_slots, __ATOMIC_ACQUIRE);
	__atomic_fetch_add(&rs_race_counted.amnesties, 1, __ATOMIC_RELAXED);
	for (uint32_t s = 0; s < n; s++) {
		struct race_thread *t = __atomic_load_n(&rs_race_owner[s], __ATOMIC_ACQUIRE);
		uint64_t time = race_load(&slot_end[s]), now = t && !t->ended ? __atomic_fetch_add(&t->quick.epoch, 1, __ATOMIC_SEQ_CST) : 0;
		if (race_slot(now) == s && race_time(now) > time)
			time = race_time(now);
		raise_floor(s, time);
	}
}

void rs_race_bump(uint32_t slot)
{
	struct race_thread *t = __atomic_load_n(&rs_race_owner[slot], __ATOMIC_ACQUIRE);
	if (t && !t->ended)
		__atomic_fetch_add(&t->quick.epoch, 1, __ATOMIC_SEQ_CST);
}

void rs_race_give_slot(struct race_stamp *s, uint32_t slot)
{
	struct race_thread *t = __atomic_load_n(&rs_race_owner[slot], __ATOMIC_ACQUIRE);
	if (t && t->slot == slot && (t->ended || race_load(&t->quick.epoch) >> TIME_BITS == slot)) {
		rs_race_give(s, t);
		return;
	}
	rs_race_join_stamps(s, &ended);
}

void rs_race_movs_order(void)
{
	if (!rs_race_lock(&threads_lock)) {
		rs_race_amnesty();
		return;
	}
	/* Odd in between: stamps of then are taken for out of date, so w counts. */
	__atomic_fetch_add(&rs_race_generation, 1, __ATOMIC_SEQ_CST);
	for (uint32_t i = 0; i < all_count; i++) {
		struct race_thread *t = all[i];
		if (!rs_race_lock(&t->lock)) {
			rs_race_amnesty();
			continue;
		}
		for (uint32_t k = 0; k < rs_race_slots; k++)
			raise(&t->v[k], race_load(&t->w[k]));
		rs_race_unlock(&t->lock);
	}
	__atomic_fetch_add(&rs_race_generation, 1, __ATOMIC_SEQ_CST);
	rs_race_unlock(&threads_lock);
}

/* A thread's memory, of one that ended long ago if need be. threads_lock is held. */
static struct race_thread *make(void)
{
	if (all_count < SLOTS + 64) {
		size_t size = (sizeof(struct race_thread) + 4095) & ~4095ul;
		char *p = rs_os_map(size + 2 * SLOTS * 8);
		if (p) {
			struct race_thread *t = (struct race_thread *)p;
			t->v = (uint64_t *)(p + size);
			t->w = t->v + SLOTS;
			all[all_count++] = t;
			return t;
		}
	}
	for (uint32_t i = 0; i < all_count; i++) {
		struct race_thread *t = all[oldest_at++ % all_count];
		if (!t->ended || t->busy || t->put_off)
			continue;
		struct race_thread **e = entry(t->quick.number, false);
		if (e && *e == t)
			__atomic_store_n(e, GONE, __ATOMIC_RELEASE);
		if (rs_race_owner[t->slot] == t)
			__atomic_store_n(&rs_race_owner[t->slot], NULL, __ATOMIC_RELEASE);
		rs_race_drop(&t->tmp);
		rs_race_drop(&t->fence);
		t->read_count = 0;
		for (uint32_t k = 0; k < SLOTS && k < rs_race_slots; k++)
			t->v[k] = t->w[k] = 0;
		t->created = t->started = t->ended = false;
		t->store_size = t->phase = t->takes = 0;
		t->frames = NULL;
		t->stack_lo = t->stack_hi = 0;
		return t;
	}
	return NULL;
}

static void end_locked(struct race_thread *t)
{
	if (t->ended)
		return;
	/* From here on its time is this, though somebody may still raise its epoch: the slot's next thread begins behind it. */
	t->end = race_load(&t->quick.epoch);
	t->ended = true;
	rs_race_give(&ended, t);
	__atomic_store_n(&slot_end[t->slot], race_time(t->end), __ATOMIC_RELEASE);
	idle[idle_count++] = t->slot;
}

void rs_race_thread_ends(struct race_thread *t)
{
	if (!rs_race_lock(&threads_lock)) {
		rs_race_amnesty();
		return;
	}
	end_locked(t);
	rs_race_unlock(&threads_lock);
}

static void sit(struct race_thread *t, uint32_t slot, uint64_t time)
{
	t->slot = slot;
	__atomic_store_n(&t->quick.epoch, (uint64_t)slot << TIME_BITS | time, __ATOMIC_RELEASE);
	__atomic_store_n(&rs_race_owner[slot], t, __ATOMIC_RELEASE);
}

static struct race_thread *new_locked(uint32_t number, const struct race_stamp *from)
{
	struct race_thread **e = entry(number, true), *t;
	if (!e)
		return NULL;
	if (*e && *e != GONE)
		end_locked(*e);
	if (!(t = make()))
		return NULL;
	t->quick.number = number;
	t->slot = SLOTS; /* nobody's yet */
	if (from)
		rs_race_take(t, from, false);
	/* A slot whose last thread's end it follows, else a new one. */
	uint32_t at = idle_count;
	for (uint32_t i = idle_count; i > 0 && idle_count - i < 64; i--)
		if (t->v[idle[i - 1]] >= slot_end[idle[i - 1]]) {
			at = i - 1;
			break;
		}
	if (at == idle_count && rs_race_slots >= SLOTS) {
		if (!idle_count) {
			t->ended = true;
			t->slot = 0;
			return NULL;
		}
		at = 0; /* nothing orders the two: taken as if something did */
		uint32_t s = idle[0];
		raise(&t->v[s], slot_end[s]);
		raise(&t->w[s], slot_end[s]);
	}
	if (at < idle_count) {
		uint32_t s = idle[at];
		for (uint32_t i = at; i + 1 < idle_count; i++)
			idle[i] = idle[i + 1];
		idle_count--;
		sit(t, s, slot_end[s] + 1);
	} else {
		uint32_t s = rs_race_slots;
		sit(t, s, 1);
		__atomic_store_n(&rs_race_slots, s + 1, __ATOMIC_RELEASE);
	}
	__atomic_store_n(e, t, __ATOMIC_RELEASE);
	return t;
}

struct race_thread *rs_race_new(uint32_t number, const struct race_stamp *from)
{
	if (!rs_race_lock(&threads_lock))
		return NULL;
	struct race_thread *t = new_locked(number, from);
	rs_race_unlock(&threads_lock);
	return t;
}

void rs_race_unborn(struct race_thread *t)
{
	rs_race_thread_ends(t);
	struct race_thread **e = entry(t->quick.number, false);
	if (e)
		__atomic_store_n(e, NULL, __ATOMIC_RELEASE);
}

/* o's release up to here, taken by t, or given by t to o. */
static void pass(struct race_thread *from, struct race_thread *to, struct race_stamp *tmp)
{
	tmp->of = 0;
	rs_race_give(tmp, from);
	rs_race_take(to, tmp, false);
}

void rs_race_take_all(struct race_thread *t)
{
	rs_race_take(t, &ended, false);
	for (uint32_t i = 0, n = __atomic_load_n(&all_count, __ATOMIC_ACQUIRE); i < n; i++)
		if (all[i] != t && !all[i]->ended)
			pass(all[i], t, &t->tmp);
}

void rs_race_take_ended(struct race_thread *t) { rs_race_take(t, &ended, false); }

void rs_race_give_others(struct race_thread *t)
{
	t->tmp.of = 0;
	rs_race_give(&t->tmp, t);
	for (uint32_t i = 0, n = __atomic_load_n(&all_count, __ATOMIC_ACQUIRE); i < n; i++)
		if (all[i] != t && !all[i]->ended)
			rs_race_take(all[i], &t->tmp, false);
}

struct race_thread *rs_race_self(uint32_t number)
{
	struct race_thread *t = number ? rs_race_of(number) : NULL;
	if (t)
		return t->ended ? NULL : t;
	if (!number || rs_race_gone(number) || !(t = rs_race_new(number, NULL)))
		return NULL;
	rs_race_take_all(t);
	return t;
}

struct rs_race_thread *rs_race_thread(uint32_t number)
{
	struct race_thread *t = rs_race_self(number);
	return t ? &t->quick : NULL;
}

uint32_t rs_race_stack_at(uint64_t addr)
{
	uint32_t n = __atomic_load_n(&rs_race_slots, __ATOMIC_ACQUIRE);
	for (uint32_t s = 0; s < n; s++) {
		const struct race_thread *t = __atomic_load_n(&rs_race_owner[s], __ATOMIC_ACQUIRE);
		if (t && t->frames && !t->ended && addr - t->stack_lo < t->stack_hi - t->stack_lo)
			return t->quick.number;
	}
	return 0;
}

void rs_race_stack(struct rs_race_thread *quick, uintptr_t lo, uintptr_t hi, struct rs_race_frames *frames, const uintptr_t *told)
{
	struct race_thread *t = (struct race_thread *)quick;
	t->stack_lo = lo & -4096ul;
	t->stack_hi = hi;
	t->told = told;
	t->frames = frames;
	/* What is there of a thread whose stack it was before. */
	for (uint64_t number = lo >> 12; number << 12 < hi; number++) {
		struct race_page *g = race_page_at(number);
		if (g)
			__atomic_store_n(&g->stack, t->quick.number, __ATOMIC_RELAXED);
	}
}

void rs_race_threads_after_fork(void)
{
	for (unsigned c = 0; c < CLASSES; c++)
		clocks[c].lock = 0;
	threads_lock = 0;
	for (uint32_t i = 0; i < all_count; i++) {
		struct race_thread *t = all[i];
		struct race_thread **e = entry(t->quick.number, false);
		t->lock = 0;
		t->busy = 0;
		t->put_off = false;
		if (e && *e == t)
			*e = NULL;
		t->tmp = t->fence = (struct race_stamp){0};
	}
	/* Times go on where they were: what is left of the parent's is known to all. */
	ended = (struct race_stamp){0};
	idle_count = 0;
	for (uint32_t s = 0; s < rs_race_slots; s++) {
		struct race_thread *t = rs_race_owner[s];
		uint64_t end = t && t->slot == s ? race_time(t->ended ? t->end : t->quick.epoch) : 0;
		if (end > slot_end[s])
			slot_end[s] = end;
		rs_race_floor[s] = slot_end[s];
		idle[idle_count++] = s;
	}
	for (uint32_t i = 0; i < all_count; i++) {
		all[i]->end = all[i]->quick.epoch;
		all[i]->ended = true;
	}
}

bool rs_race_begin(const struct rs_race_config *c)
{
	rs_race_configured = *c;
	if (!rs_race_configured.max_pages)
		rs_race_configured.max_pages = 1 << 16;
	return rs_race_shadow_begin();
}

uintptr_t rs_race_inside(const struct rs_race_thread *t) { return ((const struct race_thread *)t)->busy; }

void rs_race_left(struct rs_race_thread *t)
{
	race_leave((struct race_thread *)t);
	rs_race_amnesty();
}

void rs_race_put_off(struct rs_race_thread *t) { ((struct race_thread *)t)->put_off = true; }

void rs_race_count(struct rs_race_counts *out) { *out = rs_race_counted; }
