/* raceshadow.c: the history of memory by cells of eight bytes, and the check. A cell has points: accesses, each of some of its bytes. For each byte they are FastTrack's state: the
 * last plain write, the plain reads since then of which none follows another, and the accesses to atomic locations as such, which race with plain ones only. Two points lie in the cell, others in nodes.
 *
 * A page's memory may become another page's (evict), so whoever has locked a cell looks at the page's number again. */
#include "race_core.h"

struct cell { uint64_t e[2]; uint32_t site[2]; uint8_t info[2], places, lock; uint32_t more; };
_Static_assert(sizeof(struct cell) == 32, "four times the memory it speaks of");
struct node { uint64_t e[3]; uint32_t site[3]; uint32_t next; uint8_t info[3]; };
enum { CELLS = 512, NODE_POOLS = 16 };
struct page { uint64_t number, touched; uint64_t freed[64]; uint32_t next, any_freed; struct cell cell[CELLS]; };

static struct race_pool nodes[NODE_POOLS], pages = {.size = sizeof(struct page), .shift = 4};
static uint32_t pages_lock, page_count, spare_pages;
static uint64_t made_pages;
enum { LEVEL = 4096 };
static struct page ***top[LEVEL]; /* by page number, 12 bits a level */

/* --- sites ----------------------------------------------------------------------------------------------------------------- */

enum { SITE_BUCKETS = 1 << 16, MAX_SITES = 1 << 22 };
static struct race_pool sites = {.size = sizeof(struct race_site), .shift = 14};
static struct { uint32_t lock, head; } site_of[SITE_BUCKETS];

const struct race_site *rs_race_site(uint32_t id) { return id ? race_at(&sites, id) : NULL; }

static inline bool same_site(const struct race_site *a, const struct race_site *b)
{
	return a->pc == b->pc && a->stack == b->stack && a->size == b->size && a->kind == b->kind && a->thread == b->thread;
}

static uint32_t intern(struct race_thread *t, uint64_t pc, uint64_t size, uint32_t stack, unsigned kind)
{
	struct race_site s = {pc, size, stack, t->quick.number, kind, 0};
	uint64_t h = (pc ^ (uint64_t)stack << 20 ^ size << 44 ^ (uint64_t)kind << 52) * 0x9e3779b97f4a7c15ull;
	unsigned at = (unsigned)(h >> 40) % SITE_CACHE;
	if (t->sites[at].id && same_site(&t->sites[at].key, &s))
		return t->sites[at].id;
	unsigned b = (unsigned)((h ^ s.thread * 0x9e3779b97f4a7c15ull) >> 48);
	if (!rs_race_lock(&site_of[b].lock))
		return 0;
	uint32_t i = site_of[b].head;
	while (i && !same_site(race_at(&sites, i), &s))
		i = ((struct race_site *)race_at(&sites, i))->next;
	if (!i && sites.next < MAX_SITES && (i = rs_race_get(&sites)) != 0) {
		s.next = site_of[b].head;
		*(struct race_site *)race_at(&sites, i) = s;
		site_of[b].head = i;
	}
	rs_race_unlock(&site_of[b].lock);
	if (i) {
		t->sites[at].key = s;
		t->sites[at].id = i;
	}
	return i;
}

/* --- pages ------------------------------------------------------------------------------------------------------------------- */

static inline struct page *page_at(uint64_t number)
{
	struct page ***a = __atomic_load_n(&top[number >> 24 & (LEVEL - 1)], __ATOMIC_ACQUIRE);
	struct page **b = a ? __atomic_load_n(&a[number >> 12 & (LEVEL - 1)], __ATOMIC_ACQUIRE) : NULL;
	return b ? __atomic_load_n(&b[number & (LEVEL - 1)], __ATOMIC_ACQUIRE) : NULL;
}

static struct page **entry(uint64_t number)
{
	struct page ****a = &top[number >> 24 & (LEVEL - 1)];
	if (!*a)
		__atomic_store_n(a, rs_os_map(LEVEL * sizeof **a), __ATOMIC_RELEASE);
	struct page ***b = *a ? &(*a)[number >> 12 & (LEVEL - 1)] : NULL;
	if (b && !*b)
		__atomic_store_n(b, rs_os_map(LEVEL * sizeof **b), __ATOMIC_RELEASE);
	return b && *b ? &(*b)[number & (LEVEL - 1)] : NULL;
}

static bool lock_cell(struct cell *c)
{
	if (!__atomic_exchange_n(&c->lock, 1, __ATOMIC_ACQUIRE))
		return true;
	for (unsigned i = 0; i < 100000; i++) {
		if (!__atomic_load_n(&c->lock, __ATOMIC_RELAXED) && !__atomic_exchange_n(&c->lock, 1, __ATOMIC_ACQUIRE))
			return true;
		if (i % 64 == 63 && i > 500)
			RS_SYS0(SYS_sched_yield);
		else
			__builtin_ia32_pause();
	}
	return false;
}

static inline void unlock_cell(struct cell *c) { __atomic_store_n(&c->lock, 0, __ATOMIC_RELEASE); }

static void free_nodes(struct race_pool *p, uint32_t i)
{
	while (i) {
		uint32_t next = ((struct node *)race_at(p, i))->next;
		rs_race_put(p, i);
		i = next;
	}
}

static void clear_cell(struct race_pool *p, struct cell *c)
{
	free_nodes(p, c->more);
	c->e[0] = c->e[1] = 0;
	c->site[0] = c->site[1] = c->more = 0;
	c->info[0] = c->info[1] = 0;
}

static inline struct race_pool *pool_of(uint64_t cell) { return &nodes[cell / CELLS % NODE_POOLS]; }

/* Takes the memory of what was not accessed for longest: an eighth of all, as far as ages tell. What it told of who came before whom is lost, so all are told that they do. */
static void evict(void)
{
	uint64_t low = ~0ull, high = 0;
	uint32_t n = pages.next, want = page_count / 8 + 1, gone = 0;
	for (uint32_t i = 1; i < n; i++) {
		struct page *g = race_at(&pages, i);
		if (g->number != ~0ull) {
			low = g->touched < low ? g->touched : low;
			high = g->touched > high ? g->touched : high;
		}
	}
	for (uint64_t limit = low + (high - low) / 4; gone < want; limit = high) {
		for (uint32_t i = 1; i < n && gone < want; i++) {
			struct page *g = race_at(&pages, i);
			uint64_t number = g->number;
			if (number == ~0ull || g->touched > limit)
				continue;
			struct page **at = entry(number);
			__atomic_store_n(&g->number, ~0ull, __ATOMIC_SEQ_CST);
			if (at)
				__atomic_store_n(at, NULL, __ATOMIC_RELEASE);
			for (unsigned c = 0; c < CELLS; c++) {
				bool locked = lock_cell(&g->cell[c]);
				clear_cell(&nodes[number % NODE_POOLS], &g->cell[c]);
				g->cell[c].places = 0;
				if (locked)
					unlock_cell(&g->cell[c]);
			}
			for (unsigned k = 0; k < 64; k++)
				g->freed[k] = 0;
			g->any_freed = 0;
			g->next = spare_pages;
			spare_pages = i;
			page_count--;
			gone++;
		}
		if (limit == high)
			break;
	}
	rs_race_counted.evicted_pages += gone;
	rs_race_amnesty();
}

static __attribute__((noinline)) struct page *new_page(uint64_t number)
{
	struct page *g = NULL, **at;
	uint32_t i = 0;
	if (!rs_race_lock(&pages_lock))
		return NULL;
	if ((at = entry(number)) && !(g = *at)) {
		if (page_count >= rs_race_configured.max_pages)
			evict();
		if (spare_pages) {
			i = spare_pages;
			spare_pages = ((struct page *)race_at(&pages, i))->next;
		} else if ((i = rs_race_get(&pages)) != 0)
			((struct page *)race_at(&pages, i))->number = ~0ull;
		if (i) {
			g = race_at(&pages, i);
			g->touched = ++made_pages;
			if (rs_race_page_has_places(number))
				for (unsigned c = 0; c < CELLS; c++)
					g->cell[c].places = rs_race_place_bytes(number * CELLS + c, false);
			__atomic_store_n(&g->number, number, __ATOMIC_RELEASE);
			__atomic_store_n(at, g, __ATOMIC_RELEASE);
			rs_race_counted.pages = ++page_count;
		}
	}
	rs_race_unlock(&pages_lock);
	return g;
}

/* The page, and its cell locked; NULL: it cannot be had. */
static struct page *locked_cell(uint64_t cell, bool make, struct cell **out)
{
	for (unsigned tries = 0; tries < 100; tries++) {
		struct page *g = page_at(cell / CELLS);
		if (!g && (!make || !(g = new_page(cell / CELLS))))
			break;
		struct cell *c = &g->cell[cell % CELLS];
		if (!lock_cell(c))
			break;
		if (__atomic_load_n(&g->number, __ATOMIC_ACQUIRE) == cell / CELLS) {
			*out = c;
			return g;
		}
		unlock_cell(c);
	}
	return NULL;
}

bool rs_race_shadow_begin(void)
{
	for (unsigned i = 0; i < NODE_POOLS; i++) {
		nodes[i].size = sizeof(struct node);
		nodes[i].shift = 12;
	}
	return true;
}

/* --- points ------------------------------------------------------------------------------------------------------------------- */

static inline uint8_t bytes(const struct race_point *p) { return (uint8_t)(p->e >> MASK_BITS); }

static unsigned load_points(struct race_thread *t, uint64_t number, const struct cell *c)
{
	unsigned n = 0;
	for (unsigned k = 0; k < 2; k++)
		if (c->e[k])
			t->points[n++] = (struct race_point){c->e[k], c->site[k], c->info[k]};
	struct race_pool *p = pool_of(number);
	for (uint32_t i = c->more; i;) {
		const struct node *o = race_at(p, i);
		for (unsigned k = 0; k < 3 && n < POINTS; k++)
			if (o->e[k])
				t->points[n++] = (struct race_point){o->e[k], o->site[k], o->info[k]};
		i = o->next;
	}
	return n;
}

/* Points without bytes are left out. */
static void store_points(struct race_thread *t, uint64_t number, struct cell *c, unsigned n)
{
	struct race_pool *p = pool_of(number);
	unsigned k = 0, i = 0;
	for (; k < n && i < 2; k++)
		if (bytes(&t->points[k])) {
			c->e[i] = t->points[k].e;
			c->site[i] = t->points[k].site;
			c->info[i++] = t->points[k].info;
		}
	for (; i < 2; i++)
		c->e[i] = 0;
	uint32_t *link = &c->more;
	while (k < n) {
		if (!bytes(&t->points[k])) {
			k++;
			continue;
		}
		if (!*link && !(*link = rs_race_get(p))) {
			rs_race_amnesty(); /* some are forgotten */
			return;
		}
		struct node *o = race_at(p, *link);
		for (i = 0; i < 3; i++) {
			while (k < n && !bytes(&t->points[k]))
				k++;
			o->e[i] = k < n ? t->points[k].e : 0;
			if (k < n) {
				o->site[i] = t->points[k].site;
				o->info[i] = t->points[k++].info;
			}
		}
		link = &o->next;
	}
	uint32_t rest = *link;
	*link = 0;
	free_nodes(p, rest);
}

unsigned rs_race_mark(struct race_thread *t, uint64_t cell, uint8_t mask, uint32_t *slots, unsigned n)
{
	struct cell *c;
	unsigned found = 0;
	if (!locked_cell(cell, true, &c)) {
		rs_race_amnesty();
		return 0;
	}
	c->places |= mask;
	unsigned points = slots ? load_points(t, cell, c) : 0;
	for (unsigned i = 0; i < points && slots; i++) {
		struct race_point *p = &t->points[i];
		unsigned kind = race_kind(p->info);
		if ((bytes(p) & mask) && (kind == POINT_LAST_MOV || (kind == POINT_WRITE && p->info & INFO_MOV))) {
			if (race_knows(t, p->e))
				continue; /* and so its own clock has it */
			if (found == n) {
				rs_race_amnesty();
				break;
			}
			slots[found++] = race_slot(p->e);
		}
	}
	unlock_cell(c);
	return found;
}

void rs_race_unmark(uint64_t cell)
{
	struct cell *c;
	if (!locked_cell(cell, false, &c))
		return;
	c->places = rs_race_place_bytes(cell, false);
	unlock_cell(c);
}

/* --- ranges ------------------------------------------------------------------------------------------------------------------- */

/* Calls do for the cells of [lo,hi) that are there. */
static void each_cell(uint64_t lo, uint64_t hi, void (*fn)(struct page *g, uint64_t cell, uint8_t mask, void *arg), void *arg)
{
	if (lo >= hi)
		return;
	uint64_t first = lo >> 12, last = (hi - 1) >> 12;
	bool few = last - first < pages.next;
	for (uint64_t k = few ? first : 1; k <= last && (few || k < pages.next); k++) {
		struct page *g = few ? page_at(k) : race_at(&pages, (uint32_t)k);
		uint64_t number = g ? g->number : ~0ull;
		if (number < first || number > last)
			continue;
		uint64_t from = number == first ? lo >> 3 : number * CELLS, to = number == last ? (hi - 1) >> 3 : number * CELLS + CELLS - 1;
		for (uint64_t cell = from; cell <= to; cell++)
			fn(g, cell, race_mask(cell, lo, hi), arg);
	}
}

static inline void without(uint64_t *e, uint8_t mask)
{
	uint64_t left = *e & ~((uint64_t)mask << MASK_BITS);
	__atomic_store_n(e, left >> MASK_BITS ? left : 0, __ATOMIC_RELAXED);
}

static void forget_bytes(struct page *g, uint64_t cell, uint8_t mask, void *arg)
{
	struct cell *c = &g->cell[cell % CELLS];
	(void)arg;
	if (!race_load(&c->e[0]) && !race_load(&c->e[1]) && !__atomic_load_n(&c->more, __ATOMIC_RELAXED) && !__atomic_load_n(&c->lock, __ATOMIC_ACQUIRE))
		return;
	if (!lock_cell(c))
		return; /* what is left is of accesses that raced with the end of this memory */
	if (g->number == cell / CELLS) {
		if (mask == 0xff)
			clear_cell(pool_of(cell), c);
		without(&c->e[0], mask);
		without(&c->e[1], mask);
		for (uint32_t i = c->more; i;) {
			struct node *o = race_at(pool_of(cell), i);
			for (unsigned k = 0; k < 3; k++)
				without(&o->e[k], mask);
			i = o->next;
		}
	}
	unlock_cell(c);
}

void rs_race_forget_history(uint64_t lo, uint64_t hi) { each_cell(lo, hi, forget_bytes, NULL); }

void rs_race_set_freed(uint64_t lo, uint64_t hi, bool freed)
{
	for (uint64_t a = lo; a < hi;) {
		uint64_t n = 64 - a % 64 < hi - a ? 64 - a % 64 : hi - a, bits = ~0ull >> (64 - n) << a % 64;
		struct page *g = page_at(a >> 12);
		if (!g && freed)
			g = new_page(a >> 12);
		if (!g) {
			a = (a | 4095) + 1;
			if (a == 0)
				return;
			continue;
		}
		uint64_t *w = &g->freed[a % 4096 / 64];
		if (freed) {
			__atomic_fetch_or(w, bits, __ATOMIC_SEQ_CST);
			__atomic_store_n(&g->any_freed, 1, __ATOMIC_RELEASE);
		} else if (race_load(w) & bits)
			__atomic_fetch_and(w, ~bits, __ATOMIC_SEQ_CST);
		a += n;
	}
}

void rs_race_shadow_after_fork(void)
{
	pages_lock = pages.lock = sites.lock = 0;
	for (unsigned i = 0; i < NODE_POOLS; i++)
		nodes[i].lock = 0;
	for (unsigned i = 0; i < SITE_BUCKETS; i++)
		site_of[i].lock = 0;
	for (uint32_t i = 1; i < pages.next; i++) {
		struct page *g = race_at(&pages, i);
		for (unsigned c = 0; c < CELLS; c++) {
			g->cell[c].lock = 0;
			g->cell[c].more = 0; /* nodes that another thread was changing are not trusted: they are lost */
			clear_cell(&nodes[0], &g->cell[c]);
		}
	}
}

/* --- the check ------------------------------------------------------------------------------------------------------------------ */

enum { FOUND = 16, MOVS = 32 };
struct access {
	struct race_thread *t;
	uint64_t e, lo, hi, pc, size;
	uint32_t stack, generation, site[2];
	unsigned kind;
	bool mov, same, more_to_see; /* of a mov, what another kind of access does not look for */
	unsigned found_count, movs_count;
	struct { struct rs_race_found f; uint64_t e; unsigned rests; } found[FOUND];
	uint32_t movs[MOVS]; /* slots of movs that wrote these bytes and that nothing orders before this one */
};

static void found(struct access *x, uint64_t cell, const struct race_point *p)
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
		x->site[atomic] = intern(x->t, x->pc, x->size, x->stack, x->kind);
	return x->site[atomic];
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
		case POINT_WRITE: my_writes |= mine && (!write || !x->mov || p[i].info & INFO_MOV) ? bytes(&p[i]) : 0; break; /* a mov may be an atomic's, where another write is not */
		case POINT_READ: *(mine ? &my_reads : &reads) |= bytes(&p[i]); break;
		case POINT_ATOMIC_READ: case POINT_ATOMIC_WRITE: atomics |= bytes(&p[i]); break;
		case POINT_LAST_MOV: old_movs |= race_knows(t, p[i].e) ? 0 : bytes(&p[i]); break;
		}
	}
	if (old_movs && x->mov) { /* which may order it */
		my_writes &= (uint8_t)~old_movs;
		my_reads &= (uint8_t)~old_movs;
	}
	/* Nothing but this thread, in this time, since it wrote, or the only one that read: no more can be learned. */
	mask &= (uint8_t) ~(my_writes & ~(reads | atomics));
	if (!write)
		mask &= (uint8_t) ~(my_reads & ~reads);
	if (!mask)
		return n;
	uint8_t last_movs = 0;
	for (unsigned i = 0; i < n; i++) {
		unsigned kind = race_kind(p[i].info);
		if (!(bytes(&p[i]) & mask))
			continue;
		bool mov = kind == POINT_LAST_MOV || (kind == POINT_WRITE && p[i].info & INFO_MOV);
		if (mov && race_time(p[i].e) <= rs_race_common && race_slot(p[i].e) == 0)
			mov = false;
		else if (mov && kind == POINT_WRITE)
			last_movs |= bytes(&p[i]);
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
			found(x, cell, &p[i]);
	}
	/* The update is FastTrack's: a write stands for all before it, a read for the reads that it follows. */
	unsigned had = n;
	last_movs &= mask;
	for (unsigned i = 0; i < had; i++) {
		unsigned kind = race_kind(p[i].info);
		uint8_t m = bytes(&p[i]) & mask, gone = 0;
		if (!m)
			continue;
		x->more_to_see |= kind == POINT_LAST_MOV || (kind == POINT_WRITE && p[i].info & INFO_MOV && !race_knows(t, p[i].e));
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
	p[n].e = x->e | (uint64_t)mask << MASK_BITS;
	p[n].site = site_of_access(x, atomic);
	p[n].info = (uint8_t)((x->lo < cell * 8 ? INFO_BEFORE : x->lo & 7) | kind << INFO_KIND | (x->mov ? INFO_MOV : 0));
	return n + 1;
}

/* What the two inline points tell without a lock: nothing new. */
static inline bool known_in(const struct access *x, const struct page *g, const struct cell *c, uint64_t cell, uint8_t mask)
{
	uint64_t a = race_load(&c->e[0]), b = race_load(&c->e[1]);
	uint8_t ai = __atomic_load_n(&c->info[0], __ATOMIC_RELAXED), bi = __atomic_load_n(&c->info[1], __ATOMIC_RELAXED);
	if (__atomic_load_n(&c->more, __ATOMIC_RELAXED) || __atomic_load_n(&c->places, __ATOMIC_RELAXED) || __atomic_load_n(&c->lock, __ATOMIC_ACQUIRE) || x->kind & RS_RACE_ATOMIC)
		return false;
	if (__atomic_load_n(&g->number, __ATOMIC_ACQUIRE) != cell / CELLS)
		return false;
	bool write = x->kind & RS_RACE_WRITE;
	uint8_t am = (a & EPOCH) == x->e ? (uint8_t)(a >> MASK_BITS) : 0, bm = (b & EPOCH) == x->e ? (uint8_t)(b >> MASK_BITS) : 0;
	uint8_t others = (uint8_t)((am ? 0 : a >> MASK_BITS) | (bm ? 0 : b >> MASK_BITS));
	bool any = !write || !x->mov;
	uint8_t writes = (uint8_t)((race_kind(ai) == POINT_WRITE && (any || ai & INFO_MOV) ? am : 0) | (race_kind(bi) == POINT_WRITE && (any || bi & INFO_MOV) ? bm : 0));
	uint8_t reads = (uint8_t)((race_kind(ai) == POINT_READ ? am : 0) | (race_kind(bi) == POINT_READ ? bm : 0));
	if (write)
		return (mask & ~writes) == 0 && !(mask & others);
	return (mask & ~(writes | reads)) == 0 && !(mask & others);
}

/* Notes for rs_race_known what was told. A write that is no mov only as if it were a read: a mov that writes the same may tell more. */
static void see(struct race_thread *t, uint64_t cell, uint8_t mask, uint64_t e, bool write)
{
	uint64_t at = cell & t->quick.filter, what = t->quick.seen[at].what;
	if (what >> 16 != cell || t->quick.seen[at].epoch != e)
		what = cell << 16;
	t->quick.seen[at].epoch = 0;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	t->quick.seen[at].what = what | (uint64_t)mask << (write ? 8 : 0);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	t->quick.seen[at].epoch = e;
}

static bool freed_here(const struct page *g, uint64_t cell, uint8_t mask)
{
	return g->any_freed && (uint8_t)(race_load(&g->freed[cell % CELLS / 8]) >> cell % 8 * 8) & mask;
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
	rs_race_found(&f, x->lo, x->hi, 0, x->generation);
}

static void cell_access(struct access *x, uint64_t cell, uint8_t mask)
{
	struct race_thread *t = x->t;
	struct page *g = page_at(cell / CELLS);
	struct cell *c;
	if (g && known_in(x, g, &g->cell[cell % CELLS], cell, mask)) {
		if (t->quick.filter)
			see(t, cell, mask, x->e, x->mov && x->kind & RS_RACE_WRITE);
		return;
	}
	if (!(g = locked_cell(cell, true, &c))) {
		rs_race_amnesty();
		return;
	}
	g->touched = made_pages;
	bool freed = freed_here(g, cell, mask), places = c->places;
	if (!freed) {
		uint8_t atomic = x->kind & RS_RACE_ATOMIC ? mask : places && x->mov ? rs_race_place_bytes(cell, true) & mask : 0;
		unsigned n = load_points(t, cell, c);
		if (mask & ~atomic)
			n = check(x, cell, mask & (uint8_t)~atomic, false, n);
		if (atomic)
			n = check(x, cell, atomic, true, n);
		store_points(t, cell, c, n);
	}
	unlock_cell(c);
	if (freed)
		use_after_free(x, cell, mask);
	else if (!places && t->quick.filter && (x->mov || !x->more_to_see))
		see(t, cell, mask, x->e, x->mov && x->kind & RS_RACE_WRITE);
}

/* Says the races that were found, once it is known what movs order. */
static void tell(struct access *x)
{
	for (unsigned i = 0; i < x->found_count; i++) {
		unsigned rests = x->found[i].rests;
		if (!(rests & REST_DIRECT) && race_may_know(x->t, x->found[i].e))
			rests |= REST_ORDERED;
		rs_race_found(&x->found[i].f, x->lo, x->hi, rests, x->generation);
	}
	x->found_count = 0;
}

static inline bool fits(uint64_t lo, uint64_t size) { return size != 0 && size <= 64 && lo + size > lo; }

/* Bytes that a locked instruction accesses, or a plain store before a fence. */
static void atomic_now(struct race_thread *t, uint64_t lo, uint64_t size)
{
	rs_race_learn(t, lo, lo + size, PLACE_ATOMIC);
}

static void done(struct race_thread *t, uint64_t lo, uint64_t size)
{
	uint32_t at[PLACES];
	for (unsigned i = 0, n = rs_race_places(lo, lo + size, PLACE_ATOMIC, at); i < n; i++)
		rs_race_place_take(at[i], t);
}

static void access(struct race_thread *t, uint64_t lo, uint64_t size, unsigned kind, uint64_t pc, uint32_t stack)
{
	struct access x;
	uint32_t at[PLACES];
	unsigned places = 0;
	if (kind & RS_RACE_FENCED && fits(lo, size))
		atomic_now(t, lo, size);
	kind &= ~(unsigned)RS_RACE_FENCED;
	bool mov = (kind == RS_RACE_READ || kind == RS_RACE_WRITE) && size && size <= 8 && (size & (size - 1)) == 0 && (lo & (size - 1)) == 0;
	bool locked = kind & RS_RACE_ATOMIC && fits(lo, size);
	if (kind & RS_RACE_FENCE) {
		if (t->store_size)
			atomic_now(t, t->store, t->store_size);
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
	x.same = x.more_to_see = false;
	x.found_count = x.movs_count = 0;
	x.generation = __atomic_load_n(&rs_race_generation, __ATOMIC_ACQUIRE);
	if (locked)
		atomic_now(t, lo, size);
	if (locked || mov) {
		struct page *g = page_at(lo >> 3 >> 9);
		if (locked || (g && __atomic_load_n(&g->cell[lo >> 3 & (CELLS - 1)].places, __ATOMIC_ACQUIRE)) || (!g && rs_race_page_has_places(lo >> 12)))
			places = rs_race_places(lo, lo + size, PLACE_ATOMIC | PLACE_MOV, at);
	}
	if (kind & RS_RACE_READ)
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
		places = rs_race_places(lo, x.hi, PLACE_ATOMIC | PLACE_MOV, at);
		for (unsigned i = 0; i < places; i++)
			for (unsigned k = 0; k < x.movs_count && !(at[i] & PLACE_CERTAIN); k++)
				rs_race_place_give_slot(at[i], x.movs[k]);
		for (unsigned k = 0; k < x.movs_count; k++)
			rs_race_bump(x.movs[k]);
	}
	if (x.mov && kind & RS_RACE_READ)
		for (unsigned i = 0; i < places; i++)
			if (!(at[i] & PLACE_CERTAIN))
				rs_race_place_take(at[i], t);
	if (x.found_count)
		tell(&x);
	if (kind & RS_RACE_WRITE && places) {
		for (unsigned i = 0; i < places; i++)
			rs_race_place_give(at[i], t);
		__atomic_fetch_add(&t->quick.epoch, 1, __ATOMIC_SEQ_CST);
	}
}

void rs_race_access(struct rs_race_thread *quick, uintptr_t addr, uint64_t size, unsigned kind, uintptr_t pc, uint32_t stack)
{
	struct race_thread *t = (struct race_thread *)quick;
	if (t->busy) { /* a handler that came in the middle of this */
		rs_race_amnesty();
		return;
	}
	t->busy = 1;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	if (kind & RS_RACE_DONE) {
		if (fits(addr, size))
			done(t, addr, size);
	} else
		access(t, addr, size, kind, pc, stack);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	t->busy = 0;
}

/* --- free ----------------------------------------------------------------------------------------------------------------------- */

static void check_freed(struct page *g, uint64_t cell, uint8_t mask, void *arg)
{
	struct access *x = arg;
	struct cell *c = &g->cell[cell % CELLS];
	if (!race_load(&c->e[0]) && !race_load(&c->e[1]) && !__atomic_load_n(&c->more, __ATOMIC_RELAXED))
		return;
	if (!lock_cell(c))
		return;
	unsigned n = g->number == cell / CELLS ? load_points(x->t, cell, c) : 0;
	for (unsigned i = 0; i < n; i++)
		if (bytes(&x->t->points[i]) & mask && race_kind(x->t->points[i].info) != POINT_LAST_MOV && !race_knows(x->t, x->t->points[i].e))
			found(x, cell, &x->t->points[i]);
	unlock_cell(c);
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
	x.mov = x.same = x.more_to_see = false;
	x.found_count = 0;
	x.generation = __atomic_load_n(&rs_race_generation, __ATOMIC_ACQUIRE);
	each_cell(x.lo, x.hi, check_freed, &x);
}
