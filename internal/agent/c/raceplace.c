/* raceplace.c: atomic locations, and what may be such: bytes that movs raced for. Of whose life, and how they order: internal/race, atomic.go.
 *
 * A place that became a part of a larger one, or whose memory ended, is DEAD. A number that somebody looked up before can be used: the first leads
 * to the larger one, the second perhaps to a new place elsewhere, which orders too much. */
#include "race_core.h"

struct place { uint64_t lo, hi, since; uint32_t lock, flags, forward, next; struct race_stamp s; };
struct ref { uint64_t cell; uint32_t place, next; };
enum { BUCKETS = 1 << 14, PAGES = 1 << 14, MAX_PLACES = 1 << 20 };
static struct race_pool places = {.size = sizeof(struct place), .shift = 10}, refs = {.size = sizeof(struct ref), .shift = 12};
static struct { uint32_t lock, head; } bucket[BUCKETS];
static uint32_t on_page[PAGES]; /* references to cells of pages, hashed */
static uint32_t learn_lock, spare; /* spare: places whose memory ended */

static inline unsigned hash(uint64_t x, unsigned n) { return (unsigned)(x * 0x9e3779b97f4a7c15ull >> 32) & (n - 1); }

bool rs_race_page_has_places(uint64_t page) { return __atomic_load_n(&on_page[hash(page, PAGES)], __ATOMIC_ACQUIRE) != 0; }

static unsigned add(uint32_t out[PLACES], unsigned n, uint32_t i, unsigned flags)
{
	for (unsigned k = 0; k < n; k++)
		if ((out[k] & ~PLACE_CERTAIN) == i)
			return n;
	if (n == PLACES) {
		rs_race_amnesty();
		return n;
	}
	out[n] = i | (flags & PLACE_ATOMIC ? PLACE_CERTAIN : 0);
	return n + 1;
}

unsigned rs_race_places(uint64_t lo, uint64_t hi, unsigned flags, uint32_t out[PLACES])
{
	unsigned n = 0;
	for (uint64_t cell = lo >> 3; cell <= (hi - 1) >> 3; cell++) {
		unsigned b = hash(cell, BUCKETS);
		if (!__atomic_load_n(&bucket[b].head, __ATOMIC_ACQUIRE))
			continue;
		if (!rs_race_lock(&bucket[b].lock)) {
			rs_race_amnesty();
			continue;
		}
		for (uint32_t r = bucket[b].head; r;) {
			const struct ref *f = race_at(&refs, r);
			const struct place *p = race_at(&places, f->place);
			unsigned have = __atomic_load_n(&p->flags, __ATOMIC_ACQUIRE);
			if (f->cell == cell && have & flags && !(have & PLACE_DEAD) && p->lo < hi && lo < p->hi)
				n = add(out, n, f->place, have);
			r = f->next;
		}
		rs_race_unlock(&bucket[b].lock);
	}
	return n;
}

uint8_t rs_race_place_bytes(uint64_t cell, bool atomic)
{
	uint32_t at[PLACES];
	uint8_t mask = 0;
	for (unsigned i = 0, n = rs_race_places(cell * 8, cell * 8 + 8, atomic ? PLACE_ATOMIC : PLACE_ATOMIC | PLACE_MOV, at); i < n; i++) {
		const struct place *p = race_at(&places, at[i] & ~PLACE_CERTAIN);
		mask |= race_mask(cell, p->lo, p->hi);
	}
	return mask;
}

/* The place, or what it became, locked. NULL: it is dead. */
static struct place *locked(uint32_t i)
{
	for (unsigned tries = 0; tries < 64 && i; tries++) {
		struct place *p = race_at(&places, i & ~PLACE_CERTAIN);
		if (!rs_race_lock(&p->lock)) {
			rs_race_amnesty();
			return NULL;
		}
		if (!(p->flags & PLACE_DEAD))
			return p;
		i = p->forward;
		rs_race_unlock(&p->lock);
	}
	return NULL;
}

void rs_race_place_give(uint32_t i, struct race_thread *t)
{
	struct place *p = locked(i);
	if (p) {
		rs_race_give_later(&p->s, t);
		rs_race_unlock(&p->lock);
	}
}

void rs_race_place_give_slot(uint32_t i, uint32_t slot)
{
	struct place *p = locked(i);
	if (p) {
		rs_race_give_slot(&p->s, slot);
		rs_race_unlock(&p->lock);
	}
}

void rs_race_place_join(uint32_t i, const struct race_stamp *s)
{
	struct place *p = locked(i);
	if (p) {
		rs_race_join_stamps(&p->s, s);
		rs_race_unlock(&p->lock);
	}
}

void rs_race_place_take(uint32_t i, struct race_thread *t)
{
	struct place *p = locked(i);
	if (p) {
		rs_race_take(t, &p->s, !(p->flags & PLACE_ATOMIC));
		rs_race_unlock(&p->lock);
	}
}

static bool refer(uint64_t cell, uint32_t place)
{
	unsigned b = hash(cell, BUCKETS);
	uint32_t i = rs_race_get(&refs);
	if (!i || !rs_race_lock(&bucket[b].lock))
		return false;
	*(struct ref *)race_at(&refs, i) = (struct ref){cell, place, bucket[b].head};
	__atomic_store_n(&bucket[b].head, i, __ATOMIC_RELEASE);
	rs_race_unlock(&bucket[b].lock);
	__atomic_fetch_add(&on_page[hash(cell >> 9, PAGES)], 1, __ATOMIC_SEQ_CST);
	return true;
}

static void unrefer(uint64_t cell, uint32_t place)
{
	unsigned b = hash(cell, BUCKETS);
	if (!rs_race_lock(&bucket[b].lock))
		return; /* a dead one in a list does no harm */
	for (uint32_t *link = &bucket[b].head; *link;) {
		struct ref *f = race_at(&refs, *link);
		if (f->cell == cell && f->place == place) {
			uint32_t i = *link;
			__atomic_store_n(link, f->next, __ATOMIC_RELEASE);
			rs_race_put(&refs, i);
			__atomic_fetch_sub(&on_page[hash(cell >> 9, PAGES)], 1, __ATOMIC_SEQ_CST);
			break;
		}
		link = &f->next;
	}
	rs_race_unlock(&bucket[b].lock);
}

/* learn_lock is held. */
static void kill(uint32_t i, uint32_t forward)
{
	struct place *p = race_at(&places, i);
	bool mine = rs_race_lock(&p->lock);
	p->forward = forward;
	__atomic_store_n(&p->flags, p->flags | PLACE_DEAD, __ATOMIC_RELEASE);
	rs_race_drop(&p->s);
	if (mine)
		rs_race_unlock(&p->lock);
	for (uint64_t cell = p->lo >> 3; cell <= (p->hi - 1) >> 3; cell++)
		unrefer(cell, i);
}

/* Movs of these bytes that were seen before they proved atomic. */
static void learn_atomic(struct race_thread *by, struct place *n, uint32_t self, bool quiet)
{
	uint32_t slots[PLACES], at[PLACES];
	unsigned count = 0, movs = rs_race_places(n->lo, n->hi, PLACE_MOV, at);
	if (!quiet)
		rs_race_give(&n->s, by);
	for (uint64_t cell = n->lo >> 3; cell <= (n->hi - 1) >> 3; cell++) {
		count = rs_race_mark(by, cell, race_mask(cell, n->lo, n->hi), slots, PLACES);
		for (unsigned i = 0; i < count; i++)
			rs_race_give_slot(&n->s, slots[i]);
	}
	rs_race_found_atomic(n->lo, n->hi);
	for (unsigned i = 0; i < movs; i++) {
		struct place *p = race_at(&places, at[i] & ~PLACE_CERTAIN);
		if (!rs_race_lock(&p->lock)) {
			rs_race_amnesty();
			continue;
		}
		rs_race_join_stamps(&n->s, &p->s);
		rs_race_unlock(&p->lock);
	}
	if (movs) {
		uint64_t since = ~0ull;
		for (unsigned i = 0; i < movs; i++) {
			const struct place *p = race_at(&places, at[i] & ~PLACE_CERTAIN);
			since = p->since < since ? p->since : since;
		}
		rs_race_movs_order();
		rs_race_found_ordered(since);
		for (unsigned i = 0; i < movs; i++) {
			const struct place *p = race_at(&places, at[i] & ~PLACE_CERTAIN);
			if (n->lo <= p->lo && p->hi <= n->hi)
				kill(at[i] & ~PLACE_CERTAIN, self);
		}
	}
}

static void learn(struct race_thread *by, uint64_t lo, uint64_t hi, unsigned flags, bool quiet)
{
	uint32_t at[PLACES];
	unsigned kind = flags & PLACE_ATOMIC ? PLACE_ATOMIC : PLACE_MOV, count = rs_race_places(lo, hi, kind, at);
	struct place *n = NULL;
	unsigned had = flags;
	uint64_t from = lo, to = hi, since = rs_race_now();
	for (unsigned i = 0; i < count; i++) {
		struct place *p = race_at(&places, at[i] & ~PLACE_CERTAIN);
		if (count == 1 && p->lo <= lo && hi <= p->hi) {
			__atomic_fetch_or(&p->flags, flags, __ATOMIC_SEQ_CST);
			return;
		}
		from = p->lo < from ? p->lo : from;
		to = p->hi > to ? p->hi : to;
		had |= p->flags;
		since = p->since < since ? p->since : since;
	}
	uint32_t i = spare;
	if (i)
		spare = ((struct place *)race_at(&places, i))->next;
	else if (places.next < MAX_PLACES)
		i = rs_race_get(&places);
	if (!i || !rs_race_lock(&((struct place *)race_at(&places, i))->lock)) { /* locked: nobody uses it before all that came before is in it */
		rs_race_amnesty();
		return;
	}
	n = race_at(&places, i);
	n->lo = from;
	n->hi = to;
	n->since = since;
	n->flags = had & ~(unsigned)PLACE_DEAD;
	for (unsigned k = 0; k < count; k++) {
		struct place *p = race_at(&places, at[k] & ~PLACE_CERTAIN);
		if (!rs_race_lock(&p->lock)) {
			rs_race_amnesty();
			continue;
		}
		rs_race_join_stamps(&n->s, &p->s);
		rs_race_unlock(&p->lock);
	}
	for (uint64_t cell = from >> 3; cell <= (to - 1) >> 3; cell++)
		if (!refer(cell, i))
			rs_race_amnesty();
	for (unsigned k = 0; k < count; k++)
		kill(at[k] & ~PLACE_CERTAIN, i);
	if (kind == PLACE_ATOMIC)
		learn_atomic(by, n, i, quiet);
	else
		for (uint64_t cell = from >> 3; cell <= (to - 1) >> 3; cell++)
			rs_race_mark(by, cell, race_mask(cell, from, to), NULL, 0);
	rs_race_unlock(&n->lock);
}

void rs_race_learn(struct race_thread *by, uint64_t lo, uint64_t hi, unsigned flags)
{
	uint32_t at[PLACES];
	bool quiet = flags & PLACE_QUIET;
	flags &= ~(unsigned)PLACE_QUIET;
	unsigned n = rs_race_places(lo, hi, flags & PLACE_ATOMIC ? PLACE_ATOMIC : PLACE_MOV, at);
	if (n == 1) {
		const struct place *p = race_at(&places, at[0] & ~PLACE_CERTAIN);
		if (p->lo <= lo && hi <= p->hi && (__atomic_load_n(&p->flags, __ATOMIC_ACQUIRE) & flags) == flags)
			return;
	}
	if (!rs_race_lock(&learn_lock)) {
		rs_race_amnesty();
		return;
	}
	learn(by, lo, hi, flags, quiet);
	rs_race_unlock(&learn_lock);
}

/* learn_lock is held. */
static void end_place(uint32_t i)
{
	struct place *p = race_at(&places, i);
	uint64_t first = p->lo >> 3, last = (p->hi - 1) >> 3;
	kill(i, 0);
	p->next = spare;
	spare = i;
	for (uint64_t cell = first; cell <= last; cell++)
		rs_race_unmark(cell);
}

void rs_race_close(uint64_t lo, uint64_t hi)
{
	uint32_t at[PLACES];
	if (lo >= hi)
		return;
	rs_race_found_dies(lo, hi);
	if (places.next <= 1)
		return;
	if (hi - lo > 1ull << 28) { /* a look at all of them is cheaper */
		if (!rs_race_lock(&learn_lock)) {
			rs_race_amnesty();
			return;
		}
		for (uint32_t i = 1; i < places.next; i++) {
			const struct place *p = race_at(&places, i);
			if (p->flags & (PLACE_ATOMIC | PLACE_MOV) && !(p->flags & PLACE_DEAD) && p->lo < hi && lo < p->hi)
				end_place(i);
		}
		rs_race_unlock(&learn_lock);
		return;
	}
	uint64_t last_page = (hi - 1) >> 12;
	for (uint64_t page = lo >> 12; page <= last_page; page++) {
		if (!rs_race_page_has_places(page))
			continue;
		if (!rs_race_lock(&learn_lock)) {
			rs_race_amnesty();
			return;
		}
		uint64_t from = page == lo >> 12 ? lo >> 3 : page << 9, to = page == last_page ? (hi - 1) >> 3 : (page << 9) + 511;
		for (uint64_t cell = from; cell <= to; cell++) {
			uint64_t a = cell * 8 > lo ? cell * 8 : lo, b = cell * 8 + 8 < hi ? cell * 8 + 8 : hi;
			unsigned n = rs_race_places(a, b, PLACE_ATOMIC | PLACE_MOV, at);
			for (unsigned i = 0; i < n; i++)
				end_place(at[i] & ~PLACE_CERTAIN);
		}
		rs_race_unlock(&learn_lock);
	}
}

void rs_race_places_after_fork(void)
{
	learn_lock = places.lock = refs.lock = 0;
	for (unsigned i = 0; i < BUCKETS; i++)
		bucket[i].lock = 0;
	for (uint32_t i = 1; i < places.next; i++) {
		struct place *p = race_at(&places, i);
		p->lock = 0;
		p->s = (struct race_stamp){0};
	}
}
