/* racepage.c: the memory of the shadow by pages, what is dropped from it, and sites. */
#include "race_core.h"

struct race_pool rs_race_nodes[NODE_POOLS];
struct race_page ***rs_race_pages[LEVEL];
uint64_t rs_race_made_pages;
static struct race_pool pages = {.size = sizeof(struct race_page), .shift = 4};
static uint32_t pages_lock, page_count, spare_pages;

/* --- sites ----------------------------------------------------------------------------------------------------------------- */

/* A bucket's list that has become long is spread over a fan of lists, which the next bits of the hash choose. */
enum { SITE_BUCKETS = 1 << 16, MAX_SITES = 1 << 22, LONG = 16, FAN = 64 };
#define FANNED (1u << 31) /* head is a fan's number */
static struct race_pool sites = {.size = sizeof(struct race_site), .shift = 14};
static struct race_pool fans = {.size = FAN * sizeof(uint32_t), .shift = 8};
static struct { uint32_t lock, head; } site_of[SITE_BUCKETS];

const struct race_site *rs_race_site(uint32_t id) { return id ? race_at(&sites, id) : NULL; }

static inline bool same_site(const struct race_site *a, const struct race_site *b)
{
	return a->pc == b->pc && a->stack == b->stack && a->size == b->size && a->kind == b->kind && a->thread == b->thread;
}

/* Without the thread, whose own cache this chooses the place of. */
static inline uint64_t site_hash(const struct race_site *s)
{
	return (s->pc ^ (uint64_t)s->stack << 20 ^ s->size << 44 ^ (uint64_t)s->kind << 52) * 0x9e3779b97f4a7c15ull;
}

/* The upper 16 bits are the bucket's number, those below them are a list's of its fan. */
static inline uint64_t bucket_hash(const struct race_site *s) { return site_hash(s) ^ s->thread * 0x9e3779b97f4a7c15ull; }

static inline uint32_t *list_of(uint32_t *head, uint64_t h) { return *head & FANNED ? &((uint32_t *)race_at(&fans, *head & ~FANNED))[h >> 42 & (FAN - 1)] : head; }

/* The bucket is locked. */
static __attribute__((noinline)) void fan_out(uint32_t *head)
{
	uint32_t f = rs_race_get(&fans), next, to = f | FANNED;
	for (uint32_t i = f ? *head : 0; i; i = next) {
		struct race_site *s = race_at(&sites, i);
		uint32_t *list = list_of(&to, bucket_hash(s));
		next = s->next;
		s->next = *list;
		*list = i;
	}
	if (f)
		*head = to;
}

uint32_t rs_race_intern(struct race_thread *t, uint64_t pc, uint64_t size, uint32_t stack, unsigned kind)
{
	struct race_site s = {pc, size, stack, t->quick.number, kind, 0};
	unsigned at = (unsigned)(site_hash(&s) >> 40) % SITE_CACHE, length = 0;
	if (t->sites[at].id && same_site(&t->sites[at].key, &s))
		return t->sites[at].id;
	uint64_t h = bucket_hash(&s);
	unsigned b = (unsigned)(h >> 48);
	if (!rs_race_lock(&site_of[b].lock))
		return 0;
	uint32_t *list = list_of(&site_of[b].head, h), i = *list;
	for (; i && !same_site(race_at(&sites, i), &s); length++)
		i = ((struct race_site *)race_at(&sites, i))->next;
	if (!i && sites.next < MAX_SITES && (i = rs_race_get(&sites)) != 0) {
		s.next = *list;
		*(struct race_site *)race_at(&sites, i) = s;
		*list = i;
		if (length >= LONG && list == &site_of[b].head)
			fan_out(list);
	}
	rs_race_unlock(&site_of[b].lock);
	if (i) {
		t->sites[at].key = s;
		t->sites[at].id = i;
	}
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
	pages_lock = pages.lock = sites.lock = fans.lock = 0;
	for (unsigned i = 0; i < NODE_POOLS; i++)
		rs_race_nodes[i].lock = 0;
	for (unsigned i = 0; i < SITE_BUCKETS; i++)
		site_of[i].lock = 0;
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
