/* racefound.c: the races that were found, each pair of places of code once. A race that later events could show to be none is kept back until they no longer can. */
#include "race_core.h"

enum { MAX_RACES = 4096, BUCKETS = 1024, INSTANCES = 4 };
enum { PENDING = 1, DECIDED = 2 };
static struct race { struct rs_race_found f; uint64_t lo, hi, since; uint32_t next; uint8_t rests, state, told, announced; } races[MAX_RACES];
static uint32_t head[BUCKETS], used, spare, races_lock, pending, untold; /* untold: to be announced, or told */
static uint64_t now;

uint64_t rs_race_now(void) { return __atomic_add_fetch(&now, 1, __ATOMIC_SEQ_CST); }

static bool is_free(const struct rs_race_found *f) { return f->rule == RS_RACE_RULE_FREE || f->rule == RS_RACE_RULE_FREE_MOV; }
static bool is_freed(const struct rs_race_found *f) { return f->rule == RS_RACE_RULE_USE_AFTER_FREE; }

/* The same for two places of code whichever came first. */
static bool same(const struct rs_race_found *a, const struct rs_race_found *b)
{
	if (is_free(a) != is_free(b) || is_freed(a) != is_freed(b))
		return false;
	if (is_free(a))
		return a->pc2 == b->pc2 && a->stack == b->stack;
	if (is_freed(a))
		return a->pc == b->pc && a->stack2 == b->stack2;
	return (a->pc == b->pc && a->pc2 == b->pc2) || (a->pc == b->pc2 && a->pc2 == b->pc);
}

static unsigned hash(const struct rs_race_found *f)
{
	uint64_t x = is_free(f) ? f->pc2 ^ f->stack : is_freed(f) ? f->pc ^ f->stack2 : f->pc + f->pc2;
	return (unsigned)(x * 0x9e3779b97f4a7c15ull >> 40) & (BUCKETS - 1);
}

bool rs_race_unsure;

static void decide(struct race *r)
{
	uint32_t at[PLACES];
	bool mov = rs_race_unsure || r->rests & (REST_ORDERED | REST_SAME) || (r->rests & REST_DIRECT && rs_race_places(r->lo, r->hi, PLACE_SAME, at));
	if (is_free(&r->f))
		r->f.rule = mov ? RS_RACE_RULE_FREE_MOV : RS_RACE_RULE_FREE;
	else if (!is_freed(&r->f))
		r->f.rule = !mov ? RS_RACE_RULE_DATA_RACE : r->rests & REST_ORDERED ? RS_RACE_RULE_DATA_RACE_ORDERED : RS_RACE_RULE_DATA_RACE_MOV;
	if (r->state == PENDING)
		pending--;
	if (r->state != PENDING || r->announced)
		untold++;
	r->state = DECIDED;
}

static bool certain(const struct rs_race_found *f) { return f->rule != RS_RACE_RULE_DATA_RACE_MOV && f->rule != RS_RACE_RULE_DATA_RACE_ORDERED && f->rule != RS_RACE_RULE_FREE_MOV; }

static void drop(struct race *r)
{
	for (uint32_t *link = &head[hash(&r->f)]; *link; link = &races[*link].next)
		if (&races[*link] == r) {
			*link = r->next;
			break;
		}
	if (!r->announced)
		untold--;
	r->state = 0;
	r->next = spare;
	spare = (uint32_t)(r - races);
	pending--;
}

/* Whether what a pending race rests on has turned out since then to make it none. To be asked when it is pending already: whoever learns it later finds it among them. */
static bool refuted(const struct race *r, struct race_moment began)
{
	uint32_t at[PLACES];
	if (r->rests & (REST_ORDERED | REST_SAME) && began.generation != __atomic_load_n(&rs_race_generation, __ATOMIC_SEQ_CST))
		return true;
	return r->rests & REST_DIRECT && began.atomics != __atomic_load_n(&rs_race_atomics, __ATOMIC_SEQ_CST) && rs_race_places(r->lo, r->hi, PLACE_ATOMIC, at);
}

bool rs_race_is_new(const struct rs_race_found *f)
{
	bool any = false;
	if (!rs_race_lock(&races_lock))
		return false;
	for (uint32_t i = head[hash(f)]; i && !any; i = races[i].next)
		any = same(&races[i].f, f);
	rs_race_unlock(&races_lock);
	return !any;
}

void rs_race_found(const struct rs_race_found *f, uint64_t lo, uint64_t hi, unsigned rests, struct race_moment began)
{
	if (!rs_race_lock(&races_lock)) {
		__atomic_fetch_add(&rs_race_counted.unsaid, 1, __ATOMIC_RELAXED);
		return;
	}
	unsigned h = hash(f), instances = 0;
	bool maybe = rests & (REST_ORDERED | REST_SAME), stop = false;
	for (uint32_t i = head[h]; i && !stop; i = races[i].next) {
		struct race *r = &races[i];
		if (!same(&r->f, f))
			continue;
		if (r->f.count < ~0u)
			r->f.count++;
		instances += r->state == PENDING;
		stop = (r->state == DECIDED && (certain(&r->f) || maybe)) || (r->state == PENDING && r->lo == lo && r->hi == hi && r->rests == rests) || instances >= INSTANCES;
	}
	if (!stop) {
		uint32_t i = spare ? spare : used + 1 < MAX_RACES ? ++used : 0;
		if (!i)
			__atomic_fetch_add(&rs_race_counted.unsaid, 1, __ATOMIC_RELAXED);
		else {
			struct race *r = &races[i];
			if (i == spare)
				spare = r->next;
			*r = (struct race){.f = *f, .lo = lo, .hi = hi, .since = rs_race_now(), .rests = (uint8_t)rests, .next = head[h]};
			r->f.count = 1;
			head[h] = i;
			if (rests) {
				r->state = PENDING;
				untold++;
				__atomic_fetch_add(&pending, 1, __ATOMIC_SEQ_CST);
				if (refuted(r, began))
					drop(r);
			} else
				decide(r);
		}
	}
	rs_race_unlock(&races_lock);
}

/* Calls do for what is pending. Without the lock nothing can be taken back, so nothing that is pending is told any more. */
static void each(void (*fn)(struct race *r, uint64_t a, uint64_t b), uint64_t a, uint64_t b)
{
	if (!__atomic_load_n(&pending, __ATOMIC_SEQ_CST))
		return;
	if (!rs_race_lock(&races_lock)) {
		__atomic_fetch_add(&rs_race_counted.unsaid, 1, __ATOMIC_RELAXED);
		__atomic_fetch_add(&rs_race_generation, 2, __ATOMIC_SEQ_CST);
		return;
	}
	for (uint32_t i = 1; i <= used; i++)
		if (races[i].state == PENDING)
			fn(&races[i], a, b);
	rs_race_unlock(&races_lock);
}

static void atomic_one(struct race *r, uint64_t lo, uint64_t hi)
{
	if (r->rests & REST_DIRECT && r->lo < hi && lo < r->hi)
		drop(r);
}

static void ordered_one(struct race *r, uint64_t since, uint64_t unused)
{
	(void)unused;
	if (r->rests & REST_ORDERED && r->since >= since)
		drop(r);
}

static void dies_one(struct race *r, uint64_t lo, uint64_t hi)
{
	if (!(r->rests & REST_DIRECT) || r->lo >= hi || lo >= r->hi)
		return;
	if (!(r->rests & REST_ORDERED))
		decide(r);
	else
		r->rests = REST_ORDERED;
}

static void decide_one(struct race *r, uint64_t a, uint64_t b)
{
	(void)a, (void)b;
	decide(r);
}

uint32_t rs_race_atomics;

void rs_race_found_atomic(uint64_t lo, uint64_t hi)
{
	__atomic_fetch_add(&rs_race_atomics, 1, __ATOMIC_SEQ_CST);
	each(atomic_one, lo, hi);
}

void rs_race_found_ordered(uint64_t since) { each(ordered_one, since, 0); }
void rs_race_found_dies(uint64_t lo, uint64_t hi) { each(dies_one, lo, hi); }
void rs_race_end(void) { each(decide_one, 0, 0); }

bool rs_race_next(struct rs_race_found *out)
{
	bool any = false;
	if (!__atomic_load_n(&untold, __ATOMIC_ACQUIRE) || !rs_race_lock(&races_lock))
		return false;
	for (uint32_t i = 1; i <= used && !any; i++)
		if (races[i].state == DECIDED && !races[i].told) {
			*out = races[i].f;
			races[i].told = 1;
			untold--;
			any = true;
		} else if (races[i].state == PENDING && !races[i].announced) {
			*out = races[i].f;
			out->rule = is_free(out) ? RS_RACE_RULE_PENDING_FREE : RS_RACE_RULE_PENDING_RACE;
			races[i].announced = 1;
			untold--;
			any = true;
		}
	rs_race_unlock(&races_lock);
	return any;
}

void rs_race_found_after_fork(void)
{
	for (uint32_t i = 0; i < BUCKETS; i++)
		head[i] = 0;
	races_lock = used = spare = pending = untold = 0;
}
