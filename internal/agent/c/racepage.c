/* racepage.c: the memory of the shadow by pages, what is dropped from it, and sites. */
#include "race_core.h"

struct race_pool rs_race_nodes[NODE_POOLS];
struct race_page ***rs_race_pages[LEVEL];
uint64_t rs_race_made_pages;
static struct race_pool pages = {.size = sizeof(struct race_page), .shift = 4};
static uint32_t pages_lock, page_count, spare_pages;

/* --- sites ----------------------------------------------------------------------------------------------------------------- */

/* A bucket has a table of its own, which grows: who looks a site up meets two lines of memory that no cache has, where lists of sites were one for each. A site is known there by 58 bits of its hash, 16 of which are the bucket's number; of four million sites two
 * would be taken for one in one process of thirty thousand. */
enum { SITE_BUCKETS = 1 << 16, SITE_ID_BITS = 22, MAX_SITES = 1 << SITE_ID_BITS, LEAST = 1, SITE_TABLES = 8 };
#define TABLE(log) {.size = 8u << (log), .shift = 13 - (log)}
static struct race_pool sites = {.size = sizeof(struct race_site), .shift = 14};
static struct race_pool tables[SITE_TABLES] = {TABLE(LEAST), TABLE(LEAST + 1), TABLE(LEAST + 2), TABLE(LEAST + 3), TABLE(LEAST + 4), TABLE(LEAST + 5), TABLE(LEAST + 6), TABLE(LEAST + 7)};
static struct bucket { uint32_t lock, table, count; } bucket[SITE_BUCKETS]; /* table: a number, and above it which of the pools it is of; one word, as another thread may fork; 0: there is none */
enum { TABLE_BITS = 24 };

const struct race_site *rs_race_site(uint32_t id) { return id ? race_at(&sites, id) : NULL; }

static inline uint64_t site_hash(const struct race_site *s)
{
	uint64_t h = s->pc * 0x9e3779b97f4a7c15ull + ((uint64_t)s->thread << 32 | s->stack) * 0xd1342543de82ef95ull + (s->size ^ (uint64_t)s->kind << 56) * 0xc2b2ae3d27d4eb4full;
	h ^= h >> 32;
	h *= 0xff51afd7ed558ccdull;
	return h ^ h >> 29;
}

static inline uint64_t *entries(uint32_t table) { return race_at(&tables[table >> TABLE_BITS], table & ((1u << TABLE_BITS) - 1)); }

/* Where an entry is, or is to be: 42 bits of the hash, and the number, which 0 is none's. There is a free place in each table. */
static inline uint64_t *place_in(uint32_t table, uint64_t key)
{
	uint64_t *e = entries(table);
	uint32_t last = (1u << (LEAST + (table >> TABLE_BITS))) - 1, i = (uint32_t)(key >> SITE_ID_BITS) & last;
	while (e[i] && (e[i] ^ key) >> SITE_ID_BITS)
		i = (i + 1) & last;
	return &e[i];
}

/* Whether there is room for one more, and a free place beside. What is counted may be one too few where another thread forked. */
static __attribute__((noinline)) bool has_room(struct bucket *b)
{
	uint32_t was = b->table, size = was >> TABLE_BITS, all = 1u << (LEAST + size);
	if (was && b->count < all * 3 / 4)
		return true;
	uint32_t next = was ? size + 1 : 0, i = next < SITE_TABLES ? rs_race_get(&tables[next]) : 0, now = i | next << TABLE_BITS;
	if (!i)
		return was && b->count < all * 7 / 8;
	for (uint32_t k = 0; was && k < all; k++)
		if (entries(was)[k])
			*place_in(now, entries(was)[k]) = entries(was)[k];
	b->table = now;
	if (was)
		rs_race_put(&tables[size], was & ((1u << TABLE_BITS) - 1));
	return true;
}

uint32_t rs_race_intern(struct race_thread *t, uint64_t pc, uint64_t size, uint32_t stack, unsigned kind)
{
	struct race_site s = {pc, size, stack, t->quick.number, kind};
	uint64_t h = site_hash(&s), key = h << 16 & -1ull << SITE_ID_BITS;
	struct race_met *met = &t->sites[h % SITE_CACHE];
	if (met->hash == h && met->id)
		return met->id;
	struct bucket *b = &bucket[h >> 48];
	if (!rs_race_lock(&b->lock))
		return 0;
	uint32_t i = b->table ? (uint32_t)*place_in(b->table, key) & (MAX_SITES - 1) : 0;
	if (!i && sites.next < MAX_SITES && has_room(b) && (i = rs_race_get(&sites)) != 0) {
		*(struct race_site *)race_at(&sites, i) = s;
		*place_in(b->table, key) = key | i;
		b->count++;
	}
	rs_race_unlock(&b->lock);
	met->id = 0; /* a handler may come in between */
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	met->hash = h;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	met->id = i;
	return i;
}

/* --- pages ------------------------------------------------------------------------------------------------------------------- */

static struct race_page **entry(uint64_t number)
{
	struct race_page ****a = &rs_race_pages[number >> 24 & (LEVEL - 1)];
	if (!*a)
		__atomic_store_n(a, rs_os_map(LEVEL * sizeof **a), __ATOMIC_RELEASE);
	struct race_page ***b = *a ? &(*a)[number >> 12 & (LEVEL - 1)] : NULL;
	if (b && !*b)
		__atomic_store_n(b, rs_os_map(LEVEL * sizeof **b), __ATOMIC_RELEASE);
	return b && *b ? &(*b)[number & (LEVEL - 1)] : NULL;
}

bool rs_race_lock_cell(struct race_cell *c)
{
	if (!__atomic_exchange_n(&c->lock, 1, __ATOMIC_ACQUIRE))
		return true;
	for (unsigned round = 0; round < 1500; round++) {
		for (unsigned i = 0; i < 100; i++) {
			if (!__atomic_load_n(&c->lock, __ATOMIC_RELAXED) && !__atomic_exchange_n(&c->lock, 1, __ATOMIC_ACQUIRE))
				return true;
			__builtin_ia32_pause();
		}
		rs_race_pause(round);
	}
	return false;
}

void rs_race_free_nodes(struct race_pool *p, uint32_t i)
{
	while (i) {
		uint32_t next = ((struct race_node *)race_at(p, i))->next;
		rs_race_put(p, i);
		i = next;
	}
}

static void clear_cell(struct race_pool *p, struct race_cell *c)
{
	rs_race_free_nodes(p, c->more);
	c->e[0] = c->e[1] = 0;
	c->site[0] = c->site[1] = c->more = 0;
	c->info[0] = c->info[1] = 0;
}

/* Takes the memory of what was not accessed for longest: an eighth of all, as far as ages tell. What it told of who came before whom is lost, so all are told that they do. */
static void evict(void)
{
	uint64_t low = ~0ull, high = 0;
	uint32_t n = pages.next, want = page_count / 8 + 1, gone = 0;
	for (uint32_t i = 1; i < n; i++) {
		struct race_page *g = race_at(&pages, i);
		if (g->number != ~0ull) {
			low = g->touched < low ? g->touched : low;
			high = g->touched > high ? g->touched : high;
		}
	}
	for (uint64_t limit = low + (high - low) / 4; gone < want; limit = high) {
		for (uint32_t i = 1; i < n && gone < want; i++) {
			struct race_page *g = race_at(&pages, i);
			uint64_t number = g->number;
			if (number == ~0ull || g->touched > limit)
				continue;
			struct race_page **at = entry(number);
			__atomic_store_n(&g->number, ~0ull, __ATOMIC_SEQ_CST);
			if (at)
				__atomic_store_n(at, NULL, __ATOMIC_RELEASE);
			__atomic_store_n(&g->used, 0, __ATOMIC_SEQ_CST);
			for (unsigned c = 0; c < CELLS; c++) {
				bool locked = rs_race_lock_cell(&g->cell[c]);
				clear_cell(&rs_race_nodes[number % NODE_POOLS], &g->cell[c]);
				g->cell[c].places = 0;
				if (locked)
					race_unlock_cell(&g->cell[c]);
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

static __attribute__((noinline)) struct race_page *new_page(uint64_t number)
{
	struct race_page *g = NULL, **at;
	uint32_t i = 0;
	if (!rs_race_lock(&pages_lock))
		return NULL;
	if ((at = entry(number)) && !(g = *at)) {
		if (page_count >= rs_race_configured.max_pages)
			evict();
		if (spare_pages) {
			i = spare_pages;
			spare_pages = ((struct race_page *)race_at(&pages, i))->next;
		} else if ((i = rs_race_get(&pages)) != 0)
			((struct race_page *)race_at(&pages, i))->number = ~0ull;
		if (i) {
			g = race_at(&pages, i);
			g->touched = ++rs_race_made_pages;
			g->user = g->alone = 0;
			g->stack = rs_race_stack_at(number << 12);
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
struct race_page *rs_race_locked_cell(uint64_t cell, bool make, struct race_cell **out)
{
	for (unsigned tries = 0; tries < 100; tries++) {
		struct race_page *g = race_page_at(cell / CELLS);
		if (!g && (!make || !(g = new_page(cell / CELLS))))
			break;
		struct race_cell *c = &g->cell[cell % CELLS];
		if (!rs_race_lock_cell(c))
			break;
		if (__atomic_load_n(&g->number, __ATOMIC_ACQUIRE) == cell / CELLS) {
			race_use(g, cell);
			*out = c;
			return g;
		}
		race_unlock_cell(c);
	}
	return NULL;
}

bool rs_race_shadow_begin(void)
{
	for (unsigned i = 0; i < NODE_POOLS; i++) {
		rs_race_nodes[i].size = sizeof(struct race_node);
		rs_race_nodes[i].shift = 12;
	}
	return true;
}

/* --- ranges ------------------------------------------------------------------------------------------------------------------- */

void rs_race_each_cell(uint64_t lo, uint64_t hi, bool ends, void (*fn)(struct race_page *g, uint64_t cell, uint8_t mask, void *arg), void *arg)
{
	if (lo >= hi)
		return;
	uint64_t first = lo >> 12, last = (hi - 1) >> 12;
	bool few = last - first < pages.next;
	for (uint64_t k = few ? first : 1; k <= last && (few || k < pages.next); k++) {
		struct race_page *g = few ? race_page_at(k) : race_at(&pages, (uint32_t)k);
		uint64_t number = g ? g->number : ~0ull;
		if (number < first || number > last)
			continue;
		uint64_t from = number == first ? lo : number << 12, to = number == last ? hi - 1 : number << 12 | 4095; /* of which to is the last */
		uint64_t in = ~0ull << (from & 4095) / 64 & ~0ull >> (63 - (to & 4095) / 64), used = __atomic_load_n(&g->used, __ATOMIC_SEQ_CST) & in;
		if (ends && used) {
			uint64_t whole = used;
			if (from % 64)
				whole &= ~(1ull << (from & 4095) / 64);
			if (to % 64 != 63)
				whole &= ~(1ull << (to & 4095) / 64);
			__atomic_fetch_and(&g->used, ~whole, __ATOMIC_SEQ_CST);
			if (__atomic_load_n(&g->number, __ATOMIC_SEQ_CST) != number) /* they were another page's */
				__atomic_fetch_or(&g->used, whole, __ATOMIC_SEQ_CST);
		}
		for (; used; used &= used - 1) {
			uint64_t group = number * CELLS + (uint64_t)__builtin_ctzll(used) * GROUP;
			for (uint64_t cell = group; cell < group + GROUP; cell++)
				if (from >> 3 <= cell && cell <= to >> 3)
					fn(g, cell, race_mask(cell, lo, hi), arg);
		}
	}
}

static inline void without(uint64_t *e, uint8_t mask)
{
	uint64_t left = *e & ~((uint64_t)mask << MASK_BITS);
	__atomic_store_n(e, left >> MASK_BITS ? left : 0, __ATOMIC_RELAXED);
}

static void forget_bytes(struct race_page *g, uint64_t cell, uint8_t mask, void *arg)
{
	struct race_cell *c = &g->cell[cell % CELLS];
	(void)arg;
	if (!race_load(&c->e[0]) && !race_load(&c->e[1]) && !__atomic_load_n(&c->more, __ATOMIC_RELAXED) && !__atomic_load_n(&c->lock, __ATOMIC_ACQUIRE))
		return;
	if (!rs_race_lock_cell(c)) {
		race_use(g, cell);
		return; /* what is left is of accesses that raced with the end of this memory */
	}
	if (g->number == cell / CELLS) {
		if (mask == 0xff)
			clear_cell(race_nodes_of(cell), c);
		without(&c->e[0], mask);
		without(&c->e[1], mask);
		for (uint32_t i = c->more; i;) {
			struct race_node *o = race_at(race_nodes_of(cell), i);
			for (unsigned k = 0; k < 3; k++)
				without(&o->e[k], mask);
			i = o->next;
		}
	}
	race_unlock_cell(c);
}

void rs_race_forget_history(uint64_t lo, uint64_t hi) { rs_race_each_cell(lo, hi, true, forget_bytes, NULL); }

/* Bytes of one page, not all. */
static void set_some_freed(struct race_page *g, uint64_t lo, uint64_t hi, bool freed)
{
	uint32_t was = __atomic_load_n(&g->any_freed, __ATOMIC_ACQUIRE);
	if (freed ? was & FREED_ALL : !was)
		return;
	if (was & FREED_ALL) {
		for (unsigned k = 0; k < 64; k++)
			__atomic_store_n(&g->freed[k], ~0ull, __ATOMIC_RELAXED);
		__atomic_store_n(&g->any_freed, FREED_SOME, __ATOMIC_SEQ_CST);
	}
	for (uint64_t a = lo; a < hi;) {
		uint64_t n = 64 - a % 64 < hi - a ? 64 - a % 64 : hi - a, bits = ~0ull >> (64 - n) << a % 64;
		uint64_t *w = &g->freed[a % 4096 / 64];
		if (freed)
			__atomic_fetch_or(w, bits, __ATOMIC_SEQ_CST);
		else if (race_load(w) & bits)
			__atomic_fetch_and(w, ~bits, __ATOMIC_SEQ_CST);
		a += n;
	}
	if (freed)
		__atomic_fetch_or(&g->any_freed, FREED_SOME, __ATOMIC_SEQ_CST);
}

void rs_race_set_freed(uint64_t lo, uint64_t hi, bool freed)
{
	for (uint64_t a = lo, next; a < hi; a = next) {
		next = (a | 4095) + 1;
		struct race_page *g = race_page_at(a >> 12);
		if (!g && freed)
			g = new_page(a >> 12);
		if (g && (a & 4095 || next - 1 >= hi))
			set_some_freed(g, a, next - 1 < hi ? next : hi, freed);
		else if (g && freed)
			__atomic_fetch_or(&g->any_freed, FREED_ALL, __ATOMIC_SEQ_CST);
		else if (g && g->any_freed) {
			for (unsigned k = 0; k < 64 && g->any_freed & FREED_SOME; k++)
				__atomic_store_n(&g->freed[k], 0, __ATOMIC_RELAXED);
			__atomic_store_n(&g->any_freed, 0, __ATOMIC_SEQ_CST);
		}
		if (next == 0)
			return;
	}
}

void rs_race_shadow_after_fork(void)
{
	pages_lock = pages.lock = sites.lock = 0;
	for (unsigned i = 0; i < SITE_TABLES; i++)
		tables[i].lock = 0;
	for (unsigned i = 0; i < NODE_POOLS; i++)
		rs_race_nodes[i].lock = 0;
	for (unsigned i = 0; i < SITE_BUCKETS; i++)
		bucket[i].lock = 0;
	for (uint32_t i = 1; i < pages.next; i++) {
		struct race_page *g = race_at(&pages, i);
		g->used = 0;
		for (unsigned c = 0; c < CELLS; c++) {
			g->cell[c].lock = 0;
			g->cell[c].more = 0; /* nodes that another thread was changing are not trusted: they are lost */
			clear_cell(&rs_race_nodes[0], &g->cell[c]);
		}
	}
}
