/* allocslab.c: blocks up to RS_ALLOC_LARGEST: spans within a heap's chunks, and the stacks of free blocks on top of them.
 *
 * Ground rules that bite here: the OS only through os.h; the program's pages are not touched, as another thread's key may close them, and a freed block is still of use to who looks for
 * accesses to it. So free blocks are bits of the chunk's tables, by 16 bytes. All of a heap's tables are under its lock, which its own thread takes for some dozens of blocks at a
 * time; its stacks are its thread's alone.
 *
 * A block that another thread frees is either that thread's from then on (V.foreign; what goes beyond its stack goes home under the owner's lock), or it becomes a bit in the
 * chunk's second map, by one locked instruction, and the owner takes it when a stack of its is empty. */
#include "alloc_core.h"

#define LOAD(x) __atomic_load_n(&(x), __ATOMIC_RELAXED)

/* --- chunks of a heap ---------------------------------------------------------------------------------------------------- */

/* As rs_alloc_heap.level: the power of two below the longest run of ones; LEVELS: there is none. */
static unsigned level_of(uint64_t x)
{
	unsigned level = LEVELS;
	for (unsigned i = 0; x && i < LEVELS; i++) {
		level = i;
		x &= i < 6 ? x >> (1 << i) : 0;
	}
	return level;
}

/* The lowest place of k ones in a row; 64: none. */
static unsigned run_in(uint64_t x, unsigned k)
{
	for (unsigned have = 1; have < k && x;) {
		unsigned by = k - have < have ? k - have : have;
		x &= x >> by;
		have += by;
	}
	return x ? (unsigned)__builtin_ctzll(x) : UNITS;
}

static void unlist_chunk(struct rs_alloc_heap *h, struct chunk *c)
{
	if (c->prev)
		chunk_at(c->prev - 1)->next = c->next;
	else
		h->level[c->level] = c->next;
	if (c->next)
		chunk_at(c->next - 1)->prev = c->prev;
}

static void list_chunk(struct rs_alloc_heap *h, uint32_t index)
{
	struct chunk *c = chunk_at(index);
	c->level = level_of(c->unit_free);
	c->prev = 0;
	c->next = h->level[c->level];
	if (c->next)
		chunk_at(c->next - 1)->prev = index + 1;
	h->level[c->level] = index + 1;
}

static void relist_chunk(struct rs_alloc_heap *h, uint32_t index)
{
	struct chunk *c = chunk_at(index);
	if (c->level == level_of(c->unit_free))
		return;
	unlist_chunk(h, c);
	list_chunk(h, index);
}

static bool add_chunk(struct rs_alloc_heap *h, uint32_t *index)
{
	bool clean;
	uint32_t i = rs_run_take(1, 1, h->id, &clean);
	if (i == UINT32_MAX)
		return false;
	struct chunk *c = chunk_at(i);
	c->unit_free = ~0ull;
	for (int k = 0; k < 4; k++)
		c->dirty[k] = clean ? 0 : ~0ull;
	list_chunk(h, i);
	*index = i;
	return true;
}

/* Where u free units are; false: no memory. */
static bool find_units(struct rs_alloc_heap *h, unsigned u, uint32_t *chunk, unsigned *at)
{
	enum { LOOKED_AT = 8 }; /* of those of which not all need have so long a run */
	unsigned from = 31 - (unsigned)__builtin_clz(u);
	for (unsigned level = from; level < LEVELS; level++) {
		unsigned looks = 0;
		for (uint32_t i = h->level[level]; i && looks < LOOKED_AT; i = chunk_at(i - 1)->next, looks++) {
			*at = run_in(chunk_at(i - 1)->unit_free, u);
			if (*at < UNITS) {
				*chunk = i - 1;
				return true;
			}
		}
	}
	*at = 0;
	return add_chunk(h, chunk);
}

static uint64_t mask_of(unsigned at, unsigned u) { return (u == UNITS ? ~0ull : (1ull << u) - 1) << at; }

static void list_span(struct rs_alloc_bin *b, uint32_t unit, bool first)
{
	struct span *s = span_at(unit);
	s->listed = 1;
	s->next = first ? b->first : 0;
	s->prev = first ? 0 : b->last;
	if (s->next)
		span_at(s->next - 1)->prev = unit + 1;
	else
		b->last = unit + 1;
	if (s->prev)
		span_at(s->prev - 1)->next = unit + 1;
	else
		b->first = unit + 1;
}

static void unlist_span(struct rs_alloc_bin *b, struct span *s)
{
	if (s->prev)
		span_at(s->prev - 1)->next = s->next;
	else
		b->first = s->next;
	if (s->next)
		span_at(s->next - 1)->prev = s->prev;
	else
		b->last = s->prev;
	s->listed = 0;
}

static bool add_span(struct rs_alloc_heap *h, unsigned class)
{
	unsigned u = T.units[class], at;
	uint32_t index;
	if (!find_units(h, u, &index, &at))
		return false;
	struct chunk *c = chunk_at(index);
	if (h->spare == index + 1)
		h->spare = 0;
	c->unit_free &= ~mask_of(at, u);
	relist_chunk(h, index);
	uint32_t unit = index * UNITS + at;
	struct span *s = span_at(unit);
	s->free = 0;
	s->fresh = s->total = T.total[class];
	s->units = (uint8_t)u;
	for (unsigned i = 0; i < u; i++)
		__atomic_store_n(&V.unit[unit + i], (uint16_t)((class + 1) | i << 8), __ATOMIC_RELAXED);
	struct rs_alloc_bin *b = &h->bin[class];
	list_span(b, unit, true);
	/* Of a class that is busy all of it is soon used: a fault for each page costs more than what is done there. */
	unsigned page = at * (RS_UNIT / RS_PAGE);
	if (V.extra && T.size[class] <= 1024 && b->limit - b->bottom == T.cap[class] && !(LOAD(c->dirty[page / 64]) & 1ull << page % 64))
		RS_SYS3(SYS_madvise, unit_address(unit), ((size_t)T.total[class] * T.size[class] + RS_PAGE - 1) & -RS_PAGE, 23 /* MADV_POPULATE_WRITE */);
	return true;
}

static void dirty_pages(struct chunk *c, unsigned from, unsigned to)
{
	for (unsigned i = from; i < to; i++) {
		uint64_t bit = 1ull << i % 64;
		if (!(LOAD(c->dirty[i / 64]) & bit))
			__atomic_fetch_or(&c->dirty[i / 64], bit, __ATOMIC_RELAXED);
	}
}

/* All its blocks are free: its units, and perhaps its chunk, are for others. */
static void drop_span(struct rs_alloc_heap *h, unsigned class, uint32_t unit)
{
	struct span *s = span_at(unit);
	struct rs_alloc_bin *b = &h->bin[class];
	uint32_t index = unit / UNITS;
	struct chunk *c = chunk_at(index);
	unsigned at = unit % UNITS, u = s->units;
	size_t touched = (size_t)(s->total - s->fresh) * T.size[class];
	if (s->free)
		rs_os_clear(&c->free[at * UNIT_WORDS], u * UNIT_WORDS * sizeof c->free[0]);
	unsigned page = at * (RS_UNIT / RS_PAGE);
	dirty_pages(c, page, page + (unsigned)((touched + RS_PAGE - 1) / RS_PAGE));
	if (s->listed)
		unlist_span(b, s);
	for (unsigned i = 0; i < u; i++)
		__atomic_store_n(&V.unit[unit + i], 0, __ATOMIC_RELAXED);
	c->unit_free |= mask_of(at, u);
	relist_chunk(h, index);
	if (~c->unit_free)
		return;
	if (!h->spare) {
		h->spare = index + 1;
		return;
	}
	unlist_chunk(h, c);
	rs_run_give(index, 1, h->id, c->dirty[0] | c->dirty[1] | c->dirty[2] | c->dirty[3]);
}

bool rs_slab_extend(struct rs_alloc_heap *h, uintptr_t p, unsigned class)
{
	uint32_t unit = unit_index(p), index = unit / UNITS, owner = V.owner[index];
	unsigned at = unit % UNITS, had = span_at(unit)->units, u = T.units[class];
	if (owner != h->id && !V.foreign)
		return false;
	struct rs_alloc_heap *home = T.heap[owner];
	struct chunk *c = chunk_at(index);
	rs_alloc_lock(&home->lock, owner);
	uint64_t more = at + u <= UNITS ? mask_of(at, u) & ~mask_of(at, had) : 0;
	bool free = more && (c->unit_free & more) == more;
	if (free) {
		c->unit_free &= ~more;
		relist_chunk(home, index);
		span_at(unit)->units = (uint8_t)u;
		for (unsigned i = 0; i < u; i++)
			__atomic_store_n(&V.unit[unit + i], (uint16_t)((class + 1) | i << 8), __ATOMIC_RELAXED);
	}
	rs_alloc_unlock(&home->lock);
	return free;
}

/* --- from spans to stacks ----------------------------------------------------------------------------------------------------- */

/* Up to `want` blocks of a span, from the lowest. */
static unsigned take_blocks(struct span *s, uint32_t unit, unsigned class, uintptr_t *to, unsigned want)
{
	unsigned got = 0;
	uintptr_t base = unit_address(unit);
	if (s->free) {
		uint64_t *map = &chunk_at(unit / UNITS)->free[unit % UNITS * UNIT_WORDS];
		unsigned words = s->units * UNIT_WORDS;
		for (unsigned i = 0; i < words && s->free && got < want; i++) {
			uint64_t w = map[i];
			for (; w && got < want; w &= w - 1, got++, s->free--)
				to[got] = base + i * 1024 + (uintptr_t)__builtin_ctzll(w) * 16;
			map[i] = w;
		}
	}
	uintptr_t size = T.size[class];
	for (uintptr_t p = base + (s->total - s->fresh) * size; s->fresh && got < want; p += size, s->fresh--)
		to[got++] = p;
	return got;
}

uintptr_t rs_slab_refill(struct rs_alloc_heap *h, unsigned class)
{
	struct rs_alloc_bin *b = &h->bin[class];
	rs_alloc_lock(&h->lock, h->id);
	rs_slab_collect(h);
	/* A thread that allocates more is given more at a time. */
	unsigned cap = (unsigned)(b->limit - b->bottom), want = cap / 2;
	if (cap < T.cap[class]) {
		cap = cap * 2 < T.cap[class] ? cap * 2 : T.cap[class];
		b->limit = b->bottom + cap;
	}
	unsigned got = 0;
	if (want == 0)
		want = 1;
	while (got < want) {
		if (!b->first && (got || !add_span(h, class)))
			break;
		uint32_t unit = b->first - 1;
		struct span *s = span_at(unit);
		got += take_blocks(s, unit, class, b->bottom + got, want - got);
		if (!s->free && !s->fresh)
			unlist_span(b, s);
	}
	rs_alloc_unlock(&h->lock);
	if (!got)
		return 0;
	for (unsigned i = 0, k = got - 1; i < k; i++, k--) {
		uintptr_t p = b->bottom[i];
		b->bottom[i] = b->bottom[k];
		b->bottom[k] = p;
	}
	RS_BARRIER();
	b->top = b->bottom + got - 1;
	return *b->top;
}

/* --- and back ------------------------------------------------------------------------------------------------------------------- */

/* p is free in its heap's tables from now on. Under h's lock. */
static void put_block(struct rs_alloc_heap *h, uintptr_t p)
{
	uint32_t unit = unit_index(p);
	unsigned word = V.unit[unit], class = (word & 0xff) - 1;
	unit -= word >> 8;
	struct chunk *c = chunk_at(unit / UNITS);
	struct span *s = span_at(unit);
	unsigned granule = (unsigned)((p & (RS_CHUNK - 1)) >> 4);
	uint64_t bit = 1ull << granule % 64;
	if (RS_UNLIKELY(c->free[granule / 64] & bit))
		rs_alloc_abort("double free or corruption (fasttop)");
	c->free[granule / 64] |= bit;
	s->free++;
	struct rs_alloc_bin *b = &h->bin[class];
	if (s->free + s->fresh == s->total && (class >= RS_ALLOC_PAGED || !s->listed || b->first != b->last))
		drop_span(h, class, unit);
	else if (!s->listed)
		list_span(b, unit, false);
}

/* Those of [p, end) that are h's. The rest comes to the front; how many there are is returned. */
static unsigned put_blocks(struct rs_alloc_heap *h, uintptr_t *p, uintptr_t *end)
{
	uintptr_t *rest = p;
	rs_alloc_lock(&h->lock, h->id);
	for (uintptr_t *at = p; at < end; at++)
		if (V.owner[chunk_index(*at)] == h->id)
			put_block(h, *at);
		else
			*rest++ = *at;
	rs_alloc_unlock(&h->lock);
	return (unsigned)(rest - p);
}

void rs_slab_flush(struct rs_alloc_heap *h, unsigned class, bool all)
{
	enum { BATCH = 64 };
	struct rs_alloc_bin *b = &h->bin[class];
	unsigned n = (unsigned)(b->top - b->bottom);
	unsigned cap = (unsigned)(b->limit - b->bottom);
	if (!all && cap < T.cap[class]) {
		cap = cap * 2 < T.cap[class] ? cap * 2 : T.cap[class];
		b->limit = b->bottom + cap;
		return;
	}
	/* The oldest ones: those on top are still in the processor's caches. */
	unsigned most = all ? n : (n + 1) / 2;
	while (most) {
		uintptr_t batch[BATCH];
		unsigned k = most < BATCH ? most : BATCH;
		/* A child that is forked meanwhile finds an empty stack, and not a block twice. */
		b->top = b->bottom;
		RS_BARRIER();
		for (unsigned i = 0; i < k; i++)
			batch[i] = b->bottom[i];
		for (unsigned i = k; i < n; i++)
			b->bottom[i - k] = b->bottom[i];
		n -= k;
		RS_BARRIER();
		b->top = b->bottom + n;
		most -= k;
		unsigned left = put_blocks(h, batch, batch + k);
		while (left) /* homes of others, one after the other in the order of their blocks */
			left = put_blocks(T.heap[V.owner[chunk_index(batch[0])]], batch, batch + left);
	}
}

void rs_slab_home(uintptr_t p) { put_blocks(T.heap[V.owner[chunk_index(p)]], &p, &p + 1); }

void rs_slab_remote(uintptr_t p)
{
	uint32_t index = chunk_index(p);
	struct chunk *c = chunk_at(index);
	uint32_t owner = V.owner[index];
	unsigned granule = (unsigned)((p & (RS_CHUNK - 1)) >> 4);
	uint64_t bit = 1ull << granule % 64, unit = 1ull << granule / (64 * UNIT_WORDS);
	if (__atomic_fetch_or(&c->remote[granule / 64], bit, __ATOMIC_SEQ_CST) & bit)
		rs_alloc_abort("double free or corruption (fasttop)");
	if (!(__atomic_load_n(&c->remote_units, __ATOMIC_SEQ_CST) & unit))
		__atomic_fetch_or(&c->remote_units, unit, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&c->remote_queued, __ATOMIC_SEQ_CST) || __atomic_exchange_n(&c->remote_queued, 1, __ATOMIC_SEQ_CST))
		return;
	uint32_t *list = &T.heap[owner]->remote, head = LOAD(*list);
	do
		c->remote_next = head;
	while (!__atomic_compare_exchange_n(list, &head, index + 1, true, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED));
}

/* Under h's lock. A chunk may be found here that is not h's any more: who queued it was slow. What others left in it since then knows it as queued, so it is passed on. */
void rs_slab_collect(struct rs_alloc_heap *h)
{
	if (RS_LIKELY(!LOAD(h->remote)))
		return;
	uint32_t at = __atomic_exchange_n(&h->remote, 0, __ATOMIC_SEQ_CST);
	while (at) {
		uint32_t index = at - 1;
		struct chunk *c = chunk_at(index);
		at = c->remote_next;
		__atomic_exchange_n(&c->remote_queued, 0, __ATOMIC_SEQ_CST);
		uint32_t owner = LOAD(V.owner[index]);
		if (owner != h->id) {
			if (!owner || !__atomic_load_n(&c->remote_units, __ATOMIC_SEQ_CST) || __atomic_exchange_n(&c->remote_queued, 1, __ATOMIC_SEQ_CST))
				continue;
			uint32_t *list = &T.heap[owner]->remote, head = LOAD(*list);
			do
				c->remote_next = head;
			while (!__atomic_compare_exchange_n(list, &head, index + 1, true, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED));
			continue;
		}
		uint64_t units = __atomic_exchange_n(&c->remote_units, 0, __ATOMIC_SEQ_CST);
		for (; units; units &= units - 1) {
			unsigned unit = (unsigned)__builtin_ctzll(units);
			for (unsigned i = unit * UNIT_WORDS; i < (unit + 1) * UNIT_WORDS; i++) {
				uint64_t w = LOAD(c->remote[i]) ? __atomic_exchange_n(&c->remote[i], 0, __ATOMIC_SEQ_CST) : 0;
				for (; w; w &= w - 1) {
					uintptr_t p = chunk_address(index) + ((uintptr_t)i * 64 + (uintptr_t)__builtin_ctzll(w)) * 16;
					unsigned class = (V.unit[unit_index(p)] & 0xff) - 1u;
					if (class >= RS_ALLOC_PAGED)
						rs_slab_dirty(p, T.size[class]);
					put_block(h, p);
				}
			}
		}
	}
}

void rs_slab_idle(struct rs_alloc_heap *h)
{
	for (unsigned class = 0; class < RS_ALLOC_CLASSES; class++) {
		struct rs_alloc_bin *b = &h->bin[class];
		if (b->top != b->bottom)
			rs_slab_flush(h, class, true);
	}
	rs_alloc_lock(&h->lock, h->id);
	rs_slab_collect(h);
	for (unsigned class = 0; class < RS_ALLOC_CLASSES; class++) {
		struct rs_alloc_bin *b = &h->bin[class];
		for (uint32_t at = b->first; at;) {
			struct span *s = span_at(at - 1);
			uint32_t next = s->next;
			if (s->free + s->fresh == s->total)
				drop_span(h, class, at - 1);
			at = next;
		}
	}
	if (h->spare) {
		uint32_t index = h->spare - 1;
		struct chunk *c = chunk_at(index);
		h->spare = 0;
		unlist_chunk(h, c);
		rs_run_give(index, 1, h->id, c->dirty[0] | c->dirty[1] | c->dirty[2] | c->dirty[3]);
	}
	rs_alloc_unlock(&h->lock);
}

void rs_slab_purge(struct rs_alloc_heap *h)
{
	for (unsigned level = 0; level < LEVELS; level++)
		for (uint32_t at = h->level[level]; at; at = chunk_at(at - 1)->next) {
			struct chunk *c = chunk_at(at - 1);
			for (unsigned u = 0; u < UNITS; u++) {
				unsigned page = u * (RS_UNIT / RS_PAGE);
				uint64_t mask = 15ull << page % 64;
				if (!(c->unit_free >> u & 1) || !(LOAD(c->dirty[page / 64]) & mask))
					continue;
				if (purge(chunk_address(at - 1) + u * (uintptr_t)RS_UNIT, RS_UNIT) == 0)
					__atomic_fetch_and(&c->dirty[page / 64], ~mask, __ATOMIC_RELAXED);
			}
		}
}

/* --- pages that are zero --------------------------------------------------------------------------------------------------------- */

bool rs_slab_clean(uintptr_t p, size_t n)
{
	const struct chunk *c = chunk_at(chunk_index(p));
	uintptr_t at = p & (RS_CHUNK - 1);
	for (size_t i = at / RS_PAGE; i <= (at + n - 1) / RS_PAGE; i++)
		if (LOAD(c->dirty[i / 64]) >> i % 64 & 1)
			return false;
	return true;
}

void rs_slab_dirty(uintptr_t p, size_t n)
{
	uintptr_t at = p & (RS_CHUNK - 1);
	dirty_pages(chunk_at(chunk_index(p)), (unsigned)(at / RS_PAGE), (unsigned)((at + n - 1) / RS_PAGE) + 1);
}

RS_GENERAL bool rs_slab_out(uintptr_t p)
{
	uint32_t unit = unit_index(p);
	unsigned word = __atomic_load_n(&V.unit[unit], __ATOMIC_RELAXED), class = (word & 0xff) - 1;
	if (class >= RS_ALLOC_CLASSES)
		return false;
	unit -= word >> 8;
	uintptr_t at = p - unit_address(unit);
	struct chunk *c = chunk_at(unit / UNITS);
	struct span *s = span_at(unit);
	unsigned granule = (unsigned)((p & (RS_CHUNK - 1)) >> 4);
	uint64_t bit = 1ull << granule % 64;
	return at % T.size[class] == 0 && at / T.size[class] < (uintptr_t)s->total - LOAD(s->fresh) && !(LOAD(c->free[granule / 64]) & bit) &&
	       !(LOAD(c->remote[granule / 64]) & bit);
}
