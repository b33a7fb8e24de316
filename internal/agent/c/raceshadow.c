/* raceshadow.c: the check. Memory is cells of eight bytes; a cell has points: accesses, each of some of its bytes. For each byte they are FastTrack's state: the last plain write, the plain reads
 * since then of which none follows another, and the accesses to atomic locations as such, which race with plain ones only. Two points lie in the cell, others in nodes. */
#include "race_core.h"

enum { FOUND = 16, MOVS = 32 };
struct access {
	struct race_thread *t;
	uint64_t e, lo, hi, pc, size;
	uint32_t stack, site[2];
	struct race_moment began;
	unsigned kind;
	bool mov, same, met; /* met: there are places in the cells */
	unsigned found_count, movs_count;
	struct { struct rs_race_found f; uint64_t e; unsigned rests; } found[FOUND];
	uint32_t movs[MOVS]; /* slots of movs that wrote these bytes and that nothing orders before this one */
};

/* Whether an access may share a point with others of its site that begin elsewhere in the cell: each byte tells where its own began. */
static inline bool aligned(uint64_t lo, uint64_t size) { return size < 8 && size && (size & (size - 1)) == 0 && (lo & (size - 1)) == 0; }

static void found(struct access *x, uint64_t cell, const struct race_point *p, uint8_t hit)
{
	unsigned kind = race_kind(p->info);
	rs_race_bump(race_slot(p->e)); /* so that it does not take for known what changes now */
	if (x->found_count == FOUND) {
		__atomic_fetch_add(&rs_race_counted.unsaid, 1, __ATOMIC_RELAXED);
		return;
	}
	const struct race_site *s = rs_race_site(p->site);
	unsigned rests = race_may_know(x->t, p->e) ? REST_ORDERED : 0;
	if ((x->mov || x->kind & RS_RACE_ATOMIC) && (p->info & INFO_MOV || kind == POINT_ATOMIC_READ || kind == POINT_ATOMIC_WRITE))
		rests |= REST_DIRECT;
	uint64_t addr = cell * 8 + (p->info & INFO_BEFORE ? 0 : p->info & 7);
	if (s && !(p->info & INFO_BEFORE) && aligned(p->info & 7, s->size))
		addr = cell * 8 + ((unsigned)__builtin_ctz(hit) & ~(unsigned)(s->size - 1));
	if (x->mov && p->info & INFO_MOV && s && addr == x->lo && s->size == x->size) {
		rests |= REST_SAME;
		x->same = true;
	}
	x->found[x->found_count].f = (struct rs_race_found){
		.kind = (uint8_t)x->kind, .by = x->t->quick.number, .stack = x->stack, .addr = x->lo, .size = x->size, .pc = x->pc, .addr2 = addr,
		.kind2 = (uint8_t)(s ? s->kind : kind == POINT_READ ? RS_RACE_READ : RS_RACE_WRITE), .by2 = s ? s->thread : 0, .stack2 = s ? s->stack : 0,
		.size2 = s ? s->size : 0, .pc2 = s ? s->pc : 0};
	x->found[x->found_count].e = p->e;
	x->found[x->found_count++].rests = rests;
}

static uint32_t site_of_access(struct access *x, bool atomic)
{
	if (!x->site[atomic])
		x->site[atomic] = rs_race_intern(x->t, x->pc, x->size, x->stack, x->kind);
	return x->site[atomic];
}

/* The newest point is the first: while that is of a thread's time, nobody else did anything to the cell that the shadow got since. */
static void make_first(struct race_point *p, unsigned i)
{
	struct race_point newest = p[i];
	p[i] = p[0];
	p[0] = newest;
}

/* Checks and notes the access to bytes of a cell, which is locked and of which n points are loaded. Returns how many there are then. */
static unsigned check(struct access *x, uint64_t cell, uint8_t mask, bool atomic, unsigned n)
{
	struct race_thread *t = x->t;
	struct race_point *p = t->points;
	bool write = x->kind & RS_RACE_WRITE;
	uint8_t my_writes = 0, my_reads = 0, reads = 0, atomics = 0, old_movs = 0;
	for (unsigned i = 0; i < n && !atomic; i++) {
		bool mine = (p[i].e & EPOCH) == x->e;
		switch (race_kind(p[i].info)) {
		case POINT_WRITE:
			old_movs |= p[i].info & INFO_MOV && !race_knows(t, p[i].e) ? race_bytes(&p[i]) : 0;
			my_writes |= mine && (!write || !x->mov || p[i].info & INFO_MOV) ? race_bytes(&p[i]) : 0; /* a mov may be an atomic's, where another write is not */
			break;
		case POINT_READ: *(mine ? &my_reads : &reads) |= race_bytes(&p[i]); break;
		case POINT_ATOMIC_READ: case POINT_ATOMIC_WRITE: atomics |= race_bytes(&p[i]); break;
		case POINT_LAST_MOV: old_movs |= race_knows(t, p[i].e) ? 0 : race_bytes(&p[i]); break;
		}
	}
	if (old_movs && x->mov) { /* which may order it */
		my_writes &= (uint8_t)~old_movs;
		my_reads &= (uint8_t)~old_movs;
	}
	/* Of bytes that the thread wrote in this time and nobody accessed since, and for a read of those that it read or wrote and others at most read since, no more can be learned. */
	mask &= (uint8_t) ~(my_writes & ~((write ? reads : 0) | atomics));
	if (!write)
		mask &= (uint8_t)~my_reads;
	if (!mask)
		return n;
	uint8_t last_movs = 0;
	for (unsigned i = 0; i < n; i++) {
		unsigned kind = race_kind(p[i].info);
		if (!(race_bytes(&p[i]) & mask))
			continue;
		bool mov = kind == POINT_LAST_MOV || (kind == POINT_WRITE && p[i].info & INFO_MOV);
		if (mov && race_time(p[i].e) <= rs_race_common && race_slot(p[i].e) == 0)
			mov = false;
		else if (mov && kind == POINT_WRITE)
			last_movs |= race_bytes(&p[i]);
		if (race_knows(t, p[i].e))
			continue;
		if (x->mov && !atomic && mov) {
			if (x->movs_count == MOVS)
				rs_race_amnesty();
			else
				x->movs[x->movs_count++] = race_slot(p[i].e);
		}
		bool races = false;
		switch (kind) {
		case POINT_WRITE: races = !(atomic && p[i].info & INFO_MOV); break;
		case POINT_READ: races = write && !(atomic && p[i].info & INFO_MOV); break;
		case POINT_ATOMIC_WRITE: races = !atomic; break;
		case POINT_ATOMIC_READ: races = write && !atomic; break;
		}
		if (races)
			found(x, cell, &p[i], race_bytes(&p[i]) & mask);
	}
	/* The update is FastTrack's: a write stands for all before it, a read for the reads that it follows. */
	unsigned had = n;
	last_movs &= mask;
	for (unsigned i = 0; i < had; i++) {
		unsigned kind = race_kind(p[i].info);
		uint8_t m = race_bytes(&p[i]) & mask, gone = 0;
		if (!m)
			continue;
		if (kind == POINT_LAST_MOV)
			gone = !write || atomic ? 0 : x->mov ? m : m & last_movs;
		else if (write && !atomic) {
			gone = m;
			if (kind == POINT_WRITE && p[i].info & INFO_MOV && !x->mov && m & last_movs && n < POINTS)
				p[n++] = (struct race_point){(p[i].e & EPOCH) | (uint64_t)(m & last_movs) << MASK_BITS, p[i].site,
					(uint8_t)((p[i].info & 15) | POINT_LAST_MOV << INFO_KIND | INFO_MOV)};
		} else if (race_knows(t, p[i].e) && kind == (!atomic ? POINT_READ : write ? POINT_ATOMIC_WRITE : POINT_ATOMIC_READ))
			gone = m;
		else if (atomic && kind == POINT_ATOMIC_READ && race_knows(t, p[i].e))
			gone = m;
		p[i].e &= ~((uint64_t)gone << MASK_BITS);
	}
	if (n >= POINTS) {
		__atomic_fetch_add(&rs_race_counted.unsaid, 1, __ATOMIC_RELAXED);
		rs_race_amnesty();
		n = 0;
	}
	unsigned kind = atomic ? (write ? POINT_ATOMIC_WRITE : POINT_ATOMIC_READ) : write ? POINT_WRITE : POINT_READ;
	uint32_t site = site_of_access(x, atomic);
	for (unsigned i = 0; i < n && aligned(x->lo, x->size); i++)
		if ((p[i].e & EPOCH) == x->e && p[i].site == site && site && race_kind(p[i].info) == kind && race_bytes(&p[i]) && !(p[i].info & INFO_BEFORE)) {
			p[i].e |= (uint64_t)mask << MASK_BITS;
			make_first(p, i);
			return n;
		}
	p[n].e = x->e | (uint64_t)mask << MASK_BITS;
	p[n].site = site;
	p[n].info = (uint8_t)((x->lo < cell * 8 ? INFO_BEFORE : x->lo & 7) | kind << INFO_KIND | (x->mov ? INFO_MOV : 0));
	make_first(p, n);
	return n + 1;
}

/* What the points of a cell tell without a lock. Nodes may be another cell's by the time they are read, which the second look at `more` mostly tells; what is then taken for known is an access
 * that the shadow does not get. */
static inline bool masks_in(const struct race_thread *t, uint64_t e, const struct race_page *g, const struct race_cell *c, uint64_t cell, struct rs_race_masks *out)
{
	uint8_t read = 0, write = 0, mov = 0, others = 0, order = 0; /* others: what they did since the thread wrote. order: may order a mov */
	uint32_t more = __atomic_load_n(&c->more, __ATOMIC_ACQUIRE), i = more;
	const uint64_t *at = c->e;
	const uint8_t *info = c->info;
	if (__atomic_load_n(&c->places, __ATOMIC_RELAXED))
		return false;
	for (unsigned n = 2, nodes = 0;; n = 3, nodes++) {
		for (unsigned k = 0; k < n; k++) {
			uint8_t what = __atomic_load_n(&info[k], __ATOMIC_ACQUIRE);
			uint64_t p = race_load(&at[k]);
			uint8_t has = (uint8_t)(p >> MASK_BITS);
			unsigned point = race_kind(what);
			if ((p & EPOCH) != e) {
				/* A write takes away what came before it; so another's, of bytes that the thread read or wrote in this time, is older, and was looked at then. */
				others |= point == POINT_READ ? has : 0;
				order |= point >= POINT_ATOMIC_WRITE || (point == POINT_WRITE && what & INFO_MOV) ? (race_knows(t, p) && point != POINT_ATOMIC_READ && point != POINT_ATOMIC_WRITE ? 0 : has) : 0;
			} else if (point == POINT_WRITE) {
				write |= has;
				mov |= what & INFO_MOV ? has : 0;
			} else if (point == POINT_READ)
				read |= has;
		}
		if (!i || nodes == 8)
			break;
		const struct race_node *o = race_at(race_nodes_of(cell), i);
		at = o->e;
		info = o->info;
		i = __atomic_load_n(&o->next, __ATOMIC_RELAXED);
	}
	if (__atomic_load_n(&c->lock, __ATOMIC_ACQUIRE) || __atomic_load_n(&c->more, __ATOMIC_RELAXED) != more || __atomic_load_n(&g->number, __ATOMIC_ACQUIRE) != cell / CELLS || i)
		return false;
	*out = (struct rs_race_masks){.read = (read | write) & (uint8_t)~order, .write = write & (uint8_t) ~(others | order), .mov = mov & (uint8_t) ~(others | order)};
	return true;
}

bool rs_race_masks(const struct rs_race_thread *t, uint64_t cell, struct rs_race_masks *out)
{
	const struct race_page *g = race_page_at(cell / CELLS);
	return g && masks_in((const struct race_thread *)t, race_load(&t->epoch), g, &g->cell[cell % CELLS], cell, out);
}

static inline bool known_in(const struct race_thread *t, uint64_t e, unsigned kind, bool mov, const struct race_page *g, const struct race_cell *c, uint64_t cell, uint8_t mask)
{
	struct rs_race_masks m;
	return !(kind & RS_RACE_ATOMIC) && masks_in(t, e, g, c, cell, &m) && !(mask & ~(!(kind & RS_RACE_WRITE) ? m.read : mov ? m.mov : m.write));
}

static inline bool is_mov(uint64_t lo, uint64_t size, unsigned kind)
{
	return (kind == RS_RACE_READ || kind == RS_RACE_WRITE) && size && size <= 8 && (size & (size - 1)) == 0 && (lo & (size - 1)) == 0;
}

static bool freed_here(const struct race_page *g, uint64_t cell, uint8_t mask)
{
	uint32_t any = __atomic_load_n(&g->any_freed, __ATOMIC_ACQUIRE);
	return any && (any & FREED_ALL || (uint8_t)(race_load(&g->freed[cell % CELLS / 8]) >> cell % 8 * 8) & mask);
}

/* Notes a race of x, an access that was not made yet. */
static void note(const struct access *x, const struct rs_race_found *f, unsigned rests)
{
	if (rs_race_configured.look && f->pc && rs_race_is_new(f) && !rs_race_configured.look(f))
		return;
	rs_race_found(f, x->lo, x->hi, rests, x->began);
}

/* --- who uses a page -------------------------------------------------------------------------------------------------------------- */

/* ALONE: so many accesses in a row that are not known already. A page of several users is looked at anew in each MET-th access that a thread makes to such. */
enum { ALONE = 64, MET = 1024 };

static __attribute__((noinline)) void count_user(struct race_thread *t, struct race_page *g)
{
	uint32_t user = __atomic_load_n(&g->user, __ATOMIC_RELAXED), me = t->quick.number;
	if (user == me) {
		uint32_t n = __atomic_load_n(&g->alone, __ATOMIC_RELAXED) + 1;
		bool enough = n >= ALONE;
		__atomic_store_n(&g->alone, enough ? 0 : n, __ATOMIC_RELAXED);
		uint64_t number = __atomic_load_n(&g->number, __ATOMIC_ACQUIRE);
		if (enough && !__atomic_load_n(&g->any_freed, __ATOMIC_RELAXED) && !rs_race_page_has_places(number))
			t->alone = number;
		return;
	}
	if (user == RACE_MANY && ++t->met_many % MET)
		return;
	__atomic_store_n(&g->alone, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&g->user, user && user != RACE_MANY ? RACE_MANY : me, __ATOMIC_RELAXED);
}

/* Another thread than the one whose stack it is has accessed it. */
static __attribute__((noinline)) void meets(uint32_t whose, uint64_t addr)
{
	const struct race_thread *o = rs_race_of(whose);
	if (!o || !o->frames)
		return;
	for (uint64_t was = race_load(&o->frames->lowest); addr < was;)
		if (__atomic_compare_exchange_n(&o->frames->lowest, &was, addr, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
			break;
	__atomic_store_n(&o->frames->entries, o->told, __ATOMIC_RELEASE);
	__atomic_store_n(&o->frames->told, 1, __ATOMIC_RELEASE);
}

static inline void used_by(struct race_thread *t, struct race_page *g, uint64_t cell)
{
	uint32_t whose = __atomic_load_n(&g->stack, __ATOMIC_RELAXED);
	if (RACE_UNLIKELY(whose && whose != t->quick.number))
		meets(whose, cell << 3);
	if (RACE_UNLIKELY(rs_race_configured.alone != NULL))
		count_user(t, g);
}

static inline void say_alone(struct race_thread *t)
{
	uint64_t page = t->alone;
	if (RACE_UNLIKELY(page)) {
		t->alone = 0;
		rs_race_configured.alone(t->quick.number, page);
	}
}

static void use_after_free(struct access *x, uint64_t cell, uint8_t mask)
{
	struct race_freed b;
	uint64_t lo = cell * 8 + (unsigned)__builtin_ctz(mask), hi = cell * 8 + 32 - (unsigned)__builtin_clz(mask);
	if (!rs_race_freed_at(lo, hi, &b))
		return;
	struct rs_race_found f = {
		.rule = RS_RACE_RULE_USE_AFTER_FREE, .kind = (uint8_t)x->kind, .by = x->t->quick.number, .stack = x->stack, .addr = x->lo, .size = x->size, .pc = x->pc,
		.by2 = b.thread, .stack2 = b.stack, .addr2 = b.addr, .size2 = b.size};
	note(x, &f, 0);
}

static void cell_access(struct access *x, uint64_t cell, uint8_t mask)
{
	struct race_thread *t = x->t;
	struct race_page *g = race_page_at(cell / CELLS);
	struct race_cell *c;
	if (g && known_in(t, x->e, x->kind, x->mov, g, &g->cell[cell % CELLS], cell, mask))
		return;
	if (!(g = rs_race_locked_cell(cell, true, &c))) {
		rs_race_amnesty();
		return;
	}
	g->touched = rs_race_made_pages;
	bool freed = freed_here(g, cell, mask), places = c->places;
	x->met |= places;
	if (!freed) {
		uint8_t atomic = x->kind & RS_RACE_ATOMIC ? mask : places && x->mov ? rs_race_place_bytes(cell, true) & mask : 0;
		unsigned n = rs_race_load_points(t, cell, c);
		if (mask & ~atomic)
			n = check(x, cell, mask & (uint8_t)~atomic, false, n);
		if (atomic)
			n = check(x, cell, atomic, true, n);
		rs_race_store_points(t, cell, c, n);
	}
	race_unlock_cell(c);
	if (freed)
		use_after_free(x, cell, mask);
	else
		used_by(t, g, cell);
}

/* Says the races that were found, once it is known what movs order. */
static void tell(struct access *x)
{
	for (unsigned i = 0; i < x->found_count; i++) {
		unsigned rests = x->found[i].rests;
		if (!(rests & REST_DIRECT) && race_may_know(x->t, x->found[i].e))
			rests |= REST_ORDERED;
		note(x, &x->found[i].f, rests);
	}
	x->found_count = 0;
}

static inline bool fits(uint64_t lo, uint64_t size) { return size != 0 && size <= 64 && lo + size > lo; }

/* Bytes that a locked instruction accesses, or a plain store before a fence. */
static void atomic_now(struct race_thread *t, uint64_t lo, uint64_t size, bool quiet)
{
	rs_race_learn(t, lo, lo + size, PLACE_ATOMIC | (quiet ? PLACE_QUIET : 0));
}

static void done(struct race_thread *t, uint64_t lo, uint64_t size)
{
	uint32_t at[PLACES];
	for (unsigned i = 0, n = rs_race_places(lo, lo + size, PLACE_ATOMIC, at); i < n; i++)
		rs_race_place_take(at[i], t);
}

/* The atomic at lo was read, and what that follows is acquired by the next fence alone. Of more than READS the oldest is taken now: too much order is never wrong. */
static void take_later(struct race_thread *t, uint64_t lo)
{
	for (unsigned i = 0; i < READS && i < t->read_count; i++)
		if (t->read[i] == lo)
			return;
	uint64_t *at = &t->read[t->read_count++ % READS];
	if (t->read_count > READS)
		done(t, *at, 1);
	*at = lo;
}

static void access(struct race_thread *t, uint64_t lo, uint64_t size, unsigned kind, uint64_t pc, uint32_t stack)
{
	struct access x;
	uint32_t at[PLACES];
	unsigned places = 0;
	if (kind & RS_RACE_FENCED && fits(lo, size))
		atomic_now(t, lo, size, false);
	unsigned order = kind & (RS_RACE_NO_TAKE | RS_RACE_NO_GIVE);
	kind &= ~(unsigned)(RS_RACE_FENCED | RS_RACE_NO_TAKE | RS_RACE_NO_GIVE);
	bool mov = is_mov(lo, size, kind);
	bool locked = kind & RS_RACE_ATOMIC && fits(lo, size);
	if (kind & RS_RACE_FENCE) {
		if (t->store_size)
			atomic_now(t, t->store, t->store_size, false);
		t->store_size = 0;
		return;
	}
	t->store = lo;
	t->store_size = mov && kind == RS_RACE_WRITE ? size : 0;
	if (size == 0 || !(kind & (RS_RACE_READ | RS_RACE_WRITE)))
		return;
	if (size > 1u << 28)
		size = 1u << 28;
	if (lo + size < lo)
		size = -lo;
	if (!locked)
		kind &= ~(unsigned)RS_RACE_ATOMIC;
	x.t = t;
	x.lo = lo;
	x.hi = lo + size;
	x.size = size;
	x.pc = pc;
	x.stack = stack;
	x.site[0] = x.site[1] = 0;
	x.kind = kind;
	x.mov = mov;
	x.same = x.met = false;
	x.found_count = x.movs_count = 0;
	x.began = rs_race_moment();
	if (locked)
		atomic_now(t, lo, size, order & RS_RACE_NO_GIVE);
	if (locked || mov) {
		struct race_page *g = race_page_at(lo >> 3 >> 9);
		if (locked || (g && __atomic_load_n(&g->cell[lo >> 3 & (CELLS - 1)].places, __ATOMIC_ACQUIRE)) || (!g && rs_race_page_has_places(lo >> 12)))
			places = rs_race_places(lo, lo + size, PLACE_ATOMIC | PLACE_MOV, at);
	}
	if (kind & RS_RACE_READ && order & RS_RACE_NO_TAKE)
		take_later(t, lo);
	else if (kind & RS_RACE_READ)
		for (unsigned i = 0; i < places; i++)
			if (at[i] & PLACE_CERTAIN) /* of atomics: it orders for certain */
				rs_race_place_take(at[i], t);
	x.e = race_load(&t->quick.epoch);
	for (uint64_t cell = lo >> 3; cell <= (x.hi - 1) >> 3; cell++) {
		cell_access(&x, cell, race_mask(cell, lo, x.hi));
		if (x.found_count && !x.mov)
			tell(&x);
	}
	if (x.movs_count || x.same) {
		/* A mov that raced might be of an atomic: what that would order is not for certain. */
		rs_race_learn(t, lo, x.hi, PLACE_MOV | (x.same ? PLACE_SAME : 0));
		x.met = true;
	}
	if (x.mov && x.met)
		places = rs_race_places(lo, x.hi, PLACE_ATOMIC | PLACE_MOV, at); /* there may be one since the beginning: another thread's */
	if (x.movs_count) {
		for (unsigned i = 0; i < places; i++)
			for (unsigned k = 0; k < x.movs_count && !(at[i] & PLACE_CERTAIN); k++)
				rs_race_place_give_slot(at[i], x.movs[k]);
		for (unsigned k = 0; k < x.movs_count; k++)
			rs_race_bump(x.movs[k]);
	}
	if (x.mov && kind & RS_RACE_READ)
		for (unsigned i = 0; i < places; i++)
			rs_race_place_take(at[i], t);
	if (x.found_count)
		tell(&x);
	if (kind & RS_RACE_WRITE)
		for (unsigned i = 0; i < places; i++) {
			if (!(order & RS_RACE_NO_GIVE))
				rs_race_place_give(at[i], t);
			else if (t->fence.of)
				rs_race_place_join(at[i], &t->fence);
		}
}

/* What an access leaves of a point that it must come after, of bytes that it has; and what kind the point then is. ~0: it is not to be done at once. */
static inline __attribute__((always_inline)) uint64_t left_at_once(const struct race_thread *t, uint64_t p, uint8_t *info, uint64_t e, uint8_t mask, bool write, bool mov)
{
	uint64_t shared = p & (uint64_t)mask << MASK_BITS;
	unsigned was = race_kind(*info);
	if (!shared)
		return p;
	bool mine = (p & EPOCH) == e, known = race_knows(t, p);
	if (was == POINT_LAST_MOV && !(mov && !known))
		return write && mov ? p & ~shared : p;
	if ((was != POINT_WRITE && was != POINT_READ) || (!known && (write || was == POINT_WRITE)) || /* a race, or an order by movs */
	    (mine && (!write || (was == POINT_WRITE && (!mov || *info & INFO_MOV)))))                /* nothing new, in part */
		return ~0ull;
	if (write && !mov && was == POINT_WRITE && *info & INFO_MOV && !(race_time(p) <= rs_race_common && race_slot(p) == 0)) {
		if (p >> MASK_BITS != shared >> MASK_BITS)
			return ~0ull;
		*info = (uint8_t)((*info & 15) | POINT_LAST_MOV << INFO_KIND | INFO_MOV);
		return p;
	}
	return write || (known && was == POINT_READ) ? p & ~shared : p;
}

/* A plain access that comes before all that anybody does from now on: no race is with it, so its place is another one's where room is short. */
static inline bool over(uint64_t p, uint8_t info)
{
	uint32_t s = race_slot(p);
	return (race_kind(info) == POINT_WRITE || race_kind(info) == POINT_READ) && (race_load(&rs_race_floor[s]) >= race_time(p) || (s == 0 && race_time(p) <= rs_race_common));
}

static inline void put_point(struct race_cell *c, unsigned k, uint64_t e, uint32_t site, uint8_t info) /* as rs_race_store_points */
{
	__atomic_store_n(&c->e[k], e, __ATOMIC_RELEASE);
	c->site[k] = site;
	__atomic_store_n(&c->info[k], info, __ATOMIC_RELEASE);
}

/* put_at_once where there are more than two points, or will be; the cell is locked. */
static __attribute__((noinline)) uint64_t put_more(struct race_thread *t, struct race_cell *c, uint64_t cell, uint64_t e, uint64_t lo, uint64_t size, uint8_t mask, uint8_t info, uint32_t site)
{
	struct race_point *p = t->points;
	unsigned n = rs_race_load_points(t, cell, c), kind = race_kind(info), same = n, last_movs = 0;
	bool write = kind == POINT_WRITE;
	for (unsigned i = 0; i < n; i++) {
		uint64_t left = left_at_once(t, p[i].e, &p[i].info, e, mask, write, info & INFO_MOV);
		if (left == ~0ull)
			return 0;
		if (left == p[i].e && (left & EPOCH) == e && race_bytes(&p[i]) && !(race_bytes(&p[i]) & mask) && p[i].site == site && site && race_kind(p[i].info) == kind && !(p[i].info & INFO_BEFORE))
			same = i;
		p[i].e = same != i && over(left, p[i].info) ? left & EPOCH : left;
		last_movs += race_kind(p[i].info) == POINT_LAST_MOV && left >> MASK_BITS;
	}
	if (n + 1 >= POINTS || (last_movs > 1 && write)) /* of two the older one goes */
		return 0;
	if (same < n && aligned(lo, size))
		p[same].e |= (uint64_t)mask << MASK_BITS;
	else
		p[same = n++] = (struct race_point){e | (uint64_t)mask << MASK_BITS, site, info};
	make_first(p, same);
	uint64_t first = p[0].e;
	rs_race_store_points(t, cell, c, n);
	return first;
}

/* A plain access to the bytes of a cell that mask has, if nothing there races with it, and no mov may order it: what access() would come to, at once. Returns the cell's first point; 0: nothing was
 * done. */
static inline uint64_t put_at_once(struct race_thread *t, struct race_page *g, uint64_t cell, uint64_t lo, uint64_t size, uint8_t mask, bool write, bool mov, uint32_t site)
{
	struct race_cell *c = &g->cell[cell % CELLS];
	uint64_t e = race_load(&t->quick.epoch), first = 0;
	if (__atomic_load_n(&c->lock, __ATOMIC_RELAXED) || c->places || __atomic_exchange_n(&c->lock, 1, __ATOMIC_ACQUIRE))
		return 0;
	uint64_t was[2] = {c->e[0], c->e[1]}, left[2];
	uint8_t kind = (write ? POINT_WRITE : POINT_READ) << INFO_KIND, info = (uint8_t)((lo < cell * 8 ? INFO_BEFORE : lo & 7) | kind | (mov ? INFO_MOV : 0)), its[2] = {c->info[0], c->info[1]};
	if (__atomic_load_n(&g->number, __ATOMIC_ACQUIRE) != cell / CELLS || c->places)
		goto out;
	race_use(g, cell);
	if (freed_here(g, cell, mask))
		goto out;
	if (RACE_UNLIKELY(c->more)) {
		first = put_more(t, c, cell, e, lo, size, mask, info, site);
		goto out;
	}
	left[0] = left_at_once(t, was[0], &its[0], e, mask, write, mov);
	left[1] = left_at_once(t, was[1], &its[1], e, mask, write, mov);
	if (left[0] == ~0ull || left[1] == ~0ull)
		goto out;
	if (left[0] >> MASK_BITS && left[1] >> MASK_BITS)
		for (unsigned k = 0; k < 2; k++)
			if (over(left[k], its[k]))
				left[k] &= EPOCH;
	for (unsigned k = 0; k < 2 && site && aligned(lo, size); k++) /* one point with others of its site */
		if (left[k] == was[k] && (was[k] & EPOCH) == e && !(was[k] & (uint64_t)mask << MASK_BITS) && was[k] >> MASK_BITS && c->site[k] == site && (its[k] & (INFO_BEFORE | 7 << INFO_KIND)) == kind) {
			first = was[k] | (uint64_t)mask << MASK_BITS;
			if (k == 1)
				put_point(c, 1, left[0] >> MASK_BITS ? left[0] : 0, c->site[0], its[0]);
			else
				put_point(c, 1, left[1] >> MASK_BITS ? left[1] : 0, c->site[1], its[1]);
			put_point(c, 0, first, site, its[k]);
			goto out;
		}
	if (left[0] >> MASK_BITS) {
		if (left[1] >> MASK_BITS) {
			first = put_more(t, c, cell, e, lo, size, mask, info, site);
			goto out;
		}
		put_point(c, 1, left[0], c->site[0], its[0]);
	} else if (left[1] != was[1] || its[1] != c->info[1])
		put_point(c, 1, left[1] >> MASK_BITS ? left[1] : 0, c->site[1], its[1]);
	first = e | (uint64_t)mask << MASK_BITS;
	put_point(c, 0, first, site, info);
out:
	race_unlock_cell(c);
	if (first && g->touched != rs_race_made_pages) /* it lies where all threads read */
		g->touched = rs_race_made_pages;
	if (first)
		used_by(t, g, cell);
	return first;
}

static bool at_once(struct race_thread *t, uint64_t lo, uint64_t size, unsigned kind, uint64_t pc, uint32_t stack)
{
	uint64_t cell = lo >> 3;
	struct race_page *g = race_page_at(cell / CELLS);
	bool mov = is_mov(lo, size, kind);
	if (!g || size == 0 || size > 8 - (lo & 7) ||
	    !put_at_once(t, g, cell, lo, size, race_mask(cell, lo, lo + size), kind & RS_RACE_WRITE, mov, rs_race_intern(t, pc, size, stack, kind)))
		return false;
	t->store = lo;
	t->store_size = mov && kind & RS_RACE_WRITE ? size : 0;
	return true;
}

/* All of the bytes are in the cell's first point, which is of the thread and its time, and of a kind that counts. */
static inline bool in_first(uint64_t e, const struct race_page *g, uint64_t cell, uint8_t mask, bool write)
{
	const struct race_cell *c = &g->cell[cell % CELLS];
	unsigned kind = race_kind(__atomic_load_n(&c->info[0], __ATOMIC_ACQUIRE));
	uint64_t first = race_load(&c->e[0]);
	return (first & EPOCH) == e && !(mask & ~(first >> MASK_BITS)) && (kind == POINT_WRITE || (kind == POINT_READ && !write)) && !__atomic_load_n(&c->places, __ATOMIC_RELAXED) &&
		!__atomic_load_n(&c->lock, __ATOMIC_ACQUIRE) && __atomic_load_n(&g->number, __ATOMIC_ACQUIRE) == cell / CELLS;
}

uint64_t rs_race_quick(struct race_thread *t, const struct race_page *page, uint64_t lo, uint64_t size, unsigned kind, uint32_t site)
{
	struct race_page *g = (struct race_page *)page;
	bool write = kind & RS_RACE_WRITE, mov = is_mov(lo, size, kind);
	uint64_t first = 0, cell = lo >> 3, last = (lo + size - 1) >> 3;
	race_enter(t, (uintptr_t)__builtin_frame_address(0));
	if (cell == last)
		first = put_at_once(t, g, cell, lo, size, race_mask(cell, lo, lo + size), write, mov, site);
	else
		for (; cell <= last; cell++) {
			uint8_t mask = race_mask(cell, lo, lo + size);
			first = in_first(race_load(&t->quick.epoch), g, cell, mask, write) ? 1 : put_at_once(t, g, cell, lo, size, mask, write, mov, site);
			if (!first)
				break;
		}
	if (first) {
		t->store = lo;
		t->store_size = mov && write ? size : 0;
	}
	race_leave(t);
	say_alone(t);
	return first;
}

void rs_race_access(struct rs_race_thread *quick, uintptr_t addr, uint64_t size, unsigned kind, uintptr_t pc, uint32_t stack)
{
	struct race_thread *t = (struct race_thread *)quick;
	if (t->busy) { /* a handler that came in the middle of this */
		rs_race_amnesty();
		return;
	}
	race_enter(t, (uintptr_t)__builtin_frame_address(0));
	if (kind & RS_RACE_DONE) {
		if (fits(addr, size))
			done(t, addr, size);
	} else if (kind & ~(unsigned)(RS_RACE_READ | RS_RACE_WRITE | RS_RACE_REPEATED | RS_RACE_CALLED) || !at_once(t, addr, size, kind, pc, stack))
		access(t, addr, size, kind, pc, stack);
	race_leave(t);
	say_alone(t);
}

void rs_race_fence(struct rs_race_thread *quick, bool acquires, bool releases)
{
	struct race_thread *t = (struct race_thread *)quick;
	if (t->busy) {
		rs_race_amnesty();
		return;
	}
	race_enter(t, (uintptr_t)__builtin_frame_address(0));
	for (unsigned i = 0; acquires && i < READS && i < t->read_count; i++)
		done(t, t->read[i], 1);
	if (acquires)
		t->read_count = 0;
	if (releases)
		rs_race_give(&t->fence, t);
	race_leave(t);
}

void rs_race_called(struct race_thread *t, uint64_t addr, uint64_t size, unsigned kind, uint64_t pc, uint32_t stack)
{
	struct access x;
	x.t = t;
	x.e = race_load(&t->quick.epoch);
	x.lo = addr;
	x.hi = addr + size;
	x.size = size;
	x.pc = pc;
	x.stack = stack;
	x.site[0] = x.site[1] = 0;
	x.kind = kind;
	x.mov = x.same = x.met = false;
	x.found_count = x.movs_count = 0;
	x.began = rs_race_moment();
	for (uint64_t cell = addr >> 3; cell <= (x.hi - 1) >> 3; cell++)
		cell_access(&x, cell, race_mask(cell, addr, x.hi));
	tell(&x);
}

/* --- free ----------------------------------------------------------------------------------------------------------------------- */

static void check_freed(struct race_page *g, uint64_t cell, uint8_t mask, void *arg)
{
	struct access *x = arg;
	struct race_cell *c = &g->cell[cell % CELLS];
	/* Who holds the lock may have seen the block alive, and stores a point yet: so the lock is read first. */
	if (!__atomic_load_n(&c->lock, __ATOMIC_ACQUIRE) && !race_load(&c->e[0]) && !race_load(&c->e[1]) && !__atomic_load_n(&c->more, __ATOMIC_RELAXED))
		return;
	if (!rs_race_lock_cell(c))
		return;
	unsigned n = g->number == cell / CELLS ? rs_race_load_points(x->t, cell, c) : 0;
	for (unsigned i = 0; i < n; i++)
		if (race_bytes(&x->t->points[i]) & mask && race_kind(x->t->points[i].info) != POINT_LAST_MOV && !race_knows(x->t, x->t->points[i].e))
			found(x, cell, &x->t->points[i], race_bytes(&x->t->points[i]) & mask);
	race_unlock_cell(c);
	for (unsigned i = 0; i < x->found_count; i++)
		x->found[i].f.rule = RS_RACE_RULE_FREE;
	tell(x);
}

/* A free is a write to all of the block, which an atomic does not excuse. */
void rs_race_check_free(struct race_thread *t, const struct race_block_ref *b)
{
	struct access x;
	x.t = t;
	x.lo = b->addr;
	x.hi = b->addr + b->size;
	x.size = b->size;
	x.pc = 0;
	x.stack = b->stack;
	x.kind = RS_RACE_WRITE;
	x.mov = x.same = x.met = false;
	x.found_count = 0;
	x.began = rs_race_moment();
	rs_race_each_cell(x.lo, x.hi, false, check_freed, &x);
}
